"""`Workers`: environments in processes of their own, one command a worker and call; `Aligned`: the same with automatic
resets.

Results do not depend on how they travelled: observations of spaces of fixed shape are stacked, through shared memory or
not; other observations come as a list with one entry a worker.
"""

from __future__ import annotations

import pickle
import threading
import weakref
from collections.abc import Callable, Sequence
from functools import wraps
from numbers import Real
from types import TracebackType
from typing import Any, Concatenate, Literal, NoReturn, ParamSpec, TypeVar

import cloudpickle  # type: ignore[import-untyped]
import numpy as np
from gymnasium.vector.utils import concatenate, create_empty_array

from milkrun.api._remote import Absent, call_method
from milkrun.api.foreign import makers
from milkrun.api.workers.processes import CLOSE_SECONDS, FAILED_SECONDS, Command, WorkerProcesses
from milkrun.api.workers.shared import copy_rows, create_memory, has_fixed_shape, map_rows
from milkrun.api.workers.worker import BEGUN, RETURNED, Description, Reply
from milkrun.core.errors import Closed, ConfigError, ResetNeeded, ShapeError

Ids = int | Sequence[int] | np.ndarray | None
StepResult = tuple[Any, np.ndarray, np.ndarray, np.ndarray, list[dict[str, Any]]]
Resets = Sequence[bool] | np.ndarray | Literal["due"] | None
Given = ParamSpec("Given")
Result = TypeVar("Result")


def _exclusive(
    method: Callable[Concatenate[Workers, Given], Result],
) -> Callable[Concatenate[Workers, Given], Result]:
    """Refuses a second thread while the first is inside, since it would read replies that are not its own. Abandons the
    call if an interrupt leaves it."""

    @wraps(method)
    def call(self: Workers, /, *args: Given.args, **kwargs: Given.kwargs) -> Result:
        is_inside = False
        try:
            is_inside = self._lock.acquire(blocking=False)
            if not is_inside:
                raise ConfigError("another thread is waiting for this pool: only one may use it at a time")
            return method(self, *args, **kwargs)
        except BaseException as e:
            if not isinstance(e, Exception):
                self._abandon()
            raise
        finally:
            if is_inside:
                self._lock.release()

    return call


class Workers:
    """A process for each environment: Gymnasium's, classic ones with four results, ones of several agents.

    env_fns: functions of no arguments that make an environment each; they are sent by cloudpickle.
    start_method: "forkserver" (None, where there is one), "spawn" or "fork".
    shared_memory: False sends observations through pipes.
    timeout: seconds a call may take; None: no limit. Making the environments is not limited.

    `ids` names the workers of a call, all by default; results stand in its order and are never changed by a later call.
    A worker that dies or raises is a `WorkerError`, one that is late a `WorkerTimeout`; both close the pool. An
    interrupt does not: the workers finish what they were sent, the results are dropped, and if they are of a step or a
    reset, the next step raises `ResetNeeded`.
    """

    def __init__(
        self,
        env_fns: Sequence[Callable[[], Any]],
        start_method: str | None = None,
        shared_memory: bool = True,
        timeout: float | None = None,
    ) -> None:
        if timeout is not None and (isinstance(timeout, bool) or not isinstance(timeout, Real) or not timeout > 0):
            raise ConfigError(f"timeout={timeout!r}: must be a number of seconds above 0, or None")
        packed = [_pack_maker(i, fn) for i, fn in enumerate(makers(env_fns))]
        self.timeout = timeout
        self.ended = [False] * len(packed)
        """Which environments have ended an episode and not begun another."""
        self.reset_infos: list[dict[str, Any]] = [{} for _ in packed]
        """The info of the last reset of each."""
        self._all = list(range(len(packed)))
        self._begun = [False] * len(packed)
        self._masks: list[np.ndarray | None] = [None] * len(packed)
        self._outdated: set[int] = set()  # whose masks a call may have changed
        self._sent: dict[int, Command] = {}  # by worker, until the results are returned
        self._is_interrupted = False
        self._lock = threading.RLock()
        self._rows: Any = None
        self._processes = WorkerProcesses(packed, start_method)
        weakref.finalize(self, self._processes.stop, "was forgotten")
        try:
            replies = self._processes.receive()
            self._envs: list[Description] = [replies[i][1] for i in self._all]
            self._space = self._common_space()
            if self._space is not None:
                self._use_arrays(bool(shared_memory))
        except BaseException:
            self._processes.stop("was not started", FAILED_SECONDS)
            raise

    @property
    def observation_spaces(self) -> list[Any]:
        """The observation space of each environment, None if it has none."""
        return [env.observation_space for env in self._envs]

    @property
    def action_spaces(self) -> list[Any]:
        """The action space of each environment, None if it has none."""
        return [env.action_space for env in self._envs]

    @property
    def masks(self) -> list[np.ndarray | None]:
        """The action mask of each environment: bool, never all False; None if it has none. They come with each step and
        reset. After a `call` they are requested again, unless the environment has them in its infos alone."""
        if self._outdated and not self.under_way and not self._processes.closed_because:
            self._request_masks()
        return self._masks

    @property
    def under_way(self) -> bool:
        """A step has been sent and not yet received."""
        return bool(self._sent)

    @property
    def pids(self) -> list[int]:
        """The process id of each worker."""
        return list(self._processes.pids)

    @_exclusive
    def reset(self, ids: Ids = None, seeds: Any = None, options: Any = None) -> tuple[Any, list[dict[str, Any]]]:
        """Begins an episode in these environments. Returns observations and infos. Drops a step under way.

        seeds: an int s gives worker i the seed s + i; a list has one (or None) for each worker named.
        options: a dict for all, or a list with one (or None) for each worker named.
        """
        chosen = self.indices(ids)
        given = zip(_read_seeds(chosen, seeds, self._envs), _read_options(chosen, options, self._envs))
        if self.under_way:
            self._receive_replies()
            self._sent = {}
        self._send({i: _command("reset", *own) for i, own in zip(chosen, given)})
        replies = [content for _, content in self._receive_replies()]
        result = self._observations(replies), [dict(info) for _, info, _ in replies]
        self._sent = {}
        return result

    @_exclusive
    def step(
        self, actions: Sequence[Any] | np.ndarray, ids: Ids = None, *, reset: Resets = None
    ) -> StepResult | list[Any]:
        """Steps these environments. Returns observations, rewards, terminated, truncated, infos.

        reset: True for each worker named that is reset instead, or "due": those that have `ended`. Of these the reward
        is 0.0, both flags are False, and the info, that of the reset, has `reset_turn`.
        Environments of several agents, whose `step` returns lists: a list of what each returned, unchanged.
        """
        self._send_steps(actions, ids, reset)
        return self._receive_steps()

    @_exclusive
    def send(self, actions: Sequence[Any] | np.ndarray, ids: Ids = None, *, reset: Resets = None) -> None:
        """Starts a step; the environments play while the caller does something else."""
        self._send_steps(actions, ids, reset)

    @_exclusive
    def receive(self) -> StepResult | list[Any]:
        """Waits for the step that was sent. Returns what `step` returns."""
        return self._receive_steps()

    def call(self, name: str | Callable[..., Any], *args: Any, ids: Ids = None, **kwargs: Any) -> list[Any]:
        """Calls a method of each environment named, also one behind wrappers. Returns the results; if the name is an
        attribute, its values.

        name: a function instead is called with the environment and the arguments.
        """
        if not isinstance(name, str):
            called = getattr(name, "__name__", type(name).__name__)
            return self.apply(f"call {called}", name, *args, ids=ids, **kwargs)
        found = self.apply(f"call {name}", call_method, name, args, kwargs, ids=ids)
        if lacking := [i for i, one in zip(self.indices(ids), found) if one is Absent]:
            raise AttributeError(f"worker {', '.join(map(str, lacking))}: the environment has no {name!r}")
        return found

    @_exclusive
    def apply(
        self, command: str, function: Callable[..., Any], /, *args: Any, ids: Ids = None, **kwargs: Any
    ) -> list[Any]:
        """Calls a function with each environment named and these arguments. Errors name the `command`."""
        chosen = self.indices(ids)
        packed = cloudpickle.dumps(("apply", (function, args, kwargs)))
        results = self._request(dict.fromkeys(chosen, Command(command, packed)))
        self._outdated.update(i for i in chosen if self._begun[i] and self._envs[i].has_masks)
        return results

    def close(self) -> None:
        """Closes the environments and ends their processes. Idempotent."""
        self._processes.stop("is closed", FAILED_SECONDS if self._is_interrupted else CLOSE_SECONDS)
        self._rows = None

    def indices(self, ids: Ids) -> list[int]:
        """The workers that `ids` names."""
        if ids is None:
            return self._all
        try:
            array = np.asarray(ids)
        except Exception as e:
            raise ShapeError(f"ids: not an array: {e}") from None
        if array.dtype == np.bool_ or not np.issubdtype(array.dtype, np.integer) or array.ndim > 1 or not array.size:
            raise ShapeError(f"ids={ids!r}: must be an index of a worker, a list of such, or None")
        chosen: list[int] = array.reshape(-1).tolist()
        if len(set(chosen)) != len(chosen) or min(chosen) < 0 or max(chosen) >= len(self):
            raise ShapeError(f"ids={chosen}: must be different indices in 0..{len(self) - 1}")
        return chosen

    def check_open(self) -> None:
        """Raises Closed, with the reason, if the pool is closed."""
        if self._processes.closed_because:
            raise Closed(f"this pool of {len(self)} workers {self._processes.closed_because}")

    def __len__(self) -> int:
        return len(self._all)

    def __reduce__(self) -> NoReturn:
        raise ConfigError("a pool of processes cannot be copied or pickled: make another")

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def _common_space(self) -> Any:
        """The observation space, if all environments have the same one and it is of fixed shape; else None."""
        first, *others = self.observation_spaces
        return first if has_fixed_shape(first) and all(other == first for other in others) else None

    def _use_arrays(self, is_shared: bool) -> None:
        """Makes the workers check observations and, if memory is shared, write them there."""
        count = len(self) if is_shared else None
        commands = dict.fromkeys(self._all, _command("use_arrays", self._space, count))
        fd = create_memory(self._space, len(self)) if is_shared else None
        try:
            self._processes.send(commands, fd)
            self._processes.receive()
        finally:
            rows = None if fd is None else map_rows(self._space, len(self), fd)  # closes the descriptor
        self._rows = rows

    def _send_steps(self, actions: Sequence[Any] | np.ndarray, ids: Ids, reset: Resets) -> None:
        chosen = self.indices(ids)
        try:
            count = len(actions)
        except TypeError:
            raise ShapeError(f"actions={actions!r}: must have one for each of {len(chosen)} workers") from None
        if count != len(chosen):
            raise ShapeError(f"{count} actions for {len(chosen)} workers")
        if isinstance(reset, str):
            reset = [self.ended[i] for i in chosen]
        resets = {i for i, is_reset in zip(chosen, reset) if is_reset} if reset is not None else ()
        if needed := [i for i in chosen if not self._begun[i] and i not in resets]:
            raise ResetNeeded(
                f"worker {', '.join(map(str, needed))} must be reset before it can step: "
                "its first reset is to come, or an interrupt met its last step or reset"
            )
        self._send(
            {
                i: _command("reset", None, None) if i in resets else _command("step", action)
                for i, action in zip(chosen, actions)
            }
        )

    def _receive_steps(self) -> StepResult | list[Any]:
        self.check_open()
        if not self.under_way:
            if self._is_interrupted:
                raise ResetNeeded(
                    "an interrupt met the step, and its results were dropped: reset() before the next one"
                )
            raise ShapeError("no turn is under way: its actions must be sent, as step_async() does, before step_wait()")
        replies = self._receive_replies()
        if any(kind == RETURNED for kind, _ in replies):
            # of several agents; a reset among them gives its observation and info
            returned = [content if kind == RETURNED else content[:2] for kind, content in replies]
            self._sent = {}
            return returned
        obs = self._observations([content for _, content in replies])
        rewards, terminated, truncated, infos = zip(*map(_read_turn, replies))
        result = obs, np.array(rewards, np.float64), np.array(terminated, bool), np.array(truncated, bool), list(infos)
        self._sent = {}
        return result

    @_exclusive
    def _request_masks(self) -> None:
        outdated = sorted(self._outdated)
        for i, mask in zip(outdated, self._request(dict.fromkeys(outdated, _command("mask")))):
            self._masks[i] = mask
        self._outdated.clear()

    def _request(self, commands: dict[int, Command]) -> list[Any]:
        """Sends commands that neither step nor reset, and returns their results."""
        self._send(commands)
        results = [content for _, content in self._receive_replies()]
        self._sent = {}
        return results

    def _send(self, commands: dict[int, Command]) -> None:
        self.check_open()
        if self.under_way:
            raise ConfigError("a turn is under way: receive its results before the next command")
        if self._is_interrupted:
            self._guarded(self._processes.receive, self.timeout)
            self._is_interrupted = False
        self._sent = commands
        self._guarded(self._processes.send, commands)

    def _receive_replies(self) -> list[Reply]:
        """The replies to what was sent, in its order. Updates what the pool knows of the environments."""
        replies = self._guarded(self._processes.receive, self.timeout)
        for i in self._sent:
            self._update(i, *replies[i])
        return [replies[i] for i in self._sent]

    def _guarded(self, function: Callable[..., Result], *args: Any) -> Result:
        """Calls a function of the processes, which an error has stopped."""
        try:
            return function(*args)
        except Exception:
            self._sent = {}
            self._rows = None
            raise

    def _update(self, i: int, kind: str, content: Any) -> None:
        if kind == RETURNED:
            return
        if kind == BEGUN:
            _, self.reset_infos[i], self._masks[i] = content
            self.ended[i], self._begun[i] = False, True
        else:
            _, _, terminated, truncated, _, self._masks[i] = content
            self.ended[i] = terminated or truncated
        self._outdated.discard(i)

    def _abandon(self) -> None:
        """Drops the results of a call that an interrupt has met. The next call reads the replies that are to come."""
        self._is_interrupted = self._is_interrupted or bool(self._sent)
        for i, command in self._sent.items():
            if command.name in ("step", "reset"):
                self._begun[i] = False
        self._sent = {}

    def _observations(self, replies: Sequence[Sequence[Any]]) -> Any:
        """The observations of the workers that the call has been sent to: the first entry of each reply, if sent."""
        if self._rows is not None:
            return copy_rows(self._rows, None if list(self._sent) == self._all else list(self._sent))
        observations = [reply[0] for reply in replies]
        if self._space is None:
            return observations
        return concatenate(self._space, observations, create_empty_array(self._space, len(observations), fn=np.empty))


class Aligned:
    """A pool whose environments begin the next episode by themselves, as in Gymnasium's NEXT_STEP: on the turn after an
    end an environment is reset, not stepped. So each call sends each worker one command, and no environment waits for
    the reset of another. `workers` is stepped and reset through this object only.

    On a reset turn the action is ignored, the reward 0.0, terminated and truncated are False, the observation is the
    first of the new episode, and the info, that of the reset, has `reset_turn` True.
    """

    def __init__(self, workers: Workers) -> None:
        self.workers = workers

    def reset(self, ids: Ids = None, seeds: Any = None, options: Any = None) -> tuple[Any, list[dict[str, Any]]]:
        """Begins an episode in these environments, also where a reset is due."""
        return self.workers.reset(ids, seeds, options)

    def step(self, actions: Sequence[Any] | np.ndarray, ids: Ids = None) -> StepResult:
        """Plays a turn of these environments: a step, or the reset that is due."""
        return _of_one_agent(self.workers.step(actions, ids, reset="due"))

    def send(self, actions: Sequence[Any] | np.ndarray, ids: Ids = None) -> None:
        """Starts a turn; the environments play while the caller does something else."""
        self.workers.send(actions, ids, reset="due")

    def receive(self) -> StepResult:
        """Waits for the turn that was sent. Returns what `step` returns."""
        return _of_one_agent(self.workers.receive())

    @property
    def masks(self) -> list[np.ndarray | None]:
        """The action mask of each environment, as `Workers.masks`."""
        return self.workers.masks

    def close(self) -> None:
        """Closes the pool."""
        self.workers.close()

    def __len__(self) -> int:
        return len(self.workers)

    def __enter__(self) -> Aligned:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


def _of_one_agent(result: StepResult | list[Any]) -> StepResult:
    if isinstance(result, list):
        raise ConfigError("Aligned is for one agent an environment: this one's step returns lists")
    return result


def _read_turn(reply: Reply) -> tuple[float, bool, bool, dict[str, Any]]:
    """Reward, terminated, truncated and info of a step, or of a reset in its place."""
    kind, content = reply
    if kind == BEGUN:
        return 0.0, False, False, {**content[1], "reset_turn": True}
    _, reward, terminated, truncated, info, _ = content
    return reward, terminated, truncated, info


def _command(name: str, *arguments: Any) -> Command:
    return Command(name, pickle.dumps((name, arguments), pickle.HIGHEST_PROTOCOL))


def _pack_maker(i: int, fn: Callable[[], Any]) -> bytes:
    packed: bytes
    try:
        packed = cloudpickle.dumps(fn)
    except Exception as e:
        raise ConfigError(f"env_fns[{i}] cannot be sent to another process: {e}") from e
    return packed


def _read_seeds(chosen: Sequence[int], seeds: Any, envs: Sequence[Description]) -> list[int | None]:
    """A seed for each: of an int s worker i has s + i."""
    if seeds is None:
        return [None] * len(chosen)
    from milkrun.core.arguments import check_seed, is_list  # imports numba, which a pool of other worlds does not need

    if not is_list(seeds):
        first = check_seed(seeds)
        seeds = [first + i for i in chosen]
    if len(seeds) != len(chosen):
        raise ShapeError(f"{len(seeds)} seeds for {len(chosen)} workers: a list has one for each that is named")
    checked = [None if seed is None else check_seed(seed) for seed in seeds]
    for i, seed in zip(chosen, checked):
        if seed is not None and not envs[i].takes_seed:
            raise ConfigError(f"worker {i}: its environment takes no seed, neither reset(seed=...) nor seed(...)")
    return checked


def _read_options(chosen: Sequence[int], options: Any, envs: Sequence[Description]) -> list[dict[str, Any] | None]:
    """The options for each: a dict is for all."""
    if options is None or isinstance(options, dict):
        options = [options] * len(chosen)
    if not isinstance(options, (list, tuple)) or any(not isinstance(one, (dict, type(None))) for one in options):
        raise ConfigError(f"options={options!r}: must be a dict for all workers, or a list with one (or None) for each")
    if len(options) != len(chosen):
        raise ShapeError(f"{len(options)} options for {len(chosen)} workers: a list has one for each that is named")
    for i, given in zip(chosen, options):
        if given and not envs[i].takes_options:
            raise ConfigError(f"worker {i}: the reset of its environment takes no options")
    return [given or None for given in options]
