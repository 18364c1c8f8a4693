"""Instances of the literature: files of TSPLIB, CVRPLIB, Solomon and Cordeau, read, played, checked and written.

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

BESIDE = (".sol", ".opt.tour")


def read(path: str | os.PathLike[str]) -> Instance | DARPInstance:
    """The `Instance` in a file, of Cordeau's dial-a-ride files the `DARPInstance`.

    Where an instance names no best value, the solution beside it (`X.sol`, `X.opt.tour`) may.
    """
    text = Text.load(path)
    if cordeau.looks_like(text):
        return cordeau.parse(text)
    instance = solomon.parse(text) if solomon.looks_like(text) else tsplib.parse(text)
    if instance.best is not None:
        return instance
    path = text.file
    beside = (Path(path).with_name(Path(path).stem + ending) for ending in BESIDE)
    best = next((_cost_in(p) for p in beside if p.is_file()), None)
    return dataclasses.replace(instance, best=best)


def _cost_in(path: Path) -> float | None:
    """What a solution file says it costs; an instance is not refused for what lies beside it."""
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
