"""What a parent asks an environment in another process for, beside its turns: `Workers.ask` takes these functions.

They travel by name, so this file imports no learning library: a worker shall not load that of its parent. An
attribute that is not there is an answer here and not an exception, which would end the pool.
"""

from __future__ import annotations

from typing import Any

import gymnasium


class Absent:
    """The answer of an environment that has no such attribute."""


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
    """Whether there is such an attribute, which itself may not be able to travel."""
    return look_up(env, name) is not Absent


def call_method(env: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What a method returns, or the attribute if it is none; Absent if there is neither."""
    found = look_up(env, name)
    return found(*args, **kwargs) if callable(found) and found is not Absent else found


def put(env: Any, name: str, value: Any) -> None:
    """Sets an attribute where it stands, be it behind wrappers."""
    setter = getattr(env, "set_wrapper_attr", None)
    if setter is None or name in getattr(env, "__dict__", ()):
        setattr(env, name, value)
    else:
        setter(name, value)


def put_inside(env: Any, name: str, value: Any) -> None:
    """Sets an attribute of the innermost environment."""
    setattr(getattr(env, "unwrapped", env), name, value)


def is_wrapped(env: Any, qualname: str, module: str) -> bool:
    """Whether the environment or one that it wraps is of the class of this name, which thus need not be imported."""
    while not any((kind.__module__, kind.__qualname__) == (module, qualname) for kind in type(env).__mro__):
        if not isinstance(env, gymnasium.Wrapper):
            return False
        env = env.env
    return True
