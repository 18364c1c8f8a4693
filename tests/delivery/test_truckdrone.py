"""The truck-and-drones world: episodes by hand, ends, rows, autoreset, and error messages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import milkrun
from milkrun.core.errors import BadInstance, ConfigError, IllegalAction, ResetNeeded, ShapeError
from milkrun.delivery import TruckDrone, TruckDroneConfig
from tests.reference.truckdrone import truck_drone
from tests.reference.truckdrone_state import STATE

ONE = {"num_drones": 1, "num_customers": 1}
STAY, HOVER, RETURN, DELIVER = 0, 0, 1, 2


def make(rows: int = 1, **options: Any) -> Any:
    return milkrun.make("milkrun/TruckDrone-v0", rows, **{"seed": 3, "autoreset": "disabled", **options})


def alone(opens: int, closes: int, parcel: float = 0.8) -> dict[str, Any]:
    return {"customer_pos": [[[0.5, 0.0]]], "demand": [[parcel]], "tw_start": [[opens]], "tw_end": [[closes]]}


def masks(world: Any) -> list[str]:
    return ["".join("01"[int(a)] for a in part) for part in (world.truck_mask[0, 0], *world.drone_mask[0])]


def test_a_delivery_under_the_published_rules():
    """By hand: release, three steps of 0.2, 0.2 and 0.1, 0.01 a unit; 100 + 5 at the end."""
    world = make(preset="published", **ONE)
    world.reset(instance=alone(0, 200))
    seen = []
    for joint in [(6, HOVER), (STAY, DELIVER), (STAY, DELIVER), (STAY, DELIVER)]:
        world.step([joint])
        seen.append((round(float(world.reward_exact[0]), 9), round(float(world.battery[0, 0]), 9), masks(world)))
    assert [reward for reward, _, _ in seen] == [-0.10001, -0.10002, -0.10002, 104.89999]
    assert [battery for _, battery, _ in seen] == [0.999, 0.997, 0.995, 0.994]
    assert seen[0][2] == ["11111101", "111"] and seen[1][2] == ["11111100", "101"]
    assert world.terminated[0] and masks(world) == ["10000000", "100"]


def test_a_delivery_under_the_sound_rules():
    """By hand: 0.4 a unit, half as much again under full payload, waiting until step 8, home in two steps."""
    world = make(**ONE)
    world.reset(instance=alone(8, 20))
    batteries = []
    for joint in [(7, HOVER), *[(STAY, DELIVER)] * 7, *[(STAY, RETURN)] * 2]:
        world.step([joint])
        assert not world.illegal[0]
        batteries.append(round(float(world.battery[0, 0]), 9))
    assert batteries == [0.98, 0.868, 0.756, 0.70, 0.672, 0.644, 0.616, 0.588, 0.508, 0.428]
    assert world.arrival_step[0, 0] == 8 and world.terminated[0] and not world.truncated[0]
    assert round(float(world.objective[0]), 9) == 23.714


def test_a_truck_of_speed_0_stays_at_its_node():
    """Sent to node 1, it stays at node 0, the depot, so the episode can end there; also on roads."""
    for road_graph in (False, True):
        world = make(truck_speed=0.0, end="depot", road_graph=road_graph, **ONE)
        road = {"road": [world.ring_road]} if road_graph else {}
        world.reset(instance={**alone(0, 20), **road})
        for joint in [(7, HOVER), (2, DELIVER), *[(STAY, DELIVER)] * 2, *[(STAY, RETURN)] * 2]:
            world.step([joint])
            assert not world.illegal[0] and world.truck_node[0] == 0
            assert world.truck_edge[0].tolist() == [0] * world.sizes["E"]
        assert world.served[0, 0] and world.terminated[0]


@pytest.mark.parametrize("terminal", [False, True])
def test_the_limit_truncates_or_terminates(terminal: bool):
    """Five idle steps: - 0.1 each, and - 10 for each of six customers in the last one."""
    world = make(episode_length=5, time_limit_terminal=terminal)
    world.reset()
    for _ in range(5):
        world.step([[STAY, HOVER, HOVER]])
    assert (world.terminated[0], world.truncated[0]) == (terminal, not terminal)
    assert round(float(world.reward_exact[0]), 9) == -60.1 and world.world_step[0] == 5


def test_max_steps_truncates_an_episode_but_not_the_windows():
    """The clock of the observations and the windows scale with episode_length; the episode ends at max_steps."""
    world = make(max_steps=3)
    world.reset()
    for _ in range(3):
        world.step([[STAY, HOVER, HOVER]])
    assert world.truncated[0] and world.state[0, -1] == np.float32(3 / 200) and world.tw_end[0].max() > 3


@pytest.mark.parametrize("preset", ["default", "published"])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_row_is_the_same_alone_and_in_any_batch(preset: str, threads: int):
    """Row b of 1, 7 and 512 rows, resets at other times around it: every field, bit for bit."""
    alone_6 = make(1, preset=preset, first_row=6, autoreset="next_step", episode_length=9)
    alone_6.reset(seed=5)
    batches = [make(n, preset=preset, autoreset="next_step", episode_length=9, threads=threads) for n in (7, 512)]
    for batch in batches:
        batch.reset(seed=5)
    for turn in range(25):
        acts = alone_6.sample_actions(1, turn)
        alone_6.step(acts)
        for batch in batches:
            joint = batch.sample_actions(2, turn)
            joint[6] = acts[0]
            batch.step(joint)
            for name in (*STATE, "truck_obs", "drone_obs", "state", "action_mask", "reward_exact", "sum_amounts"):
                assert getattr(batch, name)[6].tobytes() == getattr(alone_6, name)[0].tobytes(), (name, turn)


@pytest.mark.parametrize("mode", ["next_step", "same_step"])
@pytest.mark.parametrize("preset", ["default", "published"])
def test_mask_observations_and_state_are_consistent(preset: str, mode: str):
    """After every call, also after an autoreset, the scalar model computes mask and observations from the state."""
    world = make(6, preset=preset, autoreset=mode, episode_length=15, num_customers=2, num_route_nodes=3)
    world.reset()
    begun = 0
    for turn in range(60):
        over = mode == "next_step" and (world.terminated | world.truncated).any()
        world.step(world.sample_actions(4, turn))
        begun += int(over or len(world.final_rows) > 0)
        for b in range(6):
            names = ("customer_pos", "demand", "tw_start", "tw_end", "route_nodes")
            model = truck_drone(
                preset,
                {name: getattr(world, name)[b] for name in names},
                num_drones=2,
                num_route_nodes=3,
                episode_length=15,
            )
            state = {name: getattr(world, name)[b] for name in STATE}
            if mode == "same_step":  # the flags belong to the previous episode
                state |= {"terminated": False, "truncated": False}
            model.put(**state)
            assert world.action_mask[b].tolist() == model.action_mask
            assert np.allclose(world.truck_obs[b, 0], model.truck_obs(), rtol=1.2e-7, atol=0)
            assert np.allclose(world.drone_obs[b], model.drone_obs(), rtol=1.2e-7, atol=0)
            assert np.allclose(world.state[b], model.state(), rtol=1.2e-7, atol=0)
    assert begun > 3


def test_a_given_route_may_lie_anywhere():
    """Nodes can be given in addition to customers; by default they lie on the circle."""
    world = make(num_drones=1, num_customers=1, num_route_nodes=2)
    world.reset(instance={**alone(0, 9), "route_nodes": [[[0.0, 0.0], [0.3, 0.0]]]})
    for _ in range(3):
        world.step([[2, HOVER]])
    assert np.allclose(world.truck_pos[0], [0.3, 0.0], rtol=0, atol=1e-12) and world.truck_node[0] == 1
    world.reset(instance=alone(0, 9))
    assert world.route_nodes[0].tolist() == [[0.0, 0.0], [0.6, 0.0]]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"num_drones": 0}, "num_drones = 0: must be in 1..64"),
        ({"num_customers": 0}, "num_customers = 0"),
        ({"num_route_nodes": 1}, "num_route_nodes = 1: with a depot node at least 2"),
        ({"episode_length": 2}, "episode_length = 2: must be in 3..1000000"),
        ({"num_drones": 4}, "num_drones = 4: the truck has room for drone_capacity = 3"),
        ({"battery_rate": -0.1}, "battery_rate = -0.1"),
        ({"demand_high": 1.5}, "demand_high = 1.5"),
        ({"demand_low": 0.9, "demand_high": 0.8}, "demand_low = 0.9: is above demand_high = 0.8"),
        ({"end": "depot", "depot_node": False}, "end = 'depot': needs depot_node=True"),
        ({"rules": "published", "hover_rate": 0.1}, "hover_rate = 0.1: no option of the rules 'published'"),
        ({"obey_mask": False}, "obey_mask = False: under the rules 'sound'"),
        ({"drone_speed": 1.0}, "drone_speed = 1.0: battery_rule 'safe' needs more than truck_speed = 1.0"),
        ({"battery_margin": 0.9}, "battery_margin = 0.9: must be in 1..1000.0"),
        ({"tw_width": (0.3, 0.2)}, r"tw_width = \(0.3, 0.2\): the smaller share comes first"),
        ({"rules": "published", "tw_law": "band"}, "tw_law = 'band': the rules 'published' have no"),
    ],
)
def test_a_bad_option_is_refused_by_name(options: dict[str, Any], words: str):
    """With the key, the value and the allowed values."""
    with pytest.raises(ConfigError, match=words):
        TruckDroneConfig(**options)


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"customer_pos": [[[np.nan, 0.0]]]}, BadInstance, r"row 0: customer_pos\[0, 0\] = nan: must be finite"),
        ({"customer_pos": [[[1.5, 0.0]]]}, BadInstance, r"row 0: customer_pos\[0, 0\] = 1.5: must be <= 1"),
        ({"demand": [[0.0]]}, BadInstance, r"row 0: demand\[0\] = 0.0: must be above 0"),
        ({"demand": [[1.2]]}, BadInstance, r"demand\[0\] = 1.2"),
        ({"tw_start": [[30]]}, BadInstance, r"row 0: tw_end\[0\] = 20: the window closes before it opens"),
        ({"tw_end": [[201]]}, BadInstance, r"tw_end\[0\] = 201: must be <= 200"),
        ({"demand": [[0.5, 0.5]]}, ShapeError, r"demand must have the shape \(1, 1\), not \(1, 2\)"),
        ({"demand": None}, ShapeError, "the instance lacks 'demand'"),
    ],
)
def test_a_bad_instance_does_not_change_the_world(changes: dict[str, Any], error: type, words: str):
    """The message names row, field, index and value."""
    world = make(**ONE)
    world.reset()
    before = {name: value.tobytes() for name, value in world.state_dict().items()}
    given = {name: value for name, value in {**alone(8, 20), **changes}.items() if value is not None}
    with pytest.raises(error, match=words):
        world.reset(instance=given)
    assert {name: value.tobytes() for name, value in world.state_dict().items()} == before


@pytest.mark.parametrize("actions", [[[0, 0]], [0, 0, 0], [[0.0, 0.0, 0.0]], [[False, False, False]]])
def test_actions_of_another_shape_or_kind_are_refused(actions: Any):
    """Three integers a row; floats and bools are refused."""
    world = make()
    world.reset()
    with pytest.raises(ShapeError, match=r"actions must be integers of shape \(1, 3\)"):
        world.step(actions)


def test_illegal_actions_raise_with_agent_name_and_reason():
    """The first agent at fault, the name of its action, and the reason."""
    world = make(illegal="raise", num_drones=2, num_customers=2)
    world.reset(
        instance={
            "customer_pos": [[[0.5, 0.0], [-0.7, 0.7]]],
            "demand": [[0.8, 0.5]],
            "tw_start": [[0, 0]],
            "tw_end": [[9, 9]],
        }
    )
    for joint, words in (
        ([99, 0, 0], "truck_0: 99 is not one of its 11 actions"),
        ([9, 0, 0], "truck_0: RECOVER_0: drone_0 is on board"),
        ([0, 0, 1], "drone_1: RETURN: it is on board"),
    ):
        with pytest.raises(IllegalAction, match=f"row 0: action .*: {words}"):
            world.step([joint])
    world.step([[7, 0, 0]])
    world.step([[8, 2, 0]])
    for joint, words in (
        ([7, 2, 0], "truck_0: RELEASE_0: drone_0 is not on board"),
        ([0, 1, 0], "drone_0: RETURN: it carries the parcel of customer 0"),
        ([0, 3, 0], "drone_0: DELIVER_1: it carries the parcel of customer 0"),
        ([0, 2, 2], "drone_1: DELIVER_0: carried by drone_0"),
    ):
        with pytest.raises(IllegalAction, match=words):
            world.step([joint])


def test_masked_actions_are_replaced_and_flagged():
    """Out of range or masked, without raising: the truck stays, a drone takes its lowest allowed action."""
    world = make()
    world.reset()
    world.step([[-1, 5, 2**40]])
    assert world.illegal_agents[0].tolist() == [True, True, True] and world.executed[0].tolist() == [0, 0, 0]
    assert world.illegal[0] and world.sum_counts[0].tolist()[11] == 3 and not world.forced.any()


def test_a_finished_row_must_be_reset():
    """In both presets, unlike the original of the published one."""
    for preset in ("default", "published"):
        world = make(preset=preset, max_steps=1)
        world.reset()
        world.step([[0, 0, 0]])
        with pytest.raises(ResetNeeded, match="row 0"):
            world.step([[0, 0, 0]])


def test_groups_and_sizes():
    """Agents by group, in the order of their actions; lengths of the observations at the presets' sizes."""
    default, published = make(), make(preset="published")
    assert isinstance(default, TruckDrone)
    assert default.groups == {"truck": ["truck_0"], "drone": ["drone_0", "drone_1"]}
    shapes = [
        (w.truck_obs.shape[2], w.drone_obs.shape[2], w.state.shape[1], w.action_mask.shape[1])
        for w in (default, published)
    ]
    assert shapes == [(90, 80, 87, 27), (38, 33, 34, 20)]
