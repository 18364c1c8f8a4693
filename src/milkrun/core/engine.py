"""EngineWorld: a world whose rows are moved by an engine beside the kernels, a simulator that advances many at a call.

A turn is cut in two. The kernel `step(w, b, action)` says what shall be done, the engine does it (`advance`), and the
kernel `settle(w, b)` says what came of it; the rules of the contract stay in the launcher, before and after. A row is
what its fields hold, the engine's own memory among them where `allocate` returns it for fields declared `strided`;
whenever they were written from outside (a reset, a saved state, a copy of the world), `place` tells the engine.
"""

from __future__ import annotations

import os
import weakref
from contextlib import suppress
from ctypes import py_object, pythonapi
from typing import Any

import numpy as np

from milkrun.core.errors import ConfigError
from milkrun.core.hooks import kernels_of, require_kernel
from milkrun.core.launcher import DUE, build_adviser
from milkrun.core.memory import address_of
from milkrun.core.threads import chunks_for
from milkrun.core.world import World


class EngineWorld(World):
    """A world with an engine. A subclass gives `connect`, `place`, `advance` and the kernel `settle`."""

    _threads_copy = False
    engine: Any
    _process: int  # where the engine was made

    def connect(self) -> Any:
        """Makes the engine for `num_envs` rows and `engine_threads` threads: in a new world, a copy, a forked child."""
        raise ConfigError(f"{type(self).__name__} must say how its engine is made: connect()")

    def place(self, rows: np.ndarray) -> None:
        """Puts the engine's rows to what the fields say."""
        raise ConfigError(f"{type(self).__name__} must say how its engine is put to what the fields hold: place(rows)")

    def advance(self, rows: np.ndarray) -> None:
        """Lets the engine carry out what `step` told these rows; those whose action was refused are among them. If it
        raises, the rows have no state any more and must be reset."""
        raise ConfigError(f"{type(self).__name__} must say how its engine moves rows: advance(rows)")

    @property
    def engine_threads(self) -> int:
        """How many threads the engine may use: all, whatever the rows cost; one in a forked child."""
        return chunks_for(self.num_envs, 2, self.threads)

    # -- the contract -----------------------------------------------------------------------------------------

    def play_out(self, choose: Any, x: int = 0) -> int:
        """As every world's, a turn at a time."""
        self._refuse_play_out()
        key = "advice", choose, self.debug
        advise = self._row_maps.get(key)
        if advise is None:
            require_kernel("play_out", choose, ("w", "b", "x", "i"))
            advise = self._row_maps[key] = build_adviser(self._launcher_layout, choose, debug=self.debug)
        live, steps = self._all[~self.done], 0
        while len(live):
            chosen = np.empty(len(live), np.int64)
            self._run(advise, live, address_of(chosen), int(x))
            self.step(self.advice[live] if self.action.kind == "multi" else chosen, rows=live)
            steps += len(live)
            live = live[~(self.done | self.illegal)[live]]
        return steps

    def rows_written(self, rows: np.ndarray) -> None:
        self._reconnect()
        self.place(rows)

    def close(self) -> None:
        super().close()
        self._let_go()

    # -- inside -----------------------------------------------------------------------------------------------

    advice: Any  # a view of worlds with several agents

    def _allocate(self) -> None:
        if "settle" not in kernels_of(type(self)):
            raise ConfigError(
                f"{type(self).__name__} has no kernel 'settle', which says what came of a step: "
                f"write {type(self).__name__}.bind(..., settle=settle)"
            )
        self.check_memory(self.num_envs)
        self.engine, self._process = self.connect(), os.getpid()
        super()._allocate()
        self._watch()

    def _play(self, chosen: np.ndarray, order: int, n: int, given: int) -> int:
        """The command, the engine, the outcome. If the engine fails, the step does not finish and its rows need a
        reset."""
        self._reconnect()
        ended = self._run(self._launcher.command, chosen, self._actions_address, self._mode)
        if ended:  # an episode is due
            chosen = chosen[self.i[chosen] != DUE]
        if not len(chosen):
            return ended
        self.advance(chosen)
        return ended + self._run(self._launcher.outcome, chosen)

    def _start_episodes(self, rows: np.ndarray) -> None:
        self._reconnect()
        super()._start_episodes(rows)
        self.place(rows)
        if self._launcher.update_views is not None:
            self._run(self._launcher.update_views, rows)

    def _chunks(self, rows: int) -> int:
        """Kernels stay on one thread: others would wait for work while the engine works, and hold its cores."""
        return 1

    def _reconnect(self) -> None:
        """In a forked child: the threads of its parent's engine are not there."""
        if self._process != os.getpid():
            self._let_go()
            self._connect_again()

    def _connect_again(self) -> None:
        """Makes another engine, since engines cannot be copied, and puts it to what the fields say."""
        self.engine = self.connect()
        for f in self.fields.values():
            if f.strided:
                # The memory of the engine before, or an array of the copy: this name keeps it until it is copied.
                held = getattr(self, f.name)
                self._allocate_fields([f], len(held))
                getattr(self, f.name)[...] = held
        self._watch()
        self.place(np.flatnonzero(self._playable))
        self._process = os.getpid()  # last: an interrupt before it makes the next call begin again

    def _watch(self) -> None:
        # An array of the engine's memory may outlive the engine itself.
        outlive_forks(self.engine, *(_owner(getattr(self, f.name)) for f in self.fields.values() if f.strided))

    def _let_go(self) -> None:
        """Forgets the engine."""
        if self._process != os.getpid():
            _never_end(self.engine)
        self.engine = None

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name not in ("engine", "_process")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if self._closed:
            self.engine, self._process = None, os.getpid()
        else:
            self._connect_again()


# -- forks ----------------------------------------------------------------------------------------------------------

_ENGINES: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
"""All that live in this process, and the owners of their memory, by their addresses."""
_held: list[list[Any]] = []  # by forks that are under way


def outlive_forks(*engines: Any) -> None:
    """Engines with threads of their own, which no forked child shall end."""
    for engine in engines:
        with suppress(TypeError):  # it may be of a type without weak references
            _ENGINES[id(engine)] = engine


def _owner(array: np.ndarray) -> Any:
    """Who frees the memory of an array."""
    owner: Any = array
    while isinstance(owner, np.ndarray) and owner.base is not None:
        owner = owner.base
    return owner


def _never_end(engine: Any) -> None:
    """Keeps the engine of another process alive on purpose: to end it would wait for ever for threads that are not
    here, or abort."""
    pythonapi.Py_IncRef(py_object(engine))


def _before_fork() -> None:
    # By way of `valuerefs`, which makes its list at once: another thread may make a world meanwhile.
    _held.append([engine for found in _ENGINES.valuerefs() if (engine := found()) is not None])


def _after_fork_in_parent() -> None:
    _held.pop()


def _after_fork_in_child() -> None:
    """A child that never touches its parent's worlds drops them all the same: with the frame that forked, or when its
    garbage is collected."""
    for engines in _held:
        for engine in engines:
            _never_end(engine)
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
