"""The import graph: which part of the library may import which, read from the source.

All imports count: at the top, inside functions, and those for type checkers alone. Names in strings ("module:name",
resolved on use) do not count: with them a lower part names a higher one without importing it.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import milkrun

ROOT = Path(milkrun.__file__).parent
FAMILIES = ("routing", "delivery", "tracking", "clutter")
LAYERS = {
    "core": 0,
    "render": 1,
    **dict.fromkeys(FAMILIES, 2),
    "solvers": 3,
    "api": 4,
    "compat": 5,
    "replay": 6,
    "scale": 6,
    "learn": 6,
    "cli": 7,
}
DRAWS = {"milkrun.core.world", "milkrun.core.check.replays"}
"""Modules of core that import `render`. core.world does so inside functions: stepping alone loads none."""
FRONT = {"milkrun", "milkrun.worlds", "milkrun._version", "milkrun.__main__"}
COMPILED_AND_DATA = {"numpy", "numba", "llvmlite"}


@cache
def imports() -> dict[str, set[str]]:
    """Every module of the library, and the modules that it imports, its own and others."""
    files = {module_name(path): path for path in ROOT.rglob("*.py")}
    return {name: imported(ast.parse(path.read_text()), name, set(files)) - {name} for name, path in files.items()}


def module_name(path: Path) -> str:
    parts = ["milkrun", *path.relative_to(ROOT).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(tree: ast.Module, name: str, own: set[str]) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{name}: a relative import"
            module = str(node.module)
            found |= {f"{module}.{a.name}" if f"{module}.{a.name}" in own else module for a in node.names}
    return found


def layer(module: str) -> str:
    return module.split(".")[1]


def inner(module: str) -> set[str]:
    """What of the library a module imports."""
    return {m for m in imports()[module] if m in imports()}


def test_imports_point_downwards():
    """core, render, families, solvers, api, compat, then replay, scale and learn, cli: no module imports a higher
    layer, nor another package of its own layer, as one family another."""
    wrong = [
        f"{module} -> {other}"
        for module in imports()
        if module not in FRONT
        for other in inner(module) - FRONT
        if not (module in DRAWS and layer(other) == "render")
        if LAYERS[layer(other)] > LAYERS[layer(module)]
        or (LAYERS[layer(other)] == LAYERS[layer(module)] and layer(other) != layer(module))
    ]
    assert wrong == []


def test_making_and_stepping_a_world_loads_no_drawing():
    """Importing `milkrun` and core's world loads nothing of `render`."""
    code = "import milkrun, milkrun.core.world, sys; print([m for m in sys.modules if m.startswith('milkrun.render')])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"


def test_only_the_command_line_imports_the_front():
    """`import milkrun` is the top layer; its version alone may be imported by all."""
    users = {module for module in imports() if inner(module) & (FRONT - {"milkrun._version"}) and module not in FRONT}
    assert {layer(module) for module in users} <= {"cli"}


def test_no_module_imports_itself_in_a_circle():
    """Also not by way of an import inside a function, or for type checkers alone."""
    assert circles({module: inner(module) for module in imports()}) == []


def test_core_needs_numpy_and_numba_alone():
    """No binding, no learning library, no picture library."""
    outside = {m.split(".")[0] for module in imports() if layer(module + ".") == "core" for m in imports()[module]}
    assert outside - set(sys.stdlib_module_names) <= COMPILED_AND_DATA | {"milkrun"}


@pytest.mark.parametrize(
    ("graph", "expected"),
    [({"a": {"b"}, "b": set()}, []), ({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}, [["a", "b", "c"]])],
)
def test_circles_are_found(graph, expected):
    """The check itself, on two graphs by hand."""
    assert circles(graph) == expected


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Modules that reach each other, sorted: Kosaraju's two passes."""
    order: list[str] = []
    visited: set[str] = set()

    def finish(node: str) -> None:
        visited.add(node)
        for after in sorted(graph[node] - visited):
            if after not in visited:
                finish(after)
        order.append(node)

    for node in sorted(graph):
        if node not in visited:
            finish(node)
    before: dict[str, set[str]] = {node: set() for node in graph}
    for node, others in graph.items():
        for other in others:
            before[other].add(node)
    groups, taken = [], set[str]()
    for start in reversed(order):
        group, waiting = [], [start]
        while waiting:
            node = waiting.pop()
            if node not in taken:
                taken.add(node)
                group.append(node)
                waiting += before[node]
        if len(group) > 1:
            groups.append(sorted(group))
    return sorted(groups)
