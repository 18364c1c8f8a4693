"""The base of the worlds in which a vehicle drives from node to node: options, record of actions, picture."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from milkrun.core.config import option
from milkrun.core.errors import ConfigError
from milkrun.core.fields import bool_, float32, int16, int32, int64, state
from milkrun.core.instances import refuse_where
from milkrun.core.kernels import fetch, kernel
from milkrun.core.world import World
from milkrun.render.scene import Scene, colours
from milkrun.routing.base import Places, PlacesConfig

ON_PADDING, OVERLOADED = 1, 2
"""Faults of a loaded vehicle state; numbers above these belong to the worlds."""
OVER_CAPACITY = {OVERLOADED: ("load", "over the capacity {capacity}")}


@dataclass(frozen=True, kw_only=True)
class RoutingConfig(PlacesConfig):
    """Options of every world in which a vehicle drives."""

    reward: str = option("dense", "paid per step, or all on the last one", choices=("dense", "terminal"))
    max_steps: int | str | None = option(
        "auto", "steps until a row is truncated; auto = 4 (num_loc + 1); None = no limit", low=1, words=("auto",)
    )
    record: bool = option(True, "keep the actions taken, for `solution()`")


class Recorded(World):
    """A world of one vehicle at a time that records its legal actions."""

    tour = state(int16, "A", tally=True, doc="the legal actions taken; only with record")
    tour_len = state(int32, low=0, tally=True, doc="how many legal actions were taken")

    def solution(self) -> np.ndarray:
        """(B, L) the legal actions taken by each row, padded with 0: the `pi` of the tasks."""
        if not self.config.record:
            raise ConfigError("solution() needs record=True")
        # `write_down` keeps counting once the record is full, so the count may exceed its size.
        length = min(int(self.tour_len.max(initial=0)), self.sizes["A"])
        taken: np.ndarray = self.tour[:, :length].astype(np.int32)
        taken[np.arange(length) >= self.tour_len[:, None]] = 0
        return taken

    def taken(self, row: int) -> list[int]:
        """The legal actions of a row, in order; needs record=True."""
        actions: list[int] = self.tour[row, : self.tour_len[row]].tolist()
        return actions

    def path(self, row: int) -> list[int]:
        """The nodes that a row has visited, in order; needs record=True."""
        return [0, *self.taken(row)]

    def driven(self, row: int) -> list[int]:
        """The path with forced returns, if the world has any."""
        return self.path(row)


class Routing(Recorded, Places):
    """A vehicle that drives from node to node."""

    Config = RoutingConfig
    config: RoutingConfig
    policies: ClassVar[Any] = {"nearest": "milkrun.solvers.policies:nearest"}
    figure = "milkrun.replay.figures:figure_of_tours"

    current_node = state(int64, index="N", column=True, doc="where the vehicle is")
    visited = state(bool_, "N", doc="nodes done")
    tour_length = state(float32, low=0, doc="distance driven so far")

    faults: ClassVar[Mapping[int, tuple[str, str]]] = {
        ON_PADDING: ("current_node", "is padding: n_nodes is {n_nodes}"),
    }

    @classmethod
    def auto_max_steps(cls, config: Any) -> int:
        return 4 * (config.num_loc + 1)

    def check_states(self, arrays: dict[str, np.ndarray]) -> None:
        super().check_states(arrays)
        if "tour_len" not in arrays:  # rows stepped without a record
            return
        visited = arrays["visited"][:, 1:]
        taken = arrays["tour_len"].reshape(len(visited), -1).sum(axis=1)  # one count, or one a day
        few = (taken < visited.sum(axis=1))[:, None]
        rule = "tour_len counts fewer actions than nodes are visited"
        refuse_where("visited", arrays["visited"], arrays["visited"] & few, rule)

    # -- pictures -------------------------------------------------------------------------------------------

    def scene(self, row: int) -> Scene:
        self.check_row(row)
        return self.scene_of_nodes(row, "nodes")

    def scene_of_nodes(
        self, row: int, name: str, amounts: Any = None, words: Callable[[], list[str]] | None = None, **more: Any
    ) -> Scene:
        """Nodes sized by `amounts` and described by `words`, the tour so far, and the vehicle."""
        q = self.instance_row[row]
        n, depot = int(self.n_nodes[q]), self.depot_apart
        places, one = self.locs[q, :n].astype(float), name.removesuffix("s")

        def text() -> list[str]:
            added = [f", {word}" for word in words()] if words else [""] * n
            return ["depot" if depot and j == 0 else f"{one} {j}{added[j]}" for j in range(n)]

        if not self.config.record:  # without a record no route colours the visited nodes
            more["colour"] = colours(np.where(self.visited[row, :n], "muted", "waiting"))
        s = Scene(places.min(0), places.max(0))
        size = None if amounts is None else amounts[:n] / max(1e-9, float(np.max(amounts[:n])))
        s.points(
            name,
            places,
            shape=["square"] + ["disc"] * (n - 1) if depot else "disc",
            size=size,
            text=text,
            label=lambda: ["" if depot and j == 0 else str(j) for j in range(n)],
            action=np.arange(n),
            **more,
        )
        s.route("tour", name, self.driven(row), cut=0 if depot else None)
        s.vehicle("truck", places[self.current_node[row]], shape="truck")
        s.figure("length", self.tour_length[row])
        if depot:
            s.legend("depot", "ink", "square")
        done = "emptied" if "level" in more else "visited"
        s.legend(f"not {done}" + (", as full as it is filled" if "level" in more else ""), "waiting")
        s.legend(f"{done}, a colour a trip" if depot else done, 0)
        return s


def check_costs(arrays: dict[str, np.ndarray]) -> None:
    """Where the reward is minus the distance, the objective is minus the tour length.

    Each step rounds the leg and `tour_length` to float32, each by half a unit in the last place.
    """
    objective, length = arrays["objective"], arrays["tour_length"].astype(np.float64)
    slack = (arrays["i"] + 1) * 2.0**-23 * length
    refuse_where("objective", objective, np.abs(objective + length) > slack, "must be minus tour_length")


@kernel
def clear_record(w, b):
    """Clears the record of actions."""
    w.tour_len[b] = 0
    for k in range(w.A):
        w.tour[b, k] = 0


@kernel(inline=True)
def write_down(w, b, action):
    """Records a legal action, for `solution()`."""
    # A is 0 without `record`, and the count of a loaded state may exceed A.
    if w.tour_len[b] < w.A:
        w.tour[b, w.tour_len[b]] = action
    w.tour_len[b] += 1


@kernel(inline=True)
def prefetch(w, b, action):
    """Prefetches the memory of a step some rows ahead.

    The addresses of the two places and the two flags depend on the action, so the processor cannot predict them. A
    large batch does not fit into the cache, and each access would stall.
    """
    q = w.instance_row[b]
    # The action is not validated yet and may be out of range: `fetch` accepts any index.
    fetch(w.locs, q, w.current_node[b])
    fetch(w.locs, q, action)
    fetch(w.visited, b, action)
    fetch(w.action_mask, b, action)


@kernel(inline=True)
def is_on_padding(w, b):
    return w.current_node[b] >= w.n_nodes[w.instance_row[b]]


@kernel
def fault(w, b):
    """The rule that a loaded state breaks, 0 if none."""
    return ON_PADDING if is_on_padding(w, b) else 0


Recorded.bind(prefetch=prefetch)
Routing.bind(fault=fault)
