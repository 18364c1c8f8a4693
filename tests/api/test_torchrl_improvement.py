"""ImprovementEnvBase: a search in torch alone by three methods, checked against hand computation and the k-opt
world."""

from __future__ import annotations

import pytest
import torch
from tensordict import TensorDict
from torchrl.envs import ActionMask, Compose, RewardSum, StepCounter, TransformedEnv
from torchrl.envs.utils import check_env_specs

from milkrun.api.torchrl import ImprovementEnvBase, TSPkoptEnv
from milkrun.core.errors import ConfigError, ShapeError
from tests.api.torchrl_tools import assert_same, checksums, random_policy, started

SQUARE = torch.tensor([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
CROSSED = 2 + 2 * 2**0.5


class Reversals(ImprovementEnvBase):
    """2-opt by positions: the move i * n + j reverses the positions i+1..j."""

    name = "tsp"

    def _get_initial_solution(self, td):
        rows, nodes = td["locs"].shape[:2]
        return torch.arange(nodes).repeat(rows, 1)

    def _apply(self, td, action):
        n = td["solution"].shape[1]
        i, j, p = action[:, None] // n, action[:, None] % n, torch.arange(n)
        return td["solution"].gather(1, torch.where((p > i) & (p <= j), i + 1 + j - p, p))

    def _cost(self, td, solution):
        places = td["locs"].gather(1, solution[..., None].expand(-1, -1, 2))
        return (places - places.roll(1, 1)).norm(dim=-1).sum(1)

    def _get_action_mask(self, td):
        n = td["solution"].shape[1]
        i, j = torch.arange(n * n) // n, torch.arange(n * n) % n
        return ((i + 2 <= j) & ((i != 0) | (j != n - 1))).expand(len(td), -1)


class Swaps(Reversals):
    """Four places: the move k swaps the positions k and k + 1; all three are always allowed."""

    num_actions = 3
    _get_action_mask = ImprovementEnvBase._get_action_mask

    def _apply(self, td, action):
        rows, solution = torch.arange(len(action)), td["solution"]  # written in place: the base hands out copies
        a, b = solution[rows, action].clone(), solution[rows, action + 1].clone()
        solution[rows, action], solution[rows, action + 1] = b, a
        return solution


def square(batch_size):
    return TensorDict({"locs": SQUARE.repeat(batch_size, 1, 1)}, [batch_size])


@pytest.mark.parametrize("batch", [None, [5], [2, 3]])
@pytest.mark.parametrize("mode", ["best", "current"])
def test_torchrl_takes_it(batch, mode):
    """check_env_specs passes, and behind ActionMask; rollouts with resets sum rewards and steps as they should."""
    env = Reversals(batch_size=batch, num_loc=6, seed=3, max_steps=7, reward_mode=mode)
    check_env_specs(env, break_when_any_done="both")
    check_env_specs(TransformedEnv(env, ActionMask()), break_when_any_done="both")
    rolled = TransformedEnv(env, Compose(RewardSum(), StepCounter())).rollout(
        21, policy=random_policy(env), break_when_any_done=False
    )
    last = rolled["next", "truncated"]
    assert last.sum() == 3 * (1 if batch is None else torch.Size(batch).numel())
    assert not rolled["next", "terminated"].any() and (rolled["next", "step_count"][last] == 7).all()
    begun = rolled["cost_current"][..., ::7]
    ended = rolled["next", f"cost_{mode}"][..., 6::7]
    assert torch.allclose(rolled["next", "episode_reward"][..., 6::7, 0], begun - ended, atol=1e-5)


def test_the_search_of_the_compiled_world():
    """The same tours, costs, bests and rewards as TSPkoptEnv over twenty moves of fifty rows."""
    mine = Reversals(num_loc=8, seed=3, batch_size=[50])
    compiled = TSPkoptEnv(num_loc=8, init="identity", seed=3, batch_size=[50])
    a, b = mine.reset(), compiled.reset()
    assert torch.equal(a["locs"], b["locs"]) and torch.equal(a["action_mask"], b["action_mask"])
    for _ in range(20):
        action = mine.sample_actions(a)
        a = mine.step(a.set("action", action))["next"]
        b = compiled.step(b.set("action", action))["next"]
        assert torch.equal(a["solution"], b["solution"].long())
        for key in ("cost_current", "cost_best", "reward"):
            assert torch.allclose(a[key], b[key], atol=1e-5), key
        assert torch.allclose(mine._cost(a, a["best_solution"]), b["cost_best"], atol=1e-5)
    assert a["i"].eq(20).all()


def test_rewards_by_hand():
    """The square: crossing it costs 2 + 2 sqrt 2 - 4; "best" pays nothing for it and nothing for the way back."""
    for mode, paid in (("best", [0.0, 0.0]), ("current", [4 - CROSSED, CROSSED - 4])):
        env = Swaps(square, reward_mode=mode)
        td = env.reset(batch_size=1)
        before = checksums(td)
        away = env.step(td.set("action", torch.tensor([1])))["next"]
        assert checksums(td.exclude("action", "next")) == before
        assert env.get_current_solution(away).tolist() == [[0, 2, 1, 3]]
        assert env.get_best_solution(away).tolist() == [[0, 1, 2, 3]]
        assert (away["cost_current"].item(), away["cost_best"].item()) == (pytest.approx(CROSSED), 4.0)
        back = env.step(away.exclude("reward").set("action", torch.tensor([1])))["next"]
        assert [away["reward"].item(), back["reward"].item()] == pytest.approx(paid, abs=1e-6)
        assert env.get_reward(td, torch.tensor([[1, 1]])).item() == pytest.approx(sum(paid), abs=1e-6)
        assert env.get_reward(td, torch.tensor([[1]])).item() == pytest.approx(paid[0], abs=1e-6)


def test_a_jump_to_a_solution():
    """step_to_solution sets the solution, prices it, keeps the best, counts no step; ended rows stay."""
    env = Swaps(square, max_steps=1)
    td = env.reset(batch_size=2)
    crossed = env.step_to_solution(td, torch.tensor([[0, 2, 1, 3], [0, 1, 2, 3]]))
    assert crossed["cost_current"].tolist() == pytest.approx([CROSSED, 4.0]) and crossed["cost_best"].tolist() == [4, 4]
    assert crossed["i"].tolist() == [[0], [0]] and crossed["reward"].tolist() == [[0.0], [0.0]]
    ended = env.step(td.set("action", torch.tensor([0, 1])))["next"].exclude("reward")
    assert ended["truncated"].all() and ended["action_mask"].tolist() == [[True, False, False]] * 2
    stays = env.step_to_solution(ended, torch.tensor([[0, 2, 1, 3], [0, 1, 2, 3]]))
    assert_same(stays.exclude("reward"), ended)
    wide = env.step_to_solution(td.exclude("action", "next").expand(3, 2), torch.tensor([[0, 2, 1, 3]]).expand(3, 2, 4))
    assert wide.batch_size == (3, 2) and wide["cost_current"].flatten().tolist() == pytest.approx([CROSSED] * 6)
    with pytest.raises(ShapeError, match="a solution must be int64"):
        env.step_to_solution(td, torch.zeros(2, 4))
    with pytest.raises(ShapeError, match="lacks 'best_solution'"):
        env.get_best_solution(td.exclude("best_solution"))


def test_resets_and_batches():
    """Partial resets begin new searches in their rows; any batch shape steps as the flat one."""
    env = Reversals(num_loc=6, seed=3, batch_size=[4])
    td = started(env, 3)
    kept = td.clone()
    assert_same(env.step(td.copy().reshape(2, 2))["next"], env.step(td.copy())["next"].reshape(2, 2))
    td["_reset"] = torch.tensor([[True], [False], [False], [True]])
    new = env.reset(td)
    assert new["i"].flatten().tolist() == [0, 3, 3, 0] and new["solution"][0].tolist() == [0, 1, 2, 3, 4, 5]
    assert_same(new[1:3].exclude("action"), kept[1:3].exclude("action"))
    assert torch.equal(new["cost_best"][[0, 3]], new["cost_current"][[0, 3]])


def test_mistakes_of_an_author_are_refused():
    """A missing count of moves, an unknown mode, solutions and costs of a wrong form: errors say what to give."""
    odd = {
        "num_actions": ({"num_actions": None}, ConfigError, "must give `num_actions` or _get_action_mask"),
        "initial": ({"_get_initial_solution": lambda s, td: torch.zeros(len(td), 4)}, ShapeError, "must give int64"),
        "cost": ({"_cost": lambda s, td, x: torch.zeros(len(td), 1)}, ShapeError, "_cost must give"),
    }
    for body, error, said in odd.values():
        with pytest.raises(error, match=said):
            type("Odd", (Swaps,), body)(square)
    with pytest.raises(ConfigError, match="reward_mode='worst'"):
        Swaps(square, reward_mode="worst")
    wrong = type("Odd", (Swaps,), {"_apply": lambda self, td, action: td["solution"][:, :2]})(square)
    with pytest.raises(ShapeError, match="a solution must be int64"):
        wrong.step(wrong.reset(batch_size=1).set("action", torch.tensor([0])))
    for method in ("_get_initial_solution", "_apply", "_cost"):
        with pytest.raises(NotImplementedError, match=method):
            getattr(ImprovementEnvBase, method)(Swaps(square), None, *(() if "initial" in method else (None,)))
