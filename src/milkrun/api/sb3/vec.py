"""SB3VecEnv: a batch of rows of a world as one Stable-Baselines3 `VecEnv`, one native call a step.

No rules of worlds are here. As in SB3's own vector environments, a row begins its next episode in the step that ends
one: the observation is the new episode's first, and the end of the old one is described in the row's info.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from milkrun.api._binding import (
    SEED_RULES,
    Waiting,
    batch_behind,
    begin_with,
    check_choice,
    check_render_mode,
    end_info,
    masks,
    may_render,
    offset_seeds,
    read_flag,
    read_indices,
    read_options,
    step_info,
)
from milkrun.api._spaces import Follower, Observer, action_space
from milkrun.core.arguments import check_seed, is_list
from milkrun.core.errors import ConfigError, ShapeError, UnknownName, missing_extra
from milkrun.core.fields import Role
from milkrun.core.instances import as_array
from milkrun.core.world import World, autoreset_name

try:
    from stable_baselines3.common.monitor import Monitor
    from stable_baselines3.common.vec_env import VecEnv
except ImportError as e:
    raise missing_extra(str(e.name), "sb3") from e

INFOS = ("shared", "fresh")
OWN = ("render_mode", "observation_space", "action_space")  # attributes of the environment, not of the world
BY_ROW = (Role.STATE, Role.MASK, Role.VIEW, Role.KEY)

Info = dict[str, Any]
StepResult = tuple[Any, np.ndarray, np.ndarray, list[Info]]


class SharedInfo(Info):
    """A read-only info that many rows share; a missing key is explained. A copy of it is a plain dict.

    Stable-Baselines3 needs a dict a row and reads those of rows that ended. A thousand dicts that are never read take
    longer than the step.
    """

    def _refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError(
            'many rows share this info, so it cannot be written: infos="fresh" gives each row a dict of its own'
        )

    __setitem__ = __delitem__ = __ior__ = _refuse
    update = setdefault = pop = popitem = clear = _refuse

    def __missing__(self, key: str) -> NoReturn:
        raise UnknownName(f'{key!r} is not in an info that many rows share: infos="fresh" has all of each row')

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)


SHARED: Info = SharedInfo({"illegal": False, "TimeLimit.truncated": False})


def make(world_id: str, num_envs: int | None = None, *, autoreset: Any = "same_step", **keywords: Any) -> SB3VecEnv:
    """`milkrun.make(api="sb3")`; rows begin their next episode in the step that ends one."""
    if autoreset_name(autoreset) == "disabled":
        raise ConfigError("autoreset='disabled': Stable-Baselines3 never resets single rows, so SB3VecEnv does")
    return SB3VecEnv(world_id, num_envs, **keywords)


class SB3VecEnv(Follower, VecEnv):
    """A batch of rows of a world. Its `world` is stepped and reset through it only.

    infos: "shared" gives all rows that continue after a legal action one read-only info; "fresh" gives each row its
    own, with the mask and all fields of the info of a step.
    monitor: True adds the record of SB3's Monitor to the info of the last step of an episode.
    seed_rule: "offset" seeds row i with seed + i, SB3's convention, so that runs seeded 0 and 1 share all but one row:
    take seeds `num_envs` apart; "row" gives row i the stream (seed, i), and any two seeds differ everywhere.
    settings: keywords of `milkrun.make` (preset, config, first_row, illegal, threads) and options of the world.
    """

    def __init__(
        self,
        world_or_id: World | str,
        num_envs: int | None = None,
        *,
        layout: str | None = None,
        infos: str = "shared",
        monitor: bool = True,
        seed_rule: str = "offset",
        render_mode: str | None = "rgb_array",
        seed: int | None = None,
        **settings: Any,
    ) -> None:
        self.seed_rule = check_choice("seed_rule", seed_rule, SEED_RULES)
        self.monitor = read_flag("monitor", monitor)
        self._shares = check_choice("infos", infos, INFOS) == "shared"
        self.world = batch_behind(self, world_or_id, num_envs, "same_step", seed, settings)
        self.render_mode = check_render_mode(render_mode)
        if seed is not None and seed_rule == "offset":
            begin_with(self.world, seed)
        self._observer = Observer(self.world, layout)
        self.observation_space = self._observer.single_space
        self.action_space = action_space(self.world)
        super().__init__(self.world.num_envs, self.observation_space, self.action_space)
        self.metadata: dict[str, Any] = {**self.metadata, "render_fps": self.world.render_fps}
        self._step_info = step_info(self.world)
        self._end_info = {**{name: name for name in self._step_info}, **end_info(self.world)}
        self._began = time.perf_counter()
        self._waiting = Waiting()
        self._row_seed: int | None = None
        self.bind()

    def seed(self, seed: Any = None) -> Sequence[int | None]:
        """The seeds of the next reset: an int, by the seed rule, or a list with one a row; None draws one."""
        self._row_seed = None
        if seed is None:
            seed = secrets.randbits(62)  # numpy's global generator belongs to the caller
        if is_list(seed):
            if len(seed) != self.num_envs:
                raise ShapeError(f"{len(seed)} seeds for {self.num_envs} rows: a list has one a row")
            self._seeds = [check_seed(s) for s in seed]
        elif self.seed_rule == "offset":
            self._seeds = [*offset_seeds(self.world, seed, range(self.num_envs))]
        else:
            self._row_seed = check_seed(seed)
            self._seeds = [self._row_seed] * self.num_envs
        return list(self._seeds)

    def reset(self) -> Any:
        """Begins an episode in every row, with the seeds and options that were set since the last reset. A refused
        reset drops the options only."""
        seeds: Any = None if None in self._seeds else self._seeds
        seed = seeds if self._row_seed is None else self._row_seed
        self._waiting.drop()
        try:
            instance = read_instances(self._options, self.num_envs)
            self._restart(seed=seed, instance=instance)
        except Exception:
            self._reset_options()
            raise
        self._row_seed = None
        self._reset_seeds()
        self._reset_options()
        obs = self._observe()
        self.reset_infos = [self._start(b) for b in range(self.num_envs)]
        return obs

    def step_async(self, actions: Any) -> None:
        """Stores the actions of the step that `step_wait` plays."""
        self._waiting.put(actions)

    def step_wait(self) -> StepResult:
        """Plays the step."""
        return self._play(self._waiting.take())

    def step(self, actions: Any) -> StepResult:
        """Both in one call, unless a subclass overrides one of them."""
        cls = type(self)
        if cls.step_wait is not SB3VecEnv.step_wait or cls.step_async is not SB3VecEnv.step_async:
            return super().step(actions)
        self._waiting.refuse()
        return self._play(actions)

    def _play(self, actions: Any) -> StepResult:
        world = self.world
        world.step(actions)
        obs = self._observe()
        if not self._shares:
            infos = self._all_infos(obs)
        else:
            infos = [SHARED] * self.num_envs
            if 1 in world.illegal.tobytes():  # three times as fast as .any()
                self._add_illegal(infos)
        if len(world.final_rows):
            self._add_ends(infos)
        return obs, world.reward.copy(), world.done.copy(), infos

    def close(self) -> None:
        """Closes the world; idempotent."""
        self.world.close()

    def has_attr(self, attr_name: str) -> bool:
        """Whether `get_attr` finds the attribute, or it is `action_masks` of a world with masks."""
        if attr_name == "action_masks":
            return self._observer.mask is not None
        return hasattr(self if attr_name in OWN else self.world, attr_name)

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """An attribute of the world, once a row: its rows if it is a field, else repeated."""
        rows = self._rows(indices)
        if not self.has_attr(attr_name) or attr_name == "action_masks":
            raise AttributeError(f"{type(self.world).__name__} has no attribute {attr_name!r}")
        value = getattr(self if attr_name in OWN else self.world, attr_name)
        field = self.world.fields.get(attr_name)
        if field is not None and field.role in BY_ROW:
            return list(value[rows])
        if field is not None and field.role is Role.INSTANCE:
            return list(value[self.world.instance_row[rows]])
        return [value] * len(rows)

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Raises ConfigError: rows share one configuration."""
        self._rows(indices)
        raise ConfigError(f"{attr_name!r} cannot be set: the rows of a world share one configuration, given when made")

    def env_method(self, method_name: str, *method_args: Any, indices: Any = None, **method_kwargs: Any) -> list[Any]:
        """`action_masks`, (n,) bool a row, `render`, a picture a row, or `close`."""
        rows = self._rows(indices)
        if method_name == "action_masks" and self.has_attr(method_name):
            return list(masks(self.world)[rows])
        if method_name == "render":
            return [self.world.render(int(b)) for b in rows]
        if method_name == "close":
            self.close()
            return [None] * len(rows)
        raise AttributeError(f"rows of {type(self.world).__name__} have no method {method_name!r}")

    def env_is_wrapped(self, wrapper_class: type[Any], indices: Any = None) -> list[bool]:
        """True for SB3's Monitor, if `monitor` is set."""
        return [self.monitor and wrapper_class is Monitor] * len(self._rows(indices))

    def get_images(self) -> list[np.ndarray | None]:
        """The pictures of all rows, uint8 (H, W, 3), under render_mode="rgb_array"."""
        if not may_render(self.render_mode):
            return [None] * self.num_envs
        return [self.world.render(b) for b in range(self.num_envs)]

    _found = ("_copies", "_aside")

    def _bind(self) -> None:
        self._observer.bind()
        live = self._observer.live
        if isinstance(live, dict):
            self._copies: Any = [(key, array.copy) for key, array in live.items()]
            self._aside = {key: live[key] for key in ("action_mask",) if key in live}
        else:
            self._copies = live.copy
            self._aside = self._observer.aside

    def _observe(self) -> Any:
        if self.moved:
            self.bind()
        if not self._observer.steady:
            self._observer.refresh()
        copies = self._copies
        return {key: fresh() for key, fresh in copies} if isinstance(copies, list) else copies()

    def _start(self, b: int) -> Info:
        """The info of a reset: the mask, and the fields that the layout leaves out of the observation."""
        return {key: array[b].copy() for key, array in self._aside.items()}

    def _all_infos(self, obs: Any) -> list[Info]:
        """An info for each row, as Gymnasium's environment returns it."""
        columns: dict[str, list[Any]] = {}
        for key, array in self._aside.items():
            columns[key] = list(obs[key] if isinstance(obs, dict) else array.copy())
        for name in self._step_info:
            columns[name] = _column(getattr(self.world, name))
        columns["TimeLimit.truncated"] = [False] * self.num_envs
        return [dict(zip(columns, values)) for values in zip(*columns.values())]

    def _add_illegal(self, infos: list[Info]) -> None:
        rows = np.flatnonzero(self.world.illegal)
        columns = {name: _column(getattr(self.world, name)[rows]) for name in self._step_info}
        for b, values in zip(rows.tolist(), zip(*columns.values())):
            infos[b] = {**dict(zip(columns, values)), "TimeLimit.truncated": False}

    def _add_ends(self, infos: list[Info]) -> None:
        """The infos of rows that ended: of their last step, with its observation."""
        rows, final = self.world.final_rows, self.world.final
        columns = {key: _column(final[name]) for key, name in self._end_info.items()}
        if not self._shares:
            columns |= {key: list(array) for key, array in self._observer.aside_of(final).items()}
        columns["terminal_observation"] = self._observer.rows_of(final, len(rows))
        columns["TimeLimit.truncated"] = (self.world.truncated & ~self.world.terminated)[rows].tolist()
        elapsed = round(time.perf_counter() - self._began, 6)
        for b, values in zip(rows.tolist(), zip(*columns.values())):
            info = infos[b] = dict(zip(columns, values))
            if self.monitor:
                info["episode"] = {"r": info["objective"], "l": info["episode_steps"], "t": elapsed}
            self.reset_infos[b] = self._start(b)

    def _rows(self, indices: Any) -> np.ndarray:
        return read_indices(indices, self.num_envs)


def _column(array: np.ndarray) -> list[Any]:
    """The values of rows for their infos: plain numbers, or an array a row."""
    return array.tolist() if array.ndim == 1 else list(array.copy())


def read_instances(options: Sequence[dict[str, Any]], rows: int) -> dict[str, np.ndarray] | None:
    """The instances in the options of a reset, without duplicates, and the index of the one that each row plays."""
    if not isinstance(options, Sequence) or isinstance(options, str):
        raise ConfigError(f"options={options!r}: must be a dict for all rows, or a list with one a row")
    if len(options) != rows:
        raise ShapeError(f"{len(options)} options for {rows} rows: a list has one a row")
    read = [read_options(given, ("instance",)) for given in options]
    each = [given["instance"] for given in read if "instance" in given]
    if not each:
        return None
    if len(each) != rows:
        raise ConfigError(f"{len(each)} of {rows} rows are given an instance: give one to all or to none")
    different = {id(one): one for one in each}
    stacked = _stack([*different.values()])
    place = {known: k for k, known in enumerate(different)}
    return {**stacked, "instance_row": np.array([place[id(one)] for one in each])}


def _stack(instances: list[Any]) -> dict[str, np.ndarray]:
    first = instances[0]
    for one in instances:
        if not hasattr(one, "keys"):
            raise ShapeError(f"an instance is a mapping of field names to arrays, not a {type(one).__name__}")
        if set(one.keys()) != set(first.keys()):
            raise ShapeError(f"instances of different fields: {sorted(first.keys())} and {sorted(one.keys())}")
    stacked: dict[str, np.ndarray] = {}
    for name in list(first.keys()):
        arrays = [as_array(name, one[name]) for one in instances]
        if len({array.shape for array in arrays}) > 1:
            raise ShapeError(f"instances whose {name!r} differ in shape: {arrays[0].shape} is the first")
        stacked[str(name)] = np.stack(arrays)
    return stacked
