"""Milkrun: fast, batched reinforcement-learning worlds for machines that move things.

    world = milkrun.make("milkrun/CVRP-v0", num_envs=1024, seed=7, num_loc=50)
    world.reset()
    world.step(world.sample_actions())

This is the front door. It imports neither torch nor any family of worlds; those come when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from milkrun._version import __version__
from milkrun.core.registry import WorldSpec, list_worlds, make, register, world_spec
from milkrun.worlds import register_all

if TYPE_CHECKING:
    from milkrun.core.check import check_world
    from milkrun.core.threads import get_num_threads, set_num_threads

_LATER = {
    "check_world": "milkrun.core.check",
    "set_num_threads": "milkrun.core.threads",
    "get_num_threads": "milkrun.core.threads",
}

__all__ = [
    "WorldSpec",
    "__version__",
    "check_world",
    "get_num_threads",
    "list_worlds",
    "make",
    "register",
    "set_num_threads",
    "world_spec",
]


def __getattr__(name: str) -> Any:
    if name in _LATER:
        import importlib

        return getattr(importlib.import_module(_LATER[name]), name)
    raise AttributeError(f"module 'milkrun' has no attribute {name!r}")


register_all()
