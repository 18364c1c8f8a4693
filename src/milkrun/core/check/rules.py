"""The rules of the contract that show in a declaration or in a single call of `reset` or `step`.

Each rule is a function with one sentence: it yields (row, field, what is wrong) for a world that breaks it, and its
name is the rule's name in a Finding. Rules that compare two worlds are in `replays`.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import numpy as np

from milkrun.core.actions import Agents, Box, Discrete
from milkrun.core.check.bench import Call, Fault, numbers_differ
from milkrun.core.config import Config
from milkrun.core.errors import BadInstance, RegistryError
from milkrun.core.faults import file_name, outer_names, source_tree
from milkrun.core.fields import TYPES, Role
from milkrun.core.hooks import kernels_of
from milkrun.core.instances import unlisted_fault
from milkrun.core.references import refer
from milkrun.core.world import World

Frame = dict[str, np.ndarray]
Task = Callable[[World], Any]

TOL = 1e-5
OUTCOME = ("reward", "terminated", "truncated", "done", "illegal")


def frame_of(world: World) -> Frame:
    """Copies of all fields of a world except views on demand."""
    fields = (f for f in world.fields.values() if f.per_row and not f.on_demand)
    return {f.name: getattr(world, f.name).copy() for f in fields if 0 not in f.shape(world.sizes)}


@dataclass(frozen=True)
class Transition:
    """A call, and the fields of the world before and after it. Every row plays its own instance."""

    world: World
    call: Call
    before: Frame
    after: Frame

    @property
    def named(self) -> np.ndarray:
        """(B,) the rows that the call named."""
        chosen = np.zeros(self.world.num_envs, bool)
        chosen[self.call.rows] = True
        return chosen

    @property
    def ended(self) -> np.ndarray:
        """(B,) the rows that have ended."""
        return self.after["terminated"] | self.after["truncated"]


# -- what a class declares --------------------------------------------------------------------------------------


def sizes_known(cls: type[World], config: Config) -> Iterator[Fault]:
    """Sizes are whole numbers by name, with the same names in every configuration. Every name in the dimensions, bounds
    and index of a field, and in the action, is one of them."""
    sizes, usual = cls.size_of(config), cls.size_of(cls.Config())
    if not isinstance(sizes, dict):
        yield None, "", f"size_of gives {sizes!r}: it must be a dict of names and whole numbers"
        return
    for name, size in sizes.items():
        if not _is_size(size):
            yield None, "", f"size_of gives {name!r} = {size!r}: it must be a whole number >= 0"
    if list(sizes) != list(usual):
        yield None, "", f"size_of gives {list(sizes)}, under the default configuration {list(usual)}"
    for f in cls.fields.values():
        ends = (end.removeprefix("-") for end in (f.low, f.high) if isinstance(end, str))
        for named in (*f.dims, *ends, f.index):
            if isinstance(named, str) and named not in sizes:
                yield None, f.name, f"{f.name} names the size {named!r}, which size_of does not give"
        for extent in f.dims:
            if not isinstance(extent, str) and not _is_size(extent):
                yield None, f.name, f"{f.name} has the dimension {extent!r}: it must be a size or a whole number >= 0"
    action = getattr(cls, "action", None)
    if not isinstance(action, (Discrete, Agents, Box)):
        yield None, "action", f"action is {action!r}: it must be discrete(...), agents(...) or box(...)"
        return
    for chosen in [size for group in action.groups for size in group[1:]] if isinstance(action, Agents) else [action.n]:
        if chosen not in sizes if isinstance(chosen, str) else not _is_size(chosen):
            yield None, "action", f"action names the size {chosen!r}, which size_of does not give"


def types_known(cls: type[World], config: Config) -> Iterator[Fault]:
    """Every field has a type that kernels support; scratch, which no binding shows, may hold random words (uint32)."""
    for f in cls.fields.values():
        known = (*TYPES, "uint32") if f.role is Role.SCRATCH else TYPES
        if f.dtype.name not in known:
            yield None, f.name, f"{f.name} is {f.dtype.name}: kernels know {', '.join(known)}"


def bounds_declared(cls: type[World], config: Config) -> Iterator[Fault]:
    """An index is an integer, and no lowest value is above the highest."""
    sizes = cls.size_of(config)
    for f in cls.fields.values():
        low, high = f.bounds(sizes)
        if f.index is not None and f.dtype.kind not in "iu":
            yield None, f.name, f"{f.name} is {f.dtype.name}: an index into {f.index!r} must be an integer"
        if low is not None and high is not None and low > high and 0 not in f.shape(sizes):
            yield None, f.name, f"{f.name} must be in {low}..{high}: no value is"


def mask_width(cls: type[World], config: Config) -> Iterator[Fault]:
    """The mask has one entry for each choice of each agent."""
    sizes = cls.size_of(config)
    choices = cls.action.nvec(sizes)
    field = cls.fields.get("action_mask")
    if choices and field is None:
        yield None, "action_mask", f"there is no action_mask: {sum(choices)} choices need one"
    elif choices and field is not None and field.shape(sizes) != (sum(choices),):
        yield None, "action_mask", f"action_mask has the row shape {field.shape(sizes)}; the actions are {choices}"


def faults_described(cls: type[World], config: Config) -> Iterator[Fault]:
    """`faults` names a field and a reason for every number other than 0 that the kernel `fault` returns."""
    for code, entry in cls.faults.items():
        if not isinstance(code, int) or code == 0:
            yield None, "", f"faults has {code!r}: the kernel `fault` gives whole numbers, and 0 where nothing is wrong"
        elif not (isinstance(entry, tuple) and len(entry) == 2 and entry[0] in cls.fields):
            yield None, "", f"faults[{code}] is {entry!r}: it must be the name of a field and a sentence"
    fault = kernels_of(cls).get("fault")
    for code, place in [] if fault is None else _returned_numbers(fault.py_func):
        if code != 0 and code not in cls.faults:
            yield None, "", f"{place} returns {code}, {unlisted_fault(cls, code)}"


def _returned_numbers(function: FunctionType) -> Iterator[tuple[int, str]]:
    """The whole numbers that a kernel's source returns, as literals or by name, and where."""
    tree = source_tree(function)
    waiting = [node.value for node in ast.walk(tree) if isinstance(node, ast.Return)] if tree is not None else []
    for value in waiting:  # which grows
        if isinstance(value, ast.IfExp):
            waiting += [value.body, value.orelse]
        elif isinstance(value, (ast.Name, ast.Constant)):
            number = value.value if isinstance(value, ast.Constant) else outer_names(function).get(value.id)
            if isinstance(number, int):
                yield int(number), f"{function.__name__} ({file_name(function)}:{value.lineno})"


def documented(cls: type[World], config: Config) -> Iterator[Fault]:
    """Every array of a row has a doc."""
    for f in cls.fields.values():
        if f.per_row and not f.doc:
            yield None, f.name, f"{f.name} has no doc: say what it means"


def references_lead_somewhere(cls: type[World], config: Config) -> Iterator[Fault]:
    """The objects that the class names as "module:name" exist. Those that need a missing extra are skipped, and
    environments are left to their bindings."""
    for name in ("policies", "solvers"):
        if not isinstance(getattr(cls, name), Mapping):
            yield None, name, f"{name} is {getattr(cls, name)!r}: it must be a dict of names and references"
            return
    single = ("task", "generator", "figure", "run_details")
    named: list[tuple[str, Any]] = [(name, None) for name in single if getattr(cls, name)]
    named += [(name, key) for name in ("policies", "solvers") for key in getattr(cls, name)]
    for name, key in named:
        try:
            if not callable(found := refer(cls, name, key)) and name not in ("task", "run_details"):
                yield None, name, f"{name}{'' if key is None else [key]} leads to {found!r}, which is not callable"
        except RegistryError as e:
            yield None, name, str(e)
        except ImportError:
            continue


# -- after any call ---------------------------------------------------------------------------------------------


def in_bounds(m: Transition) -> Iterator[Fault]:
    """Values stay within the declared bounds of their field; an index points into its range."""
    for name, array in m.after.items():
        low, high = m.world.fields[name].bounds(m.world.sizes)
        if low is not None:
            yield from _where(name, array, array < low, f"must be >= {low}")
        if high is not None:
            yield from _where(name, array, array > high, f"must be <= {high}")


def finite(m: Transition) -> Iterator[Fault]:
    """Floats are finite; only a field declared `limit` may be +inf."""
    for name, array in m.after.items():
        if array.dtype.kind == "f":
            fine = np.isfinite(array) | (np.isposinf(array) & m.world.fields[name].limit)
            yield from _where(name, array, ~fine, "must be finite")


def open_while_live(m: Transition) -> Iterator[Fault]:
    """A live row has an allowed action for each agent."""
    for agent, allowed in enumerate(masks_of(m.world, m.after)):
        shut = ~allowed.any(1) & ~m.ended
        yield from _rows("action_mask", shut, f"the mask of agent {agent} is all False on a live row")


def shut_when_ended(m: Transition) -> Iterator[Fault]:
    """The mask of a finished row allows index 0 only."""
    for agent, allowed in enumerate(masks_of(m.world, m.after)):
        wrong = m.ended & ~(allowed[:, 0] & ~allowed[:, 1:].any(1))
        yield from _rows("action_mask", wrong, f"the mask of agent {agent} on a finished row is not index 0 alone")


def one_end(m: Transition) -> Iterator[Fault]:
    """An episode is terminated by its rules or truncated by the limit, not both."""
    both = m.after["terminated"] & m.after["truncated"]
    yield from _rows("truncated", both, "terminated and truncated are both True")


def rows_apart(m: Transition) -> Iterator[Fault]:
    """A call does not change the rows that it does not name."""
    for name, array in m.after.items():
        moved = numbers_differ(m.before[name], array) & ~m.named
        yield from _rows(name, moved, f"{name} changed in a call for other rows")


# -- after a reset ----------------------------------------------------------------------------------------------


def fresh_start(m: Transition) -> Iterator[Fault]:
    """A new episode is live, with all counters and rewards at 0."""
    for name in ("i", "objective", *OUTCOME):
        yield from _where(name, m.after[name], (m.after[name] != 0) & m.named, "must be 0 after a reset")


# -- after a step -----------------------------------------------------------------------------------------------


def instance_constant(m: Transition) -> Iterator[Fault]:
    """The instance and the row's keys stay the same through an episode."""
    for name, array in m.after.items():
        if m.world.fields[name].role in (Role.INSTANCE, Role.KEY):
            yield from _rows(name, numbers_differ(m.before[name], array), f"a step changed {name}, which is constant")


def open_is_legal(m: Transition) -> Iterator[Fault]:
    """An action that the mask allows is executed."""
    wrong = m.named & ~_outside(m) & m.after["illegal"]
    yield from _rows("illegal", wrong, "the action is open in the mask, but was refused as illegal")


def closed_is_illegal(m: Transition) -> Iterator[Fault]:
    """An action that the mask forbids is flagged, never executed silently."""
    wrong = m.named & _outside(m) & ~m.after["illegal"]
    yield from _rows("illegal", wrong, "the action is closed in the mask, but was not flagged as illegal")


def illegal_changes_nothing(m: Transition) -> Iterator[Fault]:
    """An illegal action counts as a step and changes nothing else, unless the world has an `idle` kernel."""
    if "idle" in kernels_of(type(m.world)):
        return
    refused = m.named & m.after["illegal"]
    for name, array in m.after.items():
        if name not in ("i", "reward_exact", *OUTCOME):
            idle = refused & ~m.ended if name == "action_mask" else refused
            yield from _rows(name, numbers_differ(m.before[name], array) & idle, f"an illegal action changed {name}")


def steps_counted(m: Transition) -> Iterator[Fault]:
    """`i` grows by one a step."""
    expected = m.before["i"] + m.named
    yield from _where("i", m.after["i"], m.after["i"] != expected, "must be one more than before the step")


def rewards_sum(m: Transition) -> Iterator[Fault]:
    """`objective` is the sum of the rewards, paid in each step or all in the last one; `reward` is `reward_exact` in
    float32 if a world has that field."""
    paid, total = m.after.get("reward_exact", m.after["reward"]), m.after["objective"]
    if "reward_exact" in m.after:
        wrong = m.named & (m.after["reward"] != paid.astype(np.float32))
        yield from _where("reward", m.after["reward"], wrong, "must be reward_exact in float32")
    if m.world.reward_at_end:
        due = np.where(m.ended, total, 0).astype(paid.dtype)
        yield from _where("reward", paid, m.named & (paid != due), "must be the objective on the last step, 0 before")
    else:
        wrong = m.named & (total != m.before["objective"] + paid)
        yield from _where("objective", total, wrong, "must be what it was plus the reward")


def agrees_with_task(m: Transition, task: Task) -> Iterator[Fault]:
    """The return of a finished episode is minus the cost that an independent checker gives its solution."""
    done = m.named & m.after["terminated"]
    if m.call.actions is not None and done.any():
        cost, gained = np.asarray(task(m.world), np.float64), m.after["objective"]
        if cost.shape != gained.shape:
            yield None, "objective", f"the task gives costs of shape {cost.shape}, not {gained.shape}: one a row"
            return
        wrong = done & ~(np.abs(cost + gained) <= TOL * np.maximum(1.0, np.abs(gained)))
        for b in np.flatnonzero(wrong)[:1].tolist():
            said = f"finds a cost of {cost[b]:.10g}" if np.isfinite(cost[b]) else "refuses the solution"
            yield b, "objective", f"objective = {gained[b]:.10g}: the task {said}"


def takes_own_states(m: Transition) -> Iterator[Fault]:
    """Neither `check_states` nor the kernel `fault` refuses a state that was reached by playing."""
    try:
        m.world.check_own_states()
    except BadInstance as e:
        yield None, "", f"refuses a state of its own play: {e}"


def task_of(cls: type[World], config: Any) -> Task | None:
    """The task that a world class names as "module:Class", if there is one and the configuration records solutions."""
    if not cls.task or not getattr(config, "record", True):
        return None
    problem = refer(cls, "task")
    options, weights = cls.task_options(config), cls.task_weights(config)

    def costs(world: Any) -> Any:
        fields = (f.name for f in world.fields.values() if f.role is Role.INSTANCE)
        instances = {name: getattr(world, name)[world.instance_row] for name in fields}
        priced = () if weights is None else (weights,)
        return problem.get_costs(instances, world.solution(), *priced, on_violation="inf", **options)[0]

    return costs


DECLARATIONS = (
    sizes_known,
    types_known,
    bounds_declared,
    mask_width,
    faults_described,
    references_lead_somewhere,
    documented,
)
ALWAYS = (in_bounds, finite, open_while_live, shut_when_ended, one_end, rows_apart)
RESET_RULES = (*ALWAYS, fresh_start)
STEP_RULES = (
    *ALWAYS,
    instance_constant,
    open_is_legal,
    closed_is_illegal,
    illegal_changes_nothing,
    steps_counted,
    rewards_sum,
)


# -- reading a transition ---------------------------------------------------------------------------------------


def masks_of(world: World, frame: Frame) -> list[np.ndarray]:
    """The mask of each agent, (B, its choices)."""
    choices = world.action.nvec(world.sizes)
    return np.split(frame["action_mask"], np.cumsum(choices)[:-1], axis=1) if choices else []


def _outside(m: Transition) -> np.ndarray:
    """(B,) the rows whose action the mask before the call did not allow."""
    outside = np.zeros(m.world.num_envs, bool)
    assert m.call.actions is not None
    actions = m.call.actions.reshape(len(m.call.rows), -1)
    if m.world.action.kind == "box":
        outside[m.call.rows] = ~(np.abs(actions) <= 1).all(1)
        return outside
    for agent, allowed in enumerate(masks_of(m.world, m.before)):
        a = actions[:, agent]
        inside = (a >= 0) & (a < allowed.shape[1])
        outside[m.call.rows] |= ~(inside & allowed[m.call.rows, np.where(inside, a, 0)])
    return outside


def _is_size(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool) and bool(value >= 0)


def _rows(field: str, wrong: np.ndarray, sentence: str) -> Iterator[Fault]:
    if wrong.any():
        yield int(wrong.argmax()), field, sentence


def _where(name: str, array: np.ndarray, wrong: np.ndarray, rule: str) -> Iterator[Fault]:
    if wrong.any():
        at = tuple(int(k) for k in np.argwhere(wrong)[0])
        index = f"[{', '.join(map(str, at[1:]))}]" if len(at) > 1 else ""
        yield at[0], name, f"{name}{index} = {array[at]}: {rule}"
