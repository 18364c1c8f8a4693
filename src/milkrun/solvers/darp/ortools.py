"""The dial-a-ride problem as a model of OR-Tools' routing library, in whole numbers.

Travel times and limits are rounded safely: a plan that is feasible there is feasible here. Only plans that use a limit
to the last unit are lost.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from milkrun.core.errors import ConfigError, missing_extra
from milkrun.routing.instances.darp import DARPInstance
from milkrun.solvers.darp.construct import Routes
from milkrun.solvers.ortools import limit_search

MOST = 2.0**53


class Model:
    """A model with time, load and a penalty for every unvisited node; it is searched once."""

    def __init__(self, instance: DARPInstance, scale: int, penalty_unvisited: float, speed: float) -> None:
        try:
            from ortools.constraint_solver import pywrapcp
            from ortools.constraint_solver import routing_enums_pb2 as enums
        except ImportError:
            raise missing_extra("ortools", "solvers") from None
        self._enums = enums
        self._parameters = pywrapcp.DefaultRoutingSearchParameters
        self.instance = instance
        self.scale = scale
        day = instance.time_windows[0] - instance.window_open[0]
        largest = scale * max(float(instance.distances().max()), float(day), penalty_unvisited)
        if largest > MOST:
            raise ConfigError(
                f"{instance.name}: at scale={scale} numbers reach {largest:g}, but only up to {MOST:g} "
                "are exact: use a smaller scale"
            )
        self.manager = pywrapcp.RoutingIndexManager(len(instance.locs), instance.num_agents, 0)
        self.routing = pywrapcp.RoutingModel(self.manager)
        # costs are rounded to the nearest; only limits must be safe
        legs = np.rint(scale * instance.distances()).astype(np.int64)
        leg = self.routing.RegisterTransitMatrix(legs.tolist())
        self.routing.SetArcCostEvaluatorOfAllVehicles(leg)
        self._state_times(speed)
        seats = self.routing.RegisterUnaryTransitVector(instance.demand.tolist())
        self.routing.AddDimensionWithVehicleCapacity(seats, 0, instance.capacity.tolist(), True, "load")
        for j in range(1, len(instance.locs)):
            self.routing.AddDisjunction([self.manager.NodeToIndex(j)], round(scale * penalty_unvisited))

    def _state_times(self, speed: float) -> None:
        """The clock counts from the start of the day; it may start and wait freely."""
        instance, routing, index = self.instance, self.routing, self.manager.NodeToIndex
        day = int(_down(self.scale * (instance.time_windows[0] - instance.window_open[0])))
        tau = self.scale * (instance.distances() / speed + instance.service_time[:, None])
        tau = _up(np.minimum(tau, day + 1))  # longer legs are infeasible anyway
        # day + 1 and -1 are outside the day, so a window that misses it stays empty: opens > closes
        opens = _up(np.clip(self.scale * (instance.window_open - instance.window_open[0]), 0, day + 1))
        closes = _down(np.clip(self.scale * (instance.time_windows - instance.window_open[0]), -1, day))
        rides = instance.service_time[1::2] + instance.max_ride_time
        routing.AddDimension(routing.RegisterTransitMatrix(tau.tolist()), day, day, False, "time")
        clock, solver = routing.GetDimensionOrDie("time"), routing.solver()
        longest = int(_down(np.minimum(self.scale * instance.max_route_duration, day)))
        for k in range(instance.num_agents):
            clock.SetSpanUpperBoundForVehicle(longest, k)
        for r in range(instance.num_requests):
            p, d = index(2 * r + 1), index(2 * r + 2)
            if any(opens[j] > closes[j] for j in (2 * r + 1, 2 * r + 2)):
                # an empty range would make the whole model infeasible, not only this request
                solver.Add(routing.ActiveVar(p) == 0)
            else:
                for j, node in ((2 * r + 1, p), (2 * r + 2, d)):
                    clock.CumulVar(node).SetRange(int(opens[j]), int(closes[j]))
            routing.AddPickupAndDelivery(p, d)
            solver.Add(routing.VehicleVar(p) == routing.VehicleVar(d))
            solver.Add(clock.CumulVar(p) <= clock.CumulVar(d))
            ride = int(_down(np.minimum(self.scale * rides[r], day)))
            solver.Add(clock.CumulVar(d) - clock.CumulVar(p) <= ride)
            # The same limit for insertion and local search, which test it before propagation: five times faster.
            clock.SetPickupToDeliveryLimitFunctionForPair(lambda _pickup, _dropoff, ride=ride: ride, r)

    def search(self, seconds: float, start: Routes | None, solutions: int | None = None) -> Routes | None:
        """Routes by guided local search from a start, or from cheapest insertion; None if none was found."""
        search = self._parameters()
        search.first_solution_strategy = self._enums.FirstSolutionStrategy.PARALLEL_CHEAPEST_INSERTION
        search.local_search_metaheuristic = self._enums.LocalSearchMetaheuristic.GUIDED_LOCAL_SEARCH
        limit_search(self.routing, search, seconds, solutions)
        self.routing.CloseModelWithParameters(search)
        first = None if start is None else self.routing.ReadAssignmentFromRoutes(start, True)
        if first is None:
            found = self.routing.SolveWithParameters(search)
        else:
            found = self.routing.SolveFromAssignmentWithParameters(first, search)
        return None if found is None else [self._route(found, k) for k in range(self.instance.num_agents)]

    def _route(self, found: Any, vehicle: int) -> list[int]:
        route: list[int] = []
        index = found.Value(self.routing.NextVar(self.routing.Start(vehicle)))
        while not self.routing.IsEnd(index):
            route.append(self.manager.IndexToNode(index))
            index = found.Value(self.routing.NextVar(index))
        return route


def _up(x: Any) -> Any:
    # Rounded first: 100 * 1.1 is 110.00000000000001 and must stay 110.
    return np.ceil(np.round(x, 6)).astype(np.int64)


def _down(x: Any) -> Any:
    return np.floor(np.round(x, 6)).astype(np.int64)
