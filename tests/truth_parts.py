"""The parts of `make truth`: every file that has tests marked `long` is in one of them.

Each part is meant to take less than 30 minutes on two cores. `python -m tests.truth_parts` runs them one after another,
or those that are named, and prints the time and the result of each. Arguments after `--` go to pytest.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from fnmatch import fnmatchcase
from pathlib import Path

TESTS = Path(__file__).parent

PARTS = {
    "clutter": "clutter/* truth/test_clutter_order truth/test_clutter_reference",
    "darp": "truth/test_darp_*",
    "delivery": "truth/test_truckdrone_* truth/test_tspd_*",
    "docs": "docs/*",
    "files": "truth/test_files_exactly replay/* bench/*",
    "fleets": "truth/test_fleet_* truth/test_vrp_* routing/test_fleet_published api/test_rl4co_mtvrp",
    "fuzz": "truth/test_fuzz_[!t]* truth/test_fuzz_tensordicts cli/* tracking/test_link_server tracking/test_link_wire",
    "fuzz-tracking": "truth/test_fuzz_tracking",
    "interpreter": "core/test_interpreted_worlds tracking/test_check_world",
    "interrupts": "api/test_binding_interrupts api/test_workers_interrupt core/test_interrupts",
    "kills": "api/test_workers_failure compat/* scale/* tracking/test_link_processes",
    "learning": "learn/* truth/test_*_learning api/test_rllib",
    "masks": "truth/test_binding_masks",
    "memory": "truth/test_binding_memory api/test_sb3_surface",
    "originals": "truth/test_dat_conformance",
    "solvers": "truth/test_pyvrp_truth truth/test_defaults_bite solvers/*",
    "towns": "tracking/test_towns truth/test_tracking_towns truth/test_tracking_traffic",
    "tracking": "truth/test_tracking_baselines truth/test_tracking_rays truth/test_tracking_reference",
}
"""Names, and patterns of files below `tests` without their suffix."""


def parts_of(path: Path) -> list[str]:
    """The parts whose patterns match a file."""
    name = path.relative_to(TESTS).with_suffix("").as_posix()
    return [part for part, patterns in PARTS.items() if any(fnmatchcase(name, p) for p in patterns.split())]


def check_part(name: str) -> str:
    if name not in PARTS:
        raise ValueError(f"there is no part {name!r} of the truths; the parts are {', '.join(PARTS)}")
    return name


def run(part: str, options: list[str]) -> tuple[bool, float]:
    """Runs a part; whether it passed, and its seconds."""
    start = time.perf_counter()
    command = [sys.executable, "-m", "pytest", "-m", "long", "--truth-part", part, *options, str(TESTS)]
    passed = subprocess.run(command).returncode == 0
    return passed, time.perf_counter() - start


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.truth_parts", description="Runs the tests marked `long`.")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)} (default: all)")
    parser.add_argument("--workers", default="2", help="test processes")
    parser.add_argument("--list", action="store_true", help="print the parts and their files, and run nothing")
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    given = parser.parse_args(own)
    if given.list:
        print("\n".join(f"{part:<14}  {patterns}" for part, patterns in PARTS.items()))
        return 0
    options = ["-n", given.workers, *arguments[len(own) + 1 :]]
    try:
        parts = [check_part(name) for name in given.parts] or list(PARTS)
    except ValueError as e:
        print(e, file=sys.stderr)
        return 2
    lines, all_passed = [], True
    for part in parts:
        print(f"== {part}", flush=True)
        passed, seconds = run(part, options)
        all_passed &= passed
        lines.append(f"{part:<14}  {'passed' if passed else 'FAILED'}  {seconds / 60:5.1f} min")
    print("\n".join(lines))
    return 0 if all_passed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
