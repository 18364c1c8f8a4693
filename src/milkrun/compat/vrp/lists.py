"""Converts the buffers of rows to the lists of the interface: new arrays, padded, and a dict an agent.

A row's agents are in the world's order, the truck first. Every array returned is a copy, so a caller may keep or change
it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from milkrun.delivery.truckdrone.world import TruckDrone

Info = dict[str, Any]


class Lists:
    """The agents of a slice of rows. Made once, since a world's state and views keep their memory."""

    def __init__(self, batch: TruckDrone, rows: slice) -> None:
        sizes = batch.sizes
        self._of = batch, rows
        self._truck_seen = batch.truck_obs[rows]
        self._drones_seen = batch.drone_obs[rows]
        count = len(self._truck_seen)
        self.raw_widths = [sizes["Ft"]] + [sizes["Fd"]] * sizes["D"]
        self.width = max(self.raw_widths)
        self._blank = np.zeros((count, sizes["A"], self.width), np.float32)
        self._shared = np.broadcast_to(batch.state[rows][:, None], (count, sizes["A"], sizes["S"]))
        self._mask = batch.action_mask[rows]
        self._truck_choices = sizes["T"]
        self._drone_masks = (count, sizes["D"], sizes["K"])
        self._executed = batch.executed[rows]
        self._illegal = batch.illegal_agents[rows]
        self._forced = batch.forced[rows]
        self._served = batch.customers_served[rows]
        self._steps = batch.i[rows]
        self._customers = sizes["C"]

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy refers to the copy of the world."""
        return Lists, self._of

    def observations(self) -> np.ndarray:
        """The observation of each agent, with trailing zeros: (rows, agents, width)."""
        seen = self._blank.copy()
        seen[:, :1, : self._truck_seen.shape[2]] = self._truck_seen
        seen[:, 1:, : self._drones_seen.shape[2]] = self._drones_seen
        return seen

    def shared(self) -> np.ndarray:
        """The shared observation, once for each agent: (rows, agents, S)."""
        return self._shared.copy()

    def masks(self) -> list[list[np.ndarray]]:
        """For each row and agent its mask: 1 for an allowed action, else 0, float32, of the number of its actions."""
        mask = self._mask.astype(np.float32)
        drones = mask[:, self._truck_choices :].reshape(self._drone_masks)
        return [[truck, *own] for truck, own in zip(mask[:, : self._truck_choices], drones)]

    def moments(self) -> list[list[Info]]:
        """For each row and agent the info of the state, which is all there is after a reset."""
        return [
            [
                {
                    "available_actions": mask,
                    "policy_id": 1 if agent else 0,
                    "share_obs": shared,
                    "customers_served": served,
                    "total_customers": self._customers,
                    "time_step": step,
                }
                for agent, (mask, shared) in enumerate(zip(masks, all_shared))
            ]
            for masks, all_shared, served, step in zip(
                self.masks(), self.shared(), self._served.tolist(), self._steps.tolist()
            )
        ]

    def infos(self) -> list[list[Info]]:
        """For each row and agent the info of a step: that of the state, and the outcome of the action."""
        infos = self.moments()
        executed, illegal, forced = self._executed.tolist(), self._illegal.tolist(), self._forced.tolist()
        for row, done_row, wrong_row, forced_row in zip(infos, executed, illegal, forced):
            for info, done, wrong, by_force in zip(row, done_row, wrong_row, (False, *forced_row)):
                info["executed_action"], info["illegal"], info["forced"] = done, wrong, by_force
        return infos
