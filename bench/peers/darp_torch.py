"""The dial-a-ride rule `deadlines` in plain torch, vectorised over the batch: tensors in, new tensors out, no kernel.

Written as a user of RL4CO would: gather, scatter, a rounded travel time for every node, a mask of boolean terms, and
no Python loop over rows, nodes or vehicles. Finished rows keep their state, and the episode ends on a depot self-loop.
Tests compare it with the world; the benchmark runs both in the same process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ..timing import clock, step_time

INSTANCE = ("locs", "demand", "capacity", "time_windows")


class DARPTorch:
    """The environment. A state is a dict of tensors, `[..., 1]` for scalars of a row, and includes the instance."""

    def __init__(self, speed: float = 25.0, penalty_unvisited: float = 100.0) -> None:
        self.speed = speed
        self.penalty_unvisited = penalty_unvisited

    def reset(self, instance: Mapping[str, Any]) -> dict[str, Tensor]:
        """A fresh state of the instances (arrays or tensors with any leading batch dimensions, depot at index 0)."""
        given = {name: torch.as_tensor(instance[name]) for name in INSTANCE}
        batch, nodes = given["demand"].shape[:-1], given["demand"].shape[-1]
        column = torch.zeros((*batch, 1), dtype=torch.int64)
        state = {
            **given,
            "current_node": column,
            "current_agent": column,
            "current_time": column,
            "current_load": column,
            "i": column,
            "visited": torch.zeros((*batch, nodes), dtype=torch.bool),
            "picked_up_by_current": torch.zeros((*batch, nodes), dtype=torch.bool),
            "vehicle_finished": torch.zeros(given["capacity"].shape, dtype=torch.bool),
            "total_distance": torch.zeros(batch),
            "done": torch.zeros((*batch, 1), dtype=torch.bool),
        }
        state["action_mask"] = self.get_action_mask(state)
        return state

    def step(self, state: Mapping[str, Tensor], action: Tensor) -> dict[str, Tensor]:
        """The state after each row's action, given as `[...]`. A row that is done drives nowhere."""
        live, prev_node = ~state["done"], state["current_node"]
        node = torch.where(live, action.unsqueeze(-1), prev_node)

        at_customer = node > 0
        visited = state["visited"] | torch.zeros_like(state["visited"]).scatter(-1, node, at_customer)

        dist = self._distance(self._place(state, node), self._place(state, prev_node))
        current_time = state["current_time"] + self._travel_time(dist)
        total_distance = state["total_distance"] + dist.squeeze(-1)

        current_load = state["current_load"] + state["demand"].gather(-1, node) * live
        picked_up = state["picked_up_by_current"]
        picked_up = picked_up | torch.zeros_like(picked_up).scatter(-1, node, node % 2 == 1)

        returning = (node == 0) & (prev_node != 0)
        agent, finished = state["current_agent"], state["vehicle_finished"]
        finished = finished | torch.zeros_like(finished).scatter(-1, agent, returning)
        all_visited = visited[..., 1:].all(-1, keepdim=True)
        all_finished = finished.all(-1, keepdim=True)
        switching = returning & ~all_visited & ~all_finished
        first_unfinished = (~finished).to(torch.uint8).argmax(-1, keepdim=True)

        self_loop = live & (node == 0) & (prev_node == 0)
        after = {
            **{name: state[name] for name in INSTANCE},
            "current_node": node,
            "current_agent": torch.where(switching, first_unfinished, agent),
            "current_time": current_time.masked_fill(switching, 0),
            "current_load": current_load.masked_fill(switching, 0),
            "i": state["i"] + live,
            "visited": visited,
            "picked_up_by_current": picked_up & ~switching,
            "vehicle_finished": finished,
            "total_distance": total_distance,
            "done": ~live | all_visited | all_finished | self_loop,
        }
        after["action_mask"] = self.get_action_mask(after)
        return after

    def get_action_mask(self, state: Mapping[str, Tensor]) -> Tensor:
        """The allowed next nodes of each row; only the depot if the row is done."""
        node = state["current_node"]
        dist = self._distance(state["locs"], self._place(state, node))
        in_time = state["current_time"] + self._travel_time(dist) <= state["time_windows"]
        seats = state["capacity"].gather(-1, state["current_agent"])
        fits = state["current_load"] + state["demand"] <= seats

        idx = torch.arange(dist.shape[-1])
        is_pickup, is_dropoff = idx % 2 == 1, (idx % 2 == 0) & (idx > 0)
        aboard = state["picked_up_by_current"].roll(1, -1)
        customers = ~state["visited"] & in_time & ((is_pickup & fits) | (is_dropoff & aboard)) & ~state["done"]

        home = (state["i"] > 0) & (state["current_load"] == 0) & (node > 0)
        depot = home | ~customers[..., 1:].any(-1, keepdim=True)
        return torch.cat([depot, customers[..., 1:]], -1)

    def get_reward(self, state: Mapping[str, Tensor]) -> Tensor:
        """Minus the distance driven, minus the penalty of each unvisited node."""
        unvisited = (~state["visited"][..., 1:]).sum(-1)
        return -(state["total_distance"] + self.penalty_unvisited * unvisited)

    def _travel_time(self, dist: Tensor) -> Tensor:
        return torch.round(dist / self.speed).long()

    @staticmethod
    def _distance(here: Tensor, there: Tensor) -> Tensor:
        # Half the time of torch's norm over a dimension of two, in the peer's favour.
        gap = here - there
        gap = gap * gap
        return (gap[..., 0] + gap[..., 1]).sqrt()

    @staticmethod
    def _place(state: Mapping[str, Tensor], node: Tensor) -> Tensor:
        return state["locs"].gather(-2, node.unsqueeze(-1).expand(*node.shape, 2))


class StepDARPTorch:
    """The environment on recorded actions (T, B), one thread: `StepDARPTorch(instance, actions).seconds()` a step."""

    def __init__(self, instance: Mapping[str, Any], actions: Sequence[Any], speed: float = 25.0) -> None:
        torch.set_num_threads(1)
        self.env = DARPTorch(speed)
        self.instance = {name: torch.as_tensor(instance[name]) for name in INSTANCE}
        self.actions = [torch.as_tensor(a) for a in actions]

    def start(self) -> None:
        self.state = self.env.reset(self.instance)

    def play(self, first: int, last: int) -> float:
        """Play the recorded steps first..last-1; returns their seconds."""
        state, step = self.state, self.env.step
        before = clock()
        for action in self.actions[first:last]:
            state = step(state, action)
        spent = clock() - before
        self.state = state
        return spent

    def seconds(self, **timing: Any) -> float:
        """Seconds per step of the whole batch."""
        with torch.inference_mode():
            return step_time(self.start, self.play, len(self.actions), **timing)
