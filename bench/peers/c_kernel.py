"""Step kernels written by hand in C: what a batch would cost if nothing stood between the rules and the machine.

The `.c` files in this folder are compiled for this processor and called through ctypes, with the
fields of the worlds as plain arrays. Without a C compiler, `available()` prints a note and the comparison is
skipped.
"""

import ctypes
import functools
import shutil
import statistics
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from ..episodes import Episodes, Name, record_random_episodes
from ..timing import clock, step_time

FLAGS = ["-O3", "-march=native", "-fno-math-errno", "-shared", "-fPIC"]

SIZES = ["rows", "nodes", "tour_size", "max_steps"]
# In the order of the struct in the C files. Name: dtype, width of a row (N nodes, L recorded actions, None a scalar)
ARRAYS = {
    "locs": (np.float32, "N2"),
    "demand": (np.int32, "N"),
    "capacity": (np.int32, None),
    "current_node": (np.int64, None),
    "i": (np.int64, None),
    "load": (np.int32, None),
    "trips": (np.int32, None),
    "tour_len": (np.int32, None),
    "tour_length": (np.float32, None),
    "trip_length": (np.float32, None),
    "visited": (np.uint8, "N"),
    "tour": (np.int16, "L"),
    "reward": (np.float32, None),
    "terminated": (np.uint8, None),
    "truncated": (np.uint8, None),
    "illegal": (np.uint8, None),
    "action_mask": (np.uint8, "N"),
}


class _World(ctypes.Structure):
    _fields_ = [(n, ctypes.c_int64) for n in SIZES] + [(n, ctypes.c_void_p) for n in ARRAYS]


def compiler() -> str | None:
    """The path of a C compiler, if there is one."""
    return shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


def available() -> bool:
    """Whether there is a C compiler; prints a note if not."""
    if compiler() is None:
        print("C kernel skipped: no C compiler (cc, gcc or clang) on the path")
    return compiler() is not None


@functools.cache
def _library(name: Name) -> ctypes.CDLL:
    cc = compiler()
    if cc is None:
        raise RuntimeError("the C kernels need a C compiler (cc, gcc or clang) on the path")
    with tempfile.TemporaryDirectory(prefix="milkrun-bench-") as folder:
        target = Path(folder) / f"{name}.so"
        subprocess.run([cc, *FLAGS, str(Path(__file__).with_name(f"{name}.c")), "-o", str(target), "-lm"], check=True)
        library = ctypes.CDLL(str(target))  # stays loaded when the folder is gone
    library.step.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    library.step.restype = None
    library.reset.argtypes = [ctypes.c_void_p]
    library.reset.restype = None
    return library


def two_halves(name: Name, num_loc: int, batch: int, *, repeats: int = 15) -> float:
    """Speed-up of two threads in C that play a half of the batch each, without synchronisation, over one thread.

    This is the machine's bound for two threads with this memory traffic.
    """
    whole = StepC(name, num_loc, batch)
    halves = [StepC(name, num_loc, batch // 2) for _ in range(2)]
    steps = min(one.episodes.live_steps for one in (whole, *halves))
    ratios = []
    with ThreadPoolExecutor(2) as pool:
        for _ in range(repeats):
            for one in (whole, *halves):
                one.start()
            alone = whole.play(0, steps)
            before = clock()
            list(pool.map(lambda half: half.play(0, steps), halves))
            ratios.append(alone / (clock() - before))
    return statistics.median(ratios)


class StepC:
    """A C kernel on recorded episodes: `StepC("cvrp", 50, 1024).seconds()` is the cost of a call for 1024 rows.

    One thread. Only the calls are timed; actions are ready in memory, and resets happen between the timed parts.
    """

    def __init__(self, name: Name, num_loc: int, batch: int, *, episodes: Episodes | None = None) -> None:
        self.episodes = e = episodes or record_random_episodes(name, num_loc, batch, seed=0)
        self.library = _library(name)
        nodes = e.locs.shape[1]
        sizes = {"rows": e.batch, "nodes": nodes, "tour_size": 2 * num_loc + 2, "max_steps": 4 * (num_loc + 1)}
        width = {"N2": (nodes, 2), "N": (nodes,), "L": (sizes["tour_size"],), None: ()}
        self.fields = {n: np.zeros((e.batch, *width[w]), dtype) for n, (dtype, w) in ARRAYS.items()}
        for n in ("locs", "demand", "capacity"):
            self.fields[n][:] = getattr(e, n)
        self.world = _World(**sizes, **{n: a.ctypes.data for n, a in self.fields.items()})
        self.address = ctypes.addressof(self.world)
        self.actions = [a.ctypes.data for a in e.actions]
        self.start()
        self._check()

    def start(self) -> None:
        """Reset to the beginning of the recorded episode."""
        self.library.reset(self.address)

    def play(self, first: int, last: int) -> float:
        """Play the recorded steps first..last-1; returns their seconds."""
        step, world = self.library.step, self.address
        before = clock()
        for action in self.actions[first:last]:
            step(world, action)
        return clock() - before

    def seconds(self, *, repeats: int = 7, min_seconds: float = 0.1) -> float:
        """Seconds per call for the whole batch."""
        return step_time(self.start, self.play, self.episodes.live_steps, repeats=repeats, min_seconds=min_seconds)

    def _check(self) -> None:
        """Check that recorded actions are legal here, and that ends and lengths agree."""
        e, f = self.episodes, self.fields
        total = np.zeros(e.batch)
        for t in range(len(self.actions)):
            self.play(t, t + 1)
            total += f["reward"]
            assert not f["illegal"].any(), f"the C kernel refuses a recorded action at step {t}"
            np.testing.assert_array_equal(f["terminated"], t + 1 >= e.length)
            assert f["action_mask"].any(axis=1).all(), f"the C kernel leaves a row without an action at step {t}"
        np.testing.assert_allclose(f["tour_length"], e.tour_length, rtol=1e-5)
        np.testing.assert_allclose(-total, e.tour_length, rtol=1e-5)
