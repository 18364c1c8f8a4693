"""Steps and resets on one beat (Gymnasium's NEXT_STEP): on the turn after an end an environment is reset, not stepped.

So each call costs each worker exactly one command, however many episodes end in it, and no environment waits for
another one's reset.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any

import numpy as np

from milkrun.api.workers.pool import Ids, Turn, Workers
from milkrun.core.errors import ConfigError


class Aligned:
    """A pool whose environments begin the next episode by themselves. `workers` is stepped and reset through it only.

    On a reset turn the action is ignored, the reward 0.0, terminated and truncated are False, the observation is the
    new episode's first, and the info, that of the reset, has `reset_turn` True.
    """

    def __init__(self, workers: Workers) -> None:
        self.workers = workers

    def reset(self, ids: Ids = None, seeds: Any = None, options: Any = None) -> tuple[Any, list[dict[str, Any]]]:
        """Begins an episode in these environments, whatever was due in them."""
        return self.workers.reset(ids, seeds, options)

    def step(self, actions: Sequence[Any] | np.ndarray, ids: Ids = None) -> Turn:
        """One turn of these environments: a step, or the reset that is due."""
        return _of_one_agent(self.workers.step(actions, ids, reset="due"))

    def send(self, actions: Sequence[Any] | np.ndarray, ids: Ids = None) -> None:
        """Lets a turn begin; the environments play while the caller does something else."""
        self.workers.send(actions, ids, reset="due")

    def receive(self) -> Turn:
        """What the turn that was sent came to; as `step`."""
        return _of_one_agent(self.workers.receive())

    @property
    def masks(self) -> list[np.ndarray | None]:
        """What each environment allows now, as `Workers.masks`."""
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


def _of_one_agent(result: Turn | list[Any]) -> Turn:
    if isinstance(result, list):
        raise ConfigError("Aligned is for one agent an environment: this one's step returns lists")
    return result
