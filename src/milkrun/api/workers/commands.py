"""The commands to a worker, packed for its pipe, and what a caller may give for it."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import cloudpickle  # type: ignore[import-untyped]
import numpy as np

from milkrun.api.workers.worker import Hello
from milkrun.core.errors import ConfigError, ShapeError


class Command(NamedTuple):
    """What a worker is to do, how an error calls it, and the descriptor that goes with it."""

    name: str
    packed: bytes
    descriptor: int | None = None


def command(name: str, *arguments: Any) -> Command:
    """The command of this name with these arguments."""
    return Command(name, pickle.dumps((name, arguments), pickle.HIGHEST_PROTOCOL))


def steps(chosen: Sequence[int], actions: Sequence[Any] | np.ndarray) -> dict[int, Command]:
    """A step for each. Rows of a numeric array go as bytes: a lone numpy number pickles seven times as slowly."""
    if not isinstance(actions, np.ndarray) or actions.dtype.kind not in "biuf":
        return {i: command("step", action) for i, action in zip(chosen, actions)}
    dtype, shape = actions.dtype.str, actions.shape[1:]
    rows = (row.tobytes() for row in actions)
    packed = (pickle.dumps(("step_array", (dtype, shape, row)), pickle.HIGHEST_PROTOCOL) for row in rows)
    return {i: Command("step", one) for i, one in zip(chosen, packed)}


def resets(chosen: Sequence[int], seeds: Sequence[Any], options: Sequence[Any]) -> dict[int, Command]:
    """A reset for each."""
    return {i: command("reset", seed, option) for i, seed, option in zip(chosen, seeds, options)}


def application(name: str, function: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Command:
    """That a function be called with the environment; an error calls it by `name`."""
    return Command(name, cloudpickle.dumps(("apply", (function, args, kwargs))))


def pack(i: int, fn: Callable[[], Any]) -> bytes:
    """The function that makes environment i, on its way to another process."""
    try:
        return cloudpickle.dumps(fn)
    except Exception as e:
        raise ConfigError(f"env_fns[{i}] cannot be sent to another process: {e}") from e


def read_seeds(chosen: Sequence[int], seeds: Any, hello: Sequence[Hello]) -> list[int | None]:
    """A seed for each: of an int s worker i has s + i."""
    if seeds is None:
        return [None] * len(chosen)
    from milkrun.core.arguments import check_seed, is_list  # brings numba, which a pool of other worlds can do without

    if not is_list(seeds):
        first = check_seed(seeds)
        seeds = [first + i for i in chosen]
    if len(seeds) != len(chosen):
        raise ShapeError(f"{len(seeds)} seeds for {len(chosen)} workers: a list has one for each that is named")
    checked = [None if seed is None else check_seed(seed) for seed in seeds]
    for i, seed in zip(chosen, checked):
        if seed is not None and not hello[i].takes_seed:
            raise ConfigError(f"worker {i}: its environment takes no seed, neither reset(seed=...) nor seed(...)")
    return checked


def read_options(chosen: Sequence[int], options: Any, hello: Sequence[Hello]) -> list[dict[str, Any] | None]:
    """The options for each: a dict is for all."""
    if options is None or isinstance(options, dict):
        options = [options] * len(chosen)
    if not isinstance(options, (list, tuple)) or any(not isinstance(one, (dict, type(None))) for one in options):
        raise ConfigError(f"options={options!r}: must be a dict for all workers, or a list with one (or None) for each")
    if len(options) != len(chosen):
        raise ShapeError(f"{len(options)} options for {len(chosen)} workers: a list has one for each that is named")
    for i, given in zip(chosen, options):
        if given and not hello[i].takes_options:
            raise ConfigError(f"worker {i}: the reset of its environment takes no options")
    return [given or None for given in options]
