"""References of a world's class, each declared once: every one resolves, and a wrong one raises a clear error."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import milkrun
from milkrun.core import registry
from milkrun.core.errors import RegistryError
from milkrun.core.references import refer, resolve
from milkrun.routing.generators import GENERATOR_REGISTRY
from milkrun.routing.tasks import default_weights
from milkrun.solvers import WORLDS, add_policy, policies_for, solve
from tests.core.toys import Lantern

IDS = [
    f"milkrun/{name}-v0"
    for name in (
        "TSP",
        "CVRP",
        "TSPKopt",
        "PCTSP",
        "PDP",
        "VRP",
        "VRPP",
        "CVRPP",
        "WCVRP",
        "CWCVRP",
        "SCWCVRP",
        "SDWCVRP",
        "DARP",
        "TruckDrone",
        "TSPD",
    )
]
ROOT = Path(milkrun.__file__).parent


def loaded(id):
    return milkrun.world_spec(id).load()


@pytest.mark.parametrize("id", IDS)
def test_every_reference_of_every_world_resolves(id):
    """Its policies and solvers can be called, its task prices, its generator makes instances of it."""
    cls = loaded(id)
    assert all(callable(refer(cls, "policies", name)) for name in cls.policies) and cls.policies
    assert all(callable(refer(cls, "solvers", name)) for name in cls.solvers)
    assert cls.default_solver in cls.solvers or not cls.solvers
    assert not cls.task or callable(refer(cls, "task").get_costs)
    if cls.generator:
        problem = milkrun.world_spec(id).problem
        assert refer(cls, "generator")(problem=problem)._world is cls
    for reference in cls.environments.values():  # read only: to import RL4CO takes long, and tests/api do
        module, _, name = reference.partition(":")
        source = ROOT.joinpath(*module.split(".")[1:]).with_suffix(".py").read_text()
        assert name in [node.name for node in ast.parse(source).body if isinstance(node, ast.ClassDef)]
    assert not cls.figure or find_spec("matplotlib") is None or callable(refer(cls, "figure"))
    if cls.run_details and find_spec("typer"):
        assert type(refer(cls, "run_details")).__name__ == "Details"


def test_each_world_declares_its_policies_methods_and_generator():
    """The policies, methods and generators of the fifteen worlds, by name."""
    nearest, greedy = ["random", "nearest"], ["random", "greedy", "nearest"]
    assert {id.split("/")[1][:-3]: list(policies_for(id)) for id in IDS} == {
        "TSP": nearest,
        "CVRP": nearest,
        "TSPKopt": ["random", "steepest"],
        "PCTSP": ["random", "thrifty", "nearest"],
        "PDP": nearest,
        "VRP": nearest,
        "VRPP": greedy,
        "CVRPP": greedy,
        "WCVRP": greedy,
        "CWCVRP": greedy,
        "SCWCVRP": [*greedy, "rolling"],
        "SDWCVRP": [*greedy, "rolling"],
        "DARP": ["random", "soonest"],
        "TruckDrone": ["random", "greedy", "lookahead", "parked"],
        "TSPD": ["random", "partition"],
    }
    common = ("nearest", "insertion", "2opt", "oropt", "ls")
    assert {name: WORLDS[name] for name in WORLDS if f"milkrun/{name}-v0" in IDS} == {
        "TSP": (*common, "exact", "pyvrp", "ortools"),
        "TSPKopt": (*common, "exact", "pyvrp", "ortools"),
        "CVRP": (*common, "savings", "exact", "pyvrp", "ortools"),
        "VRP": ("pyvrp",),
        "VRPP": (*common, "exact", "pyvrp"),
        "CVRPP": (*common, "exact", "pyvrp"),
        "WCVRP": (*common, "exact", "pyvrp"),
        "CWCVRP": (*common, "savings", "exact", "pyvrp"),
        "DARP": ("insertion", "improve", "ortools", "exact"),
        "TSPD": ("exact", "partition", "truck_only"),
    }
    assert {name: made_by.__name__ for name, made_by in GENERATOR_REGISTRY.items()} == {
        "tsp": "TSPGenerator",
        "tsp_kopt": "TSPGenerator",
        "cvrp": "CVRPGenerator",
        "pctsp": "PCTSPGenerator",
        "pdp": "PDPGenerator",
        "vrp": "VRPGenerator",
        "vrpp": "VRPPGenerator",
        "cvrpp": "VRPPGenerator",
        "wcvrp": "WCVRPGenerator",
        "cwcvrp": "WCVRPGenerator",
        "scwcvrp": "SCWCVRPGenerator",
        "sdwcvrp": "SDWCVRPGenerator",
        "darp": "DARPGenerator",
    }
    assert default_weights("sdwcvrp", 25, 2.0, 4.0) == {
        "waste": 1.0,
        "length": 0.55 * 5 / 2 * 4,
        "overflow": 40.0,
        "failure": 1.0,
        "lost": 0.0,
    }
    assert [default_weights(name, 4)["length"] for name in ("tsp", "cvrp", "vrpp", "cvrpp", "wcvrp", "cwcvrp")] == [
        1.0,
        1.0,
        120.0,
        80.0,
        1.2,
        1.1,
    ]


@pytest.mark.parametrize("id", [id for id in IDS if "WCVRP" in id or "VRPP" in id])
def test_the_weights_of_a_configuration_are_those_of_its_checker(id):
    """By default, at 20 customers in the unit square: stated twice on purpose, and equal."""
    cls = loaded(id)
    assert cls.task_weights(cls.Config()) == pytest.approx(refer(cls, "task").default_weights(20), rel=1e-12)


# -- wrong ones ----------------------------------------------------------------------------------------------------


class Astray(Lantern):
    policies = {"typo": "milkrun.solvers.policies:neerest", "lost": "milkrun.solvers.polices:nearest"}
    solvers = {"colon": "milkrun.solvers.solve", "deep": "milkrun.solvers.solve:Solution.cots"}
    generator = "no_such_package.generators:Lamps"
    task = ":Task"


@pytest.mark.parametrize(
    ("attribute", "name", "sentence"),
    [
        (
            "policies",
            "typo",
            "Astray.policies['typo'] = 'milkrun.solvers.policies:neerest': milkrun.solvers.policies has "
            "no 'neerest'; did you mean 'nearest'",
        ),
        (
            "policies",
            "lost",
            "Astray.policies['lost'] = 'milkrun.solvers.polices:nearest': there is no module 'milkrun.solvers.polices'",
        ),
        ("solvers", "colon", "Astray.solvers['colon'] = 'milkrun.solvers.solve': a reference reads \"module:name\""),
        (
            "solvers",
            "deep",
            "Astray.solvers['deep'] = 'milkrun.solvers.solve:Solution.cots': milkrun.solvers.solve has no "
            "'cots'; did you mean 'cost'",
        ),
        (
            "generator",
            None,
            "Astray.generator = 'no_such_package.generators:Lamps': there is no module 'no_such_package'",
        ),
        ("task", None, "Astray.task = ':Task': a reference reads \"module:name\""),
    ],
)
def test_a_wrong_reference_is_refused_in_a_sentence(attribute, name, sentence):
    """The error names the world, the attribute, the reference and what is missing."""
    with pytest.raises(RegistryError) as caught:
        refer(Astray, attribute, name)
    assert str(caught.value).startswith(sentence)


def test_a_wrong_reference_raises_where_it_is_used(monkeypatch):
    """`policies_for` lists names without looking them up; the policy and `solve` refuse, `check_world` finds it."""
    monkeypatch.setattr(registry, "_worlds", dict(registry._worlds))
    milkrun.register("tests/Astray-v0", Astray, gymnasium=False)
    offered = policies_for("tests/Astray-v0")
    assert list(offered) == ["random", "typo", "lost"]
    with pytest.raises(RegistryError, match="has no 'neerest'"):
        offered["typo"](0)
    with pytest.raises(RegistryError, match="a reference reads"):
        solve("tests/Astray-v0", {}, method="colon")
    found = [str(finding) for finding in milkrun.check_world(Astray)]
    assert any(sentence.startswith("references_lead_somewhere: Astray.task = ") for sentence in found)
    assert any("has no 'neerest'; did you mean 'nearest'" in sentence for sentence in found)


def test_a_module_that_lacks_a_package_says_so_itself(tmp_path, monkeypatch):
    """The reference is right then, so the error names the missing package."""
    (tmp_path / "half_there.py").write_text("import no_such_package\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="no_such_package"):
        resolve("half_there:thing", "a test")


def test_a_reference_may_be_an_object_and_a_class_is_instantiated(monkeypatch):
    """A class of policies is given the seed if it takes one."""

    class Seeded:
        def __init__(self, seed):
            self.seed = seed

        def __call__(self, world): ...

    class Plain:
        def __call__(self, world): ...

    def policy(world): ...

    class Own(Lantern):
        policies = {"seeded": Seeded, "plain": Plain, "function": policy, "number": 7}

    class Derived(Own):
        policies = {**Own.policies, "more": policy}

    monkeypatch.setattr(registry, "_worlds", dict(registry._worlds))
    milkrun.register("tests/Derived-v0", Derived, gymnasium=False)
    made = policies_for("tests/Derived-v0")
    assert list(made) == ["random", "seeded", "plain", "function", "number", "more"]
    assert made["seeded"](5).seed == 5 and made["seeded"](5) is not made["seeded"](5)
    assert isinstance(made["plain"](5), Plain) and made["more"](5) is policy
    with pytest.raises(RegistryError, match=r"Derived.policies\['number'\] is a int"):
        made["number"](0)
    with pytest.raises(RegistryError, match="belongs to every world"):
        add_policy("tests/Derived-v0", "random", lambda seed: policy)


# -- what is not imported ------------------------------------------------------------------------------------------


def test_listing_worlds_imports_no_world():
    """Nor numba, nor torch, nor a binding but the list of them."""
    program = (
        "import sys, milkrun; milkrun.list_worlds(); milkrun.world_spec('milkrun/CVRP-v0').title\n"
        "print([m for m in sys.modules if m.split('.')[0] in ('numba', 'torch')"
        " or m.startswith(('milkrun.routing', 'milkrun.delivery', 'milkrun.solvers', 'milkrun.api.'))])"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_no_file_but_its_own_keeps_a_table_of_worlds():
    """A mapping, tuple, list or set with the names of three worlds or more."""
    names = {part for id in IDS for part in (id, id[8:-3], id[8:-3].lower())} - {"tsp", "cvrp", "darp", "tspd"}
    found = []
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            parts = getattr(node, "keys", None) or getattr(node, "elts", None) or []
            said = {part.value for part in parts if isinstance(part, ast.Constant)}
            if len(said & names) >= 3:
                found.append(path.relative_to(ROOT).as_posix())
    lookups = ["routing/__init__.py", "routing/tasks/__init__.py"]  # public names of a package, and where each is
    assert [file for file in found if file not in lookups] == []
