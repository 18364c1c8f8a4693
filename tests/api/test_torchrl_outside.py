"""TensorDicts from outside: what was changed in one is seen before a kernel reads it, and threads share nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
import torch
from tensordict import TensorDict

import milkrun
from milkrun.api.torchrl import env_class
from milkrun.core import registry
from milkrun.core.arguments import interpreting
from milkrun.core.errors import BadInstance, ConfigError, MilkrunError, ShapeError
from tests.core.stack import Stack
from tests.small import functional

CVRP, DARP, TSPD, TEAM = "milkrun/CVRP-v0", "milkrun/DARP-v0", "milkrun/TSPD-v0", "milkrun/TruckDrone-v0"
TRACKING = "milkrun/Tracking-v0"


def begun(world_id: str, rows: int = 3, **options: object) -> tuple[object, TensorDict]:
    env = env_class(world_id)(batch_size=[rows], seed=1, **options)
    td = env.reset()
    return env, with_action(env, td)


def with_action(env: object, td: TensorDict) -> TensorDict:
    drawn = env.sample_actions(td)  # type: ignore[attr-defined]
    return td.update(drawn) if isinstance(drawn, TensorDict) else td.set("action", drawn)


def followed(world_id: str, **options: object) -> tuple[object, TensorDict]:
    """A TensorDict that is the stepper's own last output."""
    env, td = begun(world_id, **options)
    return env, with_action(env, env.step(td)["next"])  # type: ignore[attr-defined]


# -- values ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("of", [begun, followed])
@pytest.mark.parametrize(
    ("world_id", "key", "value", "said"),
    [
        (DARP, "current_node", 10**8, "row 1: current_node = 100000000: must be <= 32"),
        (DARP, "current_node", 40, "row 1: current_node = 40: must be <= 32"),
        (DARP, ("hidden", "onboard"), 77, "onboard"),
        (TSPD, "truck", 10**8, "row 1: truck = 100000000"),
        (TSPD, "truck", -1, "row 1: truck = -1: must be >= 0"),
        (TEAM, ("hidden", "truck_node"), 10**8, "truck_node"),
        (CVRP, "load", -5, "row 1: load = -5: must be >= 0"),
        (CVRP, "n_nodes", 10**8, "row 1: n_nodes = 100000000"),
        (CVRP, "demand_units", -1, r"row 1: demand_units\[0\] = -1: must be >= 0"),
        (CVRP, "tour_length", float("nan"), "row 1: tour_length = nan"),
        (CVRP, ("hidden", "stream"), -1, r"row 1: stream\[0\] = -1: must be >= 0"),
    ],
)
def test_a_value_out_of_its_bounds_is_refused_before_a_kernel_reads_it(
    of: Callable[..., tuple[object, TensorDict]], world_id: str, key: object, value: float, said: str
) -> None:
    """Row, field, value and bound are named, in a new TensorDict and in the stepper's own last output."""
    env, td = of(world_id)
    if key not in td.keys(True):
        key = ("hidden", key) if isinstance(key, str) else key[1]
    td.get(key)[1] = value
    with pytest.raises(BadInstance, match=said):
        env.step(td)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("world_id", "key", "value", "said"),
    [
        (CVRP, "current_node", 10**8, "row 2: current_node = 100000000: must be <= 20"),
        (TSPD, "steps", -(2**31), "row 2: steps = -2147483648: must be >= 0"),
        (DARP, "current_load", 50, "row 2: current_load.* is over the capacity of the vehicle"),
        (CVRP, "demand_units", -5, r"row 2: demand_units\[0\] = -5: must be >= 0"),
        (TRACKING, ("hidden", "edge"), 30000, r"row 2: edge\[0, 0\] = 30000: must be <= 63"),
        (TRACKING, ("hidden", "edge_ways"), 100, r"row 2: edge_ways\[0\] = 100: must be <= 6"),
    ],
)
def test_a_write_through_numpy_is_seen_too(world_id: str, key: object, value: int, said: str) -> None:
    """A write through numpy increments no version; integers with a bound, even a lower one alone, are checked
    nonetheless."""
    env, td = followed(world_id)
    td[key].numpy()[2] = value
    with pytest.raises(BadInstance, match=said):
        env.step(td)  # type: ignore[attr-defined]


def test_an_instance_from_numpy_that_kernels_index_with_is_checked_in_every_step() -> None:
    """The owner may write into the array at any time; neither torch nor the tensor's memory shows the change."""
    env, td = begun(TRACKING)
    given = td.exclude("action").clone()
    edge = given["hidden", "edge"].numpy().copy()
    given["hidden", "edge"] = torch.from_numpy(edge)
    td = with_action(env, env.reset(given, set_state=True))  # type: ignore[attr-defined]
    td = with_action(env, env.step(td)["next"])  # type: ignore[attr-defined]
    edge[1] = 30000
    with pytest.raises(BadInstance, match=r"row 1: edge\[0, 0\] = 30000: must be <= 63"):
        env.step(td)  # type: ignore[attr-defined]


def test_a_write_through_numpy_is_seen_in_reused_memory() -> None:
    """Memory that numpy released is reused, with its version counted from 0."""
    env, td = begun("milkrun/TSP-v0", num_loc=20)
    for _ in range(12):
        count = td["hidden", "tour_len"]
        count.numpy()
        count.add_(0)  # the next such tensor gets the same memory
        del count
        td = with_action(env, env.step(td)["next"])  # type: ignore[attr-defined]
    td["hidden", "tour_len"].numpy()[2] = 20
    with pytest.raises(BadInstance, match=r"row 2: tour_len.* the tour is over"):
        env.step(td)  # type: ignore[attr-defined]


def test_a_write_through_numpy_is_seen_after_a_reset_of_other_rows() -> None:
    """The reset copies the rows that go on, and what was written into them: the tour of row 2 would be over."""
    env, td = followed("milkrun/TSP-v0", num_loc=6)
    td["hidden", "tour_len"].numpy()[2] = 6
    td["_reset"] = torch.tensor([[True], [False], [False]])
    td = with_action(env, env.reset(td))  # type: ignore[attr-defined]
    with pytest.raises(BadInstance, match=r"row 2: tour_len.* the tour is over"):
        env.step(td)  # type: ignore[attr-defined]


def test_an_inconsistent_write_through_numpy_is_seen_too() -> None:
    """The value is within its bounds, but its tour would be over while its row goes on."""
    env, td = followed("milkrun/TSP-v0", num_loc=6)
    td["hidden", "tour_len"].numpy()[2] = 6
    with pytest.raises(BadInstance, match=r"row 2: tour_len.* the tour is over"):
        env.step(td)  # type: ignore[attr-defined]


@pytest.mark.parametrize("of", [begun, followed])
def test_a_mask_that_allows_nothing_is_refused_on_a_row_that_goes_on(
    of: Callable[..., tuple[object, TensorDict]],
) -> None:
    """No state of a world has such a mask."""
    env, td = of(CVRP, num_loc=6)
    td["action_mask"][2] = False
    with pytest.raises(BadInstance, match="row 2: action_mask is all False"):
        env.step(td)  # type: ignore[attr-defined]


def test_a_changed_instance_is_checked_again() -> None:
    """The demand of customer 3 is made impossible after a step that found it fine."""
    env, td = followed(CVRP, num_loc=6)
    td["demand_units"][0, 3] = -2
    with pytest.raises(BadInstance, match=r"row 0: demand_units\[3\] = -2"):
        env.step(td)  # type: ignore[attr-defined]


def test_in_place_stepping_loads_no_impossible_state() -> None:
    """`set_state=True` copies a state into the world's own arrays, where kernels index with it."""
    env = env_class(CVRP)(batch_size=[3], seed=1, num_loc=6, stepping="inplace")
    td = env.reset()
    td["current_node"][1] = 10**8
    with pytest.raises(BadInstance, match="row 1: current_node = 100000000: must be <= 6"):
        env.reset(td, set_state=True)


def test_the_dial_a_ride_mask_is_not_computed_for_an_impossible_state() -> None:
    """`_get_action_mask` runs a kernel on what stands in the TensorDict."""
    env, td = begun(DARP)
    td["current_node"][0] = 10**8
    with pytest.raises(BadInstance, match="row 0: current_node = 100000000"):
        env._get_action_mask(td)  # type: ignore[attr-defined]


# -- values that each may be, but not together ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def stack() -> Iterator[str]:
    """The id of a world whose step writes at `height`, which may be the length of its record."""
    milkrun.register("toys/Stack-v0", Stack, gymnasium=False, force=True)
    yield "toys/Stack-v0"
    del registry._worlds["toys/Stack-v0"]


@pytest.mark.parametrize("debug", [False, True])
@pytest.mark.parametrize("of", [begun, followed])
def test_an_inconsistent_state_is_refused_before_a_step_writes_beyond_a_record(
    of: Callable[..., tuple[object, TensorDict]], stack: str, debug: bool
) -> None:
    """Four crates in a record of four places: `height` is within its bounds, and the step would write at place 4. The
    last output that was changed is no longer known as such."""
    with interpreting(debug):
        env, td = of(stack)
    td["height"][2] = 4
    before = td.clone()
    with pytest.raises(BadInstance, match="row 2: height = 4: over the room 4, or full and not terminated"):
        env.step(td)  # type: ignore[attr-defined]
    assert (td["crate"] == before["crate"]).all() and (td["height"] == before["height"]).all()
    td["terminated"][2] = True
    td["crate"][2] = 1
    assert env.step(td)["next", "height"][2] == 4  # type: ignore[attr-defined]


def test_in_place_stepping_loads_no_inconsistent_state(stack: str) -> None:
    """`set_state=True` copies a state into the world's own arrays."""
    env = env_class(stack)(batch_size=[3], seed=1, stepping="inplace")
    td = env.reset()
    td["height"][0] = 3
    with pytest.raises(BadInstance, match="row 0: height = 3: over the room"):
        env.reset(td, set_state=True)


def test_large_batches_are_checked_by_several_threads(stack: str) -> None:
    """Two threads find the one faulty row of 3,000."""
    env = env_class(stack)(batch_size=[3000], seed=1, threads=2)
    td = with_action(env, env.reset())
    td["height"][2345] = 4
    with pytest.raises(BadInstance, match="row 2345: height = 4"):
        env.step(td)


@pytest.mark.parametrize(
    ("world_id", "change", "said"),
    [
        ("milkrun/SDWCVRP-v0", {"day": 7}, "row 1: day = 7: the last day is over, but the row is neither"),
        ("milkrun/TSP-v0", {"tour_len": 20}, "row 1: tour_len = 20: n_nodes is 20, so the tour is over, but neither"),
        (TSPD, {"launch": 0}, "row 1: launch = 0: must be -1 if and only if fly is, which is -1"),
        (DARP, {"onboard": 0}, "row 1: onboard: must list the requests aboard, each once"),
        (CVRP, {"load": 31}, "row 1: load = 31: over the capacity 30"),
        ("milkrun/TSPKopt-v0", {"tour": 3}, "row 1: pos: must be the position of each node in the tour"),
        ("milkrun/CVRPP-v0", {"load": 1e4}, "row 1: load = 10000.0: over the capacity"),
        ("milkrun/CWCVRP-v0", {"load": 1e4}, "row 1: load = 10000.0: over the capacity"),
        ("milkrun/SDWCVRP-v0", {"load": 1e4}, "row 1: load = 10000.0: over the capacity"),
        ("milkrun/VRPP-v0", {"n_nodes": 5, "current_node": 5}, "row 1: current_node = 5: is padding: n_nodes is 5"),
        ("milkrun/TSP-v0", {"n_nodes": 5, "current_node": 5}, "row 1: current_node = 5: is padding: n_nodes is 5"),
    ],
)
def test_an_inconsistent_state_of_our_worlds_is_refused(world_id: str, change: dict[str, float], said: str) -> None:
    """At the start of an episode; each value is within its bounds."""
    env, td = begun(world_id)
    for key, value in change.items():
        (td if key in td else td["hidden"])[key][1] = value
    with pytest.raises(BadInstance, match=said):
        env.step(td)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("world_id", "field", "value", "said"),
    [
        (DARP, "max_ride_time", 1e-3, r"request \d+ \(nodes \d+ and \d+\) cannot be served even alone"),
        (CVRP, "max_length", 1e-3, "there and back .* is over max_length = 0.001"),
        ("milkrun/CWCVRP-v0", "must_go", True, "must"),
        (CVRP, "demand_units", 99, r"demand_units\[0\] = 99: the depot's is 0"),
    ],
)
def test_instances_replaced_in_mid_episode_are_checked_as_given_ones(
    world_id: str, field: str, value: float, said: str
) -> None:
    """The rules between instance fields hold, in a row two steps into its episode."""
    env, td = begun(world_id, rows=4)
    for _ in range(2):
        td = with_action(env, env.step(td)["next"])  # type: ignore[attr-defined]
    td[field] = torch.full_like(td[field], value)
    with pytest.raises(BadInstance, match=said):
        env.step(td)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("world_id", "fields"),
    [
        (DARP, ["max_ride_time", "max_route_duration", "window_open", "time_windows"]),
        (CVRP, ["demand_units", "max_length", "capacity", "locs"]),
        ("milkrun/CWCVRP-v0", ["capacity", "max_length", "waste"]),
        (TSPD, ["max_fly", "c_drone"]),
    ],
)
def test_no_live_row_is_left_without_an_action_by_changed_instances(world_id: str, fields: list[str]) -> None:
    """Instances scaled by 0.3 to 1.5 in mid-episode are refused, or each row that goes on is allowed something."""
    draw = torch.Generator().manual_seed(3)
    refused = stepped = 0
    env, td = begun(world_id, rows=1)
    for _ in range(60):
        td = with_action(env, env.step(td)["next"])  # type: ignore[attr-defined]
        if td["done"].all():
            td = with_action(env, env.reset())  # type: ignore[attr-defined]
        wrong = td.clone()
        for field in fields:
            scale = 0.3 + 1.2 * torch.rand(1, generator=draw).item()
            if wrong.get(field, None) is not None and torch.rand(1, generator=draw) < 0.5:
                wrong[field] = (wrong[field].nan_to_num(posinf=5.0) * scale).to(wrong[field].dtype)
        try:
            after = env.step(wrong)["next"]  # type: ignore[attr-defined]
        except BadInstance:
            refused += 1
            continue
        stepped += 1
        live = ~after["done"].squeeze(-1)
        assert after["action_mask"].any(-1)[live].all()
    assert refused and stepped


# -- tensors changed in place --------------------------------------------------------------------------------------


def test_a_tensor_turned_in_place_is_refused_or_read_as_it_is() -> None:
    """A 7 x 7 tensor keeps its shape when it is transposed: the step must read it by its strides."""
    env = env_class(CVRP)(batch_size=[7], seed=1, num_loc=6)
    one, two = (env.step(env.reset(set_state=False).set("action", torch.arange(7) % 6 + 1))["next"] for _ in "ab")
    two = one.clone()
    one["visited"].t_()
    two["visited"] = two["visited"].t().contiguous()
    for td in (one, two):
        td.set("action", torch.zeros(7, dtype=torch.int64))
    assert (env.step(one)["next", "visited"] == env.step(two)["next", "visited"]).all()


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x.resize_(1, 7),
        lambda x: x.t_(),
        lambda x: x.unsqueeze_(0),
        lambda x: x.set_(torch.zeros(2) > 0),
        lambda x: setattr(x, "data", x.data[:2]),
        lambda x: setattr(x, "data", x.data.view(torch.uint8)),
        lambda x: torch.utils.swap_tensors(x, x.data.t()),
    ],
    ids=["resize_", "t_", "unsqueeze_", "set_", "data", "data of another dtype", "swapped"],
)
@pytest.mark.parametrize("inference", [False, True])
def test_a_tensor_of_another_shape_is_refused_also_where_it_was_ours(
    change: Callable[[torch.Tensor], object], inference: bool
) -> None:
    """The last output is known again by its tensors, but only as they were, be changes counted or not."""
    with torch.inference_mode(inference):
        env, td = followed(CVRP, num_loc=6)
        change(td["visited"])
        with pytest.raises(ShapeError, match=r"'visited' must be torch\.bool of shape"):
            env.step(td)  # type: ignore[attr-defined]


def test_memory_that_moved_is_found_again() -> None:
    """`share_memory_` puts a tensor elsewhere and changes nothing else."""
    env, td = followed(CVRP, num_loc=6)
    other = td.clone()
    td["visited"].share_memory_()
    td["demand_units"].share_memory_()
    expected, found = env.step(other)["next"], env.step(td)["next"]  # type: ignore[attr-defined]
    assert (expected["visited"] == found["visited"]).all() and (expected["load"] == found["load"]).all()


@pytest.mark.parametrize("key", ["tour_length", "locs"])
def test_values_changed_in_inference_mode_are_found(key: str) -> None:
    """Where torch counts no changes in place, a state or an instance that was spoilt is refused all the same."""
    env = milkrun.make("milkrun/CVRP-v0", 4, api="torchrl", num_loc=5, seed=0)
    with torch.inference_mode():
        td = env.reset()
        for _ in range(3):
            td.set("action", td["action_mask"].to(torch.int8).argmax(-1))
            td = env.step(td)["next"]
        td[key].view(-1)[1] = float("nan")
        td.set("action", td["action_mask"].to(torch.int8).argmax(-1))
        with pytest.raises(MilkrunError, match=key):
            env.step(td)


def test_inference_mode_steps_as_usual() -> None:
    """Its tensors count no changes, so all values are checked at every step; the numbers are the same."""
    env, td = begun(CVRP, num_loc=6)
    expected = env.step(env.step(td)["next"].set("action", torch.zeros(3, dtype=torch.int64)))["next"]  # type: ignore[attr-defined]
    with torch.inference_mode():
        again = env.step(td.exclude("next"))["next"].set("action", torch.zeros(3, dtype=torch.int64))  # type: ignore[attr-defined]
        assert torch.equal(env.step(again)["next", "reward"], expected["reward"])  # type: ignore[attr-defined]


# -- invalid actions, batch sizes and instances --------------------------------------------------------------------


@pytest.mark.parametrize("world_id", [w for w in milkrun.list_worlds() if w != TEAM and functional(w)])
def test_complex_actions_are_refused(world_id: str) -> None:
    """They are not converted to integers."""
    env, td = begun(world_id)
    td["action"] = td["action"].to(torch.complex64)
    with pytest.raises(ShapeError, match=r"'action' must be torch\.int64 on the cpu, not torch\.complex64"):
        env.step(td)  # type: ignore[attr-defined]


@pytest.mark.parametrize("dtype", [torch.bool, torch.complex64, torch.float32])
def test_one_group_with_actions_of_another_kind_is_refused_by_name(dtype: torch.dtype) -> None:
    """They are not converted to the integers of the other group."""
    env, td = begun(TEAM)
    td["drone", "action"] = td["drone", "action"].to(dtype)
    with pytest.raises(ShapeError, match=r"\('drone', 'action'\) must be torch.int64"):
        env.step(td)  # type: ignore[attr-defined]


def test_an_instance_row_is_refused_by_name() -> None:
    """Each row of a TensorDict holds its own instance, so an `instance_row` is refused."""
    env, td = begun(CVRP, num_loc=6)
    given = td.select("locs", "demand_units", "capacity", "n_nodes", "max_length")
    with pytest.raises(ShapeError, match="'instance_row'"):
        env.reset(given.set("instance_row", torch.zeros(3, dtype=torch.int32)))  # type: ignore[attr-defined]


@pytest.mark.parametrize("size", [1.5, [1.5], "3", {}, object(), 2**70, [2**70], -1, True])
def test_invalid_batch_sizes_are_refused(size: object) -> None:
    """At the constructor and at a reset."""
    with pytest.raises(ConfigError, match="batch_size"):
        env_class(CVRP)(batch_size=size, num_loc=6)
    with pytest.raises(ConfigError, match="batch_size"):
        env_class(CVRP)(num_loc=6).reset(batch_size=size)


def test_tensors_without_values_and_lists_are_refused_in_sentences() -> None:
    """Meta tensors, sparse ones, and lists where tensors belong."""
    env, td = begun(CVRP, num_loc=6)
    bare = td.to("meta")
    sparse = td.clone()
    sparse._tensordict["visited"] = sparse["visited"].to_sparse()
    plans = torch.zeros((3, 4), dtype=torch.int64)
    kopt, tours = begun("milkrun/TSPKopt-v0", num_loc=6)
    calls: list[Callable[[], object]] = [
        lambda: env.step(bare),
        lambda: env.reset(bare),
        lambda: env.sample_actions(bare),
        lambda: env.step(sparse),
        lambda: env.get_reward(td, plans.to("meta")),
        lambda: env.get_reward(td, [[1, 2], [3]]),
        lambda: kopt.get_reward(tours, [[1, 2], [3]]),
        lambda: kopt.step_to_solution(tours, [[1, 2], [3]]),
        lambda: kopt.step_to_solution(tours, torch.zeros((3, 6), dtype=torch.complex64)),
    ]
    for call in calls:
        with pytest.raises(MilkrunError):
            call()


# -- threads -------------------------------------------------------------------------------------------------------


def played(env: object, td: TensorDict, actions: list[TensorDict], rewards: list[torch.Tensor]) -> None:
    for action in actions:
        td = env.step(td.update(action))["next"]  # type: ignore[attr-defined]
        found = td["reward"] if "reward" in td else td["truck", "reward"]
        rewards.append(found.reshape(len(td), -1)[:, 0].clone())


@pytest.mark.parametrize("world_id", [DARP, TEAM, TSPD])
def test_threads_that_share_an_environment_do_not_disturb_each_other(world_id: str) -> None:
    """Four threads step four batches through one environment; each earns what it earns alone."""
    env = env_class(world_id)(batch_size=[64], seed=3)
    team = [("drone", "action")] if world_id == TEAM else []
    starts, plans = [env.reset() for _ in range(4)], []
    expected: list[list[torch.Tensor]] = [[] for _ in starts]
    for start, rewards in zip(starts, expected):
        td, plan = start.clone(), []
        for _ in range(12):
            td = with_action(env, td)
            plan.append(td.select("action" if world_id != TEAM else ("truck", "action"), *team))
            td = env.step(td)["next"]
        plans.append(plan)
        played(env, start.clone(), plan, rewards)
    for _ in range(3):
        found: list[list[torch.Tensor]] = [[] for _ in starts]
        jobs = [(env, start.clone(), plan, rewards) for start, plan, rewards in zip(starts, plans, found)]
        threads = [threading.Thread(target=played, args=job) for job in jobs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for mine, alone in zip(found, expected):
            assert len(mine) == 12 and all(torch.equal(a, b) for a, b in zip(mine, alone))
