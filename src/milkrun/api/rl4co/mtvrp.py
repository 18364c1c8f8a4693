"""RL4CO's MTVRPEnv, and RouteFinder's environment of several depots, with Milkrun's compiled step.

A view of `VRP-v0` has the fields of those environments: demand as shares of a vehicle, the used shares, and for several
depots their availability. The rules read whole units, so an exactly full vehicle is never refused.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from rl4co.envs import MTVRPEnv as TheirMTVRPEnv
from rl4co.utils.ops import gather_by_index, get_distance
from tensordict import TensorDict

from milkrun.api._instances import load_instances
from milkrun.api.rl4co.envs import OWN, Compiled
from milkrun.api.rl4co.generator import OPTIONAL, in_shares
from milkrun.api.rl4co.views import whole_units
from milkrun.core.errors import BadInstance, ConfigError, ShapeError
from milkrun.core.fields import bool_, float32, instance, int64, state
from milkrun.core.instances import refuse_where
from milkrun.core.kernels import kernel
from milkrun.routing import tasks
from milkrun.routing.vrp.rules import ONE_BIT, candidates
from milkrun.routing.vrp.variants import variant_name
from milkrun.routing.vrp.world import VRP
from milkrun.routing.vrp.world import reset as begin
from milkrun.routing.vrp.world import step as drive

AMOUNTS = ("demand_linehaul", "demand_backhaul")
LAYOUT = ("locs", "demand_linehaul", *OPTIONAL)
"""The keys of an instance. All but the first two may be absent."""


# -- the world ----------------------------------------------------------------------------------------------------


@kernel
def reset_shares(w, b):  # type: ignore[no-untyped-def]
    begin(w, b)
    w.current_route_length[b] = 0
    w.used_capacity_linehaul[b] = 0
    w.used_capacity_backhaul[b] = 0


@kernel
def step_shares(w, b, action):  # type: ignore[no-untyped-def]
    drive(w, b, action)
    q = w.instance_row[b]
    if action >= w.depots:
        w.current_route_length[b] = w.route_length[b]
        w.used_capacity_linehaul[b] += w.demand_linehaul[q, action]
        w.used_capacity_backhaul[b] += w.demand_backhaul[q, action]
    else:
        w.current_route_length[b] = 0
        w.used_capacity_linehaul[b] = 0
        w.used_capacity_backhaul[b] = 0
        w.visited[b, action] = True
        if w.terminated[b]:  # no route follows, which would set it
            w.current_time[b, 0] = 0


class MTVRPView(VRP):
    """The VRP with the fields of RL4CO's MTVRP."""

    shown: ClassVar[tuple[str, ...]] = (
        "locs",
        "demand_linehaul",
        "demand_backhaul",
        "backhaul_class",
        "distance_limit",
        "service_time",
        "open_route",
        "time_windows",
        "speed",
        "vehicle_capacity",
        "capacity_original",
        "current_node",
        "current_route_length",
        "current_time",
        "used_capacity_linehaul",
        "used_capacity_backhaul",
        "visited",
        "action_mask",
    )
    synonyms: ClassVar[Any] = {}  # here they are fields of their own

    demand_linehaul = instance(float32, "N", low=0, doc="to deliver, as shares of a vehicle")
    demand_backhaul = instance(float32, "N", low=0, doc="to pick up, as shares of a vehicle")
    backhaul_class = instance(float32, "either", low=1, high=2, doc="1: no linehaul after a backhaul; 2: any order")
    open_route = instance(bool_, column=True, doc="vehicles do not drive home")
    vehicle_capacity = instance(float32, column=True, low=0, doc="of which the demands are shares")
    capacity_original = instance(float32, column=True, low=0, doc="units that a vehicle holds")

    current_node = state(int64, index="N", doc="where the vehicle is")
    visited = state(bool_, "N", doc="nodes done; a depot once it was driven to")
    current_route_length = state(float32, column=True, doc="distance of this route")
    used_capacity_linehaul = state(float32, column=True, doc="shares delivered on this route")
    used_capacity_backhaul = state(float32, column=True, doc="shares picked up on this route")
    i = state(int64, tally=True)
    tour_length = state(float32, tally=True)
    cost = state(float32, tally=True)
    longest = state(float32, tally=True)
    trips = state(int64, tally=True)
    truncated = state(bool_, tally=True)

    def arrange_instances(self, values: dict[str, Any]) -> dict[str, Any]:
        """From the layout of RL4CO or RouteFinder, in which demands may lack the depots."""
        rows, nodes, depots = len(values["locs"]), self.sizes["N"], self.sizes["depots"]
        vehicle = _one_a_row("vehicle_capacity", values, rows, 1.0)
        original = _one_a_row("capacity_original", values, rows, np.nan)
        if not (vehicle > 0).all():
            raise BadInstance(f"vehicle_capacity: row {int((~(vehicle > 0)).argmax())}: must be above 0")
        given = dict.fromkeys(AMOUNTS, np.zeros((rows, nodes), np.float32))
        for name in (name for name in AMOUNTS if name in values):
            demand = np.asarray(values[name], np.float32)
            if demand.shape == (rows, nodes - depots):
                demand = np.pad(demand, ((0, 0), (depots, 0)))
            if demand.shape != (rows, nodes):
                raise ShapeError(f"{name} must have the shape {(rows, nodes)}, or lack the depots, not {demand.shape}")
            wrong = ~(np.isfinite(demand) & (demand >= 0) & (demand <= vehicle[:, None] * (1 + 1e-5)))
            refuse_where(name, demand, wrong, "must be from 0 to vehicle_capacity")
            given[name] = demand
        both = np.concatenate([given[name] for name in AMOUNTS], axis=1) / vehicle[:, None]
        units, capacity = whole_units(both.astype(np.float32), original)
        rules = {name: values[name] for name in LAYOUT if name in values}
        if "backhaul_class" in rules:
            found = np.asarray(rules["backhaul_class"])
            refuse_where("backhaul_class", found, (found != 1) & (found != 2), "must be 1 or 2")
        return super().arrange_instances(
            {
                **rules,
                **given,
                "linehaul": units[:, :nodes],
                "backhaul": units[:, nodes:],
                "capacity": capacity,
                "vehicle_capacity": vehicle.astype(np.float32),
                "capacity_original": np.where(np.isnan(original), 1, original).astype(np.float32),
            }
        )


def _one_a_row(name: str, values: Mapping[str, Any], rows: int, default: float) -> np.ndarray:
    given = np.asarray(values.get(name, np.full(rows, default)), np.float64)
    if given.size != rows:
        raise ShapeError(f"{name} must have the shape {(rows, 1)}, not {given.shape}")
    return given.reshape(rows)


MTVRPView.bind(reset=reset_shares, step=step_shares)


@kernel
def show_depots(w, b):  # type: ignore[no-untyped-def]
    """The depots whose next vehicle has a customer to serve."""
    ready = candidates(w, b, w.instance_row[b]) if w.unserved[b] > 0 else np.int64(0)
    for k in range(w.depots):
        w.depot_available[b, k] = (ready >> k) & ONE_BIT != 0


@kernel
def reset_depots(w, b):  # type: ignore[no-untyped-def]
    reset_shares(w, b)
    w.total_distance[b] = 0
    show_depots(w, b)


@kernel
def step_depots(w, b, action):  # type: ignore[no-untyped-def]
    step_shares(w, b, action)
    w.total_distance[b] = w.tour_length[b]
    show_depots(w, b)


class MTDVRPView(MTVRPView):
    """The VRP with the fields of RouteFinder's MTDVRP."""

    shown = (
        # RouteFinder has one limit a row, so the limits of the depots are among the hidden fields.
        *(name for name in MTVRPView.shown if name != "distance_limit"),
        "current_depot",
        "total_distance",
        "depot_available",
    )

    tour_length = state(float32, low=0, doc="distance driven so far")
    total_distance = state(float32, column=True, low=0, doc="distance driven so far")
    depot_available = state(bool_, "depots", doc="a vehicle of this depot has somebody to serve")


MTDVRPView.bind(reset=reset_depots, step=step_depots)


# -- the environments ---------------------------------------------------------------------------------------------


class MTVRPEnv(Compiled, TheirMTVRPEnv):
    """RL4CO's multi-task VRP: capacity, open routes, backhauls, distance limits and time windows, row by row.

    `locs` (B, n+1, 2), `demand_linehaul`, `demand_backhaul`, `service_time`, `visited`, `action_mask` (B, n+1),
    `time_windows` (B, n+1, 2), `current_node` (B,), all others (B, 1). `backhaul_class` is RouteFinder's: 1 classical,
    2 mixed. Demands may lack the depot, as those of RouteFinder do; absent keys mean that there is no such attribute.
    """

    view = MTVRPView
    task = tasks.VRP
    depots = 1
    options = {"backhauls": True, "time_windows": True, "limits": True}

    def _instance(self, td: TensorDict) -> dict[str, torch.Tensor]:
        for name in ("locs", "demand_linehaul"):
            if td.get(name, None) is None:
                raise ShapeError(f"the TensorDict lacks {name!r}")
        return {name: td[name] for name in LAYOUT if td.get(name, None) is not None}

    @classmethod
    def check_solution_validity(cls, td: TensorDict, actions: torch.Tensor) -> None:
        """Raises BadSolution with the row and the rule it breaks, by the independent checker."""
        renamed = {"demand_linehaul": "linehaul", "demand_backhaul": "backhaul", "vehicle_capacity": "capacity"}
        data = {renamed.get(name, name): td[name] for name in LAYOUT if name != "capacity_original"}
        cls.task.get_costs({**data, "capacity": data["capacity"].expand(-1, cls._depots_of(td))}, actions)

    def get_num_starts(self, td: TensorDict) -> int:
        """The number of customers."""
        return int(td["locs"].shape[-2]) - self._depots_of(td)

    def select_start_nodes(self, td: TensorDict, num_starts: int) -> torch.Tensor:
        """The first action of every copy, start-major: customers 1..n in turn, with several depots the depots. A start
        that the mask refuses becomes the first one allowed."""
        mask, depots = td["action_mask"], self._depots_of(td)
        starts = torch.arange(num_starts, device=td.device)
        starts = starts % depots if depots > 1 else starts % (mask.shape[-1] - 1) + 1
        allowed = mask[:, starts]
        chosen = torch.where(allowed, starts, mask.int().argmax(-1, keepdim=True))
        return chosen.T.reshape(-1)

    @staticmethod
    def get_variant_names(td: TensorDict) -> list[str]:
        """The variant of each row, as RouteFinder names it."""
        has_open, has_windows, has_limit, has_backhaul = (found.tolist() for found in TheirMTVRPEnv.check_variants(td))
        several = MTVRPEnv._depots_of(td) > 1
        kinds = [int(kind) * back for kind, back in zip(td["backhaul_class"].reshape(-1).tolist(), has_backhaul)]
        rows = zip(has_open, kinds, has_limit, has_windows, strict=True)
        return [variant_name(several, *row).upper() for row in rows]

    @classmethod
    def load_data(cls, fpath: str | os.PathLike[str], batch_size: Any = (), scale: bool = False) -> TensorDict:
        """The instances in a file, for `reset` to take: an npz file of RL4CO or RouteFinder, or a dataset of Milkrun's
        `VRP-v0`. `scale` divides demands by `capacity_original`, as in RL4CO; `batch_size` has no effect, as there."""
        arrays, options = load_instances(fpath, "milkrun/VRP-v0")
        if options.get("metric", "euclid") != "euclid":
            raise ConfigError(f"{os.fspath(fpath)}: is measured by {options['metric']!r}, RL4CO by straight lines")
        if "linehaul" in arrays:
            arrays = in_shares(arrays)
        td = TensorDict({name: torch.from_numpy(a) for name, a in arrays.items()}, batch_size=[len(arrays["locs"])])
        if scale:
            for name in (name for name in AMOUNTS if name in arrays):
                td[name] = td[name] / td["capacity_original"]
        return td

    @staticmethod
    def _depots_of(td: TensorDict) -> int:
        available = td.get("depot_available", None)
        return 1 if available is None else int(available.shape[-1])


class MTDVRPEnv(MTVRPEnv):
    """RouteFinder's multi-task VRP with K depots: the keys of MTVRPEnv, nodes 0..K-1 the depots, with `num_depots`
    (B, 1), `current_depot` (B,), `total_distance` (B, 1), `depot_available` (B, K). The first action is a depot."""

    name = "mtdvrp"
    view = MTDVRPView

    @property
    def depots(self) -> int:  # type: ignore[override]
        return int(self.generator.num_depots)

    @property
    def options(self) -> dict[str, Any]:  # type: ignore[override]
        return {**MTVRPEnv.options, "num_depots": self.depots}

    def _reset(self, td: TensorDict | None = None, batch_size: Any = None) -> TensorDict:
        assert td is not None
        count = td.get("num_depots", None)
        if count is not None and (count != self.depots).any():
            raise ShapeError(f"num_depots must be {self.depots} in all rows, as of the generator")
        made = super()._reset(td, batch_size)
        made["num_depots"] = torch.full((*made.batch_size, 1), self.depots, dtype=torch.int32)
        made["distance_limit"] = made[OWN, "distance_limit"][..., :1].clone()
        return made

    def _get_reward(self, td: TensorDict, actions: torch.Tensor) -> torch.Tensor:
        """Minus the length; a depot among the actions ends the route at the depot of its vehicle."""
        depots, nodes = self._depots_of(td), torch.nn.functional.pad(actions, (1, 1))
        at_depot = nodes < depots
        place = torch.arange(nodes.shape[1], device=nodes.device).expand_as(nodes)
        own = nodes.gather(1, torch.where(at_depot, place, 0).cummax(1).values)
        ends = at_depot[:, 1:]
        to = torch.where(ends, own[:, :-1], nodes[:, 1:])
        legs = get_distance(gather_by_index(td["locs"], nodes[:, :-1]), gather_by_index(td["locs"], to))
        return -(legs * ~(ends & td["open_route"])).sum(-1)
