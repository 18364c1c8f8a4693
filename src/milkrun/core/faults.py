"""What is wrong with a kernel that does not compile, or must not, in one sentence with its file and line.

The compiler's own message is pages long; it stays as the cause of the error. One fault compiles well and is found
before: random numbers from a generator that all rows share.
"""

from __future__ import annotations

import ast
import inspect
import random
import re
import textwrap
from collections.abc import Iterable, Iterator
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
from numba.extending import is_jitted

from milkrun.core.errors import KernelRefused, no_such_field
from milkrun.core.rebinding import global_names

GENERATORS = np.random.Generator, np.random.RandomState, np.random.BitGenerator, random.Random

_accepted: set[FunctionType] = set()  # neither these nor the kernels that they call use a generator


def refuse_generators(kernels: Iterable[Any]) -> None:
    """Raises KernelRefused where a kernel, or one that it calls, uses a generator of numpy or Python: all rows would
    share it, and no seed would decide."""
    waiting = [value.py_func for value in kernels if is_jitted(value)]
    seen: set[FunctionType] = set()
    while waiting:
        function = waiting.pop()
        if function in seen or function in _accepted:
            continue
        seen.add(function)
        values = _named_values(function)
        if any(_is_generator(value) for value in values) and (use := _use_of_generator(function)):
            raise KernelRefused(
                f"the kernel {function.__name__!r} draws from {use}: rows have streams of their own; draw from "
                f"row_stream(w, b, PURPOSE) with a function of milkrun.core.rng"
            )
        waiting += [value.py_func for value in values if is_jitted(value)]
    _accepted.update(seen)  # last: a kernel that calls a refused one is refused again


def _named_values(function: FunctionType) -> list[Any]:
    """All values that the names in a function may mean outside it, also as attributes of modules."""
    names = global_names(function.__code__)
    values = list(outer_names(function).values())
    for module in values:  # which grows: a module may be in a package
        if isinstance(module, ModuleType):
            found = [vars(module)[name] for name in names if name in vars(module)]
            values += [value for value in found if not any(value is known for known in values)]
    return values


def _is_generator(value: Any) -> bool:
    """A generator of numpy or Python, a method of one, or the module that has them."""
    return value is np.random or value is random or isinstance(getattr(value, "__self__", value), GENERATORS)


def _use_of_generator(function: FunctionType) -> str:
    """The generator that a kernel's source names, and where; empty if its names mean something else, as a field called
    `random` does."""
    file = file_name(function)
    if (tree := source_tree(function)) is None:
        return f"a generator of numpy or Python ({file})"
    known = outer_names(function)
    for node in ast.walk(tree):
        if isinstance(node, (ast.Name, ast.Attribute)):
            root, *rest = ast.unparse(node).split(".")
            value = known.get(root)
            for part in rest:
                value = getattr(value, part, None)
            if _is_generator(value):
                return f"{ast.unparse(node)} ({file}:{node.lineno})"
    return ""


def explain_compile_error(entry: Any, error: Exception) -> KernelRefused | None:
    """The sentence for an error of the compiler in `entry`; None if it names no line of a kernel."""
    text = re.sub("\x1b\\[[0-9;]*m", "", str(error))  # numba writes in bold
    called = list(_called_kernels(entry.py_func))
    files = {file_name(function) for function in called}
    places = re.findall(r'File "([^"<>]+)", line (\d+)', text) + re.findall(r'" at ([^"<>]+) \((\d+)\)', text)
    places = [(_base_name(file), line) for file, line in places if _base_name(file) in files]
    if not places and (named := re.search(r"Kernel\(<function (\w+) at", text)):  # the error has no line
        places = [(file_name(f), str(f.__code__.co_firstlineno)) for f in called if f.__name__ == named[1]]
    if not places:
        return None
    place = ":".join(places[0])  # the innermost call comes first
    layout = entry.py_func.__globals__.get("LAYOUT")
    if layout is not None and (unknown := re.search(r"Unknown attribute '(\w+)' of type Record", text)):
        return KernelRefused(no_such_field(layout.owner, unknown[1], [*layout.fields, *layout.sizes], place))
    return KernelRefused(f"a kernel does not compile ({place}): {_reason(text)}; debug=True plays it as Python")


def _reason(text: str) -> str:
    """The most specific error in the compiler's message."""
    if "NRT required" in text or "Only accept returning of array" in text:
        return "it allocates memory, which a kernel must not: write a loop, or declare a scratch field"
    if plain := re.search(r"Untyped global name '(\w+)':.*<class 'function'>", text):
        return f"it calls {plain[1]!r}, which is a plain function: decorate it with @kernel"
    if specific := re.findall(r"(?:Numba\w*|Name)Error: (?!Failed in )(.+)", text):
        return str(specific[-1]).strip()
    if call := re.search(r"No implementation of function .+ found for signature:\s+>>> (.+)", text):
        return f"there is no {call[1].strip()}"
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("Failed in ")]
    return lines[0] if lines else text.strip()


def _called_kernels(function: FunctionType) -> Iterator[FunctionType]:
    """The kernels that a function calls, and those that they call."""
    waiting, seen = [function], {function}
    while waiting:
        for value in outer_names(waiting.pop(0)).values():
            inner = value.py_func if is_jitted(value) else None
            if inner is not None and inner not in seen:
                seen.add(inner)
                waiting.append(inner)
                yield inner


def outer_names(function: FunctionType) -> dict[str, Any]:
    """The names in a function that mean something outside it, and their values."""
    closed = dict(zip(function.__code__.co_freevars, (cell.cell_contents for cell in function.__closure__ or ())))
    used = global_names(function.__code__) & function.__globals__.keys()
    return {name: function.__globals__[name] for name in used} | closed


def source_tree(function: FunctionType) -> Any:
    """The tree of a function's source with the line numbers of its file; None without a source."""
    try:
        tree = ast.parse(textwrap.dedent("".join(inspect.getsourcelines(function)[0])))
    except (OSError, SyntaxError):
        return None
    return ast.increment_lineno(tree, function.__code__.co_firstlineno - 1)


def file_name(function: FunctionType) -> str:
    return _base_name(function.__code__.co_filename)


def _base_name(path: str) -> str:
    return path.replace("\\", "/").rpartition("/")[2]
