"""One moment of one drone, as the original's classes see it: its picture, what was paid, whether it is over.

A row of a world in this process and an environment behind a link both speak in moments, so whatever stands on them does
not know which of the two it has.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(slots=True)
class Moment:
    """What a reset or a step of one environment gives. Arrays are the receiver's own."""

    image: np.ndarray  # uint8 (C, S, S), or the last H of them (H, C, S, S), oldest first
    reward: float = 0.0
    r_c: float = 0.0
    r_d: float = 0.0
    terminated: bool = False
    truncated: bool = False
    reason: int = 0  # index into REASONS; 0 while the episode lasts
    sim_step: int = 0
    kind: str = ""  # of the target
    visible: bool = False
    illegal: bool = False  # the action was none
    other_state: np.ndarray | None = None  # float64 (19,)
    params: np.ndarray | None = None  # float64 (60,)
    cloud: np.ndarray | None = None  # float32 (5 L,)

    @property
    def done(self) -> bool:
        return self.terminated or self.truncated
