"""The vehicle routing problem with attributes: a step beside RL4CO's and RouteFinder's environments and our CVRP.

RouteFinder is no dependency; with a checkout of github.com/ai4co/routefinder on PYTHONPATH its environments play too.
All play uniformly random allowed actions, recorded before, on instances of their own generators. Timed is the step
with its mask; resets, actions and RL4CO's `get_reward` are not. Contestants play in turn.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
from typing import Any, NamedTuple

import torch

import milkrun

from .timing import Part, Table, clock, step_times

NUM_LOC = 50
ROWS = (1, 64, 1024, 8192)
STEPS, QUICK_STEPS = 200, 20  # of an episode, unless a row ends before


class Row(NamedTuple):
    """What is measured: the options of `VRP-v0`, its peers, and the promised ratio at 1, 64 and 1,024 rows."""

    name: str
    options: dict[str, Any]
    peers: tuple[str, ...]
    promised: tuple[float, float, float] | None = None


MEASURED = (
    Row("cvrp", {}, ("CVRP",), (0.5, 0.5, 0.5)),
    Row("vrptw", {"variant": "vrptw"}, ("RL4CO cvrptw",), (5, 5, 6)),
    Row("all16", {"variant": "all16"}, ("RL4CO mtvrp", "RouteFinder mtvrp"), (15, 8, 10)),
    Row("all24", {"variant": "all24"}, ("RouteFinder mtvrp",), (15, 8, 10)),
    Row("all48", {"variant": "all48"}, ("RouteFinder mtdvrp",), (20, 10, 10)),
    Row("sdvrp", {"preset": "sdvrp"}, ("RL4CO sdvrp",), (5, 5, 6)),
    Row("mtsp", {"preset": "mtsp"}, ("RL4CO mtsp",), (5, 5, 6)),
)
THEIRS = {
    "RL4CO mtvrp": ("rl4co.envs", "MTVRPEnv", {"variant_preset": "all"}),
    "RL4CO cvrptw": ("rl4co.envs", "CVRPTWEnv", {}),
    "RL4CO sdvrp": ("rl4co.envs", "SDVRPEnv", {}),
    "RL4CO mtsp": ("rl4co.envs", "MTSPEnv", {"min_num_agents": 5, "max_num_agents": 5}),
    "RouteFinder mtvrp": ("routefinder.envs", "MTVRPEnv", {"variant_preset": "all", "sample_backhaul_class": True}),
    "RouteFinder mtdvrp": ("routefinder.envs", "MTDVRPEnv", {"variant_preset": "all", "sample_backhaul_class": True}),
}


class InPlace:
    """A world and its recorded actions, until a row ends."""

    def __init__(self, name: str, rows: int, num_loc: int, steps: int, **options: Any) -> None:
        self.world = milkrun.make(
            f"milkrun/{name}-v0", rows, seed=0, num_loc=num_loc, autoreset="disabled", threads=1, **options
        )
        self.start()
        self.actions = []
        while len(self.actions) < steps and not self.world.done.any():
            self.actions.append(self.world.sample_actions(0))
            self.world.step(self.actions[-1])

    def start(self) -> None:
        self.world.reset(seed=0)

    def play(self, first: int, last: int) -> float:
        step, actions = self.world.step, self.actions
        before = clock()
        for t in range(first, last):
            step(actions[t])
        return clock() - before


class Theirs:
    """An environment of RL4CO's kind and its recorded actions, until a row ends."""

    @torch.inference_mode()
    def __init__(self, module: str, name: str, rows: int, num_loc: int, steps: int, **params: Any) -> None:
        torch.manual_seed(0)
        env_class = getattr(importlib.import_module(module), name)
        self.env = env_class(generator_params={"num_loc": num_loc, **params}, check_solution=False)
        self.instance = self.env.generator([rows])
        self.start()
        self.actions: list[torch.Tensor] = []
        while len(self.actions) < steps and not self.td["done"].any():
            self.actions.append(torch.multinomial(self.td["action_mask"].float(), 1).squeeze(-1))
            self.td = self.env.step(self.td.set("action", self.actions[-1]))["next"]

    @torch.inference_mode()
    def start(self) -> None:
        self.td = self.env.reset(self.instance.clone())

    @torch.inference_mode()
    def play(self, first: int, last: int) -> float:
        td, step, spent = self.td, self.env.step, 0.0
        for action in self.actions[first:last]:
            td.set("action", action)
            before = clock()
            td = step(td)["next"]
            spent += clock() - before
        self.td = td
        return spent


def vrp_table(
    options: argparse.Namespace, rows: tuple[int, ...] = ROWS, num_loc: int = NUM_LOC
) -> tuple[Table, dict[str, float]]:
    """Microseconds per row and step of VRP's variants and of their peers."""
    torch.set_num_threads(1)
    table = Table(
        f"VRP in place and its peers (n = {num_loc}, one thread, random allowed actions)",
        ["VRP", "rows", "us a row-step", "peer", "peer us a row-step", "peer / VRP", "promised"],
        notes={"RouteFinder": "present" if importlib.util.find_spec("routefinder") else "absent: its rows are missing"},
    )
    timing = {"repeats": 3, "min_seconds": 0.02} if options.quick else {"repeats": 9, "min_seconds": 0.1}
    steps = QUICK_STEPS if options.quick else STEPS
    promised: dict[str, float] = {}
    for batch in rows[:-1] if options.quick else rows:
        for row in MEASURED:
            peers = {name: _peer(name, batch, num_loc, steps) for name in row.peers if _is_present(name)}
            parts = {"": InPlace("VRP", batch, num_loc, steps, **row.options), **peers}
            seconds = step_times({name: _part(played) for name, played in parts.items()}, **timing)
            ours = 1e6 * seconds.pop("") / batch
            table.add(**{"VRP": row.name, "rows": batch, "us a row-step": ours})
            for name, spent in seconds.items():
                theirs = 1e6 * spent / batch
                cells: dict[str, Any] = {"peer": name, "peer us a row-step": theirs, "peer / VRP": theirs / ours}
                if row.promised and batch in ROWS[:3]:
                    bar = row.promised[ROWS.index(batch)]
                    cells["promised"] = bar
                    promised[f"{name} / VRP {row.name}, {batch:,} rows (promised {bar:g})"] = theirs / ours
                table.add(**cells)
            print(f"VRP {row.name} {batch}: {ours:.3f} us a row-step", flush=True)
    return table, promised


def _is_present(peer: str) -> bool:
    return peer not in THEIRS or importlib.util.find_spec(THEIRS[peer][0].partition(".")[0]) is not None


def _peer(name: str, rows: int, num_loc: int, steps: int) -> InPlace | Theirs:
    if name not in THEIRS:
        return InPlace(name, rows, num_loc, steps)
    module, env, params = THEIRS[name]
    return Theirs(module, env, rows, num_loc, steps, **params)


def _part(played: InPlace | Theirs) -> Part:
    return played.start, played.play, len(played.actions)
