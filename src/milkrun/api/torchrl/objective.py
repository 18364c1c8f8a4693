"""The value of whole solutions, by the world's independent task, and the nodes at which they may start."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase

from milkrun.api.torchrl.functional import Rows, Stepper
from milkrun.api.torchrl.reader import InstanceReader
from milkrun.core.errors import BadSolution, ConfigError, ShapeError
from milkrun.core.references import refer


class Objective:
    """Computes and validates solutions of one world; TensorDicts have one batch dimension."""

    def __init__(self, stepper: Stepper, reader: InstanceReader) -> None:
        self._stepper = stepper
        self._reader = reader
        self._world = stepper.world

    @property
    def task(self) -> Any:
        """The independent checker, which shares no code with the kernels."""
        if not self._world.task:
            raise ConfigError(f"{type(self._world).__name__} has no task that prices solutions")
        return refer(self._world, "task")

    def costs(self, td: TensorDict, plans: torch.Tensor, weights: Any = None, **keywords: Any) -> torch.Tensor:
        """The task's cost of plans, (B,), by the rules of this configuration."""
        options = {**self._world.task_options(self._world.config), **keywords}
        cost: torch.Tensor = self.task.get_costs(self._reader.tensors(td), plans, weights, **options)[0]
        return cost

    def reward(self, td: TensorDict, plans: torch.Tensor) -> torch.Tensor:
        """Minus the cost, with the weights of this world; -inf for a solution that breaks a rule of its problem."""
        weights = self._world.task_weights(self._world.config)
        return -self.costs(td, plans, weights, on_violation="inf").to(plans.device, torch.float32)

    def check(self, td: TensorDict, plans: torch.Tensor) -> None:
        """Raises BadSolution with the first row that breaks a rule, and the rule."""
        options = self._world.task_options(self._world.config)
        valid, reasons = self.task.check(self._reader.tensors(td), plans, **options)
        if not valid.all():
            row = int((~valid).nonzero()[0])
            raise BadSolution(f"row {row}: {reasons[row]}")

    # -- solutions of many days -------------------------------------------------------------------------------

    def plan_axes(self, td: TensorDictBase, actions: torch.Tensor) -> int:
        """The number of axes of a row's solution: 1, or 2 if it is given by days."""
        by_day = actions.ndim == td.batch_dims + 2 and bool(self._world.task) and self.task.plan_axes == 3
        return 2 if by_day else 1

    def plans(self, rows: Rows, actions: torch.Tensor) -> torch.Tensor:
        """Solutions in the shape of the task. A solution of many days may be the sequence of an episode's actions: it
        is replayed from these rows, which must come from a reset, to find the day of each action."""
        if actions.ndim == self.task.plan_axes:
            return actions
        if (steps := rows[0].get("i")) is None or steps.any():
            raise ShapeError(
                "actions (*batch, T) of many days need the TensorDict of their reset; others come by day, "
                "(*batch, days, L)"
            )
        count, width = actions.shape
        plans = torch.zeros((count, self._world.sizes["T"], max(width, 1)), dtype=torch.int64)
        taken = torch.zeros(plans.shape[:2], dtype=torch.int64)
        row = torch.arange(count)
        for k, before in enumerate(self.replayed(rows, actions)):
            # The last item is the state after all actions.
            if k == width:
                break
            live = ~before["done"].reshape(-1)
            day, some = before["day"].reshape(-1).to(torch.int64)[live], row[live]
            plans[some, day, taken[some, day]] = actions[:, k].cpu().to(torch.int64)[live]
            taken[some, day] += 1
        return plans.to(actions.device)

    def replayed(self, rows: Rows, actions: torch.Tensor) -> Iterator[dict[str, torch.Tensor]]:
        """The fields at the root before each of these actions (B, T), and after the last one."""
        root, hidden = rows
        batch = torch.Size([len(actions)])
        for column in actions.cpu().unbind(1):
            yield root
            fresh = self._stepper.step(root, hidden, batch, column)
            root, hidden = {**root, **fresh[0]}, {**hidden, **fresh[1]}
        yield root

    # -- start nodes ------------------------------------------------------------------------------------------

    def num_starts(self) -> int:
        """The number of nodes at which a solution may start, without the depot."""
        first = self._first_start()  # raises for a world without nodes
        return self._world.sizes["N"] - first

    def start_nodes(self, td: TensorDictBase, num_starts: int) -> torch.Tensor:
        """The first action of every copy, start-major: that of start s of row b is at s * B + b."""
        first, nodes = self._first_start(), self._reader.find(td, "n_nodes")
        if nodes is None:
            raise ShapeError("the TensorDict lacks 'n_nodes'")
        nodes = nodes.reshape(-1).to(torch.int64)
        starts = torch.arange(num_starts, device=nodes.device)[:, None]
        # An instance with fewer nodes than starts repeats them.
        return (first + starts % (nodes - first)).reshape(-1)

    def _first_start(self) -> int:
        if not hasattr(self._world, "depot_apart") or "current_node" not in self._world.fields:
            raise ConfigError(f"{type(self._world).__name__} has no start nodes")
        return 0 if getattr(self._world.config, "start", "depot") == "free" else 1
