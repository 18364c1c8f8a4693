"""ImprovementEnvBase: worlds in torch alone whose state is a whole solution, changed move by move.

The author defines the initial solution, the moves and the cost; the best solution so far, rewards, masks, specs and the
step limit are here. Rows are truncated at `max_steps`; a search has no other end.
"""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase

from milkrun.api._td import entries
from milkrun.api.torchrl import contract
from milkrun.api.torchrl.base import RL4COEnvBase
from milkrun.core.errors import ConfigError, ShapeError

REWARD_MODES = ("best", "current")


class ImprovementEnvBase(RL4COEnvBase):
    """Environments that improve solutions. Keys: `solution`, `best_solution` (B, N) int64, `cost_current`, `cost_best`.

    A step pays the decrease of `cost_best` (reward_mode="best", never negative) or of `cost_current` ("current").
    """

    dense_reward = True
    records_tour = False
    max_steps: int | None = 200
    num_actions: int | None = None  # the number of moves, if all are always allowed
    reward_mode: str = "best"

    # -- the contract: methods of the author ------------------------------------------------------------------

    def _get_initial_solution(self, td: TensorDict) -> torch.Tensor:
        """The initial solutions, (B, N) int64, for instances with td.batch_size = (B,)."""
        raise NotImplementedError(f"{type(self).__name__} must give _get_initial_solution(td)")

    def _apply(self, td: TensorDict, action: torch.Tensor) -> torch.Tensor:
        """td["solution"] after the moves `action` (B,), as a solution (B, N)."""
        raise NotImplementedError(f"{type(self).__name__} must give _apply(td, action)")

    def _cost(self, td: TensorDict, solution: torch.Tensor) -> torch.Tensor:
        """The cost (B,) of solutions (B, N), to be minimised."""
        raise NotImplementedError(f"{type(self).__name__} must give _cost(td, solution)")

    def _get_action_mask(self, td: TensorDict) -> torch.Tensor:
        """The allowed moves, (B, num_actions); all by default."""
        if self.num_actions is None:
            raise ConfigError(f"{type(self).__name__} must give `num_actions` or _get_action_mask(td)")
        allowed = self.mask_true_means == "allowed"
        return torch.full((len(td), self.num_actions), allowed, dtype=torch.bool, device=self.device)

    # -- calls ------------------------------------------------------------------------------------------------

    def get_current_solution(self, td: TensorDictBase) -> torch.Tensor:
        """The solutions as they are now, (*batch, N)."""
        return self._found(td, "solution")

    def get_best_solution(self, td: TensorDictBase) -> torch.Tensor:
        """The cheapest solutions so far, (*batch, N)."""
        return self._found(td, "best_solution")

    def step_to_solution(self, td: TensorDictBase, solution: torch.Tensor) -> TensorDict:
        """The result of a step to these solutions, (*batch, N), by any move; the step is not counted.

        Rows that have ended do not change.
        """
        rows = contract.flat(self._current(td))
        given = solution.reshape(-1, solution.shape[-1]) if solution.ndim else solution
        live = ~rows["done"]
        after = self._moved(rows.copy(), torch.where(live, self._checked(given, rows["solution"]), rows["solution"]))
        done = rows["terminated"] | rows["truncated"]
        after.set("action_mask", contract.closed(contract.allowed(self, after), done))
        after.set("reward", torch.where(live[:, 0], after["_gain"], 0.0)[:, None])
        return after.exclude("_gain").reshape(td.batch_size)

    # -- the three methods of the base ------------------------------------------------------------------------

    def _set_up(self, generator: Any, options: dict[str, Any]) -> None:
        self.reward_mode = options.pop("reward_mode", self.reward_mode)
        if self.reward_mode not in REWARD_MODES:
            raise ConfigError(f"reward_mode={self.reward_mode!r}: must be 'best' or 'current'")
        super()._set_up(generator, options)

    def _reset_instance(self, td: TensorDict) -> TensorDict:
        solution = self._get_initial_solution(td)
        if solution.dtype is not torch.int64 or solution.ndim != 2 or len(solution) != len(td):
            raise ShapeError(
                f"_get_initial_solution must give int64 ({len(td)}, N), not {solution.dtype} {tuple(solution.shape)}"
            )
        cost = self._priced(td, solution)
        return td.update(
            {"solution": solution, "best_solution": solution.clone(), "cost_current": cost, "cost_best": cost.clone()}
        )

    def _step_instance(self, td: TensorDict) -> TensorDict:
        before = td["solution"].clone()
        return self._moved(td, self._checked(self._apply(td, td["action"]), before))

    def _check_done(self, td: TensorDict) -> torch.Tensor:
        return torch.zeros(len(td), dtype=torch.bool, device=self.device)

    def _get_reward(self, td: TensorDict, actions: torch.Tensor) -> torch.Tensor:
        """The reward of the last step; of whole searches (B, T), the sum of rewards from the solutions in `td`."""
        if actions.ndim == 1:
            return td["_gain"]
        total = torch.zeros(len(td), device=self.device)
        for column in actions.unbind(1):
            td = self._step(td.copy().set("action", column))
            total += td["reward"][:, 0]
        return total

    # -- inside -----------------------------------------------------------------------------------------------

    def _moved(self, td: TensorDict, solution: torch.Tensor) -> TensorDict:
        """`td` with another solution, and its gain."""
        cost, current, best = self._priced(td, solution), td["cost_current"], td["cost_best"]
        better = cost < best
        gained = torch.where(better, best - cost, 0.0) if self.reward_mode == "best" else current - cost
        return td.update(
            {
                "solution": solution,
                "best_solution": torch.where(better[:, None], solution, td["best_solution"]),
                "cost_current": cost,
                "cost_best": torch.where(better, cost, best),
                "_gain": gained,
            }
        )

    def _priced(self, td: TensorDict, solution: torch.Tensor) -> torch.Tensor:
        cost = self._cost(td, solution)
        if cost.shape != (len(td),):
            raise ShapeError(f"_cost must give ({len(td)},), one number a row, not {tuple(cost.shape)}")
        return cost.to(torch.float32)

    def _checked(self, solution: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        if solution.dtype is not torch.int64 or solution.shape != like.shape:
            raise ShapeError(
                f"a solution must be int64 {tuple(like.shape)}, not {solution.dtype} {tuple(solution.shape)}"
            )
        return solution

    def _found(self, td: TensorDictBase, key: str) -> torch.Tensor:
        value = entries(td).get(key)
        if value is None:
            raise ShapeError(f"the TensorDict lacks {key!r}")
        return value
