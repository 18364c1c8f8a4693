"""MTVRPEnv and MTDVRPEnv: keys by hand, RL4CO's own environment and policy on the same instances, what is refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch

pytest.importorskip("rl4co", reason="needs rl4co")

from rl4co.envs import MTVRPEnv as TheirEnv
from rl4co.models import AttentionModelPolicy
from rl4co.utils.decoding import random_policy, rollout
from rl4co.utils.ops import batchify
from tensordict import TensorDict

import milkrun
from milkrun.api.rl4co import MTDVRPEnv, MTVRPEnv
from milkrun.core.errors import BadInstance, BadSolution, ConfigError, ShapeError
from milkrun.routing.vrp.variants import VARIANTS
from tests.api.rl4co_tools import SQUARE, play, same, shown

PRESETS = [name for name, has in VARIANTS.items() if not has.depots and not has.mixed]
INF = float("inf")


@pytest.fixture(autouse=True)
def own_torch():
    """Isolates torch's global seed, which RL4CO sets, and limits torch to one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(20)
        yield
    torch.set_num_threads(threads)


def theirs_of(preset, num_loc=20, **params):
    return TheirEnv(generator_params={"num_loc": num_loc, "variant_preset": preset, **params}, seed=1)


def drawn(rows, num_loc=20, presets=PRESETS, **params):
    """So many rows of each preset, by RL4CO's generator."""
    torch.manual_seed(7)
    return torch.cat([theirs_of(preset, num_loc, **params).generator([rows]) for preset in presets])


def rectangle(env=MTVRPEnv, **more):
    """Depot (0,0), customers at the other corners of a 3 x 4 box; 1 gives back a half, 2 and 3 want a half each."""
    given = {
        "locs": torch.tensor([[[0.0, 0.0], *SQUARE]]),
        "demand_linehaul": torch.tensor([[0.0, 0.0, 0.5, 0.5]]),
        "demand_backhaul": torch.tensor([[0.0, 0.5, 0.0, 0.0]]),
        "capacity_original": torch.tensor([[10.0]]),
        **more,
    }
    return TensorDict(given, batch_size=[1])


def uniform_action(mask):
    return torch.multinomial(mask.float(), 1).squeeze(-1)


def differing(ours, theirs, td):
    """Entries of the masks that differ, those of them at an exactly full vehicle, and those within the tolerance
    of `fits` from a limit, a share of 1e-5."""
    own = td["_w"]
    differ = (ours != theirs) & (td["_w", "unserved"] > 0)[:, None]
    linehaul = (own["linehaul"] > 0) & (own["delivered"][:, None] + own["linehaul"] == own["capacity"])
    backhaul = (own["backhaul"] > 0) & (own["picked"][:, None] + own["backhaul"] == own["capacity"])
    full = differ & ours & (linehaul | backhaul)
    locs, here = td["locs"].double(), td["current_node"]
    way = (locs - locs[torch.arange(len(locs)), here][:, None]).norm(dim=-1)
    home = (locs - locs[:, :1]).norm(dim=-1) * ~td["open_route"]
    arrival = td["current_time"] + way
    back = torch.maximum(arrival, td["time_windows"][..., 0].double()) + td["service_time"] + home
    limits = (
        (arrival, td["time_windows"][..., 1]),
        (back, torch.where(td["open_route"], INF, td["time_windows"][:, :1, 1])),
        (td["current_route_length"] + way + home, td["distance_limit"]),
    )
    near = [(x - limit).abs() <= 1.1e-5 * limit.clamp(min=1) for x, limit in limits]
    close = differ & torch.stack([at & limit.isfinite() for at, (_, limit) in zip(near, limits, strict=True)]).any(0)
    return int(differ.sum()), int(full.sum()), int((close & ~full).sum())


def compare(data, num_loc):
    """Plays RL4CO's environment and ours by random actions that both allow; returns (row-steps, entries that differ,
    of them exactly full, on a limit)."""
    theirs = theirs_of("all", num_loc)
    ours = MTVRPEnv(generator=theirs.generator, threads=1)
    td, other = ours.reset(data.clone()), theirs.reset(data.clone())
    counts, steps, actions = np.zeros(3, int), 0, []
    while not td["done"].all():
        live = td["_w", "unserved"] > 0
        steps += int(live.sum())
        counts += differing(td["action_mask"], other["action_mask"], td)
        for key in ("current_node", "used_capacity_linehaul", "used_capacity_backhaul", "visited"):
            assert torch.equal(td[key][live], other[key][live]), key
        for key in ("current_time", "current_route_length"):
            torch.testing.assert_close(td[key][live], other[key][live], rtol=0, atol=1e-5)
        both = td["action_mask"] & other["action_mask"]
        action = uniform_action(torch.where(live[:, None], both, td["action_mask"]))
        actions.append(action)
        td, other = play(ours, td, action), play(theirs, other, action)
    assert other["done"].all() and not td["_w", "unserved"].any()
    actions = torch.stack(actions, 1)
    rewards = ours.get_reward(td, actions, check_solution=True)
    torch.testing.assert_close(rewards, theirs.get_reward(other, actions), rtol=1e-5, atol=0)
    # Theirs ends with the last customer, so its sequences may lack the last return.
    torch.testing.assert_close(ours.get_reward(td, actions[:, :-1], check_solution=True), rewards, rtol=1e-5, atol=0)
    return (steps, *counts.tolist())


def test_keys_by_hand():
    """Mixed: after the pickup at 1 a vehicle takes one of 2 and 3, not both; 3 + 4 + 5, then 4 + 4."""
    env = MTVRPEnv(generator_params={"num_loc": 3}, seed=0)
    td = env.reset(rectangle(backhaul_class=torch.tensor([[2.0]])))
    keys = ("current_node", "used_capacity_linehaul", "used_capacity_backhaul", "visited", "action_mask")
    assert shown(td, *keys) == [[0], [[0]], [[0]], [[False] * 4], [[False, True, True, True]]]
    td = play(env, td, 1)
    assert shown(td, *keys[:3], "action_mask") == [[1], [[0]], [[0.5]], [[True, False, True, True]]]
    td = play(env, td, 2)
    assert shown(td, *keys) == [[2], [[0.5]], [[0.5]], [[False, True, True, False]], [[True, False, False, False]]]
    assert shown(td, "current_route_length", "current_time") == [[[7.0]], [[7.0]]]
    td = play(env, td, 0)
    assert shown(td, *keys) == [[0], [[0]], [[0]], [[True, True, True, False]], [[False, False, False, True]]]
    assert shown(td, "current_route_length", "current_time", "done") == [[[0.0]], [[0.0]], [[False]]]
    td = play(env, td, 3)
    assert shown(td, "action_mask", "done") == [[[True, False, False, False]], [[False]]]
    td = play(env, td, 0)
    assert shown(td, "done", "reward", "current_route_length", "current_time") == [[[True]], [[0.0]], [[0.0]], [[0.0]]]
    for actions in ([1, 2, 0, 3, 0], [1, 2, 0, 3], [0, 1, 2, 0, 3, 0, 0]):
        assert env.get_reward(td, torch.tensor([actions])).tolist() == [-20.0]
    assert env.get_variant_names(td) == ["VRPMB"]


def test_both_layouts_of_demands_are_the_same():
    """With the depot, as RL4CO writes them, and without it, as RouteFinder does."""
    env = MTVRPEnv(generator_params={"num_loc": 3}, seed=0)
    whole = rectangle()
    short = whole.clone()
    for key in ("demand_linehaul", "demand_backhaul"):
        short[key] = whole[key][:, 1:]
    assert same(env.reset(whole), env.reset(short))
    unscaled = whole.clone()
    for key in ("demand_linehaul", "demand_backhaul"):
        unscaled[key] = 10 * whole[key]
    unscaled["vehicle_capacity"] = torch.tensor([[10.0]])
    td = env.reset(unscaled)
    assert td["_w", "linehaul"].tolist() == [[0, 0, 5, 5]] and td["_w", "capacity"].tolist() == [[10]]
    assert td["vehicle_capacity"].tolist() == [[10.0]] and td["demand_linehaul"].tolist() == [[0, 0, 5, 5]]


def test_the_layout_is_rl4cos():
    """At a reset and after a step: RL4CO's keys, shapes and dtypes; `backhaul_class` is RouteFinder's."""
    theirs = theirs_of("all", 5)
    ours = MTVRPEnv(generator=theirs.generator)
    data = theirs.generator([3])
    td, other = ours.reset(data.clone()), theirs.reset(data.clone())
    for _ in range(2):
        assert set(td.keys()) - set(other.keys()) <= {"_w", "backhaul_class", "reward"}
        results = {"done", "reward"}  # theirs are (B,) after a step
        layout = {key: (td[key].shape, td[key].dtype) for key in set(other.keys()) - results}
        assert layout == {key: (other[key].shape, other[key].dtype) for key in layout}
        assert td["done"].shape == td["reward"].shape == (3, 1) and td["reward"].dtype == torch.float32
        td, other = play(ours, td, 1), play(theirs, other, 1)


def test_masks_and_rewards_are_rl4cos_but_at_exactly_full_vehicles():
    """16 rows of each of 16 presets, n = 20. RL4CO adds shares in float32 and refuses some exactly full vehicles."""
    steps, differ, full, close = compare(drawn(16), 20)
    assert steps > 5000 and differ == full + close and full > 0
    # Shares of 32 are exact in float32, so nothing is refused there either.
    steps, differ, full, close = compare(drawn(16, capacity=32), 20)
    assert steps > 5000 and full == 0 and differ == close


@pytest.mark.long
@pytest.mark.parametrize("num_loc", [20, 50])
def test_masks_of_all_presets(num_loc):
    """256 rows of each of 16 presets."""
    for preset in PRESETS:
        steps, differ, full, close = compare(drawn(256, num_loc, [preset]), num_loc)
        assert steps > 256 * num_loc and differ == full + close


@pytest.mark.parametrize("decode", ["greedy", "multistart_greedy"])
def test_rl4cos_policy_decides_the_same(decode):
    """RL4CO's attention model with random weights: the same actions, rewards to 1e-5, log-likelihoods to 1e-4."""
    data, theirs = drawn(4, 10, capacity=32), theirs_of("all", 10)
    ours = MTVRPEnv(generator=theirs.generator)
    sizes = {"embed_dim": 32, "num_heads": 4, "num_encoder_layers": 2, "feedforward_hidden": 32}
    policy = AttentionModelPolicy(env_name="mtvrp", **sizes).eval()
    with torch.inference_mode():
        words = {} if decode == "greedy" else {"num_starts": 10}
        out = policy(ours.reset(data.clone()), ours, decode_type=decode, **words)
        expected = policy(theirs.reset(data.clone()), theirs, decode_type=decode, **words)
    mine, others = out["actions"], expected["actions"]
    others = torch.nn.functional.pad(others, (0, mine.shape[1] - others.shape[1]))
    assert len(mine) == len(data) * (1 if decode == "greedy" else 10) and torch.equal(mine, others)
    torch.testing.assert_close(out["reward"], expected["reward"], rtol=1e-5, atol=0)
    torch.testing.assert_close(out["log_likelihood"], expected["log_likelihood"], rtol=0, atol=1e-4)


@pytest.mark.parametrize("preset", ["all", "single_feat_otw", "ovrpbltw"])
@pytest.mark.parametrize("env_class", [MTVRPEnv, MTDVRPEnv])
def test_random_episodes_pass_the_checker(env_class, preset):
    """Both classes of backhauls; RL4CO's own rollout; the length driven is the reward."""
    for kind in (1, 2):
        params = {"num_loc": 8, "variant_preset": preset, "backhaul_class": kind}
        env = env_class(generator_params=params, seed=4, check_solution=True)
        rewards, td, actions = rollout(env, env.reset(batch_size=[64]), random_policy)
        assert td["done"].all() and (td["backhaul_class"] == kind).all() and (rewards < 0).all()
        if env_class is MTDVRPEnv:
            assert set(actions[:, 0].tolist()) == {0, 1, 2} and (td["num_depots"] == 3).all()
            torch.testing.assert_close(-rewards, td["total_distance"].squeeze(-1))


def test_routes_return_to_their_own_depot():
    """Depots (0,0) and (3,5): customers 3 and 4 from depot 1 are 1 + 3 + sqrt(10), customer 2 from depot 0 is 6."""
    env = MTDVRPEnv(generator_params={"num_loc": 3, "num_depot": 2}, seed=0)
    data = TensorDict(
        {
            "locs": torch.tensor([[[0.0, 0.0], [3.0, 5.0], *SQUARE]]),
            "demand_linehaul": torch.tensor([[0.5, 0.5, 0.5]]),
            "capacity_original": torch.tensor([[10.0]]),
        },
        batch_size=[1],
    )
    td = env.reset(data)
    keys = ("current_depot", "depot_available", "total_distance", "action_mask")
    assert shown(td, *keys) == [[0], [[True, True]], [[0.0]], [[True, True, False, False, False]]]
    td = play(env, td, 1, 3, 4)
    assert shown(td, *keys) == [[1], [[True, True]], [[4.0]], [[True, True, False, False, False]]]
    td = play(env, td, 0, 2)
    assert shown(td, "current_depot", "depot_available") == [[0], [[False, False]]]
    assert shown(td, "action_mask") == [[[True, False, False, False, False]]]
    assert td["total_distance"].item() == pytest.approx(7 + 10**0.5)
    td = play(env, td, 0)
    length = 1 + 3 + 10**0.5 + 3 + 3
    assert td["done"].item() and td["total_distance"].item() == pytest.approx(length)
    for actions in ([1, 3, 4, 0, 2, 0], [1, 3, 4, 0, 2]):
        assert env.get_reward(td, torch.tensor([actions]), check_solution=True).item() == pytest.approx(-length)
    opened = env.reset(data.set("open_route", torch.tensor([[True]])))
    assert env.get_reward(opened, torch.tensor([[1, 3, 4, 0, 2, 0]])).item() == pytest.approx(-7)
    with pytest.raises(BadSolution, match="begins with customer 3"):
        env.check_solution_validity(td, torch.tensor([[3, 4, 0, 2, 0]]))


def test_starts_are_customers_or_depots_in_turn():
    """Start-major; a customer that the mask refuses becomes the first one that is allowed."""
    env = MTVRPEnv(generator_params={"num_loc": 3}, seed=0)
    td = torch.cat([env.reset(rectangle()), env.reset(rectangle())])
    assert env.get_num_starts(td) == 3 and env.select_start_nodes(td, 3).tolist() == [1, 1, 2, 2, 3, 3]
    td["action_mask"][1, 1] = False
    assert env.select_start_nodes(td, 4).tolist() == [1, 2, 2, 2, 3, 3, 1, 2]
    several = MTDVRPEnv(generator_params={"num_loc": 4}, seed=0)
    td = several.reset(batch_size=[2])
    assert several.get_num_starts(td) == 4
    assert several.select_start_nodes(td, 4).tolist() == [0, 0, 1, 1, 2, 2, 0, 0]
    td = play(several, batchify(td, 4), several.select_start_nodes(td, 4))
    assert td["current_depot"].tolist() == [0, 0, 1, 1, 2, 2, 0, 0]


def test_instances_are_those_of_the_world():
    """Row for row those of VRP-v0 with the seed, demands as shares; the limit is RL4CO's 3.0."""
    env = MTVRPEnv(generator_params={"num_loc": 6, "variant_preset": "all"}, seed=9)
    td = env.reset(batch_size=[32])
    world = milkrun.make("milkrun/VRP-v0", 32, num_loc=6, variant="all16", law="rl4co", seed=9)
    world.reset()
    assert np.array_equal(td["locs"], world.locs) and np.array_equal(td["_w", "linehaul"], world.linehaul)
    assert np.array_equal(td["time_windows"], world.time_windows)
    assert [name.lower() for name in env.get_variant_names(td)] == world.variant_names()
    assert set(td["distance_limit"].reshape(-1).tolist()) == {3.0, INF}
    mixed = MTVRPEnv(generator_params={"num_loc": 6, "prob_open": 1.0, "prob_time_window": 0.0}, seed=9)
    td = mixed.reset(batch_size=[32])
    assert td["open_route"].all() and td["time_windows"][..., 1].isinf().all()
    assert {name.replace("L", "") for name in mixed.get_variant_names(td)} == {"OVRP", "OVRPB"}


def test_data_files_are_read(tmp_path):
    """Those that RL4CO writes, without and with `scale`, and datasets of Milkrun."""
    theirs = theirs_of("vrpb", 5)
    data = theirs.generator([4])
    theirs.generator.save_data(data, tmp_path / "theirs.npz")
    loaded = MTVRPEnv.load_data(tmp_path / "theirs.npz")
    env = MTVRPEnv(generator=theirs.generator)
    assert same(env.reset(loaded), env.reset(data.clone()))
    unscaled = theirs_of("vrpb", 5, scale_demand=False).generator([4])
    del unscaled["vehicle_capacity"]
    theirs.generator.save_data(unscaled, tmp_path / "units.npz")
    td = env.reset(MTVRPEnv.load_data(tmp_path / "units.npz", scale=True))
    assert np.array_equal(td["_w", "linehaul"], unscaled["demand_linehaul"])
    scale = pytest.importorskip("milkrun.scale")
    scale.generate("milkrun/VRP-v0", 4, tmp_path / "own", seed=3, on="local", config={"num_loc": 5, "variant": "vrptw"})
    td = env.reset(MTVRPEnv.load_data(tmp_path / "own"))
    assert env.get_variant_names(td) == ["VRPTW"] * 4


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"num_locs": 5}, "did you mean 'num_loc'"),
        ({"max_time": 3.0}, r"max_time = 3.0: must be 4.6"),
        ({"distance_limit": 2.0}, r"distance_limit = 2.0: must be 3.0"),
        ({"variant_preset": "vrpx"}, "variant"),
        ({"variant_preset": "vrpb", "prob_open": 0.5}, r"prob_\*: give one"),
        ({"backhaul_class": 3}, "backhaul_class = 3: must be 1 or 2"),
        ({"max_demand": 5}, "max_demand = 5: must be max_backhaul"),
        ({"num_depot": 3}, "num_depot"),
    ],
)
def test_other_parameters_are_refused(params, words):
    """By a sentence that names them."""
    with pytest.raises(ConfigError, match=words):
        MTVRPEnv(generator_params=params)


def test_wrong_instances_and_solutions_are_named():
    """The row and the rule."""
    env = MTVRPEnv(generator_params={"num_loc": 3}, seed=0)
    with pytest.raises(BadInstance, match="demand_linehaul"):
        env.reset(rectangle(demand_linehaul=torch.tensor([[0.0, 0.0, 5.0, 5.0]])))
    with pytest.raises(BadInstance, match="too far"):
        env.reset(rectangle(distance_limit=torch.tensor([[7.0]])))
    with pytest.raises(ShapeError, match="demand_backhaul"):
        env.reset(rectangle(demand_backhaul=torch.zeros(1, 2)))
    with pytest.raises(BadInstance, match="backhaul_class"):
        env.reset(rectangle(backhaul_class=torch.tensor([[1.5]])))
    with pytest.raises(ShapeError, match="demand_linehaul"):
        env.reset(rectangle().exclude("demand_linehaul"))
    td = env.reset(rectangle(backhaul_class=torch.tensor([[2.0]])))
    with pytest.raises(BadSolution, match=r"row 0: route 1 carries load 1\.5"):
        env.check_solution_validity(td, torch.tensor([[1, 2, 3, 0]]))
    several = MTDVRPEnv(generator_params={"num_loc": 3}, seed=0)
    with pytest.raises(ShapeError, match="num_depots must be 3"):
        several.reset(several.generator([2]).set("num_depots", torch.ones(2, 1)))
