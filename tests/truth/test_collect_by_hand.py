"""The profit and waste worlds compared with numbers computed by hand.

Depot (0, 0), customers (3, 0), (3, 4), (0, 4): distances 0-1 3, 0-2 5, 0-3 4, 1-2 4, 1-3 5, 2-3 3. Each world plays the
listed actions for the listed rewards. A search along every allowed action then counts the complete sequences and finds
their best return.
"""

from __future__ import annotations

import numpy as np
import pytest

import milkrun
from milkrun.core.fields import Role

pytestmark = pytest.mark.truth

RECTANGLE = np.array([[0, 0], [3, 0], [3, 4], [0, 4]], np.float32)
PRIZES = {"prize": [0, 10, 10, 1]}
BINS = {"waste": [0, 0.5, 1, 0.3], "max_waste": 1.0}
ONLY_3 = [False, False, False, True]
SURPRISE = {"expected0": [0, 0.5, 0.5, 0.3], "real_waste": [0, 0.5, 0.7, 0.3], "capacity": 1.0, "max_waste": 1.0}
TWO_DAYS = {
    "initial_waste": BINS["waste"],
    "daily_fill": [[0, 0.3, 0.2, 0.2], [0, 0.3, 0.3, 0.6]],
    "fill_mean": [0, 0.3, 0.25, 0.4],
    "fill_std": [0, 0, 0.05, 0.2],
    "max_waste": 1.0,
    "capacity": 1.6,
}
PROFIT = {"prize_weight": 1.0, "length_weight": 1.0}
WASTE = {"waste_weight": 10.0, "length_weight": 1.0, "overflow_weight": 10.0}
STOCHASTIC = {**WASTE, "failure_weight": 2.0}


def one_row(fields):
    """An instance of one row on the rectangle."""
    kinds = {"must_go": np.bool_}
    given = {"locs": RECTANGLE, **fields}
    return {name: np.asarray(value, kinds.get(name, np.float32))[None] for name, value in given.items()}


def enumerate_all(world_id, instance, **options):
    """Follows every allowed action of every row. Returns the instance, actions and return of each complete sequence.

    Breadth first: one world holds the rows of one depth and is branched into the world of the next depth. All share the
    instances. The actions of several days are concatenated.
    """
    world = milkrun.make(
        world_id,
        num_envs=len(instance["capacity" if "capacity" in instance else "prize"]),
        autoreset="disabled",
        **options,
    )
    world.reset(instance=instance)
    per_row = [f.name for f in world.fields.values() if f.role in (Role.STATE, Role.MASK, Role.VIEW, Role.KEY)]
    width = 3 * world.config.num_loc + 2
    owner, actions, returns = [], [], []
    while True:
        live = ~(world.terminated | world.truncated)
        assert not world.truncated.any()
        assert world.action_mask[live].any(axis=1).all()
        taken = world.solution()[~live]
        taken = np.pad(taken, [(0, 0)] * (taken.ndim - 1) + [(0, width - taken.shape[-1])])
        owner.append(world.instance_row[~live])
        actions.append(taken.reshape(len(taken), np.prod(taken.shape[1:], dtype=int)))
        returns.append(world.objective[~live])
        parent, action = np.nonzero(world.action_mask & live[:, None])
        if not len(parent):
            return np.concatenate(owner), np.concatenate(actions), np.concatenate(returns)
        saved = {name: a[parent] if name in per_row else a for name, a in world.state_dict().items()}
        world = milkrun.make(world_id, num_envs=len(parent), autoreset="disabled", **options)
        world.load_state_dict(saved)
        world.step(action)
        assert not world.illegal.any()


# world, instance, options, complete sequences, best return
COUNTS = {
    "VRPP": ("VRPP", PRIZES, PROFIT, 16, 8),
    "VRPP, trips of 12": ("VRPP", {**PRIZES, "max_length": 12}, PROFIT, 10, 8),
    "CVRPP, truck of 15": ("CVRPP", {**PRIZES, "weight": [0, 10, 10, 1], "capacity": 15}, PROFIT, 8, 4),
    "WCVRP": ("WCVRP", {**BINS, "capacity": 1.6}, WASTE, 10, 3),
    "WCVRP, must-go 3": ("WCVRP", {**BINS, "capacity": 1.6, "must_go": ONLY_3}, WASTE, 5, 1),
    "WCVRP, must-go 3, no reserve": (
        "WCVRP",
        {**BINS, "capacity": 1.6, "must_go": ONLY_3},
        {**WASTE, "must_go_reserve": False},
        7,
        3,
    ),
    "CWCVRP": ("CWCVRP", {**BINS, "capacity": 1.0}, WASTE, 22, 0),
    "SCWCVRP": ("SCWCVRP", SURPRISE, STOCHASTIC, 37, 0),
    "SCWCVRP, round trips": ("SCWCVRP", SURPRISE, {**STOCHASTIC, "recourse": "round_trip"}, 32, 0),
    "SDWCVRP": ("SDWCVRP", TWO_DAYS, {**STOCHASTIC, "horizon": 2}, 1330, 3),
}


@pytest.mark.parametrize("reward", ["dense", "terminal"])
@pytest.mark.parametrize("case", COUNTS)
def test_number_of_sequences_and_best_return(case, reward):
    """Dense and terminal rewards give the same result; no sequence occurs twice."""
    name, fields, options, count, best = COUNTS[case]
    _, plans, returns = enumerate_all(f"milkrun/{name}-v0", one_row(fields), num_loc=3, reward=reward, **options)
    assert len(plans) == len(np.unique(plans, axis=0)) == count
    assert returns.max() == pytest.approx(best, abs=1e-5)


# world, instance, options, actions, rewards
EPISODES = {
    "VRPP 0-1-2-0": ("VRPP", PRIZES, PROFIT, (1, 2, 0), (7, 6, -5)),
    "VRPP, the empty tour": ("VRPP", PRIZES, PROFIT, (0,), (0,)),
    "CVRPP 0-1-3-0": ("CVRPP", {**PRIZES, "weight": [0, 10, 10, 1], "capacity": 15}, PROFIT, (1, 3, 0), (7, -4, -4)),
    "WCVRP leaves the full bin 2": ("WCVRP", {**BINS, "capacity": 1.6}, WASTE, (1, 3, 0), (2, -2, -14)),
    "WCVRP takes it": ("WCVRP", {**BINS, "capacity": 1.6}, WASTE, (1, 2, 0), (2, 6, -5)),
    "CWCVRP on two trips, then home for good": (
        "CWCVRP",
        {**BINS, "capacity": 1.0},
        WASTE,
        (1, 0, 2, 0, 0),
        (2, -3, 5, -5, 0),
    ),
    "CWCVRP on three trips ends by itself": (
        "CWCVRP",
        {**BINS, "capacity": 1.0},
        WASTE,
        (1, 0, 2, 0, 3, 0),
        (2, -3, 5, -5, -1, -4),
    ),
    "CWCVRP, the empty tour": ("CWCVRP", {**BINS, "capacity": 1.0}, WASTE, (0,), (-10,)),
    "SCWCVRP fails at 2": ("SCWCVRP", SURPRISE, STOCHASTIC, (1, 2, 2, 3, 0), (2, -11, 2, 0, -4)),
    "SCWCVRP fails at 2 and comes back": (
        "SCWCVRP",
        SURPRISE,
        {**STOCHASTIC, "recourse": "round_trip"},
        (1, 2, 3, 0),
        (2, -9, 0, -4),
    ),
    "SDWCVRP serves on the first day": (
        "SDWCVRP",
        TWO_DAYS,
        {**STOCHASTIC, "horizon": 2},
        (1, 2, 0, 0, 0),
        (2, 6, -5, 0, -10),
    ),
}


@pytest.mark.parametrize("case", EPISODES)
def test_rewards_of_an_episode(case):
    """Only the last action ends the episode; the terminal reward is the sum."""
    name, fields, options, actions, rewards = EPISODES[case]
    for reward in ("dense", "terminal"):
        world = milkrun.make(
            f"milkrun/{name}-v0", num_envs=1, num_loc=3, reward=reward, autoreset="disabled", **options
        )
        world.reset(instance=one_row(fields))
        paid = []
        for step, action in enumerate(actions):
            world.step([action])
            paid.append(float(world.reward[0]))
            assert not world.illegal[0] and not world.truncated[0]
            assert world.terminated[0] == (step == len(actions) - 1)
        wanted = rewards if reward == "dense" else (*[0] * (len(rewards) - 1), sum(rewards))
        assert paid == pytest.approx(wanted, abs=1e-5)
        assert world.objective[0] == pytest.approx(sum(rewards), abs=1e-5)


def test_sdwcvrp_second_morning_by_hand():
    """After 1 and 2 are emptied and a night of .3, .2, .2 the bins hold .3, .2, .5; the last night fills bin 3: 1.1."""
    world = milkrun.make("milkrun/SDWCVRP-v0", num_envs=1, num_loc=3, horizon=2, autoreset="disabled", **STOCHASTIC)
    world.reset(instance=one_row(TWO_DAYS))
    for action in (1, 2, 0, 0):
        world.step([action])
    assert world.real_waste[0] == pytest.approx([0, 0.3, 0.2, 0.5], abs=1e-6)
    assert (world.day[0], world.overflows[0], world.trips[0], world.tour_length[0]) == (1, 0, 1, 12)
    world.step([0])
    assert world.real_waste[0] == pytest.approx([0, 0.6, 0.5, 1.0], abs=1e-6)
    assert (world.day[0], world.overflows[0]) == (2, 1)
    assert world.lost[0] == pytest.approx(0.1, abs=1e-6)
    assert world.solution()[0].tolist() == [[1, 2, 0, 0], [0, 0, 0, 0]]
