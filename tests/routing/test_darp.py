"""The dial-a-ride world fulfils the contract of all worlds, gives reasons of masked actions, and shares instances.

Problems by hand are on a line, where distances are differences; see `darp_by_hand`.
"""

from __future__ import annotations

import numpy as np
import pytest

import milkrun
from milkrun.core.errors import IllegalAction, ResetNeeded
from milkrun.routing import DARP, DARPConfig
from milkrun.routing.darp.deadlines import DARPDeadlines
from tests.core.toys import rows_of
from tests.routing.darp_by_hand import TWO, darp

ID = "milkrun/DARP-v0"
BOTH = {
    "classic": {"num_requests": 6},
    "style b": {"num_requests": 6, "style": "b"},
    "deadlines": {"preset": "published"},
}
DEADLINES_TRACE = {
    "locs": [[[0, 0], [30, 40], [60, 80], [0, 50], [100, 0]]], "demand": [[0, 2, -2, 1, -1]],
    "time_windows": [[48, 10, 13, 12, 5]], "capacity": [[5, 5]],
}  # fmt: skip


def begun(rows, **options):
    world = milkrun.make(ID, rows, **{"seed": 7, "autoreset": "disabled", **options})
    world.reset()
    return world


def choose(world, turn, first=0):
    """A legal action a row that depends only on the row's number, its mask and the turn."""
    counts = world.action_mask.sum(axis=1)
    rank = (7 * (first + np.arange(world.num_envs)) + 3 * turn) % counts
    return (np.cumsum(world.action_mask, axis=1) > rank[:, None]).argmax(axis=1)


def steps(world, turns, first=0):
    for turn in range(turns):
        live = np.flatnonzero(~world.done)
        if len(live):
            world.step(choose(world, turn, first)[live], rows=live)
    return world


def on_hand(*instances, **options):
    return DARP.from_instances(instances, autoreset="disabled", **options)


# -- independence of rows ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", BOTH)
def test_a_row_is_the_same_in_every_batch(case):
    """Alone, among 7 and among 1024, after half an episode and at its end, to the bit."""
    for turns in (5, 40):
        large = steps(begun(1024, **BOTH[case]), turns)
        seven = steps(begun(7, first_row=600, **BOTH[case]), turns, first=600)
        assert rows_of(seven) == rows_of(large, np.arange(600, 607)), turns
        for row in (0, 603, 1023):
            assert rows_of(steps(begun(1, first_row=row, **BOTH[case]), turns, first=row)) == rows_of(large, [row])
    assert large.terminated.all()


@pytest.mark.parametrize("case", BOTH)
def test_threads_and_history_change_nothing(case):
    """One thread or two; new, or after other episodes, seeds, given instances and single resets."""
    one, two = (steps(begun(600, threads=threads, **BOTH[case]), 40) for threads in (1, 2))
    assert rows_of(one) == rows_of(two)
    other = begun(600, **BOTH[case])
    steps(other, 9)
    other.reset(rows=[3, 5], seed=99)
    steps(other, 3)
    drawn = {name: getattr(other, name).copy() for name, f in other.fields.items() if f.role.value == "instance"}
    other.reset(instance={name: array for name, array in drawn.items() if array.size})
    steps(other, 4)
    other.reset(seed=7)
    assert rows_of(steps(other, 40)) == rows_of(one)


def test_no_global_generator_is_used():
    """Neither in drawing instances nor in playing."""
    before = np.random.get_state()[1].copy()
    for case in BOTH.values():
        steps(begun(8, **case), 40).sample_actions(1)
    assert (np.random.get_state()[1] == before).all()


@pytest.mark.parametrize("case", ["classic", "style b"])
def test_dense_and_terminal_rewards_have_the_same_sum(case):
    """Per step or at the end, of 500 episodes; the float64 rewards sum to the objective."""
    dense, terminal = (begun(500, reward=reward, **BOTH[case]) for reward in ("dense", "terminal"))
    paid = np.zeros((2, 500))
    for turn in range(20):
        live = np.flatnonzero(~dense.done)
        actions = choose(dense, turn)[live]
        for k, world in enumerate((dense, terminal)):
            world.step(actions, rows=live)
            paid[k, live] += world.reward_exact[live] if k == 0 else world.reward[live]
        assert (terminal.reward[~terminal.done] == 0).all()
    assert dense.terminated.all() and terminal.terminated.all()
    assert (dense.objective == terminal.objective).all()
    np.testing.assert_allclose(paid[0], dense.objective, rtol=1e-12)
    np.testing.assert_allclose(paid[1], dense.objective, rtol=1e-6)
    left = (~dense.visited[:, 1:]).sum(axis=1)
    np.testing.assert_allclose(dense.objective, -dense.total_distance - 100 * left, rtol=1e-12)
    assert (2 * dense.unserved == left).all() and left.any()


@pytest.mark.parametrize("case", BOTH)
def test_ended_rows_do_not_change(case):
    """Their mask is the depot alone, they refuse a step, and no step of others changes them."""
    world = begun(64, **BOTH[case])
    ended: dict[int, dict[str, bytes]] = {}
    for turn in range(40):
        live = np.flatnonzero(~world.done)
        if not len(live):
            break
        world.step(choose(world, turn)[live], rows=live)
        for row, kept in ended.items():
            assert rows_of(world, [row]) == kept
        ended |= {int(row): rows_of(world, [row]) for row in live[world.done[live]]}
    assert len(ended) == 64 and world.terminated.all()
    assert (world.action_mask == (np.arange(world.sizes["N"]) == 0)).all()
    with pytest.raises(ResetNeeded, match="row"):
        world.step([0], rows=[3])


@pytest.mark.parametrize("options", [{}, {"preset": "classic-b"}, {"preset": "published"}])
def test_check_world_finds_nothing(options):
    """The checker for authors of worlds."""
    assert milkrun.check_world(milkrun.make(ID, 16, seed=1, **options)) == []


# -- reasons ----------------------------------------------------------------------------------------------------------

LINE = {"places": [1, 10, -5, 2], "duration": 100.0}
REASONS = [
    (1, darp(**LINE), [], 5, "out of range 0..4"),
    (1, darp(**LINE), [], -1, "out of range 0..4"),
    (1, darp(**LINE), [1], 10**12, "out of range 0..4"),
    (2, darp(**LINE), [1], 1, "visited already, or no node of this instance"),
    (2, darp(**LINE), [1, 2], 2, "visited already, or no node of this instance"),
    (3, darp(**LINE), [], 4, "its rider is not aboard"),
    (3, darp(**LINE), [1], 4, "its rider is not aboard"),
    (4, darp(**LINE), [1], 0, "riders are aboard"),
    (5, darp(**LINE), [], 0, "the vehicle is at the depot"),
    (5, darp(**LINE), [1, 2, 0], 0, "the vehicle is at the depot"),
    (6, darp(**LINE, capacity=[4, 4], load=[3, 2]), [1], 3, "over the capacity: 3 + 2 riders in 4 seats"),
    (
        6,
        darp([20, 21, -4, 2], capacity=[1], closes=[99, 99, 10, 99]),
        [1],
        3,
        "over the capacity: 1 + 1 riders in 1 seats",
    ),
    (8, darp([20, 21, -4, 2], closes=[99, 99, 10, 99]), [1], 3, "too late at the node itself"),
    (9, darp(**LINE, ride=20.9), [1], 3, "would strand a rider, or break a ride or route limit later"),
    (9, darp(**{**LINE, "duration": 31.9}), [1], 3, "would strand a rider, or break a ride or route limit later"),
]


def assert_refused(make, before, action, number, sentence):
    """Noop: only i grows, and the reason is set. Raise: nothing changes, and the error has the message."""
    world = make(illegal="noop")
    for earlier in before:
        world.step([earlier])
        assert not world.illegal[0] and world.illegal_reason[0] == 0
    assert not 0 <= action < world.sizes["N"] or not world.action_mask[0, action]
    kept, i = world.state_dict(), int(world.i[0])
    assert world.explain(0, action) == sentence
    world.step([action])
    assert world.illegal[0] and world.illegal_reason[0] == number and world.reward[0] == 0 and world.i[0] == i + 1
    for name, values in world.state_dict().items():
        if name not in ("i", "illegal", "illegal_reason", "reward", "reward_exact"):
            assert np.array_equal(values, kept[name]), name
    assert world.explain(0, int(world.action_mask[0].argmax())) == "allowed"
    world.step([int(world.action_mask[0].argmax())])
    assert not world.illegal[0] and world.illegal_reason[0] == 0
    strict = make(illegal="raise")
    for earlier in before:
        strict.step([earlier])
    kept = rows_of(strict)
    with pytest.raises(IllegalAction) as caught:
        strict.step([action])
    assert str(caught.value) == f"row 0: action {action}: {sentence}" and rows_of(strict) == kept


@pytest.mark.parametrize(("number", "instance", "before", "action", "sentence"), REASONS)
def test_reasons_of_the_classic_rule(number, instance, before, action, sentence):
    """Duration 32 is the way 1, -5, 2, 10 and home: 1 + 6 + 7 + 8 + 10; the ride of the first takes 21 of it."""
    assert_refused(lambda **how: on_hand(instance, **how), before, action, number, sentence)


def test_reason_of_too_many_requests():
    """Two seats, but one request at a time."""
    assert_refused(lambda **how: on_hand(darp(**TWO), max_onboard=1, **how), [1], 3, 7, "too many requests aboard")


def test_reason_of_padding():
    """Node 3 of an instance of one request, batched with one of two."""
    world = on_hand(darp([3, 10]), darp(**TWO))
    assert world.explain(0, 3) == "visited already, or no node of this instance" and world.explain(1, 3) == "allowed"
    world.step([3, 3])
    assert world.illegal.tolist() == [True, False] and world.illegal_reason.tolist() == [2, 0]
    assert world.n_nodes.tolist() == [3, 5] and world.visited[0].tolist() == [False, False, False, True, True]


@pytest.mark.parametrize(
    ("number", "seats", "before", "action", "sentence"),
    [
        (1, 5, [], 5, "out of range 0..4"),
        (2, 5, [3], 3, "visited already, or no node of this instance"),
        (3, 5, [3], 2, "its rider is not aboard"),
        (4, 5, [3], 0, "riders are aboard"),
        (5, 5, [], 0, "the vehicle is at the depot"),
        (6, 2, [3], 1, "over the capacity: 1 + 2 riders in 2 seats"),
        (8, 5, [3], 4, "too late at the node itself"),
    ],
)
def test_reasons_of_the_rule_by_deadlines(number, seats, before, action, sentence):
    """From (0,50) at time 2 it takes 111.8 / 25, rounded 4, to the last node, which closes at 5."""

    def make(**how):
        world = milkrun.make(ID, 1, preset="published", num_requests=2, num_agents=2, autoreset="disabled", **how)
        relaxed = [[48, 10, 13, 12, 6]] if number == 6 else DEADLINES_TRACE["time_windows"]
        world.reset(instance={**DEADLINES_TRACE, "capacity": [[seats, seats]], "time_windows": relaxed})
        return world

    assert_refused(make, before, action, number, sentence)


@pytest.mark.parametrize("case", BOTH)
def test_illegal_steps_count_towards_truncation(case):
    """Four of them truncate a row at max_steps 4: it is not terminated, so nothing is charged."""
    world = begun(3, max_steps=4, **BOTH[case])
    for _ in range(4):
        assert not world.done.any()
        world.step([-1, -1, -1])
    assert world.truncated.all() and not world.terminated.any() and not world.objective.any()


def test_the_end_is_reported():
    """One of two requests served by one of two cars: 1 + 9 + 10 driven and two nodes at 100 each."""
    world = on_hand(darp(**TWO, capacity=[1]))
    assert {"objective", "distance", "unserved", "vehicles_used", "illegal_reason", "reward_exact"} <= {
        field.name for field in world.info_fields
    }
    for action in (1, 2, 0):
        assert not world.done[0] and world.unserved[0] == 0
        world.step([action])
    found = [float(getattr(world, name)[0]) for name in ("objective", "distance", "unserved", "vehicles_used")]
    assert world.terminated[0] and found == [-220.0, 20.0, 1.0, 1.0] and world.reward_exact[0] == -210.0


# -- shared instances and configurations ------------------------------------------------------------------------------


def test_repeated_rows_share_their_instance():
    """Each of 32 instances in 64 rows: at most 1/32 of the memory of copies, and equal plays."""
    copied = begun(32 * 64, num_requests=6)
    names = [name for name, field in copied.fields.items() if field.role.value == "instance"]
    given = [
        {
            name: getattr(copied, name)[q].copy()
            for name in names
            if name not in ("tight_open", "tight_close", "n_nodes", "dist")
        }
        for q in range(32)
    ]
    shared = DARP.from_instances(given, repeat=64, autoreset="disabled")
    bytes_of = [sum(getattr(world, name).nbytes for name in names) for world in (shared, copied)]
    assert 0 < bytes_of[0] <= bytes_of[1] / 32
    assert shared.instance_row.tolist() == np.repeat(np.arange(32), 64).tolist()
    copied.reset(instance={name: np.repeat([one[name] for one in given], 64, axis=0) for name in given[0]})
    for world in (shared, copied):
        steps(world, 40)
    assert (shared.objective == copied.objective).all() and (shared.solution() == copied.solution()).all()
    assert len(np.unique(shared.objective[:64])) > 8 and (shared.mask_is_complete == copied.mask_is_complete).all()


def test_presets_and_names():
    """`classic` is the default, `classic-b` its style b; num_loc is twice the requests; one id has two classes."""
    default, published = DARPConfig.preset("default"), DARPConfig.preset("published")
    assert DARPConfig.preset("classic") == default == DARPConfig()
    assert DARPConfig.preset("classic-b") == default.replace(style="b") != default
    assert (default.num_requests, default.num_agents, default.duration, default.seats) == (16, 2, 480.0, 3)
    assert (published.num_requests, published.num_agents, published.speed) == (10, 5, 25.0)
    assert (published.seats, published.reward) == (5, "terminal")
    assert default.replace(num_loc=20).num_requests == 10 and default.replace(num_loc=20).num_loc == 20
    assert published.replace(vehicle_speed=5.0).speed == 5.0
    assert default.replace(rule="deadlines") == published and published.replace(rule="classic") == default
    assert DARPConfig(num_requests=3, num_agents=1).duration == 180.0 and DARPConfig(max_duration=90.0).duration == 90.0
    assert type(begun(1)) is DARP and type(begun(1, preset="published")) is DARPDeadlines
    assert (begun(1).max_steps, begun(1, preset="published").max_steps) == (4 * 34, 4 * 25)


@pytest.mark.parametrize("preset", ["default", "classic-b", "published"])
def test_configurations_survive_a_file(preset, tmp_path):
    """Written and read, with an option changed, it is the same; a file may name a few options only."""
    config = DARPConfig.preset(preset).replace(num_requests=12, penalty_unvisited=7.5)
    config.to_json(tmp_path / "config.json")
    assert DARPConfig.from_json(tmp_path / "config.json") == config
    world = milkrun.make(ID, 2, config=tmp_path / "config.json")
    assert world.config == config and world.sizes["N"] == 25
    (tmp_path / "few.json").write_text('{"rule": "deadlines", "num_loc": 8}')
    assert DARPConfig.from_json(tmp_path / "few.json") == DARPConfig.preset("published").replace(num_requests=4)
