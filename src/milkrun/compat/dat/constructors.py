"""Environments of the benchmark from its configuration file: one (`general_env`), the rows of a world (`GE`), or a
function that makes one in another process (`make_env`)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import numpy as np

from milkrun.compat.dat.batch import Batch
from milkrun.compat.dat.bench_env import BenchEnv_Multi, check_place, group_seed, is_linked
from milkrun.compat.dat.configured import bench_env, read_config
from milkrun.compat.dat.frames import process_frame
from milkrun.core.arguments import check_count, check_seed
from milkrun.core.errors import ConfigError, did_you_mean, missing_extra, shown
from milkrun.tracking.config import TrackingConfig
from milkrun.tracking.files import BENCHMARK, LUNAR_LANDER, LunarLanderConfig

LUNAR_IDS = (LUNAR_LANDER, f"{LUNAR_LANDER}-v2", f"{LUNAR_LANDER}-v3")


def general_env(
    env_id: str, env_conf: Any = None, arg_worker: int = 1, process_idx: int = 0, *, seed: int | None = None
) -> tuple[Any, Callable[..., Any]]:
    """Makes an environment and the function `process_func(state, env)` that makes a state of what it returns.

    env_id: "Benchmark", whose states need no processing, or "LunarLander", Gymnasium's, for trying an algorithm out.
    env_conf: the path of a config.json, its contents, or the section; None is the packaged file.
    """
    count, row = check_place(arg_worker, process_idx)
    if env_id == BENCHMARK:
        return bench_env(read_config(env_conf), count, row, seed), identity
    if isinstance(env_id, str) and env_id in LUNAR_IDS:
        return _lunar_lander(LunarLanderConfig.from_dat(env_conf), row, None if seed is None else check_seed(seed))
    known = (BENCHMARK, *LUNAR_IDS)
    close = did_you_mean(str(env_id), known, listed=True)
    raise ConfigError(f"env_id={shown(env_id)}: must be one of {', '.join(known)}{close}")


def GE(n: int, env_conf: Any = None, *, seed: int | None = None) -> list[Any]:
    """Makes n environments for `Envs`: the rows of one world, each also an environment of its own; with a link, n of a
    group in a simulator elsewhere.

    env_conf: as for `general_env`.
    """
    count, config = check_count("n", n, 1), read_config(env_conf)
    if is_linked(config):
        return _group(config, count, group_seed(seed, count))
    return BenchEnv_Multi.of_batch(Batch(config, count, None if seed is None else check_seed(seed)))


def make_env(
    n_envs: int,
    rank: int,
    gym: bool = True,
    monitor: bool = False,
    *,
    conf_path: Any = None,
    env_conf_path: Any = None,
    obs_buffer_len: int = 0,
    seed: int | None = None,
) -> Callable[[], Any]:
    """Returns a function of no arguments that makes environment `rank` of `n_envs`, for processes.

    gym: the classic UAV_VAT with four results, which needs no package gym; False: UAV_VAT_Gymnasium.
    monitor: wraps it in Stable-Baselines3's Monitor, which supports Gymnasium's kind only.
    """
    count = check_count("n_envs", n_envs, 1)
    row = check_count("rank", rank, 0, count - 1)
    if monitor and gym:
        raise ConfigError("monitor=True: Stable-Baselines3's Monitor is for gym=False, the Gymnasium kind")
    options = {
        "arg_worker": count,
        "conf_path": conf_path,
        "env_conf_path": env_conf_path,
        "process_idx": row,
        "obs_buffer_len": obs_buffer_len,
        "seed": seed,
    }
    return partial(_made, bool(gym), bool(monitor), options)


def identity(state: Any, env: Any = None) -> Any:
    """Returns the state unchanged."""
    return state


def _group(config: TrackingConfig, count: int, seed: int) -> list[Any]:
    """Makes all environments of a group; if one cannot be made, closes those before it."""
    made: list[Any] = []
    try:
        for row in range(count):
            made.append(bench_env(config, count, row, seed))
    except BaseException:
        for env in made:
            env.close()
        raise
    return made


def _made(gym: bool, monitor: bool, options: dict[str, Any]) -> Any:
    if gym:
        from milkrun.compat.dat.gym_env import UAV_VAT

        return UAV_VAT(**options)
    from milkrun.compat.dat.gymnasium_env import UAV_VAT_Gymnasium

    if not monitor:
        return UAV_VAT_Gymnasium(**options)
    try:
        from stable_baselines3.common.monitor import Monitor
    except ImportError as e:
        raise missing_extra("stable-baselines3", "sb3") from e
    return Monitor(UAV_VAT_Gymnasium(**options))


def _lunar_lander(section: LunarLanderConfig, row: int, seed: int | None) -> tuple[Any, Callable[..., Any]]:
    for package in ("Box2D", "pygame"):
        try:
            __import__(package)
        except ImportError as e:
            raise missing_extra(package, "lunar") from e
    env = gymnasium.make("LunarLander-v3", render_mode="rgb_array" if section.Need_render else None)
    if seed is not None:
        env.unwrapped.np_random = np.random.default_rng([seed, row])  # resets without a seed go on with it
    return env, partial(_processed, section)


def _processed(section: LunarLanderConfig, state: Any, env: Any = None) -> Any:
    """`process_frame` of one section."""
    return process_frame(state, section, env)
