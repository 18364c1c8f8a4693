"""The truck-and-drones world in TorchRL: two groups and a state, the same bits as the World in both ways to step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import milkrun
from milkrun.core.errors import BadInstance
from tests.api.torchrl_tools import assert_same, bits, checksums

TRUCKDRONE = "milkrun/TruckDrone-v0"
SHORT: dict[str, Any] = {"num_customers": 2, "num_route_nodes": 3, "episode_length": 12}


def team(rows: Any = 5, **options: Any) -> Any:
    return milkrun.make(TRUCKDRONE, rows, api="torchrl", seed=6, **{**SHORT, **options})


def drawn(env: Any, td: Any) -> Any:
    """The TensorDict with an allowed action for every agent."""
    for group, acts in env.sample_actions(td).items():
        td = td.set((group, "action"), acts["action"])
    return td


def joint(td: Any) -> np.ndarray:
    return torch.cat([td["truck", "action"], td["drone", "action"]], -1).numpy()


def assert_row_equal(td: Any, world: Any) -> None:
    shown = {
        ("truck", "observation"): world.truck_obs,
        ("drone", "observation"): world.drone_obs,
        "state": world.state,
        ("truck", "action_mask"): world.truck_mask,
        ("drone", "action_mask"): world.drone_mask,
    }
    for key, array in shown.items():
        assert bits(td[key]) == np.ascontiguousarray(array).tobytes(), key


@pytest.mark.parametrize("preset", ["default", "published"])
@pytest.mark.parametrize("stepping", ["functional", "inplace"])
def test_groups_show_the_rows_of_the_world(preset: str, stepping: str):
    """Observations, masks, state, team rewards and ends of two episodes, bit for bit; every agent earns the reward."""
    env = team(preset=preset, stepping=stepping)
    world = milkrun.make(TRUCKDRONE, 5, seed=6, autoreset="disabled", preset=preset, **SHORT)
    td = env.reset()
    world.reset()
    for turn in range(24):
        assert_row_equal(td, world)
        td = drawn(env, td)
        live = np.flatnonzero(~world.done)
        world.step(joint(td)[live], rows=live)
        stepped, td = env.step_and_maybe_reset(td)
        following = stepped["next"]
        assert bits(following["terminated"][:, 0]) == world.terminated.tobytes(), turn
        for group in ("truck", "drone"):
            assert np.array_equal(
                following[group, "reward"][..., 0].numpy(), world.reward[:, None].repeat(len(env.group_map[group]), 1)
            )
        if world.done.any():
            world.reset(rows=world.done)


def test_functional_steps_read_nothing_but_the_tensordict():
    """A clone, a permutation and a batch of two dimensions step to the same bits, and inputs keep theirs."""
    env = team(6)
    td = env.reset()
    for _ in range(5):
        td = drawn(env, env.step(drawn(env, td))["next"].exclude(("truck", "reward"), ("drone", "reward")))
    before = checksums(td)
    straight = env.step(td.clone())["next"]
    turned = torch.tensor([3, 1, 5, 0, 2, 4])
    assert_same(env.step(td[turned].clone())["next"], straight[turned])
    assert_same(env.step(td.clone().reshape(2, 3))["next"].reshape(6), straight)
    assert checksums(td) == before


CONTRADICTIONS = [
    ("carrying", 0, r"row 1: carrying: must be -1 on board, but is \[0, 0\] with status = \[0, 0\]"),
    ("has_target", True, r"row 1: has_target: must be False on board, but is \[True, True\]"),
    ("served", True, r"row 1: served: is \[True, True\], but arrival_step = \[-1, -1\] says otherwise"),
    ("lost", True, r"row 1: lost: is \[True, True\]; under the sound rules a parcel is lost while"),
    ("truck_target", 1, "row 1: truck_target = 1: must be -1 on a node, but truck_node ="),
]


@pytest.mark.parametrize(("name", "value", "said"), CONTRADICTIONS)
def test_a_state_that_contradicts_itself_is_refused(name: str, value: int, said: str):
    """At the start of an episode; each value is within its bounds."""
    env = team()
    td = drawn(env, env.reset())
    td["hidden", name][1] = value
    with pytest.raises(BadInstance, match=said):
        env.step(td)


def test_a_limit_below_the_flight_under_way_is_refused():
    """The drone of row 1 is out; with max_fly = 0.1 of two rows it could join nowhere, so the row could not go on."""
    env = milkrun.make("milkrun/TSPD-v0", 2, api="torchrl", seed=6, num_nodes=5, max_fly=1e6)
    td = env.reset()
    td = env.step(td.set("action", torch.tensor([1, 5 + 1])))["next"].exclude("reward")
    assert td["fly"].tolist() == [-1, 1]
    td = td.set("max_fly", torch.full_like(td["max_fly"], 0.1)).set("action", torch.tensor([2, 2]))
    with pytest.raises(BadInstance, match=r"row 1: fly = 1: the drone cannot join the truck within max_fly = 0\.1"):
        env.step(td)
