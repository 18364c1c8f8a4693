"""Checks of loaded dial-a-ride states: rules between fields that hold in all play, with illegal actions or not.

With a state that breaks one, kernels would count seats, vehicles or riders that do not exist. Ended rows are checked
too.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from milkrun.core.instances import refuse_where
from milkrun.routing.darp.windows import TIME_EPS
from milkrun.routing.instances.darp import MOST

Arrays = Mapping[str, np.ndarray]


def live_rows(arrays: Arrays) -> np.ndarray:
    live: np.ndarray = ~(arrays["terminated"] | arrays["truncated"])
    return live


def check_riders(arrays: Arrays, true: np.ndarray) -> np.ndarray:
    """Checks visits and loads under both rules; returns the requests aboard (B, R)."""
    node, load, visited = arrays["current_node"], arrays["current_load"], arrays["visited"]
    picked, demand, count = arrays["picked_up_by_current"], arrays["demand"], np.arange(true.shape[1])
    row = np.arange(len(node))
    refuse_where("current_node", node, ~true[row, node], "is no node of this instance")
    refuse_where("visited", visited, visited & (count == 0), "the depot is never visited")
    refuse_where("visited", visited, ~visited & ~true, "padding is visited from the start")
    # Of the node before; the depot gets that of the last node, but only dropoffs are read.
    visited_before = np.roll(visited, 1, axis=1)
    dropoff = (count > 0) & (count % 2 == 0) & true
    refuse_where("visited", visited, visited & dropoff & ~visited_before, "its rider was not picked up")
    refuse_where("picked_up_by_current", picked, picked & ((count % 2 == 0) | ~true), "is no pickup")
    refuse_where("picked_up_by_current", picked, picked & ~visited, "the pickup is not visited")
    away = node > 0
    refuse_where("current_node", node, away & ~visited[row, node], "the vehicle is there, but it is not visited")
    pickup = np.where(node % 2 == 1, node, np.maximum(node - 1, 0))
    refuse_where("current_node", node, away & ~picked[row, pickup], "the vehicle is there, but its rider is not aboard")
    aboard: np.ndarray = picked[:, 1::2] & ~visited[:, 2::2]
    riders = (demand[:, 1::2] * aboard).sum(axis=1)
    refuse_where("current_load", load, load != riders, "must be the riders picked up and not dropped off")
    seats = arrays["capacity"][row, arrays["current_agent"]]
    refuse_where("current_load", load, load > seats, "is over the capacity of the vehicle")
    refuse_where("current_load", load, live_rows(arrays) & ~away & (load > 0), "a vehicle at the depot is empty")
    return aboard


def check_fleet(arrays: Arrays) -> None:
    """Checks that vehicles are used one after the other."""
    finished, active, capacity = arrays["vehicle_finished"], arrays["current_agent"], arrays["capacity"]
    vehicle, row = np.arange(finished.shape[1]), np.arange(len(active))
    refuse_where("current_agent", active, capacity[row, active] < 1, "the vehicle has no seats")
    earlier = vehicle < active[:, None]
    refuse_where("vehicle_finished", finished, earlier & ~finished, "must be True before the active vehicle")
    # `reset` makes such a row if no vehicle can serve a request: all are finished, and the next action ends the day.
    idle = finished.all(axis=1) & (arrays["current_node"] == 0) & ~arrays["picked_up_by_current"].any(axis=1)
    over = live_rows(arrays) & finished[row, active] & ~idle
    refuse_where("current_agent", active, over, "the active vehicle is finished")
    if "vehicles_used" in arrays:
        used = arrays["vehicles_used"]
        refuse_where("vehicles_used", used, used > finished.sum(axis=1), "is more than are finished")


def check_record(arrays: Arrays) -> None:
    """Checks the record and the distance: one stop for each node, one return for each vehicle."""
    most = arrays["visited"].shape[1] - 1 + arrays["vehicle_finished"].shape[1]
    driven = arrays["total_distance"]
    # No leg is longer than the diagonal of the box of coordinates, 2 sqrt(2) MOST.
    refuse_where("total_distance", driven, driven > 3 * MOST * most, f"must be <= {3 * MOST * most:g}")
    if "tour_len" in arrays:
        length = arrays["tour_len"]
        refuse_where("tour_len", length, length > most, f"must be <= {most}")
    if "tour" in arrays:
        tour, nodes = arrays["tour"], arrays["visited"].shape[1]
        refuse_where("tour", tour, (tour < 0) | (tour >= nodes), f"must be within 0..{nodes - 1}")


def check_count(arrays: Arrays, true: np.ndarray) -> None:
    """Checks that every visit counts as an action."""
    if "tour_len" in arrays:  # absent if rows were stepped without a record
        few = arrays["tour_len"] < (arrays["visited"] & true)[:, 1:].sum(axis=1)
        refuse_where("tour_len", arrays["tour_len"], few, "is less than the nodes visited")


def check_deadlines(arrays: Arrays) -> None:
    """Rule `deadlines`: checks the clock of the active vehicle."""
    node, clock, deadlines = arrays["current_node"], arrays["current_time"], arrays["time_windows"]
    nodes, row, live = deadlines.shape[1], np.arange(len(node)), live_rows(arrays)
    late = (node > 0) & (clock > deadlines[row, node])
    refuse_where("current_time", clock, late, "is after the deadline of the node where the vehicle is")
    refuse_where("current_time", clock, live & (node == 0) & (clock > 0), "a vehicle leaves the depot at 0")
    # A vehicle drives at most one leg a node, none longer than 1e9 = MOST (`FARTHEST`).
    refuse_where("current_time", clock, clock > nodes * MOST, f"must be <= {nodes * MOST:g}")
    done = arrays["visited"][:, 1:].all(axis=1)
    refuse_where("terminated", arrays["terminated"], live & done, "every node is visited, so the row has ended")


def check_schedule(arrays: Arrays, aboard: np.ndarray) -> None:
    """Rule `classic`: checks that the clock is within the day and that no picked-up rider is missing."""
    visited, clock = arrays["visited"], arrays["current_time"]
    node, live = arrays["current_node"], live_rows(arrays)
    true = np.arange(visited.shape[1]) < arrays["n_nodes"][:, None]
    waiting = visited[:, 1::2] & ~visited[:, 2::2] & ~aboard
    refuse_where(
        "visited",
        visited[:, 1::2],
        waiting & true[:, 1::2],
        "the rider was picked up, but is neither aboard nor dropped off",
    )
    opens, closes = arrays["window_open"][:, 0], arrays["time_windows"][:, 0]
    outside = (clock < opens) | (clock > closes + TIME_EPS)
    refuse_where("current_time", clock, outside, "is not within the depot's window")
    early = live & (node == 0) & (clock != opens)
    refuse_where("current_time", clock, early, "a vehicle at the depot begins with the day")
