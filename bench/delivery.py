"""Truck and drones, compared with VMAS, the plain Python model of the tests and itself; TSP-D with RL4CO."""

from __future__ import annotations

import argparse
import statistics
from argparse import Namespace
from functools import partial
from typing import Any

import numpy as np

from .delivery_plays import STEPS, TRUCK, ListEnv, Recorded, Restarted, ScalarModel, TorchRL, rates
from .peers.apart import report_of
from .timing import Table, clock, median_time, no_garbage_collection, set_clock

ROWS = (1024, 4096, 8192)
PUBLISHED = "published (2, 3, 5)"
SIZES: dict[str, dict[str, Any]] = {
    PUBLISHED: {"preset": "published"},
    "default (2, 6, 6)": {"preset": "default"},
    "published (5, 15, 5)": {"preset": "published", "num_drones": 5, "num_customers": 15, "num_route_nodes": 5},
    "default on roads (2, 6, 6)": {"preset": "default", "road_graph": True},
}
TURNS = 20


class _Results:
    """The table and its promises; rates are in thousand environment-steps per second."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.promised = {}

    def put(self, measured: str, ours: float, peer: float | None = None, promise: str | None = None) -> None:
        """Add a row; a promise applies to the ratio, or to the value if there is no peer."""
        ratio = None if peer is None else ours / peer
        promised = (promise or "").removeprefix("promised ")
        self.table.add(measured=measured, milkrun=ours, peer=peer, ratio=ratio, promised=promised)
        if promise is not None:
            self.promised[f"Delivery, {measured} ({promise})"] = ours if ratio is None else ratio
        compared = "" if peer is None else f", peer {peer:.4g}, ratio {ratio:.3g}"
        print(f"{measured}: {ours:.4g}{compared}", flush=True)


def delivery_table(options: argparse.Namespace) -> tuple[Table, dict[str, float]]:
    """Steps of both worlds and their bindings, observations, state, masks and autoreset included."""
    notes = {
        "published, default": "drones, customers, truck nodes",
        "all rates": "thousand environment-steps/s",
        "ratio": "how many times as fast as the peer",
    }
    table = Table(
        "Delivery (one thread unless said)", ["measured", "milkrun", "peer", "ratio", "promised"], notes=notes
    )
    repeats = 3 if options.quick else 9
    results = _Results(table)
    small = _add_sizes(results, options, repeats)
    _add_one_row(results, small, repeats)
    _add_vector_envs(results, options)
    _add_torchrl(results, repeats)
    _add_threads(results, options, repeats)
    _add_tspd(results, repeats)
    return table, results.promised


def _add_sizes(results: _Results, options: argparse.Namespace, repeats: int) -> float:
    """The sizes at three numbers of rows, the first compared with VMAS; returns its best rate."""
    arguments = ("--clock", options.clock, "--repeats", str(repeats), "--rows", *map(str, ROWS))
    vmas = report_of("vmas", "vmas_steps.py", *arguments)
    theirs = {} if vmas is None else {rows: vmas["rates"][str(rows)] / 1e3 for rows in ROWS}
    best = [0.0] * len(SIZES)
    for rows in ROWS:
        measured = thousands(*(Recorded(TRUCK, rows, **size) for size in SIZES.values()), repeats=repeats)
        best = [*map(max, best, measured)]
        for label, rate in zip(SIZES, measured, strict=True):
            if label == PUBLISHED and theirs:
                results.put(f"{label}, {rows:,} rows (peer: VMAS simple_spread, 3 agents)", rate, theirs[rows])
            else:
                results.put(f"{label}, {rows:,} rows", rate)
    small, default, large, roads = best
    if theirs:
        results.put(
            f"{PUBLISHED}, best of these (peer: the best of VMAS)", small, max(theirs.values()), "promised 1.5, goal 4"
        )
    results.put(f"default (2, 6, 6), best (peer: {PUBLISHED})", default, small, "promised 0.35")
    results.put(f"published (5, 15, 5), best (peer: {PUBLISHED})", large, small)
    results.put("default on roads (2, 6, 6), best (peer: default)", roads, default)
    return small


def _add_one_row(results: _Results, small: float, repeats: int) -> None:
    lists, scalar = thousands(ListEnv(1000), ScalarModel(1000), repeats=repeats)
    results.put(f"{PUBLISHED}, best (peer: scalar Python model, 1 row)", small, scalar, "promised 100")
    results.put("VRPEnv, 1 row, full lists (peer: scalar Python model)", lists, scalar, "promised 1")


def _add_vector_envs(results: _Results, options: argparse.Namespace) -> None:
    """Adds eight environments on one world and eight in processes, in turns; the same actions, the same rewards."""
    from milkrun.compat.vrp.env_wrappers import VRPDummyVecEnv, VRPSubprocVecEnv
    from milkrun.compat.vrp.VRP_env import VRPEnv

    count, rounds = 8, 15 if options.quick else 50
    makers = [partial(VRPEnv, Namespace(seed=k)) for k in range(count)]
    recorded = _recorded_turns(VRPDummyVecEnv(makers), TURNS * (rounds + 1))
    rivals = {"dummy": VRPDummyVecEnv(makers), "processes": VRPSubprocVecEnv(makers)}
    seconds: dict[str, list[float]] = {name: [] for name in rivals}
    returned = dict.fromkeys(rivals, 0.0)
    set_clock("wall")  # the work is done in other processes
    try:
        for env in rivals.values():
            env.reset()
        with no_garbage_collection():
            for k in range(rounds + 1):
                for name, env in rivals.items():
                    before = clock()
                    for actions in recorded[TURNS * k : TURNS * (k + 1)]:
                        returned[name] += float(env.step(actions)[1].sum())
                    seconds[name].append(clock() - before)
    finally:
        for env in rivals.values():
            env.close()
        set_clock(options.clock)
    np.testing.assert_allclose(returned["dummy"], returned["processes"], rtol=1e-9)
    ours, theirs = (count * TURNS / statistics.median(taken[1:]) / 1e3 for taken in seconds.values())
    results.put("VRPDummyVecEnv of 8 (peer: VRPSubprocVecEnv of 8)", ours, theirs, "promised 5")


def _recorded_turns(env: Any, turns: int) -> list[np.ndarray]:
    """Random-masked actions (environments, agents) of this many turns."""
    rng = np.random.default_rng(0)
    env.reset()
    infos, recorded = env.reset_infos, []
    for _ in range(turns):
        masks = [[agent["available_actions"] for agent in own] for own in infos]
        recorded.append(np.array([[rng.choice(np.flatnonzero(mask)) for mask in own] for own in masks]))
        infos = env.step(recorded[-1])[3]
    env.close()
    return recorded


def _add_torchrl(results: _Results, repeats: int) -> None:
    """1,024 rows: `env.step(td)` and `World.step`, with untimed resets of finished rows; and with timed resets."""
    rows = 1024
    for label, size in [*SIZES.items()][:2]:
        raw = Restarted(rows, STEPS, **size)
        rivals = [
            TorchRL(raw, "functional", **size),
            TorchRL(raw, "inplace", **size),
            TorchRL(raw, "inplace", copy=False, **size),
            TorchRL(raw, "functional", with_resets=True, **size),
        ]
        found = thousands(raw, Recorded(TRUCK, rows, **size), *rivals, repeats=repeats)
        alone, whole, functional, inplace, views, renewing = found
        for stepping, ours in (("functional", functional), ("in place", inplace), ("in place, views", views)):
            results.put(f"TorchRL, {stepping}, {label}, 1,024 rows, step (peer: World.step)", ours, alone)
        results.put(
            f"TorchRL, functional, {label}, 1,024 rows, step_and_maybe_reset (peer: World with autoreset)",
            renewing,
            whole,
        )


def _add_threads(results: _Results, options: argparse.Namespace, repeats: int) -> None:
    set_clock("wall")  # processor time adds the threads up
    for label, size in [*SIZES.items()][:2]:
        one, two = thousands(*(Recorded(TRUCK, 8192, threads=k, **size) for k in (1, 2)), repeats=repeats)
        results.put(f"{label}, 8,192 rows, 2 threads (peer: 1 thread)", two, one, "goal 1.6")
    set_clock(options.clock)


def _add_tspd(results: _Results, repeats: int) -> None:
    import torch

    from milkrun.delivery.instances.tspd import TSPDInstance
    from milkrun.solvers.tspd import exact

    from .peers.rl4co import StepRL4CO

    rows, nodes = 4096, 20
    world = Recorded("milkrun/TSPD-v0", rows, 3 * nodes, num_nodes=nodes)
    peer = StepRL4CO("tsp", nodes, rows)
    peer.steps = nodes
    peer.row_steps = rows * nodes
    with torch.inference_mode():
        ours, theirs = thousands(world, peer, repeats=3 * repeats)
    results.put("TSPD, 20 nodes, 4,096 rows (peer: RL4CO TSPEnv, step without reward)", ours, theirs, "goal 1")
    rng = np.random.default_rng(0)
    places = [TSPDInstance.of_places(str(k), rng.uniform(0, 100, (9, 2))) for k in range(20)]
    exact(places[0])
    milliseconds = [1e3 * median_time(partial(exact, one), repeats=3, min_seconds=0.01) for one in places]
    results.put("TSPD exact, 9 nodes: ms an instance", statistics.median(milliseconds), None, "promised at most 50")


def thousands(*forms: Any, repeats: int) -> list[float]:
    """The rates of forms that play in turn, in thousand steps per second."""
    return [rate / 1e3 for rate in rates(*forms, repeats=repeats)]
