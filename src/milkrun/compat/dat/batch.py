"""Rows of one tracking world with the interface of the benchmark: all at once (`Batch`), or one by one (`RowSource`).

Whatever describes a row is read from the world on access, so it does not matter which object has stepped the row.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from milkrun.api._binding import offset_seeds
from milkrun.compat.dat.frames import normalise
from milkrun.compat.dat.log import StepLog
from milkrun.core.actions import action_array
from milkrun.core.arguments import is_list
from milkrun.core.errors import Closed, ResetNeeded, ShapeError
from milkrun.tracking.config import REASONS, TrackingConfig
from milkrun.tracking.moment import Moment
from milkrun.tracking.tables import KINDS
from milkrun.tracking.world import Tracking

TIME = REASONS.index("time")
NO_PICTURE = np.empty(0, np.uint8)


class Batch:
    """A world of `rows` drones for `Envs`: one native call a turn. On the turn after its end a row is reset."""

    def __init__(self, config: TrackingConfig, rows: int, seed: int | None = None, first_row: int = 0) -> None:
        self.config = config
        self.num_envs = rows
        self.world: Any = Tracking.variant(config)(rows, config, seed=seed, first_row=first_row)
        folder = config.log_dir if config.verbose else None
        self._logs = None if folder is None else [StepLog(folder, first_row + b) for b in range(rows)]
        self._used = set(range(rows))

    # -- all rows ---------------------------------------------------------------------------------------------

    def reset(self, seed: Any) -> np.ndarray:
        """Begins an episode in every row. Returns the states."""
        offset = seed is not None and not is_list(seed)
        self.world.reset(seed=offset_seeds(self.world, seed, range(self.num_envs)) if offset else seed)
        for log in self._logs or ():
            log.begin()
        return self.states()

    def step(self, actions: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Plays a turn of every row. Returns states, rewards float64, terminated, truncated."""
        world = self.world
        # Read before the turn, which clears the flags of the rows that it resets.
        due = None if self._logs is None else self.due()
        world.step(actions)
        turn = self.states(), world.reward_exact.copy(), world.terminated.copy(), world.truncated.copy()
        if self._logs is not None:
            self._log_turn(actions, due)
        return turn

    def states(self) -> np.ndarray:
        """The current states of all rows, normalised."""
        world = self.world
        world.observe()
        return normalise(self._pictures, self.config.norm, world._chunks(self.num_envs))

    def infos(self) -> list[dict[str, Any]]:
        """The infos of the last turn."""
        return [info_of_moment(self.moment(b, NO_PICTURE)) for b in range(self.num_envs)]

    def due(self) -> np.ndarray:
        """Rows whose next turn is a reset."""
        ended: np.ndarray = self.world.terminated | self.world.truncated
        return ended

    def close(self) -> None:
        """Closes the world. Idempotent."""
        self.world.close()
        for log in self._logs or ():
            log.close()

    # -- one row ----------------------------------------------------------------------------------------------

    def begin(self, row: int, seed: int | None) -> Moment:
        """Begins an episode of one row: with a seed that of key (seed, 0, 0), else its next one."""
        self.world.reset(self.world.own_rows(row), seed=None if seed is None else [seed])
        if self._logs is not None:
            self._logs[row].begin()
        return self.moment(row)

    def play(self, row: int, action: Any) -> Moment:
        """Steps one row. Raises ResetNeeded if it has ended or was never reset."""
        world, given = self.world, one_action(action, self.config)
        if world.terminated[row] or world.truncated[row]:
            raise ResetNeeded(f"environment {world.first_row + row} has ended: reset() comes before the next step")
        world.step(given[None], world.own_rows(row))
        now = self.moment(row)
        if self._logs is not None:
            self._logs[row].step(given.tolist(), now.sim_step, now.reward, now.r_c, now.r_d, now.visible, now.reason)
        return now

    def moment(self, row: int, picture: np.ndarray | None = None) -> Moment:
        """The current moment of a row, with its picture unless another array is given for it."""
        world, config = self.world, self.config
        if picture is None:
            picture = self.picture(row)
        truncated = world.truncated.item(row)
        return Moment(
            picture,
            world.reward_exact.item(row),
            world.r_c.item(row),
            world.r_d.item(row),
            world.terminated.item(row),
            truncated,
            world.reason.item(row) or (TIME if truncated else 0),
            world.sim_step.item(row),
            KINDS[world.target_kind.item(row)],
            world.visible.item(row),
            world.illegal.item(row),
            world.other_state[row].copy() if config.other_state else None,
            world.reward_params[row].copy() if config.reward_params else None,
            world.cloud[row].copy() if config.cloud else None,
        )

    def picture(self, row: int) -> np.ndarray:
        """A copy of the current picture of one row, uint8; no other row is rendered."""
        self.world.observe(self.world.own_rows(row))
        taken: np.ndarray = self._pictures[row].copy()
        return taken

    def leave(self, row: int) -> None:
        """Releases a row; the world is closed with the last."""
        self._used.discard(row)
        if not self._used:
            self.close()

    # -- inside -----------------------------------------------------------------------------------------------

    @property
    def _pictures(self) -> Any:
        return self.world.frames if self.config.frame_stack else self.world.image

    def _log_turn(self, actions: Any, begun: Any) -> None:
        world = self.world
        columns = (
            np.asarray(actions).tolist(),
            world.sim_step.tolist(),
            world.reward_exact.tolist(),
            world.r_c.tolist(),
            world.r_d.tolist(),
            world.visible.tolist(),
            world.reason.tolist(),
            world.truncated.tolist(),
        )
        for log, new, *step, reason, cut in zip(self._logs or (), begun.tolist(), *columns):
            if new:
                log.begin()
            else:
                log.step(*step, reason or (TIME if cut else 0))


class RowSource:
    """Moments of one row of a batch."""

    def __init__(self, batch: Batch, row: int) -> None:
        self.batch = batch
        self.row = row
        self._closed = False

    def reset(self, seed: int | None) -> Moment:
        self._open()
        return self.batch.begin(self.row, seed)

    def step(self, action: Any) -> Moment:
        self._open()
        return self.batch.play(self.row, action)

    def now(self) -> Moment:
        """The current moment of the row, without a picture; None before the first reset."""
        begun = self.batch.world.stream[self.row, 2] >= 0
        return self.batch.moment(self.row, NO_PICTURE) if begun else Moment(NO_PICTURE)

    def picture(self) -> np.ndarray:
        self._open()
        return self.batch.picture(self.row)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self.batch.leave(self.row)

    def _open(self) -> None:
        if self._closed:
            raise Closed(f"environment {self.batch.world.first_row + self.row} has been closed")


def one_action(action: Any, config: TrackingConfig) -> np.ndarray:
    """Reads an action as an array without a row: an integer, also alone in a list, or four floats in velocity mode."""
    given = np.array(action) if type(action) is int else action_array("action", action)
    expected = () if config.action_mode == "discrete" else (4,)
    if given.shape == (1,) and expected == ():
        given = given.reshape(())
    kinds = "iu" if expected == () else "f"
    if given.shape != expected or given.dtype.kind not in kinds:
        kind = "an integer" if expected == () else "four floats"
        raise ShapeError(f"the action must be {kind}, not {given.dtype} of shape {given.shape}")
    return given


def supplements(now: Moment) -> list[Any]:
    """The list that the original calls SuppleInfo. It has what is enabled, in this order: the drone's own state, the
    RewardParams followed by the name of the target's kind, the point cloud."""
    entries: list[Any] = []
    if now.other_state is not None:
        entries.append(now.other_state)
    if now.params is not None:
        entries.append([*now.params.tolist(), now.kind])
    if now.cloud is not None:
        entries.append(now.cloud)
    return entries


def info_of_moment(now: Moment) -> dict[str, Any]:
    """A moment, with its SuppleInfo, as an `info`."""
    return {
        "SuppleInfo": supplements(now),
        "reason": REASONS[now.reason],
        "r_c": now.r_c,
        "r_d": now.r_d,
        "illegal": now.illegal,
    }
