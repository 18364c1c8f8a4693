"""Given pickups and deliveries: the values of absent fields, validation, and the reasons of masked actions.

`servable` computes in numpy, for all depots and pairs at once, what the kernel `serves_alone` computes for one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from milkrun.core.errors import BadInstance
from milkrun.core.instances import refuse_where
from milkrun.routing.distance import METRICS, legs
from milkrun.routing.vrp.instances import (
    absent_options,
    check_times,
    fill_absent,
    fits,
    has_clock,
    is_readable,
    leg,
    widen,
)

RULES = (
    "holds less",
    "arrives late at the pickup",
    "arrives late at the delivery",
    "is back late",
    "would drive too far",
    "would be under way too long",
)


def complete(world: Any, values: dict[str, Any]) -> dict[str, Any]:
    """Adds the fields that are absent: pairs of one unit, no limit, one kind of vehicle."""
    sizes, config = world.sizes, world.config
    rows, depots = len(values["n_nodes"]), sizes["depots"]
    widen(values, rows, depots)
    absent: dict[str, tuple[Any, Any]] = {
        "n_depots": (np.int32, depots),
        "capacity": (np.int32, config.truck),
        "vehicles": (np.int32, config.vehicles),
        **absent_options(sizes),
    }
    if "demand" not in values:
        values["demand"] = np.where(is_pickup(world, values), 1, 0) - is_delivery(world, values)
    fill_absent(world, values, absent)
    values["has_clock"] = has_clock(values, rows)
    if sizes["choices"]:
        values["alone"] = np.zeros((rows, sizes["N"]), np.int64)
        if is_readable(world, values):
            values["alone"] = bits_of(servable(world, values)[0])
    return values


def is_pickup(world: Any, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """(Q, N) True at pickups."""
    node, depots = np.arange(world.sizes["N"]), world.sizes["depots"]
    pairs = (arrays["n_nodes"][:, None] - depots) // 2
    found: np.ndarray = (node >= depots) & (node < depots + pairs)
    return found


def is_delivery(world: Any, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """(Q, N) True at deliveries."""
    node, depots = np.arange(world.sizes["N"]), world.sizes["depots"]
    pairs = (arrays["n_nodes"][:, None] - depots) // 2
    found: np.ndarray = (node >= depots + pairs) & (node < depots + 2 * pairs)
    return found


def partner(world: Any, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """(Q, N) the other node of each pair; other nodes are their own."""
    pairs = (arrays["n_nodes"][:, None] - world.sizes["depots"]) // 2
    step = is_pickup(world, arrays).astype(np.int64) - is_delivery(world, arrays)
    found: np.ndarray = np.arange(world.sizes["N"]) + step * pairs
    return found


def bits_of(able: np.ndarray) -> np.ndarray:
    """(Q, N) a bit for each depot of (Q, depots, N)."""
    found: np.ndarray = (able.astype(np.int64) << np.arange(able.shape[1])[:, None]).sum(axis=1)
    return found


def check(world: Any, arrays: dict[str, np.ndarray]) -> None:
    """Raises BadInstance for what no declaration expresses."""
    sizes = world.sizes
    depots, nodes, demand = sizes["depots"], np.arange(sizes["N"]), arrays["demand"]
    count = arrays["n_nodes"] - depots
    refuse_where("n_nodes", arrays["n_nodes"], count <= 0, "leaves no pair")
    refuse_where("n_nodes", arrays["n_nodes"], count % 2 != 0, "leaves a pickup without delivery")
    for name in ("demand", "service_time"):
        if name in arrays and arrays[name].size:
            refuse_where(name, arrays[name], (nodes < depots) & (arrays[name] != 0), "a depot has none")
    pickup, other = is_pickup(world, arrays), partner(world, arrays)
    refuse_where("demand", demand, pickup & (demand <= 0), "a pickup loads at least one unit")
    unequal = pickup & (demand + np.take_along_axis(demand, other, axis=1) != 0)
    refuse_where("demand", demand, unequal, "the delivery must unload what its pickup loads")
    check_times(world, arrays)
    able, broken = servable(world, arrays)
    stranded = pickup & ~able.any(axis=1)
    if stranded.any():
        row, j = (int(k) for k in np.argwhere(stranded)[0])
        k = int(broken[row, :, j].argmax())
        raise BadInstance(
            f"row {row}: pickup {j} and delivery {other[row, j]} can be served alone from no depot: a vehicle of depot "
            f"{k} {RULES[broken[row, k, j] - 1] if broken[row, k, j] else 'does not exist'}"
        )
    if sizes["choices"]:
        refuse_where("alone", arrays["alone"], arrays["alone"] != bits_of(able), "is derived from the other fields")


def servable(world: Any, arrays: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """(Q, depots, N): whether a vehicle of a depot can serve the pair of a node alone, and the first rule that it
    breaks, from 1; 0 for nodes that are served and depots that do not exist."""
    sizes = world.sizes
    depots = sizes["depots"]
    pickup, delivery, other = is_pickup(world, arrays), is_delivery(world, arrays), partner(world, arrays)
    first = np.where(delivery, other, np.arange(sizes["N"]))[:, None]  # of the pair of each node
    last = np.where(pickup, other, np.arange(sizes["N"]))[:, None]
    exists = (np.arange(depots) < arrays["n_depots"][:, None]) & (arrays["vehicles"] > 0)

    def at(values: np.ndarray, node: np.ndarray) -> np.ndarray:
        """(Q, 1, N) values of the nodes."""
        found: np.ndarray = np.take_along_axis(values.astype(np.float64)[:, None], node, axis=2)
        return found

    broken = [at(arrays["demand"], first) > arrays["capacity"][:, :, None]]
    if sizes["clock"]:
        depot = np.arange(depots)[None, :, None]
        is_open = arrays["open_route"][:, None, None]
        ways = [_ways(world, arrays, a, b) for a, b in ((depot, first), (first, last), (last, depot))]
        ways[2] = np.where(is_open, 0.0, ways[2])
        speed = arrays["speed"].astype(np.float64)[:, :, None]
        service = arrays["service_time"]
        opens = closes = np.zeros(service.shape)
        if sizes["timed"]:
            opens, closes = np.moveaxis(arrays["time_windows"].astype(np.float64), 2, 0)
        else:
            closes = np.full(service.shape, math.inf)
        early, late = opens[:, :depots, None], closes[:, :depots, None]
        passed: Any = 0.0
        for way, node in ((ways[0], first), (ways[1], last)):
            offset = passed + way / speed
            # `serve` in routes.py
            broken.append(~fits(early + offset, at(closes, node)))
            wait = np.maximum(0.0, at(opens, node) - offset - late)
            early = np.maximum(at(opens, node) - offset, early) - wait
            late = np.minimum(at(closes, node) - offset, late)
            passed = offset + wait + at(service, node)
        passed = passed + ways[2] / speed
        broken.append(~fits(early + passed, closes[:, :depots, None]) & ~is_open)
        if sizes["limited"]:
            limits = arrays["distance_limit"], arrays["duration_limit"]
            distance, duration = (limit.astype(np.float64)[:, :, None] for limit in limits)
            broken.append(~fits(sum(ways), distance))
            broken.append(~fits(passed, duration))
    shape = (len(first), depots, sizes["N"])
    able = np.broadcast_to(exists[:, :, None] & (pickup | delivery)[:, None], shape).copy()
    number = np.zeros(shape, np.int8)
    for k in reversed(range(len(broken))):
        wrong = np.broadcast_to(broken[k], shape)
        number[wrong] = k + 1
        able &= ~wrong
    return able, np.where(exists[:, :, None], number, 0)


def _ways(world: Any, arrays: Mapping[str, np.ndarray], a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Distances from nodes a to nodes b, each (Q or 1, depots or 1, N or 1)."""
    row = np.arange(len(arrays["n_nodes"]))[:, None, None]
    if world.sizes["M"]:
        found: np.ndarray = arrays["dist"][row, a, b].astype(np.float64)
        return found
    x, y = np.moveaxis(arrays["locs"].astype(np.float64), 2, 0)
    way: np.ndarray = legs(METRICS.index(world.config.metric), x[row, a], y[row, a], x[row, b], y[row, b])
    return way


# -- reasons ----------------------------------------------------------------------------------------------------------


def why_illegal(world: Any, row: int, action: int) -> str:
    """The first reason why a masked action is closed, with numbers."""
    q, depots = int(world.instance_row[row]), world.sizes["depots"]
    if not 0 <= action < world.n_nodes[q]:
        return f"out of range 0..{world.n_nodes[q] - 1}"
    if action < depots:
        return _why_no_depot(world, row, q, action)
    if not world.has_vehicle[row]:
        return "no vehicle: choose a depot first"
    if world.visited[row, action]:
        return "visited"
    k, pairs = int(world.current_depot[row]), (int(world.n_nodes[q]) - depots) // 2
    if action >= depots + pairs and not world.aboard[row, action]:
        return f"its pickup {action - pairs} is not visited"
    load, amount, room = int(world.load[row]), int(world.demand[q, action]), int(world.capacity[q, k])
    if load + amount > room:
        return f"load {load} + {amount} > {room}"
    return _why_not_in_time(world, row, q, k, action)


def _why_no_depot(world: Any, row: int, q: int, k: int) -> str:
    if k >= world.n_depots[q]:
        return f"no depot: there are {world.n_depots[q]}"
    if world.has_vehicle[row] and world.current_node[row] < world.sizes["depots"]:
        return "the vehicle is at its depot"
    if world.aboard[row].any():
        return f"the goods of delivery {int(world.aboard[row].argmax())} are aboard"
    if world.unserved[row] == 0:
        return f"all are served: the vehicle returns to depot {world.current_depot[row]}"
    if world.vehicles_left[row, k] == 0:
        return "no vehicle left there"
    return "no unserved pair needs a vehicle from there now"


def _why_not_in_time(world: Any, row: int, q: int, k: int, j: int) -> str:
    """Of nodes that the search closes: their own window, a delivery that would be late, or no order at all."""
    here, pairs = int(world.current_node[row]), (int(world.n_nodes[q]) - world.sizes["depots"]) // 2
    speed = float(world.speed[q, 0])
    passed, early = float(world.route_duration[row, 0]), float(world.start_early[row, 0])
    opens, closes = (float(x) for x in world.time_windows[q, j]) if world.sizes["timed"] else (0.0, math.inf)
    offset = passed + leg(world, q, here, j) / speed
    if not fits(early + offset, closes):
        return f"late: arrives {early + offset:.6g}, closes {closes:.6g}"
    now = max(early + offset, opens) + float(world.service_time[q, j])
    aboard = set(np.flatnonzero(world.aboard[row]).tolist()) - {j}
    if j < world.sizes["depots"] + pairs:
        aboard.add(j + pairs)
    for d in sorted(aboard) if world.sizes["timed"] else ():
        if not fits(now + leg(world, q, j, d) / speed, float(world.time_windows[q, d, 1])):
            return f"would strand delivery {d}"
    if not aboard:
        return f"the vehicle would not be back at depot {k} in time or within its limits"
    return f"no order of the {len(aboard)} deliveries aboard was found that keeps all windows and limits"
