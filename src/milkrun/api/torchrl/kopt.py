"""TSPkoptEnv: the world of whole tours that moves improve, with the calls of improvement environments."""

from __future__ import annotations

import torch
from tensordict import TensorDict, TensorDictBase

from milkrun.api._td import entries
from milkrun.api.torchrl import contract
from milkrun.api.torchrl.checks import checked_action
from milkrun.api.torchrl.classes import WorldEnv
from milkrun.api.torchrl.env import on_cpu
from milkrun.core.errors import BadSolution, ShapeError


class TSPkoptEnv(WorldEnv):
    """TSP by improvement: a whole tour, made shorter by 2-opt or 3-opt moves.

    `solution`, `best_solution` (*batch, n) are the world's `tour` and `best_tour`.
    """

    fixed_id = "milkrun/TSPKopt-v0"

    def get_current_solution(self, td: TensorDictBase) -> torch.Tensor:
        """The tours as they are now, (*batch, n)."""
        return self._tours(td, "tour")

    def get_best_solution(self, td: TensorDictBase) -> torch.Tensor:
        """The shortest tours so far, (*batch, n)."""
        return self._tours(td, "best_tour")

    def step_to_solution(self, td: TensorDictBase, solution: torch.Tensor) -> TensorDict:
        """The result of a step to these tours, (*batch, n), by any move; the step is not counted.

        Tours are rotated so that node 0 is first, before the padding. Rows that have ended do not change.
        """
        whole = self._current(td)
        solution = checked_action(on_cpu(solution), torch.int64, whole["tour"].shape, "solution")
        rows, given = contract.flat(whole), solution.reshape(-1, solution.shape[-1]).to(self.device)
        tour = self._turned(given, rows["n_nodes"])
        live = ~rows["done"].reshape(-1)
        tour = torch.where(live[:, None], tour, rows["tour"].to(torch.int64))
        cost = torch.where(live, self._lengths(rows, tour), rows["cost_current"])
        better = cost < rows["cost_best"]
        before = rows["cost_best" if self.config.reward_mode == "best" else "cost_current"]
        best = torch.where(better, cost, rows["cost_best"])
        after = rows.copy()
        after.update(
            {
                "tour": tour.to(torch.int32),
                "pos": tour.argsort(1).to(torch.int32),
                "cost_current": cost,
                "best_tour": torch.where(better[:, None], tour.to(torch.int32), rows["best_tour"]),
                "cost_best": best,
                "reward": (before - (best if self.config.reward_mode == "best" else cost))[:, None],
            }
        )
        if self.config.action_mode == "node":
            after.set("action_mask", torch.where(live[:, None], self._paths(after), rows["action_mask"]))
        return self._link(after.reshape(td.batch_size))

    def _get_reward(self, td: TensorDict, actions: torch.Tensor) -> torch.Tensor:
        """The decrease (B,) of the cost by these moves from the tours in `td`, computed by the task."""
        *_, after = self.objective.replayed(self._rows_of(td), actions)
        field = "best_tour" if self.config.reward_mode == "best" else "tour"
        return self._lengths(td, td[field]) - self._lengths(td, after[field].to(self.device))

    def _check_solution(self, td: TensorDict, actions: torch.Tensor) -> None:
        *_, after = self.objective.replayed(self._rows_of(td), actions)
        super()._check_solution(td, after["tour"].to(self.device))

    def _lengths(self, td: TensorDict, tour: torch.Tensor) -> torch.Tensor:
        real = torch.arange(tour.shape[1], device=tour.device) < td["n_nodes"].reshape(-1, 1)
        return self.objective.costs(td, torch.where(real, tour, 0)).to(self.device, torch.float32)

    def _turned(self, tour: torch.Tensor, n_nodes: torch.Tensor) -> torch.Tensor:
        """Tours with node 0 first and their padding in order behind."""
        width = torch.arange(tour.shape[1], device=tour.device)
        n = n_nodes.reshape(-1, 1).to(torch.int64)
        # With each padding node at its own index, exactly the tours through nodes 0..n-1 sort to 0, 1, 2, ...
        wrong = (torch.where(width < n, tour, width).sort(1).values != width).any(1)
        if bool(wrong.any()):
            b = int(wrong.nonzero()[0])
            raise BadSolution(f"row {b}: the first {int(n[b])} entries are no tour through nodes 0..{int(n[b]) - 1}")
        start = (torch.where(width < n, tour, -1) == 0).to(torch.int8).argmax(1, keepdim=True)
        # `% n` keeps the index valid also for the padding, where the result is not used.
        return torch.where(width < n, tour.gather(1, (start + width) % n), width)

    def _paths(self, td: TensorDict) -> torch.Tensor:
        """The mask over pairs of nodes: paths of 2..n-2 nodes, from one forward to the other."""
        pos, n = td["pos"].to(torch.int64), td["n_nodes"].reshape(-1, 1, 1).to(torch.int64)
        # The number of nodes of the forward path from the row's node to the column's, both included.
        nodes = (pos[:, None, :] - pos[:, :, None]) % n + 1
        real = torch.arange(pos.shape[1], device=pos.device) < n[:, 0]
        return ((nodes >= 2) & (nodes <= n - 2) & real[:, None, :] & real[:, :, None]).flatten(1)

    def _tours(self, td: TensorDictBase, field: str) -> torch.Tensor:
        tour = entries(td).get(field)
        if tour is None:
            raise ShapeError(f"the TensorDict lacks {field!r}")
        return tour
