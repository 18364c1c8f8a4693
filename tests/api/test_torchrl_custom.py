"""A world in torch alone: three methods of the author, and every tool that takes a TorchRL environment."""

from __future__ import annotations

import pytest
import torch
from tensordict import TensorDict
from torchrl.envs import ActionMask, Compose, RewardSum, StepCounter, TransformedEnv
from torchrl.envs.utils import check_env_specs

from milkrun.api.torchrl import RL4COEnvBase, TSPEnv
from milkrun.core.errors import BadSolution, ConfigError, ShapeError
from tests.api.torchrl_tools import assert_same, checksums, global_states, leaves, random_policy, started


class Tour(RL4COEnvBase):
    """The seed's three methods: visit all, end reward, from node 0, masks as "True = visited"."""

    name = "tsp"
    mask_true_means = "forbidden"

    def _reset_instance(self, td):
        rows, nodes = td["locs"].shape[:2]
        visited = torch.zeros((rows, nodes), dtype=torch.bool)
        visited[:, 0] = True
        td["current_node"] = torch.zeros((rows, 1), dtype=torch.int64)
        return td.update({"visited": visited, "tour_length": torch.zeros(rows)})

    def _get_action_mask(self, td):
        return td["visited"].clone()

    def _get_reward(self, td, actions):
        here = td["locs"].gather(1, td["current_node"][..., None].expand(-1, 1, 2))[:, 0]
        return -td["tour_length"] - (here - td["locs"][:, 0]).norm(dim=-1)


class Prizes(RL4COEnvBase):
    """A small orienteering: collect prizes within a budget of steps, go home with 0; the reward is paid on the way."""

    dense_reward = True

    def _reset_instance(self, td):
        rows, nodes = td["prize"].shape
        td["visited"] = torch.zeros((rows, nodes), dtype=torch.bool)
        td["left"] = torch.full((rows, 1), 3, dtype=torch.int32)
        td["home"] = torch.zeros((rows, 1), dtype=torch.bool)
        return td

    def _get_action_mask(self, td):
        mask = ~td["visited"] & (td["left"] > 0)
        mask[:, 0] = True
        return mask

    def _step_instance(self, td):
        rows = torch.arange(len(td))
        td["visited"][rows, td["action"]] = True
        td["left"] -= 1
        td["home"] |= td["action"][:, None] == 0
        return td

    def _check_done(self, td):
        return td["home"]

    def _get_reward(self, td, actions):
        return td["prize"].gather(1, actions[:, None])

    def _check_solution(self, td, actions):
        if (actions == 2).any():
            raise BadSolution("row 0: node 2 is forbidden today")


def prizes(batch_size):
    return TensorDict({"prize": torch.tensor([[0.0, 3.0, 5.0, 7.0]]).repeat(batch_size, 1)}, [batch_size])


@pytest.mark.parametrize("batch", [None, [5], [2, 3]])
@pytest.mark.parametrize("world", [Tour, Prizes])
def test_torchrl_takes_it(world, batch):
    """check_env_specs passes, seeded and not, alone and behind ActionMask."""
    env = Tour(batch_size=batch, num_loc=5, seed=3) if world is Tour else Prizes(prizes, batch_size=batch)
    check_env_specs(env, break_when_any_done="both")
    check_env_specs(env, seed=1)
    check_env_specs(TransformedEnv(env, ActionMask()), break_when_any_done="both")


def test_it_plays_the_same_tours_as_the_compiled_world():
    """The same generator, actions and end reward as TSPEnv: the tour home is paid with the last customer here."""
    mine, compiled = Tour(batch_size=[4], num_loc=6, seed=3), TSPEnv(batch_size=[4], num_loc=6, seed=3)
    a, b = mine.reset(), compiled.reset()
    assert torch.equal(a["locs"], b["locs"])
    total = torch.zeros((4, 1))
    for _ in range(5):
        assert torch.equal(a["action_mask"][:, 1:], b["action_mask"][:, 1:])
        action = mine.sample_actions(a)
        a = mine.step(a.set("action", action))["next"]
        b = compiled.step(b.set("action", action))["next"]
        assert torch.allclose(a["tour_length"], b["tour_length"], rtol=1e-6)
        total += a["reward"]
    assert a["terminated"].all() and not b["terminated"].any()
    last = compiled.step(b.set("action", torch.zeros(4, dtype=torch.int64)))["next"]
    assert torch.allclose(total[:, 0], -last["tour_length"], rtol=1e-6)
    assert a["tour"].shape == (4, 14) and (a["tour"][:, 5:] == -1).all()
    assert a["tour"][:, :5].sort(1).values.tolist() == [[1, 2, 3, 4, 5]] * 4


def test_rewards_are_paid_on_the_way_or_at_the_end():
    """Dense: 3 + 7 for nodes 1, 3, then 0 at home; the end reward is 0 until the row ends."""
    env = Prizes(prizes)
    td, paid = env.reset(batch_size=1), []
    for action in (1, 3, 0):
        td = env.step(td.set("action", torch.tensor([action])))["next"]
        paid.append(td["reward"].item())
    assert paid == [3.0, 7.0, 0.0] and td["done"].item()
    tour = Tour(num_loc=4, seed=1)
    rolled = tour.rollout(10, policy=random_policy(tour))
    assert rolled["next", "reward"][:-1].eq(0).all() and rolled["next", "reward"][-1].item() < -0.1
    actions = rolled["action"]
    assert torch.allclose(tour.get_reward(rolled["next"][-1], actions), rolled["next", "reward"][-1, 0])


def test_illegal_actions_and_finished_rows_change_nothing():
    """A masked or impossible action counts as a step and moves nothing; a row that has ended stays as it is."""
    env = Tour(num_loc=3, seed=1)
    td = env.reset(batch_size=3)
    tried = env.step(td.set("action", torch.tensor([0, 7, 2])))["next"]
    assert tried["i"].tolist() == [[1], [1], [1]]
    assert tried["tour"][:, 0].tolist() == [-1, -1, 2]
    assert tried["visited"].sum(1).tolist() == [1, 1, 2]
    last = env.step(tried.set("action", torch.tensor([1, 1, 1])))["next"]
    assert last["terminated"].flatten().tolist() == [False, False, True]
    assert last["action_mask"].tolist() == [[False, False, True], [False, False, True], [True, False, False]]
    after = env.step(last.copy().set("action", torch.tensor([2, 2, 2])))["next"]
    assert after["reward"][2].item() == 0 and after["reward"][0].item() < 0
    assert_same(after[2].exclude("reward"), last[2].exclude("reward", "action"))
    assert torch.equal(env.get_action_mask(last), last["action_mask"])
    prize = Prizes(prizes)
    home = prize.step(prize.reset(batch_size=1).set("action", torch.tensor([0])))["next"]
    again = prize.step(home.copy().set("action", torch.tensor([0])))["next"]
    assert home["left"].item() == again["left"].item() == 2 and again["i"].item() == 1


def test_inputs_are_not_written_though_the_author_writes_in_place():
    """Methods of an author may write into td's tensors, which are copies; instances are shared."""
    env = Prizes(prizes)
    td = started(env, 1, batch=4)
    before = checksums(td)
    stepped = env.step(td)
    assert checksums(td.exclude("next")) == before
    assert stepped["next", "prize"] is td["prize"]
    assert_same(env.step(td.exclude("next").reshape(2, 2))["next"], stepped["next"].reshape(2, 2))


def test_rows_end_at_the_step_limit():
    """max_steps truncates and sets the width of `tour`; without it a row has twice its nodes + 2 steps."""
    env = Tour(num_loc=6, seed=1, max_steps=2)
    td = started(env, 1, batch=2)
    last = env.step(td)["next"]
    assert last["truncated"].all() and not last["terminated"].any()
    assert last["tour"].shape == (2, 2) and (last["reward"] < 0).all()
    lazy = Tour(num_loc=6, seed=1)
    td = lazy.reset(batch_size=1)
    for k in range(14):
        assert not td["done"].item(), k
        td = lazy.step(td.set("action", torch.tensor([0])))["next"]
    assert td["truncated"].item() and (td["tour"] == -1).all()


def test_a_live_row_without_actions_is_refused():
    """A mask that allows nothing in a live row is a ShapeError that names the row."""

    class Stuck(Prizes):
        def _get_action_mask(self, td):
            mask = super()._get_action_mask(td)
            mask[1:] &= td["left"][1:] == 3
            return mask

    env = Stuck(prizes)
    with pytest.raises(ShapeError, match=r"row 1: .* allows nothing"):
        env.step(env.reset(batch_size=3).set("action", torch.tensor([1, 1, 1])))
    with pytest.raises(ShapeError, match="bool"):
        type("Odd", (Prizes,), {"_get_action_mask": lambda self, td: td["prize"]})(prizes)
    with pytest.raises(ConfigError, match="mask_true_means = 'maybe'"):
        type("Odd", (Prizes,), {"mask_true_means": "maybe"})(prizes)


def test_resets_follow_the_same_table():
    """Given instances, a given state, some rows: as in compiled worlds."""
    env = Tour(batch_size=[3], num_loc=5, seed=1)
    first = env.reset()
    td = started(env, 2)
    assert_same(env.reset(first.select("locs")), first)
    assert_same(env.reset(td.clone(), set_state=True), td)
    kept = td.clone()
    td["_reset"] = torch.tensor([[True], [False], [False]])
    new = env.reset(td)
    assert_same(new[1:], kept[1:])
    assert new["i"].flatten().tolist() == [0, 2, 2] and not torch.equal(new["locs"][0], kept["locs"][0])
    with pytest.raises(ShapeError, match="lacks 'visited'"):
        env.reset(first.exclude("visited"), set_state=True)
    forked = env.fork(first, 2)
    assert forked.batch_size == (2, 3) and forked["locs"].data_ptr() == first["locs"].data_ptr()


def test_no_rows_and_no_actions_are_played_too():
    """A batch of 0 rows begins and steps; solutions of 0 actions are priced where they stand."""
    env = Tour(num_loc=4, batch_size=[3], seed=1)
    none = env.reset(TensorDict({}, [0]))
    assert none["locs"].shape == (0, 4, 2)
    none["action"] = env.sample_actions(none)
    assert env.step(none)["next", "reward"].shape == (0, 1)
    bare = TensorDict({"_reset": torch.zeros((0, 1), dtype=torch.bool)}, [0])
    assert env.reset(bare)["locs"].shape == (0, 4, 2)
    assert env.get_reward(env.reset(), torch.zeros((3, 0), dtype=torch.int64)).tolist() == [0, 0, 0]


def test_rollouts_with_transforms():
    """Rollouts with automatic resets, RewardSum and StepCounter: each episode's sum is its end reward."""
    env = Tour(batch_size=[3], num_loc=4, seed=1)
    rolled = TransformedEnv(env, Compose(RewardSum(), StepCounter())).rollout(
        20, policy=random_policy(env), break_when_any_done=False
    )
    done = rolled["next", "done"]
    assert done.sum() == 18
    assert torch.equal(rolled["next", "episode_reward"][done], rolled["next", "reward"][done])
    assert (rolled["next", "step_count"][done] == 3).all()


def test_the_constructor_is_strict():
    """Without a generator, with unknown keywords or with a missing checker: ConfigError."""
    with pytest.raises(ConfigError, match="Prizes needs a generator"):
        Prizes()
    with pytest.raises(ConfigError, match="Prizes has no keyword 'num_loc'"):
        Prizes(prizes, num_loc=4)
    with pytest.raises(ConfigError, match="did you mean 'num_loc'"):
        Tour(num_lco=4)
    with pytest.raises(ConfigError, match=r"Forgetful\.records_tour is False: .* `dense_reward`"):
        type("Forgetful", (Tour,), {"records_tour": False})(num_loc=4)
    tour = Tour(num_loc=4, seed=1, check_solution=True)
    td = tour.reset(batch_size=2)
    with pytest.raises(ConfigError, match="Tour has no checker"):
        tour.get_reward(td, torch.zeros((2, 3), dtype=torch.int64))
    with pytest.raises(BadSolution, match="node 2"):
        Prizes(prizes, check_solution=True).get_reward(Prizes(prizes).reset(batch_size=2), torch.tensor([[1], [2]]))


def test_making_one_leaves_the_global_generator_alone():
    """Making an environment leaves the global random state unchanged, even with an external generator; so does playing
    one of ours."""
    before = global_states()
    env = Prizes(lambda b: TensorDict({"prize": torch.rand(b, 4)}, [b]))
    assert global_states() == before
    tour = Tour(batch_size=[3], num_loc=4, seed=1)
    tour.rollout(9, policy=random_policy(tour), break_when_any_done=False)
    assert global_states() == before
    assert set(leaves(env.reset(batch_size=2))) >= {"prize", "visited", "tour", "i", "action_mask", "done"}
