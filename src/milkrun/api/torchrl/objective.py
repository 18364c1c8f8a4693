"""What whole solutions are worth, by the independent tasks, and the nodes at which they may start."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from tensordict import TensorDict, TensorDictBase

from milkrun.api._td import entries
from milkrun.core.errors import BadSolution, ConfigError, ShapeError
from milkrun.core.references import refer

if TYPE_CHECKING:
    from milkrun.api.torchrl.base import RL4COEnvBase as Host
else:
    Host = object

class ObjectiveMixin(Host):
    """For environments with a template world: prices and checks by its `task`, start nodes by its depot."""

    def _get_reward(self, td: TensorDict, actions: torch.Tensor) -> torch.Tensor:
        """Minus the task's cost; a solution that breaks a rule of its problem is worth -inf."""
        task, dataset, plans = self._task(), self.reader.tensors(td), self._plans(td, actions)
        cost, _, _ = task.get_costs(dataset, plans, self._weights(), on_violation="inf", **self._rules())
        return -cost.to(actions.device, torch.float32)

    def _check_solution(self, td: TensorDict, actions: torch.Tensor) -> None:
        task = self._task()
        valid, reasons = task.check(self.reader.tensors(td), self._plans(td, actions), **self._rules())
        if not valid.all():
            row = int((~valid).nonzero()[0])
            raise BadSolution(f"row {row}: {reasons[row]}")

    def _plan_axes(self, td: TensorDictBase, actions: torch.Tensor) -> int:
        """How many axes the solution of a row has: 1, or 2 where it is told by days."""
        by_day = actions.ndim == td.batch_dims + 2 and bool(self.template.task) and self._task().plan_axes == 3
        return 2 if by_day else 1

    def _plans(self, td: TensorDict, actions: torch.Tensor) -> torch.Tensor:
        """Solutions as the task wants them. One of many days may come as the actions of an episode one after another:
        then it is played from `td`, which must be as the reset gave it, to see on which day each action falls."""
        if actions.ndim == self._task().plan_axes:
            return actions
        if (steps := entries(td).get("i")) is None or steps.any():
            raise ShapeError("actions (*batch, T) of many days need the TensorDict of their reset; others come by day, "
                             "(*batch, days, L)")
        rows, width = actions.shape
        plans = torch.zeros((rows, self.template.sizes["T"], max(width, 1)), dtype=torch.int64)
        taken = torch.zeros(plans.shape[:2], dtype=torch.int64)
        row = torch.arange(rows)
        for k, before in enumerate(self._replayed(td, actions)):
            if k == width:
                break
            live = ~before["done"].reshape(-1)
            day, some = before["day"].reshape(-1).to(torch.int64)[live], row[live]
            plans[some, day, taken[some, day]] = actions[:, k].cpu().to(torch.int64)[live]
            taken[some, day] += 1
        return plans.to(actions.device)

    def _replayed(self, td: TensorDict, actions: torch.Tensor) -> Iterator[dict[str, torch.Tensor]]:
        """The fields at the root before each of these actions (B, T), and at last after all of them."""
        root, hidden = (dict(part) for part in self._fields(self._current(td).cpu()))
        for column in actions.cpu().unbind(1):
            yield root
            fresh = self._stepper.step(root, hidden, td.batch_size, column)
            root, hidden = {**root, **fresh[0]}, {**hidden, **fresh[1]}
        yield root

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
        if not hasattr(self.template, "depot_apart") or "current_node" not in self.template.fields:
            raise ConfigError(f"{type(self.template).__name__} has no start nodes")
        return 0 if getattr(self.template.config, "start", "depot") == "free" else 1

    def _task(self) -> Any:
        if not self.template.task:
            raise ConfigError(f"{type(self.template).__name__} has no task that prices solutions")
        return refer(self.template, "task")

    def _weights(self) -> dict[str, float] | None:
        """What this world weighs the amounts of its task with."""
        return self.template.task_weights(self.template.config)

    def _rules(self) -> dict[str, Any]:
        """The rules between which the task lets its caller choose, as the configuration has them."""
        return self.template.task_options(self.template.config)
