"""TianshouVectorEnv: a batch of rows of a world as a tianshou vector environment, one native call a step.

No rules of worlds are here. An observation is a `Batch` of `obs`, in the chosen layout, and `mask`, as tianshou's
Q-learners require; a world without masks has its observation alone. A row that ended waits for a reset, as tianshou's
collectors expect. The mask is not repeated in `info`: tianshou converts every entry of every row's dict into an array,
twice a step, which takes longer than the step.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from tianshou.data import Batch

from milkrun.api._binding import (
    SEED_RULES,
    batch_behind,
    begin_with,
    check_choice,
    end_info,
    metadata_of,
    offset_seeds,
    read_options,
    step_info,
    value_of,
)
from milkrun.api._spaces import Follower, Observer, action_space
from milkrun.api.tianshou.venv import Ids, StepResult, Venv, in_array
from milkrun.core.arguments import autoreset_name, check_seed, is_list, read_keys, read_rows
from milkrun.core.errors import Closed, ConfigError, ShapeError
from milkrun.core.fields import Role
from milkrun.core.world import World


def make(
    world_id: str, num_envs: int | None = None, *, autoreset: Any = "disabled", **keywords: Any
) -> TianshouVectorEnv:
    """`milkrun.make(api="tianshou")`; keywords include `layout` and `seed_rule`."""
    if autoreset_name(autoreset) == "same_step":
        raise ConfigError("autoreset='same_step': under tianshou the collector resets the rows that ended")
    return TianshouVectorEnv(world_id, num_envs, **keywords)


class TianshouVectorEnv(Follower, Venv):
    """A batch of rows of a world. Its `world` is stepped and reset through it only.

    seed_rule: "offset" seeds row i with seed + i, tianshou's convention, so that runs seeded 0 and 1 share all but one
    row: take seeds `num_envs` apart; "row" gives row i the stream (seed, i), and any two seeds differ everywhere.
    """

    def __init__(
        self,
        world_or_id: World | str,
        num_envs: int | None = None,
        *,
        layout: str | None = "flat",
        seed_rule: str = "offset",
        seed: int | None = None,
        **settings: Any,
    ) -> None:
        self.seed_rule = check_choice("seed_rule", seed_rule, SEED_RULES)
        self.world = batch_behind(self, world_or_id, num_envs, "disabled", seed, settings)
        super().__init__(self.world.num_envs)
        if seed is not None and seed_rule == "offset":
            begin_with(self.world, seed)
        self._observer = Observer(self.world, layout)
        self._single_space = self._observer.single_space
        self._action_spaces = [action_space(self.world) for _ in range(self.env_num)]
        self._has_mask = self._observer.mask is not None
        self._all = np.arange(self.env_num)
        self._in_order = self._all.tobytes()
        self._end_info = {key: getattr(self.world, name) for key, name in end_info(self.world).items()}
        self._step_info = {name: getattr(self.world, name) for name in step_info(self.world) if name != "illegal"}
        self._blanks: list[dict[str, Any]] = [{"env_id": b, "illegal": False} for b in range(self.env_num)]
        self._seeded = np.zeros(self.env_num, bool)  # the rows whose next episode has the key in _keys
        self._keys = np.zeros((self.env_num, 3), np.int64)
        self.bind()

    def reset(self, env_id: Ids = None, *, seed: Any = None, options: Any = None) -> tuple[Any, np.ndarray]:  # type: ignore[override]
        """Begins an episode in the named rows: observations and infos, in the order they are named.

        seed: an int, by the seed rule, whatever the rows named; a list has one a row named.
        options: `instance`, a mapping of instance fields with an axis of the rows named.
        """
        rows, world = self._named(env_id), self.world
        instance = read_options(options, ("instance",)).get("instance")
        chosen = self._all if rows is None else rows
        if seed is not None and not is_list(seed) and self.seed_rule == "offset":
            seed = offset_seeds(world, seed, chosen.tolist())
        seeded = self._seeded[chosen]
        if seed is None and seeded.any():
            keys = read_keys(world.stream, chosen, world.first_row, None)
            keys[seeded] = self._keys[chosen[seeded]]
            self._restart(rows, keys=keys, instance=instance)
        else:
            self._restart(rows, seed=seed, instance=instance)
        self._seeded[chosen] = False  # a seed is for one reset
        self._refresh(rows)
        infos: list[dict[str, Any]] = [{"env_id": b} for b in chosen.tolist()]
        self._add_info(infos, rows, self._aside)
        return self._observe(rows), in_array(infos)

    def step(self, action: Any, id: Ids = None) -> StepResult:
        """Plays one action in each named row; results stand in the order the rows are named."""
        world, rows = self.world, self._named(id)
        world.step(action, rows)
        self._refresh(rows)
        infos = [blank.copy() for blank in (self._blanks if rows is None else map(self._blanks.__getitem__, rows))]
        if self._columns:
            self._add_info(infos, rows, self._columns)
        illegal = _fresh(world.illegal, rows)
        if 1 in illegal.tobytes():  # three times as fast as .any()
            for k in np.flatnonzero(illegal).tolist():
                infos[k]["illegal"] = True
        terminated, truncated = _fresh(world.terminated, rows), _fresh(world.truncated, rows)
        if 1 in terminated.tobytes() or 1 in truncated.tobytes():
            for k in np.flatnonzero(terminated | truncated).tolist():
                info = infos[k]
                for key, array in self._end_info.items():
                    info[key] = value_of(array, info["env_id"])
        # float64: tianshou sums an episode's return in the dtype of the rewards
        rewards = world.reward.astype(np.float64) if rows is None else world.reward[rows].astype(np.float64)
        return self._observe(rows), rewards, terminated, truncated, in_array(infos)

    def seed(self, seed: Any = None) -> list[list[int] | None]:
        """The seeds of each row's next reset, an int by the seed rule or a list with one a row, and of the action
        spaces."""
        self._assert_is_not_closed()
        if seed is None:
            self._seeded[:] = False
            for space in self._action_spaces:
                space.seed(None)
            return [None] * self.env_num
        if is_list(seed):
            seeds, streams = [check_seed(s) for s in seed], self._all * 0
        elif self.seed_rule == "offset":
            seeds, streams = offset_seeds(self.world, seed, range(self.env_num)), self._all * 0
        else:
            seeds, streams = [check_seed(seed)] * self.env_num, self._all + self.world.first_row
        if len(seeds) != self.env_num:
            raise ShapeError(f"{len(seeds)} seeds for {self.env_num} rows")
        self._keys[:, 0] = seeds
        self._keys[:, 1] = streams
        self._seeded[:] = True
        for space, s, stream in zip(self._action_spaces, seeds, streams.tolist()):
            space.seed(s + stream)
        return [[s] for s in seeds]

    def get_env_attr(self, key: str, id: Ids = None) -> list[Any]:
        """An attribute of the world, one value a row named: its rows if it has any, else repeated."""
        self._assert_is_not_closed()
        rows = self._named(id)
        chosen = self._all if rows is None else rows
        if key == "action_space":
            return [self._action_spaces[b] for b in chosen.tolist()]
        single: dict[str, Any] = {"observation_space": self._single_space, "metadata": metadata_of(self.world)}
        value: Any = single[key] if key in single else getattr(self.world, key)
        field = self.world.fields.get(key)
        if field is None or field.role is Role.CONSTANT:
            return [copy.deepcopy(value) if isinstance(value, dict) else value for _ in chosen]
        return list(value[self.world.instance_row[chosen] if field.role is Role.INSTANCE else chosen])

    def set_env_attr(self, key: str, value: Any, id: Ids = None) -> None:
        """Raises ConfigError: rows share one configuration."""
        raise ConfigError(f"{key!r} cannot be set: the rows of a world share one configuration, given when it is made")

    def render(self, **kwargs: Any) -> list[np.ndarray]:
        """The pictures of all rows, uint8 (H, W, 3)."""
        return [self.world.render(b) for b in range(self.env_num)]

    def close(self) -> None:
        """Closes the world; idempotent."""
        self.world.close()
        self.is_closed = True

    def _assert_is_not_closed(self) -> None:
        if self.is_closed:
            raise Closed(f"this {type(self).__name__} has been closed")

    def _named(self, id: Ids) -> np.ndarray | None:
        """The rows that `id` names; None: all in order, which is faster."""
        if id is None:
            return None
        if type(id) is np.ndarray and id.dtype == np.int64 and id.tobytes() == self._in_order:
            return None
        rows = read_rows([id] if np.isscalar(id) else id, self.env_num)
        if not len(rows):
            raise ShapeError("id names no row")
        return None if rows.tobytes() == self._in_order else rows

    _found = ("_aside", "_columns")

    def _bind(self) -> None:
        self._observer.bind()
        self._aside = {key: array for key, array in self._observer.aside.items() if key != "action_mask"}
        self._columns = {**self._aside, **self._step_info}

    def _refresh(self, rows: np.ndarray | None) -> None:
        """Updates the observations of these rows."""
        if self.moved:
            self.bind()
        if not self._observer.steady:
            self._observer.refresh(rows)

    def _observe(self, rows: np.ndarray | None) -> Any:
        """Copies of the observations of these rows."""
        live = self._observer.live
        if isinstance(live, dict):
            obs: Any = Batch({key: _fresh(array, rows) for key, array in live.items()})
        else:
            obs = _fresh(live, rows)
        if not self._has_mask:
            return obs
        both = Batch()
        both.__dict__.update(obs=obs, mask=_fresh(getattr(self.world, "action_mask"), rows))  # noqa: B009 (a field)
        return both

    def _add_info(self, infos: list[dict[str, Any]], rows: np.ndarray | None, columns: dict[str, np.ndarray]) -> None:
        """Adds a plain number, or a row of a new array, to each info."""
        for key, array in columns.items():
            column = _fresh(array, rows)
            for info, value in zip(infos, column.tolist() if column.ndim == 1 else column):
                info[key] = value


def _fresh(array: np.ndarray, rows: np.ndarray | None) -> np.ndarray:
    return array.copy() if rows is None else array[rows]
