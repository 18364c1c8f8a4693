"""Names that packages resolve on first use: listed, completed, and visible to type checkers."""

from __future__ import annotations

import ast
from importlib.util import resolve_name
from pathlib import Path

import pytest

import milkrun
import milkrun.routing

ROOT = Path(milkrun.__file__).parent
PACKAGES = sorted(path for path in ROOT.rglob("__init__.py") if "lazy(__name__" in path.read_text())


def test_names_are_listed_before_they_are_looked_up():
    """For `import *`, and for completion in an editor, which also offers the package's own names."""
    names: dict[str, object] = {}
    exec("from milkrun.routing import *", names)
    assert set(names) - {"__builtins__"} == {"CVRP", "DARP", "DARPConfig", "DARPInstance", "TSP"}
    assert {"CVRP", "TSP", "__name__"} <= set(dir(milkrun.routing))
    assert {"check_world", "make"} <= set(dir(milkrun)) & set(milkrun.__all__)


def test_an_unknown_name_is_an_attribute_error_with_a_close_one():
    """As Python has it, so that `hasattr` and `from milkrun.routing import tsp` work."""
    with pytest.raises(AttributeError, match=r"'milkrun.routing' has no attribute 'CVPR'; did you mean 'CVRP'\?"):
        milkrun.routing.CVPR  # noqa: B018
    with pytest.raises(AttributeError, match=r"; did you mean 'make'\?"):
        milkrun.maek  # noqa: B018


@pytest.mark.parametrize("path", PACKAGES, ids=lambda path: path.parent.name)
def test_type_checkers_see_names_of_the_same_modules(path):
    """The names under TYPE_CHECKING are those resolved on use; names of higher layers are not imported."""
    package = ".".join(["milkrun", *path.parent.relative_to(ROOT).parts])
    tree = ast.parse(path.read_text())
    seen = {
        (line.module, alias.name, alias.asname)
        for node in tree.body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for line in node.body
        for alias in line.names
    }
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "lazy"]
    modules = ast.literal_eval(calls[0].args[1])
    found = {(resolve_name(module, package), n, n) for module, names in modules.items() for n in names.split()}
    assert seen and seen <= found
    assert all(module.startswith("milkrun.api.") for module, _, _ in found - seen)
