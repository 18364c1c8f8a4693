"""From declarations and kernels to compiled entries over the rows of a batch.

A world's kernels work on one row: `step(w, b, action)`. This file writes the module that runs them over a batch:
it builds the record `w` from one table of int64 words (sizes, addresses, configuration numbers), checks actions
against the mask, counts steps, ends and restarts rows. One text serves every world, so the rules of the contract on
illegal actions, truncation, finished rows and NEXT_STEP are stated here once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numba import njit, types

from milkrun.core.actions import Action, Agents
from milkrun.core.cache import compile_module
from milkrun.core.checked_indices import compile_checked
from milkrun.core.faults import refuse_generators
from milkrun.core.fields import Role
from milkrun.core.interpreter.module import interpret_module
from milkrun.core.kernels import KERNEL_OPTIONS, array_at, copy_rows, fetch, kernel, part_compiler
from milkrun.core.record import LOWERING, RecordLayout, record_at
from milkrun.core.threads import Entry

NO_LIMIT = 2**62

# A world has fewer than 2**31 rows, so the count of rows that ended stays below DUE_ONE, and one sum holds both.
DUE, DUE_ONE = -1, 1 << 32
"""A step under NEXT_STEP marks the rows whose next episode is due, and counts them separately from those that ended.
The compiled step does not draw instances, since it would take twice as long to compile."""

AHEAD = 8
"""The prefetch distance, in rows."""

BLOCK = 64
"""The number of rows that a functional step copies at a time."""


def build_launcher(
    layout: RecordLayout,
    action: Action,
    kernels: Mapping[str, Any],
    usual: Mapping[str, int],
    *,
    debug: bool | str = False,
) -> Launcher:
    """Compiles (or finds in the cache) the entries of a world; `debug` is True to interpret them or "bounds" to check
    indices, here and below.
    With the `usual` constants, the drawing of instances is compiled without all other laws."""
    text = _head(layout) + _turns(layout, action, kernels)
    actions = {
        "discrete": "array_at(action, (hi,), None, int64)",
        "multi": f"array_at(action, (hi, {_agent_count(action, layout)}), None, int64)",
        "box": f"array_at(action, (hi, {_size(getattr(action, 'n', 0), layout)}), None, float32)",
    }[action.kind]
    given = actions.replace("(action,", "(given,")
    copied = [f for f in layout.fields.values() if f.role in (Role.STATE, Role.MASK) and not f.strided]
    copied = [f for f in copied if not f.tally or f.name == "objective"]  # functional stepping drops the others
    copies = [f"copy_rows(w.{f.name}, v.{f.name}, first, last - first)" for f in copied if not f.remade]
    widest = {f.dims for f in copied if f.role is Role.MASK}  # narrow rows share cache lines
    fetches = "".join(f"fetch(w.{f.name}, r + BLOCK, 0)\n            " for f in copied if f.dims in widest)
    text += _entry("generate_rows", "", "", "generate(w, b)")
    if usual:
        text += f"\n# {sorted(usual.items())}"
        text += _entry("generate_usual", "", "", "generate(w, b)").replace("= record(", "= usual_record(")
    text += _entry("restart_rows", "", "", "restart(w, b)")
    if "settle" in kernels:
        text += _entry(
            "command_rows", "action, mode", f"actions = {actions}", "total += command(w, b, actions[r], mode)"
        )
        text += _entry("outcome_rows", "", "", "total += outcome(w, b)")
        if "update_views" in kernels:
            text += _entry("update_rows", "", "", "update_views(w, b)")
    else:
        text += _entry(
            "step_rows",
            "action, mode, given",
            f"actions = {actions}\n    {_TAKEN.format(given=given)}",
            _prefetched("w, order[r + AHEAD]", 8) + "total += turn(w, b, actions[r], mode)",
        )
        text += _entry(
            "step_from",
            "action, source",
            f"actions = {actions}\n    v = record(source, slot)",
            fetches + _prefetched("v, r + AHEAD", 12) + "total += turn_from(w, r, v, actions[r], 0)",
            _IN_BLOCKS.format(copies="\n        ".join(copies)),
        )
    text += _entry(
        "count_illegal",
        "action, mode",
        f"actions = {actions}",
        "total += (mode == 2 or not (w.terminated[b] or w.truncated[b])) and not legal(w, b, actions[r])",
    )
    if "observe" in kernels:
        text += _entry("observe_rows", "", "", "observe(w, b)")
    if "fault" in kernels:
        # Codes of several rows may add up to 0, so rows are counted, and the code is computed for one row alone.
        counted = "code = fault(w, b)\n        if code != 0:\n            total += code if with_code else 1"
        text += _entry("count_faults", "with_code", "", counted)
    names = {**kernels, "usual_record": record_at(layout, usual)}
    words = {layout.word_of(name): value for name, value in usual.items()}
    return Launcher(_module(_module_of(kernels["step"]), text, layout, names, debug, action), words)


def build_player(
    layout: RecordLayout, action: Action, kernels: Mapping[str, Any], choose: Any, *, debug: bool | str = False
) -> Entry:
    """An entry that plays each live row to its end by the policy choose(w, b, x, i), while the row stays in the CPU
    cache."""
    text = _head(layout) + _turns(layout, action, kernels, views=False)
    chosen = "w.advice[b]" if action.kind == "multi" else "a"
    # The row is live, so the autoreset mode has no effect.
    text += _entry(
        "play_rows",
        "x",
        "",
        f"""while not (w.terminated[b] or w.truncated[b]):
            a = choose(w, b, x, w.i[b])
            turn(w, b, {chosen}, 0)
            total += 1
            if w.illegal[b]:
                break"""
        + ("\n        update_views(w, b)" if "update_views" in kernels else ""),
    )
    name = f"{_module_of(kernels['step'])}_plays_{choose.py_func.__name__}"
    return Entry(_module(name, text, layout, {**kernels, "choose": choose}, debug, action).play_rows)


def build_adviser(layout: RecordLayout, choose: Any, *, debug: bool | str = False) -> Entry:
    """An entry that stores the action of the policy choose(w, b, x, i) in each row, for worlds on engines."""
    text = _head(layout)
    text += _entry(
        "advise_rows", "out, x", "result = array_at(out, (hi,), None, int64)", "result[r] = choose(w, b, x, w.i[b])"
    )
    name = f"advice_{choose.py_func.__name__}"
    return Entry(_module(name, text, layout, {"choose": choose}, debug).advise_rows)


def build_row_map(layout: RecordLayout, function: Any, dtype: np.dtype, *, debug: bool | str = False) -> Entry:
    """An entry that stores function(w, b, x, y) of each row in an array, for policies and reports."""
    text = _head(layout)
    text += _entry(
        "map_rows",
        "out, x, y",
        f"result = array_at(out, (hi,), None, {_numba_name(dtype)})",
        "result[r] = function(w, b, x, y)",
    )
    return Entry(_module(function.py_func.__name__, text, layout, {"function": function}, debug).map_rows)


def build_marker(layout: RecordLayout, mark: Any, *, debug: bool | str = False) -> Entry:
    """An entry that runs the hook `derive_mask`; compiled lazily, since only states from outside need it."""
    text = _head(layout) + _entry("mark_rows", "", "", "mark(w, b)")
    name = f"{_module_of(mark)}_marks"
    return Entry(_module(name, text, layout, {"mark": mark}, debug).mark_rows)


def build_loop(layout: RecordLayout, function: Any) -> Entry:
    """An entry (table, numbers...) that calls function(w, b, numbers...) row by row, for solvers."""
    code = function.py_func.__code__
    numbers = "".join(f", {name}" for name in code.co_varnames[2 : code.co_argcount])
    text = _head(layout) + _LOOP.format(numbers=numbers)
    return Entry(_module(code.co_name, text, layout, {"function": function}, debug=False).loop_rows)


class Launcher:
    """The compiled entries of a world; each takes addresses and runs serially or in parallel."""

    def __init__(self, module: Any, usual: Mapping[int, int]) -> None:
        self._usual = usual  # words of a table, and their usual values
        self._generate = Entry(module.generate_rows)
        self._generate_usual = Entry(module.generate_usual) if usual else self._generate
        self.restart = Entry(module.restart_rows)
        if hasattr(module, "step_rows"):
            self.step = Entry(module.step_rows)
            self.step_from = Entry(module.step_from)
        else:  # a world on an engine
            self.command = Entry(module.command_rows)
            self.outcome = Entry(module.outcome_rows)
            self.update_views = Entry(module.update_rows) if hasattr(module, "update_rows") else None
        self.count_illegal = Entry(module.count_illegal)
        self.observe = Entry(module.observe_rows) if hasattr(module, "observe_rows") else None
        self.count_faults = Entry(module.count_faults) if hasattr(module, "count_faults") else None

    def prepare_step(self) -> None:
        """Compiles the entries of a step."""
        for entry in (self.command, self.outcome) if hasattr(self, "command") else (self.step,):
            entry.prepare()

    def generate(self, table: Any) -> Entry:
        """The entry that draws the instances of a world with this table."""
        as_usual = all(table[word] == value for word, value in self._usual.items())
        return self._generate_usual if as_usual else self._generate

    def first_illegal(self, args: tuple[int, ...], n: int) -> int | None:
        """The index of the first illegal of n actions, by bisection."""
        return _first(self.count_illegal, args, n) if self.count_illegal.serial(*args, 0, n, 0) else None

    def first_fault(self, table: int, order: int, n: int, chunks: int = 1) -> tuple[int, int] | None:
        """The first of n rows whose state the kernel `fault` refuses, and its code."""
        if self.count_faults is None or not self.count_faults.run((table, order, 0), n, chunks):
            return None
        row = _first(self.count_faults, (table, order, 0), n)
        return row, int(self.count_faults.serial(table, order, 1, row, row + 1, 0))


def _first(count: Entry, args: tuple[int, ...], n: int) -> int:
    """The first of n rows of which some are counted."""
    lo, hi = 0, n
    while hi - lo > 1:
        middle = (lo + hi) // 2
        lo, hi = (lo, middle) if count.serial(*args, lo, middle, 0) else (middle, hi)
    return lo


def _module(
    name: str,
    text: str,
    layout: RecordLayout,
    kernels: Mapping[str, Any],
    debug: bool | str,
    action: Action | None = None,
) -> Any:
    """The text as a module: compiled, compiled with checked indices, or interpreted."""
    refuse_generators(kernels.values())
    names = {**_names(layout), **kernels}
    if debug == "bounds":
        return compile_checked(name, text, names, layout.owner)
    return interpret_module(name, text, names, layout, action) if debug else compile_module(name, text, names)


def _names(layout: RecordLayout) -> dict[str, Any]:
    """The names that a launcher's text uses; LOWERING and PARTS are there for the fingerprint only."""
    numbers = ("int8", "int16", "int32", "int64", "uint8", "float32", "float64", "boolean")
    return {
        "record": record_at(layout),
        "array_at": array_at,
        "copy_rows": copy_rows,
        "fetch": fetch,
        "LOWERING": LOWERING,
        "PARTS": getattr(part_compiler(), "lowering", ()),
        "njit": njit,
        "kernel": kernel,
        "OPTIONS": KERNEL_OPTIONS,
        "DUE": DUE,
        "DUE_ONE": DUE_ONE,
        "AHEAD": AHEAD,
        "BLOCK": BLOCK,
        "LAYOUT": layout,
        **{n: getattr(types, n) for n in numbers},
    }


def _module_of(function: Any) -> str:
    """The last part of the name of a kernel's module. Worlds that share all kernels and fields share compiled code."""
    return str(function.py_func.__module__).rpartition(".")[2]


def _numba_name(dtype: np.dtype) -> str:
    return "boolean" if dtype == np.bool_ else dtype.name


def _size(size: str | int, layout: RecordLayout) -> str:
    return f"t[{layout.sizes[size]}]" if isinstance(size, str) else str(size)


def _agent_count(action: Action, layout: RecordLayout) -> str:
    groups = action.groups if isinstance(action, Agents) else ()
    return " + ".join(_size(count, layout) for _, count, _ in groups) or "0"


def _head(layout: RecordLayout) -> str:
    return f"""# Written by milkrun.core.launcher; the module's name is a hash of this and of the kernels.
# {layout.text}
"""


def _turns(layout: RecordLayout, action: Action, kernels: Mapping[str, Any], views: bool = True) -> str:
    """The text of one step of one row. A world with `reward_exact` writes its rewards there; `reward` is rounded from
    it. Without `views` the kernel `update_views` does not run."""
    exact = "reward_exact" in layout.fields
    paid = "reward_exact" if exact else "reward"
    rounded = "w.reward[b] = w.reward_exact[b]" if exact else "pass"
    cleared = "\n    w.reward_exact[b] = 0" if exact else ""
    viewed = "\n    update_views(w, b)" if "update_views" in kernels and views else ""
    again = viewed.replace("\n    ", "\n            ")  # into memory that may be uninitialised
    cut = "settle" in kernels
    restart = _RESTART.format(cleared=cleared, viewed="" if cut else viewed)
    words = {"paid": paid, "rounded": rounded, "cleared": cleared, "viewed": viewed}
    turn = (_CUT_TURN if cut else _TURN).format(**words, viewed_again="" if cut else again, old="w", kept="")
    if views and not cut:
        # A mask that is remade was not copied, so legality is read in v. Where no step writes it (the row has ended,
        # the action is illegal), it is copied.
        kept = "".join(f"\n        copy_rows(w.{f.name}, v.{f.name}, b, 1)" for f in layout.fields.values() if f.remade)
        turn += _TURN_FROM.format(**words, viewed_again=again, old="v" if kept else "w", kept=kept)
    return _legality(action, kernels) + restart + turn


def _legality(action: Action, kernels: Mapping[str, Any]) -> str:
    """`legal` by the mask unless the world has its own; `close_mask` for finished rows; `idle` for illegal actions."""
    if isinstance(action, Agents):
        legal = "first = 0\n    fine = True\n    agent = 0\n"
        close = "first = 0\n"
        for _, count, n in action.groups:
            many, each = (f"w.{size}" if isinstance(size, str) else str(size) for size in (count, n))
            # The range is tested before the mask: `and` short-circuits, so no action is an out-of-bounds index.
            legal += f"""    for k in range({many}):
        a = action[agent]
        fine = fine and a >= 0 and a < {each} and w.action_mask[b, first + a]
        first += {each}
        agent += 1
"""
            close += f"""    for k in range({many}):
        for j in range({each}):
            w.action_mask[b, first + j] = j == 0
        first += {each}
"""
        legal += "    return fine"
    elif action.kind == "discrete":
        legal = "return action >= 0 and action < w.action_mask.shape[1] and w.action_mask[b, action]"
        close = "for j in range(w.action_mask.shape[1]):\n        w.action_mask[b, j] = False\n"
        close += "    w.action_mask[b, 0] = True"
    else:
        # `not <=` instead of `>`, so that a NaN is illegal too.
        legal = "for k in range(action.shape[0]):\n        if not abs(action[k]) <= 1:\n            return False\n"
        legal += "    return True"
        close = "pass"
    text = f"\n@kernel\ndef close_mask(w, b):\n    {close}\n"
    if "legal" not in kernels:
        text += f"\n@kernel\ndef legal(w, b, action):\n    {legal}\n"
    for name in ("idle", "prefetch"):
        if name not in kernels:
            text += f"\n@kernel\ndef {name}(w, b, action):\n    pass\n"
    return text


_RESTART = """
@kernel
def restart(w, b):
    w.i[b] = 0
    w.reward[b] = 0{cleared}
    w.objective[b] = 0
    w.terminated[b] = False
    w.truncated[b] = False
    w.done[b] = False
    w.illegal[b] = False
    reset(w, b){viewed}

"""

_OPENING = """    w.reward[b] = 0{cleared}
    if w.terminated[b] or w.truncated[b]:{kept}
        if mode == 2:
            w.terminated[b] = False
            w.truncated[b] = False
        else:
            w.illegal[b] = False
            w.done[b] = True
            if mode == 1:
                w.i[b] = DUE
                return DUE_ONE{viewed_again}
            return 0
    if legal({old}, b, action):
        w.illegal[b] = False
        step(w, b, action)
    else:{kept}
        w.illegal[b] = True
        idle(w, b, action)
"""

_CLOSING = """    w.i[b] += 1
    if w.i[b] >= w.max_steps and not w.terminated[b]:
        w.truncated[b] = True
    w.objective[b] += w.{paid}[b]
    ended = w.terminated[b] or w.truncated[b]
    w.done[b] = ended
    if w.reward_at_end:
        w.{paid}[b] = w.objective[b] if ended else 0
    {rounded}{viewed}
    if ended:
        close_mask(w, b)
        return 1
    return 0
"""

_TURN = "\n@kernel(inline=True)\ndef turn(w, b, action, mode):\n" + _OPENING + _CLOSING
_TURN_FROM = "\n@kernel(inline=True)\ndef turn_from(w, b, v, action, mode):\n" + _OPENING + _CLOSING
_CUT_TURN = (
    "\n@kernel(inline=True)\ndef command(w, b, action, mode):\n" + _OPENING + "    return 0\n\n"
    "\n@kernel(inline=True)\ndef outcome(w, b):\n    settle(w, b)\n" + _CLOSING
)
"""A step in one piece; one whose row was copied from `v`, without the masks that a step overwrites; and one that is
split for an engine that moves the rows in between (`core/engine.py`)."""


def _prefetched(row: str, indent: int) -> str:
    """Lines that prefetch the memory of a later row. With thousands of rows that halves the time."""
    pad = "\n" + " " * indent
    return f"if r + AHEAD < hi:{pad}    prefetch({row}, actions[r + AHEAD]){pad}"


_IN_ORDER = """for r in range(lo, hi):
        b = order[r]
        {body}"""

_IN_BLOCKS = """for first in range(lo, hi, BLOCK):
        last = min(first + BLOCK, hi)
        {copies}
        for r in range(first, last):
            {{body}}"""
"""All rows in blocks that fit the CPU cache: copying field by field over a block takes a third of the time of row by
row. The memory of the next block is prefetched meanwhile."""


_TAKEN = """if given != action:
        copy_rows(actions, {given}, lo, hi - lo)"""
"""Each thread copies the actions of its own rows: copied by another thread, they would be in the cache of its core, and
fetching them takes a sixth of a cheap step. They are copied, since the caller may overwrite its array between the check
of an action and its use as an index."""


_LOOP = """
@njit(**OPTIONS)
def loop_rows(table{numbers}, lo, hi, slot):
    w = record(table, slot)
    for b in range(lo, hi):
        function(w, b{numbers})
    return 0
"""


def _entry(name: str, parameters: str, prologue: str, body: str, loop: str = _IN_ORDER) -> str:
    """The text of a function over a range of rows; each thread has a scratch slot of its own."""
    # 1024 is no limit: compiled code checks no index, and only words of the table are read.
    args = "table, rows" + (f", {parameters}" if parameters else "")
    return f"""

@njit(**OPTIONS)
def {name}({args}, lo, hi, slot):
    t = array_at(table, (1024,), None, int64)
    w = record(table, slot)
    order = array_at(rows, (hi,), None, int64)
    {prologue}
    total = 0
    {loop.format(body=body)}
    return total
"""
