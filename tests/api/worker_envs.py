"""Small scripted environments for the pool's tests, at module level so that they reach other processes by name."""

import os
import signal
import threading
import time
from functools import partial

import gymnasium
import numpy as np
from gymnasium import spaces


class Script(gymnasium.Env):
    """Rewards 1, 2, 5 and the end; the observation is [episode, t]. Keeps a log of its calls."""

    observation_space = spaces.Box(-1e9, 1e9, (2,), np.float32)
    action_space = spaces.Discrete(3)

    def __init__(self, end="terminated"):
        self.end, self.episode, self.t, self.log = end, 0, 0, []

    def reset(self, *, seed=None, options=None):
        self.log.append(("reset", seed, options))
        self.episode, self.t = self.episode + 1, 0
        return self._look(), {"episode": self.episode}

    def step(self, action):
        self.log.append(("step", action))
        self.t += 1
        ends = [self.t == 3 and self.end == kind for kind in ("terminated", "truncated")]
        return self._look(), (1, 2, 5)[self.t - 1], *ends, {"t": self.t}

    def add(self, a, b=0):
        return a + b + self.episode

    def _look(self):
        return np.array([self.episode, self.t], np.float32)


class Classic:
    """The same script with four results, and a reset that returns the observation alone."""

    observation_space = spaces.Box(-1e9, 1e9, (2,), np.float32)
    action_space = spaces.Discrete(3)

    def __init__(self, info):
        self.info, self.script, self.seeds = info, Script(), []

    def seed(self, seed):
        self.seeds.append(seed)

    def reset(self):
        return self.script.reset()[0]

    def step(self, action):
        obs, reward, terminated, truncated, _ = self.script.step(action)
        done = terminated or truncated
        return obs, reward, done, dict(self.info) if done else {}


class Unseeded:
    """A classic environment that takes no seed and has no spaces."""

    def reset(self):
        return "here"

    def step(self, action):
        return f"after {action}", 1.0, False, {}


class Team:
    """Two agents in lists, as MAPPO's environments have them."""

    observation_space = [spaces.Box(0, 9, (1,)), spaces.Box(0, 9, (1,))]
    action_space = [spaces.Discrete(2), spaces.Discrete(2)]

    def reset(self):
        return [np.array([0.0]), np.array([1.0])]

    def step(self, actions):
        obs = [np.array([2.0]), np.array([3.0])]
        return obs, [[1.0], [-1.0]], [False, True], [{"a": action} for action in actions]


class Rooms(gymnasium.Env):
    """An observation of every kind that lies in arrays; its values count the steps."""

    observation_space = spaces.Dict(
        {
            "picture": spaces.Box(0, 255, (2, 3), np.uint8),
            "number": spaces.Discrete(100),
            "pair": spaces.Tuple((spaces.MultiDiscrete([5, 6]), spaces.MultiBinary(3))),
        }
    )
    action_space = spaces.Discrete(4)

    def __init__(self, rank):
        self.rank, self.t = rank, 0

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return self._look(), {}

    def step(self, action):
        self.t += 1
        return self._look(), 0.0, False, False, {}

    def _look(self):
        k = 10 * self.rank + self.t
        return {
            "picture": np.full((2, 3), k, np.uint8),
            "number": np.int64(k),
            "pair": (np.array([self.t, self.rank]), np.array([0, 1, self.t % 2], np.int8)),
        }


class Words(gymnasium.Env):
    """Observations that are no arrays."""

    observation_space = spaces.Text(9)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return "start", {}

    def step(self, action):
        return f"did {action}", 0.5, False, False, {}


class Masked(Script):
    """Allows nothing at its end; `by` says where the mask is found."""

    def __init__(self, by):
        super().__init__()
        self.by = by
        if by == "method":
            self.action_masks = self._mask

    def reset(self, *, seed=None, options=None):
        obs, info = super().reset(seed=seed, options=options)
        return obs, self._with_mask(info)

    def step(self, action):
        *most, info = super().step(action)
        return *most, self._with_mask(info)

    def _with_mask(self, info):
        return {**info, "action_mask": self._mask().astype(np.int8)} if self.by == "info" else info

    def _mask(self):
        return np.array([False, self.t < 3, self.t < 1])


class WrongShape(Script):
    """Shows three numbers where its space has two."""

    def step(self, action):
        return np.zeros(3, np.float32), 0.0, False, False, {}


NAP = 60  # seconds of a busy step
ORPHAN = 20  # seconds of a grandchild


class Trouble(Script):
    """Does what the action says: 0 steps, else it fails in that way."""

    action_space = spaces.Discrete(99)

    def step(self, action):
        if action == 7:
            os._exit(7)
        if action == 8:
            raise ValueError("the drum is full")
        if action == 9:
            time.sleep(NAP)
        if action == 10:
            os.kill(os.getpid(), signal.SIGKILL)
        if action == 11:
            return self._look(), 0.0, False, False, {"lock": threading.Lock()}
        if action == 12 and os.fork():
            os._exit(12)
        elif action == 12:
            time.sleep(ORPHAN)
            os._exit(0)
        return super().step(action)


class Interrupter(Script):
    """On action 1 all processes of its group get Ctrl-C, as from a terminal; on action 2 its parent, and it sleeps."""

    def step(self, action):
        if action == 1:
            os.killpg(os.getpgrp(), signal.SIGINT)
        if action == 2:
            os.kill(os.getppid(), signal.SIGINT)
            time.sleep(60)
        return super().step(action)


def unmakeable():
    raise RuntimeError("no simulator here")


class Counted(Script):
    """Writes a line to a file when made and when closed."""

    def __init__(self, path):
        super().__init__()
        self.path = path
        self._write("made")

    def close(self):
        self._write("closed")

    def _write(self, word):
        with open(self.path, "a") as file:
            file.write(f"{word} {os.getpid()}\n")


def tsp():
    """A world of this library, compiled or read from its cache in the worker itself."""
    import milkrun  # noqa: F401 (registers the id)

    return gymnasium.make("milkrun/TSP-v0", num_loc=5)


def cart_pole():
    return gymnasium.make("CartPole-v1")


def pendulum():
    return gymnasium.make("Pendulum-v1")


def sockets(env=None):
    """How many sockets this process holds open."""
    with os.scandir("/proc/self/fd") as entries:
        return sum(os.readlink(entry.path).startswith("socket") for entry in entries)


def rooms(count):
    return [partial(Rooms, rank) for rank in range(count)]
