"""`VRPDummyVecEnv`, `VRPSubprocVecEnv`: several `VRPEnv`s, with the arrays of the MAPPO wrappers in `env_wrappers.py`.

An environment whose agents are all done begins its next episode in the same step. Observations and the state in `infos`
are then of the new episode, rewards and dones of the old one; its last infos are kept as `terminal_info`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from milkrun.api._binding import Waiting
from milkrun.api.foreign import makers
from milkrun.compat.vrp.actions import read_actions
from milkrun.compat.vrp.environment import share_world
from milkrun.compat.vrp.lists import Info, Lists
from milkrun.core.errors import ConfigError, ResetNeeded, ShapeError

if TYPE_CHECKING:
    from milkrun.delivery.truckdrone.world import TruckDrone

EnvFns = Sequence[Callable[[], Any]]
StepResult = tuple[np.ndarray, np.ndarray, np.ndarray, list[list[Info]]]
SPACES = ("observation_space", "share_observation_space", "action_space")


class _VecEnv(ABC):
    """The common interface: `reset() -> obs (n, A, O)`, with `reset_infos`; `step(actions) -> obs, rewards (n, A, 1),
    dones (n, A), infos`. Actions are a list of what each environment takes, or an array (n, A) or (n, A, 1). `n`,
    `n_agents` and `num_agents` are A."""

    num_envs: int
    n: int
    n_agents: int
    num_agents: int
    reset_infos: list[list[Info]]
    """`reset_infos[i][a]`: the info of agent a in environment i after the last `reset()`."""
    observation_space: list[Any]
    share_observation_space: list[Any]
    action_space: list[Any]

    def step(self, actions: Any) -> StepResult:
        """Steps every environment."""
        self._check_count(actions)
        return self._play(actions)

    def step_async(self, actions: Any) -> None:
        """Stores the actions of a step; in processes, starts it."""
        self._check_count(actions)
        self._begin(actions)

    def _check_count(self, actions: Any) -> None:
        try:
            count = len(actions)
        except TypeError:
            raise ShapeError(f"actions must be a list with one entry for each environment, not {actions!r}") from None
        if count != self.num_envs:
            raise ShapeError(f"actions of {count} environments, not of {self.num_envs}")

    @abstractmethod
    def _begin(self, actions: Any) -> None: ...

    @abstractmethod
    def _play(self, actions: Any) -> StepResult: ...

    @abstractmethod
    def step_wait(self) -> StepResult:
        """Returns the result of the step that was started."""

    def _set_spaces(self, spaces: list[dict[str, Any]]) -> None:
        """Sets the spaces, which must be the same for every environment."""
        for i, own in enumerate(spaces):
            if own != spaces[0]:
                raise ConfigError(f"env_fns[{i}] returned an environment of other spaces than env_fns[0]")
        for name, space in spaces[0].items():
            setattr(self, name, space)
        self.n = self.n_agents = self.num_agents = len(self.action_space)


class VRPDummyVecEnv(_VecEnv):
    """Environments in this process. Plain `VRPEnv`s of one configuration become the rows of one world, which is stepped
    by a single native call; others are stepped one after another. The results are the same."""

    def __init__(self, env_fns: EnvFns) -> None:
        self.envs = [fn() for fn in makers(env_fns)]
        self.num_envs = len(self.envs)
        for i, env in enumerate(self.envs):
            if any(env is other for other in self.envs[:i]):
                raise ConfigError(f"env_fns[{i}] returned an environment that another one returned before")
        self._set_spaces([{name: getattr(env, name) for name in SPACES} for env in self.envs])
        self._batch = share_world(self.envs)
        self._waiting = Waiting()
        self._is_incomplete = False
        self._restarting = [Restarting(env) for env in self.envs]
        if self._batch is not None:
            self._lists = Lists(self._batch, slice(None))
            self._names = [name for group in self._batch.groups.values() for name in group]
            self._joint = np.zeros((self.num_envs, len(self._names)), np.int64)

    def reset(self) -> np.ndarray:
        """Begins an episode in every environment: obs (n, A, O)."""
        self._waiting.drop()
        self._is_incomplete = True
        started = [env.reset() for env in self._restarting]
        self._is_incomplete = False
        self.reset_infos = [info["agents"] for _, info in started]
        return np.stack([obs for obs, _ in started])

    def render(self, mode: str = "human") -> np.ndarray | None:
        """Prints the lines of every environment, or with "rgb_array" returns the pictures (n, H, W, 3)."""
        return _pictures([env.render(mode) for env in self.envs], mode)

    def close(self) -> None:
        for env in self.envs:
            env.close()

    def _begin(self, actions: Any) -> None:
        self._waiting.put(actions)

    def step_wait(self) -> StepResult:
        return self._play(self._waiting.take())

    def _play(self, actions: Any) -> StepResult:
        self._waiting.refuse()
        if self._is_incomplete:
            raise ResetNeeded("the last call was interrupted, and not all environments have moved: reset them")
        if self._batch is None:
            return self._step_each(actions)
        joint = self._read(actions)
        try:
            return self._step_batch(self._batch, joint)
        except Exception:  # the world has refused, and no row has moved
            raise
        except BaseException:
            self._is_incomplete = True
            raise

    def _step_batch(self, batch: TruckDrone, joint: np.ndarray) -> StepResult:
        """Steps environments that share a world."""
        agents = len(self._names)
        batch.step(joint)
        rewards = batch.reward_exact.repeat(agents).reshape(-1, agents, 1)
        dones = batch.done.repeat(agents).reshape(-1, agents)
        infos = self._lists.infos()
        for b in np.flatnonzero(batch.done):
            self.envs[b].reset()
            infos[b] = after_end(infos[b], self.envs[b].moments())
        return self._lists.observations(), rewards, dones, infos

    def _step_each(self, actions: Any) -> StepResult:
        """Steps environments that share nothing, one after another."""
        self._is_incomplete = True
        turns = [env.step(own) for env, own in zip(self._restarting, actions)]
        self._is_incomplete = False
        return _stacked(turns)

    def _read(self, actions: Any) -> np.ndarray:
        """Reads the joint actions of all rows."""
        team = self._joint.shape
        if isinstance(actions, np.ndarray) and actions.dtype.kind in "iu" and actions.shape in (team, (*team, 1)):
            return actions.reshape(team)
        choices = self.envs[0].choices
        for b, own in enumerate(actions):
            read_actions(own, choices, self._names, self._joint[b])
        return self._joint


class VRPSubprocVecEnv(_VecEnv):
    """Environments in processes of their own (`milkrun.api.workers`), for environments that are slow by themselves."""

    def __init__(self, env_fns: EnvFns, *, start_method: str | None = None, timeout: float | None = None) -> None:
        from milkrun.api.workers import Workers

        made = [partial(_make_restarting, fn) for fn in makers(env_fns)]
        self.num_envs = len(made)
        self._workers = Workers(made, start_method, False, timeout)
        try:
            columns = [self._workers.call(name) for name in SPACES]
            self._set_spaces([dict(zip(SPACES, own)) for own in zip(*columns)])
        except BaseException:
            self.close()
            raise

    def reset(self) -> np.ndarray:
        """Begins an episode in every environment: obs (n, A, O)."""
        obs, infos = self._workers.reset()
        self.reset_infos = [info["agents"] for info in infos]
        return np.stack(obs)

    def render(self, mode: str = "human") -> np.ndarray | None:
        """Prints the lines of every environment, or with "rgb_array" returns the pictures (n, H, W, 3)."""
        return _pictures(self._workers.call("render", mode), mode)

    def close(self) -> None:
        self._workers.close()

    def _begin(self, actions: Any) -> None:
        self._workers.send(actions)

    def _play(self, actions: Any) -> StepResult:
        return _stacked(self._workers.step(actions))

    def step_wait(self) -> StepResult:
        return _stacked(self._workers.receive())


class Restarting:
    """Wraps an environment: it begins its next episode in the step that ends one, and returns arrays."""

    def __init__(self, env: Any) -> None:
        self.env = env

    def reset(self) -> tuple[np.ndarray, dict[str, list[Info]]]:
        """Returns the observations (A, O), and under "agents" their infos."""
        return np.stack(self.env.reset()), {"agents": self.env.moments()}

    def step(self, actions: Any) -> StepResult:
        """Returns observations (A, O), rewards (A, 1), dones (A,), infos."""
        obs, rewards, dones, infos = self.env.step(actions)
        if all(dones):
            obs = self.env.reset()
            infos = after_end(infos, self.env.moments())
        return np.stack(obs), np.array(rewards), np.array(dones), infos

    def render(self, mode: str) -> Any:
        return self.env.render(mode)

    def close(self) -> None:
        self.env.close()

    def __getattr__(self, name: str) -> Any:
        if name in SPACES:
            return getattr(self.env, name)
        raise AttributeError(f"Restarting has no attribute {name!r}")


def after_end(last: list[Info], first: list[Info]) -> list[Info]:
    """The infos of a step that ended an episode: the state is the new episode's, the rest the step's."""
    return [{**old, **new, "terminal_info": old} for old, new in zip(last, first)]


def _make_restarting(env_fn: Callable[[], Any]) -> Restarting:
    return Restarting(env_fn())


def _stacked(turns: Sequence[Any]) -> StepResult:
    obs, rewards, dones, infos = zip(*turns)
    return np.stack(obs), np.stack(rewards), np.stack(dones), list(infos)


def _pictures(made: list[Any], mode: str) -> np.ndarray | None:
    return np.stack(made) if mode == "rgb_array" else None
