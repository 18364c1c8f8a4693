"""Reasons why actions of the TSP with a drone are masked, for `illegal="raise"` and refused plans."""

from __future__ import annotations

from typing import Any


def why_illegal(world: Any, row: int, action: int) -> str:
    """The action by name, and the reason."""
    nodes = world.sizes["N"]
    if not 0 <= action <= 2 * nodes:
        return f"out of range 0..{2 * nodes}"
    node = action % nodes
    if action == 2 * nodes:
        return f"JOIN: {_no_join(world, row, int(world.truck[row])) if world.fly[row] >= 0 else 'the drone is aboard'}"
    name, reason = ("DRIVE", _no_drive) if action < nodes else ("LAUNCH", _no_launch)
    if node >= world.n_nodes[world.instance_row[row]]:
        return f"{name}_{node}: the instance has no such node"
    return f"{name}_{node}: {reason(world, row, node)}"


def _no_drive(world: Any, row: int, j: int) -> str:
    if world.fly[row] < 0:
        return "nodes are left to cover" if j == 0 else "covered"
    if world.must_join[row]:
        return "the truck is back at a covered node: the drone must join"
    if j == world.truck[row]:
        return "the truck is there"
    return "the drone serves it" if j == world.fly[row] else f"covered, and {_no_join(world, row, j)}"


def _no_launch(world: Any, row: int, k: int) -> str:
    q, here = world.instance_row[row], world.truck[row]
    if world.fly[row] >= 0:
        return "the drone is out"
    if world.covered[row, k]:
        return "covered"
    if world.no_visit[q, k]:
        return f"the drone may not serve {k}"
    for node in (k, here):
        if world.forbid[q, node]:
            return f"node {node} is forbidden to the drone"
    least = world.c_drone[q, here, k] + world.fly_on[q, k]
    return f"there and on to the nearest node costs {least:g}, over max_fly = {world.max_fly[q]:g}"


def _no_join(world: Any, row: int, node: int) -> str:
    q, launch, fly = world.instance_row[row], world.launch[row], world.fly[row]
    if world.forbid[q, node]:
        return f"node {node} is forbidden to the drone"
    flight = world.c_drone[q, launch, fly] + world.c_drone[q, fly, node]
    return f"the flight to {node} would cost {flight:g}, over max_fly = {world.max_fly[q]:g}"
