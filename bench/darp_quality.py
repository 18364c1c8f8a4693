"""A table of the gaps of dial-a-ride solvers to the published optima of Cordeau's files.

python -m bench.darp_quality [--seconds 60] [--workers 2] [--files a2-16 b3-18 ...]
"""

from __future__ import annotations

import argparse
import csv
import multiprocessing
from functools import partial

from milkrun.routing.instances import cordeau
from milkrun.solvers.darp import DARPPlan, improve, insertion, price_routes, solve_ortools
from tests.published import published_file

SOLVERS = ("insertion cheapest", "insertion deadline", "improve", "OR-Tools")


def best_known() -> dict[str, float]:
    """The published best of every file."""
    with published_file("darp/best_known.csv").open(newline="") as lines:
        return {line["name"]: float(line["value"]) for line in csv.DictReader(lines)}


def plans_for(name: str, seconds: float) -> tuple[str, list[DARPPlan]]:
    """The plan of each of SOLVERS; the searches have `seconds` each and start from the better insertion."""
    instance = cordeau.load(published_file(f"darp/{name}.txt"))
    built = [price_routes(instance, insertion(instance, order)) for order in ("cheapest", "deadline")]
    return name, [*built, improve(instance, seconds=seconds), solve_ortools(instance, seconds=seconds)]


def cell(plan: DARPPlan, best: float) -> str:
    """Distance and gap, or the number of unserved requests, since a gap then has no meaning."""
    if plan.unserved:
        return f"{plan.distance:.2f}, {plan.unserved} unserved"
    return f"{plan.distance:.2f}, {gap(plan, best):+.2f} %"


def gap(plan: DARPPlan, best: float) -> float:
    """In percent, between distances of two decimals, as the best are published."""
    return 100 * (round(plan.distance, 2) / best - 1) + 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="for each of the two searches on each file")
    parser.add_argument("--workers", type=int, default=2, help="files at once, a process each")
    parser.add_argument("--files", nargs="+", metavar="NAME", help="default: all")
    options = parser.parse_args()
    best = best_known()
    names = options.files or list(best)
    if unknown := [name for name in names if name not in best]:
        parser.error(f"no file {unknown[0]!r}; there are {', '.join(best)}")
    print(f"Distance and gap to the best known, all served; improve and OR-Tools {options.seconds:g} s each.\n")
    print("| file | best known | " + " | ".join(SOLVERS) + " |")
    print("|---|---|" + "---|" * len(SOLVERS), flush=True)
    done: list[tuple[float, list[DARPPlan]]] = []
    with multiprocessing.get_context("spawn").Pool(options.workers) as pool:
        for name, plans in pool.imap(partial(plans_for, seconds=options.seconds), names):
            cells = [cell(plan, best[name]) for plan in plans]
            print(f"| {name} | {best[name]:.2f} | " + " | ".join(cells) + " |", flush=True)
            done.append((best[name], plans))
    means = []
    for k in range(len(SOLVERS)):
        gaps = [gap(plans[k], value) for value, plans in done if not plans[k].unserved]
        mean = f"{sum(gaps) / len(gaps):+.2f} %, worst {max(gaps):+.2f} %" if gaps else "none"
        means.append(f"{mean} ({len(gaps)} of {len(done)} served in full)")
    print("| mean gap | | " + " | ".join(means) + " |")


if __name__ == "__main__":
    main()
