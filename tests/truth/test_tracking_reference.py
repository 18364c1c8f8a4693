"""The tracking world equals the scalar model of `tests/reference`, which was written from the rules alone.

A step of the model starts from the world's row and takes its draws from the row's streams. All state and all views are
then compared: integers and flags equal, reals to 1e-9, second difference quotients by `tracking_tools.COARSE`. Steps
are compared at intervals through an episode, and wherever a row ends.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from milkrun.tracking.config import REASONS, SCENES
from tests.reference import tracking as model
from tests.truth.tracking_tools import Comparison

pytestmark = pytest.mark.truth

TRAFFIC: dict[str, Any] = {"no_reward_done": 10000, "done_drift": 1e6}
"""An episode lasts three seconds, unless the drone crashes."""
CASES: dict[str, dict[str, Any]] = {
    **{scene: {"scene": scene, **TRAFFIC} for scene in SCENES},
    "straight_mono": {"preset": "straight_mono", **TRAFFIC},
    "straight": {"preset": "straight", "scene": "farmland", "halt_rate": 1.0},
    "dat": {"preset": "dat", "scene": "village"},
    "dat_repo": {"preset": "dat_repo"},
    "aot": {"preset": "aot", "scene": "village"},
    "aot, published": {"preset": "aot", "constants": "as_published", "scene": "lake", "reward_scale": 0.5},
    "published": {"preset": "published", "scene": "lake"},
    "dvat": {"preset": "dvat", "scene": "desert"},
    "dvat, discrete": {"preset": "dvat", "action_mode": "discrete", "frame_stack": 2, "scene": "farmland"},
    "velocity": {"action_mode": "velocity", "scene": "downtown", "done_height": (10.0, 24.0)},
    "wind": {"wind_mean": (6.0, -4.0), "wind_sigma": 8.0, "scene": "village", "done_drift": 2.0, "wind_tau": 0.5},
    "occlusion": {"occlusion": "zero", "scene": "downtown", "start_pitch": (0.5, 0.8)},
    "end_reward": {"end_reward": True, "reward_mode": "discrete", "scene": "desert"},
    "pedestrian": {"target_kinds": ("pedestrian",), **TRAFFIC},
    "motorcycle, bus": {"target_kinds": ("motorcycle", "bus"), "scene": "village", **TRAFFIC},
    "distance": {"reward_kind": "distance", "scene": "farmland"},
    "distance, discrete": {"reward_kind": "distance", "reward_mode": "discrete", "scene": "lake"},
    "halts": {"halt_rate": 3.0, "scene": "desert", **TRAFFIC},
    "as_coded": {"filter_design": "as_coded", "control_hz": 50, "scene": "lake", **TRAFFIC},
    "no filter": {"filter_hz": 0.0, "control_hz": 250, "max_steps": 90, "action_dim": 6, "scene": "village"},
    "yaw rate": {"cw": 6.0, "ccw": -6.0, "done_yaw_rate": 4.0, "done_speed": 30.0, "scene": "farmland"},
    "one car": {"max_vehicles": 1, "scene": "lake", "view_range": 1.0, "camera_px": (640, 360), "hfov": 1.0},
}


class Pilot:
    """Draws a move every five steps, occasionally an invalid one."""

    def __init__(self, pair: Comparison, seed: int) -> None:
        self.pair, self.draw = pair, np.random.default_rng(seed)
        self.moves = self.new(0)

    def new(self, turn: int) -> np.ndarray:
        rows, wish = self.pair.world.num_envs, self.pair.config
        if wish.action_mode == "velocity":
            moves = self.draw.uniform(-1, 1, (rows, 4))
            if turn % 21 == 20:
                moves[0, 1] = 1.5
            return moves.astype(np.float32)
        moves = self.draw.integers(0, wish.action_dim, rows)
        if turn % 21 == 20:
            moves[0] = wish.action_dim
        return moves

    def act(self, turn: int) -> np.ndarray:
        if turn % 5 == 0:
            self.moves = self.new(turn // 5)
        return self.moves


def play(case: str, rows: int, every: int, seed: int) -> Comparison:
    """Plays episodes to their ends and compares every `every`-th step and every end."""
    pair = Comparison(rows, seed=seed, **CASES[case])
    pilot, wrong, turn = Pilot(pair, seed), [], 0
    for b in range(rows):
        wrong += pair.start_differences(b)
    while len(pair.playing()):
        wrong += pair.step(pilot.act(turn), compares=turn % every == 0)
        assert not wrong, "\n".join(wrong[:10])
        turn += 1
    return pair


@pytest.mark.parametrize("case", CASES)
def test_steps_are_those_of_the_reference(case):
    """Two rows to their ends; starts and ends, and between them each 25th step."""
    pair = play(case, rows=2, every=25, seed=3)
    assert pair.compared >= 4


VELOCITY = {"action_mode": "velocity", "no_reward_done": 10000, "scene": "desert"}
ABOVE = {
    "start_pitch": (1.3, 1.3),
    "start_height": (13.0, 13.0),
    "start_long": (0.0, 0.0),
    "start_lat": (0.0, 0.0),
    "target_kinds": ("pedestrian",),
}
DOWN, UP = (0.0, 0.0, -1.0, 0.0), (0.0, 0.0, 1.0, 0.0)


@pytest.mark.parametrize(
    "reason, action, options",
    [
        ("crash", DOWN, {**VELOCITY, "done_height": (-1.0, 50.0), "start_height": (13.0, 13.0)}),
        ("height", UP, {**VELOCITY, "done_height": (2.0, 24.0)}),
        ("height", 6, {"done_height": (30.0, 50.0), "scene": "lake"}),
        ("drift", 6, {"wind_mean": (30.0, 5.0), **TRAFFIC, "done_drift": 20.0, "scene": "desert"}),
        ("speed", 0, {"done_speed": 25.0, "scene": "desert"}),
        ("yaw_rate", 5, {"cw": 6.0, "done_yaw_rate": 4.0, "scene": "farmland"}),
        ("lost", 6, {"view_range": 0.1, "end_reward": True, "scene": "lake"}),
        ("range", DOWN, {"preset": "dvat", **VELOCITY, **ABOVE}),
        ("time", 6, {"preset": "dat_repo", "end_reward": True, "scene": "farmland"}),
        ("target_gone", 6, {"preset": "straight_mono", "max_sim_steps": 20000, "no_reward_done": 20000}),
    ],
    ids=["crash", "height", "height at once", "drift", "speed", "yaw rate", "lost", "range", "time", "gone"],
)
def test_ends_are_those_of_the_reference(reason, action, options):
    """Every reason of an in-process world occurs in the same step as in the reference."""
    pair = Comparison(2, seed=6, **options)
    actions = np.array([action, action], np.float32 if isinstance(action, tuple) else np.int64)
    turn = 0
    while len(pair.playing()):
        wrong = list(pair.step(actions, compares=turn % 40 == 0 and turn < 400))
        assert not wrong, "\n".join(wrong[:10])
        turn += 1
    assert [REASONS[code] for code in pair.world.reason] == [reason, reason]


def alone(case: str, seed: int, steps: int) -> float:
    """The model plays an episode independently of row 0; returns the largest difference of positions."""
    pair = Comparison(1, seed=seed, **CASES[case])
    pilot, state, worst = Pilot(pair, seed), pair.state(0), 0.0
    for turn in range(steps):
        moves = pilot.act(turn)
        state = model.step(pair.town(0), state, pair.options, pair.draws(0), moves[0])
        pair.world.step(moves)
        for name in ("pos", "yaw", "veh_pose", "veh_v", "reward_exact", "cr_sum", "tsr_sum"):
            worst = max(worst, float(np.abs(getattr(pair.world, name)[0] - state[name]).max()))
        assert pair.world.reason[0] == state["reason"] and worst < 1e-6, (case, turn, worst)
        assert np.array_equal(pair.world.node_owner[0], state["node_owner"])
        if state["reason"]:
            break
    return worst


@pytest.mark.parametrize("case", ["straight_mono", "desert", "dvat", "end_reward"])
def test_the_reference_plays_on_alone(case):
    """60 steps without input from the world: positions within 1e-6, the same reserved junctions, the same end."""
    alone(case, seed=8, steps=60)


@pytest.mark.long
@pytest.mark.parametrize("case", CASES)
def test_thousands_of_steps_are_those_of_the_reference(case):
    """Starts, ends and every third step of 20 rows: 454 to 2,520 in most cases."""
    pair = play(case, rows=20, every=3, seed=21)
    assert pair.compared >= 150


@pytest.mark.long
@pytest.mark.parametrize("case", [*SCENES, "straight", "pedestrian", "halts"])
def test_the_reference_plays_whole_episodes_alone(case):
    """Three seconds of traffic and flight."""
    alone(case, seed=9, steps=400)
