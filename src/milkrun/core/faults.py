"""What is wrong with a kernel that does not compile, or must not, in one sentence with its file and line.

The compiler's own words are pages long and speak of its inside; they stay as the cause of the error. The usual faults
of an author are looked for in the source of the kernels that were to be compiled, and only when compiling has failed.
One fault compiles well and is looked for before: random numbers that belong to no row.
"""

from __future__ import annotations

import ast
import builtins
import dis
import inspect
import random
import re
import textwrap
from collections.abc import Iterable, Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np
from numba.core.dispatcher import Dispatcher

from milkrun.core.errors import KernelRefused, did_you_mean, no_such_field
from milkrun.core.kernels import Kernel

ALLOCATING = frozenset(
    "arange array asarray concatenate copy empty empty_like full full_like linspace ones ones_like stack zeros "
    "zeros_like".split()
)
GENERATORS = np.random.Generator, np.random.RandomState, np.random.BitGenerator, random.Random
DRAWS = {
    "integers": "i, low, high",
    "normal": "i",
    "lognormal": "i, mu, sigma",
    "exponential": "i, scale",
    "gamma": "i, shape, scale",
    "beta": "i, a, b",
    "choice": "i, weights",
    "permutation": "out",
    "uniform": "i",
}
"""Draws of `core.rng`, and what they take after the stream."""
SAME_DRAW = {
    "randint": "integers",
    "randrange": "integers",
    "randn": "normal",
    "standard_normal": "normal",
    "gauss": "normal",
    "normalvariate": "normal",
    "lognormvariate": "lognormal",
    "expovariate": "exponential",
    "gammavariate": "gamma",
    "betavariate": "beta",
    "shuffle": "permutation",
    "choices": "choice",
    "sample": "permutation",
}
"""Names of numpy and Python for draws that have another name in `core.rng`; all others are uniform there."""

_own_streams: set[FunctionType] = set()  # these draw from no generator, nor does what they call


def refuse_generators(kernels: Iterable[Any]) -> None:
    """Raises KernelRefused where a kernel, or one that it calls, draws from a generator of numpy or Python: compiled
    code would, from one that all rows share and no seed decides."""
    waiting = [value.py_func for value in kernels if isinstance(value, Dispatcher)]
    seen: set[FunctionType] = set()
    while waiting:
        function = waiting.pop()
        if function in seen or function in _own_streams:
            continue
        seen.add(function)
        for code in _codes(function.__code__):
            values = _values(function, code)
            if any(_is_generator(value) for value in values):
                _refuse_draw(function, code)
            waiting += [value.py_func for value in values if isinstance(value, Dispatcher)]
    _own_streams.update(seen)  # last: a kernel that calls a refused one is refused again


def _values(function: FunctionType, code: CodeType) -> list[Any]:
    """All that the names of a code may mean outside it, also as attributes of modules."""
    values = list(_known_names(function, code).values())
    for module in values:  # which grows: a module may stand in a package
        if isinstance(module, ModuleType):
            found = [vars(module)[name] for name in code.co_names if name in vars(module)]
            values += [value for value in found if not any(value is known for known in values)]
    return values


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _codes(inner)


def _is_generator(value: Any) -> bool:
    """A generator of numpy or Python, a method of one, or the module that has them."""
    return value is np.random or value is random or isinstance(getattr(value, "__self__", value), GENERATORS)


def _refuse_draw(function: FunctionType, code: CodeType) -> None:
    """Raises if the code does read the generator that its names could mean."""
    known, lines = _known_names(function, code), dict(dis.findlinestarts(code))
    line = at = code.co_firstlineno
    path, value = "", None
    for step in dis.get_instructions(code):
        line = lines.get(step.offset) or line
        if _is_generator(value):
            drawn = step.argval if step.opname.startswith(("LOAD_ATTR", "LOAD_METHOD")) else value
            raise KernelRefused(
                f"the kernel {function.__name__!r} draws from {path}{_origin(path, value)} "
                f"({_file(code.co_filename)}:{at}): rows have streams of their own; write "
                f"{_own_draw(getattr(drawn, '__name__', drawn))}"
            )
        if step.opname.startswith(("LOAD_GLOBAL", "LOAD_DEREF", "LOAD_NAME")):
            path, value, at = str(step.argval), known.get(step.argval), line
        elif step.opname.startswith(("LOAD_ATTR", "LOAD_METHOD")) and value is not None:
            path, value = f"{path}.{step.argval}", getattr(value, step.argval, None)
        elif step.opname not in ("CACHE", "PUSH_NULL"):
            value = None


def _origin(path: str, value: Any) -> str:
    home = "random" if isinstance(getattr(value, "__self__", value), random.Random) else "numpy.random"
    return "" if isinstance(value, ModuleType) or path.endswith(home) else f", of {home}"


def _own_draw(name: Any) -> str:
    draw = SAME_DRAW.get(name, name if name in DRAWS else "uniform")
    return f"{draw}(row_stream(w, b, PURPOSE), {DRAWS[draw]})"


def explained(entry: Any, error: Exception) -> KernelRefused | None:
    """The error to raise where compiling `entry` ended in `error`: a sentence on the fault if it is found, else the
    place and the first words of the compiler, else None."""
    names = entry.py_func.__globals__
    text = re.sub("\x1b\\[[0-9;]*m", "", str(error))  # numba writes in bold
    found = [fault for function in _reached(entry.py_func) for fault in _faults(function, names.get("LAYOUT"))]
    if found:
        met = [sentence for place, sentence in found if f'{place[0]}", line {place[1]}' in text]
        return KernelRefused((met or [found[0][1]])[0])
    files = {_file(function.__code__.co_filename) for function in _reached(entry.py_func)}
    places = re.findall(r'File "([^"<>]+)", line (\d+)', text) + re.findall(r'" at ([^"<>]+) \((\d+)\)', text)
    places = [place for place in places if _file(place[0]) in files]  # numba's own come before, where it has any
    if not places:
        return None
    file, line = places[0]  # the innermost call comes first
    reason = f"{_reason(text)}; debug=True plays it as Python"
    return KernelRefused(f"a kernel does not compile ({_file(file)}:{line}): {reason}")


def _reason(text: str) -> str:
    """What the compiler says itself: the most special of its errors, without the way it took to it."""
    if "NRT required" in text:
        return "it allocates memory, which a kernel must not: declare a scratch field for it"
    if special := re.findall(r"Numba\w*Error: (.+)", text):
        return str(special[-1]).strip()
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("Failed in ")]
    return lines[0] if lines else text.strip()


def _reached(function: FunctionType) -> Iterator[FunctionType]:
    """The kernels that a function calls, and those that they call."""
    waiting, seen = [function], {function}
    while waiting:
        for value in _known_names(waiting.pop(0)).values():
            inner = value.py_func if isinstance(value, Kernel) else None
            if inner is not None and inner not in seen:
                seen.add(inner)
                waiting.append(inner)
                yield inner


def _known_names(function: FunctionType, code: CodeType | None = None) -> dict[str, Any]:
    """The names of a function's code, or of one inside it, that mean something outside it, and what they mean."""
    closed = dict(zip(function.__code__.co_freevars, (cell.cell_contents for cell in function.__closure__ or ())))
    used = (code or function.__code__).co_names
    return {name: function.__globals__[name] for name in used if name in function.__globals__} | closed


def returned_numbers(function: FunctionType) -> Iterator[tuple[int, str]]:
    """The whole numbers that a kernel's source says it returns, written out or by a name, and where."""
    tree = _source(function)
    waiting = [node.value for node in ast.walk(tree) if isinstance(node, ast.Return)] if tree is not None else []
    for value in waiting:  # which grows
        if isinstance(value, ast.IfExp):
            waiting += [value.body, value.orelse]
        elif isinstance(value, (ast.Name, ast.Constant)):
            number = value.value if isinstance(value, ast.Constant) else _known_names(function).get(value.id)
            if isinstance(number, int):
                yield int(number), f"{function.__name__} ({_file(function.__code__.co_filename)}:{value.lineno})"


def _source(function: FunctionType) -> Any:
    """The tree of a function's source with the lines of its file; None where there is none: typed at a prompt, or
    changed since."""
    try:
        tree = ast.parse(textwrap.dedent("".join(inspect.getsourcelines(function)[0])))
    except (OSError, SyntaxError):
        return None
    return ast.increment_lineno(tree, function.__code__.co_firstlineno - 1)


def _faults(function: FunctionType, layout: Any) -> Iterator[tuple[tuple[str, int], str]]:
    """(file, line) and sentence of what a kernel cannot do."""
    tree, code = _source(function), function.__code__
    if tree is None:
        return
    own = {*code.co_varnames, *code.co_cellvars}
    known = _known_names(function)
    rows = _Rows(tree, layout, known)
    for node in ast.walk(tree.body[0]):
        line = getattr(node, "lineno", 0)
        place = f"({_file(code.co_filename)}:{line})"
        sentence = None
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and layout is not None:
            if node.value.id == "w" and code.co_varnames[:1] == ("w",) and not layout.has(node.attr):
                sentence = no_such_field(layout.owner, node.attr, [*layout.fields, *layout.sizes], place[1:-1])
        elif rows.computed(node):
            sentence = f"the kernel {code.co_name!r} computes {ast.unparse(node)} with whole rows: kernels have no "
            sentence += f"arithmetic on whole rows, write a loop {place}"
        elif isinstance(node, ast.Call):
            sentence = _fault_of_call(node, known, own)
            sentence = sentence and f"the kernel {code.co_name!r} {sentence} {place}"
        elif isinstance(node, (ast.List, ast.Set, ast.Dict, ast.ListComp, ast.SetComp, ast.DictComp)):
            kind = re.sub("comp$", "", type(node).__name__.lower())
            sentence = f"the kernel {code.co_name!r} allocates a {kind}, which it must not: "
            sentence += f"declare a scratch field for it {place}"
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and line >= _first_line(tree):
            if node.id not in own and node.id not in known and not hasattr(builtins, node.id):
                close = did_you_mean(node.id, [*own, *function.__globals__], most=1).replace("; ", ": ", 1)
                sentence = f"the kernel {code.co_name!r} names {node.id!r}, which is defined nowhere{close} {place}"
        if sentence:
            yield (code.co_filename, line), sentence


class _Rows:
    """Which expressions of a kernel are arrays: fields, parts of them, and what is computed of these."""

    def __init__(self, tree: ast.AST, layout: Any, known: dict[str, Any]) -> None:
        self._layout, self._known, self._local = layout, known, dict[str, int]()
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                self._local[node.targets[0].id] = self._axes(node.value)

    def computed(self, node: ast.AST) -> bool:
        """Arithmetic, a comparison or a function of numbers, of which a part is an array."""
        parts: list[ast.expr] = []
        if isinstance(node, ast.BinOp):
            parts = [node.left, node.right]
        elif isinstance(node, ast.Compare):
            parts = [node.left, *node.comparators]
        elif isinstance(node, ast.UnaryOp):
            parts = [node.operand]
        elif isinstance(node, ast.AugAssign):
            parts = [node.target]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            module = self._known.get(ast.unparse(node.func.value))
            parts = node.args if isinstance(getattr(module, node.func.attr, None), np.ufunc) else []
        return any(self._axes(part) > 0 for part in parts)

    def _axes(self, node: ast.AST) -> int:
        """How many axes an expression has; 0 of a number, and of what nobody can tell."""
        if isinstance(node, ast.Name):
            return self._local.get(node.id, 0)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "w":
            f = self._layout.fields.get(node.attr) if self._layout is not None else None
            return 0 if f is None else len(f.dims) + f.per_row
        if isinstance(node, ast.Subscript):
            index = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            open_ends = any(isinstance(i, ast.Constant) and i.value is Ellipsis for i in index)
            return 1 if open_ends else self._axes(node.value) - sum(not isinstance(i, ast.Slice) for i in index)
        return int(self.computed(node))


def _first_line(tree: Any) -> int:
    """Of a function's body: its decorators are no part of what is compiled."""
    return int(tree.body[0].body[0].lineno)


def _fault_of_call(node: ast.Call, known: dict[str, Any], own: set[str]) -> str | None:
    target = ast.unparse(node.func)
    root, *rest = target.split(".")
    if root in own or root not in known or not all(part.isidentifier() for part in rest):
        return None
    called = known[root]
    for part in rest:
        called = getattr(called, part, None)
    if isinstance(called, Kernel):
        given = len(node.args)
        parameters = inspect.signature(called.py_func).parameters.values()
        if node.keywords or any(isinstance(a, ast.Starred) for a in node.args):
            return None
        least = sum(p.default is p.empty for p in parameters)
        if not least <= given <= len(parameters):
            wanted = ", ".join(p.name for p in parameters)
            return f"gives {target} {given} values, which takes ({wanted})"
    elif isinstance(called, FunctionType):
        if isinstance(known[root], ModuleType) and known[root].__name__.split(".")[0] in ("numpy", "math", "numba"):
            return _allocation(target, called)
        return f"calls {target}, a plain Python function: mark it @kernel"
    return _allocation(target, called)


def _allocation(target: str, called: Any) -> str | None:
    name = getattr(called, "__name__", "")
    if name in ALLOCATING and getattr(np, name, None) is called:
        return f"allocates memory by {target}, which it must not: declare a scratch field for it"
    return None


def _file(path: str) -> str:
    return path.replace("\\", "/").rpartition("/")[2]
