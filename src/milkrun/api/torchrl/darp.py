"""DARPEnv: dial-a-ride under both rules, with the names and calls of the first requirement."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase

from milkrun.api._td import entries, put
from milkrun.api.torchrl import contract
from milkrun.api.torchrl.classes import WorldEnv
from milkrun.api.torchrl.env import CPU
from milkrun.core.errors import ShapeError


class DARPEnv(WorldEnv):
    """Dial-a-ride. `preset="published"` plays by deadlines alone, `features=True` shows the features for policies;
    actions may be (*batch,) or (*batch, 1)."""

    fixed_id = "milkrun/DARP-v0"

    @property
    def penalty_unvisited(self) -> float:
        """The cost of a node that is not visited."""
        return float(self.config.penalty_unvisited)

    def _step(self, tensordict: TensorDictBase) -> TensorDict:
        action = entries(tensordict).get("action")
        if action is not None and action.shape == (*tensordict.batch_size, 1):
            tensordict = tensordict.copy()
            put(tensordict, "action", action.squeeze(-1))
        return super()._step(tensordict)

    def _get_action_mask(self, td: TensorDictBase) -> torch.Tensor:
        """The actions allowed in the state of `td`, derived from that state."""
        root, hidden = (
            {name: value.to(CPU) for name, value in part.items() if isinstance(value, torch.Tensor)}
            for part in self._fields(td)
        )
        return self._stepper.derive_mask(root, hidden, td.batch_size).to(self.device)

    def _get_reward(self, td: TensorDict, actions: torch.Tensor) -> torch.Tensor:
        """Minus distance and penalties: of the state in `td` if its rows have ended, else of the actions, by the slower
        task."""
        root = entries(td)
        if "done" not in root or not root["done"].all():
            return super()._get_reward(td, actions)
        nodes = root["visited"].shape[-1]
        # Nodes behind `n_nodes` are padding, which need no visit.
        true = torch.arange(1, nodes, device=td.device) < root.get("n_nodes", torch.tensor(nodes)).unsqueeze(-1)
        unvisited = (~root["visited"][..., 1:] & true).sum(-1)
        return -(root["total_distance"] + self.penalty_unvisited * unvisited).to(torch.float32)

    def _check_solution(self, td: TensorDict, actions: torch.Tensor) -> None:
        self.objective.costs(td, self._plans(td, actions))

    def check_solution_validity(self, td: TensorDictBase, actions: torch.Tensor) -> None:
        """Raises BadSolution with row, position and the rule that a plan breaks."""
        if actions.shape[:-1] != td.batch_size:
            raise ShapeError(
                f"actions must be (*batch, T) with the batch {tuple(td.batch_size)}, not {tuple(actions.shape)}"
            )
        self._check_solution(contract.flat(td), actions.reshape(td.batch_size.numel(), actions.shape[-1]))

    def _set_up(self, generator: Any, options: dict[str, Any]) -> None:
        super()._set_up(generator, options)
        if self._draws:
            self.template.draw_instances()  # raises here if the law finds no request

    @staticmethod
    def _get_next_available_vehicle(
        vehicle_finished: torch.Tensor, num_agents: int, current_agent: Any = None
    ) -> torch.Tensor:
        """(*batch,) the first vehicle that is not finished, -1 where all are."""
        waiting = ~vehicle_finished[..., :num_agents]
        return torch.where(waiting.any(-1), waiting.to(torch.uint8).argmax(-1), -1)
