"""In which environment and in which order test files run, so that `make test` uses all cores until its end.

Each test process takes the next file when it has finished one, so a long file must not come last. LONGEST lists the
files that come first: all that take more than ten seconds of processor time.

A file that imports nothing but numpy, numba, Gymnasium and other small packages runs in `.venv-newest`, during the
installation of the large environment. There is no torch there, so the file is known to need none.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

TESTS = Path(__file__).parent

LONGEST = """
docs/test_docs
truth/test_gymnasium_conformance
truth/test_torchrl_conformance
cli/test_cli
scale/test_cluster
replay/test_page
core/test_check
truth/test_delivery_learning
truth/test_collect_episodes
truth/test_collect_exhaustive
core/test_interpreted_worlds
api/test_workers_failure
truth/test_clutter_reference
truth/test_truckdrone_reference
clutter/test_saving
truth/test_clutter_learning
api/test_sb3_subproc
core/test_processes
truth/test_pyvrp_truth
learn/test_run
learn/test_policy
learn/test_sampling
api/test_rl4co_every_world
learn/test_sb3
api/test_rl4co_mtvrp
docs/test_examples
truth/test_fuzz_tensordicts
api/test_binding_interrupts
api/test_workers_interrupt
truth/test_fuzz_tracking
truth/test_darp_by_hand
tracking/test_rows_alone
core/test_fallback
truth/test_fill_statistics
tracking/test_check_world
docs/test_add_a_world
cli/test_cli_clutter
tracking/test_link_processes
truth/test_darp_reference
api/test_workers
truth/test_collect_reference
delivery/test_tspd_contract
core/test_rng
scale/test_own_ray
api/test_torchrl_env
truth/test_truckdrone_roads
truth/test_tracking_towns
truth/test_cross_binding
truth/test_binding_memory
truth/test_tracking_reference
routing/test_darp
routing/test_collect_bad_input
truth/test_sb3_learning
compat/test_dat_link_deaths
""".split()

SMALL_FOLDERS = "core render clutter delivery reference routing tracking".split()
"""Where files are looked for that can do with the small environment."""

IN_BOTH = """
truth/test_gymnasium_conformance
api/test_gymnasium
api/test_gymnasium_errors
api/test_gymnasium_seeds
api/test_spaces
""".split()
"""Gymnasium bindings are tested with the newest version and with the one that Ray allows."""

# Packages of the large environment alone. Tests of what is installed or loaded also run there.
LARGE = re.compile(
    r"torch|tensordict|rl4co|pettingzoo|sb3|stable_baselines3|tianshou|rllib|(import|from) ray\b|pyvrp|ortools|vrplib|"
    r"typer|matplotlib|\bPIL\b|playwright|milkrun\.cli|\"-m\", \"milkrun\"|find_spec|sys\.modules\b(?!\[)"
)
HELPER = re.compile(r"(?:from|import) ((?:tests|bench)\.[\w.]+)(?: import ([\w, ]+))?")


@cache
def is_small(path: Path) -> bool:
    """Neither a file nor what it imports of ours names a package of the large environment."""
    text = path.read_text()
    if LARGE.search(text):
        return False
    for module, names in HELPER.findall(text):
        stem = TESTS.parent.joinpath(*module.split("."))
        files = [stem.with_suffix(".py"), *(stem / f"{name.strip()}.py" for name in names.split(","))]
        if not all(is_small(file) for file in files if file.exists()):
            return False
    return True


def runs_in(path: Path) -> set[str]:
    """The environments in which `make test` runs a file: "small", "large"."""
    name = path.relative_to(TESTS).with_suffix("").as_posix()
    if name in IN_BOTH:
        return {"small", "large"}
    return {"small" if name.partition("/")[0] in SMALL_FOLDERS and is_small(path) else "large"}
