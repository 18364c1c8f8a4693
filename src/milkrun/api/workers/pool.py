"""`Workers`: environments in processes of their own, one command a worker and call.

What comes back does not depend on how it travelled: observations of spaces that are arrays are stacked, through shared
memory or not; all else comes as a list with one entry a worker.
"""

from __future__ import annotations

import pickle
import weakref
from collections.abc import Callable, Sequence
from numbers import Real
from types import TracebackType
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import numpy as np

from milkrun.api.workers.crew import Command, Crew
from milkrun.api.workers.memory import Slots, is_arrays, map_memory, open_memory, size_of
from milkrun.api.workers.worker import AsItCame, Failure, Hello, Start
from milkrun.core.errors import Closed, ConfigError, ResetNeeded, ShapeError

Ids = int | Sequence[int] | np.ndarray | None
Turn = tuple[Any, np.ndarray, np.ndarray, np.ndarray, list[dict[str, Any]]]


class Workers:
    """A process for each environment: Gymnasium's, classic ones with four results, ones of several agents.

    env_fns: functions of no arguments that make an environment each; they travel by cloudpickle.
    start_method: "forkserver" (None, where there is one), "spawn" or "fork".
    shared_memory: False sends observations through the pipes.
    timeout: seconds a call may take; None: as long as it takes. Making the environments is not limited.

    `ids` names the workers of a call, all by default; results stand in its order and are never changed by a later call.
    A worker that dies or raises is a `WorkerError`, one that is late a `WorkerTimeout`; both close the pool.
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
        packed = [_pack(i, fn) for i, fn in enumerate(env_fns)]
        if not packed:
            raise ConfigError("env_fns is empty: a pool has at least one worker")
        self.timeout = timeout
        self.masks: list[np.ndarray | None] = [None] * len(packed)
        """What each environment allowed when it was last heard: bool, never all False; None if it has no masks."""
        self._all = list(range(len(packed)))
        self._begun = [False] * len(packed)
        self._out: dict[int, Command] | None = None  # a turn that was sent and not yet received
        self._crew = Crew(packed, start_method)
        weakref.finalize(self, self._crew.end, "was forgotten")
        self._hello: list[Hello] = self._crew.greet()
        self._slots, self._shared = self._furnish(bool(shared_memory))

    @property
    def observation_spaces(self) -> list[Any]:
        """The observation space of each environment, as it says; None if it does not."""
        return [hello.observation_space for hello in self._hello]

    @property
    def action_spaces(self) -> list[Any]:
        """The action space of each environment, as it says; None if it does not."""
        return [hello.action_space for hello in self._hello]

    @property
    def under_way(self) -> bool:
        """A turn has been sent and not yet received."""
        return self._out is not None

    @property
    def pids(self) -> list[int]:
        """The process id of each worker."""
        return list(self._crew.pids)

    def reset(self, ids: Ids = None, seeds: Any = None, options: Any = None) -> tuple[Any, list[dict[str, Any]]]:
        """Begins an episode in these environments: observations and infos.

        seeds: an int s gives worker i the seed s + i; a list has one (or None) for each worker named.
        options: a dict for all, or a list with one (or None) for each worker named.
        """
        chosen = self.named(ids)
        if self.under_way:
            self.receive()
        commands = self._resets(chosen, self._seeds(chosen, seeds), self._options(chosen, options))
        answers: list[Start] = self._ask(commands)
        return self._observations(commands, answers), [answer.info for answer in answers]

    def step(
        self, actions: Sequence[Any] | np.ndarray, ids: Ids = None, *, reset: Sequence[bool] | np.ndarray | None = None
    ) -> Turn | list[Any]:
        """One turn of these environments: observations, rewards, terminated, truncated, infos.

        reset: True for each worker named that shall be reset instead; its reward is 0.0, both its flags are False.
        Environments of several agents, whose `step` returns lists: a list of what each returned, unchanged.
        """
        self.send(actions, ids, reset=reset)
        return self.receive()

    def send(
        self, actions: Sequence[Any] | np.ndarray, ids: Ids = None, *, reset: Sequence[bool] | np.ndarray | None = None
    ) -> None:
        """Lets the turn of `step` begin; the environments play while the caller does something else."""
        chosen = self.named(ids)
        if len(actions) != len(chosen):
            raise ShapeError(f"{len(actions)} actions for {len(chosen)} workers")
        commands = _steps(chosen, actions)
        if reset is not None:
            due = [i for i, is_due in zip(chosen, reset) if is_due]
            commands |= self._resets(due, [None] * len(due), [None] * len(due))
        if early := [i for i, command in commands.items() if command.name == "step" and not self._begun[i]]:
            raise ResetNeeded(f"step before the first reset of worker {', '.join(map(str, early))}")
        self._tell(commands)
        self._out = commands

    def receive(self) -> Turn | list[Any]:
        """What the turn that was sent came to; as `step`."""
        self._open()
        commands, self._out = self._out, None
        if commands is None:
            raise ShapeError("no turn is under way: its actions must be sent, as step_async() does, before step_wait()")
        answers = self._hear(commands)
        if any(isinstance(answer, AsItCame) for answer in answers):
            return [answer.result if isinstance(answer, AsItCame) else tuple(answer)[:2] for answer in answers]
        obs = self._observations(commands, answers)
        ends = [(0.0, False, False) if isinstance(answer, Start) else answer[1:4] for answer in answers]
        rewards, terminated, truncated = zip(*ends)
        infos = [answer.info for answer in answers]
        return obs, np.array(rewards, np.float64), np.array(terminated, bool), np.array(truncated, bool), infos

    def call(self, name: str | Callable[..., Any], *args: Any, ids: Ids = None, **kwargs: Any) -> list[Any]:
        """Of each environment named, what its method returns or its attribute is, also one behind wrappers.

        name: instead, a function, which is called with the environment and the arguments.
        """
        verb, told = ("call", f"call {name}") if isinstance(name, str) else ("apply", f"call {_name_of(name)}")
        command = Command(told, cloudpickle.dumps((verb, (name, args, kwargs))))
        return [answer.result for answer in self._ask(dict.fromkeys(self.named(ids), command))]

    def close(self) -> None:
        """Closes the environments and ends their processes; a second call does nothing."""
        self._crew.end("is closed")
        self._slots = self._out = None

    def named(self, ids: Ids) -> list[int]:
        """The workers that `ids` names."""
        if ids is None:
            return self._all
        array = np.asarray(ids)
        if array.dtype == np.bool_ or not np.issubdtype(array.dtype, np.integer) or array.ndim > 1 or not array.size:
            raise ShapeError(f"ids={ids!r}: must be an index of a worker, a list of such, or None")
        chosen: list[int] = array.reshape(-1).tolist()
        if len(set(chosen)) != len(chosen) or min(chosen) < 0 or max(chosen) >= len(self):
            raise ShapeError(f"ids={chosen}: must be different indices in 0..{len(self) - 1}")
        return chosen

    def __len__(self) -> int:
        return len(self._all)

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def _furnish(self, shared: bool) -> tuple[Slots | None, bool]:
        """Where observations lie, and whether the workers write there themselves."""
        space, *others = self.observation_spaces
        if not is_arrays(space) or any(other != space for other in others):
            return None, False
        if not shared:
            return Slots(space, len(self)), False
        fd = open_memory(size_of(space, len(self)))
        attach = Command("attach", pickle.dumps(("attach", (space, len(self)))), fd)
        try:
            self._crew.ask(dict.fromkeys(self._all, attach), None)
        finally:
            memory = map_memory(fd)
        return Slots(space, len(self), memory), True

    def _open(self) -> None:
        if self._crew.ended:
            raise Closed(f"this pool of {len(self)} workers {self._crew.ended}")

    def _ask(self, commands: dict[int, Command]) -> list[Any]:
        self._tell(commands)
        return self._hear(commands)

    def _tell(self, commands: dict[int, Command]) -> None:
        self._open()
        if self.under_way:
            raise ConfigError("a turn is under way: its results must be taken before anything else is asked")
        try:
            self._crew.send(commands)
        except BaseException:
            self.close()
            raise

    def _hear(self, commands: dict[int, Command]) -> list[Any]:
        try:
            return self._crew.hear(commands, self.timeout)
        except BaseException:
            self.close()
            raise

    def _resets(self, chosen: list[int], seeds: list[Any], options: list[Any]) -> dict[int, Command]:
        return {i: _command("reset", seed, option) for i, seed, option in zip(chosen, seeds, options)}

    def _observations(self, commands: dict[int, Command], answers: list[Any]) -> Any:
        """Takes in what came beside the observations, and returns those."""
        for i, answer in zip(commands, answers):
            self.masks[i] = answer.mask
            self._begun[i] = True
        if self._slots is None:
            return [answer.obs for answer in answers]
        if not self._shared:
            for i, answer in zip(commands, answers):
                try:
                    self._slots.write(i, answer.obs)
                except ShapeError as e:
                    error = self._crew.failure(i, commands[i].name, Failure(f"ShapeError: {e}", ""))
                    self._crew.fail(error)
                    raise error from e
        return self._slots.read(None if list(commands) == self._all else list(commands))

    def _seeds(self, chosen: list[int], seeds: Any) -> list[int | None]:
        if seeds is None:
            return [None] * len(chosen)
        from milkrun.core.arguments import check_seed  # brings numba, which a pool of other worlds can do without

        if np.ndim(seeds) == 0:
            first = check_seed(seeds)
            seeds = [first + i for i in chosen]
        if len(seeds) != len(chosen):
            raise ShapeError(f"{len(seeds)} seeds for {len(chosen)} workers: a list has one for each that is named")
        checked = [None if seed is None else check_seed(seed) for seed in seeds]
        for i, seed in zip(chosen, checked):
            if seed is not None and not self._hello[i].takes_seed:
                raise ConfigError(f"worker {i}: its environment takes no seed, neither reset(seed=...) nor seed(...)")
        return checked

    def _options(self, chosen: list[int], options: Any) -> list[dict[str, Any] | None]:
        if options is None or isinstance(options, dict):
            options = [options] * len(chosen)
        if len(options) != len(chosen):
            raise ShapeError(f"{len(options)} options for {len(chosen)} workers: a list has one for each that is named")
        for i, given in zip(chosen, options):
            if given and not self._hello[i].takes_options:
                raise ConfigError(f"worker {i}: the reset of its environment takes no options")
        return [given or None for given in options]


def _steps(chosen: list[int], actions: Sequence[Any] | np.ndarray) -> dict[int, Command]:
    """A step for each. Rows of a numeric array go as bytes: a lone numpy number pickles seven times as slowly."""
    if not isinstance(actions, np.ndarray) or actions.dtype.kind not in "biuf":
        return {i: _command("step", action) for i, action in zip(chosen, actions)}
    dtype, shape = actions.dtype.str, actions.shape[1:]
    rows = (row.tobytes() for row in actions)
    packed = (pickle.dumps(("step_array", (dtype, shape, row)), pickle.HIGHEST_PROTOCOL) for row in rows)
    return {i: Command("step", one) for i, one in zip(chosen, packed)}


def _command(name: str, *arguments: Any) -> Command:
    return Command(name, pickle.dumps((name, arguments), pickle.HIGHEST_PROTOCOL))


def _pack(i: int, fn: Any) -> bytes:
    if not callable(fn):
        raise ConfigError(f"env_fns[{i}] is {type(fn).__name__}: must be a function of no arguments")
    try:
        return cloudpickle.dumps(fn)
    except Exception as e:
        raise ConfigError(f"env_fns[{i}] cannot be sent to another process: {e}") from e


def _name_of(fn: Callable[..., Any]) -> str:
    return getattr(fn, "__name__", type(fn).__name__)
