"""Worlds as Gymnasium environments: `MilkrunEnv` is one row, `MilkrunVectorEnv` a batch with one native call a step.

No rules of worlds are here. Both convert seeds, actions, ends and masks; an `Observer` makes the observations. In every
mode a `MilkrunVectorEnv` returns the same as Gymnasium's SyncVectorEnv of as many `MilkrunEnv`.
"""

from __future__ import annotations

import copy as copying
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from milkrun.api._binding import (
    METADATA,
    SEED_RULES,
    begin_with,
    check_choice,
    check_render_mode,
    end_info,
    masks,
    may_render,
    metadata_of,
    offset_seeds,
    one_instance,
    read_flag,
    read_options,
    scatter,
    step_info,
    value_of,
    world_behind,
)
from milkrun.api._spaces import Follower, Observer, action_space
from milkrun.core.actions import action_array
from milkrun.core.arguments import check_count, is_list
from milkrun.core.errors import ConfigError, ResetNeeded, ShapeError
from milkrun.core.fields import Role
from milkrun.core.instances import as_array
from milkrun.core.world import World, autoreset_name


def make(
    world_id: str,
    num_envs: int | None = None,
    *,
    autoreset: Any = "next_step",
    threads: int | None = None,
    **keywords: Any,
) -> MilkrunEnv | MilkrunVectorEnv:
    """`milkrun.make(api="gymnasium")`: an Env without `num_envs`, else a VectorEnv.

    `seed` is the default of the first reset. `keywords` may include those of the bindings: `layout`, `render_mode`, for
    a VectorEnv also `copy`, `seed_rule`, `max_episode_steps`.
    """
    if num_envs is not None:
        return MilkrunVectorEnv(num_envs, world_id, autoreset_mode=autoreset, threads=threads, **keywords)
    if autoreset_name(autoreset) == "same_step":
        raise ConfigError("autoreset='same_step' is for a batch: without num_envs the caller resets")
    return MilkrunEnv(world_id, **keywords)


class MilkrunEnv(Follower, gymnasium.Env[Any, Any]):
    """One row of a world.

    settings: keywords of `milkrun.make` (preset, config, first_row, illegal) and options of the world.
    """

    metadata = METADATA

    def __init__(
        self,
        world_id: str | None = None,
        *,
        world: World | None = None,
        render_mode: str | None = None,
        layout: str | None = None,
        seed: int | None = None,
        **settings: Any,
    ) -> None:
        self.world = world_behind(self, world_id, world, 1, "disabled", {"seed": seed, **settings})
        self.render_mode = check_render_mode(render_mode)
        self.metadata = metadata_of(self.world)
        if seed is not None:
            begin_with(self.world, seed)
        self._observer = Observer(self.world, layout)
        self.observation_space = self._observer.single_space
        self.action_space = action_space(self.world)
        self._action_shape = self.world.action.shape(self.world.sizes)
        self._end_info = {key: getattr(self.world, name) for key, name in end_info(self.world).items()}
        self._step_info = step_info(self.world)
        self.bind()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begins an episode: with a seed the one of key (seed, 0, 0), else the next one of this row.

        options: `instance`, a mapping of instance fields (without a row axis) to play instead of a drawn one.
        """
        seeds = None if seed is None else offset_seeds(self.world, seed, [0])
        instance = one_instance(read_options(options, ("instance",)).get("instance"))
        self._restart(seed=seeds, instance=instance)
        super().reset(seed=None if seed is None else int(seed))
        return self._observe()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Plays one action; all results are copies."""
        world, given = self.world, action_array("action", action)
        if given.shape != self._action_shape:
            raise ShapeError(f"the action must have the shape {self._action_shape}, not {given.shape}")
        world.step(given[None])
        obs, info = self._observe()
        for name in self._step_info:
            info[name] = value_of(getattr(world, name), 0)
        terminated, truncated = world.terminated.item(0), world.truncated.item(0)
        if terminated or truncated:
            for key, array in self._end_info.items():
                info[key] = value_of(array, 0)
        return obs, world.reward.item(0), terminated, truncated, info

    def action_masks(self) -> np.ndarray:
        """(n,) bool, True = allowed; MaskablePPO calls this method."""
        return masks(self.world)[0]

    def render(self) -> np.ndarray | None:  # type: ignore[override]
        """The picture of the row, uint8 (H, W, 3), under render_mode="rgb_array"."""
        return self.world.render(0) if may_render(self.render_mode) else None

    def close(self) -> None:
        self.world.close()

    _found = ("_take", "_take_aside")

    def _bind(self) -> None:
        """Binds the calls that copy the observation; an index is a number, so it is read, not copied."""
        self._observer.bind()
        live = self._observer.live
        self._take = _takers(live if isinstance(live, dict) else {"": live})
        self._take_aside = _takers(self._observer.aside)

    def _observe(self) -> tuple[Any, dict[str, Any]]:
        if self.moved:
            self.bind()
        if not self._observer.steady:
            self._observer.refresh()
        obs = {key: take() for key, take in self._take}
        if self._observer.layout == "dict":
            return obs, {"action_mask": obs["action_mask"]} if "action_mask" in obs else {}
        return obs[""], {key: take() for key, take in self._take_aside}


class MilkrunVectorEnv(Follower, VectorEnv[Any, Any, np.ndarray]):
    """A batch of rows of a world. Its `world` is stepped and reset through it only.

    seed_rule: "offset" seeds row i with seed + i, Gymnasium's convention, so that runs seeded 0 and 1 share all but one
    row: take seeds `num_envs` apart; "row" gives row i the stream (seed, i), and any two seeds differ everywhere.
    copy: False returns views of the world's memory, valid until the next call.
    settings: keywords of `milkrun.make` (preset, config, first_row, illegal, threads) and options of the world.
    """

    metadata = METADATA

    def __init__(
        self,
        num_envs: int,
        world_id: str | None = None,
        *,
        world: World | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        copy: bool = True,
        layout: str | None = None,
        render_mode: str | None = None,
        seed_rule: str = "offset",
        max_episode_steps: int | None = None,
        seed: int | None = None,
        **settings: Any,
    ) -> None:
        self.seed_rule = check_choice("seed_rule", seed_rule, SEED_RULES)
        self.copy = read_flag("copy", copy)
        limit = None if max_episode_steps is None else check_count("max_episode_steps", max_episode_steps, 1)
        if limit is not None and settings.setdefault("max_steps", limit) != limit:
            raise ConfigError(f"max_episode_steps={limit} contradicts max_steps={settings['max_steps']}")
        mode = autoreset_name(autoreset_mode)
        self.world = world_behind(self, world_id, world, num_envs, mode, {"seed": seed, **settings})
        self.num_envs = self.world.num_envs
        self.render_mode = check_render_mode(render_mode)
        self.metadata = {**metadata_of(self.world), "autoreset_mode": AutoresetMode[mode.upper()]}
        if seed is not None and seed_rule == "offset":
            begin_with(self.world, seed)
        self._observer = Observer(self.world, layout)
        self.single_observation_space = self._observer.single_space
        self.single_action_space = action_space(self.world)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._next_step = mode == "next_step"
        self._same_step = mode == "same_step"
        self._end_fields = end_info(self.world)
        self._end_info = {key: getattr(self.world, name) for key, name in self._end_fields.items()}
        self._every = np.ones(self.num_envs, bool)
        self._step_info = step_info(self.world)
        self._some_ended = True  # a row may have ended; False saves the test of each row
        self.bind()

    def reset(
        self, *, seed: int | list[int] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begins an episode in every row, or in those of `reset_mask`; returns all rows.

        options: `reset_mask`, bool (B,); `instance`, a mapping of instance fields with an axis of the rows reset.
        seed: an int, by the seed rule, or a list with one a row of the batch.
        """
        given = read_options(options, ("reset_mask", "instance"))
        rows = self._masked(given["reset_mask"]) if "reset_mask" in given else None
        seeds = self._seeds(seed, rows)
        self._restart(rows, seed=seeds, instance=given.get("instance"))
        if isinstance(seed, (int, np.integer)):
            super().reset(seed=int(seed))
        obs, infos = self._observe()
        for name in self._step_info:  # only a step has these
            del infos[name], infos[f"_{name}"]
        return obs, infos

    def step(self, actions: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Plays one action a row."""
        world = self.world
        # True during the step, so that it is not wrong after an interrupt.
        some_begin = self._some_ended and self._next_step
        self._some_ended = True
        world.step(actions)
        if self._bound_version == world.instance_version and self._steady and not self.copy:
            obs, infos = self._fresh_shown(), self._fresh_infos()
        else:
            obs, infos = self._observe()
        reward, terminated, truncated = world.reward, world.terminated, world.truncated
        if self.copy:
            reward, terminated, truncated = reward.copy(), terminated.copy(), truncated.copy()
        if some_begin:
            self._unset_begun(infos)
        if self._same_step:
            if len(world.final_rows):
                self._add_final(infos)
        elif 1 in world.done.tobytes():  # three times as fast as .any()
            self._add_end_info(infos)
        else:
            self._some_ended = False
        return obs, reward, terminated, truncated, infos

    def action_masks(self) -> np.ndarray:
        """(B, n) bool, True = allowed."""
        return masks(self.world)

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """A method or attribute of this environment or its world, one value a row: its rows if it has any, else
        repeated."""
        owner = next((o for o in (self, self.world) if hasattr(o, name)), None)
        if owner is None:
            raise AttributeError(f"neither {type(self).__name__} nor {type(self.world).__name__} has {name!r}")
        single = f"single_{name}"
        value = getattr(self, single) if hasattr(self, single) else getattr(owner, name)
        value = value(*args, **kwargs) if callable(value) else value
        field = self.world.fields.get(name)
        if field is not None and field.role is Role.INSTANCE:
            value = value[self.world.instance_row]
        shared = field is not None and field.role in (Role.CONSTANT, Role.SCRATCH)
        if isinstance(value, (np.ndarray, tuple)) and len(value) == self.num_envs and not shared:
            return tuple(copying.copy(value))
        return (value,) * self.num_envs

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """An attribute of this environment or its world, one value a row."""
        return self.call(name)

    def render(self) -> tuple[np.ndarray, ...] | None:  # type: ignore[override]
        """The pictures of all rows, under render_mode="rgb_array"."""
        return tuple(self.world.render(b) for b in range(self.num_envs)) if may_render(self.render_mode) else None

    def close_extras(self, **kwargs: Any) -> None:
        self.world.close()

    def __del__(self) -> None:
        """A no-op: `weakref.finalize` closes a world that was made here, and a given one belongs to the caller."""

    _found = ("_fresh_shown", "_fresh_infos", "_copies", "_info_copies")

    def _bind(self) -> None:
        self._observer.bind()
        live, aside = self._observer.live, self._observer.aside
        if isinstance(live, dict):
            aside = {key: live[key] for key in ("action_mask",) if key in live}
        infos: dict[str, Any] = {**aside, **{f"_{key}": self._every for key in aside}}
        for name in self._step_info:
            infos[name], infos[f"_{name}"] = getattr(self.world, name), self._every
        self._fresh_shown: Callable[[], Any] = live.copy if isinstance(live, dict) else lambda: live
        self._fresh_infos = infos.copy
        shown = live if isinstance(live, dict) else {"": live}
        self._copies = [(key, array.copy) for key, array in shown.items()]
        self._info_copies = [(key, array.copy) for key, array in infos.items() if key not in shown]
        self._steady = self._observer.steady

    def _observe(self) -> tuple[Any, dict[str, Any]]:
        """Observation and infos of a step in which no row ended or began."""
        if self.moved:
            self.bind()
        if not self._steady:
            self._observer.refresh()
        if not self.copy:
            return self._fresh_shown(), self._fresh_infos()
        obs = {key: fresh() for key, fresh in self._copies}
        infos = {key: fresh() for key, fresh in self._info_copies}
        if "action_mask" in obs:
            infos["action_mask"] = obs["action_mask"]
        return obs if self._observer.layout == "dict" else obs[""], infos

    def _unset_begun(self, infos: dict[str, Any]) -> None:
        """NEXT_STEP: masks the step fields of rows that were reset in this step, whose step count is 0."""
        stepped = self.world.i != 0
        for name in self._step_info:
            infos[f"_{name}"] = stepped.copy() if self.copy else stepped

    def _add_end_info(self, infos: dict[str, Any]) -> None:
        """NEXT_STEP and DISABLED: adds the fields of the last step of an episode."""
        ended = self.world.done.copy()
        for key, array in self._end_info.items():
            infos[key], infos[f"_{key}"] = (array.copy(), ended.copy()) if self.copy else (array, ended)

    def _add_final(self, infos: dict[str, Any]) -> None:
        """SAME_STEP: adds the end of episodes as `final_obs` and `final_info`; the rows show their new episode."""
        rows, final = self.world.final_rows, self.world.final
        ended = np.zeros(self.num_envs, bool)
        ended[rows] = True
        infos["final_obs"], infos["_final_obs"] = np.full(self.num_envs, None, object), ended
        for b, obs in zip(rows, self._observer.rows_of(final, len(rows))):
            infos["final_obs"][b] = obs
        last = {**self._observer.aside_of(final), **{name: final[name] for name in self._step_info}}
        last |= {key: final[name] for key, name in self._end_fields.items()}
        infos["final_info"], infos["_final_info"] = {}, ended.copy()
        for key, values in last.items():
            scatter(infos["final_info"], key, values, rows, ended)
        for name in self._step_info:
            infos[f"_{name}"] = ~ended

    def _masked(self, reset_mask: Any) -> np.ndarray:
        array = as_array("reset_mask", reset_mask)
        if array.dtype != np.bool_ or array.shape != (self.num_envs,):
            raise ShapeError(f"reset_mask must be bool of shape ({self.num_envs},), not {array.dtype} {array.shape}")
        if not array.any():
            raise ShapeError("reset_mask names no row")
        if (self.world.stream[~array, 2] < 0).any():
            raise ResetNeeded("reset_mask before the first reset() of all rows")
        return np.flatnonzero(array)

    def _seeds(self, seed: Any, rows: np.ndarray | None) -> Any:
        if seed is None or (not is_list(seed) and self.seed_rule == "row"):
            return seed
        chosen = range(self.num_envs) if rows is None else rows.tolist()
        if not is_list(seed):
            return offset_seeds(self.world, seed, chosen)
        if len(seed) != self.num_envs:
            raise ShapeError(f"{len(seed)} seeds for {self.num_envs} rows: a list has one a row, reset_mask or not")
        return [seed[b] for b in chosen]


def _takers(arrays: dict[str, np.ndarray]) -> list[tuple[str, Callable[[], Any]]]:
    return [(key, array[0].copy if array.ndim > 1 else partial(array.__getitem__, 0)) for key, array in arrays.items()]
