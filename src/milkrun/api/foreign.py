"""Reads the results of third-party environments: Gymnasium's, and classic ones whose `step` has four results.

All code that plays such environments, in threads or processes, uses these functions. The file needs numpy alone, so a
worker does not load a compiler.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from milkrun.core.errors import ConfigError, ShapeError

Info = dict[str, Any]


def makers(env_fns: Any) -> list[Callable[[], Any]]:
    """Validates the functions that make environments: at least one, and all callable."""
    if not isinstance(env_fns, Iterable):
        raise ConfigError(f"env_fns is a {type(env_fns).__name__}: must be a list of functions of no arguments")
    listed = list(env_fns)
    if not listed:
        raise ConfigError("env_fns is empty: there must be at least one environment")
    for i, fn in enumerate(listed):
        if not callable(fn):
            raise ConfigError(f"env_fns[{i}] is {type(fn).__name__}: must be a function of no arguments")
    return listed


def reset_takes(env: Any) -> tuple[str, ...]:
    """Which of the keywords `seed` and `options` an environment's reset has."""
    parameters = inspect.signature(env.reset).parameters
    anything = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    return tuple(name for name in ("seed", "options") if anything or name in parameters)


def read_reset(result: Any, env: Any = None) -> tuple[Any, Info]:
    """Observation and info from the result of `env.reset`: a pair, or the observation alone."""
    is_pair = isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], (dict, list))
    obs, info = result if is_pair else (result, {})
    return obs, _as_dict(info, env)


def read_step(result: Any, env: Any = None) -> tuple[Any, float, bool, bool, Info]:
    """Observation, reward, terminated, truncated and info from the result of `env.step`. With four results, `truncated`
    is `TimeLimit.truncated` of the info; where the info is no dict, the attributes `truncated` and `info` of `env`."""
    if not isinstance(result, (tuple, list)) or len(result) not in (4, 5):
        raise ShapeError("step() must return obs, reward, terminated, truncated, info, or obs, reward, done, info")
    obs, reward, ended, *rest, info = result
    if rest:
        cut = bool(rest[0])
    elif isinstance(info, dict):
        cut = bool(ended and info.get("TimeLimit.truncated", False))
    else:
        cut = bool(ended) and getattr(env, "truncated", False) is True
    info = _as_dict(info, env)
    paid = reward if isinstance(reward, float) else float(np.asarray(reward).item())
    return obs, paid, bool(ended) and (bool(rest) or not cut), cut, info


def _as_dict(info: Any, env: Any) -> Info:
    """A new dict. The published tracking environments return a list of supplements; ours have the whole as `info`."""
    if not isinstance(info, dict):
        info = getattr(env, "info", {"SuppleInfo": info})
    return dict(info)
