"""Policies by reference: a worker is told the name of a policy and finds it itself.

A function is not sent: what a process has in memory, another machine cannot check, and a kept folder could not say
which policy made it.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from milkrun.core.errors import ConfigError, MilkrunError, RegistryError, did_you_mean, shown
from milkrun.core.references import refer, resolve
from milkrun.core.registry import WorldSpec
from milkrun.solvers.policies import Policy, policies_for, random_policy


@dataclass(frozen=True)
class PolicyName:
    """A policy of a world by its name there, or "package.module:name", with the options that make it."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def make(self, spec: WorldSpec, seed: int) -> Policy:
        """The policy. A function is one itself; a class, or a function with options, is called for it, with the seed of
        the evaluation where it takes one and no other is given."""
        found: Any = self._found(spec)
        if not (isinstance(found, type) or self.options or found is random_policy):
            return self._checked(found)
        known = inspect.signature(found).parameters
        free = any(p.kind is p.VAR_KEYWORD for p in known.values())
        if wrong := [name for name in self.options if name not in known and not free]:
            raise ConfigError(f"policy {self.name!r} has no option {wrong[0]!r}{did_you_mean(wrong[0], known)}")
        by_default = {"seed": seed} if "seed" in known else {}
        return self._checked(found(**{**by_default, **self.options}))

    def key(self, spec: WorldSpec) -> dict[str, Any]:
        """What tells this policy from another in the manifest of a kept folder."""
        said: dict[str, Any] = {"name": self.name, "options": dict(self.options)}
        if ":" in self.name:
            said["sha256"] = hashlib.sha256(_source(self._found(spec))).hexdigest()
        return said

    def _found(self, spec: WorldSpec) -> Any:
        if ":" in self.name:
            return resolve(self.name, "policy")
        return random_policy if self.name == "random" else refer(spec.load(), "policies", self.name)

    def _checked(self, policy: Any) -> Policy:
        if not callable(policy):
            raise ConfigError(f"policy {self.name!r} is a {type(policy).__name__}, not a function of a world")
        made: Policy = policy
        return made


def read_policy(spec: WorldSpec, policy: Any, seed: int = 0) -> PolicyName:
    """A policy as `evaluate` takes it, refused here if it cannot be made: a name, a name with options, or a function of
    an importable module."""
    name, options = policy, {}
    if isinstance(policy, (tuple, list)) and len(policy) == 2 and isinstance(policy[1], Mapping):
        name, options = policy[0], dict(policy[1])
    if not isinstance(name, str):
        name = _reference_to(name)
    elif ":" not in name:
        own = {"random", *spec.load().policies}
        if name not in own and name in policies_for(spec.id):
            raise ConfigError(
                f"policy {name!r} was added in this process alone, where no worker finds it: give its "
                "function as 'package.module:function'"
            )
        if name not in own:
            raise ConfigError(
                f"{spec.id} has no policy {name!r}{did_you_mean(name, own)}; one of your own is given as "
                "'package.module:function'"
            )
    elif name.partition(":")[0] == "__main__":
        raise ConfigError(
            f"policy {name!r}: a worker has another __main__; put the function into a module that the "
            "workers can import, and give 'package.module:function'"
        )
    read = PolicyName(name, options)
    try:
        read.make(spec, seed)
    except MilkrunError as e:
        raise ConfigError(f"policy {shown(policy)}: {e}") if isinstance(e, RegistryError) else e from None
    except Exception as e:
        raise ConfigError(f"policy {shown(policy)} cannot be made: {type(e).__name__}: {e}") from e
    return read


def _reference_to(function: Any) -> str:
    """ "module:name" of a function or class, if it leads there."""
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    remedy = "give 'package.module:function', which the workers can import"
    if not callable(function) or not module or not name:
        raise ConfigError(
            f"policy {shown(function)}: must be the name of a policy, a pair of name and options, or a "
            f"function of a module; {remedy}"
        )
    if module == "__main__" or "<" in name:
        raise ConfigError(f"policy {module}:{name} is not importable: {remedy}")
    try:
        found = resolve(f"{module}:{name}", "policy")
    except (ImportError, RegistryError):
        found = None
    if found is not function:
        raise ConfigError(f"policy {module}:{name} is not importable: under that name is something else; {remedy}")
    return f"{module}:{name}"


def _source(found: Any) -> bytes:
    try:
        return inspect.getsource(found).encode()
    except (OSError, TypeError):  # an object that is neither function nor class: its class
        return inspect.getsource(type(found)).encode()
