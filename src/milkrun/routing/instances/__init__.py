"""Instances of the literature: TSPLIB, CVRPLIB, VRPLIB, OPLib, Solomon, Cordeau, Li and Lim.

Read, play, check and write.

instance = read("A-n32-k5.vrp")
world = instance.world(repeat=64)
cost, valid, reason = replay(instance, read_solution("A-n32-k5.sol"))
"""

from __future__ import annotations

import dataclasses
import logging
import os
from pathlib import Path

from milkrun.core.errors import ConfigError, FormatError
from milkrun.routing.instances import cordeau, lilim, mdvrp, solomon, tsplib
from milkrun.routing.instances.darp import DARPInstance
from milkrun.routing.instances.instance import Instance
from milkrun.routing.instances.replay import replay, solution_of
from milkrun.routing.instances.solutions import Solution, read_solution, write_solution
from milkrun.routing.instances.text import Text
from milkrun.routing.instances.write import write

SOLUTION_ENDINGS = (".sol", ".opt.tour", ".res")


def read(path: str | os.PathLike[str], fleet: str | None = None) -> Instance | DARPInstance:
    """The `Instance` in a file; for Cordeau's dial-a-ride files the `DARPInstance`.

    `fleet` says whether the stated number of vehicles is a limit: `enforce` or `ignore`. By default it is one in files
    with several depots or mixed fleets. If the file states no best value, that of a solution file next to it
    (`X.sol`, `X.opt.tour`, `X.res`) is used.
    """
    text = Text.load(path)
    if cordeau.looks_like(text):
        if fleet not in (None, "enforce"):
            raise ConfigError(f"fleet is {fleet!r}: the fleet of a dial-a-ride file is a limit")
        return cordeau.parse(text)
    instance = next((kind for kind in (solomon, lilim, mdvrp) if kind.looks_like(text)), tsplib).parse(text)
    if fleet is not None:
        instance = instance.with_fleet(fleet)
    if instance.best is not None:
        return instance
    path = text.file
    solutions = (Path(path).with_name(Path(path).stem + ending) for ending in SOLUTION_ENDINGS)
    best = next((_cost_in(p) for p in solutions if p.is_file()), None)
    return dataclasses.replace(instance, best=None if best is None else instance.in_units(best))


def _cost_in(path: Path) -> float | None:
    """The cost in a solution file; errors in it are logged and do not refuse the instance."""
    try:
        return read_solution(path).cost
    except FormatError as e:
        logging.getLogger("milkrun").warning("the best known value is not read: %s", e)
        return None


__all__ = [
    "DARPInstance",
    "Instance",
    "Solution",
    "cordeau",
    "read",
    "read_solution",
    "replay",
    "solution_of",
    "write",
    "write_solution",
]
