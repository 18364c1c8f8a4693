"""Given instances of vehicle routing: the values of absent fields, validation, and the reasons of masked actions.

`servable` computes in numpy, for all depots and customers at once, what the kernel `serves_alone` computes for one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from milkrun.core.errors import BadInstance
from milkrun.core.instances import refuse_where
from milkrun.routing.distance import METRICS, TOL, legs

RULES = (
    "may not serve it",
    "holds less",
    "arrives late",
    "is back late",
    "would drive too far",
    "would be under way too long",
)
MOST_VEHICLES = 2**30

PER_DEPOT = ("capacity", "vehicles", "distance_limit", "duration_limit", "fixed_cost", "distance_cost")


def number_of_depots(given: Mapping[str, np.ndarray], num_loc: int) -> dict[str, int]:
    """The options `num_depots` and `num_loc` of instances (B, ...), which have `num_loc` customers with one depot."""
    widths = [given[name].shape[1] for name in PER_DEPOT if name in given and given[name].ndim == 2]
    if "depot" in given and given["depot"].ndim == 3:
        widths.append(given["depot"].shape[1])
    depots = max(widths, default=1)
    nodes = num_loc + ("depot" not in given or "dist" in given)
    joined = "depot" in given and "dist" not in given
    return {"num_depots": depots, "num_loc": nodes if joined else nodes - depots}


def complete(world: Any, values: dict[str, Any]) -> dict[str, Any]:
    """Adds the fields that are absent: no limit, one kind of vehicle, everything open."""
    sizes, config = world.sizes, world.config
    rows, depots, nodes = len(values["n_nodes"]), sizes["depots"], sizes["N"]
    widen(values, rows, depots)
    given_fleet = "vehicles" in values
    absent: dict[str, tuple[Any, Any]] = {
        "n_depots": (np.int32, depots),
        "linehaul": (np.int32, 0),
        "capacity": (np.int32, config.truck),
        "vehicles": (np.int32, config.fleet),
        **absent_options(sizes),
    }
    if sizes["pickups"]:
        absent |= {"backhaul": (np.int32, 0), "backhaul_class": (np.int32, 1)}
    if sizes["restrictions"]:
        absent |= {"serves": (np.int64, 2**depots - 1)}
    fill_absent(world, values, absent)
    if sizes["parts"] and config.vehicles is None and not given_fleet and is_readable(world, values):
        # Each route serves a customer to the end or is full.
        full = values["linehaul"].astype(np.int64).sum(axis=1) // np.maximum(values["capacity"].min(axis=1), 1)
        most = np.minimum(config.num_loc + full, MOST_VEHICLES)
        values["vehicles"] = np.repeat(most[:, None], depots, axis=1).astype(np.int32)
    values["has_clock"] = has_clock(values, rows)
    if sizes["choices"]:
        values["alone"] = np.zeros((rows, nodes), np.int64)
        if is_readable(world, values):
            able = servable(world, values)[0].astype(np.int64)
            values["alone"] = (able << np.arange(depots)[:, None]).sum(axis=1)
    return values


def widen(values: dict[str, Any], rows: int, depots: int) -> None:
    """Repeats fields with one number for all depots."""
    for name in PER_DEPOT:
        array = values.get(name)
        if array is not None and array.shape in ((rows,), (rows, 1)):
            values[name] = np.repeat(array.reshape(rows, 1), depots, axis=1)


def absent_options(sizes: Mapping[str, int]) -> dict[str, tuple[Any, Any]]:
    """Type and value of absent fields of limits, costs and times: no limit, one kind of vehicle, no time of a stop."""
    absent: dict[str, tuple[Any, Any]] = {"open_route": (bool, False)}
    if sizes["limited"]:
        absent |= {"distance_limit": (np.float32, math.inf), "duration_limit": (np.float32, math.inf)}
    if sizes["priced"]:
        absent |= {"fixed_cost": (np.float32, 0.0), "distance_cost": (np.float32, 1.0)}
    if sizes["clock"]:
        absent |= {"service_time": (np.float32, 0.0), "speed": (np.float32, 1.0)}
    return absent


def fill_absent(world: Any, values: dict[str, Any], absent: Mapping[str, tuple[Any, Any]]) -> None:
    """Adds absent fields, and absent windows."""
    rows, sizes = len(values["n_nodes"]), world.sizes
    for name, (dtype, value) in absent.items():
        shape = (rows, *world.fields[name].shape(sizes))
        given = values.get(name)
        if given is None:
            values[name] = np.full(shape, value, dtype)
            if name == "serves":
                values[name][:, : sizes["depots"]] = 0
        elif given.size == rows and given.shape != shape and math.prod(shape) == rows:
            values[name] = given.reshape(shape)
    if sizes["timed"] and "time_windows" not in values:
        values["time_windows"] = np.full((rows, sizes["N"], 2), (0.0, math.inf), np.float32)


def has_clock(values: Mapping[str, Any], rows: int) -> np.ndarray:
    """(rows,) whether some window of a row is finite."""
    windows = values.get("time_windows")
    if windows is None or windows.ndim != 3 or windows.shape[2] != 2 or windows.dtype.kind not in "fiu":
        return np.zeros(rows, bool)
    found: np.ndarray = (np.isfinite(windows[..., 1]) | (windows[..., 0] > 0)).any(axis=1)
    return found


def is_readable(world: Any, values: Mapping[str, Any]) -> bool:
    """Whether all fields have their shape and hold numbers; others are refused by name later."""
    rows, known = len(values["n_nodes"]), [name for name in values if name in world.fields]
    return all(
        values[name].shape == (rows, *world.fields[name].shape(world.sizes))
        and values[name].dtype.kind in ("iu" if name == "serves" else "biuf")
        for name in known
    )


def check(world: Any, arrays: dict[str, np.ndarray]) -> None:
    """Raises BadInstance for what no declaration expresses."""
    sizes = world.sizes
    depots, nodes = sizes["depots"], np.arange(sizes["N"])
    is_depot, real = nodes < depots, nodes < arrays["n_nodes"][:, None]
    refuse_where("n_nodes", arrays["n_nodes"], arrays["n_nodes"] <= depots, "leaves no customer")
    for name in ("linehaul", "backhaul", "service_time", "serves"):
        if name in arrays and arrays[name].size:
            refuse_where(name, arrays[name], is_depot & (arrays[name] != 0), "a depot has none")
    if sizes["pickups"]:
        both = (arrays["linehaul"] > 0) & (arrays["backhaul"] > 0) & (arrays["backhaul_class"] == 1)
        refuse_where("backhaul", arrays["backhaul"], both, "under class 1 a customer has no linehaul and backhaul")
    check_times(world, arrays)
    if sizes["restrictions"]:
        refuse_where("serves", arrays["serves"], arrays["serves"] >> depots != 0, "names a depot that does not exist")
    able, broken = servable(world, arrays)
    stranded = real & ~is_depot & ~able.any(axis=1)
    if stranded.any():
        row, j = (int(k) for k in np.argwhere(stranded)[0])
        k = int(broken[row, :, j].argmax())
        raise BadInstance(
            f"row {row}: customer {j} can be served alone from no depot: a vehicle of depot {k} "
            f"{RULES[broken[row, k, j] - 1] if broken[row, k, j] else 'does not exist'}"
        )
    if sizes["choices"]:
        bits = (able.astype(np.int64) << np.arange(depots)[:, None]).sum(axis=1)
        refuse_where("alone", arrays["alone"], arrays["alone"] != bits, "is derived from the other fields")


def check_times(world: Any, arrays: Mapping[str, np.ndarray]) -> None:
    """Raises BadInstance for windows that close before they open, and a speed of 0."""
    sizes, real = world.sizes, np.arange(world.sizes["N"]) < arrays["n_nodes"][:, None]
    if sizes["timed"]:
        opens, closes = arrays["time_windows"][..., 0], arrays["time_windows"][..., 1]
        refuse_where("time_windows", closes, (opens > closes) & real, "the window closes before it opens")
        refuse_where("time_windows", opens, ~np.isfinite(opens), "must be finite")
    if sizes["clock"]:
        refuse_where("speed", arrays["speed"], arrays["speed"] <= 0, "must be above 0")


def servable(world: Any, arrays: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """(Q, depots, N): whether a vehicle of a depot can serve a customer alone, and the first rule that it breaks, from
    1; 0 for customers that are served and depots that do not exist."""
    sizes = world.sizes
    depots, nodes = sizes["depots"], np.arange(sizes["N"])
    exists = (np.arange(depots) < arrays["n_depots"][:, None]) & (arrays["vehicles"] > 0)
    wanted = (nodes >= depots) & (nodes < arrays["n_nodes"][:, None])
    way, home = ways(world, arrays)
    home = np.where(arrays["open_route"][:, None, None], 0.0, home)
    capacity = arrays["capacity"][:, :, None]
    broken = []
    if sizes["restrictions"]:
        broken.append((0, (arrays["serves"][:, None, :] >> np.arange(depots)[:, None]) & 1 == 0))
    heavy = np.zeros(way.shape, bool) if sizes["parts"] else arrays["linehaul"][:, None] > capacity
    broken.append((1, heavy | (arrays["backhaul"][:, None] > capacity if sizes["pickups"] else False)))
    if sizes["clock"]:
        speed = arrays["speed"].astype(np.float64)[:, :, None]
        service = arrays["service_time"].astype(np.float64)[:, None]
        opens = closes = None
        if sizes["timed"]:
            opens, closes = np.moveaxis(arrays["time_windows"].astype(np.float64), 2, 0)
        offset = way / speed
        latest = np.full((len(way), depots, 1), math.inf) if closes is None else closes[:, :depots, None]
        if opens is not None and closes is not None:
            arrival = opens[:, :depots, None] + offset
            ready = np.maximum(arrival, opens[:, None]) + service
            broken.append((2, ~fits(arrival, closes[:, None])))
            returns = ~fits(ready + home / speed, latest)
            broken.append((3, returns & ~arrays["open_route"][:, None, None]))
        if sizes["limited"]:
            waits = 0.0 if opens is None else np.maximum(0.0, opens[:, None] - offset - latest)
            broken.append((4, ~fits(way + home, arrays["distance_limit"].astype(np.float64)[:, :, None])))
            duration = offset + waits + service + home / speed
            broken.append((5, ~fits(duration, arrays["duration_limit"].astype(np.float64)[:, :, None])))
    able = exists[:, :, None] & wanted[:, None]
    first = np.zeros(way.shape, np.int8)
    for number, wrong in reversed(broken):
        first[wrong] = number + 1
    for _, wrong in broken:
        able &= ~wrong
    return able, np.where(exists[:, :, None], first, 0)


def fits(x: Any, limit: Any) -> Any:
    """`fits` of routing/distance.py for whole arrays."""
    return x <= limit + np.minimum(0.5, TOL * np.maximum(1.0, np.abs(limit)))


def ways(world: Any, arrays: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """(Q, depots, N): distances from each depot to all nodes, and back."""
    depots = world.sizes["depots"]
    if world.sizes["M"]:
        dist = arrays["dist"].astype(np.float64)
        return dist[:, :depots], np.swapaxes(dist[:, :, :depots], 1, 2)
    x, y = np.moveaxis(arrays["locs"].astype(np.float64), 2, 0)
    metric = METRICS.index(world.config.metric)
    way = legs(metric, x[:, :depots, None], y[:, :depots, None], x[:, None], y[:, None])
    return way, way


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
    k = int(world.current_depot[row])
    if world.sizes["restrictions"] and not world.serves[q, action] >> k & 1:
        return f"depot {k} may not serve it"
    room = int(world.capacity[q, k])
    if world.sizes["parts"]:
        if world.delivered[row] >= room and world.linehaul[q, action] > 0:
            return f"load {world.delivered[row]} of {room}: the vehicle is empty"
    elif world.peak[row] + world.linehaul[q, action] > room:
        return f"load {world.peak[row]} + {world.linehaul[q, action]} > {room}"
    if world.sizes["pickups"]:
        back = int(world.backhaul[q, action])
        if world.picked[row] + back > room:
            return f"load {world.picked[row]} + {back} > {room}"
        if world.backhaul_class[q, 0] == 1 and world.linehaul[q, action] > 0 and world.picked[row] > 0:
            return "linehaul after backhaul"
        begins = world.linehaul[q, action] > 0 or back == 0
        if not begins and not world.config.backhaul_only and world.delivered[row] == 0:
            return "a route begins with a linehaul while one is unserved"
    return _why_not_in_time(world, row, q, k, action)


def _why_no_depot(world: Any, row: int, q: int, k: int) -> str:
    if k >= world.n_depots[q]:
        return f"no depot: there are {world.n_depots[q]}"
    if world.has_vehicle[row] and world.current_node[row] < world.sizes["depots"]:
        return "the vehicle is at its depot"
    if world.vehicles_left[row, k] == 0:
        return "no vehicle left there"
    if world.unserved[row] == 0:
        return f"all are served: the vehicle returns to depot {world.current_depot[row]}"
    return "no unserved customer needs a vehicle from there now"


def _why_not_in_time(world: Any, row: int, q: int, k: int, j: int) -> str:
    way = leg(world, q, int(world.current_node[row]), j)
    home = 0.0 if world.open_route[q] else leg(world, q, j, k)
    if world.sizes["clock"]:
        speed, service = float(world.speed[q, 0]), float(world.service_time[q, j])
    if world.sizes["timed"]:
        opens, closes = (float(x) for x in world.time_windows[q, j])
        arrival = float(world.current_time[row, 0]) + way / speed
        if not fits(arrival, closes):
            return f"late: arrives {arrival:.6g}, closes {closes:.6g}"
        back, day = max(arrival, opens) + service + home / speed, float(world.time_windows[q, k, 1])
        if not world.open_route[q] and not fits(back, day):
            return f"late home: returns {back:.6g}, closes {day:.6g}"
    if world.sizes["limited"]:
        far, limit = float(world.route_length[row]) + way + home, float(world.distance_limit[q, k])
        if not fits(far, limit):
            return f"too far: {far:.6g} > {limit:.6g}"
        return f"too long: the route would take more than {float(world.duration_limit[q, k]):.6g}"
    return "closed"


def leg(world: Any, q: int, i: int, j: int) -> float:
    """The distance between two nodes of an instance."""
    if world.sizes["M"]:
        return float(world.dist[q, i, j])
    (x1, y1), (x2, y2) = world.locs[q, [i, j]].astype(np.float64)
    return float(legs(METRICS.index(world.config.metric), x1, y1, x2, y2))
