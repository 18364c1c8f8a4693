"""Replays plans action by action, for all rows of a batch at once: amounts, lengths and broken rules.

The checkers' model of a truck that chooses its customers: it leaves the depot, loads, returns, and with several trips
leaves again until a second 0 at the depot. The real amount at a customer may exceed the expected one; if it does not
fit, the service fails and the recourse rule applies.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from milkrun.routing.tasks.base import Faults, fits
from milkrun.routing.tasks.dataset import Bools, Dataset, Ints
from milkrun.routing.tasks.distances import Floats


@dataclass
class Windows:
    """The window of the start of service and its duration at each node (B, N), and the speed of the truck (B,)."""

    opens: Floats
    closes: Floats
    service: Floats
    speed: Floats


@dataclass
class Job:
    """The amounts at the customers and the limits of the truck. Arrays over nodes are (B, N), over rows (B,)."""

    gain: Floats  # collected by a service
    weight: Floats  # really loaded by a service
    expected: Floats  # the known part of `weight`; a failure reveals the real value
    capacity: Floats
    max_length: Floats
    single: bool
    round_trip: bool = False
    must_go: Bools | None = None
    reserve: bool = False
    windows: Windows | None = None
    keep_load: Callable[[Floats], Floats] = lambda x: x  # rounding of running sums after each stop
    keep_way: Callable[[Floats], Floats] = lambda x: x
    where: str = ""  # prefix of every fault


@dataclass
class Journey:
    """The result. A row that breaks a rule stops there."""

    collected: Floats
    length: Floats
    failures: Ints
    visited: Bools
    stops: list[Ints] = field(default_factory=list)  # columns (B,) of nodes in the order driven, -1 where none

    def nodes(self) -> Ints:
        """The nodes visited, returns included, (B, M) padded with 0."""
        stops = np.stack(self.stops, axis=1)
        keep = stops >= 0
        nodes = np.zeros((len(stops), int(keep.sum(axis=1).max(initial=0))), np.int64)
        # The running count of kept stops is the column of each in its row.
        nodes[np.nonzero(keep)[0], (np.cumsum(keep, axis=1) - 1)[keep]] = stops[keep]
        return nodes


@dataclass
class Truck:
    """The position, load and trip so far of each row's truck; all (B,). Trips count from 1."""

    here: Ints
    trip: Ints
    load: Floats
    length: Floats  # rounded only when another customer follows, as is the clock
    clock: Floats
    owed: Floats  # the room reserved for unserved must-go customers


def drive(data: Dataset, plan: Ints, faults: Faults, job: Job) -> Journey:
    """Replays `plan` (B, L), followed by zeros, until every row has ended."""
    batch = len(plan)
    row = np.arange(batch)
    # Two zeros follow the last customer: the first is the return, the second, at the depot, ends a tour of several
    # trips. Further zeros have no effect.
    used = np.flatnonzero((plan != 0).any(axis=0))
    nodes = np.pad(plan[:, : used[-1] + 1 if len(used) else 0], ((0, 0), (1, 2)))
    legs = data.legs(nodes)
    needs = _needs(data, job)
    nothing, nowhere = np.zeros(batch), np.zeros(batch, np.int64)
    truck = Truck(nowhere, nowhere, nothing, nothing, nothing, needs.sum(axis=1))
    journey = Journey(nothing.copy(), nothing.copy(), nowhere.copy(), np.zeros((batch, data.num_nodes), np.bool_))
    ended = ~faults.valid
    for k in range(legs.shape[1]):
        a = np.ascontiguousarray(nodes[:, k + 1])
        faults.add_rows(ended & (a > 0), lambda c: f"{job.where}customer {c} follows the end of the tour", a)
        away = truck.here != 0
        finish = ~ended & (a == 0) & (job.single | ~away)
        _check_finish(data, faults, job, journey.visited, finish, truck)
        truck.trip = truck.trip + (~ended & (a > 0) & ~away)
        _check_customer(faults, job, journey.visited, ~ended & (a > 0), a, truck)
        ended |= ~faults.valid
        serve, home = ~ended & (a > 0), ~ended & (a == 0)
        # As the world's mask: the trip so far in float32, plus the leg to a customer, plus the way home. So the sum
        # is not rounded again at the last customer.
        so_far, clock = (np.where(serve, job.keep_way(x), x) for x in (truck.length, truck.clock))

        leg = legs[:, k].copy()
        if len(f := np.flatnonzero((truck.here != nodes[:, k]) & ~ended)):  # after a forced return
            leg[f] = data.between(truck.here[f], a[f], at=f)
        if job.windows is not None:
            clock = _check_time(faults, job.windows, a, ~ended, clock + leg / job.windows.speed)
        real = job.weight[row, a]
        fails = serve & ~fits(truck.load + real, job.capacity)
        back, again = np.zeros(batch), np.zeros(batch)
        if len(f := np.flatnonzero(fails)):
            back[f] = data.between(a[f], np.zeros_like(f), at=f)
            if job.round_trip:
                again[f] = data.between(np.zeros_like(f), a[f], at=f)
        closed = so_far + leg + back
        faults.add_rows(
            (fails | (home & away)) & ~fits(closed, job.max_length),
            lambda t, x, m: f"{job.where}trip {t} is {x:.10g} long, max_length {m:.10g}",
            *(truck.trip, closed, job.max_length),
        )

        served = serve if job.round_trip else serve & ~fails
        journey.length += np.where(ended, 0.0, leg + back + again)
        journey.collected += np.where(served, job.gain[row, a], 0.0)
        journey.failures += fails
        journey.visited[row[served], a[served]] = True
        journey.stops.append(np.where(serve | (home & away), a, -1))
        if fails.any():
            journey.stops += [np.where(fails, 0, -1), np.where(fails & served, a, -1)]
            # Known from now on. If all weights are known, `expected` is `weight` itself, and nothing fails.
            job.expected[row[fails], a[fails]] = real[fails]
        truck = Truck(
            here=np.where(served, a, 0),
            trip=truck.trip + (fails & served),
            load=np.where(served, job.keep_load(truck.load + real - np.where(fails, job.capacity, 0.0)), 0.0),
            length=np.where(served, np.where(fails, again, so_far + leg), 0.0),
            clock=np.where(served, clock, 0.0),
            owed=truck.owed - np.where(served, needs[row, a], 0.0),
        )
        ended |= finish | (fails & ~served & job.single) | ~faults.valid
    return journey


def _needs(data: Dataset, job: Job) -> Floats:
    """The room (B, N) to reserve for each must-go customer; none for those out of reach of every trip."""
    if job.must_go is None or not (job.single and job.reserve):
        return np.zeros_like(job.expected)
    j = np.arange(data.num_nodes)[None]
    alone = data.between(np.zeros_like(j), j) + data.between(j, np.zeros_like(j))
    return np.where(job.must_go & fits(alone, job.max_length[:, None]), job.expected, 0.0)


def _check_customer(faults: Faults, job: Job, visited: Bools, serve: Bools, a: Ints, truck: Truck) -> None:
    """A customer is unvisited and its known weight fits; an optional one leaves the reserve free."""
    row = np.arange(len(a))
    load = truck.load + job.expected[row, a]
    faults.add_rows(serve & visited[row, a], lambda c: f"{job.where}customer {c} is visited twice", a)
    faults.add_rows(
        serve & ~fits(load, job.capacity),
        lambda t, x, q: f"{job.where}trip {t} carries {x:.10g}, capacity {q:.10g}",
        *(truck.trip, load, job.capacity),
    )
    if job.must_go is not None:
        faults.add_rows(
            serve & ~job.must_go[row, a] & ~fits(load + truck.owed, job.capacity),
            lambda c, x, w, q: (
                f"{job.where}with optional customer {c} trip 1 carries {x:.10g}, capacity {q:.10g}, "
                f"and the must-go customers still to come need {w:.10g}"
            ),
            *(a, load, truck.owed, job.capacity),
        )


def _check_finish(data: Dataset, faults: Faults, job: Job, visited: Bools, finish: Bools, truck: Truck) -> None:
    """A tour may not end while a must-go customer could still be served from the position of the truck."""
    if job.must_go is None:
        return
    left = job.must_go & ~visited
    b = np.flatnonzero(finish & faults.valid & left.any(axis=1))
    if not len(b):
        return
    c, j, depot = truck.here[b, None], np.arange(data.num_nodes)[None], np.zeros((1, 1), np.int64)
    out, back = data.between(c, j, at=b), data.between(j, depot, at=b)
    could = left[b]
    could &= fits(truck.load[b, None] + job.expected[b], job.capacity[b, None])
    could &= fits(job.keep_way(truck.length[b, None]) + out + back, job.max_length[b, None])
    if (w := job.windows) is not None:
        arrive = job.keep_way(truck.clock[b, None]) + out / w.speed[b, None]
        leave = np.maximum(arrive, w.opens[b]) + w.service[b]
        could &= fits(arrive, w.closes[b]) & fits(leave + back / w.speed[b, None], w.closes[b, :1])
    wrong, missed = np.zeros(len(visited), np.bool_), np.zeros(len(visited), np.int64)
    wrong[b], missed[b] = could.any(axis=1), could.argmax(axis=1)
    faults.add_rows(wrong, lambda i: f"{job.where}must-go customer {i} is left out, though it could be served", missed)


def _check_time(faults: Faults, w: Windows, a: Ints, drives: Bools, arrive: Floats) -> Floats:
    """The time at which each truck can leave node `a`; service and returns after closing are faults."""
    row = np.arange(len(a))
    faults.add_rows(
        drives & ~fits(arrive, w.closes[row, a]),
        lambda i, t, x: f"{f'customer {i}' if i else 'the depot'} is reached at {t:.10g}, closed since {x:.10g}",
        *(a, arrive, w.closes[row, a]),
    )
    return np.maximum(arrive, w.opens[row, a]) + w.service[row, a]
