"""Small environments of the tracking benchmark, and traces of a row for comparison to the byte."""

from __future__ import annotations

from typing import Any

import numpy as np

from milkrun.compat.dat import general_env
from milkrun.tracking.config import TrackingConfig
from milkrun.tracking.tables import KINDS
from milkrun.tracking.world import Tracking

SMALL: dict[str, Any] = {
    "size": 16,
    "ground_cell": 10.0,
    "max_sim_steps": 48,
    "max_vehicles": 6,
    "scene": ["citystreet", "village"],
    "weather": ["day", "snow"],
    "lidar_points": 16,
    "Other_State": True,
    "CloudPoint": True,
    "RewardParams": True,
    "RewardType": "DVAT",
}
"""A section of the original's configuration file with additional options of ours. Episodes last at most 12 steps."""
STACKED = {**SMALL, "frame_stack": 2, "State_channel": 1, "Norm_Type": 1}
VELOCITY = {**SMALL, "action_mode": "velocity"}
SECTIONS = {"plain": SMALL, "stacked": STACKED, "velocity": VELOCITY}
ROWS, ROW, SEED, EPISODES = 3, 2, 7, 3


def lone(section: dict[str, Any]) -> Any:
    """The row as a separate environment."""
    return general_env("Benchmark", section, ROWS, ROW, seed=SEED)[0]


Step = tuple[bytes, float, bool, bytes]
"""State, reward, done and SuppleInfo after a reset or a step."""


def action_at(episode: int, t: int) -> int:
    """The row's action; occasionally an invalid one."""
    return 9 if (episode + t) % 8 == 7 else (3 * episode + 2 * t) % 7


def speeds_at(episode: int, t: int) -> np.ndarray:
    """The same in velocity mode: tenths and sevenths, which differ between float32 and float64."""
    number = action_at(episode, t)
    return np.full(4, 1.5) if number == 9 else np.array([0.1 * number, -1 / (1 + number), 1.0, number / 7 - 0.5])


def deeds(section: dict[str, Any]) -> Any:
    """The row's actions in this section, by episode and step."""
    return speeds_at if section.get("action_mode") == "velocity" else action_at


def flat(supplements: list[Any]) -> bytes:
    """SuppleInfo as bytes, names and types included."""
    return repr([part.tobytes() if isinstance(part, np.ndarray) else part for part in supplements]).encode()


def by_world(section: dict[str, Any], row: int = ROW, episodes: int = EPISODES) -> list[Step]:
    """Episodes of a row of the world itself, with states and supplements computed here."""
    config = TrackingConfig.from_dat(section)
    world: Any = Tracking.variant(config)(ROWS, config, seed=SEED, autoreset="disabled")
    act, trace = deeds(section), []

    def note(reward: float, done: bool) -> None:
        world.observe()
        pixels = (world.frames if config.frame_stack else world.image)[row].astype(np.float32)
        state = (pixels - 128) / np.float32(128) if config.norm == 1 else pixels / np.float32(255)
        more = [
            world.other_state[row],
            [*world.reward_params[row].tolist(), KINDS[world.target_kind[row]]],
            world.cloud[row],
        ]
        trace.append((state.tobytes(), reward, done, flat(more)))

    for episode in range(episodes):
        world.reset()
        note(0.0, False)
        t, done = 0, False
        while not done:
            world.step([act(episode, t)], rows=[row])
            t, done = t + 1, bool(world.terminated[row] or world.truncated[row])
            note(float(world.reward_exact[row]), done)
    return trace


def by_hand(reset: Any, step: Any, act: Any = action_at, episodes: int = EPISODES) -> list[Step]:
    """The same for an environment that its caller resets: `reset()` returns state and supplements, `step(action)`
    state, reward, done, supplements."""
    trace: list[Step] = []
    for episode in range(episodes):
        state, more = reset()
        trace.append((state.tobytes(), 0.0, False, flat(more)))
        t, done = 0, False
        while not done:
            state, reward, done, more = step(act(episode, t))
            t += 1
            trace.append((state.tobytes(), reward, done, flat(more)))
    return trace


def by_turns(begin: Any, turn: Any, ignored: Any, act: Any = action_at, episodes: int = EPISODES) -> list[Step]:
    """The same for one that resets in the turn after an end, with the action `ignored`: `begin()` as `reset`,
    `turn(action)` as `step`."""
    state, more = begin()
    trace: list[Step] = [(state.tobytes(), 0.0, False, flat(more))]
    episode, t, done = 0, 0, False
    while not (done and episode == episodes - 1):
        state, reward, over, more = turn(ignored if done else act(episode, t))
        episode, t, done = (episode + 1, 0, over) if done else (episode, t + 1, over)
        trace.append((state.tobytes(), float(reward), bool(over), flat(more)))
    return trace


def without_supplements_at_resets(trace: list[Step]) -> list[Step]:
    """The trace without the supplements of resets: Gymnasium's reset returns only the state."""
    began = [True, *(done for *_, done, _ in trace[:-1])]
    return [(state, reward, done, b"" if new else more) for new, (state, reward, done, more) in zip(began, trace)]
