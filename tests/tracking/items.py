"""Environments for the tests of `Envs`: scripted ones of each kind, and links that log their calls."""

import threading

import numpy as np

from tests.api.worker_envs import Classic, Script

CUT = {"TimeLimit.truncated": True}


class Link:
    """A script behind a link. `log`, shared by all links of a test, has every call in order."""

    def __init__(self, name, log, fails=None):
        self.name, self.log, self.fails = name, log, fails
        self.script, self.owed = Script(), None

    def send(self, action, **seed):
        self.log.append(("send", self.name, action, *seed.values()))
        if self.fails == "send" and action is not None:
            raise OSError("the cable is cut")
        assert self.owed is None, "two sends without a receive"
        self.owed = self.script.reset(**seed) if action is None else self.script.step(action)

    def receive(self):
        self.log.append(("receive", self.name))
        if self.fails == "interrupt":
            self.fails = None
            raise KeyboardInterrupt
        owed, self.owed = self.owed, None
        if self.fails == "receive" and len(owed) == 5:
            raise OSError("no answer")
        return owed


class Supplements(Script):
    """The classic kind whose info is a list, also at its reset, and whose done is a number."""

    def reset(self):
        return super().reset()[0], [0]

    def step(self, action):
        obs, reward, terminated, *_ = super().step(action)
        return obs, reward, float(terminated), [self.t]


class Breaks(Script):
    """Raises at action 2."""

    def step(self, action):
        if action == 2:
            raise ValueError("the propeller is bent")
        return super().step(action)


class Meets(Script):
    """Steps only together with all parties of the barrier; records its thread."""

    def __init__(self, barrier):
        super().__init__()
        self.barrier, self.seen = barrier, set()

    def step(self, action):
        self.barrier.wait(timeout=10)
        self.seen.add(threading.get_ident())
        return super().step(action)


class Pair(Script):
    """Returns a dict with a tuple as state."""

    def _look(self):
        return {"at": (np.int64(self.t), [float(self.episode), 0.5]), "word": "on" if self.t else "off"}


class Costs(Script):
    """The script with scaled rewards."""

    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def step(self, action):
        obs, reward, *rest = super().step(action)
        return obs, self.factor * reward, *rest


def scripts(kind, log=None):
    """Two environments of a kind with rewards 1, 2, 5 and an end."""
    if kind == "links":
        return [Link(i, [] if log is None else log) for i in range(2)]
    return {
        "gymnasium": lambda: [Script(), Script("truncated")],
        "classic": lambda: [Classic({}), Classic(CUT)],
        "mixed": lambda: [Script(), Classic(CUT)],
        "supplements": lambda: [Supplements(), Supplements()],
    }[kind]()


def threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("Envs-")]
