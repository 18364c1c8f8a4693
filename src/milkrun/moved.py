"""Modules under the names they had before: `import` finds the new one. Nobody inside the library uses these names.

Import paths of public code that users bring along (`PUBLISHED`) stay for good, without a warning; the others warn that
they will go.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

PUBLISHED = {
    "milkrun.delivery.vrp": "milkrun.api.vrp",
}
MOVED = {
    "milkrun.api.mappo.vrp": "milkrun.api.vrp.env_wrappers",
    "milkrun.cli.rides": "milkrun.cli.darp",
    "milkrun.core.check_bench": "milkrun.core.check.bench",
    "milkrun.core.check_replays": "milkrun.core.check.replays",
    "milkrun.core.check_rules": "milkrun.core.check.rules",
    "milkrun.core.foreign": "milkrun.api.foreign",
    "milkrun.delivery.flight": "milkrun.delivery.truckdrone.flight",
    "milkrun.delivery.generators": "milkrun.delivery",
    "milkrun.delivery.generators.truckdrone": "milkrun.delivery.truckdrone.generator",
    "milkrun.delivery.generators.tspd": "milkrun.delivery.tspd.generator",
    "milkrun.delivery.log": "milkrun.delivery.truckdrone.log",
    "milkrun.delivery.looks": "milkrun.delivery.styles",
    "milkrun.delivery.picture": "milkrun.delivery.truckdrone.picture",
    "milkrun.delivery.reasons": "milkrun.delivery.truckdrone.reasons",
    "milkrun.delivery.reports": "milkrun.delivery.truckdrone.reports",
    "milkrun.delivery.safety": "milkrun.delivery.truckdrone.safety",
    "milkrun.delivery.sights": "milkrun.delivery.truckdrone.observations",
    "milkrun.delivery.tasks.truckdrone": "milkrun.delivery.truckdrone.task",
    "milkrun.delivery.tasks.tspd": "milkrun.delivery.tspd.task",
    "milkrun.delivery.truck_tour": "milkrun.delivery.tspd.truck_tour",
    "milkrun.delivery.truckdrone_checks": "milkrun.delivery.truckdrone.instances",
    "milkrun.delivery.truckdrone_config": "milkrun.delivery.truckdrone.config",
    "milkrun.delivery.truckdrone_step": "milkrun.delivery.truckdrone.step",
    "milkrun.delivery.tspd_config": "milkrun.delivery.tspd.config",
    "milkrun.delivery.tspd_door": "milkrun.delivery.tspd.instances",
    "milkrun.delivery.tspd_log": "milkrun.delivery.tspd.log",
    "milkrun.delivery.tspd_states": "milkrun.delivery.tspd.instances",
    "milkrun.replay.rides": "milkrun.replay.darp",
    "milkrun.replay.timetable": "milkrun.routing.darp.timetable",
    "milkrun.routing.darp_config": "milkrun.routing.darp.config",
    "milkrun.routing.darp_door": "milkrun.routing.darp.instances",
    "milkrun.routing.darp_plan": "milkrun.routing.darp.schedule",
    "milkrun.routing.darp_seed": "milkrun.routing.darp.deadlines",
    "milkrun.routing.darp_states": "milkrun.routing.darp.states",
    "milkrun.routing.dial": "milkrun.routing.darp.base",
    "milkrun.routing.generators.darp": "milkrun.routing.darp.generator",
    "milkrun.routing.tasks.darp": "milkrun.routing.darp.task",
    "milkrun.routing.tasks.darp_cases": "milkrun.routing.darp.task.cases",
    "milkrun.routing.tasks.darp_replay": "milkrun.routing.darp.task.replay",
    "milkrun.routing.tasks.darp_schedule": "milkrun.routing.darp.task.schedule",
    "milkrun.solvers.darp_improve": "milkrun.solvers.darp.search",
    "milkrun.solvers.darp_insertion": "milkrun.solvers.darp.construct",
    "milkrun.solvers.darp_ortools": "milkrun.solvers.darp.ortools",
    "milkrun.solvers.darp_places": "milkrun.solvers.darp.places",
    "milkrun.solvers.darp_rows": "milkrun.solvers.darp.rows",
    "milkrun.solvers.tspd_exact": "milkrun.solvers.tspd.dynamic",
    "milkrun.solvers.tspd_policy": "milkrun.solvers.tspd.policy",
    "milkrun.tracking.envs": "milkrun.api.parallel.envs",
    "milkrun.tracking.looks": "milkrun.tracking.tables",
    "milkrun.tracking.pay": "milkrun.tracking.reward_kernels",
    "milkrun.tracking.returns": "milkrun.api.parallel.returns",
    "milkrun.tracking.studio": "milkrun.tracking.rendering",
    "milkrun.tracking.turns": "milkrun.api.parallel.turns",
}


def new_name(name: str) -> str | None:
    """Where the module of an old name, or of one inside an old package, is now."""
    known, rest = name, ""
    while known:
        # The longest name that is known decides: a module inside an old package may have gone somewhere else than the
        # package.
        if new := PUBLISHED.get(known) or MOVED.get(known):
            return new + rest
        known, dot, last = known.rpartition(".")
        rest = dot + last + rest
    return None


class Finder(MetaPathFinder, Loader):
    """Asked first: what lies inside an old package would else be found a second time, by the folder of the new one."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not name.startswith("milkrun.") or (new := new_name(name)) is None:
            return None
        if not name.startswith(tuple(PUBLISHED)):
            warnings.warn(f"{name} is now {new}", DeprecationWarning, stacklevel=2)
        return ModuleSpec(name, self, is_package=hasattr(importlib.import_module(new), "__path__"))

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(str(new_name(spec.name)))
        # Kept in the spec of this import: other threads may import at once.
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """It has been run already, under its own name, which the import system has just written over."""
        assert module.__spec__ is not None
        module.__spec__ = sys.modules[module.__name__].__spec__ = module.__spec__.loader_state


def install() -> None:
    """Called once by `import milkrun`."""
    if not any(isinstance(finder, Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, Finder())
