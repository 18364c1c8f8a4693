"""Small tracking worlds with a standing target at a given place."""

import numpy as np

from milkrun.tracking.config import TrackingConfig

SMALL = {"size": 16, "ground_cell": 10.0, "max_boxes": 200}
"""Options that make rows small; no test depends on them."""
FORWARD, BACKWARD, LEFT, RIGHT, TURN_LEFT, TURN_RIGHT, STOP = range(7)


def make(num_envs=1, preset=None, *, seed=0, debug=False, autoreset="disabled", **options):
    """A world after its first reset. `autoreset` is off, so that tests can inspect an end."""
    from milkrun.tracking.world import Tracking

    config = TrackingConfig.build(preset=preset, **{**SMALL, **options})
    world = Tracking.variant(config)(num_envs, config, seed=seed, debug=debug, autoreset=autoreset)
    world.reset()
    return world


def stand(world, target=(0.0, 0.0, 0.0)):
    """Stops all cars; the target stands at x, y, heading."""
    world.n_veh[:] = 0
    world.veh_on[:] = False
    world.veh_on[:, 0] = True
    world.veh_pose[:, 0] = target
    world.veh_v[:] = 0.0
    world.veh_rate[:] = 0.0


def hover(world, pos, yaw=0.0, pitch=1.0):
    """Lets the drone hover at this place."""
    world.pos[:] = world.cmd_pos[:] = pos
    world.yaw[:] = yaw
    world.pitch[:] = pitch


def over(world, pitch=1.0, height=20.0):
    """A standing target at the origin, in the middle of the drone's picture."""
    stand(world)
    hover(world, (-height / np.tan(pitch), 0.0, height), 0.0, pitch)


def straight(num_envs=1, **options):
    """A road without boxes."""
    return make(num_envs, **{"curriculum": "straight_mono", **options})


def play(world, action, steps):
    for _ in range(steps):
        world.step(np.full(world.num_envs, action))
