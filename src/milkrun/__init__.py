"""Milkrun: fast, batched reinforcement-learning worlds for machines that move things.

    world = milkrun.make("milkrun/CVRP-v0", num_envs=1024, seed=7, num_loc=50)
    world.reset()
    world.step(world.sample_actions())

The import loads neither torch nor the worlds; both load on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from milkrun._version import __version__
from milkrun.api import announce
from milkrun.core.lazy import lazy
from milkrun.core.registry import WorldSpec, list_worlds, make, register, world_spec
from milkrun.worlds import register_all

if TYPE_CHECKING:
    from milkrun.core.check import check_world as check_world
    from milkrun.core.dataset import read_dataset as read_dataset
    from milkrun.core.threads import get_num_threads as get_num_threads
    from milkrun.core.threads import set_num_threads as set_num_threads

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        ".core.check": "check_world",
        ".core.dataset": "read_dataset",
        ".core.threads": "get_num_threads set_num_threads",
    },
)
__all__ += ["WorldSpec", "__version__", "list_worlds", "make", "register", "world_spec"]


announce()
register_all()
