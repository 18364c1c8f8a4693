"""The roads of the truck-and-drones reference: the truck's allowed target nodes, and its current edge.

Roads are an undirected graph of the truck's nodes. A truck at a node may go to any neighbour or stay; between two nodes
it may continue or turn back. The edge is stored in the direction in which it was entered, and turning back does not
reverse it. A truck at node u is on the edge (u, u).
"""

from __future__ import annotations

from collections.abc import Sequence


def checked(road: Sequence, nodes: int, depot_node: bool) -> list[list[bool]]:
    """The adjacency as plain lists; ValueError if it is not a connected graph of the nodes."""
    plain = [[bool(x) for x in row] for row in road]
    if not depot_node:
        raise ValueError("roads start at a depot node, and there is none")
    if len(plain) != nodes or any(len(row) != nodes for row in plain):
        raise ValueError(f"roads of {nodes} nodes are {nodes} x {nodes}")
    if not all(plain[u][u] for u in range(nodes)):
        raise ValueError("a node is not its own neighbour")
    if any(plain[u][v] != plain[v][u] for u in range(nodes) for v in range(u)):
        raise ValueError("a road leads one way only")
    if not connected(plain):
        raise ValueError("some node cannot be reached from node 0")
    return plain


def connected(road: list[list[bool]]) -> bool:
    """Whether every node can be reached from node 0."""
    reached, front = {0}, [0]
    while front:
        u = front.pop()
        new = [v for v, there in enumerate(road[u]) if there and v not in reached]
        reached.update(new)
        front += new
    return len(reached) == len(road)


def exits(road: list[list[bool]], node: int, edge: list[int]) -> list[bool]:
    """For every node, whether the truck may be sent there."""
    return list(road[node]) if node != -1 else [n in edge for n in range(len(road))]


def edge(before: list[int], left: int, node: int, target: int) -> list[int]:
    """The edge after a step that began at node `left` and ended at `node`; -1 is a position between nodes."""
    if node != -1:
        return [node, node]
    return before if left == -1 else [left, target]
