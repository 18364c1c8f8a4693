"""EnvClutterEnv: many trays at once, with their objects as lists of handles, of infos and of indices by environment.

These lists store nothing: each is a read-only view that reads the world's arrays on access. So there is nothing to keep
in sync, and they add nothing to the time of a step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, overload

import numpy as np
from gymnasium.vector import AutoresetMode

from milkrun.api.gymnasium import MilkrunVectorEnv
from milkrun.clutter.config import Config, get_config
from milkrun.clutter.options import ClutterConfig
from milkrun.core.errors import ConfigError, shown

if TYPE_CHECKING:
    from milkrun.clutter.pile import Pile

T = TypeVar("T")
INFO = ("type", "size", "initial_pose", "center", "exposed_area")


class EnvClutterEnv(MilkrunVectorEnv):
    """`num_envs` trays; an action is the number of the object to take; numbers are constant through an episode.

    As in the original, the first scene stands after construction; the first `reset()` without a seed begins it again.

    config_preset: a name in `PRESET_CONFIGS`; custom_config: a `Config` or `ClutterConfig` instead of one.
    use_discrete_action, step_mode: False and "tick" override the configuration; True and "pick" leave it.
    """

    world: Pile

    def __init__(
        self,
        num_envs: int = 1,
        use_discrete_action: bool = True,
        config_preset: str = "default",
        custom_config: Config | ClutterConfig | None = None,
        step_mode: str = "pick",
        seed: int | None = None,
        threads: int | None = None,
        illegal: str = "noop",
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
    ) -> None:
        chosen = _chosen(config_preset, custom_config)
        changes: dict[str, Any] = {}
        if use_discrete_action is not True:
            changes["use_discrete_action"] = use_discrete_action
        if step_mode != "pick":
            changes["step_mode"] = step_mode
        super().__init__(
            num_envs,
            "milkrun/Clutter-v0",
            config=chosen,
            seed=seed,
            threads=threads,
            illegal=illegal,
            autoreset_mode=autoreset_mode,
            **changes,
        )
        self.world.reset()
        self._is_first = True

    def reset(
        self, *, seed: int | list[int] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        if self._is_first and seed is None and "reset_mask" not in (options or {}):
            self.world.stream[:, 2] = -1  # so that the next episode is number 0, whose scene stands
        found = super().reset(seed=seed, options=options)
        self._is_first = False
        return found

    # -- as configured ----------------------------------------------------------------------------------------

    @property
    def config(self) -> ClutterConfig:
        """The configuration of the world."""
        return self.world.config

    @property
    def BOX_OBJECTS(self) -> tuple[str, ...]:
        """The types of objects."""
        return self.config.box_objects

    @property
    def num_objects_per_type(self) -> int:
        return self.config.num_objects_per_type

    @property
    def num_object_types(self) -> int:
        return self.config.num_object_types

    @property
    def total_objects_per_env(self) -> int:
        return self.config.total_objects_per_env

    # -- objects ----------------------------------------------------------------------------------------------

    @property
    def all_objects(self) -> Objects:
        """The objects of all environments: number i of environment e is at e * total_objects_per_env + i."""
        return Objects(self.world, range(self.num_envs * self.total_objects_per_env))

    @property
    def merged_objects(self) -> Merged:
        """The poses of `all_objects` as arrays."""
        return Merged(self.world)

    @property
    def selectable_objects(self) -> ByEnv[Objects]:
        """The objects of each environment, also those that are out."""
        return ByEnv(self.world, _objects_of)

    @property
    def object_info(self) -> ByEnv[Infos]:
        """For each environment and object its type, its place, and its visible area."""
        return ByEnv(self.world, _infos_of)

    @property
    def remaining_indices(self) -> ByEnv[np.ndarray]:
        """The numbers of the objects in play in each environment, ascending."""
        return ByEnv(self.world, _remaining_of)

    @property
    def grasped_objects(self) -> ByEnv[np.ndarray]:
        """The numbers of the objects taken out in each environment, in that order."""
        return ByEnv(self.world, _grasped_of)

    # -- the state of each environment ------------------------------------------------------------------------

    @property
    def step_count(self) -> np.ndarray:
        """(B,) attempts used."""
        return _read_only(self.world.step_count)

    @property
    def is_suction_active(self) -> np.ndarray:
        """(B,) whether the cup holds."""
        return _read_only(self.world.is_suction_active)

    @property
    def current_suction_object(self) -> np.ndarray:
        """(B,) the object in the cup, -1 none."""
        return _read_only(self.world.current_suction_object)

    @property
    def env_stage(self) -> np.ndarray:
        """(B,) 0 idle, 1 above, 2 descend, 3 grip, 4 lift, 5 carry, 6 release, 7 settle."""
        return _read_only(self.world.env_stage)

    @property
    def env_target(self) -> np.ndarray:
        """(B,) the object being picked, -1 none."""
        return _read_only(self.world.env_target)

    @property
    def env_busy(self) -> np.ndarray:
        """(B,) whether a pick is under way."""
        return _read_only(self.world.env_busy)

    @property
    def stage_tick(self) -> np.ndarray:
        """(B,) ticks spent in the stage."""
        return _read_only(self.world.stage_tick)

    @property
    def stage_positions(self) -> np.ndarray:
        """(B, 3) the target of the cup in this stage."""
        return _read_only(self.world.stage_positions)


def _chosen(preset: str, custom: Config | ClutterConfig | None) -> ClutterConfig:
    if custom is None:
        return get_config(preset).frozen()
    if preset != "default":
        raise ConfigError(
            f"config_preset={shown(preset)} and custom_config: give one of them; "
            f"get_config({shown(preset)}) is a configuration to start from"
        )
    if not isinstance(custom, (Config, ClutterConfig)):
        raise ConfigError(f"custom_config must be a Config or a ClutterConfig, not {shown(custom)}")
    return custom.frozen() if isinstance(custom, Config) else custom


def _read_only(array: np.ndarray) -> np.ndarray:
    seen = array.view()
    seen.flags.writeable = False
    return seen


class Pose(NamedTuple):
    """Places `p` and quaternions `q` (w, x, y, z)."""

    p: np.ndarray
    q: np.ndarray


@dataclass(frozen=True)
class Handle:
    """One object. Two handles of one object are equal."""

    world: Pile = field(repr=False)
    global_idx: int

    @property
    def env_idx(self) -> int:
        return self.global_idx // self.world.config.total_objects_per_env

    @property
    def local_idx(self) -> int:
        """Its number in its environment, which is the action that takes it."""
        return self.global_idx % self.world.config.total_objects_per_env

    @property
    def type(self) -> str:
        config = self.world.config
        return config.box_objects[self.local_idx // config.num_objects_per_type]

    @property
    def name(self) -> str:
        return f"env_{self.env_idx}_{self.type}_{self.local_idx % self.world.config.num_objects_per_type}"

    @property
    def size(self) -> np.ndarray:
        """Full extents, m."""
        return _read_only(self.world.size[self.world.instance_row[self.env_idx], self.local_idx])

    @property
    def pose(self) -> Pose:
        """Its current pose; an object that is out stands next to the tray."""
        pose = _read_only(self.world.obj_pose[self.env_idx, self.local_idx])
        return Pose(pose[:3], pose[3:])

    @property
    def linear_velocity(self) -> np.ndarray:
        """m/s along the axes of the tray."""
        return _read_only(self.world.obj_vel[self.env_idx, self.local_idx, :3])

    @property
    def angular_velocity(self) -> np.ndarray:
        """rad/s about the axes of the object, as in MuJoCo."""
        return _read_only(self.world.obj_vel[self.env_idx, self.local_idx, 3:])


@dataclass(frozen=True)
class Objects(Sequence[Handle]):
    """A lazy list of handles."""

    world: Pile = field(repr=False)
    indices: range

    def __len__(self) -> int:
        return len(self.indices)

    @overload
    def __getitem__(self, at: int) -> Handle: ...
    @overload
    def __getitem__(self, at: slice) -> Objects: ...
    def __getitem__(self, at: int | slice) -> Handle | Objects:
        found = _at(self.indices, at, "objects")
        return Objects(self.world, found) if isinstance(found, range) else Handle(self.world, found)


@dataclass(frozen=True)
class Merged:
    """All objects as one: arrays with a row an object, in the order of `all_objects`."""

    world: Pile = field(repr=False)

    @property
    def pose(self) -> Pose:
        """Their current poses: copies, since the physics stores rows apart."""
        poses = _read_only(self.world.obj_pose.reshape(-1, 7))
        return Pose(poses[:, :3], poses[:, 3:])


@dataclass(frozen=True)
class ByEnv(Sequence[T]):
    """A lazy list with an entry an environment."""

    world: Pile = field(repr=False)
    find: Callable[[Pile, int], T]

    def __len__(self) -> int:
        return self.world.num_envs

    @overload
    def __getitem__(self, at: int) -> T: ...
    @overload
    def __getitem__(self, at: slice) -> list[T]: ...
    def __getitem__(self, at: int | slice) -> T | list[T]:
        found = _at(range(len(self)), at, "environments")
        return [self.find(self.world, e) for e in found] if isinstance(found, range) else self.find(self.world, found)


@dataclass(frozen=True)
class Infos(Sequence["Info"]):
    """The infos of an environment's objects."""

    objects: Objects

    def __len__(self) -> int:
        return len(self.objects)

    @overload
    def __getitem__(self, at: int) -> Info: ...
    @overload
    def __getitem__(self, at: slice) -> Infos: ...
    def __getitem__(self, at: int | slice) -> Info | Infos:
        found = self.objects[at]
        return Infos(found) if isinstance(found, Objects) else Info(found)


@dataclass(frozen=True)
class Info(Mapping[str, Any]):
    """The info of an object: its type, size and first pose; its centre and its visible area (m2) at the time of
    access."""

    of: Handle

    def __getitem__(self, key: str) -> Any:
        o, w = self.of, self.of.world
        if key == "type":
            return o.type
        if key == "size":
            return o.size
        if key == "initial_pose":
            return _read_only(w.init_pose[w.instance_row[o.env_idx], o.local_idx])
        if key == "center":
            return o.pose.p
        if key == "exposed_area":
            return float(w.exposed_area[o.env_idx, o.local_idx])
        raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        return iter(INFO)

    def __len__(self) -> int:
        return len(INFO)


def _at(indices: range, at: int | slice, what: str) -> int | range:
    try:
        return indices[at]
    except IndexError:
        raise IndexError(f"number {at} of {len(indices)} {what}") from None


def _objects_of(world: Pile, e: int) -> Objects:
    n = world.config.total_objects_per_env
    return Objects(world, range(e * n, (e + 1) * n))


def _infos_of(world: Pile, e: int) -> Infos:
    return Infos(_objects_of(world, e))


def _remaining_of(world: Pile, e: int) -> np.ndarray:
    return _read_only(np.flatnonzero(~(world.grasped[e] | world.lost[e])))


def _grasped_of(world: Pile, e: int) -> np.ndarray:
    # Objects that are not grasped have -1 and come first.
    order = world.grasp_order[e]
    return _read_only(np.argsort(order, kind="stable")[np.count_nonzero(order < 0) :])
