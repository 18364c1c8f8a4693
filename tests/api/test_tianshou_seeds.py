"""Seeds of TianshouVectorEnv: which stream a row plays, by which rule, and from when on."""

import numpy as np
import pytest
from gymnasium import spaces

import milkrun
from milkrun.api.gymnasium import MilkrunEnv
from milkrun.api.tianshou import TianshouVectorEnv
from milkrun.core.errors import BadInstance
from tests.core.toys import rows_of
from tests.truth.test_gymnasium_conformance import assert_same

TSP, CVRP = "milkrun/TSP-v0", "milkrun/CVRP-v0"


@pytest.mark.parametrize("begin", [lambda v: v.reset(seed=11), lambda v: (v.seed(11), v.reset())[1]])
def test_row_3_of_seed_11_is_the_env_of_seed_14(begin):
    """For three episodes, by reset(seed=) as by seed()."""
    venv, one = TianshouVectorEnv(CVRP, 7, num_loc=6), MilkrunEnv(CVRP, num_loc=6, layout="flat")
    obs, _ = begin(venv)
    theirs, _ = one.reset(seed=14)
    for _ in range(3):
        assert_same(obs.obs[3 if len(obs) == 7 else 0], theirs)
        obs, (theirs, _) = venv.reset([3])[0], one.reset()


def test_stream_keys_by_rule():
    """An int gives row i (s + i, 0) or, by "row", (s, i); a list its own; without one the episode goes up."""
    venv = TianshouVectorEnv(TSP, 4, num_loc=4)
    keys = venv.world.stream
    venv.reset(seed=10)
    assert keys.tolist() == [[10, 0, 0], [11, 0, 0], [12, 0, 0], [13, 0, 0]]
    venv.reset([3, 1], seed=20)
    venv.reset([0], seed=[99])
    venv.reset([2])
    assert keys.tolist() == [[99, 0, 0], [21, 0, 0], [12, 0, 1], [23, 0, 0]]
    by_row = TianshouVectorEnv(TSP, 3, num_loc=4, seed_rule="row", first_row=5)
    by_row.reset([2, 0, 1], seed=10)
    assert by_row.world.stream.tolist() == [[10, 5, 0], [10, 6, 0], [10, 7, 0]]
    by_row.seed(30)
    by_row.reset([1])
    assert by_row.world.stream.tolist() == [[10, 5, 0], [30, 6, 0], [10, 7, 0]]
    made = milkrun.make(TSP, 3, api="tianshou", num_loc=4, seed=4, first_row=2)
    made.reset()
    assert made.world.stream.tolist() == [[6, 0, 0], [7, 0, 0], [8, 0, 0]]


def test_seed_waits_for_each_rows_next_reset():
    """seed(5) leaves the running episodes alone; row 2, reset first, goes on counting while the others catch up."""
    venv = TianshouVectorEnv(TSP, 3, num_loc=4)
    venv.reset(seed=0)
    before = rows_of(venv.world)
    assert venv.seed(5) == [[5], [6], [7]]
    assert rows_of(venv.world) == before
    venv.reset([2])
    assert venv.world.stream.tolist() == [[0, 0, 0], [1, 0, 0], [7, 0, 0]]
    venv.reset()
    assert venv.world.stream.tolist() == [[5, 0, 0], [6, 0, 0], [7, 0, 1]]
    venv.seed([8, 9, 10])
    assert venv.seed(None) == [None] * 3
    venv.reset(1)
    assert venv.world.stream[1].tolist() == [6, 0, 1]
    assert venv.seed([3, 3, 4]) == [[3], [3], [4]]
    draws = [[space.sample() for _ in range(5)] for space in venv.action_space]
    assert draws == [[space.sample() for _ in range(5)] for space in (spaces.Discrete(4, seed=s) for s in (3, 3, 4))]


def test_a_refused_reset_uses_up_no_seed():
    """A bad instance is refused, the row stays in its episode and the seed waits."""
    venv = TianshouVectorEnv(TSP, 2, num_loc=4)
    venv.reset(seed=0)
    venv.seed(5)
    before = rows_of(venv.world)
    with pytest.raises(BadInstance, match="row 0"):
        venv.reset([1], options={"instance": {"locs": np.full((1, 4, 2), np.nan, np.float32)}})
    assert rows_of(venv.world) == before
    venv.reset([1])
    assert venv.world.stream.tolist() == [[0, 0, 0], [6, 0, 0]]
