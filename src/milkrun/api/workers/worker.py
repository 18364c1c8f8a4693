"""The process of a worker: one environment, and a loop that answers each command with one reply.

A worker never outlives its parent. It exits when the connection is closed; a watchdog thread ends it if the parent is
gone while the environment is busy. The kind of environment (Gymnasium, classic with four results, lists of agents) is
read from what `reset` and `step` return.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from functools import partial
from multiprocessing import parent_process
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import create_empty_array

from milkrun.api._remote import Absent, look_up
from milkrun.api.foreign import read_reset, read_step, reset_takes
from milkrun.api.workers.shared import conform, map_rows, receive_descriptor, write_row
from milkrun.core.errors import ConfigError, ShapeError

POLL_SECONDS = 1.0
EXIT_SECONDS = 2.0  # for an idle worker to read the end of its connection and close its environment

Reply = tuple[str, Any]
"""A kind and its content:

| kind | content |
|---|---|
| MADE | a `Description` of the environment |
| BEGUN | observation, info, mask: of a reset |
| STEPPED | observation, reward, terminated, truncated, info, mask: of a step of one agent |
| RETURNED | what a function returned; what a step of several agents returned |
| RAISED | summary and traceback of an exception; the worker exits |

An observation that the worker has written into shared memory is None.
"""
MADE, BEGUN, STEPPED, RETURNED, RAISED = "made", "begun", "stepped", "returned", "raised"


class Description(NamedTuple):
    """What the pool must know of an environment."""

    observation_space: Any
    action_space: Any
    takes_seed: bool
    takes_options: bool
    has_masks: bool  # as a method or attribute, not only in its infos


def run_worker(connection: Connection, index: int, packed: bytes) -> None:
    """The main function of a worker. `packed` is the pickled function that makes its environment."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles interrupts
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a forked child has its parent's handler
    threading.Thread(target=_exit_with_parent, args=(os.getppid(),), daemon=True).start()
    worker = Worker(index, connection)
    try:
        if _reply(connection, partial(worker.make, packed)):
            _serve(connection, worker)
    finally:
        try:
            worker.close()
        except Exception as e:  # the connection is closed, so stderr is all there is
            error = _summary(e).partition("\n")[0]
            print(f"worker {index} (process {os.getpid()}): close() raised {error}", file=sys.stderr, flush=True)
        connection.close()


def _serve(connection: Connection, worker: Worker) -> None:
    """Answers commands until the connection is closed or the environment raises."""
    while True:
        try:
            command = connection.recv_bytes()
        except (EOFError, OSError):
            return
        if not _reply(connection, partial(worker.execute, command)):
            return


def _reply(connection: Connection, function: Callable[[], Reply]) -> bool:
    """Sends the reply, or the exception that the function raised. Returns whether the worker goes on."""
    raised = False
    try:
        packed = pickle.dumps(function(), pickle.HIGHEST_PROTOCOL)
    except (Exception, KeyboardInterrupt) as e:
        raised = True
        packed = pickle.dumps((RAISED, (_summary(e), traceback.format_exc())))
    try:
        connection.send_bytes(packed)
    except OSError:
        return False
    return not raised


class Worker:
    """An environment and the commands that it understands: the public methods that return a reply."""

    def __init__(self, index: int, connection: Connection) -> None:
        self.index = index
        self.connection = connection
        self.env: Any = None
        self._rows: Any = None  # arrays of the space's shapes and dtypes, in shared memory or not
        self._is_shared = False

    def execute(self, packed: bytes) -> Reply:
        """Executes a pickled command: the name of a method and its arguments."""
        name, arguments = pickle.loads(packed)
        reply: Reply = getattr(self, name)(*arguments)
        return reply

    def make(self, packed: bytes) -> Reply:
        """Makes the environment and describes it."""
        self.env = env = pickle.loads(packed)()
        if not callable(getattr(env, "reset", None)) or not callable(getattr(env, "step", None)):
            what = "None" if env is None else f"a {type(env).__name__}"
            raise ConfigError(f"env_fns[{self.index}] returned {what}, which has no reset and step")
        self._reset_takes = takes = reset_takes(env)
        self._seed = None if "seed" in takes else self._find("seed")
        observations = _gymnasium_space(getattr(env, "observation_space", None))
        actions = _gymnasium_space(getattr(env, "action_space", None))
        self._masks = None if isinstance(actions, spaces.Box) else self._find("action_masks")
        if self._masks is not None and not callable(self._masks):
            self._masks = partial(self._find, "action_masks")
        seeded = "seed" in takes or callable(self._seed)
        return MADE, Description(observations, actions, seeded, "options" in takes, self._masks is not None)

    def use_arrays(self, space: spaces.Space[Any], count: int | None) -> Reply:
        """From now on checks observations against the space. With a count it writes them into shared memory, whose
        descriptor follows; None: it sends them."""
        if count is None:
            self._rows = create_empty_array(space, 1, fn=np.empty)
        else:
            self._rows = map_rows(space, count, receive_descriptor(self.connection))
            self._is_shared = True
        return RETURNED, None

    def reset(self, seed: int | None, options: dict[str, Any] | None) -> Reply:
        given: dict[str, Any] = {"seed": seed, "options": options}
        if seed is not None and self._seed is not None:
            self._seed(seed)
        known = {name: given[name] for name in self._reset_takes if given[name] is not None}
        obs, info = read_reset(self.env.reset(**known), self.env)
        return BEGUN, (self._store(obs), info, self._mask(info))

    def step(self, action: Any) -> Reply:
        result = self.env.step(action)
        if isinstance(result, (tuple, list)) and len(result) > 3:
            if isinstance(result[2], (list, tuple, dict)) or np.ndim(result[2]) > 0:
                return RETURNED, result  # of several agents
        obs, reward, terminated, truncated, info = read_step(result, self.env)
        return STEPPED, (self._store(obs), reward, terminated, truncated, info, self._mask(info))

    def mask(self) -> Reply:
        """The current mask of an environment that has a method or attribute for it."""
        return RETURNED, self._mask({})

    def apply(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Reply:
        return RETURNED, function(self.env, *args, **kwargs)

    def close(self) -> None:
        close = getattr(self.env, "close", None)
        if callable(close):
            close()

    def _store(self, obs: Any) -> Any:
        """Writes an observation into shared memory; without it, returns what is sent."""
        if self._rows is None:
            return obs
        arrays = conform(self._rows, obs)
        if not self._is_shared:
            return arrays
        write_row(self._rows, self.index, arrays)
        return None

    def _mask(self, info: dict[str, Any]) -> np.ndarray | None:
        """The action mask with at least one allowed action, or None."""
        found = self._masks() if self._masks is not None else info.get("action_mask")
        if found is None or isinstance(found, (tuple, dict)):
            return None
        return read_mask(found)

    def _find(self, name: str) -> Any:
        found = look_up(self.env, name)
        return None if found is Absent else found


def read_mask(found: Any) -> np.ndarray:
    """A mask as a bool array, in which a row without a True gets its first. Parts of different lengths, as of a
    MultiDiscrete, are concatenated."""
    if isinstance(found, np.ndarray) and found.dtype.kind == "O":
        found = found.tolist()  # in an array of lists each list would count as True
    try:
        mask = np.array(found, bool)
    except (TypeError, ValueError):
        parts = found if isinstance(found, list) else []
        mask = np.concatenate([np.zeros(0, bool), *(read_mask(part).ravel() for part in parts)])
    if not mask.ndim or not mask.size:
        raise ShapeError(f"the action mask is {found!r}: must be an array with an entry for each action")
    rows = mask.reshape(-1, mask.shape[-1])
    rows[~rows.any(axis=1), 0] = True
    return mask


def _gymnasium_space(space: Any) -> Any:
    """Converts Box and Discrete of the old package gym, since learners take Gymnasium's; other spaces are returned."""
    if isinstance(space, spaces.Space) or not type(space).__module__.startswith("gym.spaces"):
        return space
    if type(space).__name__ == "Discrete":
        return spaces.Discrete(int(space.n), start=int(getattr(space, "start", 0)))
    return spaces.Box(space.low, space.high, dtype=space.dtype.type) if type(space).__name__ == "Box" else space


def _summary(error: BaseException) -> str:
    return "".join(traceback.format_exception_only(error)).strip()


def _exit_with_parent(parent: int) -> None:
    """Ends this process when its parent is gone. The sentinel is immediate, but a forked sibling may hold its other end
    open; the parent's id is polled every second, but does not change behind a fork server."""
    above = parent_process()
    while os.getppid() == parent and not (above is not None and wait([above.sentinel], POLL_SECONDS)):
        pass
    time.sleep(EXIT_SECONDS)
    os._exit(1)
