"""Binds kernels to world classes: `CVRP.bind(generate=generate, reset=reset, step=step)` below the kernels.

A kernel is never looked up by its name. A class uses the kernels that it has bound, else those of its base. Ambiguous
cases are errors: two bases that disagree, an unbound kernel named `step`, a binding after the world was compiled.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from milkrun.core.errors import ConfigError, did_you_mean

HOOKS = {
    "generate": ("w", "b"),  # draws the instance of row b
    "reset": ("w", "b"),  # puts its state at the start, mask included
    "step": ("w", "b", "action"),  # plays one allowed action
    "settle": ("w", "b"),  # of a world on an engine: the outcome of the step, after the engine has moved the row
    "legal": ("w", "b", "action"),  # whether an action is allowed, where the mask is not the whole rule
    "idle": ("w", "b", "action"),  # replaces an illegal action; by default a no-op
    "update_views": ("w", "b"),  # computes views after every reset and step
    "observe": ("w", "b"),  # computes the views declared on_demand, when `World.observe` is called
    "prefetch": ("w", "b", "action"),  # prefetches the memory that a step will read; for speed alone
    "derive_mask": ("w", "b"),  # writes the mask of a live row from its state alone, to validate saved states
    "fault": ("w", "b"),  # the code of the rule that a state breaks, a key of the class's `faults`, or 0
}
REQUIRED = ("generate", "reset", "step")

_bound: set[Any] = set()  # all bound kernels of all classes


def bind(cls: type, kernels: Mapping[str, Any]) -> None:
    """Sets the kernels of a world class, by hook, and of its subclasses that bind none of their own."""
    own: dict[str, Any] = vars(cls).get("_kernels", {})
    for hook, function in kernels.items():
        if hook not in HOOKS:
            raise ConfigError(f"{cls.__name__}.bind: there is no kernel {hook!r}{did_you_mean(hook, HOOKS)}")
        require_kernel(f"{cls.__name__}.bind({hook}=...)", function, HOOKS[hook])
        if own.get(hook, function) is not function:
            raise ConfigError(f"{cls.__name__} has bound {hook!r} already, to {_place(own[hook])}")
    for c in (cls, *_subclasses(cls)):
        if vars(c).get("_launchers"):
            raise ConfigError(f"{cls.__name__}.bind comes too late: a {c.__name__} has been made already")
    cls._kernels = {**own, **kernels}  # type: ignore[attr-defined]
    _bound.update(kernels.values())


def kernels_of(cls: type) -> dict[str, Any]:
    """The kernels of a world class, by hook."""
    found: dict[str, Any] = {}
    owner: dict[str, type] = {}
    for c in cls.__mro__:
        for hook, function in vars(c).get("_kernels", {}).items():
            if hook not in owner:
                found[hook], owner[hook] = function, c
            elif not issubclass(owner[hook], c) and function is not found[hook]:
                raise ConfigError(
                    f"{cls.__name__} inherits the kernel {hook!r} from {owner[hook].__name__} and from "
                    f"{c.__name__}: say which by {cls.__name__}.bind({hook}=...)"
                )
    # `derive_mask` repeats the mask of `reset` and `step`: a class that rebinds one of these may mask differently.
    masks = owner.get("derive_mask")
    if masks and any(
        owner[hook] is not masks and issubclass(owner[hook], masks) for hook in ("reset", "step") if hook in owner
    ):
        del found["derive_mask"]
    return found


def playable(cls: type) -> dict[str, Any]:
    """The kernels of a class that is instantiated; raises ConfigError if one is missing or was not bound."""
    found = kernels_of(cls)
    for c in cls.__mro__:
        _refuse_unbound(c)
    if missing := [hook for hook in REQUIRED if hook not in found]:
        statement = f"{cls.__name__}.bind({', '.join(f'{hook}={hook}' for hook in REQUIRED)})"
        raise ConfigError(f"{cls.__name__} has no kernel {missing[0]!r}: write {statement} below its kernels")
    return found


def _refuse_unbound(cls: type) -> None:
    """Raises ConfigError for an unbound kernel in the module of a class that has the name of a hook."""
    for hook in HOOKS:
        function: Any = getattr(sys.modules.get(cls.__module__), hook, None)
        if hasattr(function, "py_func") and function.py_func.__module__ == cls.__module__ and function not in _bound:
            raise ConfigError(
                f"no class plays the kernel {hook!r} ({_place(function)}): write "
                f"{cls.__name__}.bind({hook}={hook}) below it, or give it another name"
            )


def require_kernel(user: str, function: Any, parameters: tuple[str, ...]) -> None:
    """Raises ConfigError unless this is a @kernel with as many parameters."""
    if not hasattr(function, "py_func"):
        named = f"{function.__name__} ({_place(function)})" if hasattr(function, "__code__") else repr(function)
        raise ConfigError(f"{user}: {named} is not a @kernel")
    count = function.py_func.__code__.co_argcount
    if count != len(parameters):
        raise ConfigError(f"{user}: {_place(function)} takes {count} parameters, not ({', '.join(parameters)})")


def _place(function: Any) -> str:
    code = getattr(function, "py_func", function).__code__
    return f"{code.co_filename.replace(chr(92), '/').rpartition('/')[2]}:{code.co_firstlineno}"


def _subclasses(cls: type) -> list[type]:
    direct: list[type] = cls.__subclasses__()
    return [found for c in direct for found in (c, *_subclasses(c))]
