"""Moments of a drone in a simulator elsewhere, in another process or on another machine."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from milkrun.compat.dat.batch import NO_PICTURE, one_action
from milkrun.compat.dat.log import StepLog
from milkrun.core.arguments import check_seed
from milkrun.core.errors import Closed, LinkProtocol, ResetNeeded
from milkrun.tracking.config import TrackingConfig
from milkrun.tracking.moment import Moment

RESET = object()
"""In the place of an action: begin an episode."""


class LinkSource:
    """Environment `row` of a group of `count`. Requests and replies are apart, so that many can be sent at once."""

    def __init__(self, config: TrackingConfig, seed: int, row: int, count: int) -> None:
        self.config = config
        self.row = row
        self._link: Any = import_module("milkrun.tracking.link.client").Link(config, seed=seed, row=row, count=count)
        self._log = StepLog(config.log_dir, row) if config.verbose else None
        self._now: Moment | None = None
        self._asked: Any = None
        self._closed = False

    def check(self, action: Any) -> np.ndarray:
        """Validates the action of a step before a request is sent. Returns it as an array."""
        self._open()
        if self._now is None or self._now.done:
            why = "has ended" if self._now is not None else "was not reset"
            raise ResetNeeded(f"environment {self.row} {why}: reset() comes before the next step")
        return one_action(action, self.config)

    def ask(self, action: Any, seed: int | None = None) -> None:
        """Requests a step, or with RESET an episode."""
        self._open()
        if self._asked is not None:
            raise LinkProtocol(f"environment {self.row}: receive() must take the last answer before the next send()")
        if action is RESET:
            self._link.ask_reset(None if seed is None else check_seed(seed))
        else:
            action = self.check(action)
            self._link.ask_step(action.tolist() if action.ndim == 0 else action)
        self._asked = action

    def answer(self) -> tuple[Moment, bool]:
        """Waits for the reply. Returns the moment, and whether it begins an episode."""
        self._open()
        if self._asked is None:
            raise LinkProtocol(f"environment {self.row}: receive() without a send()")
        try:
            now = self._link.answer()
        except BaseException:  # an interrupt too: the reply is lost
            self._asked = self._now = None
            raise
        action = self._asked
        self._asked = None
        self._now = now
        if self._log is not None:
            if action is RESET:
                self._log.begin()
            else:
                self._log.step(action.tolist(), now.sim_step, now.reward, now.r_c, now.r_d, now.visible, now.reason)
        return now, action is RESET

    def reset(self, seed: int | None) -> Moment:
        self.ask(RESET, seed)
        return self.answer()[0]

    def step(self, action: Any) -> Moment:
        self.ask(action)
        return self.answer()[0]

    def now(self) -> Moment:
        """The last moment received."""
        return Moment(NO_PICTURE) if self._now is None else self._now

    def picture(self) -> np.ndarray:
        if self._now is None:
            raise ResetNeeded(f"environment {self.row} was not reset: it has seen nothing yet")
        return self._now.image

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._link.close()
            if self._log is not None:
                self._log.close()

    def _open(self) -> None:
        if self._closed:
            raise Closed(f"environment {self.row} has been closed")
