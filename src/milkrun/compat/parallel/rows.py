"""One world as a list of environments, a handle a row; `Envs` plays all of them in one call."""

from __future__ import annotations

from typing import Any

import numpy as np

from milkrun.api._binding import end_info, offset_seeds, step_info, value_of
from milkrun.api._spaces import Follower, Observer, action_space
from milkrun.core.actions import action_array
from milkrun.core.arguments import is_list
from milkrun.core.errors import ConfigError, ShapeError
from milkrun.core.world import World


def handles(world: World, layout: str | None = None) -> list[Row]:
    """Makes a handle for each row of a world, in order. The world is then played only through them or through `Envs`.

    layout: the form of observations, as for Gymnasium; "flat" is one vector.
    """
    batch = Batch(world, layout)
    return [Row(batch, b) for b in range(world.num_envs)]


class Batch(Follower):
    """All rows of a world with the interface of `Envs`: states, rewards, ends, and a dict a row for the rest."""

    def __init__(self, world: World, layout: str | None = None) -> None:
        if world.autoreset != "next_step":
            raise ConfigError(f"the world was made with autoreset={world.autoreset!r}; here it must be 'next_step'")
        self.world = world
        self.num_envs = world.num_envs
        self.observer = Observer(world, layout)
        self.observation_space = self.observer.single_space
        self.action_space = action_space(world)
        self._step_info = step_info(world)
        self._end_info = end_info(world)
        self.bind()

    def reset(self, seed: Any) -> Any:
        """Begins an episode in every row. Returns the states."""
        offset = seed is not None and not is_list(seed)
        self._restart(seed=offset_seeds(self.world, seed, range(self.num_envs)) if offset else seed)
        return self.observe()

    def step(self, actions: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray]:
        """Plays a turn of every row, one native call."""
        world = self.world
        world.step(actions)
        return self.observe(), self.reward.astype(np.float64), world.terminated.copy(), world.truncated.copy()

    @property
    def reward(self) -> np.ndarray:
        """The rewards of the last turn, in the highest precision of the world."""
        return getattr(self.world, "reward_exact" if "reward_exact" in self.world.fields else "reward")

    def observe(self, row: int | None = None) -> Any:
        """A copy of the current observations of all rows, or of one."""
        if self.moved:
            self.bind()
        if not self.observer.steady:
            self.observer.refresh(None if row is None else np.array([row]))
        live, chosen = self.observer.live, slice(None) if row is None else row
        if isinstance(live, dict):
            return {key: np.array(array[chosen]) for key, array in live.items()}
        return np.array(live[chosen])

    def infos(self) -> list[dict[str, Any]]:
        return [self.info(b) for b in range(self.num_envs)]

    def info(self, row: int) -> dict[str, Any]:
        """The info of a row, as Gymnasium's."""
        world, observer = self.world, self.observer
        info = {key: array[row].copy() for key, array in observer.aside.items()}
        if isinstance(observer.live, dict) and "action_mask" in observer.live:
            info["action_mask"] = observer.live["action_mask"][row].copy()
        if world.i[row]:  # else it has just begun: no step was played
            info |= {name: value_of(getattr(world, name), row) for name in self._step_info}
            if world.terminated[row] or world.truncated[row]:
                info |= {key: value_of(getattr(world, name), row) for key, name in self._end_info.items()}
        return info

    def play(self, row: int, action: Any) -> None:
        """Plays a turn of one row."""
        given = action_array("action", action)
        expected = self.world.action.shape(self.world.sizes)
        if given.shape != expected:
            raise ShapeError(f"the action must have the shape {expected}, not {given.shape}")
        self.world.step(given[None], rows=[row])

    def begin(self, row: int, seed: int | None) -> None:
        """Begins an episode of one row."""
        self._restart([row], seed=None if seed is None else [seed])

    def _bind(self) -> None:
        self.observer.bind()

    def due(self) -> np.ndarray:
        """Rows whose next turn is a reset."""
        return self.world.terminated | self.world.truncated

    def close(self) -> None:
        self.world.close()


class Row:
    """A row of a world as an environment, with the `reset` and `step` of Gymnasium. Touches no other row.

    A step after an end is the reset turn of the next episode, as for the whole world.
    """

    def __init__(self, batch: Batch, row: int) -> None:
        self.batch = batch
        self.row = row

    @property
    def world(self) -> World:
        return self.batch.world

    @property
    def observation_space(self) -> Any:
        return self.batch.observation_space

    @property
    def action_space(self) -> Any:
        return self.batch.action_space

    def reset(self, *, seed: int | None = None) -> tuple[Any, dict[str, Any]]:
        """Begins an episode: with a seed the one of key (seed, 0, 0), else the next one of this row."""
        self.batch.begin(self.row, seed)
        return self.batch.observe(self.row), self.batch.info(self.row)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Plays one action."""
        self.batch.play(self.row, action)
        world, b = self.world, self.row
        ends = world.terminated.item(b), world.truncated.item(b)
        return self.batch.observe(b), self.batch.reward.item(b), *ends, self.batch.info(b)

    def close(self) -> None:
        """Closes the world, and with it all its rows."""
        self.batch.close()

    def __repr__(self) -> str:
        return f"<row {self.row} of {self.world!r}>"
