"""The launcher: its threads, scratch and legality, and what its cache keys depend on."""

from __future__ import annotations

import sys
import threading
import types

import cloudpickle
import numpy as np
import pytest
from numba import float64
from numba.core.errors import TypingError

import milkrun
from milkrun.core.cache import compile_module
from milkrun.core.errors import ConfigError
from milkrun.core.kernels import KERNEL_OPTIONS, kernel
from milkrun.core.memory import address_of, padded_slots
from milkrun.core.threads import Entry
from milkrun.core.world import World
from tests.core.toys import Glider, Lantern, Sorter, Turnstile, rolled, rows_of


@pytest.fixture
def threads(monkeypatch):
    """Sets the number of threads of big batches, and restores it afterwards."""
    monkeypatch.delenv("MILKRUN_NUM_THREADS", raising=False)
    yield milkrun.set_num_threads
    milkrun.set_num_threads(None)


@pytest.fixture
def calls(monkeypatch):
    """The calls of the step entry of lanterns: "serial", or the number of pieces of a parallel call."""
    seen: list[object] = []
    stepped(2, threads=1)
    entry = stepped(2, threads=2)._launcher.step
    serial, parallel = entry.serial, entry.parallel
    monkeypatch.setattr(entry, "serial", lambda *args: seen.append("serial") or serial(*args))
    monkeypatch.setattr(entry, "parallel", lambda *args: seen.append(args[-1]) or parallel(*args))
    return seen


def stepped(num_envs: int, **options: object) -> Lantern:
    world = Lantern(num_envs, seed=3, **options)
    world.reset()
    world.step(np.ones(num_envs, np.int64))
    return world


# -- threads -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["int64", "int32", "read-only", "every second", "swapped"])
def test_actions_of_every_form_are_played_alike(threads, form):
    """Several threads copy plain int64 actions themselves; other actions are copied before, to the same rows, and no
    array of the caller is written."""
    threads(2)
    rng = np.random.default_rng(5)
    one, two = (milkrun.make("milkrun/CVRP-v0", 2048, num_loc=6, seed=4, threads=k) for k in (1, 2))
    one.reset()
    two.reset()
    for turn in range(9):
        actions = one.sample_actions(3, turn)
        actions[rng.random(2048) < 0.1] = 99  # illegal
        given = {
            "int64": actions,
            "int32": actions.astype(np.int32),
            "read-only": actions.copy(),
            "every second": np.repeat(actions, 2)[::2],
            "swapped": actions.astype(">i8"),
        }[form]
        given.flags.writeable = form != "read-only"
        before = given.copy()
        one.step(actions.tolist())
        two.step(given)
        assert (given == before).all()
        for name, value in one.state_dict().items():
            assert np.array_equal(two.state_dict()[name], value), name


def test_small_batches_run_serially_and_big_ones_in_parallel(threads, calls):
    """The threshold is `parallel_from` rows: 1023 lanterns are one serial call, 1024 are cut into two pieces."""
    threads(2)
    stepped(1023)
    stepped(1024)
    assert calls == ["serial", 2]


def test_thread_counts_decide_the_pieces(threads, calls):
    """One thread is always serial; `threads=` of a world counts at any size but never exceeds the rows."""
    threads(1)
    stepped(4096)
    threads(3)
    stepped(4096)
    stepped(4096, threads=1)
    stepped(7, threads=2)
    stepped(2, threads=5)
    stepped(1, threads=2)
    assert calls == ["serial", 3, "serial", 2, 2, "serial"]


def test_stepping_some_rows_counts_only_those(threads, calls):
    """Ten rows of a batch of four thousand are ten rows."""
    threads(2)
    world = stepped(4096)
    world.step(np.ones(10, np.int64), rows=np.arange(10))
    assert calls == [2, "serial"]


def test_the_environment_sets_the_thread_count(threads, monkeypatch):
    """MILKRUN_NUM_THREADS counts until set_num_threads sets another number; None restores it."""
    monkeypatch.setenv("MILKRUN_NUM_THREADS", "5")
    assert milkrun.get_num_threads() == 5
    threads(3)
    assert milkrun.get_num_threads() == 3
    threads(np.int64(4))
    assert milkrun.get_num_threads() == 4
    threads(None)
    assert milkrun.get_num_threads() == 5


@pytest.mark.parametrize("text", ["0", "-1", "two", "1.5", "²"])
def test_a_bad_thread_count_in_the_environment_is_refused(threads, monkeypatch, text):
    """The sentence names the variable and its value."""
    monkeypatch.setenv("MILKRUN_NUM_THREADS", text)
    with pytest.raises(ConfigError, match=f"MILKRUN_NUM_THREADS.*{text}"):
        milkrun.get_num_threads()


@pytest.mark.parametrize("n", [0, -1, 1.5, True, "2"])
def test_a_bad_thread_count_is_refused(threads, n):
    """set_num_threads takes integers from 1, or None, and keeps the old count otherwise."""
    threads(2)
    with pytest.raises(ConfigError, match="set_num_threads"):
        threads(n)
    assert milkrun.get_num_threads() == 2


# -- rows do not depend on their neighbours ------------------------------------------------------------------------


def played(num_envs: int, first_row: int = 0, threads: int | None = 1) -> World:
    """Twenty random turns of small CVRPs: at least one autoreset in most rows."""
    world = milkrun.make(
        "milkrun/CVRP-v0", num_envs=num_envs, seed=11, first_row=first_row, threads=threads, num_loc=5, capacity=9
    )
    world.reset()
    for turn in range(20):
        world.step(world.sample_actions(5, turn))
    return world


@pytest.fixture(scope="module")
def thousand() -> World:
    world = played(1000)
    assert (world.stream[:, 2] > 0).mean() > 0.5
    return world


@pytest.mark.parametrize("threads", [2, 3])
def test_thread_counts_give_the_same_bits(thousand, threads):
    """A thousand rows on two and three threads equal those of one, field by field."""
    assert rows_of(played(1000, threads=threads)) == rows_of(thousand)


@pytest.mark.parametrize(
    ("num_envs", "first_row", "threads"), [(1, 0, 1), (1, 499, 1), (1, 999, 2), (7, 500, 3), (64, 936, 2)]
)
def test_a_slice_made_alone_gives_the_same_bits(thousand, num_envs, first_row, threads):
    """`first_row` makes any part of the big batch: every field of its rows is the same."""
    alone = played(num_envs, first_row, threads)
    assert rows_of(alone, np.arange(num_envs)) == rows_of(thousand, np.arange(first_row, first_row + num_envs))


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_scratch_belongs_to_a_thread(threads):
    """Rows sort 700 numbers in 17 kB of work space; threads that shared it would corrupt each other's order."""
    world = Sorter(400, seed=1, threads=threads)
    world.reset()
    ranks = np.arange(400) * 7 % 700
    for _ in range(3):
        world.step(ranks)
        order = np.sort(world.numbers, axis=1)
        assert (world.picked == order[np.arange(400), ranks]).all()
        assert (world.below == [row[:r].sum() for row, r in zip(order, ranks)]).all()
    assert world.pages.shape == (threads, 2, 700)


def test_work_spaces_of_threads_share_no_cache_line():
    """Slots begin 128 bytes apart or more, at multiples of it, whatever their size; all is zero at first."""
    for shape in ((), (1,), (3, 7), (700,)):
        pages = padded_slots(np.dtype(np.int32), 3, shape)
        starts = [address_of(pages[k : k + 1]) for k in range(3)]
        assert pages.shape == (3, *shape) and not pages.any()
        assert all(start % 128 == 0 for start in starts)
        assert min(np.diff(starts)) >= max(128, pages[0].nbytes)


# -- a world's own rules of legality -------------------------------------------------------------------------------


def test_own_legal_and_idle_kernels_are_used():
    """Gate 2 twice in a row is refused and the clock runs on; -1 is legal here though no mask can show it."""
    world = Turnstile(1, seed=0, autoreset="disabled")
    world.reset(instance={"closing": [4]})
    seen = []
    for action in (2, 2, -1, 9):
        world.step([action])
        seen.append((world.reward[0], bool(world.illegal[0]), int(world.clock[0]), int(world.last[0])))
    assert seen == [(1, False, 1, 2), (-0.25, True, 2, 2), (1, False, 3, -1), (-0.25, True, 4, -1)]
    assert world.terminated[0] and world.objective[0] == 1.5
    assert world.action_mask[0].tolist() == [True, False, False, False]


@pytest.mark.filterwarnings("error")
def test_numbers_as_actions():
    """Each number moves one axis; beyond [-1, 1], infinite or NaN the body stays and the step counts."""
    world = Glider(4, seed=0)
    world.reset(instance={"wind": [0.0, 0.25, 0.0, 0.5]})
    world.step(np.array([[1, -1], [0.5, 0], [1.001, 0], [0, np.nan]], np.float32))
    assert world.place.tolist() == [[1, -1], [0.75, 0.25], [0, 0], [0, 0]]
    assert world.illegal.tolist() == [False, False, True, True] and world.i.tolist() == [1, 1, 1, 1]
    world.step(np.array([[1.0, 1.0], [-np.inf, 0], [-1, 1], [1e300, 0]]))
    assert world.place.tolist() == [[2, 0], [0.75, 0.25], [-1, 1], [0, 0]]
    assert world.reward.tolist() == [2, 0, -1, 0]


# -- the cache key -------------------------------------------------------------------------------------------------

HEAD = "import enum\nimport numpy as np\nfrom milkrun.core.kernels import kernel\n"
CALL = "from crate.rules import f\n@kernel\ndef step(x):\n    return f(x)\n"


@pytest.fixture
def key(monkeypatch, tmp_path):
    """The cache key of a kernel in one file that calls into another, `crate.rules`."""
    monkeypatch.setenv("MILKRUN_CACHE_DIR", str(tmp_path))

    def of(rules: str, caller: str = CALL) -> str:
        crate, inner, world = (types.ModuleType(name) for name in ("crate", "crate.rules", "world"))
        crate.rules = inner
        monkeypatch.setitem(sys.modules, "crate", crate)
        monkeypatch.setitem(sys.modules, "crate.rules", inner)
        exec(HEAD + rules, inner.__dict__)
        exec(HEAD + caller, world.__dict__)
        return compile_module("probe", "", {"step": world.step}).__name__

    return of


CHANGES = {
    "body of a callee": ("@kernel\ndef f(x): return x + 1", "@kernel\ndef f(x): return x + 2"),
    "operator": ("@kernel\ndef f(x): return x + 1", "@kernel\ndef f(x): return x * 1"),
    "global constant": ("K = 1\n@kernel\ndef f(x): return x + K", "K = 2\n@kernel\ndef f(x): return x + K"),
    "default of an argument": ("@kernel\ndef f(x, k=1): return x + k", "@kernel\ndef f(x, k=2): return x + k"),
    "member of an enum": (
        "class E(enum.IntEnum):\n    A = 1\n@kernel\ndef f(x): return x + E.A",
        "class E(enum.IntEnum):\n    A = 2\n@kernel\ndef f(x): return x + E.A",
    ),
    "array": (
        "K = np.array([1, 2])\n@kernel\ndef f(x): return x + K[1]",
        "K = np.array([1, 3])\n@kernel\ndef f(x): return x + K[1]",
    ),
    "shape of an array": (
        "K = np.zeros((2, 3))\n@kernel\ndef f(x): return x + K.shape[0]",
        "K = np.zeros((3, 2))\n@kernel\ndef f(x): return x + K.shape[0]",
    ),
    "dtype of an array": (
        "K = np.zeros(2)\n@kernel\ndef f(x): return x + K[0]",
        "K = np.zeros(2, np.int64)\n@kernel\ndef f(x): return x + K[0]",
    ),
    "array in a tuple": (
        "K = (np.array([1.0]),)\n@kernel\ndef f(x): return x + K[0][0]",
        "K = (np.array([1.0 + 1e-12]),)\n@kernel\ndef f(x): return x + K[0][0]",
    ),
    "kernel in a tuple": (
        "@kernel\ndef g(x): return x + 1\nK = (g,)\n@kernel\ndef f(x): return K[0](x)",
        "@kernel\ndef g(x): return x + 2\nK = (g,)\n@kernel\ndef f(x): return K[0](x)",
    ),
    "closure": (
        "def make(k):\n    @kernel\n    def f(x): return x + k\n    return f\nf = make(1)",
        "def make(k):\n    @kernel\n    def f(x): return x + k\n    return f\nf = make(2)",
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_the_cache_key_knows_what_a_kernel_depends_on(key, change):
    """The same source twice has one key, so the next process compiles nothing; any change has another."""
    before, after = CHANGES[change]
    assert key(before) == key(before)
    assert key(before) != key(after)


@pytest.mark.parametrize(
    "caller",
    [
        "import crate.rules as rules\n@kernel\ndef step(x):\n    return rules.f(x)\n",
        "import crate.rules\n@kernel\ndef step(x):\n    return crate.rules.f(x)\n",
    ],
)
def test_the_cache_key_follows_modules(key, caller):
    """A callee reached as `rules.f` or `crate.rules.f` counts like one imported by name."""
    before, after = CHANGES["body of a callee"]
    assert key(before, caller) != key(after, caller)


# -- first use -------------------------------------------------------------------------------------------------------


def test_a_world_class_defined_twice_works_twice():
    """A notebook cell that runs twice defines the class twice: both share the compiled code."""
    again = type("Lantern", (Lantern,), {"__doc__": "the same once more"})
    world = again(2, seed=3)
    world.reset()
    world.step([1, 1])
    assert world.lit.tolist() == [1, 1]


def test_the_first_call_may_come_from_several_threads_at_once(monkeypatch, tmp_path):
    """One thread compiles; the others wait and then run the same code."""
    monkeypatch.setenv("MILKRUN_CACHE_DIR", str(tmp_path))
    source = "@njit(**OPTIONS)\ndef double(lo, hi, slot):\n    return 2 * hi\n"
    from numba import njit

    entry = Entry(compile_module("first_use", source, {"njit": njit, "OPTIONS": KERNEL_OPTIONS}).double)
    results: list[object] = []
    barrier = threading.Barrier(4)

    def call() -> None:
        barrier.wait()
        try:
            results.append(entry.run((), 21, 1))
        except RuntimeError as e:
            results.append(e)

    crew = [threading.Thread(target=call) for _ in range(4)]
    for thread in crew:
        thread.start()
    for thread in crew:
        thread.join()
    assert results == [42] * 4


def test_lanterns_roll_the_same_in_this_process():
    """The checksum that other processes are compared with does not depend on threads."""
    assert rolled(0, threads=1) == rolled(0, threads=2) != rolled(1, threads=1)


# -- kernels as parts ------------------------------------------------------------------------------------------------


@kernel
def half(x):
    return x / 2


@kernel(inline=True)
def quarter(x):
    return half(half(x))


@kernel
def put(values, k):
    values[k] = quarter(values[k])


def test_a_kernel_can_be_called_from_python():
    """At the prompt, with any types, before and after compiled code has met it; what it changes is changed."""
    assert half(3) == 1.5
    assert half(np.float32(3)) == 1.5
    assert quarter(8.0) == 2.0
    values = np.array([4.0, 8.0])
    put(values, k=1)
    assert values.tolist() == [4, 2]
    with pytest.raises(TypeError, match="missing a required argument: 'x'"):
        half()


@kernel
def _leaf(x):
    return x + 1


@kernel
def _never_calls_leaf(x):
    return _leaf(x) if x != x else x


@kernel
def _calls_leaf(x):
    return 10 * _leaf(x)


@kernel
def _root(x):
    return _calls_leaf(x) + _never_calls_leaf(x)


def test_code_that_one_caller_drops_is_there_for_another():
    """Of two callers of a kernel one is optimised until its call is gone: 10 * (3 + 1) + 3."""
    assert _root(3) == 43


def test_kernels_make_no_machine_code_of_their_own():
    """They are linked into their callers before they are optimised."""
    quarter(8.0)
    made = [compiled for k in (half, quarter) for compiled in k.overloads.values()]
    assert made
    assert [c.library.get_pointer_to_function(c.fndesc.llvm_func_name) for c in made] == [0] * len(made)
    calls = [line for line in quarter.overloads[float64,].library.get_llvm_str().splitlines() if " call " in line]
    assert len([line for line in calls if "half" in line]) == 2


def test_a_kernel_travels():
    """To another process, by cloudpickle, as part of a world that was defined in a notebook."""
    there = cloudpickle.loads(cloudpickle.dumps(quarter))
    assert type(there) is type(quarter)
    assert there(8.0) == 2.0


def test_a_kernel_that_does_not_compile_names_the_fault():
    @kernel
    def strange(x):
        return x.colour

    with pytest.raises(TypingError, match="colour"):
        strange(1.0)
