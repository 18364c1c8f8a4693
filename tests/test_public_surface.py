"""Milkrun uses other libraries through their public surface; the exceptions are few files, named here and in
CONTRIBUTING.md.

The source is read, not run. A private name (`_name`) is another library's where nothing in Milkrun defines it.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import milkrun

ROOT = Path(milkrun.__file__).parent
REPOSITORY = Path(__file__).parents[1]

USES_PRIVATE_NAMES = {
    "api/_td.py": "TensorDict without its constructor's checks; public fallback",
    "core/kernels.py": "numba's compiler classes; public fallback",
    "core/parts.py": "numba's code libraries and lowering; fallback to numba's own pipeline",
    "core/record.py": "numba's data models for the argument of kernels",
    "core/disk_cache.py": "numba's cache implementation",
    "api/torchrl/base.py": "TorchRL's hooks around a step, overridden; without them its own checks run",
    "api/torchrl/workspace.py": "torch's counter of writes to a tensor",
}
"""Files that may use private names of other libraries, and for what."""

DOCUMENTED = {"_fields", "_asdict", "_replace", "_make", "_exit", "_getframe"}
"""Names of Python itself that are public in spite of the underscore."""

FOREIGN = {"_version", "_step_proc_data", "_complete_done", "_assert_tensordict_shape"}
"""Private names of other libraries that Milkrun's source defines, too."""

PROTECTED = {
    "api/sb3/": {"_options", "_reset_seeds", "_reset_options"},  # Stable-Baselines3 has each VecEnv maintain them
    "api/tianshou/collector.py": {"_compute_action_policy_hidden"},  # tianshou's Collector, called by our subclass
}
"""What a base class of another library leaves to its subclasses."""

SETTINGS = {("core/threads.py", "numba.config.THREADING_LAYER")}
"""Assignments that another library documents as its way to be configured."""

EXECUTES_TEXT = {"core/cache.py"}
DEBUG_PACKAGE = "core/interpreter/"


@cache
def sources() -> dict[str, ast.Module]:
    return {path.relative_to(ROOT).as_posix(): ast.parse(path.read_text()) for path in sorted(ROOT.rglob("*.py"))}


def is_private(name: str) -> bool:
    return name.startswith("_") and not (name.startswith("__") and name.endswith("__")) and name != "_"


@cache
def own_names() -> frozenset[str]:
    """Every name that Milkrun's source defines: functions, classes, variables, attributes, arguments, slots."""
    found: set[str] = set()
    for tree in sources().values():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                found.add(node.name)
            elif isinstance(node, ast.arg):
                found.add(node.arg)
            elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
                if isinstance(node, ast.Name):
                    found.add(node.id)
                elif isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"):
                    found.add(node.attr)
            elif isinstance(node, ast.Call) and ast.unparse(node.func) == "object.__setattr__":
                found.add(ast.literal_eval(node.args[1]) if isinstance(node.args[1], ast.Constant) else "")
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__slots__":
                found |= {n.value for n in ast.walk(node.value) if isinstance(n, ast.Constant)}
    return frozenset(found)


def foreign_names(tree: ast.Module) -> set[str]:
    """The names under which a file imports other libraries and what they hold; Python's own modules do not count."""
    ours = {"milkrun", *sys.stdlib_module_names}
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {a.asname or a.name.partition(".")[0] for a in node.names if a.name.partition(".")[0] not in ours}
        elif isinstance(node, ast.ImportFrom) and str(node.module).partition(".")[0] not in ours:
            found |= {a.asname or a.name for a in node.names}
    return found


def private_uses(file: str, tree: ast.Module) -> Iterator[str]:
    """Private names of other libraries that a file imports or reads."""
    inherited = {name for prefix, names in PROTECTED.items() if file.startswith(prefix) for name in names}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            parts = [part for alias in node.names for part in alias.name.split(".")]
        elif isinstance(node, ast.ImportFrom):
            own = str(node.module).startswith("milkrun")
            parts = [] if own else [*str(node.module).split("."), *(alias.name for alias in node.names)]
        elif isinstance(node, ast.Attribute) and node.attr not in (own_names() - FOREIGN) | DOCUMENTED | inherited:
            parts = [node.attr]
        elif isinstance(node, ast.FunctionDef) and node.name in FOREIGN:
            parts = [node.name]
        else:
            continue
        yield from (f"{file}:{node.lineno}: {part}" for part in parts if is_private(part))


def test_private_names_of_other_libraries_stay_in_their_files():
    """Imports and attributes, also inside functions."""
    wrong = [
        use for file, tree in sources().items() if file not in USES_PRIVATE_NAMES for use in private_uses(file, tree)
    ]
    assert wrong == []


def test_every_listed_file_still_needs_its_place():
    """A file that no longer uses a private name leaves the list, and CONTRIBUTING.md names the same files."""
    idle = [file for file in USES_PRIVATE_NAMES if not any(private_uses(file, sources()[file]))]
    assert idle == []
    text = (REPOSITORY / "CONTRIBUTING.md").read_text()
    assert [file for file in USES_PRIVATE_NAMES if file not in text] == []


def test_nothing_is_assigned_to_another_library():
    """Neither `library.name = value` nor `setattr(library, ...)`."""
    wrong = []
    for file, tree in sources().items():
        foreign = foreign_names(tree)
        for node in ast.walk(tree):
            targets: list[ast.expr] = []
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
                targets = [node]
            elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("setattr", "delattr") and node.args:
                targets = [node.args[0]]
            for target in targets:
                root = target
                while isinstance(root, ast.Attribute):
                    root = root.value
                if isinstance(root, ast.Name) and root.id in foreign and (file, ast.unparse(target)) not in SETTINGS:
                    wrong.append(f"{file}:{node.lineno}: {ast.unparse(target)}")
    assert wrong == []


def test_text_is_executed_in_two_places_only():
    """Generated modules go through core/cache.py; interpreted kernels are compiled in the debug package."""
    wrong = [
        f"{file}:{node.lineno}"
        for file, tree in sources().items()
        if file not in EXECUTES_TEXT and not file.startswith(DEBUG_PACKAGE)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("exec", "eval")
    ]
    assert wrong == []


def test_no_process_table_is_read():
    """What another program or library started is not looked up in /proc."""
    wrong = [
        f"{file}:{node.lineno}"
        for file, tree in sources().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("/proc")
    ]
    assert wrong == []


@pytest.mark.parametrize("folder", ["src", "tests", "bench", "scripts"])
def test_the_formatter_is_switched_off_for_tables_of_numbers_only(folder):
    """`# fmt: skip` ends a table: the statement holds a list, tuple or dictionary of at least eight constants."""
    wrong = []
    for path in sorted((REPOSITORY / folder).rglob("*.py")):
        text = path.read_text()
        lines = [k for k, line in enumerate(text.splitlines(), 1) if re.search(r"#\s*fmt:\s*(skip|off)", line)]
        if not lines or path == Path(__file__):
            continue
        tables = [
            (node.lineno, node.end_lineno or 0)
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.List | ast.Tuple | ast.Dict)
            and sum(isinstance(n, ast.Constant) and isinstance(n.value, int | float) for n in ast.walk(node)) >= 8
        ]
        wrong += [
            f"{path.relative_to(REPOSITORY)}:{k}" for k in lines if not any(a - 1 <= k <= b + 1 for a, b in tables)
        ]
    assert wrong == []
