"""Policies by reference: workers receive the name of a policy and import it.

Functions are not pickled: a manifest could not identify a function that exists only in the memory of the caller.
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
    """The name of a world's policy, or "package.module:name", with the options to make it."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def make(self, spec: WorldSpec, seed: int) -> Policy:
        """Makes the policy. A function without options is the policy itself; a class or a function with options is
        called. If it takes a seed and the options have none, it gets the seed of the evaluation."""
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
        """The entry that identifies this policy in a manifest."""
        entry: dict[str, Any] = {"name": self.name, "options": dict(self.options)}
        if ":" in self.name:
            entry["sha256"] = hashlib.sha256(_source(self._found(spec))).hexdigest()
        return entry

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
    """Validates a policy as `evaluate` takes it: a name, a name with options, or a function of an importable module.
    Raises if it cannot be made."""
    name, options = policy, {}
    if isinstance(policy, (tuple, list)) and len(policy) == 2 and isinstance(policy[1], Mapping):
        name, options = policy[0], dict(policy[1])
    if not isinstance(name, str):
        name = _reference_to(name)
    elif ":" not in name:
        own = {"random", *spec.load().policies}
        if name not in own and name in policies_for(spec.id):
            raise ConfigError(
                f"policy {name!r} was added in this process only, workers do not have it: give its "
                "function as 'package.module:function'"
            )
        if name not in own:
            raise ConfigError(
                f"{spec.id} has no policy {name!r}{did_you_mean(name, own)}; give your own policy as "
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
    """ "module:name" of a function or class. Raises if an import of that name gives another object."""
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
        raise ConfigError(f"policy {module}:{name} is not importable: that name gives another object; {remedy}")
    return f"{module}:{name}"


def _source(found: Any) -> bytes:
    try:
        return inspect.getsource(found).encode()
    except (OSError, TypeError):  # neither a function nor a class: take the class of the object
        return inspect.getsource(type(found)).encode()
