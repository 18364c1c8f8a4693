"""Learning curves: what `milkrun train` reaches in how many minutes, beside heuristics, a solver and published numbers.

python -m bench.curves [CASE ...] [--out out/curves] [--threads 1]

A case is a run of a fixed number of steps: as many as take its minutes on two idle cores of the machine that the
benchmark page names. So a result does not depend on how busy the machine is, and `--threads` changes little but time.
Trained policies are judged on instances of SEED, which no run has seen. A run that was interrupted is resumed.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

import milkrun
from milkrun import learn
from milkrun.core.instances import instances_of
from milkrun.learn.process import computing
from milkrun.learn.run import BEST, LAST
from milkrun.solvers import evaluate, policies_for, solve

SEED = 1234


@dataclass(frozen=True)
class Case:
    """A run, and how it is judged."""

    world: str
    steps: int
    minutes: float
    """that the steps take on two idle cores"""
    settings: dict[str, Any] = field(default_factory=dict)
    """of the world"""
    options: dict[str, Any] = field(default_factory=dict)
    """of `learn.train`"""
    instances: int = 1000
    solver: str | None = "pyvrp"
    iterations: int = 1000
    decodings: tuple[str, ...] = ("greedy", "starts", "starts,x8")


TSP20 = Case("milkrun/TSP-v0", 6_800, 6, {"num_loc": 20, "start": "free"})
CVRP20 = Case("milkrun/CVRP-v0", 9_600, 10, {"num_loc": 20})
ROUTES = {"num_loc": 20}
CASES = {
    **{f"tsp20-{seed}": replace(TSP20, options={"seed": seed}) for seed in range(3)},
    **{f"cvrp20-{seed}": replace(CVRP20, options={"seed": seed}) for seed in range(3)},
    "tsp20rollout": replace(TSP20, steps=1_600, minutes=10, options={"baseline": "rollout"}),
    "vrpp20": Case("milkrun/VRPP-v0", 10_000, 5, ROUTES),
    "wcvrp20": Case("milkrun/WCVRP-v0", 7_500, 5, ROUTES),
    "sdwcvrp20": Case(
        "milkrun/SDWCVRP-v0", 1_600, 5, ROUTES, instances=256, solver=None, decodings=("greedy", "sample")
    ),
    "darp": Case(
        "milkrun/DARP-v0", 1_500, 5, instances=256, solver="improve", decodings=("greedy", "starts", "sample=16")
    ),
    "truckdrone": Case("milkrun/TruckDrone-v0", 600, 6, solver=None, decodings=("greedy", "sample")),
    "tracking": Case("milkrun/Tracking-v0", 150, 9, instances=200, solver=None, decodings=("greedy",)),
    "clutter": Case("milkrun/Clutter-v0", 60, 6, instances=200, solver=None, decodings=("greedy",)),
    "cvrp50": Case("milkrun/CVRP-v0", 3_000, 20, {"num_loc": 50}, iterations=3000),
    "tsp50": Case("milkrun/TSP-v0", 3_600, 18, {"num_loc": 50, "start": "free"}),
}


def judged(case: Case) -> Any:
    """A world with a row for each held-out instance."""
    world = milkrun.make(case.world, case.instances, seed=SEED, autoreset="disabled", **case.settings)
    world.reset()
    return world


def references_of(case: Case) -> dict[str, float]:
    """Mean returns of every policy of the world, and of the solver, whose search is limited by iterations."""
    found = {
        name: evaluate(judged(case), factory(0), case.instances, SEED).mean
        for name, factory in policies_for(case.world).items()
    }
    if case.solver is not None:
        given = instances_of(judged(case))
        limit = {"iterations": case.iterations} if case.solver == "pyvrp" else {}
        found[case.solver] = -float(np.mean(solve(case.world, given, case.solver, **limit, **case.settings).cost))
    return found


def run(name: str, case: Case, out: Path, threads: int) -> dict[str, Any]:
    """Trains, or continues, and judges by each decoding; writes `result.json` into the folder of the case."""
    folder = out / name
    if (folder / LAST).exists():
        trained = learn.resume(folder, progress=False)
    else:
        options = {"threads": threads, "progress": False, **case.options}
        trained = learn.train(case.world, steps=case.steps, out=folder, **options, **case.settings)
    if trained.ended == "interrupted":
        raise KeyboardInterrupt
    found: dict[str, Any] = {"steps": trained.step, "minutes": case.minutes, "ended": trained.ended}
    found |= {"held_out": case.instances, "seconds": trained.curve[-1]["seconds"], "policies": {}}
    with computing(threads):
        for decode in case.decodings:
            world, policy = judged(case), learn.load(folder / BEST, decode)
            start = time.perf_counter()
            result = evaluate(world, policy, case.instances, SEED)
            milliseconds = 1e3 * (time.perf_counter() - start) / case.instances
            found["policies"][decode] = {
                "mean": result.mean,
                "standard_error": result.standard_error,
                "ms an instance": milliseconds,
            }
    # Seeds of one case share their references.
    shared = out / f"references-{name.partition('-')[0]}.json"
    if not shared.exists():
        shared.write_text(json.dumps(references_of(case), indent=1))
    found["references"] = json.loads(shared.read_text())
    best = max(found["references"].values())
    for judgement in found["policies"].values():
        judgement["gap"] = 100 * (best - judgement["mean"]) / abs(best) if best else None
    (folder / "result.json").write_text(json.dumps(found, indent=1))
    return found


def table(out: Path) -> list[str]:
    """The finished cases as a table of the documentation: mean returns, and gaps to the best reference in percent where
    returns do not change their sign."""
    lines = ["| case | minutes | trained | references |", "|---|--:|---|---|"]
    for name, case in CASES.items():
        if not (out / name / "result.json").exists():
            continue
        found = json.loads((out / name / "result.json").read_text())
        references = sorted(found["references"].items(), key=lambda item: -item[1])
        trained = []
        for decode, judged in found["policies"].items():
            gap = f" ({judged['gap']:.2f} %)" if abs(judged["gap"]) < 20 else ""
            trained.append(f"{decode} {judged['mean']:.4g}{gap}")
        words = ", ".join(f"{reference} {mean:.4g}" for reference, mean in references[:3])
        lines.append(f"| {name} | {case.minutes:g} | {'; '.join(trained)} | {words} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.curves", description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"{', '.join(CASES)} (default: all)")
    parser.add_argument("--out", default="out/curves", help="folder for the runs")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of torch and of the worlds")
    parser.add_argument("--table", action="store_true", help="print the finished cases as a table, and run none")
    given = parser.parse_args()
    if unknown := [name for name in given.cases if name not in CASES]:
        parser.error(f"no case {unknown[0]!r}; the cases are {', '.join(CASES)}")
    out = Path(given.out)
    out.mkdir(parents=True, exist_ok=True)
    if given.table:
        print(*table(out), sep="\n")
        return
    for name in given.cases or CASES:
        found = run(name, CASES[name], out, given.threads)
        policies = ", ".join(
            f"{decode} {p['mean']:.4f}" + (f" ({p['gap']:+.2f} %)" if p["gap"] is not None else "")
            for decode, p in found["policies"].items()
        )
        references = ", ".join(f"{name} {mean:.4f}" for name, mean in found["references"].items())
        print(f"{name}: {policies} | {references} | {found['seconds']:.0f} s", flush=True)


if __name__ == "__main__":
    main()
