"""Cordeau's format: dial-a-ride problems as `K n T Q L` over a table `id x y service load open close`.

In a file of n requests, 0 and 2n+1 are the depot, i is a pickup and n+i its dropoff; here they become the nodes 2i-1
and 2i. Distances are Euclidean and a unit of distance takes a unit of time. Common variants are read too: the first
line counts nodes instead of requests, the last depot is missing, or the depots have different windows."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from milkrun.core.errors import ConfigError
from milkrun.core.files import REAL, write_bytes
from milkrun.routing.instances.darp import MOST as FARTHEST
from milkrun.routing.instances.darp import DARPInstance
from milkrun.routing.instances.text import Line, Text
from milkrun.routing.instances.tsplib import MAX_NODES, MOST

HEAD = 5  # vehicles, requests, route duration, capacity, ride time
COLUMNS = 7  # id, x, y, service, load, open, close
MAX_REQUESTS = (MAX_NODES - 1) // 2
Row = tuple[int, list[float]]  # line number; x, y, service, load, open, close


def looks_like(text: Text) -> bool:
    """True if the first line that is not blank has five numbers."""
    first = next(iter(text.filled()), None)
    return first is not None and len(first.words) == HEAD and all(REAL.fullmatch(w) for w in first.words)


def load(path: str | os.PathLike[str]) -> DARPInstance:
    """The instance in a file, named after it. A request that no vehicle can serve even alone is refused."""
    return parse(Text.load(path))


def load_dir(path: str | os.PathLike[str]) -> list[DARPInstance]:
    """The instances of all `.txt` files of a folder, by name."""
    return [load(file) for file in sorted(Path(path).glob("*.txt"), key=lambda file: file.name)]


def save(instance: DARPInstance, path: str | os.PathLike[str]) -> None:
    """Writes a file from which `load` returns an equal instance, or refuses the instance."""
    name, limits = instance.name, instance.max_ride_time
    if instance.dist is not None:
        raise ConfigError(f"{name}: the format has no matrix of distances")
    if len(set(instance.capacity.tolist())) > 1:
        raise ConfigError(f"{name}: the format has one capacity for all vehicles, not {instance.capacity.tolist()}")
    if len(set(limits.tolist())) > 1:
        raise ConfigError(f"{name}: the format has one ride time for all requests, not {limits.min()}..{limits.max()}")
    times = [instance.max_route_duration, *limits, *instance.time_windows]
    if not np.isfinite(times).all():
        raise ConfigError(f"{name}: the format has no infinite time")
    raw = "".join(f"{line}\n" for line in _lines(instance)).encode()
    if parse(Text(os.fspath(path), raw)) != instance:
        raise ConfigError(f"{name}: the format has three decimals; with these numbers it would be another instance")
    write_bytes(path, raw)


def parse(text: Text) -> DARPInstance:
    """The instance in a text."""
    lines = list(text.filled())
    if not lines:
        raise text.fault(None, None, "the file is empty")
    head = lines[0]
    if len(head.words) != HEAD:
        raise text.fault(head.number, None, f"{len(head.words)} words; the first line has {HEAD}: K n T Q L")
    vehicles = text.whole(head.words[0], head.number, None, 1, MAX_NODES)
    counted = text.whole(head.words[1], head.number, None, 1, 2 * MAX_REQUESTS)
    duration, limit = (_positive(text, head.words[k], head.number) for k in (2, 4))
    capacity = text.whole(head.words[3], head.number, None, 1, MOST)
    n = _requests(text, counted, lines)
    rows = _rows(text, lines[1:])
    start, end = rows[0], rows.get(2 * n + 1, rows[0])
    _check_depots(text, start, end)
    _check_loads(text, rows, n)
    # The depot at the end of the day: its window closes no later than at the start, so it is the tighter one.
    table = np.array([end[1]] + [rows[k][1] for i in range(1, n + 1) for k in (i, n + i)])
    instance = DARPInstance(
        name=Path(text.file).stem,
        locs=table[:, :2].astype(np.float32),
        demand=table[:, 3].astype(np.int64),
        capacity=np.full(vehicles, capacity),
        time_windows=table[:, 5],
        window_open=table[:, 4],
        service_time=table[:, 2],
        max_ride_time=np.full(n, limit),
        max_route_duration=duration,
    )
    for r, kind in instance.unservable().items():
        raise text.fault(rows[r + 1][0], None, f"request {r + 1} cannot be served even alone: {kind}")
    return instance


def _requests(text: Text, counted: int, lines: list[Line]) -> int:
    """The number of requests: the first line counts them or their nodes, and the last depot may be missing."""
    below = len(lines) - 1
    for n in (counted, counted // 2):
        # An odd count cannot be a count of nodes.
        if n in (counted, counted / 2) and below in (2 * n + 1, 2 * n + 2):
            return n
    raise text.fault(
        lines[-1].number,
        None,
        f"{below} lines below the first, where {counted} requests have "
        f"{2 * counted + 2} and {counted} nodes have {counted + 2}, or one less",
    )


def _rows(text: Text, lines: list[Line]) -> dict[int, Row]:
    rows: dict[int, Row] = {}
    for line in lines:
        at = line.number
        if len(line.words) != COLUMNS:
            raise text.fault(at, None, f"{len(line.words)} words; a line has {COLUMNS}: id x y service load open close")
        node = text.whole(line.words[0], at, None, 0, len(lines) - 1)
        if node in rows:
            raise text.fault(at, None, f"node {node} is also in line {rows[node][0]}")
        x, y, service, _, opens, closes = (text.real(word, at, None) for word in line.words[1:])
        load = text.whole(line.words[4], at, None, -MOST, MOST)
        for word, value in zip(line.words[1:6], (x, y, service, 0.0, opens), strict=True):
            if abs(value) > FARTHEST:
                raise text.fault(at, None, f"{word} is too large: at most {FARTHEST:g}")
        if service < 0:
            raise text.fault(at, None, f"service time {line.words[3]} is below 0")
        if closes < opens:
            raise text.fault(at, None, f"the window closes at {line.words[6]}, before it opens at {line.words[5]}")
        rows[node] = at, [x, y, service, load, opens, closes]
    return rows


def _check_depots(text: Text, start: Row, end: Row) -> None:
    for at, (_, _, service, load, _, closes) in (start, end):
        if service or load:
            raise text.fault(at, None, f"the depot has service time {service:g} and load {load:g}, both must be 0")
        if closes > FARTHEST:
            raise text.fault(at, None, f"the day ends at {closes:g}: at most {FARTHEST:g}")
    at, there = end
    if there[:2] != start[1][:2]:
        raise text.fault(at, None, f"the day ends at {there[:2]}, but starts at {start[1][:2]} (line {start[0]})")
    if there[4] != start[1][4] or there[5] > start[1][5]:
        raise text.fault(
            at,
            None,
            f"the depot's window is {there[4:]} at the end and {start[1][4:]} at the start "
            f"(line {start[0]}); both must open alike and the end must close no later",
        )


def _check_loads(text: Text, rows: dict[int, Row], n: int) -> None:
    for i in range(1, n + 1):
        (at, pickup), (below, dropoff) = rows[i], rows[n + i]
        if pickup[3] < 1:
            raise text.fault(at, None, f"pickup {i} has load {pickup[3]:g}, at least 1 is allowed")
        if dropoff[3] != -pickup[3]:
            raise text.fault(
                below,
                None,
                f"dropoff {n + i} has load {dropoff[3]:g}, not the negative of {pickup[3]:g} at its pickup (line {at})",
            )


def _positive(text: Text, word: str, line: int) -> float:
    value = text.real(word, line, None)
    if value <= 0:
        raise text.fault(line, None, f"{word} is not above 0")
    return value


def _lines(instance: DARPInstance) -> list[str]:
    n = instance.num_requests
    duration, limit = _time(instance.max_route_duration), _time(float(instance.max_ride_time[0]))
    nodes = [0, *range(1, 2 * n, 2), *range(2, 2 * n + 1, 2), 0]
    lines = [f"{instance.num_agents} {n} {duration} {instance.capacity[0]} {limit}"]
    for k, node in enumerate(nodes):
        x, y = instance.locs[node].tolist()
        service, opens, closes = (
            _time(float(times[node])) for times in (instance.service_time, instance.window_open, instance.time_windows)
        )
        lines.append(f"{k:3d} {x:7.3f} {y:7.3f} {service:>3} {instance.demand[node]:3d} {opens:>4} {closes:>4}")
    return lines


def _time(value: float) -> str:
    return str(int(value)) if value == int(value) else f"{value:.3f}"
