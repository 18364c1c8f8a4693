"""The environment as an object: keywords, batch sizes, draws, objectives, copies, threads, processes, devices."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
import threading
from typing import Any

import pytest
import torch
from torchrl.envs import EnvBase

import milkrun
from milkrun.api.torchrl import CVRPEnv, RL4COEnvBase, TorchRLEnv, TSPEnv, env_class
from milkrun.core.errors import BadSolution, ConfigError, ResetNeeded, ShapeError
from tests.api.torchrl_tools import (
    SHORT,
    WORLDS,
    assert_same,
    checksums,
    global_states,
    leaves,
    random_policy,
    small,
    started,
)

STEPPINGS = ("functional", "inplace")


def with_action(env: Any, td: Any) -> Any:
    drawn = env.sample_actions(td)
    return td.copy().update(drawn) if env.group_map else td.copy().set("action", drawn)


def test_samples_are_allowed_and_uniform():
    """Of 20,000 draws among five allowed of six actions each occurs 4,000 times within five sigma, the closed never."""
    env = CVRPEnv(num_loc=5, seed=1)
    drawn = env.sample_actions(env.reset().expand(20_000))
    counts = torch.bincount(drawn, minlength=6)
    assert counts[0] == 0
    assert ((counts[1:] - 4000).abs() < 5 * (20_000 * 0.2 * 0.8) ** 0.5).all()
    first = env.sample_actions(env.reset(batch_size=64))
    assert not torch.equal(first, env.sample_actions(env.reset(batch_size=64)))
    env.set_seed(1)
    again = CVRPEnv(num_loc=5, seed=1)
    td = env.reset(batch_size=64)
    assert torch.equal(env.sample_actions(td), again.sample_actions(td))


@pytest.mark.parametrize("id", [id for id in WORLDS if milkrun.world_spec(id).load().task])
def test_the_reward_of_a_solution_is_its_return(id):
    """get_reward of the actions of an episode is the sum of its rewards; a broken solution is -inf or BadSolution."""
    env = env_class(id)(batch_size=[2, 3], seed=8, **small(id), **SHORT.get(id, {}))
    rolled = env.rollout(60, policy=random_policy(env), break_when_all_done=True)
    done = rolled["next", "done"][..., 0]
    live = torch.cat([torch.ones_like(done[..., :1]), ~done[..., :-1]], -1)
    returns = (rolled["next", "reward"][..., 0] * live).sum(-1)
    actions, td = rolled["action"] * live, rolled[..., 0]
    assert rolled["next", "done"][..., -1, 0].all()
    assert torch.allclose(env.get_reward(td, actions), returns, rtol=1e-5, atol=1e-5)
    with pytest.raises(ShapeError, match=r"\(2, 3, 'T'\)"):
        env.get_reward(td, actions[0])


@pytest.mark.parametrize("id", ["milkrun/TSP-v0", "milkrun/CVRP-v0", "milkrun/CWCVRP-v0"])
def test_a_broken_solution_is_worth_nothing(id):
    """A customer twice costs its row -inf, or with check_solution a BadSolution that names the row."""
    env = env_class(id)(batch_size=[2, 3], seed=8, **small(id))
    td = env.reset()
    tour = torch.arange(1, 7) if id != "milkrun/TSP-v0" else torch.tensor([1, 2, 3, 4, 5, 0])
    actions = torch.stack([tour, torch.zeros_like(tour)], -1).reshape(-1) if id != "milkrun/TSP-v0" else tour
    actions = actions.expand(2, 3, -1)
    assert torch.isfinite(env.get_reward(td, actions)).all()
    broken = actions.clone()
    broken[1, 2, 2] = broken[1, 2, 0]
    assert torch.isinf(env.get_reward(td, broken)).flatten().tolist() == [False] * 5 + [True]
    with pytest.raises(BadSolution, match=r"row 5: .* visited (2 times|twice)"):
        env.get_reward(td, broken, check_solution=True)


@pytest.mark.parametrize("id", ["milkrun/TSP-v0", "milkrun/CVRP-v0", "milkrun/SDWCVRP-v0", "milkrun/TSPKopt-v0"])
def test_solutions_without_actions_have_a_reward(id):
    """A routing solution without visits breaks the rules; a search without moves gains nothing."""
    env = env_class(id)(batch_size=[2, 3], seed=8, **small(id))
    reward = env.get_reward(env.reset(), torch.zeros((2, 3, 0), dtype=torch.int64))
    expected = {"milkrun/SDWCVRP-v0": reward, "milkrun/TSPKopt-v0": torch.zeros(2, 3)}
    assert reward.shape == (2, 3)
    assert torch.equal(reward, expected.get(id, torch.full((2, 3), -torch.inf)))


@pytest.mark.parametrize("id", ["milkrun/CVRP-v0", "milkrun/TSPD-v0", "milkrun/TruckDrone-v0"])
@pytest.mark.parametrize("batch", [[3], [2, 3]])
def test_a_batch_of_no_rows_is_played_as_any_other(id, batch):
    """What is left of a batch after all its rows were filtered out; the keys are those of every batch."""
    env = env_class(id)(batch_size=batch, seed=8)
    td = env.reset()
    none, keys = td[..., :0], {*td.keys(True, True)}
    signal = torch.zeros((*none.batch_size, 1), dtype=torch.bool)
    acting = with_action(env, none)
    for shown in (
        env.reset(none.copy()),
        env.reset(none.copy(), set_state=True),
        env.reset(none.copy().set("_reset", signal)),
        env.step(acting.copy())["next"].exclude(*env.reward_keys),
        env.step_and_maybe_reset(acting.copy())[1],
        env.step(acting.copy().set("_step", signal))["next"].exclude(*env.reward_keys),
    ):
        assert shown.batch_size == none.batch_size and keys <= {*shown.keys(True, True)}
    if env.template.task and not env.group_map:
        reward = env.get_reward(none, torch.zeros((*none.batch_size, 4), dtype=torch.int64))
        assert reward.shape == none.batch_size


def test_starts_leave_the_depot_out():
    """get_num_starts counts nodes but the depot, select_start_nodes is start-major; a free TSP may start anywhere."""
    env = CVRPEnv(num_loc=5)
    td = env.reset(batch_size=2)
    assert env.get_num_starts(td) == 5
    assert env.select_start_nodes(td, 3).tolist() == [1, 1, 2, 2, 3, 3]
    assert TSPEnv(num_loc=5).get_num_starts(td) == 4
    free = TSPEnv(num_loc=5, start="free")
    assert free.get_num_starts(None) == 5
    assert free.select_start_nodes(free.reset(batch_size=2), 6).tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 0, 0]


def test_batch_size_takes_every_common_form_and_rebuilds_the_specs():
    """int, list, tuple, torch.Size and None; setting it changes the shape of every spec."""
    assert [tuple(CVRPEnv(num_loc=4, batch_size=b).batch_size) for b in (3, [3], (2, 3), torch.Size([3]), None)] == [
        (3,),
        (3,),
        (2, 3),
        (3,),
        (),
    ]
    for stepping in STEPPINGS:
        env = CVRPEnv(num_loc=4, batch_size=3, stepping=stepping)
        env.batch_size = [2, 5]
        assert isinstance(env.batch_size, torch.Size) and env.batch_size == (2, 5)
        assert env.observation_spec["visited"].shape == (2, 5, 5)
        assert env.action_spec.shape == (2, 5) and env.reward_spec.shape == (2, 5, 1)
        assert env.is_spec_locked
        assert env.rollout(3).batch_size == (2, 5, 3)
    with pytest.raises(ConfigError, match="batch_size=-1"):
        env.batch_size = -1


def test_batch_locked_says_what_can_be_stepped():
    """Functional environments step any batch; one that steps in place has its own."""
    assert not CVRPEnv(num_loc=4).batch_locked
    env = CVRPEnv(num_loc=4, batch_size=2, stepping="inplace")
    assert env.batch_locked
    with pytest.raises(ResetNeeded, match="reset"):
        env.step(CVRPEnv(num_loc=4).reset(batch_size=2).set("action", torch.tensor([1, 1])))
    with pytest.raises(ShapeError, match=r"\[2\], not \[3\]"):
        env.step(env.reset().expand(3, 2)[:, 0].set("action", torch.ones(3, dtype=torch.int64)))


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"num_lco": 4}, "CVRPEnv has no keyword 'num_lco'; did you mean 'num_loc'"),
        ({"steping": "inplace"}, "has no keyword 'steping'; did you mean 'stepping'"),
        ({"generator_params": {"capcity": 3}}, "no keyword 'capcity'; did you mean 'capacity'"),
        ({"stepping": "sideways"}, "stepping='sideways'"),
        ({"device": "cuda:77"}, "cuda:77|CUDA"),
        ({"device": "cloud"}, "device='cloud'"),
        ({"seed": -1}, "seed -1"),
        ({"batch_size": [0]}, r"batch_size=\[0\]"),
        ({"illegal": "maybe"}, "illegal='maybe'"),
    ],
)
def test_bad_keywords_are_refused(keywords, message):
    """An unknown keyword is named with its nearest; values out of bounds are ConfigErrors."""
    if torch.cuda.is_available() and "device" in keywords:
        pytest.skip("this machine has CUDA")
    with pytest.raises(ConfigError, match=message):
        CVRPEnv(**keywords)


def test_make_and_classes():
    """milkrun.make, env_class and the seed's constructor order give the same kind of environment."""
    made = milkrun.make("milkrun/CVRP-v0", 4, api="torchrl", num_loc=5, seed=3, first_row=2)
    assert type(made) is CVRPEnv is env_class("milkrun/CVRP-v0") and made.batch_size == (4,)
    assert milkrun.make("milkrun/TSP-v0", api="torchrl").batch_size == ()
    assert issubclass(CVRPEnv, TorchRLEnv) and issubclass(TorchRLEnv, RL4COEnvBase)
    assert [c.__name__ for c in RL4COEnvBase.__bases__] == ["BatchMixin", "OpsMixin", "EnvBase"]
    assert made.reset()["hidden", "stream"].tolist() == [[3, 2 + b, 0] for b in range(4)]
    seed_style = CVRPEnv(None, {"num_loc": 5}, "cpu", 4, seed=3)
    shifted = seed_style.reset(batch_size=6)[2:]
    made.set_seed(3)
    assert torch.equal(made.reset()["locs"], shifted["locs"])
    with pytest.raises(ConfigError, match="same_step"):
        milkrun.make("milkrun/CVRP-v0", 4, api="torchrl", autoreset="same_step")


@pytest.mark.parametrize("stepping", STEPPINGS)
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
def test_copies_go_on_alike(stepping, copied):
    """A pickled or deep-copied environment, in the middle of its episodes, gives the same rows as the original."""
    env = CVRPEnv(batch_size=[3], num_loc=5, seed=6, stepping=stepping)
    td = started(env, 2)
    twin = copied(env)
    mine, yours = td.clone(), td.clone()
    for _ in range(30):
        stepped, mine = env.step_and_maybe_reset(mine)
        other, yours = twin.step_and_maybe_reset(yours)
        assert_same(stepped, other)
        mine["action"], yours["action"] = env.sample_actions(mine), twin.sample_actions(yours)
        assert_same(mine, yours)
    assert_same(env.reset(), twin.reset())


def test_threads_may_share_an_environment():
    """Eight threads stepping TensorDicts of their own through one environment get what one thread gets."""
    env = CVRPEnv(num_loc=20, seed=6)
    starts = [started(env, 1, batch=n) for n in (1, 5, 70, 3, 200, 2, 64, 500)]
    expected = [env.step(td.copy())["next"] for td in starts]
    fresh = CVRPEnv(num_loc=20, seed=6)
    wrong = []

    def work(td, alone):
        for _ in range(40):
            following = fresh.step(td.copy())["next"]
            if checksums(following) != checksums(alone):
                wrong.append(td.batch_size)

    workers = [threading.Thread(target=work, args=pair) for pair in zip(starts, expected, strict=True)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert not wrong


def test_no_global_generator_is_touched():
    """Making, seeding, resetting, stepping, sampling and forking leave all global states as they were."""
    before = global_states()
    for stepping in STEPPINGS:
        env = CVRPEnv(batch_size=[4], num_loc=5, seed=1, stepping=stepping)
        env.set_seed(5)
        td = env.reset()
        for _ in range(100):
            td["action"] = env.sample_actions(td)
            td = env.step_and_maybe_reset(td)[1]
        env.fork(td, 2)
    assert global_states() == before


PROGRAM = """
import hashlib, milkrun, torch
from milkrun.api import _td
assert _td.private() is (%r is None)
digest = hashlib.sha256()
worlds = {"milkrun/CVRP-v0": {"num_loc": 5}, "milkrun/TruckDrone-v0": {"episode_length": 12}}
for id, stepping in [(id, stepping) for id in worlds for stepping in ("functional", "inplace")]:
    env = milkrun.make(id, 3, api="torchrl", seed=4, stepping=stepping, **worlds[id])
    td = env.reset()
    for _ in range(60):
        drawn = env.sample_actions(td)
        td = td.update(drawn) if env.group_map else td.set("action", drawn)
        stepped, td = env.step_and_maybe_reset(td)
        for key in sorted(map(str, stepped.keys(True, True))):
            digest.update(key.encode())
        for key in sorted(stepped.keys(True, True), key=str):
            digest.update(stepped[key].numpy().tobytes())
print(digest.hexdigest())
"""


def test_the_public_way_gives_the_same_bits():
    """MILKRUN_PUBLIC_TD=1 takes no private name of tensordict and gives the same bits: the one way here, the other in a
    process of its own."""
    ways = [None, "1"] if os.environ.get("MILKRUN_PUBLIC_TD") != "1" else ["1", None]
    here: dict[str, Any] = {}
    exec(PROGRAM % ways[0], here)
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "MILKRUN_PUBLIC_TD": ways[1] or ""}
    done = subprocess.run([sys.executable, "-c", PROGRAM % ways[1]], env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == here["digest"].hexdigest() + "\n"


def test_an_overridden_step_is_called():
    """The fast path of a plain step bypasses `_step` only if it is the library's own."""

    class Doubled(CVRPEnv):
        def _step(self, tensordict):
            following = super()._step(tensordict)
            following["twice"] = 2 * following["tour_length"]
            return following

    env = Doubled(batch_size=[4], num_loc=5, seed=1)
    td = env.reset()
    td["action"] = env.sample_actions(td)
    following = env.step(td)["next"]
    assert torch.equal(following["twice"], 2 * following["tour_length"]) and following["tour_length"].any()


def test_a_moved_environment_steps_on_its_new_device(monkeypatch):
    """TorchRL changes the specs and the device; without a GPU the meta device stands in for one."""
    monkeypatch.setattr(EnvBase, "to", lambda self, device: self.__dict__.update(_device=torch.device(device)))
    env = CVRPEnv(batch_size=[4], num_loc=5, seed=1)
    td = env.reset()
    td["action"] = env.sample_actions(td)
    env.to("meta")
    following = env.step(td.copy())["next"]
    assert following.device.type == "meta"
    assert {following[key].device.type for key in ("action_mask", "reward", "visited")} == {"meta"}


def test_type_checks_can_be_enabled_later():
    """TorchRL's own step makes the checks of `run_type_checks`, whenever it is set."""
    env = CVRPEnv(batch_size=[4], num_loc=5, seed=1)
    td = env.reset()
    td["action"] = env.sample_actions(td)
    checks: list[str] = []
    env._step_proc_data = lambda following, old=env._step_proc_data: (checks.append("checked"), old(following))[1]
    env.step(td.copy())
    assert not checks
    env.run_type_checks = True
    env.step(td.copy())
    assert checks == ["checked"]


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("stepping", STEPPINGS)
def test_a_gpu_shows_the_same_rows(stepping):
    """With device="cuda" all tensors are there, and equal those of the CPU."""
    here = CVRPEnv(batch_size=[4], num_loc=5, seed=1, stepping=stepping)
    there = CVRPEnv(batch_size=[4], num_loc=5, seed=1, stepping=stepping, device="cuda")
    a, b = here.reset(), there.reset()
    for _ in range(40):
        a["action"], b["action"] = here.sample_actions(a), there.sample_actions(b)
        (done, a), (done_there, b) = here.step_and_maybe_reset(a), there.step_and_maybe_reset(b)
        assert {value.device.type for value in leaves(done_there).values()} == {"cuda"}
        assert_same(done, done_there.cpu())
        assert_same(a, b.cpu())


@pytest.mark.parametrize("options", [{}, {"stepping": "inplace"}])
def test_a_batch_that_no_machine_has_memory_for_is_refused(options):
    """When the environment is made, when its size is set, and when a reset requests it."""
    message = "1000000000 rows of [0-9,]+ bytes need"
    with pytest.raises(ConfigError, match=message):
        env_class("milkrun/CVRP-v0")(batch_size=[10**9], **options)
    env = env_class("milkrun/CVRP-v0")(batch_size=[2], **options)
    with pytest.raises(ConfigError, match=message):
        env.batch_size = [1000, 10**6]
    env = env_class("milkrun/CVRP-v0")(batch_size=[2])
    with pytest.raises(ConfigError, match=message):
        env.reset(batch_size=[10**9])
