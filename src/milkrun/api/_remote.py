"""Functions that a parent runs on an environment in another process, apart from steps and resets.

They are pickled by name, so this file imports no learning library: a worker must not load that of its parent. A missing
attribute is a return value and not an exception, which would end the pool.
"""

from __future__ import annotations

from typing import Any

import gymnasium


class Absent:
    """The result for a missing attribute."""


def look_up(env: Any, name: str) -> Any:
    """An attribute, also one behind Gymnasium's wrappers; Absent if there is none."""
    found = getattr(env, name, Absent)
    get = getattr(env, "get_wrapper_attr", None) if found is Absent else None
    if get is None:
        return found
    try:
        return get(name)
    except AttributeError:
        return Absent


def has(env: Any, name: str) -> bool:
    """Whether the attribute exists, even if it cannot be pickled."""
    return look_up(env, name) is not Absent


def call_method(env: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result of a method, or the attribute itself if it is not callable; Absent if it is missing."""
    found = look_up(env, name)
    return found(*args, **kwargs) if callable(found) and found is not Absent else found


def put(env: Any, name: str, value: Any) -> None:
    """Sets an attribute on the wrapper or environment that has it."""
    setter = getattr(env, "set_wrapper_attr", None)
    if setter is None or name in getattr(env, "__dict__", ()):
        setattr(env, name, value)
    else:
        setter(name, value)


def put_inside(env: Any, name: str, value: Any) -> None:
    """Sets an attribute of the innermost environment."""
    setattr(getattr(env, "unwrapped", env), name, value)


def is_wrapped(env: Any, qualname: str, module: str) -> bool:
    """Whether the environment, or one that it wraps, is of the class with this name, without importing the class."""
    while not any((kind.__module__, kind.__qualname__) == (module, qualname) for kind in type(env).__mro__):
        if not isinstance(env, gymnasium.Wrapper):
            return False
        env = env.env
    return True
