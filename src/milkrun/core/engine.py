"""EngineWorld: a world whose rows are moved by an engine outside the kernels, such as a physics simulator.

A step has three parts: the kernel `step(w, b, action)` writes commands, the engine carries them out (`advance`), and
the kernel `settle(w, b)` computes the outcome. The fields are the whole state of a row; `allocate` may return the
engine's own memory for fields declared `strided`. After fields were written from outside (a reset, a saved state, a
copy of the world), `place` updates the engine.
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
        """Makes the engine for `num_envs` rows and `engine_threads` threads, for a new world, a copy or a forked
        child."""
        raise ConfigError(f"{type(self).__name__} must say how its engine is made: connect()")

    def place(self, rows: np.ndarray) -> None:
        """Sets the engine's rows to the values of the fields."""
        raise ConfigError(f"{type(self).__name__} must say how its engine is put to what the fields hold: place(rows)")

    def advance(self, rows: np.ndarray) -> None:
        """Lets the engine carry out the commands of these rows, also of those whose action was refused. If it raises,
        the rows need a reset."""
        raise ConfigError(f"{type(self).__name__} must say how its engine moves rows: advance(rows)")

    @property
    def engine_threads(self) -> int:
        """The number of threads of the engine: all, whatever a row costs; one in a forked child."""
        return chunks_for(self.num_envs, 2, self.threads)

    # -- the contract -----------------------------------------------------------------------------------------

    def play_out(self, choose: Any, x: int = 0) -> int:
        """`World.play_out` as a loop of steps: an interrupt ends it between two steps, or as it ends a step."""
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
        self._release()

    # -- inside -----------------------------------------------------------------------------------------------

    advice: Any  # a view of worlds with several agents

    def _allocate(self) -> None:
        if "settle" not in kernels_of(type(self)):
            raise ConfigError(
                f"{type(self).__name__} has no kernel 'settle', which says what came of a step: "
                f"write {type(self).__name__}.bind(..., settle=settle)"
            )
        self.check_memory(self.num_envs)
        self.engine = self.connect()
        self._process = os.getpid()
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
        """One thread for kernels: idle threads would occupy the cores of the engine."""
        return 1

    def _reconnect(self) -> None:
        """Makes another engine in a forked child, which does not have the threads of its parent's engine."""
        if self._process != os.getpid():
            self._release()
            self._connect_again()

    def _connect_again(self) -> None:
        """Makes another engine, since engines cannot be copied, and sets it to the values of the fields."""
        self.engine = self.connect()
        for f in self.fields.values():
            if f.strided:
                # Memory of the previous engine, or an array of the copy; the reference keeps it alive.
                held = getattr(self, f.name)
                self._allocate_fields([f], len(held))
                getattr(self, f.name)[...] = held
        self._watch()
        self.place(np.flatnonzero(self._playable))
        self._process = os.getpid()  # last: an interrupt before it makes the next call begin again

    def _watch(self) -> None:
        # An array of the engine's memory may outlive the engine itself.
        outlive_forks(self.engine, *(_owner(getattr(self, f.name)) for f in self.fields.values() if f.strided))

    def _release(self) -> None:
        """Forgets the engine."""
        if self._process != os.getpid():
            _leak(self.engine)
        self.engine = None

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name not in ("engine", "_process")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if self._closed:
            self.engine = None
            self._process = os.getpid()
        else:
            self._connect_again()


# -- forks ----------------------------------------------------------------------------------------------------------

_ENGINES: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
"""All engines in this process, and the owners of their memory, by address."""
_held: list[list[Any]] = []  # kept alive during forks


def outlive_forks(*engines: Any) -> None:
    """Registers engines with threads of their own, which a forked child must not destroy."""
    for engine in engines:
        with suppress(TypeError):  # some types have no weak references
            _ENGINES[id(engine)] = engine


def _owner(array: np.ndarray) -> Any:
    """The object that owns the memory of an array."""
    owner: Any = array
    while isinstance(owner, np.ndarray) and owner.base is not None:
        owner = owner.base
    return owner


def _leak(engine: Any) -> None:
    """Leaks the engine of another process: its destructor would wait for threads that do not exist here, or abort."""
    pythonapi.Py_IncRef(py_object(engine))


def _before_fork() -> None:
    # `valuerefs` makes its list at once, while another thread may make a world.
    _held.append([engine for found in _ENGINES.valuerefs() if (engine := found()) is not None])


def _after_fork_in_parent() -> None:
    _held.pop()


def _after_fork_in_child() -> None:
    """A child destroys its parent's worlds with the frame that forked, or at garbage collection, so all engines
    leak."""
    for engines in _held:
        for engine in engines:
            _leak(engine)
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
