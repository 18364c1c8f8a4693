"""Instances of the literature in the formats of TSPLIB, CVRPLIB, Solomon and Cordeau: read, play, check and write.

instance = read("A-n32-k5.vrp")
world = instance.world(repeat=64)
cost, valid, reason = replay(instance, read_solution("A-n32-k5.sol"))
"""

from __future__ import annotations

import dataclasses
import logging
import os
from pathlib import Path

from milkrun.core.errors import FormatError
from milkrun.routing.instances import cordeau, solomon, tsplib
from milkrun.routing.instances.darp import DARPInstance
from milkrun.routing.instances.instance import Instance
from milkrun.routing.instances.replay import replay
from milkrun.routing.instances.solutions import Solution, read_solution, write_solution
from milkrun.routing.instances.text import Text
from milkrun.routing.instances.write import write

SOLUTION_ENDINGS = (".sol", ".opt.tour")


def read(path: str | os.PathLike[str]) -> Instance | DARPInstance:
    """The `Instance` in a file; for Cordeau's dial-a-ride files the `DARPInstance`.

    If the file states no best value, that of a solution file next to it (`X.sol`, `X.opt.tour`) is used.
    """
    text = Text.load(path)
    if cordeau.looks_like(text):
        return cordeau.parse(text)
    instance = solomon.parse(text) if solomon.looks_like(text) else tsplib.parse(text)
    if instance.best is not None:
        return instance
    path = text.file
    solutions = (Path(path).with_name(Path(path).stem + ending) for ending in SOLUTION_ENDINGS)
    best = next((_cost_in(p) for p in solutions if p.is_file()), None)
    return dataclasses.replace(instance, best=best)


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
    "write",
    "write_solution",
]
