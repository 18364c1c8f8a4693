"""What is wrong with a kernel that does not compile, in one sentence with its file and line.

The compiler's own words are pages long and speak of its inside; they stay as the cause of the error. The usual faults
of an author are looked for in the source of the kernels that were to be compiled, and only when compiling has failed.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import re
import textwrap
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from milkrun.core.errors import ConfigError, did_you_mean, no_such_field
from milkrun.core.kernels import Kernel

ALLOCATING = frozenset(
    "arange array asarray concatenate copy empty empty_like full full_like linspace ones ones_like stack zeros "
    "zeros_like".split()
)


def explained(entry: Any, error: Exception) -> ConfigError | None:
    """The error to raise where compiling `entry` ended in `error`: a sentence on the fault if it is found, else the
    place and the first words of the compiler, else None."""
    names = entry.py_func.__globals__
    text = re.sub("\x1b\\[[0-9;]*m", "", str(error))  # numba writes in bold
    found = [fault for function in _reached(entry.py_func) for fault in _faults(function, names.get("LAYOUT"))]
    if found:
        met = [sentence for place, sentence in found if f'{place[0]}", line {place[1]}' in text]
        return ConfigError((met or [found[0][1]])[0])
    places = re.findall(r'File "([^"<>]+)", line (\d+)', text)
    if not places:
        return None
    file, line = places[0]  # the innermost call comes first
    reason = f"{_reason(text)}; debug=True plays it as Python"
    return ConfigError(f"a kernel does not compile ({_file(file)}:{line}): {reason}")


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


def _known_names(function: FunctionType) -> dict[str, Any]:
    """The names of a function's code that mean something outside it, and what they mean."""
    closed = dict(zip(function.__code__.co_freevars, (cell.cell_contents for cell in function.__closure__ or ())))
    used = function.__code__.co_names
    return {name: function.__globals__[name] for name in used if name in function.__globals__} | closed


def _faults(function: FunctionType, layout: Any) -> Iterator[tuple[tuple[str, int], str]]:
    """(file, line) and sentence of what a kernel cannot do."""
    try:
        tree = ast.parse(textwrap.dedent("".join(inspect.getsourcelines(function)[0])))
    except (OSError, SyntaxError):  # no source: typed at a prompt, or changed since
        return
    code = function.__code__
    ast.increment_lineno(tree, code.co_firstlineno - 1)
    own = {*code.co_varnames, *code.co_cellvars}
    known = _known_names(function)
    for node in ast.walk(tree.body[0]):
        line = getattr(node, "lineno", 0)
        place = f"({_file(code.co_filename)}:{line})"
        sentence = None
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and layout is not None:
            if node.value.id == "w" and code.co_varnames[:1] == ("w",) and not layout.has(node.attr):
                sentence = no_such_field(layout.owner, node.attr, [*layout.fields, *layout.sizes], place[1:-1])
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
