"""A row of the tracking world depends only on its key and actions, to the bit, for three episodes. It does not depend
on the batch, threads, the order of resets, observations, or the memory of its town.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import milkrun
from milkrun.core.fields import Role

from .rows import KINDS, SMALL, actions, bits, differing, live, made, ready

ROW, EPISODES = 5, 3
SEEN = ("image", "frames", "other_state", "cloud")
Trace = dict[tuple[int, int], dict[str, bytes]]
"""The row's bytes by episode and agent step; on-demand fields only where observed."""


def note(world: Any, b: int, trace: Trace, seen: bool) -> None:
    found = bits(world, b)
    if not seen:
        found = {name: parts for name, parts in found.items() if name not in SEEN}
    trace[int(world.stream[b, 2]), int(world.agent_step[b])] = found


def traced(world: Any, b: int, look: int = 1, alone: bool = False) -> Trace:
    """Plays row b for three episodes with the other rows, and observes it every `look` steps and at ends."""
    trace: Trace = {}

    def see() -> None:
        ended = bool(world.terminated[b] or world.truncated[b])
        seen = ended or world.agent_step[b] % look == 0
        if seen:
            world.observe(rows=[b] if alone else None)
        note(world, b, trace, seen)

    see()
    while True:
        going = live(world)
        world.step(actions(world, going), rows=going)
        see()
        ended = np.flatnonzero(world.terminated | world.truncated)
        if b in ended and world.stream[b, 2] == EPISODES - 1:
            return trace
        if len(ended):
            world.reset(rows=ended)
            if b in ended:
                see()


def parted(one: Trace, other: Trace) -> list[Any]:
    """Differences of two traces in the fields of both."""
    assert one.keys() == other.keys()
    return [(at, name) for at in one for name in one[at].keys() & other[at].keys() if one[at][name] != other[at][name]]


@pytest.fixture(scope="module")
def alone() -> dict[str, Trace]:
    """Row 5 of seed 7 in a separate world, observed in every step."""
    return {kind: traced(ready(1, kind, first_row=ROW), 0) for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("rows", "threads"), [(7, 1), (7, 2), (64, 1), (64, 2)])
def test_batch_and_threads_change_no_bit(alone, kind, rows, threads):
    """Row 5 alone, among 7 and among 64 rows, on one thread and on two: town, state, reward and picture."""
    assert parted(alone[kind], traced(ready(rows, kind, threads=threads), ROW)) == []
    lasted = dict(sorted(alone[kind]))
    assert lasted.keys() == {0, 1, 2} and max(lasted.values()) > 6


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("look", "by_row"), [(7, False), (7, True), (1, True), (100, False), (100, True)])
def test_observing_changes_no_bit(alone, kind, look, by_row):
    """Observed in every step, in every seventh and only at ends, with the other rows and alone."""
    assert parted(alone[kind], traced(ready(7, kind), ROW, look, by_row)) == []


def test_the_order_of_resets_changes_no_bit(alone):
    """Rows reset sequentially, the last first, and after an episode of others; then a step of other rows."""
    world = made(7)
    for b in (6, 3, 4, 0, 2, 1):
        world.reset(rows=[b])
        world.step(actions(world, [b]), rows=[b])
    world.reset(rows=[0, 6])
    world.reset(rows=[ROW])
    world.step(actions(world, [6, 0, 1]), rows=[6, 0, 1])
    assert parted(alone["plain"], traced(world, ROW)) == []
    world.reset(rows=[ROW, 2], seed=[7, 8])
    other = ready(1, seed=7)
    other.reset(seed=[7])
    world.observe(), other.observe()
    assert differing(bits(other, 0), bits(world, ROW)) == []


def test_rows_stepped_by_themselves_change_no_bit(alone):
    """Row 5 plays three steps for each step of the others, and the others play while it pauses."""
    world, trace = ready(7), {}
    others = np.array([0, 1, 2, 3, 4, 6])
    for turn in range(12 * EPISODES):
        going = np.array([ROW]) if turn % 4 else others[~(world.terminated | world.truncated)[others]]
        if turn % 4 == 0:
            rested = bits(world, ROW)
            if len(going):
                world.step(actions(world, going), rows=going)
            assert differing(rested, bits(world, ROW)) == []
            continue
        world.observe(rows=[ROW])
        note(world, ROW, trace, True)
        if world.terminated[ROW] or world.truncated[ROW]:
            world.reset(rows=[ROW])
        else:
            world.step(actions(world, going), rows=going)
    assert len(trace) > 15
    assert parted({at: alone["plain"][at] for at in trace}, trace) == []


@pytest.mark.parametrize("kind", ["plain", "stacked"])
def test_a_shared_town_changes_no_bit(kind):
    """Seven rows on one town in memory, and seven with a copy each."""
    town = ready(4, scene="village", seed=2).town(3)
    shared, copies = made(7, kind), made(7, kind)
    shared.reset(instance={**town, "instance_row": np.zeros(7, int)})
    copies.reset(instance={name: np.repeat(array, 7, axis=0) for name, array in town.items()})
    assert shared.num_instances == 1 and copies.num_instances == 7
    assert parted(traced(shared, ROW), traced(copies, ROW)) == []


@pytest.mark.parametrize("town", ["row", "fixed"])
def test_towns_of_several_episodes_change_no_bit(town):
    """If a town is kept over episodes, its row equals the single row, with a new or an existing town."""
    trace = traced(ready(7, town=town), ROW)
    assert parted(trace, traced(ready(1, town=town, first_row=ROW), 0)) == []
    late = made(1, town=town, first_row=ROW)
    late.stream[:] = [7, ROW, EPISODES - 2]  # the next reset starts its last episode
    late.reset()
    late.observe()
    assert differing(trace[EPISODES - 1, 0], bits(late, 0)) == []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("autoreset", ["next_step", "same_step"])
def test_autoreset_modes_change_no_bit(alone, kind, autoreset):
    """In both modes every moment of the three episodes and every final observation is equal."""
    world, last = ready(7, kind, autoreset=autoreset), EPISODES - 1
    flags = ("terminated", "truncated")  # in one mode they still flag the end of the last step
    stored = [name for name, f in world.fields.items() if f.role is not Role.VIEW and name not in flags]
    name = "frames" if kind == "stacked" else "image"
    ends = 0
    while world.stream[ROW, 2] <= last:
        at = int(world.stream[ROW, 2]), int(world.agent_step[ROW])
        before = alone[kind][at]
        world.observe()
        now = bits(world, ROW)
        assert [n for n in (*stored, name) if n in now and now[n] != before[n]] == [], at
        world.step(actions(world, range(7)))
        if ROW in world.final_rows:
            end, place = alone[kind][at[0], at[1] + 1], int(np.flatnonzero(world.final_rows == ROW)[0])
            assert world.final[name][place].tobytes() == end[name] and world.reward[ROW].tobytes() == end["reward"]
            ends += 1
        elif world.stream[ROW, 2] == at[0]:
            assert world.reward[ROW].tobytes() == alone[kind][at[0], at[1] + 1]["reward"]
    assert ends == (EPISODES if autoreset == "same_step" else 0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("stepping", ["functional", "inplace"])
def test_tensordicts_change_no_bit(kind, stepping):
    """TorchRL's steps, functional and in place, equal those of the world."""
    pytest.importorskip("torchrl")
    options = {**SMALL, **KINDS[kind], "ground_cell": 2.0}
    env = milkrun.make("milkrun/Tracking-v0", 4, api="torchrl", seed=7, stepping=stepping, **options)
    world = made(4, kind, ground_cell=2.0)
    world.reset()
    td, episodes = env.reset(), np.zeros(4, int)
    names = [f.name for f in world.fields.values() if f.role in (Role.STATE, Role.INSTANCE, Role.MASK)]
    shown = [f.name for f in world.observed]
    while episodes.min() < EPISODES:
        td["action"] = env.sample_actions(td)
        world.step(td["action"].numpy())
        world.observe()
        stepped, td = env.step_and_maybe_reset(td)
        after = stepped["next"]
        found = {**dict(after.get("hidden", {}).items()), **dict(after.items())}
        carried = [name for name in names if name in found]
        assert stepping == "inplace" or {"pos", "filt", "veh_pose", "ground", "light"} <= set(carried)
        for name in (*shown, "reward", *carried):
            if getattr(world, name).size:
                assert found[name].numpy().tobytes() == getattr(world, name).tobytes(), (name, episodes)
        ended = world.terminated | world.truncated
        episodes += ended
        if ended.any():
            world.reset(np.flatnonzero(ended))
