"""check_world() finds each defect by the name of the rule it breaks, and nothing in worlds that are sound."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import milkrun
from milkrun.core import fields
from milkrun.core.actions import discrete
from milkrun.core.check import Finding, check_world, interpreted
from milkrun.core.check.bench import TOLERANCE, first_difference
from milkrun.core.check.replays import REPLAY_RULES
from milkrun.core.check.rules import DECLARATIONS, RESET_RULES, STEP_RULES
from milkrun.core.errors import ConfigError, MissingExtra, RegistryError, missing_extra
from milkrun.core.fields import float32, int32, mask, state
from milkrun.core.kernels import kernel
from milkrun.core.world import World
from milkrun.render.scene import Bar, Chart
from milkrun.routing.tsp import TSP
from tests.core import broken_worlds, toys
from tests.core.broken_worlds import DEFECTS, Stairs, StairsConfig, variant
from tests.core.broken_worlds import reset as stairs_reset
from tests.core.broken_worlds import step as stairs_step


def broken_rules(world: Any, **options: Any) -> set[tuple[str, str]]:
    """(rule, field) of every finding."""
    return {(finding.rule, finding.field) for finding in check_world(world, **options)}


def stairs(defect: str) -> Stairs:
    return Stairs(16, StairsConfig(defect=defect), seed=3)


# -- sound worlds -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("id", ["milkrun/TSP-v0", "milkrun/CVRP-v0"])
def test_registered_worlds_are_sound(id: str) -> None:
    """TSP and CVRP break no rule in their default configuration, checked by id."""
    assert check_world(id) == []


@pytest.mark.parametrize(
    ("id", "options"),
    [
        ("milkrun/TSP-v0", {"num_loc": 2}),
        ("milkrun/TSP-v0", {"num_loc": 6, "start": "free", "metric": "round", "max_loc": 100.0}),
        ("milkrun/TSP-v0", {"num_loc": 5, "metric": "matrix", "record": False}),
        ("milkrun/CVRP-v0", {"num_loc": 1, "max_steps": None}),
        ("milkrun/CVRP-v0", {"num_loc": 5, "metric": "matrix", "reward": "terminal"}),
        ("milkrun/CVRP-v0", {"num_loc": 7, "max_length": 3.0, "max_steps": 6}),
    ],
)
def test_routing_options_are_sound(id: str, options: dict[str, Any]) -> None:
    """Tiny sizes, a matrix, a free start, a trip limit, terminal rewards and step limits break no rule."""
    assert check_world(milkrun.make(id, 16, seed=5, **options)) == []


@pytest.mark.parametrize("toy", [toys.Convoy, toys.Glider, toys.Drifter, toys.Turnstile])
def test_toys_break_no_rule_but_that_of_docs(toy: type[World]) -> None:
    """Groups of agents, box actions, an own rule of legality and an `idle` kernel are sound; toys lack only docs."""
    assert {rule for rule, _ in broken_rules(toy)} <= {"documented"}


def test_stairs_without_defect_are_sound() -> None:
    """Without the defects below this world breaks no rule."""
    assert check_world(Stairs) == []


def test_interpreted_floats_may_differ_by_the_tolerance() -> None:
    """A float by 1e-5 of its value or 1e-5, whole numbers and flags by nothing."""
    compiled = np.array([[100.0, 0.0], [1.0, np.nan]])
    near, far = compiled + [[9e-4, 9e-6], [0.0, 0.0]], compiled + [[0.0, 0.0], [3e-5, 0.0]]
    assert first_difference("load", compiled, near, TOLERANCE) is None
    assert first_difference("load", compiled, far, TOLERANCE) == (1, "load[0]", 1.0, 1.0 + 3e-5)
    assert first_difference("load", compiled, near) == (0, "load[0]", 100.0, 100.0 + 9e-4)
    assert first_difference("i", np.array([5, 7]), np.array([5, 8]), TOLERANCE) == (1, "i", 7, 8)
    assert first_difference("done", np.array([True]), np.array([False]), TOLERANCE) == (0, "done", True, False)


# -- one defect each --------------------------------------------------------------------------------------------

KERNEL_DEFECTS = {
    "too_high": {("in_bounds", "height")},
    "beyond_top": {("in_bounds", "tread")},
    "nan_sum": {("finite", "earned")},
    "nan_reward": {("finite", "reward"), ("finite", "objective"), ("rewards_sum", "objective")},
    "shut_at_start": {("open_while_live", "action_mask")},
    "dead_end": {("open_while_live", "action_mask")},
    "both_ends": {("one_end", "truncated")},
    "over_at_start": {("fresh_start", "terminated"), ("shut_when_ended", "action_mask")},
    "spends_instance": {("accesses_checked", "worth")},
    "pushes_neighbour": {("accesses_checked", "earned")},
    "own_objective": {("rewards_sum", "objective")},
    "counts_twice": {("steps_counted", "i")},
    "free_tread": {("agrees_with_task", "objective")},
    "overrun": {("accesses_checked", "record")},
    "endless": {("ends", "terminated")},
    "overread": {("accesses_checked", "height")},
    "forgets_trail": {("reset_forgets", "trail")},
    "draws_on": {("reset_forgets", "worth")},
    "counts_looks": {("looking_changes_nothing", "picture")},
    "moves_when_seen": {("looking_changes_nothing", "earned")},
    "nan_when_seen": {("views_in_bounds", "picture")},
    "reads_view": {("views_not_read", "left")},
    "reads_tally": {("views_not_read", "leaps")},
    "drops_view": {("views_not_read", "left")},
    "reads_own_place": {("instances_shared", name) for name in ("action_mask", "done", "terminated")},
    "pays_twice_late": {("terminal_is_dense", "objective")},
    "reads_scratch": {("accesses_checked", "work")},
    "reads_neighbour": {("accesses_checked", "tread")},
    "keyed_by_place": {("rows_alone", "height"), ("rows_alone", "worth"), ("rows_alone", "left")},
    "refuses_open": {("open_is_legal", "illegal")},
    "takes_closed": {("closed_is_illegal", "illegal")},
    "moves_when_judging": {("illegal_changes_nothing", "earned")},
    "records_by_clock": {("accesses_checked", "record")},
    "looks_behind": {("accesses_checked", "record")},
    "nan_to_count": {("accesses_checked", "leaps")},
    "wide_record": {("accesses_checked", "record")},
    "divides_by_none": {("accesses_checked", "")},
    "keys_itself": {("accesses_checked", "stream")},
}


@pytest.mark.parametrize("defect", KERNEL_DEFECTS)
def test_defect_of_a_kernel_is_found(defect: str) -> None:
    """Each defect of a kernel is found under the names of the rules it breaks, at the fields where it shows."""
    assert broken_rules(stairs(defect)) == KERNEL_DEFECTS[defect]


def test_a_mask_that_is_declared_remade_and_is_carried_on_is_found() -> None:
    """A step of the TSP closes one place of its mask and does not write the others."""

    class Thrifty(TSP):
        action_mask = mask("N", remade=True)

    found = broken_rules(Thrifty(16, TSP.Config(num_loc=6), seed=3))
    assert {where for where in found if where[0] == "remade_not_read"} == {("remade_not_read", "action_mask")}


def test_every_defect_of_the_kernels_is_tried() -> None:
    """The table above has every defect of the kernels."""
    assert set(KERNEL_DEFECTS) == set(DEFECTS) - {"none"}


PYTHON_DEFECTS = {
    broken_worlds.opens_when_ended: ("step", {("shut_when_ended", "action_mask")}),
    broken_worlds.remembers_in_python: ("step", {("saves_all", "left")}),
    broken_worlds.differs_on_threads: ("step", {("threads_agree", "left")}),
    broken_worlds.differs_in_same_step: (
        "step",
        {("autoreset_as_by_hand", "reward"), ("autoreset_as_by_hand", "left")},
    ),
    broken_worlds.draws_in_python: ("step", {("reproducible", "left")}),
    broken_worlds.spends_in_python: ("step", {("instance_constant", "worth")}),
    broken_worlds.pushes_in_python: ("step", {("rows_apart", "earned")}),
    broken_worlds.overruns_in_python: ("step", {("writes_inside", "record")}),
    broken_worlds.overreads_in_python: ("step", {("reads_inside", "left")}),
    broken_worlds.depends_on_compiling: ("step", {("interpreted_alike", "left")}),
    broken_worlds.pays_late_in_part: ("step", {("terminal_is_dense", "reward")}),
    broken_worlds.resets_by_python: ("reset", {("autoreset_as_by_hand", "trail")}),
    broken_worlds.draws_on_the_world: ("draw", {("looking_changes_nothing", "left")}),
    broken_worlds.refuses_all: ("check_instances", {("takes_own_instances", "")}),
}


@pytest.mark.parametrize("defect", PYTHON_DEFECTS, ids=lambda defect: defect.__name__)
def test_defect_of_python_code_is_found(defect: Any) -> None:
    """Overridden Python methods are held to the same contract."""
    method, expected = PYTHON_DEFECTS[defect]
    assert broken_rules(variant(**{method: defect})(16, seed=3)) == expected


DECLARED_DEFECTS = {
    "unknown size": ({"left": state(int32, "Q", doc="of an unknown size")}, ("sizes_known", "left")),
    "unknown bound": ({"left": state(int32, high="Q", doc="up to an unknown size")}, ("sizes_known", "left")),
    "float index": ({"tread": state(float32, index="N", doc="where the climber stands")}, ("bounds_declared", "tread")),
    "empty range": ({"left": state(int32, low=4, high=3, doc="no number is both")}, ("bounds_declared", "left")),
    "wide mask": ({"action_mask": mask(4)}, ("mask_width", "action_mask")),
    "many actions": ({"action": discrete("N")}, ("mask_width", "action_mask")),
    "no policy": ({"policies": {"up": "tests.core.broken_worlds:climb"}}, ("references_lead_somewhere", "policies")),
    "remade state": ({"climbs": state(int32, low=0, remade=True, doc="actions")}, ("remade_not_read", "climbs")),
    "no doc": ({"climbs": state(int32, low=0)}, ("documented", "climbs")),
}


@pytest.mark.parametrize("defect", DECLARED_DEFECTS)
def test_defect_of_a_declaration_is_found(defect: str) -> None:
    """An invalid or empty declaration is named."""
    attributes, expected = DECLARED_DEFECTS[defect]
    assert broken_rules(variant(**attributes)) == {expected}


HOOKS = (
    "arrange_instances",
    "check_instances",
    "check_states",
    "step",
    "reset",
    "draw",
    "constants",
    "solution",
    "observe",
    "state_dict",
    "load_state_dict",
    "allocate",
)
CLASS_HOOKS = "size_of", "task_options"
SLIP = r"raises_nothing: raises \(broken_worlds\.py:\d+\) raises ValueError: the author slipped"


@pytest.mark.parametrize("hook", [*HOOKS, *CLASS_HOOKS])
def test_a_hook_that_raises_is_a_finding(hook: str) -> None:
    """The error and its place are a finding, not an error of the checker."""
    raising = classmethod(broken_worlds.raises) if hook in CLASS_HOOKS else broken_worlds.raises
    (finding,) = check_world(variant(**{hook: raising}))
    assert re.fullmatch(SLIP, str(finding))


def never_right(self: Any) -> None:
    raise ConfigError("no number is right")


def raising_config() -> type[World]:
    fussy = dataclass(frozen=True, kw_only=True)(type("Fussy", (StairsConfig,), {"validate": never_right}))
    return variant(Config=fussy)


ODD: dict[str, tuple[Any, str]] = {
    "no kernels": (
        type("Bare", (World,), {"action": discrete(3), "action_mask": mask(3, doc="open")}),
        "raises_nothing: Bare has no kernel 'generate': write Bare.bind(",
    ),
    "a configuration that refuses itself": (raising_config(), "raises_nothing: no number is right"),
    "instances lost": (
        variant(arrange_instances=broken_worlds.gives_nothing),
        r"raises_nothing: read_instances (instances.py:",
    ),
    "no constants": (variant(constants=broken_worlds.gives_nothing), "raises_nothing: _numbers (memory.py:"),
    "an unknown constant": (variant(constants=lambda self: {"defekt": 0}), "raises_nothing: Stairs.constants() names "),
    "too much memory": (variant(left=state(int32, 10**12, doc="of no computer")), "raises_nothing: 8 rows of 4,000,0"),
    "no sizes": (variant(size_of=classmethod(broken_worlds.gives_nothing)), "sizes_known: size_of gives None: it "),
    "half a tread": (variant(size_of=classmethod(lambda cls, config: {"N": 9.5})), "sizes_known: size_of gives 'N' = "),
    "an unknown lowest value": (variant(left=state(int32, low="-Q", doc="x")), "sizes_known: left names the size 'Q'"),
    "a negative dimension": (variant(left=state(int32, -3, doc="x")), "sizes_known: left has the dimension -3: "),
    "no action": (variant(action=None), "sizes_known: action is None: it must be discrete(...)"),
    "actions of no size": (variant(action=discrete("Q")), "sizes_known: action names the size 'Q', which size_of"),
    "a type of no kernel": (variant(left=state(np.complex64, doc="x")), "types_known: left is complex64: kernels"),
    "no policies": (variant(policies=None), "references_lead_somewhere: policies is None: it must be a dict"),
    "a number for a policy": (variant(policies={"up": 3}), "references_lead_somewhere: policies['up'] leads to 3"),
    "a fault of no field": (
        variant(faults={1: ("hight", "is odd")}),
        "faults_described: faults[1] is ('hight', 'is odd')",
    ),
    "a fault of no number": (variant(faults={0: ("tread", "is odd")}), "faults_described: faults has 0: the kernel"),
    "a chart of no lane": (
        variant(chart=lambda self, row, frames: Chart(("climber",), (Bar(0, "climb", 0, 1),))),
        "episodes_shown: Stairs, chart of step ",
    ),
    "a chart of no field": (
        variant(chart_fields=("tred",)),
        "episodes_shown: Stairs: chart_fields names 'tred', which is no field; did you mean",
    ),
    "its own states refused": (
        variant(check_states=broken_worlds.refuses_all),
        "takes_own_states: refuses a state of its own play: row 0: height = 3: must be even",
    ),
}


@pytest.mark.parametrize("case", ODD)
def test_an_unusual_defect_is_a_finding(case: str) -> None:
    """Each is reported in a sentence; none makes the checker raise."""
    world, said = ODD[case]
    findings = [str(finding) for finding in check_world(world)]
    assert findings and findings[0].startswith(said)


@pytest.mark.parametrize("cost", [lambda world: None, lambda world: np.zeros(3)])
def test_a_task_that_does_not_price_every_row_is_a_finding(cost: Any) -> None:
    """A task returns one cost for each row."""
    (finding,) = check_world(Stairs, task=cost)
    assert re.fullmatch(r"agrees_with_task: the task gives costs of shape \(3?,?\), not \(64,\): .*", str(finding))


def test_findings_before_an_error_are_reported_too() -> None:
    """A row beyond its bounds, and then a step that raises because of it."""

    def stumbles(self: Any, actions: Any, rows: Any = None) -> None:
        World.step(self, actions, rows)
        if self.debug:
            return
        if (self.left > 90).any():
            raise IndexError("beyond the stairs")
        self.left[:] = 99

    findings = broken_rules(variant(step=stumbles, left=fields.view(int32, low=0, high=10, doc="treads to go")))
    assert {("in_bounds", "left"), ("raises_nothing", "")} <= findings


def test_every_rule_finds_a_defect() -> None:
    """Every rule of the checker has a world that breaks it."""
    every = {rule.__name__ for rule in (*DECLARATIONS, *RESET_RULES, *STEP_RULES, *REPLAY_RULES)}
    every |= {"agrees_with_task", "accesses_checked", "writes_inside"}
    found = [
        {("ends_guarded", "used")},  # test_a_fault_that_lets_in_too_much_is_found
        *KERNEL_DEFECTS.values(),
        *(e for _, e in PYTHON_DEFECTS.values()),
        {e for _, e in DECLARED_DEFECTS.values()},
    ]
    proven = {rule for expected in found for rule, _ in expected} | {said.partition(":")[0] for _, said in ODD.values()}
    assert every == proven - {"raises_nothing", "takes_own_states"}


def test_reward_paid_in_part_is_found_where_it_is_paid_last() -> None:
    """Under reward='terminal' the last reward is the whole objective."""
    world = variant(step=broken_worlds.pays_late_in_part)(16, StairsConfig(reward="terminal"), seed=3)
    assert broken_rules(world) == {("rewards_sum", "reward")}


def test_a_write_beyond_the_record_is_found_at_the_default_size() -> None:
    """The check of CVRP as it comes names kernel, line, field, index and shape of `w.tour[b, w.i[b]]`: `i` counts
    illegal steps too, and 21 nodes have a record of 42 actions, but 84 steps."""
    (finding,) = check_world(broken_worlds.ClockCVRP)
    assert (finding.rule, finding.field) == ("accesses_checked", "tour")
    assert re.fullmatch(
        r"step_by_clock \(broken_worlds\.py:\d+\): tour\[\d, \d\d\]: the index \d\d is out of range; the shape is "
        r"\(8, 42\)",
        finding.sentence,
    )


def test_a_misspelt_field_is_a_finding() -> None:
    """The nearest name, and the place."""
    (finding,) = check_world(broken_worlds.Misspelt)
    line = broken_worlds.misspelling_step.py_func.__code__.co_firstlineno + 3
    assert finding.sentence == f"Misspelt has no field 'traill': did you mean 'trail'? (broken_worlds.py:{line})"


def test_a_kernel_that_does_not_compile_is_a_finding_of_that_name() -> None:
    """The rule is `compiles`, with the reason and the place."""
    (finding,) = check_world(broken_worlds.Allocating)
    line = broken_worlds.allocating_step.py_func.__code__.co_firstlineno + 3
    assert str(finding) == (
        f"compiles: a kernel does not compile (broken_worlds.py:{line}): it allocates memory, which a kernel must not: "
        "write a loop, or declare a scratch field; debug=True plays it as Python"
    )


def test_a_kernel_that_draws_from_a_foreign_generator_is_a_finding() -> None:
    """With the name of the generator, before any play."""
    (finding,) = check_world(broken_worlds.Drawing)
    line = broken_worlds.drawing_generate.py_func.__code__.co_firstlineno + 3
    assert str(finding).startswith(
        f"compiles: the kernel 'drawing_generate' draws from np.random.random (broken_worlds.py:{line}): rows have "
    )


def test_a_fault_of_the_smallest_size_is_found() -> None:
    """A shelf of six places is sound, one of a single place is not; the sentence says which size it took."""
    (finding,) = check_world(broken_worlds.Shelf)
    assert (finding.rule, finding.field) == ("accesses_checked", "filled")
    assert finding.sentence.endswith("the index 1 is out of range; the shape is (8, 1) with places=1")


def test_a_fault_that_lets_in_too_much_is_found() -> None:
    """A plan with one entry left and three people waiting is within all bounds and accepted; the second step from there
    would write beyond it. The finding names field, value, kernel, line and the remedy."""
    (finding,) = check_world(broken_worlds.Lift)
    assert (finding.rule, finding.field) == ("ends_guarded", "used")
    line = broken_worlds.fetch_one.py_func.__code__.co_firstlineno + 3
    assert re.fullmatch(
        rf"a saved state with used = 2 is accepted, and then fetch_one \(broken_worlds\.py:{line}\): plan\[\d, 3\]: "
        r"the index 3 is out of range; the shape is \(8, 3\): the kernel `fault` or check_states must refuse such a "
        r"state, or the kernel guard its access",
        finding.sentence,
    )


def test_a_fault_that_refuses_enough_is_no_finding() -> None:
    """The same lift, whose `fault` requires an entry for each person waiting."""
    assert check_world(broken_worlds.GuardedLift) == []


def test_a_fault_that_reads_beyond_an_array_is_found() -> None:
    """`fault` runs on every loaded state, so it must check a number before using it as an index."""

    @kernel
    def peeks(w, b):
        return 0 if w.terminated[b] else 0 * w.plan[b, w.used[b]]

    peeking = type("Peeking", (broken_worlds.GuardedLift,), {"__module__": __name__, "__doc__": "A lift."})
    peeking.bind(fault=peeks)
    (finding,) = check_world(peeking)
    assert (finding.rule, finding.field) == ("ends_guarded", "used")
    assert "plan[0, 3]: the index 3 is out of range" in finding.sentence


def test_idle_agent_of_a_group_is_found() -> None:
    """Every agent needs an allowed action, not only the team."""
    findings = check_world(variant(toys.Convoy, step=broken_worlds.shuts_last_drone))
    assert "open_while_live: row 0: the mask of agent 2 is all False on a live row" in map(str, findings)


def test_missing_mask_is_found() -> None:
    """A world with choices and no mask is named."""
    maskless = type("Maskless", (World,), {"action": discrete(3)})
    assert [str(f) for f in check_world(maskless)] == ["mask_width: there is no action_mask: 3 choices need one"]


def test_sizes_that_depend_on_the_configuration_are_found() -> None:
    """The names of the sizes are the same in every configuration; only their values change."""
    moody = variant(size_of=classmethod(lambda cls, config: {"N": 10} | ({} if config.defect == "none" else {"Q": 1})))
    assert broken_rules(moody(8, StairsConfig(defect="both_ends"))) == {("sizes_known", "")}


# -- the surface ------------------------------------------------------------------------------------------------


def test_a_finding_reads_as_a_sentence() -> None:
    """Rule, row, field, value, what is allowed."""
    first = check_world(stairs("too_high"))[0]
    assert first == Finding("in_bounds", 0, "height", "height = 9: must be <= 8")
    assert str(first) == "in_bounds: row 0: height = 9: must be <= 8"
    assert str(Finding("ends", None, "terminated", "no row ended")) == "ends: no row ended"


@pytest.mark.parametrize("cost", [lambda world: -2 * world.objective, lambda world: np.full(64, np.inf)])
def test_a_given_task_is_used(cost: Any) -> None:
    """A task given by the caller replaces that of the class; a cost of inf means an invalid solution."""
    assert broken_rules(Stairs, task=cost) == {("agrees_with_task", "objective")}


def test_a_given_world_does_not_change() -> None:
    """The class, configuration, rows and seed of a World are used; its own rows do not change."""
    world = stairs("none")
    world.reset()
    before = world.state_dict()
    assert check_world(world) == []
    after = world.state_dict()
    assert all(np.array_equal(before[name], after[name]) for name in before)


def test_a_package_that_is_not_installed_is_no_finding() -> None:
    """It is no fault of the world: the caller gets the error that names the extra."""

    def lacking(self: Any) -> None:
        raise missing_extra("an engine", "engines")

    with pytest.raises(MissingExtra, match="an engine, which is not installed"):
        check_world(variant(constants=lacking))


def test_other_arguments_than_worlds_are_refused() -> None:
    """The argument is neither a world, nor a class, nor a known id: an error of the library."""
    with pytest.raises(ConfigError, match="check_world takes a World, a World class or an id, not a int"):
        check_world(3)  # type: ignore[arg-type]
    with pytest.raises(RegistryError, match="no world 'milkrun/CVPR-v0'"):
        milkrun.check_world("milkrun/CVPR-v0")


@kernel
def circles_in_reset(w, b):
    """A reset that never ends."""
    stairs_reset(w, b)
    steps = 0
    while w.climbs[b] >= 0:
        steps += 1


@kernel
def circles_in_step(w, b, action):
    """A step that ends for no action but the first."""
    while action > 0:
        w.climbs[b] += 0
    stairs_step(w, b, action)


@pytest.mark.parametrize("hook", ["reset", "step"])
def test_a_kernel_that_never_ends_is_a_finding(hook: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernel, file and line are named."""
    monkeypatch.setattr(interpreted, "CALL_SECONDS", 0.5)
    circles = circles_in_reset if hook == "reset" else circles_in_step
    endless = type("Endless", (Stairs,), {"__doc__": Stairs.__doc__})
    endless.bind(**{hook: circles})
    handler = signal.getsignal(signal.SIGVTALRM)
    (finding, *_) = [f for f in check_world(endless) if f.rule == "accesses_checked"]
    assert finding.sentence.startswith(f"circles_in_{hook} (test_check.py:")
    assert "has run for 0.5 s: does a loop never end?" in finding.sentence
    assert signal.getsignal(signal.SIGVTALRM) == handler and signal.getitimer(signal.ITIMER_VIRTUAL)[0] == 0
