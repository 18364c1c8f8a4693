"""Compile time does not count as a method's time, and listeners are notified of it."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from numba import njit

from milkrun.core import clock
from milkrun.core.clock import Clock, compiling, listening
from milkrun.core.threads import Entry
from milkrun.solvers import heuristics, solve
from milkrun.solvers.darp import search as darp_search
from tests.solvers.darp_cases import drawn as drawn_rides
from tests.solvers.plays import drawn


@pytest.fixture
def hand(monkeypatch):
    """A clock that advances on request."""
    hand = {"at": 0.0}
    monkeypatch.setattr(clock.time, "perf_counter", lambda: hand["at"])
    return hand


def test_seconds_are_without_the_compilers(hand):
    """Three of ten seconds are compile time, also with nested compiler events."""
    watch = Clock()
    hand["at"] = 5.0
    with compiling(), compiling():
        hand["at"] = 8.0
    hand["at"] = 10.0
    assert (watch.seconds, watch.compiling) == (7.0, 3.0)
    assert Clock().compiling == 0.0


def test_compile_time_is_counted_by_thread(hand):
    """Compile time of another thread counts as time here."""
    watch = Clock()

    def other():
        with compiling():
            hand["at"] += 4.0

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert (watch.seconds, watch.compiling) == (4.0, 0.0)


def test_a_first_call_of_compiled_code_is_noted():
    """Compiled functions notify of their compilation; the second call does not compile."""
    found = []
    entry = Entry(njit(lambda x, first, last, slot: x + last))
    with listening(found.append):
        assert entry.run((3,), 4, 1) == 7
        assert found == [True, False]
        assert entry.run((3,), 4, 1) == 7
    assert found == [True, False]


def test_a_search_of_five_seconds_searches_for_five_seconds(hand, monkeypatch):
    """Compilation takes 100 seconds, each piece of the search one: five pieces, not one."""
    pieces = []

    class Slow:
        def run(self, args, rows, chunks):
            if not pieces:
                with compiling():
                    hand["at"] += 100.0
            hand["at"] += 1.0
            pieces.append(args[2])

    monkeypatch.setattr(darp_search, "_entry", Slow)
    darp_search.search(drawn_rides(1, 3, 2), [], 5.0, 0, None, 1.0, 200.0)
    assert len(pieces) == 5


def test_the_bar_shows_compiling(monkeypatch, capsys, hand):
    """During compilation, and afterwards its duration."""
    pytest.importorskip("rich", reason="needs the extra 'cli'")
    monkeypatch.setenv("FORCE_COLOR", "1")
    honest = heuristics.run_heuristic

    def first_use(*args, **options):
        with compiling():
            hand["at"] += 7.25
        return honest(*args, **options)

    instances = drawn("TSP", 6, 3)
    plain = solve("TSP", instances, "nearest")
    monkeypatch.setattr(heuristics, "run_heuristic", first_use)
    np.testing.assert_array_equal(solve("TSP", instances, "nearest", progress=True).actions, plain.actions)
    out = capsys.readouterr().out
    assert "compiling" in out and "TSP by nearest, after 7.2 s of compiling" in out
