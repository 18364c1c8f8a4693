"""What runs in a worker: one environment, and a loop that answers one command with one reply until it is to close.

A worker never outlives its parent: it leaves when the pipe is closed, and a watchdog ends it if it is held up inside
its environment when the parent goes. What kind of environment it has (Gymnasium, classic with four results, a list of
agents) is read off what `reset` and `step` return.
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

from milkrun.api._remote import Absent, look_up
from milkrun.api.foreign import read_reset, read_step, reset_takes
from milkrun.api.workers.memory import Slots, map_memory, receive_descriptor
from milkrun.api.workers.wire import AHEAD, LENGTH, receive, send
from milkrun.core.errors import ConfigError, ShapeError

POLL_SECONDS = 1.0
LAST_SECONDS = 2.0  # for an idle worker to see its pipe closed, and to close its environment


class Hello(NamedTuple):
    """What a worker tells of its environment when it has made it."""

    observation_space: Any
    action_space: Any
    takes_seed: bool
    takes_options: bool
    tells_masks: bool  # when asked, not only with a turn


class Start(NamedTuple):
    """The answer to a reset; `obs` is None where it lies in the slots."""

    obs: Any
    info: dict[str, Any]
    mask: np.ndarray | None


class Step(NamedTuple):
    """The answer to a step of one agent; `obs` is None where it lies in the slots."""

    obs: Any
    reward: float
    terminated: bool
    truncated: bool
    info: dict[str, Any]
    mask: np.ndarray | None


class AsItCame(NamedTuple):
    """The answer to a step of an environment of several agents, or to a call: what it returned."""

    result: Any


class Failure(NamedTuple):
    """The answer when the environment raised."""

    summary: str
    remote_traceback: str


Answer = Hello | Start | Step | AsItCame | Failure
KINDS: tuple[type[Answer], ...] = (Hello, Start, Step, AsItCame, Failure)


def pack(answer: Answer) -> bytes:
    """An answer on its way: the number of its kind and its fields, which pickle seven times as fast as the class."""
    return pickle.dumps((KINDS.index(type(answer)), tuple(answer)), pickle.HIGHEST_PROTOCOL)


def unpack(packed: bytes) -> Answer:
    """What was packed."""
    kind, fields = pickle.loads(packed)
    return KINDS[kind](*fields)


def work(connection: Connection, index: int, packed: bytes) -> None:
    """The life of a worker."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what an interrupt means
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a forked child has its parent's handler
    threading.Thread(target=_watch_parent, args=(os.getppid(),), daemon=True).start()
    seat = Seat(index, connection)
    try:
        if _reply(connection, seat.make, packed):
            _serve(connection, seat)
    finally:
        try:
            seat.close()
        except Exception as e:  # the parent listens no more
            error = _summary(e).partition("\n")[0]
            print(f"worker {index} (process {os.getpid()}): close() raised {error}", file=sys.stderr, flush=True)
        connection.close()


def _serve(connection: Connection, seat: Seat) -> None:
    """Answers until the parent sends nothing or is gone, or the environment has raised."""
    fd, ahead = connection.fileno(), LENGTH  # a descriptor comes behind the first command, if any
    while True:
        try:
            received = receive(fd, ahead)
        except (EOFError, OSError):
            return
        ahead = AHEAD
        if not received or not _reply(connection, seat.answer, received):
            return


def _reply(connection: Connection, act: Callable[[bytes], Answer], packed: bytes) -> bool:
    """Sends what `act` returns, or how it failed; whether there is more to come."""
    failed = False
    try:
        reply = pack(act(packed))
    except (Exception, KeyboardInterrupt) as e:
        failed = True
        reply = pack(Failure(_summary(e), traceback.format_exc()))
    try:
        send(connection.fileno(), reply)
    except OSError:
        return False
    return not failed


def _summary(error: BaseException) -> str:
    return "".join(traceback.format_exception_only(error)).strip()


def _of_gymnasium(space: Any) -> Any:
    """The boxes and numbers of the old package gym as Gymnasium's, which learners take; any other space as it is."""
    if isinstance(space, spaces.Space) or not type(space).__module__.startswith("gym.spaces"):
        return space
    if type(space).__name__ == "Discrete":
        return spaces.Discrete(int(space.n), start=int(getattr(space, "start", 0)))
    return spaces.Box(space.low, space.high, dtype=space.dtype.type) if type(space).__name__ == "Box" else space


class Seat:
    """The environment of a worker and how it is spoken to."""

    def __init__(self, index: int, connection: Connection) -> None:
        self.index, self.connection = index, connection
        self.env: Any = None
        self.slots: Slots | None = None

    def make(self, packed: bytes) -> Hello:
        """Makes the environment and tells of it."""
        self.env = env = pickle.loads(packed)()
        if not callable(getattr(env, "reset", None)) or not callable(getattr(env, "step", None)):
            what = "None" if env is None else f"a {type(env).__name__}"
            raise ConfigError(f"env_fns[{self.index}] returned {what}, which has no reset and step")
        self._reset_takes = takes = reset_takes(env)
        self._seed = None if "seed" in takes else self._find("seed")
        observations = _of_gymnasium(getattr(env, "observation_space", None))
        actions = _of_gymnasium(getattr(env, "action_space", None))
        self._masks = None if isinstance(actions, spaces.Box) else self._find("action_masks")
        if self._masks is not None and not callable(self._masks):
            self._masks = partial(self._find, "action_masks")
        seeded = "seed" in takes or callable(self._seed)
        return Hello(observations, actions, seeded, "options" in takes, self._masks is not None)

    def answer(self, packed: bytes) -> Answer:
        """Does what the command says."""
        name, arguments = pickle.loads(packed)
        return getattr(self, name)(*arguments)

    def attach(self, space: spaces.Space[Any], count: int) -> AsItCame:
        """From now on observations lie in the memory whose descriptor comes next."""
        self.slots = Slots(space, count, map_memory(receive_descriptor(self.connection)))
        return AsItCame(None)

    def reset(self, seed: int | None, options: dict[str, Any] | None) -> Start:
        given: dict[str, Any] = {"seed": seed, "options": options}
        if seed is not None and self._seed is not None:
            self._seed(seed)
        known = {name: given[name] for name in self._reset_takes if given[name] is not None}
        obs, info = read_reset(self.env.reset(**known), self.env)
        return Start(self._put(obs), info, self._mask(info))

    def step(self, action: Any) -> Step | AsItCame:
        result = self.env.step(action)
        if isinstance(result, (tuple, list)) and len(result) > 3:
            if isinstance(result[2], (list, tuple, dict)) or np.ndim(result[2]) > 0:
                return AsItCame(result)
        obs, reward, terminated, truncated, info = read_step(result, self.env)
        return Step(self._put(obs), reward, terminated, truncated, info, self._mask(info))

    def step_array(self, dtype: str, shape: tuple[int, ...], content: bytes) -> Step | AsItCame:
        """A step whose action is a row of an array."""
        # A copy, since an environment may write into its action; [()] makes a number of an array without axes.
        return self.step(np.frombuffer(content, dtype).reshape(shape).copy()[()])

    def mask(self) -> AsItCame:
        """What is allowed now, of an environment that tells when asked."""
        return AsItCame(self._mask({}))

    def apply(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> AsItCame:
        return AsItCame(function(self.env, *args, **kwargs))

    def close(self) -> None:
        close = getattr(self.env, "close", None)
        if callable(close):
            close()

    def _put(self, obs: Any) -> Any:
        if self.slots is None:
            return obs
        self.slots.write(self.index, obs)
        return None

    def _mask(self, info: dict[str, Any]) -> np.ndarray | None:
        """What is allowed, never nothing at all: a row without a True gets its first."""
        found = self._masks() if self._masks is not None else info.get("action_mask")
        if found is None or isinstance(found, (tuple, dict)):
            return None
        return read_mask(found)

    def _find(self, name: str) -> Any:
        found = look_up(self.env, name)
        return None if found is Absent else found


def read_mask(found: Any) -> np.ndarray:
    """A mask as a bool array; parts of different lengths, as of a MultiDiscrete, are laid one behind the other."""
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


def _watch_parent(parent: int) -> None:
    """Ends this process when its parent is gone. The sentinel tells at once, but not if a forked sibling holds its
    other end open; the parent's id tells within a second, but not behind a fork server."""
    above = parent_process()
    while os.getppid() == parent and not (above is not None and wait([above.sentinel], POLL_SECONDS)):
        pass
    time.sleep(LAST_SECONDS)
    os._exit(1)
