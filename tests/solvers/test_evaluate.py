"""An evaluation plays exactly its numbered episodes under every autoreset mode, and its figures are correct."""

from __future__ import annotations

import json
import math
from importlib import import_module

import numpy as np
import pytest

import milkrun
from milkrun.core.errors import ConfigError, IllegalAction
from milkrun.routing.tsp import TSP
from milkrun.solvers import Result, evaluate, nearest, random_policy, rollout
from tests.core.toys import Sorter

MODES = ("disabled", "next_step", "same_step")


def cvrp(rows, **options):
    return milkrun.make("milkrun/CVRP-v0", num_envs=rows, **{"num_loc": 7, "max_demand": 9, "capacity": 10, **options})


def test_ten_episodes_on_four_rows_are_3_3_2_2():
    """The last rows play one episode less; number k is episode k // 4 of row k % 4."""
    world = cvrp(4, autoreset="disabled")
    result = evaluate(world, nearest, 10, seed=5)
    assert len(result.returns) == len(result.lengths) == 10
    assert world.stream[:, 2].tolist() == [2, 2, 1, 1]
    assert [result.where(k) for k in (0, 3, 4, 9)] == [(0, 0), (3, 0), (0, 1), (1, 2)]


def test_fewer_episodes_than_rows_play_the_first_rows_only():
    """Three episodes in five rows: the other two rows stay at their first step."""
    world = cvrp(5, autoreset="disabled")
    assert evaluate(world, nearest, 3).episodes == 3
    assert (world.i > 0).tolist() == [True, True, True, False, False]


@pytest.mark.parametrize("mode", MODES)
def test_it_equals_a_plain_loop(mode):
    """Each row alone, episode by episode, with rewards summed in Python: returns and lengths agree exactly."""
    result = evaluate(cvrp(3, autoreset=mode), nearest, 8, seed=6)
    for row in range(3):
        world = cvrp(1, first_row=row, seed=6, autoreset="disabled")
        for number in range(row, 8, 3):
            world.reset()
            total, steps = 0.0, 0
            while not world.terminated[0]:
                world.step(nearest(world))
                total, steps = total + float(world.reward[0]), steps + 1
            assert (result.returns[number], result.lengths[number]) == (total, steps)


@pytest.mark.parametrize("make_policy", [lambda: nearest, lambda: random_policy(3)])
def test_all_autoreset_modes_give_the_same_result(make_policy):
    """Also with random draws: a row uses one in each step and none while it waits."""
    results = [evaluate(cvrp(6, autoreset=mode), make_policy(), 20, seed=8) for mode in MODES]
    for other in results[1:]:
        assert (other.returns == results[0].returns).all()
        assert (other.lengths == results[0].lengths).all()
    assert len(set(results[0].lengths)) > 1


def test_a_row_plays_the_same_episodes_in_any_batch():
    """Row 2 of five and row 2 alone, random actions, four episodes."""
    batch = evaluate(cvrp(5), random_policy(1), 20, seed=9)
    alone = evaluate(cvrp(1, first_row=2), random_policy(1), 4, seed=9)
    assert (batch.returns[2::5] == alone.returns).all()


def test_given_instances_are_kept():
    """Every episode is the 3 x 4 rectangle, whose perimeter is 14."""
    world = TSP.from_instances([{"locs": np.array([[0, 0], [3, 0], [3, 4], [0, 4]], np.float32)}], repeat=3)
    assert evaluate(world, nearest, 7, seed=1).returns.tolist() == [-14.0] * 7


def test_truncated_episodes_are_counted():
    """With max_steps=3 no tour of 5 nodes ends."""
    world = milkrun.make("milkrun/TSP-v0", num_envs=2, num_loc=5, max_steps=3)
    result = evaluate(world, nearest, 5)
    assert result.lengths.tolist() == [3] * 5
    assert result.summary()["truncated"] == 5


def stubborn(world):
    """Row 0 plays legal actions, every other row an invalid node."""
    return np.where(np.arange(world.num_envs) == 0, nearest(world), 99)


@pytest.mark.parametrize("mode", MODES)
def test_illegal_steps_and_truncated_episodes_are_reported(mode):
    """A row without legal actions costs nothing and has the best return. All four steps of its episodes are illegal,
    and none of row 0, which needs four."""
    world = milkrun.make("milkrun/TSP-v0", num_envs=2, num_loc=4, max_steps=4, autoreset=mode)
    result = evaluate(world, stubborn, 6)
    assert result.best == 1 and result.returns[1] == 0
    assert result.illegal.tolist() == [0, 4] * 3
    assert (result.illegal_share, result.truncated_share, result.summary()["illegal"]) == (0.5, 0.5, 12)
    assert str(result).endswith("over 6 episodes; 50.0 % of the steps illegal, 50.0 % of the episodes truncated")


def test_without_illegal_steps_none_are_reported():
    """If both shares are 0 the summary is short; a share above 0 is never printed as 0."""
    result = evaluate(cvrp(4), nearest, 8)
    assert result.illegal.tolist() == [0] * 8 and result.reservations == ""
    assert str(result).endswith("over 8 episodes")
    few = Result(np.zeros(1), np.array([9000]), np.array([False]), 1, illegal=np.array([1]))
    assert few.reservations == "less than 0.1 % of the steps illegal"


@pytest.mark.parametrize("play", [lambda w, p: evaluate(w, p, 4), rollout], ids=["evaluate", "rollout"])
def test_an_endless_play_is_aborted(play):
    """Row 0 ends, row 1 makes only illegal steps, without max_steps.

    The error names row, action and reason.
    """
    world = milkrun.make("milkrun/TSP-v0", num_envs=2, num_loc=4, max_steps=None, seed=0, autoreset="disabled")
    world.reset()
    said = "nothing but illegal steps for 10,000 steps, and without max_steps .*; row 1: action 99: "
    with pytest.raises(IllegalAction, match=said):
        play(world, stubborn)


@pytest.mark.parametrize("play", [lambda w, p: evaluate(w, p, 2), rollout], ids=["evaluate", "rollout"])
def test_a_play_in_circles_is_aborted(play, monkeypatch):
    """A world without an end and a policy that always picks the same: the error names row, limit and remedy."""
    monkeypatch.setattr(import_module("milkrun.solvers.evaluate"), "MOST_STEPS", 50)
    world = Sorter(2, Sorter.Config(length=4), autoreset="disabled")
    world.reset()
    with pytest.raises(ConfigError, match="row 0 has not ended after 50 steps: set max_steps"):
        play(world, lambda w: np.array([1, 1]))
    assert world.i.tolist() == [51, 51]
    limited = Sorter(2, Sorter.Config(length=4, max_steps=60), autoreset="disabled")
    assert evaluate(limited, lambda w: np.array([1, 1]), 2).lengths.tolist() == [60, 60]


def test_a_play_with_a_limit_is_not_aborted():
    """For any length of the limit: the world's, or that of the rollout."""
    world = milkrun.make("milkrun/TSP-v0", num_envs=1, num_loc=4, max_steps=10_500)
    result = evaluate(world, lambda w: np.array([99]), 1)
    assert result.illegal.tolist() == result.lengths.tolist() == [10_500]
    world = milkrun.make("milkrun/TSP-v0", num_envs=1, num_loc=4, max_steps=None)
    world.reset()
    assert rollout(world, lambda w: np.array([99]), max_steps=10_500) == 10_500


def test_progress_counts_every_episode_once():
    """The numbers passed to the callback sum to the number of episodes."""
    found: list[int] = []
    evaluate(cvrp(4), nearest, 11, progress=found.append)
    assert sum(found) == 11 and min(found) > 0


@pytest.mark.parametrize("episodes", [0, -1, 2.5, True, "3"])
def test_an_invalid_number_of_episodes_is_refused(episodes):
    """The error names the allowed values."""
    with pytest.raises(ConfigError, match="integer >= 1"):
        evaluate(cvrp(2), nearest, episodes)


def test_figures_by_hand():
    """Returns 4, 1, 3, 2: mean 2.5, variance 5/3, standard error sqrt(5/12), interval 2.5 +- 1.96 of it."""
    cut = np.array([False, True, False, False])
    result = Result(np.array([4.0, 1.0, 3.0, 2.0]), np.array([5, 6, 7, 8]), cut, rows=2)
    assert result.mean == 2.5
    assert result.std == pytest.approx(math.sqrt(5 / 3), rel=1e-15)
    assert result.standard_error == pytest.approx(math.sqrt(5 / 12), rel=1e-15)
    assert result.interval == pytest.approx((1.2348487, 3.7651513), abs=1e-7)
    assert (result.best, result.median) == (0, 3)
    assert result.summary() == {
        "episodes": 4,
        "mean": 2.5,
        "std": result.std,
        "standard_error": result.standard_error,
        "interval_low": result.interval[0],
        "interval_high": result.interval[1],
        "lowest": 1.0,
        "highest": 4.0,
        "mean_length": 6.5,
        "steps": 26,
        "truncated": 1,
        "illegal": 0,
    }
    assert str(result) == "2.5000 +- 1.2652 (95 %) over 4 episodes; 25.0 % of the episodes truncated"


def test_one_episode_has_no_spread():
    """JSON has no nan, so the summary has None."""
    result = Result(np.array([4.0]), np.array([5]), np.array([False]), rows=1)
    assert math.isnan(result.std)
    assert result.summary()["std"] is None
    json.dumps(result.summary(), allow_nan=False)


@pytest.mark.parametrize("mode", MODES)
def test_a_rollout_plays_every_row_once_to_its_end(mode):
    """The steps are those of the single episodes; under no mode a row plays steps of a further episode."""
    expected = evaluate(cvrp(9), nearest, 9, seed=4).lengths
    world = cvrp(9, seed=4, autoreset=mode)
    world.reset()
    assert rollout(world, nearest) == expected.sum()
    assert world.stream[:, 2].tolist() == [1 if mode == "same_step" else 0] * 9
    if mode != "same_step":
        assert (world.i == expected).all() and world.terminated.all()
        assert rollout(world, nearest) == 0


def test_a_rollout_can_be_interrupted_and_continued():
    """Four tours of 20 nodes: 5 turns are 20 steps, the rest are 60."""
    world = milkrun.make("milkrun/TSP-v0", num_envs=4, seed=3, autoreset="disabled", num_loc=20)
    world.reset()
    assert rollout(world, nearest, max_steps=5) == 20
    assert rollout(world, nearest) == 60


@pytest.mark.parametrize("mode", ["disabled", "next_step", "same_step"])
def test_a_result_has_the_figures_of_the_world(mode):
    """For every episode, under every autoreset mode: the makespan is its length, the objective its return."""
    from milkrun.solvers.delivery import greedy

    world = milkrun.make("milkrun/TruckDrone-v0", 4, preset="published", seed=2, autoreset=mode)
    result = evaluate(world, greedy, 10)
    assert np.array_equal(result.kpis["makespan"], result.lengths)
    assert np.array_equal(result.kpis["objective"], result.returns)
    assert result.kpis["served"].tolist() == [3] * 10
    mean, error = result.kpi("energy")
    assert mean == result.kpis["energy"].mean() and error == result.kpis["energy"].std(ddof=1) / 10**0.5
    assert result.summary()["kpis"]["energy"] == [mean, error]
