"""Makes an environment of the benchmark from its configuration files."""

from __future__ import annotations

from typing import Any

from milkrun.compat.dat.bench_env import MOVES, BenchEnv_Multi
from milkrun.tracking.config import TrackingConfig
from milkrun.tracking.env_config import load_env_config


def read_config(env_conf: Any, env_conf_path: Any = None, obs_buffer_len: int = 0) -> TrackingConfig:
    """The options of the "Benchmark" section, overridden by those of the simulator's file."""
    config = env_conf if isinstance(env_conf, TrackingConfig) else TrackingConfig.from_dat(env_conf)
    if env_conf_path is not None:
        config = load_env_config(env_conf_path, config)
    return config.replace(frame_stack=obs_buffer_len) if obs_buffer_len else config


def bench_env(config: TrackingConfig, count: int, row: int, seed: int | None) -> BenchEnv_Multi:
    """Makes environment `row` of `count` with the arguments of its class."""
    return BenchEnv_Multi(
        config.action_dim,
        [getattr(config, move) for move in MOVES],
        None,
        count,
        row,
        config.other_state,
        config.cloud,
        config.reward_params,
        config.port,
        config.end_reward,
        config.end_reward_list,
        config.scene,
        config.weather,
        config.auto_start,
        config.control_hz,
        config.reward,
        config.verbose,
        config.delay,
        config=config,
        seed=seed,
    )
