"""Names -> worlds. The registry holds strings, so listing worlds imports no family, no numba and no torch.

Ids have Gymnasium's grammar, `namespace/Name-vN`. Other packages add worlds through the packaging group
`milkrun.worlds`: each entry is a callable that calls `register`. Higher layers register themselves in `bindings` and
`on_register`; nothing of them is known here.
"""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from milkrun.core.arguments import interpreting
from milkrun.core.config import RESERVED, Config
from milkrun.core.errors import (
    ConfigError,
    MissingExtra,
    RegistryError,
    UnknownWorld,
    did_you_mean,
    missing_extra,
    shown,
)
from milkrun.core.references import resolve

_GRAMMAR = re.compile(r"(?:(?P<namespace>[\w:.-]+)/)?(?P<name>[\w:.-]+?)(?:-[vV](?P<version>\d+))?")


@dataclass(frozen=True)
class WorldSpec:
    """What is known of a world without importing it; properties that need its class import it."""

    id: str
    namespace: str
    name: str
    version: int
    family: str
    title: str
    entry_point: str | type
    extras: tuple[str, ...] = ()
    nondeterministic: bool = False
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    def load(self) -> Any:
        """The World class."""
        try:
            found = resolve(self.entry_point, self.id)
        except (ImportError, RegistryError) as e:
            missing = e if isinstance(e, ImportError) else e.__cause__
            if self.extras and isinstance(missing, ImportError) and (missing.name or "").split(".")[0] != "milkrun":
                raise missing_extra(str(missing.name), self.extras[0]) from e
            if missing is not None:
                raise
            found = None  # the module is there, the class is not
        return _checked(self.id, found, self.entry_point)

    @property
    def agents(self) -> str:
        """single or multi"""
        return "multi" if self.action == "multi" else "single"

    @property
    def action(self) -> str:
        """discrete, multi (one choice an agent) or box"""
        kind: str = self.load().action.kind
        return kind

    @property
    def presets(self) -> tuple[str, ...]:
        """The named configurations."""
        return tuple(self.load().Config.presets)

    @property
    def problem(self) -> str:
        """The short name of the world, by which its generator is found."""
        return self.load().problem or self.name.lower()


def _checked(id: str, cls: Any, named: Any) -> Any:
    """The class, if it is a World class whose configuration declares no keyword of `make`."""
    if not (isinstance(cls, type) and hasattr(cls, "Config") and hasattr(cls, "fields")):
        raise RegistryError(f"{id}: {named} is not a World class")
    if clash := RESERVED & set(getattr(cls.Config, "__dataclass_fields__", {})):
        raise ConfigError(f"the configuration of {id} declares {sorted(clash)}, which are keywords of make()")
    return cls


bindings: dict[str, Any] = {}
"""The values of `api`: the function, or its "module:name", that `make` calls with its arguments."""
on_register: dict[str, Callable[[WorldSpec, bool], None]] = {}
"""Callbacks with every new world and `force`, unless a keyword of `register` with this name is False."""

_worlds: dict[str, WorldSpec] = {}
_plugins_loaded = False
_warned: set[str] = set()


def register(
    id: str,
    entry_point: str | type,
    *,
    family: str = "user",
    title: str = "",
    extras: tuple[str, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    nondeterministic: bool = False,
    force: bool = False,
    **others: Any,
) -> WorldSpec:
    """Adds a world under an id; `entry_point` is "module:Class" or the class itself.

    Each further keyword is the name of an entry of `on_register`; False skips it.
    """
    match = _GRAMMAR.fullmatch(id) if isinstance(id, str) else None
    if match is None or match["namespace"] is None or match["version"] is None or "-V" in id:
        raise RegistryError(f"{id!r} is not an id: it must read namespace/Name-vN")
    for key in others:
        if key not in on_register:
            known = {*inspect.signature(register).parameters, *on_register} - {"others"}
            raise RegistryError(f"register has no keyword {key!r}{did_you_mean(key, known)}")
    if not isinstance(entry_point, str):
        _checked(id, entry_point, entry_point)
    spec = WorldSpec(
        id,
        match["namespace"],
        match["name"],
        int(match["version"]),
        family,
        title,
        entry_point,
        tuple(extras),
        nondeterministic,
        dict(kwargs or {}),
    )
    if _worlds.get(id) == spec and not force:
        return _worlds[id]  # idempotent: a module may register on import and by an entry point
    if id in _worlds and not force:
        raise RegistryError(f"{id!r} is registered already; force=True replaces it")
    _worlds[id] = spec
    for name, announce in on_register.items():
        if others.get(name, True):
            announce(spec, force)
    return spec


def _load_plugins() -> None:
    global _plugins_loaded
    if _plugins_loaded:
        return
    _plugins_loaded = True
    for entry in entry_points(group="milkrun.worlds"):
        try:
            entry.load()()
        except Exception as e:
            origin = entry.dist.name if entry.dist is not None else entry.value
            warnings.warn(f"the worlds of {origin} could not be registered: {e}", UserWarning, stacklevel=3)


def list_worlds(family: str | None = None) -> list[str]:
    """The ids of all worlds, sorted; of one family if named."""
    _load_plugins()
    return sorted(id for id, spec in _worlds.items() if family is None or spec.family == family)


def each_world() -> Iterator[tuple[WorldSpec, Any]]:
    """Every world that can be imported here, with its class, in the order of registration. A registration that names no
    world class raises an error where it is used, not in calls for other worlds."""
    _load_plugins()
    for spec in list(_worlds.values()):
        try:
            yield spec, spec.load()
        except (MissingExtra, RegistryError):
            continue


class ByWorld(Mapping[str, Any]):
    """Values of an attribute of the world classes that set it, by name. Lookups read the registry each time."""

    def __init__(self, attribute: str, name: Callable[[WorldSpec], str], value: Callable[[Any], Any]) -> None:
        self._attribute = attribute
        self._name = name
        self._value = value

    def __getitem__(self, name: str) -> Any:
        return self._value(self._classes()[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._classes())

    def __len__(self) -> int:
        return len(self._classes())

    def _classes(self) -> dict[str, Any]:
        """The classes by name; of several with the same name the one registered first."""
        found: dict[str, Any] = {}
        for spec, cls in each_world():
            if getattr(cls, self._attribute):
                found.setdefault(self._name(spec), cls)
        return found


def world_spec(id: str) -> WorldSpec:
    """What is known of a world. Its id may lack the namespace and the version (the newest), in any letter case."""
    if not isinstance(id, str):
        raise RegistryError(f"{id!r} is not an id: it must read namespace/Name-vN")
    if id in _worlds:
        spec = _worlds[id]
    else:
        _load_plugins()
        spec = _find(id)
    family = [s for s in _worlds.values() if (s.namespace, s.name) == (spec.namespace, spec.name)]
    newest = max(family, key=lambda s: s.version)
    if newest.version > spec.version:
        _warn_once(f"{spec.id} is superseded by {newest.id}")
    return spec


def id_of(name: str) -> str:
    """The id of a registered world by its name alone, in any letter case; worlds of this library first."""
    short = name.rpartition("/")[2]
    known = sorted(list_worlds(), key=lambda id: not id.startswith("milkrun/"))
    return next(
        (id for id in known if id.rpartition("/")[2].rpartition("-v")[0].lower() == short.lower()),
        f"milkrun/{short}-v0",
    )


def named_world(name: Any) -> WorldSpec:
    """What is known of a world, by its id or its name alone, in any letter case."""
    return world_spec(str(name) if "-v" in str(name) else id_of(str(name)))


def _find(id: str) -> WorldSpec:
    if id in _worlds:
        return _worlds[id]
    match = _GRAMMAR.fullmatch(id)
    found: list[WorldSpec] = []
    if match is not None:
        found = [s for s in _worlds.values() if s.name.lower() == match["name"].lower()]
        spaces = {s.namespace.lower() for s in found}
        # A name alone means a world of this library, else the only one of that name. Of several none is chosen: nothing
        # is found under "milkrun", and the error names similar ids.
        namespace = match["namespace"] or ("milkrun" if "milkrun" in spaces or len(spaces) != 1 else spaces.pop())
        found = [s for s in found if s.namespace.lower() == namespace.lower()]
        if match["version"] is not None:
            found = [s for s in found if s.version == int(match["version"])]
    if not found:
        short = [s.name for s in _worlds.values() if s.namespace == "milkrun"]
        raise UnknownWorld(f"no world {id!r}{did_you_mean(id, [*_worlds, *short])}")
    spec = max(found, key=lambda s: s.version)
    if match is not None and match["version"] is None:
        _warn_once(f"{id!r} names no version: {spec.id} is used")
    return spec


def _warn_once(text: str) -> None:
    if text not in _warned:
        _warned.add(text)
        warnings.warn(text, UserWarning, stacklevel=4)


def make(
    id: str,
    num_envs: int | None = None,
    *,
    api: str | None = None,
    preset: str | None = None,
    config: Config | Mapping[str, Any] | str | Path | None = None,
    seed: int | None = None,
    first_row: int = 0,
    autoreset: Any = "next_step",
    illegal: str = "noop",
    threads: int | None = None,
    debug: bool | str | None = None,
    **overrides: Any,
) -> Any:
    """Makes a world by its id with `num_envs` rows, or with `api` an environment of another library.

    The configuration is built from the defaults, then `preset`, then `config` (an instance, a mapping, the path of
    a JSON file), then the remaining keywords. The bits of a row do not depend on `threads` and the batch size;
    `first_row=f` makes any slice of a big batch alone. `debug=True` plays the kernels as plain Python, row by row, with
    every array access checked. `debug="bounds"` compiles them with checked indices, for long runs. Without either the
    environment variable MILKRUN_DEBUG (0, 1 or bounds) decides.
    """
    spec = world_spec(id)
    if api is not None:
        if not isinstance(api, str) or api not in bindings:
            raise ConfigError(f"api={shown(api)} is unknown{did_you_mean(shown(api), bindings)}")
        with interpreting(debug):
            return resolve(bindings[api], f"bindings[{api!r}]")(
                spec.id,
                num_envs,
                preset=preset,
                config=config,
                seed=seed,
                first_row=first_row,
                autoreset=autoreset,
                illegal=illegal,
                threads=threads,
                **overrides,
            )
    cls = spec.load()
    built = cls.Config.build(preset, config, **{**spec.kwargs, **overrides})
    world = cls.variant(built)(
        1 if num_envs is None else num_envs,
        built,
        seed=seed,
        first_row=first_row,
        autoreset=autoreset,
        illegal=illegal,
        threads=threads,
        debug=debug,
    )
    world.spec = spec
    return world
