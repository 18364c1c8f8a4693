"""Shared parts of the stateful bindings: the world, the seeds of its rows, the fields of `info`."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from gymnasium import logger

from milkrun.core.arguments import check_count
from milkrun.core.errors import ConfigError, ShapeError, did_you_mean
from milkrun.core.fields import mask_field
from milkrun.core.instances import as_array
from milkrun.core.registry import make
from milkrun.core.world import World, check_seed


def world_behind(
    env: Any, world_id: str | None, world: World | None, rows: int, autoreset: str, settings: dict[str, Any]
) -> World:
    """The world of `env`: a new one, closed when `env` is garbage-collected, or the given one, if it fits."""
    if (world is None) == (world_id is None):
        raise ConfigError("give either world_id or world")
    if fixed := [name for name in ("num_envs", "autoreset", "api") if name in settings]:
        raise ConfigError(
            f"{fixed[0]} cannot be set here: {type(env).__name__} has {rows} row"
            f"{'' if rows == 1 else 's'} and autoreset {autoreset!r}"
        )
    if world is None:
        made = make(str(world_id), rows, autoreset=autoreset, **settings)
        weakref.finalize(env, made.close)
        return made
    defaults: dict[str, Any] = {"illegal": "noop", "first_row": 0}
    if extra := [name for name, value in settings.items() if not _is_same(value, defaults.get(name))]:
        raise ConfigError(f"a given world is made already: {', '.join(extra)} cannot be set here")
    if world.num_envs != rows:
        raise ConfigError(f"the given world has {world.num_envs} rows, not {rows}")
    if world.autoreset != autoreset:
        raise ConfigError(f"the given world was made with autoreset={world.autoreset!r}; here it must be {autoreset!r}")
    return world


def _is_same(value: Any, default: Any) -> bool:
    same = value == default
    return isinstance(same, (bool, np.bool_)) and bool(same)  # comparing an array gives an array


def batch_behind(
    env: Any, world_or_id: World | str, num_envs: int | None, autoreset: str, seed: int | None, settings: dict[str, Any]
) -> World:
    """`world_behind` for bindings whose first argument is a world or an id. The default of `num_envs` is that of a
    given world, else one."""
    settings = {"seed": seed, **settings}
    if isinstance(world_or_id, World):
        rows = world_or_id.num_envs if num_envs is None else num_envs
        return world_behind(env, None, world_or_id, rows, autoreset, settings)
    if not isinstance(world_or_id, str):
        raise ConfigError(
            f"{type(env).__name__} takes a world or its id, not {world_or_id!r}: functions that make "
            "environments are for Async_SubprocVecEnv, SubprocVecEnv_TS, VRPSubprocVecEnv"
        )
    return world_behind(env, world_or_id, None, 1 if num_envs is None else num_envs, autoreset, settings)


def read_options(options: Any, known: tuple[str, ...] | None = None) -> dict[str, Any]:
    """The options of a reset. Names must be in `known`; None allows any."""
    if options is None:
        return {}
    if not isinstance(options, Mapping):
        raise ConfigError(f"options={options!r}: must be a dict, or None")
    for name in options:
        if known is not None and name not in known:
            raise ConfigError(f"reset has no option {name!r}{did_you_mean(str(name), known)}")
    return dict(options)


def one_instance(instance: Any) -> Any:
    """Adds the row axis to the instance of one row."""
    if not hasattr(instance, "keys"):
        return instance
    names = list(instance.keys())  # a TensorDict iterates over rows, not over keys
    return {name: as_array(name, instance[name])[None] for name in names}


def read_indices(indices: Any, count: int) -> np.ndarray:
    """Reads the indices of Stable-Baselines3: None is all, else one integer or several; negative ones count from the
    end."""
    if indices is None:
        return np.arange(count)
    given = as_array("indices", indices)
    if given.ndim > 1 or (given.dtype.kind not in "iu" and given.size):
        raise ShapeError(f"indices={indices!r}: must be an integer, a list of such, or None")
    chosen = given.reshape(-1)
    if (outside := (chosen < -count) | (chosen >= count)).any():
        wrong = chosen[outside][0]
        raise ShapeError(
            f"{wrong} is not in 0..{count - 1}: must be indices in 0..{count - 1}, or in {-count}..-1 from the end"
        )
    chosen = chosen.astype(np.int64) % count
    if len(np.unique(chosen)) < len(chosen):
        raise ShapeError(f"indices={indices!r}: one is named twice")
    return chosen


SEED_RULES = ("offset", "row")


def check_choice(name: str, value: str, known: tuple[str, ...]) -> str:
    if not isinstance(value, str) or value not in known:
        raise ConfigError(f"{name}={value!r}: must be {' or '.join(map(repr, known))}")
    return value


def read_flag(name: str, value: Any) -> bool:
    """A bool, or 0 or 1."""
    if not isinstance(value, (bool, np.bool_, int, np.integer)) or value not in (0, 1):
        raise ConfigError(f"{name}={value!r}: must be True or False")
    return bool(value)


def offset_seeds(world: World, seed: Any, rows: Iterable[int]) -> list[int]:
    """Seeds by the rule "offset": row i has seed + i, also in a slice that begins at `first_row`."""
    first = check_seed(seed) + world.first_row
    return [check_seed(first + b) for b in rows]


def refuse_rows(num_envs: Any, why: str) -> None:
    """Raises unless `num_envs` is None or 1, for bindings of one row."""
    if num_envs is not None and check_count("num_envs", num_envs, 1) != 1:
        raise ConfigError(f"num_envs={num_envs}: {why}")


def begin_with(world: World, seed: int) -> None:
    """Sets the seed of the first reset without a seed, by the rule "offset"."""
    world.stream[:, 0] = offset_seeds(world, seed, range(world.num_envs))
    world.stream[:, 1] = 0


def end_info(world: World) -> dict[str, str]:
    """Keys that only the info of an episode's last step has, and their fields."""
    always = step_info(world)
    names = [f.name for f in world.info_fields if f.name not in always]
    return {"episode_steps" if name == "i" else name: name for name in names}


def step_info(world: World) -> list[str]:
    """The fields in the info of every step."""
    return ["illegal", *(f.name for f in world.fields.values() if f.in_info)]


def value_of(array: np.ndarray, row: int) -> Any:
    """The value of a row for `info`: a plain number, or a copy of an array."""
    return array.item(row) if array.ndim == 1 else array[row].copy()


class Waiting:
    """The actions between `step_async` and `step_wait`. A `step` in one call does not use it, so an interrupt leaves no
    stored actions."""

    def __init__(self) -> None:
        self._actions: Any = None

    def put(self, actions: Any) -> None:
        self.refuse()
        self._actions = actions

    def refuse(self) -> None:
        """Raises if actions are stored already."""
        if self._actions is not None:
            raise ConfigError(
                "step_async() was called twice: step_wait() must play the first step before, or reset() forget it"
            )

    def take(self) -> Any:
        actions, self._actions = self._actions, None
        if actions is None:
            raise ShapeError("step_wait() has no actions: give them to step_async()")
        return actions

    def drop(self) -> None:
        self._actions = None


METADATA: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": World.render_fps}


def metadata_of(world: World) -> dict[str, Any]:
    """The metadata of an environment of this world, in a new dict."""
    return {**copy.deepcopy(METADATA), "render_fps": world.render_fps}


def check_render_mode(mode: str | None) -> str | None:
    if mode is not None and (not isinstance(mode, str) or mode not in METADATA["render_modes"]):
        raise ConfigError(f"render_mode={mode!r}: must be None or one of {METADATA['render_modes']}")
    return mode


def may_render(mode: str | None) -> bool:
    if mode is None:
        logger.warn('render() shows nothing: make the environment with render_mode="rgb_array"')
    return mode is not None


def scatter(infos: dict[str, Any], key: str, values: np.ndarray, rows: np.ndarray, where: np.ndarray) -> None:
    """Writes an info of some rows and its mask `_key`, with 0 in other rows, as Gymnasium does."""
    infos[key] = np.zeros((len(where), *values.shape[1:]), values.dtype)
    infos[key][rows] = values
    infos[f"_{key}"] = where.copy()


def masks(world: World) -> np.ndarray:
    """A copy of the action masks of all rows; each must have an episode."""
    if mask_field(world.fields, world.sizes) is None:
        raise ConfigError(f"{type(world).__name__} has no action mask: its actions are numbers")
    world.refuse_unready()
    return getattr(world, "action_mask").copy()  # noqa: B009 (a field, declared by the world class)
