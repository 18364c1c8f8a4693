"""What whole solutions are worth, by the independent tasks, and the nodes at which they may start."""

from __future__ import annotations

import importlib
from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase

from milkrun.api.torchrl.reader import InstanceReader
from milkrun.core.errors import BadSolution, ConfigError, ShapeError
from milkrun.core.world import World


class ObjectiveMixin:
    """For environments with a template world: prices and checks by its `task`, start nodes by its depot."""

    template: World
    reader: InstanceReader

    def _get_reward(self, td: TensorDict, actions: torch.Tensor) -> torch.Tensor:
        """Minus the task's cost; a solution that breaks a rule of its problem is worth -inf."""
        cost, _, _ = self._task().get_costs(self.reader.tensors(td), actions, on_violation="inf", **self._metric())
        return -cost.to(actions.device, torch.float32)

    def _check_solution(self, td: TensorDict, actions: torch.Tensor) -> None:
        valid, reasons = self._task().check(self.reader.tensors(td), actions, **self._metric())
        if not valid.all():
            row = int((~valid).nonzero()[0])
            raise BadSolution(f"row {row}: {reasons[row]}")

    def get_num_starts(self, td: TensorDictBase) -> int:
        """How many nodes a solution may start with; the depot is none."""
        first = self._first_start()
        return self.template.sizes["N"] - first

    def select_start_nodes(self, td: TensorDictBase, num_starts: int) -> torch.Tensor:
        """The first action of every copy, start-major: that of start s of row b stands at s * B + b."""
        first, nodes = self._first_start(), self.reader.find(td, "n_nodes")
        if nodes is None:
            raise ShapeError("the TensorDict lacks 'n_nodes'")
        nodes = nodes.reshape(-1).to(torch.int64)
        starts = torch.arange(num_starts, device=nodes.device)[:, None]
        return (first + starts % (nodes - first)).reshape(-1)

    def _first_start(self) -> int:
        if not hasattr(self.template, "depot_apart"):
            raise ConfigError(f"{type(self.template).__name__} has no start nodes")
        return 0 if getattr(self.template.config, "start", "depot") == "free" else 1

    def _task(self) -> Any:
        if not self.template.task:
            raise ConfigError(f"{type(self.template).__name__} has no task that prices solutions")
        module, _, name = self.template.task.partition(":")
        return getattr(importlib.import_module(module), name)

    def _metric(self) -> dict[str, str]:
        return {"metric": self.template.config.metric} if hasattr(self.template.config, "metric") else {}
