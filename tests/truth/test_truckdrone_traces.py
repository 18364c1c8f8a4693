"""Recorded episodes of an independent scalar model of the truck-and-drones rules, replayed through the kernel.

Under the published rules that model agreed bit for bit with the original public environment over 61,000 transitions.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import milkrun
from tests.published import published_file

pytestmark = pytest.mark.truth


def episodes() -> list[Any]:
    files = [published_file(f"delivery/traces/{preset}_traces.json") for preset in ("seed", "default")]
    return [e for f in files for e in json.loads(f.read_text())]


def preset_of(episode: Any) -> str:
    """The recorded files call the published rules "seed"."""
    return {"seed": "published"}.get(episode["preset"], episode["preset"])


def padded(world: Any) -> list[list[float]]:
    """Observations of all agents; those of v1 padded with zeros to the longest."""
    rows = [world.truck_obs[0, 0], *world.drone_obs[0]]
    widest = max(map(len, rows)) if world.config.obs == "v1" else 0
    return [np.pad(row, (0, max(0, widest - len(row)))).tolist() for row in rows]


def bits(flags: np.ndarray) -> str:
    return "".join("01"[int(flag)] for flag in flags)


def masks(world: Any) -> list[str]:
    return [bits(part) for part in (world.truck_mask[0, 0], *world.drone_mask[0])]


def near(have: Any, want: Any, tolerance: float) -> bool:
    pairs = zip(have, want, strict=True)
    return all(np.allclose(a, b, rtol=0, atol=tolerance) for a, b in pairs)


@pytest.mark.parametrize("episode", episodes(), ids=lambda e: e["name"])
def test_a_recorded_episode_replays(episode: Any):
    """Discrete values are equal, reals to 1e-9 (to the bit under the published rules), observations to 1e-6."""
    preset = preset_of(episode)
    world = milkrun.make("milkrun/TruckDrone-v0", 1, preset=preset, autoreset="disabled", **episode["config"])
    world.reset(instance={name: np.asarray(value)[None] for name, value in episode["instance"].items()})
    assert near(padded(world), episode["obs_first"], 1e-6)
    assert np.allclose(world.state[0], episode["share_first"], rtol=0, atol=1e-6)
    assert masks(world) == list(episode["mask_first"])
    tolerance = 0.0 if preset == "published" else 1e-9
    for said in episode["steps"]:
        world.step(np.array([said["a"]]))
        for name, key in (("truck_pos", "tp"), ("drone_pos", "dp"), ("battery", "b"), ("reward_exact", "r")):
            assert np.allclose(getattr(world, name)[0], said[key], rtol=0, atol=tolerance), (name, world.i[0])
        flags = ("truck_node", "tn"), ("truck_target", "tt"), ("status", "st"), ("carrying", "car")
        for name, key in (*flags, ("terminated", "term"), ("truncated", "trunc")):
            assert np.array_equal(getattr(world, name)[0], said[key]), (name, world.i[0])
        assert [bits(world.served[0]), bits(world.forced[0])] == [said["srv"], said["f"]], world.i[0]
        assert masks(world) == list(said["m"]), world.i[0]
    assert world.arrival_step[0].tolist() == episode["arrival_step"]
    assert abs(world.objective[0] - episode["return"]) <= 1e-9
    assert near(padded(world), episode["obs_last"], 1e-6)
    assert np.allclose(world.state[0], episode["share_last"], rtol=0, atol=1e-6)
