"""What both vector environments are to tianshou: a `BaseVectorEnv` that has none of its workers."""

from __future__ import annotations

from typing import Any

import numpy as np
from tianshou.env import BaseVectorEnv

Ids = int | list[int] | np.ndarray | None
StepResult = tuple[Any, np.ndarray, np.ndarray, np.ndarray, np.ndarray]


class Venv(BaseVectorEnv):
    """The attributes that collectors read; always synchronous."""

    # The base intercepts every attribute in Python, to send five names to the workers; here these are properties.
    __getattribute__ = object.__getattribute__

    def __init__(self, count: int) -> None:
        self.env_num = self.wait_num = count
        self.workers = []
        self.waiting_conn = []
        self.waiting_id = []
        self.ready_id = list(range(count))
        self.timeout = None
        self.is_async = False
        self.is_closed = False

    @property
    def action_space(self) -> list[Any]:
        """The action space of each environment."""
        return self.get_env_attr("action_space")

    @property
    def observation_space(self) -> list[Any]:
        """The observation space of each environment, without the mask."""
        return self.get_env_attr("observation_space")

    @property
    def metadata(self) -> list[Any]:
        """The metadata of each environment."""
        return self.get_env_attr("metadata")

    @property
    def spec(self) -> list[Any]:
        """The registration of each environment."""
        return self.get_env_attr("spec")


def in_array(infos: list[dict[str, Any]]) -> np.ndarray:
    """The dicts in an array of objects, as tianshou requires."""
    return np.fromiter(infos, object, len(infos))
