"""The checker of the TSP with drone: prices operations and names the first broken rule.

An operation costs the time of the slower of truck and drone while the other waits; a plan costs the sum. With the drone
aboard the truck drives only to uncovered nodes, and to the depot when all are covered. With the drone in the air it may
also drive to a covered node to meet the drone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from milkrun.core.errors import BadInstance, BadSolution, ConfigError, ShapeError
from milkrun.delivery.instances.tspd import EPS, NO_FLY, Operation, TSPDInstance

Floats = NDArray[np.float64]
FIELDS: dict[str, tuple[Any, ...]] = {
    "locs": ("fiu", "N", 2),
    "c_truck": ("fiu", "N", "N"),
    "c_drone": ("fiu", "N", "N"),
    "max_fly": ("fiu",),
    "no_visit": ("b", "N"),
    "forbid": ("b", "N"),
    "n_nodes": ("iu",),
}
"""The fields of a dataset: kinds of dtype and shape of each row."""


@dataclass(frozen=True)
class Prices:
    """The costs of each operation, in the given order."""

    truck: Floats
    """cost of the truck's drive"""
    drone: Floats
    """cost of the drone's flight; 0 if it stays aboard"""
    cost: Floats
    """the longer of both"""
    truck_wait: Floats
    drone_wait: Floats
    """0 if it stays aboard"""


def tspd_cost(instance: TSPDInstance, operations: Iterable[Operation]) -> float:
    """The makespan of a valid plan; BadSolution for any other."""
    plan = _as_plan(operations)
    check_operations(instance, plan)
    return float(price_operations(instance, plan).cost.sum())


def price_operations(instance: TSPDInstance, operations: Iterable[Operation]) -> Prices:
    """Costs and waits of single operations, whether or not they form a valid plan."""
    plan = _as_plan(operations)
    _check_nodes(instance, plan)
    truck, drone = np.zeros(len(plan)), np.zeros(len(plan))
    for k, op in enumerate(plan):
        path = (op.start, *op.internal, op.end)
        truck[k] = sum(instance.c_truck[i, j] for i, j in pairwise(path))
        if op.fly != NO_FLY:
            drone[k] = _flight(instance, op)
    flown = np.array([op.fly != NO_FLY for op in plan], np.bool_)
    cost = np.maximum(truck, drone)
    return Prices(truck, drone, cost, truck_wait=cost - truck, drone_wait=np.where(flown, cost - drone, 0.0))


def check_operations(instance: TSPDInstance, operations: Iterable[Operation]) -> None:
    """Raises BadSolution with the index of the first faulty operation and the broken rule."""
    plan = _as_plan(operations)
    _check_nodes(instance, plan)
    covered = np.zeros(instance.num_nodes, np.bool_)
    covered[0] = True
    by_drone: dict[int, int] = {}
    place = 0
    for k, op in enumerate(plan):
        if op.start != place:
            where = f"operation {k - 1} ended at {place}" if k else "a plan starts at the depot 0"
            raise BadSolution(f"operation {k}: starts at {op.start}, but {where}")
        if op.fly != NO_FLY:
            _check_flight(instance, k, op, covered, by_drone)
            by_drone[op.fly] = k
            covered[op.fly] = True
        # The drone's node is covered now, so the truck may not drive there in the same operation.
        _check_drive(k, op, covered)
        covered[[*op.internal, op.end]] = True
        place = op.end
    if not plan:
        raise BadSolution("a plan of no operations covers nothing")
    if place != 0:
        raise BadSolution(f"operation {len(plan) - 1}: ends at {place}, but a plan ends at the depot 0")
    if not covered.all():
        missing = ", ".join(map(str, np.flatnonzero(~covered)))
        raise BadSolution(f"operation {len(plan) - 1}: the plan ends here and leaves uncovered: {missing}")


class TSPDProblem:
    """Prices actions of the world (B, L), given the instance fields of their rows."""

    plan_axes: ClassVar[int] = 2
    modes: ClassVar[Mapping[str, tuple[Any, ...]]] = {}
    terms: ClassVar[Mapping[str, tuple[str, float]]] = {}

    @classmethod
    def get_costs(
        cls, dataset: Any, pi: Any, cw_dict: Mapping[str, float] | None = None, *, on_violation: str = "raise"
    ) -> tuple[Any, dict[str, Any], None]:
        """Makespan (B,) of each plan, and again by name.

        A row that breaks a rule raises BadSolution, or costs inf with `on_violation="inf"`.
        """
        if on_violation not in ("raise", "inf"):
            raise ConfigError(f"on_violation is {on_violation!r}, allowed are 'raise' and 'inf'")
        plans = _as_plans(pi)
        costs = np.full(len(plans), np.inf)
        for b, (instance, actions) in enumerate(_rows(dataset, plans)):
            try:
                costs[b] = tspd_cost(instance, actions_to_operations(actions, instance.num_nodes, _columns(dataset)))
            except BadSolution as e:
                if on_violation == "raise":
                    raise BadSolution(f"row {b}: {e}") from None
        return _like(pi, costs), {"makespan": _like(pi, costs)}, None

    @classmethod
    def check(cls, dataset: Any, pi: Any) -> tuple[Any, list[str | None]]:
        """Validity (B,) of each row, and for the invalid ones the first broken rule as a sentence."""
        faults: list[str | None] = []
        for instance, actions in _rows(dataset, _as_plans(pi)):
            try:
                check_operations(instance, actions_to_operations(actions, instance.num_nodes, _columns(dataset)))
                faults.append(None)
            except BadSolution as e:
                faults.append(str(e))
        return _like(pi, np.array([reason is None for reason in faults])), faults


def actions_to_operations(actions: Iterable[int], nodes: int, columns: int) -> list[Operation]:
    """Converts actions to operations: j drives, columns + k launches, 2 columns joins.

    `columns` counts the nodes with padding, `nodes` those without. Zeros after the end are padding.
    """
    plan: list[Operation] = []
    place, fly, start, between = 0, NO_FLY, 0, list[int]()
    covered = {0}
    for step, action in enumerate(actions):
        where = f"operation {len(plan)}, action {step}"
        if not 0 <= action <= 2 * columns:
            raise BadSolution(f"{where}: {action} does not exist, actions are 0..{2 * columns}")
        if len(covered) == nodes and place == 0 and fly == NO_FLY:
            if action != 0:
                raise BadSolution(f"{where}: {action} follows the end, where only 0 is allowed")
        elif action < columns:
            if action == place:
                raise BadSolution(f"{where}: the truck drives to node {place}, where it is")
            if fly == NO_FLY:
                plan.append(Operation(place, action))
            else:
                between.append(action)
            place = action
            covered.add(place)
        elif action < 2 * columns:
            if fly != NO_FLY:
                raise BadSolution(f"{where}: the drone is launched, but has not rejoined since it left at {start}")
            start, fly, between = place, action - columns, []
            covered.add(fly)
        else:
            if fly == NO_FLY:
                raise BadSolution(f"{where}: the drone rejoins, but is aboard")
            plan.append(Operation(start, place, fly, tuple(between[:-1])))
            fly = NO_FLY
    if fly != NO_FLY:
        raise BadSolution(f"operation {len(plan)}: the drone that left at {start} does not rejoin")
    return plan


def _as_plans(pi: Any) -> NDArray[Any]:
    try:
        plans = np.asarray(pi)
    except ValueError:
        raise ShapeError("pi is ragged, expected (B, L) integers") from None
    if plans.ndim != 2 or plans.dtype.kind not in "iu":
        raise ShapeError(f"pi has shape {plans.shape} and dtype {plans.dtype}, expected (B, L) integers")
    return plans


def _rows(dataset: Any, plans: NDArray[Any]) -> Iterator[tuple[TSPDInstance, list[int]]]:
    """The instance and the actions of each row, without padding."""
    given = set(dataset.keys())
    if missing := [name for name in FIELDS if name not in given]:
        raise ShapeError(f"the dataset lacks {', '.join(missing)}")
    fields = {name: np.asarray(dataset[name]) for name in FIELDS}
    nodes = _columns(dataset)
    for name, (kinds, *dims) in FIELDS.items():
        shape = (len(plans), *(nodes if dim == "N" else dim for dim in dims))
        have, kind = fields[name], {"b": "bool", "iu": "integers", "fiu": "numbers"}[kinds]
        if have.shape != shape or have.dtype.kind not in kinds:
            raise ShapeError(f"{name} has shape {have.shape} and dtype {have.dtype}, expected {shape} of {kind}")
    for b, n in enumerate(fields["n_nodes"].tolist()):
        if not 2 <= n <= nodes:
            raise BadInstance(f"row {b}: n_nodes is {n}, allowed are 2..{nodes}")
    for b, actions in enumerate(plans.tolist()):
        n = int(fields["n_nodes"][b])
        yield (
            TSPDInstance(
                name=f"row {b}",
                locs=fields["locs"][b, :n],
                c_truck=fields["c_truck"][b, :n, :n],
                c_drone=fields["c_drone"][b, :n, :n],
                max_fly=float(fields["max_fly"][b]),
                no_visit=fields["no_visit"][b, :n],
                forbid=fields["forbid"][b, :n],
            ),
            actions,
        )


def _columns(dataset: Any) -> int:
    shape = np.shape(dataset["locs"])
    return int(shape[1]) if len(shape) > 1 else 0


def _like(given: Any, values: np.ndarray) -> Any:
    """`values` as the type of `given`, torch for torch."""
    if type(given).__module__.partition(".")[0] != "torch":
        return values
    import torch

    return torch.from_numpy(values)


def _check_flight(
    instance: TSPDInstance, k: int, op: Operation, covered: NDArray[np.bool_], by_drone: dict[int, int]
) -> None:
    """Checks the flight of an operation, given the nodes covered before."""
    if op.fly in by_drone:
        raise BadSolution(f"operation {k}: node {op.fly} is covered twice by the drone, before by {by_drone[op.fly]}")
    if covered[op.fly]:
        raise BadSolution(f"operation {k}: the drone flies to node {op.fly}, which the truck has covered")
    if instance.no_visit[op.fly]:
        raise BadSolution(f"operation {k}: the drone may not cover node {op.fly} (no_visit)")
    for node, action in ((op.start, "leave at"), (op.fly, "cover"), (op.end, "rejoin at")):
        if instance.forbid[node]:
            raise BadSolution(f"operation {k}: the drone may not {action} node {node} (forbid)")
    if op.end == op.fly:
        raise BadSolution(f"operation {k}: the truck cannot end at node {op.fly}, which the drone covers meanwhile")
    flight = _flight(instance, op)
    if flight > instance.max_fly + EPS:
        raise BadSolution(f"operation {k}: the drone flies {flight:.12g}, max_fly is {instance.max_fly:.12g}")


def _check_drive(k: int, op: Operation, covered: NDArray[np.bool_]) -> None:
    """Checks the drive: uncovered nodes only, except to meet the drone and for the final return."""
    # The end is no extra stop if it is also the last internal node, or if the truck waits at its start.
    there = op.internal[-1:] == (op.end,) or (op.start == op.end and not op.internal)
    stops = op.internal if there else (*op.internal, op.end)
    seen, place = covered.copy(), op.start
    for p, node in enumerate(stops):
        # Only the last stop may be a covered node. `node != place`: staying is no drive.
        last = p == len(stops) - 1 and node != place
        home = node == 0 and bool(seen.all())
        if seen[node] and not (last and (home or op.fly != NO_FLY)):
            early = " and others are not" if node == 0 and not home else ""
            raise BadSolution(f"operation {k}: the truck drives to node {node}, which is covered{early}")
        seen[node] = True
        place = node


def _flight(instance: TSPDInstance, op: Operation) -> float:
    return float(instance.c_drone[op.start, op.fly] + instance.c_drone[op.fly, op.end])


def _check_nodes(instance: TSPDInstance, plan: list[Operation]) -> None:
    n = instance.num_nodes
    for k, op in enumerate(plan):
        for node in (op.start, op.end, *op.internal, *([] if op.fly == NO_FLY else [op.fly])):
            if not 0 <= node < n:
                raise BadSolution(f"operation {k}: node {node} does not exist, nodes are 0..{n - 1}")


def _as_plan(operations: Iterable[Operation]) -> list[Operation]:
    if not isinstance(operations, Iterable):
        raise ShapeError(f"a plan is a list of operations (start, end, fly, internal), not {operations!r}")
    return [_as_operation(k, given) for k, given in enumerate(operations)]


def _as_operation(k: int, given: Any) -> Operation:
    try:
        start, end, fly, internal = given
        nodes = [_as_node(node) for node in (start, end, fly, *internal)]
    except (TypeError, ValueError):
        raise ShapeError(f"operation {k} is {given!r}, expected (start, end, fly, internal) of node numbers") from None
    return Operation(nodes[0], nodes[1], nodes[2], tuple(nodes[3:]))


def _as_node(node: Any) -> int:
    if isinstance(node, (bool, np.bool_)) or not isinstance(node, (int, np.integer)):
        raise TypeError
    return int(node)
