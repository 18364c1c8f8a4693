"""What belongs to a world, named once on its class: policies, solvers, generator, checker, environments, figure, ...

A world names these as "module:name". The lookup is lazy, so a family imports neither solvers nor bindings, and code
that needs a policy or a solver finds it on the class instead of in a table of worlds.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, ClassVar

from milkrun.core.errors import RegistryError, did_you_mean


class References:
    """The attributes by which a world class names what belongs to it. A subclass inherits them; it extends a mapping by
    `{**Base.policies, "mine": "package.module:mine"}`. The object itself may be given instead of its name."""

    problem: ClassVar[str] = ""
    """short name, by which its generator is found; by default the registered name in lower case"""
    task: ClassVar[Any] = ""
    """the class that checks its solutions and computes their costs, sharing no code with it: `get_costs(instances,
    solution)`"""
    generator: ClassVar[Any] = ""
    """the class that draws its instances without a world"""
    policies: ClassVar[Mapping[str, Any]] = {}
    """name: a function of a world that returns its actions, or a class of such, instantiated for each seed; the first
    is the baseline"""
    solvers: ClassVar[Mapping[str, Any]] = {}
    """method: a function of a `milkrun.solvers.Job` that returns a `Solution`"""
    default_solver: ClassVar[str] = ""
    """the default method; without it the first"""
    solver_options: ClassVar[tuple[str, ...] | None] = None
    """options of the configuration that its solvers support; None: all of them"""
    plans_are_actions: ClassVar[bool] = True
    """whether the actions of a `Solution` are played in their order; False: they are a result, such as a tour, which
    only the task validates"""
    file_kinds: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """kind of instance file that it plays: the options for it"""
    policy_sees: ClassVar[Mapping[str, tuple[str, ...]] | None] = None
    """the fields that a trained network sees, by group (nodes, matrices, places, numbers, changing), where the author
    knows better than `milkrun.core.features.derive`; None: derived"""
    policy_starts: ClassVar[bool] = True
    """whether training gives the rows of an instance different first actions, by default"""
    environments: ClassVar[Mapping[str, Any]] = {}
    """binding: the environment class for this world instead of the general one"""
    figure: ClassVar[Any] = ""
    """draws whole episodes: a function of [(world, row, heading), ...] and a title that returns a figure, or None where
    the episodes lack the data for it; without it the picture of `draw` is shown"""
    run_details: ClassVar[Any] = ""
    """what `milkrun run` shows beside returns and pictures: a `milkrun.cli.details.Details`"""


def refer(world: Any, attribute: str, name: str | None = None) -> Any:
    """Resolves an attribute of a world class, or one entry of it."""
    cls = world if isinstance(world, type) else type(world)
    reference = getattr(cls, attribute)
    if name is None:
        return resolve(reference, f"{cls.__name__}.{attribute}")
    return resolve(reference[name], f"{cls.__name__}.{attribute}[{name!r}]")


def resolve(reference: Any, place: str) -> Any:
    """Imports "module:name"; `place` is where it is declared, for the error. Any other object is returned as it is."""
    if not isinstance(reference, str):
        return reference
    module, _, name = reference.partition(":")
    if not module or not name:
        raise RegistryError(f'{place} = {reference!r}: a reference reads "module:name"')
    try:
        found: Any = importlib.import_module(module)
    except ModuleNotFoundError as e:
        if e.name is None or not f"{module}.".startswith(f"{e.name}."):  # one of its own imports is missing
            raise
        raise RegistryError(f"{place} = {reference!r}: there is no module {e.name!r}") from e
    for part in name.split("."):
        if not hasattr(found, part):
            raise RegistryError(f"{place} = {reference!r}: {module} has no {part!r}{_close(part, found)}")
        found = getattr(found, part)
    return found


def _close(name: str, module: Any) -> str:
    hint = did_you_mean(name, [known for known in vars(module) if not known.startswith("_")])
    return hint if hint.startswith("; did you mean") else ""
