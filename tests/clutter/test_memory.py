"""Memory grows with the number of rows only."""

from __future__ import annotations

import subprocess
import sys

MEASURE = """
import warnings; warnings.simplefilter("ignore")
from milkrun.clutter import Clutter, ClutterConfig
def used():
    return int(open("/proc/self/statm").read().split()[1]) * 4096
config = ClutterConfig(num_objects_per_type=4, bank_size=8)
kept, per_row = [], []
for rows in (4, 48, 256):
    before = used()
    world = Clutter(rows, config, seed=1, threads=2); world.reset()
    world.step(world.sample_actions(0, 0)); world.observe()
    kept.append(world)
    per_row.append((used() - before) / rows)
print(*per_row)
"""


def test_a_row_of_twelve_objects_takes_half_a_megabyte_at_most():
    """Resident memory of worlds of 48 and 256 rows, after a first one of 4, stepped once, in a separate process."""
    out = subprocess.run([sys.executable, "-c", MEASURE], capture_output=True, text=True, check=True, timeout=300)
    _, few, many = (float(x) for x in out.stdout.split())
    assert max(few, many) < 0.5e6
    assert many < 1.2 * few + 2e4
