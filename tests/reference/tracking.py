"""The scalar reference of the tracking world: one agent step of one row, plain Python, float64, from the rules alone.

This module has the drone's flight, the wind, the ends and the counters; `tracking_traffic` has the vehicles,
`tracking_sight` the view and the rewards. It shares no code with the compiled world that it checks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from . import tracking_sight as sight
from .tracking_traffic import DT, Draws, Row, drive, wrap

CLEARANCE = 0.4  # metres from the drone's centre to a solid or the ground
VELOCITY_UNITS = (40.0, 40.0, 5.0, 2.0)
CRASH, HEIGHT, DRIFT, SPEED, YAW_RATE, ATTITUDE, LOST, NAN, RANGE, TIME, TARGET_GONE, LINK_LOST = range(1, 13)
TRUNCATING = (TIME, TARGET_GONE, LINK_LOST)
SUPPRESSED_EARLY = (HEIGHT, DRIFT, SPEED, YAW_RATE, ATTITUDE, LOST, RANGE, TARGET_GONE)


def command(config: Any, action: Any) -> np.ndarray:
    """vx, vy, vz, wz of an action; an illegal one is a stop."""
    if config.action_mode == "velocity":
        wish = np.array(action, float)
        legal = wish.shape == (4,) and np.isfinite(wish).all() and (np.abs(wish) <= 1).all()
        return wish * VELOCITY_UNITS if legal else np.zeros(4)
    moves = [
        (config.forward, 0, 0, 0),
        (config.backward, 0, 0, 0),
        (0, config.left, 0, 0),
        (0, config.right, 0, 0),
        (0, 0, 0, -config.ccw),
        (0, 0, 0, -config.cw),
        (0, 0, 0, 0),
    ]
    return np.array(moves[int(action) if action in range(config.action_dim) else 6], float)


def filter_coefficients(cutoff_hz: float, design: str = "bilinear") -> tuple[float, float, float]:
    """b0, a1, a2 of the Butterworth filter of second order at 500 Hz; b1 = 2 b0, b2 = b0."""
    k = 2 * math.pi * cutoff_hz * DT if design == "as_coded" else math.tan(math.pi * cutoff_hz * DT)
    d = k * k + math.sqrt(2) * k + 1
    return k * k / d, 2 * (k * k - 1) / d, (k * k - math.sqrt(2) * k + 1) / d


def filtered(state: Row, config: Any) -> np.ndarray:
    """The four filtered commands; updates the filter's memory in `state`."""
    out = np.zeros(4)
    for axis in range(4):
        u, (u1, u2, y1, y2) = float(state["cmd"][axis]), state["filt"][axis]
        y = u
        if config.filter_hz > 0:
            b0, a1, a2 = filter_coefficients(config.filter_hz, config.filter_design)
            y = b0 * u + 2 * b0 * u1 + b0 * u2 - a1 * y1 - a2 * y2
        state["filt"][axis] = (u, u1, y, y1)
        out[axis] = y
    return out


def blow(state: Row, config: Any, draws: Draws) -> None:
    """The gust velocity reverts to its mean with random noise."""
    for axis in range(2):
        shake = 0.0
        if config.wind_sigma > 0:
            shake = config.wind_sigma * math.sqrt(2 * DT / config.wind_tau) * draws.gust(state["sim_step"], axis)
        state["wind"][axis] += (config.wind_mean[axis] - state["wind"][axis]) * DT / config.wind_tau + shake


def fly(state: Row, config: Any, draws: Draws) -> None:
    """One sim step of the drone: filter, wind, position, then yaw."""
    *v, wz = filtered(state, config)
    blow(state, config, draws)
    own = sight.level_axes(state["yaw"]) @ v
    state["cmd_pos"] = state["cmd_pos"] + own * DT
    before, vel_before = state["pos"], state["vel"]
    state["pos"] = before + (own + np.array([*state["wind"], 0.0])) * DT
    state["vel"] = (state["pos"] - before) / DT
    state["acc"] = (state["vel"] - vel_before) / DT
    state["yaw"] = wrap(state["yaw"] + wz * DT)
    state["yaw_rate"] = float(wz)


def watch(state: Row) -> None:
    """`rel`: the target in the drone frame and its two difference quotients."""
    place = sight.target_in_drone_frame(state)
    speed = (place - state["rel"][:3]) / DT
    state["rel"] = np.concatenate([place, speed, (speed - state["rel"][3:6]) / DT])


def limit(config: Any, name: str) -> Any:
    table = config.done_range
    return table[name] if isinstance(table, Mapping) else getattr(table, name)


def touches(town: Row, state: Row) -> bool:
    return bool(state["pos"][2] < CLEARANCE or sight.distance_to_boxes(town, state["pos"]) < CLEARANCE)


def physical_ends(state: Row, config: Any) -> set[int]:
    """Codes that hold after a sim step; the drone never tilts, so `attitude` cannot."""
    low, high = limit(config, "height")
    holds = {
        CRASH: state["crash"],
        HEIGHT: not low <= state["pos"][2] <= high,
        DRIFT: math.dist(state["cmd_pos"][:2], state["pos"][:2]) > limit(config, "drift"),
        SPEED: float(np.linalg.norm(state["vel"])) > limit(config, "speed"),
        YAW_RATE: abs(state["yaw_rate"]) > limit(config, "yaw_rate"),
    }
    return {code for code, held in holds.items() if held}


def allowed(codes: set[int], state: Row, config: Any) -> set[int]:
    """The codes without those that do not count yet."""
    early = state["sim_step"] < config.init_no_done
    return {code for code in codes if not (early and code in SUPPRESSED_EARLY)}


def max_agent_steps(config: Any) -> int:
    """The agent steps of `max_sim_steps`, independent of `max_steps`."""
    return int(-(-config.max_sim_steps // (500 // config.control_hz)))


def is_visible(town: Row, state: Row, config: Any) -> bool:
    """Target centre in the full picture, without a static box in front of it."""
    pos, target = np.array(state["pos"], float), sight.target_centre(state)
    shown = sight.in_picture(target, pos, state["yaw"], state["pitch"], config)
    return shown and sight.sight_is_free(town, pos, target)


def copied(state: Row) -> Row:
    """Arrays as copies, scalars as plain numbers."""
    return {name: np.array(x) if np.ndim(x) else np.asarray(x).item() for name, x in state.items()}


def reset_views(town: Row, state: Row, config: Any) -> Row:
    """Views of an initial state: RewardParams, gauge, visible, and the rewards of the view."""
    state = copied(state)
    visible, params = is_visible(town, state, config), sight.reward_params(state, config)
    x, r_c, r_d = sight.view_rewards(params, visible, config)
    return {"reward_params": params, "gauge": x, "visible": visible, "r_c": r_c, "r_d": r_d}


def step(town: Row, state: Row, config: Any, draws: Draws, action: Any) -> Row:
    """State and views after one agent step; the inputs are unchanged."""
    new = copied(state)
    new["cmd"] = command(config, action)
    played = 0
    for _ in range(500 // config.control_hz):
        fly(new, config, draws)
        drive(town, new, config, draws)
        watch(new)
        new["sim_step"] += 1
        played += 1
        new["crash"] = bool(new["crash"] or touches(town, new))
        if allowed(physical_ends(new, config), new, config):
            break
    new["agent_step"] += 1
    return new | outcome(town, new, config, played)


def outcome(town: Row, new: Row, config: Any, played: int) -> Row:
    """Rewards, counters and ends after `played` sim steps; writes counters into `new`, returns views."""
    views = reset_views(town, new, config)
    params, r_c, r_d = views["reward_params"], views["r_c"], views["r_d"]
    if new["agent_step"] == 1:
        new["d_ref"] = sight.reference_distance(params, config)
    reward = sight.pay(params, new["d_ref"], new["cmd"], views["visible"], config)
    new["lost"] = new["lost"] + played if r_c <= config.cut_off else 0
    new["cr_sum"] += r_c
    new["tsr_sum"] += r_d
    if "past" in new and len(new["past"]):
        cars = np.column_stack([new["veh_pose"], new["veh_on"]])
        now = np.concatenate([new["pos"], [new["yaw"], new["agent_step"]], cars.ravel()])
        new["past"] = np.vstack([new["past"][1:], now])

    codes = physical_ends(new, config)
    if new["lost"] > config.no_reward_done:
        codes.add(LOST)
    if sight.out_of_range(params, new["d_ref"], config):
        codes.add(RANGE)
    out_of_steps = config.max_steps is not None and new["agent_step"] >= config.max_steps
    if new["sim_step"] >= config.max_sim_steps or out_of_steps:
        codes.add(TIME)
    if not new["veh_on"][0]:
        codes.add(TARGET_GONE)
    reason = min(allowed(codes, new, config), default=0)
    if reason and config.end_reward and sight.reward_type(config) == "default":
        reward += config.end_reward_list[0] if reward <= 0 else config.end_reward_list[1]
    return views | {
        "reward_exact": reward,
        "reason": reason,
        "terminated": reason != 0 and reason not in TRUNCATING,
        "truncated": reason in TRUNCATING,
        "CR": new["cr_sum"],
        "TSR": new["tsr_sum"] / max_agent_steps(config),
    }
