"""Writes instances to files in TSPLIB's format, or Solomon's for CVRPTW; not those with several depots or fleets.

The text is parsed again before it is saved, so that a file always reads back as an equal instance.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any

import numpy as np

from milkrun.core.errors import ConfigError
from milkrun.core.files import as_written, write_bytes
from milkrun.routing.instances import solomon, tsplib
from milkrun.routing.instances.instance import Instance
from milkrun.routing.instances.text import Text

UNWRITTEN = ("MDVRP", "MDVRPTW", "HFVRP", "PDPTW", "OP")


def write(instance: Instance, path: str | os.PathLike[str]) -> None:
    """Writes a file from which `read` returns an equal instance, or refuses the instance."""
    if not isinstance(instance, Instance):
        raise ConfigError(f"write takes an Instance, not a {type(instance).__name__}")
    if instance.kind in UNWRITTEN:
        raise ConfigError(f"{instance.name}: {instance.kind} files are read, not written")
    lines = _solomon(instance) if instance.kind == "CVRPTW" else _tsplib(instance)
    raw = "".join(f"{line}\n" for line in lines).encode()
    text = Text(str(path), raw)
    again = solomon.parse(text) if instance.kind == "CVRPTW" else tsplib.parse(text)
    if again != dataclasses.replace(instance, in_world="", fleet=again.fleet):
        raise ConfigError(
            f"{instance.name}: a {instance.kind} file of that name cannot hold metric {instance.metric!r} "
            "with these fields: it would read back as another instance"
        )
    write_bytes(path, raw)


def _tsplib(instance: Instance) -> list[str]:
    fields, nodes = instance.fields, instance.n + int(instance.kind not in ("TSP", "ATSP"))
    head: dict[str, Any] = {"NAME": instance.name}
    if instance.best is not None:
        head["COMMENT"] = f"Best value: {as_written(instance.best)}"
    head |= {"TYPE": instance.kind, "DIMENSION": nodes, "EDGE_WEIGHT_TYPE": instance.edge}
    if instance.edge == "EXPLICIT":
        head["EDGE_WEIGHT_FORMAT"] = "FULL_MATRIX"
    if instance.vehicles is not None:
        head["VEHICLES"] = instance.vehicles
    if "capacity" in fields:
        head["CAPACITY"] = as_written(fields["capacity"])
    if instance.kind == "CVRP" and math.isfinite(fields["max_length"]):
        head["DISTANCE"] = as_written(fields["max_length"])
    if instance.service:
        head["SERVICE_TIME"] = as_written(instance.service)
    elif instance.kind == "PCVRPTW":
        head["SERVICE_TIME"] = from_tenths(fields["service_time"][-1])
    return [*(f"{key} : {value}" for key, value in head.items()), *_sections(instance), "EOF"]


def _sections(instance: Instance) -> Iterable[str]:
    fields = instance.fields
    if instance.edge == "EXPLICIT" and instance.dist is not None:
        yield from ["EDGE_WEIGHT_SECTION", *(" ".join(map(as_written, row)) for row in instance.dist)]
    if instance.locs is not None:
        yield from _table("DISPLAY_DATA" if instance.edge == "EXPLICIT" else "NODE_COORD", instance.locs)
    if instance.fixed_edges:
        yield from ["FIXED_EDGES_SECTION", *(f"{i + 1} {j + 1}" for i, j in instance.fixed_edges), "-1"]
    columns: dict[str, tuple[str, ...]] = {"DEMAND": ("demand_units", "weight", "linehaul"), "BACKHAUL": ("backhaul",)}
    if instance.kind == "VRPSPD":
        columns = {"LINEHAUL": ("linehaul",), "BACKHAUL": ("backhaul",)}
    for section, names in columns.items():
        for name in names:
            if name in fields:
                yield from _table(section, fields[name])
    if instance.kind == "PCVRPTW":
        yield from _table("TIME_WINDOW", fields["time_windows"], from_tenths)
        yield from _table("PRIZE", fields["prize"], from_tenths)
    if instance.kind not in ("TSP", "ATSP"):
        yield from ["DEPOT_SECTION", "1", "-1"]


def from_tenths(value: float) -> str:
    """A tenth of a number, as the decimal that `Text.tenths` converts back."""
    return format(Decimal(repr(float(value))).scaleb(-1).normalize(), "f")


def _table(section: str, values: np.ndarray, spelled: Callable[[float], str] = as_written) -> list[str]:
    rows = (" ".join(map(spelled, np.atleast_1d(row).tolist())) for row in values)
    return [f"{section}_SECTION", *(f"{k} {row}" for k, row in enumerate(rows, start=1))]


def _solomon(instance: Instance) -> list[str]:
    fields, locs = instance.fields, instance.locs
    if locs is None or instance.vehicles is None:
        raise ConfigError(f"{instance.name}: a Solomon file needs `locs` and `vehicles`")
    places = np.column_stack([np.arange(instance.n + 1), locs, fields["linehaul"]]).tolist()
    times = np.column_stack([fields["time_windows"], fields["service_time"]]).tolist()
    return [
        instance.name,
        "",
        "VEHICLE",
        "NUMBER CAPACITY",
        f"{instance.vehicles} {as_written(fields['capacity'])}",
        "",
        "CUSTOMER",
        "CUST NO. XCOORD. YCOORD. DEMAND READY TIME DUE DATE SERVICE TIME",
        "",
        *(" ".join([*map(as_written, at), *map(from_tenths, when)]) for at, when in zip(places, times, strict=True)),
    ]
