"""A plain model of the truck that chooses its customers: enumerates every allowed sequence of actions.

In plain Python, for one instance. The checkers take finished plans; this model builds a plan action by action from the
allowed ones, so the two agree only if both are correct.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import inf


@dataclass(frozen=True)
class Case:
    """One instance and its rules; lists over nodes, the depot first."""

    d: list[list[float]]
    gain: list[float]
    real: list[float]
    expected: list[float]
    capacity: float = inf
    max_length: float = inf
    must_go: tuple[int, ...] = ()
    single: bool = True
    reserve: bool = True
    round_trip: bool = False
    windows: list[tuple[float, float]] | None = None
    service: float = 0.0
    speed: float = 1.0


@dataclass(frozen=True)
class State:
    here: int = 0
    load: float = 0.0
    trip: float = 0.0
    clock: float = 0.0
    expected: tuple[float, ...] = ()
    visited: frozenset[int] = frozenset()
    collected: float = 0.0
    length: float = 0.0
    failures: int = 0


def fits(x: float, limit: float) -> bool:
    return x <= limit + min(0.5, 1e-5 * max(1.0, abs(limit)))


def allowed(case: Case, s: State, j: int) -> bool:
    d = case.d
    if j in s.visited or not fits(s.load + s.expected[j], case.capacity):
        return False
    if not fits(s.trip + d[s.here][j] + d[j][0], case.max_length):
        return False
    if case.windows is not None:
        arrive = s.clock + d[s.here][j] / case.speed
        leave = max(arrive, case.windows[j][0]) + case.service
        if not fits(arrive, case.windows[j][1]) or not fits(leave + d[j][0] / case.speed, case.windows[0][1]):
            return False
    if case.single and case.reserve and j not in case.must_go:
        owed = [m for m in case.must_go if m not in s.visited and fits(d[0][m] + d[m][0], case.max_length)]
        kept = sum(s.expected[m] for m in owed)
        return kept <= 0 or fits(s.load + s.expected[j] + kept, case.capacity)
    return True


def tours(case: Case, s: State | None = None, actions: tuple[int, ...] = ()) -> Iterator[tuple[tuple[int, ...], State]]:
    """Every complete sequence of actions without its trailing zeros, and its final state."""
    s = State(expected=tuple(case.expected)) if s is None else s
    open_ = [j for j in range(1, len(case.d)) if allowed(case, s, j)]
    if not case.single and s.here == 0 and actions and not open_:
        yield strip(actions), s
        return
    ends = case.single or s.here == 0
    if not (ends and any(j in case.must_go for j in open_)):
        after = replace(s, here=0, load=0.0, trip=0.0, clock=0.0, length=s.length + case.d[s.here][0])
        if ends:
            yield strip(actions), after
        else:
            yield from tours(case, after, (*actions, 0))
    for j in open_:
        after = serve(case, s, j)
        if case.single and after.here == 0:
            yield (*actions, j), after
        else:
            yield from tours(case, after, (*actions, j))


def serve(case: Case, s: State, j: int) -> State:
    d, real = case.d, case.real[j]
    length = s.length + d[s.here][j]
    done = replace(s, here=j, visited=s.visited | {j}, collected=s.collected + case.gain[j], length=length)
    if fits(s.load + real, case.capacity):
        start = max(s.clock + d[s.here][j] / case.speed, case.windows[j][0] if case.windows else 0.0)
        return replace(done, load=s.load + real, trip=s.trip + d[s.here][j], clock=start + case.service)
    known = (*s.expected[:j], real, *s.expected[j + 1 :])
    if case.round_trip:
        return replace(
            done,
            load=real - (case.capacity - s.load),
            trip=d[0][j],
            length=length + d[j][0] + d[0][j],
            failures=s.failures + 1,
            expected=known,
        )
    return replace(
        s, here=0, load=0.0, trip=0.0, length=length + d[j][0], failures=s.failures + 1, expected=known, clock=0.0
    )


def strip(actions: tuple[int, ...]) -> tuple[int, ...]:
    while actions and actions[-1] == 0:
        actions = actions[:-1]
    return actions
