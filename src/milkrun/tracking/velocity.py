"""Tracking with continuous actions: the agent gives the velocity of the drone instead of choosing a move."""

from __future__ import annotations

import numpy as np

from milkrun.core.actions import box
from milkrun.core.kernels import kernel
from milkrun.tracking.config import FULL_SPEED
from milkrun.tracking.flight import play
from milkrun.tracking.world import Tracking


class TrackingVelocity(Tracking):
    """Tracking by four numbers in [-1, 1]: speed forward, to the left, upwards, and turn counter-clockwise, in shares
    of 40, 40, 5 m/s and 2 rad/s. There is no mask; numbers outside fly as stop."""

    action = box(4)


@kernel
def step_velocity(w, b, action):
    """An agent step with these velocities."""
    for k in range(4):
        w.cmd[b, k] = FULL_SPEED[k] * np.float64(action[k])
    play(w, b)


TrackingVelocity.bind(step=step_velocity)
