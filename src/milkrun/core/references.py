"""What belongs to a world, said once on its class: policies, solvers, generator, checker, environments, figure, ...

A world names these things as "module:name". The names are looked up when somebody asks, so a family imports neither
solvers nor bindings, and whoever needs a policy or a solver asks the world instead of keeping a table of worlds.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, ClassVar

from milkrun.core.errors import RegistryError, did_you_mean


class References:
    """The attributes by which a world class names what belongs to it. A subclass inherits them as Python does; it adds
    to a mapping by `{**Base.policies, "mine": "package.module:mine"}`. The object itself may stand for its name."""

    problem: ClassVar[str] = ""
    """short name, under which its generator is asked for; without it the registered name in small letters"""
    task: ClassVar[Any] = ""
    """the class that checks and prices its solutions and shares no code with it: `get_costs(instances, solution)`"""
    generator: ClassVar[Any] = ""
    """the class that makes its instances apart from it"""
    policies: ClassVar[Mapping[str, Any]] = {}
    """name: a function of a world that returns its actions, or a class of such, made anew for each seed; first the one
    to beat"""
    solvers: ClassVar[Mapping[str, Any]] = {}
    """method: a function of a `milkrun.solvers.Job` that returns a `Solution`"""
    default_solver: ClassVar[str] = ""
    solver_options: ClassVar[tuple[str, ...] | None] = None
    """options of the configuration that its solvers take; None: all of them"""
    """the method that is used where none is asked for; without it the first"""
    plans_are_actions: ClassVar[bool] = True
    """whether the actions of a `Solution` are played in their order; False: they are what play leads to, a tour say,
    and the task alone judges them"""
    file_kinds: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """kind of instance file that it plays: the options under which it does"""
    environments: ClassVar[Mapping[str, Any]] = {}
    """binding: the class of environment that it makes of this world instead of its common one"""
    figure: ClassVar[Any] = ""
    """draws whole episodes: a function of [(world, row, heading), ...] and a title that returns a figure, or None where
    they hold too little for it; without it the picture of `draw` is shown"""
    run_details: ClassVar[Any] = ""
    """what `milkrun run` shows beside returns and pictures: a `milkrun.cli.details.Details`"""


def refer(world: Any, attribute: str, name: str | None = None) -> Any:
    """What an attribute of a world class, or one entry of it, leads to."""
    cls = world if isinstance(world, type) else type(world)
    said = getattr(cls, attribute)
    if name is None:
        return resolve(said, f"{cls.__name__}.{attribute}")
    return resolve(said[name], f"{cls.__name__}.{attribute}[{name!r}]")


def resolve(reference: Any, place: str) -> Any:
    """What "module:name" leads to; `place` is where it was said, for the error. What is no text stands for itself."""
    if not isinstance(reference, str):
        return reference
    module, _, name = reference.partition(":")
    if not module or not name:
        raise RegistryError(f'{place} = {reference!r}: a reference reads "module:name"')
    try:
        found: Any = importlib.import_module(module)
    except ModuleNotFoundError as e:
        if e.name is None or not f"{module}.".startswith(f"{e.name}."):  # it is there, and lacks what it imports
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
