"""TSP by improvement: a complete tour, shortened move by move.

Observations: `locs`, `n_nodes`, `tour`, `pos`, `best_tour`, `cost_current`, `cost_best`, `i` (`dist` with a matrix).
Actions: moves="2opt": reverse the stretch between two positions, the index i * n + j or the pair (i, j), i < j:
    positions i+1..j are reversed; action_mode="node": the nodes (u, v) or u * n + v: the path from u forward to v is.
    moves="3opt": (m, i, j, k), i < j < k, with A = i+1..j and B = j+1..k: m = 0 reverses A (k is ignored), 1 gives B A,
    2 B A', 3 B' A, 4 A' B' (' = reversed).
Mask: (n * n): 2opt the pairs that change the tour; 3opt the pairs (i, j) for which some k exists.
Ends: truncated after `max_steps` moves; never terminated.
Reward: reward_mode="best": the decrease of the best cost so far; "current": of the current cost.
References: Croes 1958 (2-opt); Lin 1965 (3-opt); Or 1976 (segment insertion).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from milkrun.core.actions import action_array, discrete
from milkrun.core.arguments import Rows
from milkrun.core.config import option
from milkrun.core.errors import ConfigError
from milkrun.core.fields import constant, float32, int32, int64, mask, scratch, state
from milkrun.core.instances import refuse_where
from milkrun.core.kernels import kernel
from milkrun.core.rng import row_stream, shuffle_from
from milkrun.core.world import ChanceOf, FieldOf
from milkrun.render.scene import Scene
from milkrun.routing.base import HEURISTICS, SOLVER, Places, PlacesConfig
from milkrun.routing.distance import CEIL, MATRIX, ROUND, TRUNC1, travel
from milkrun.routing.generators.laws import INIT
from milkrun.routing.generators.tours import generate_tsp as generate

MOVES = ("2opt", "3opt")
THREE = 1
ACTION_MODES = ("position", "node")
NODE = 1
STARTS = ("random", "greedy", "identity")
RANDOM, GREEDY = 0, 1
REWARD_MODES = ("best", "current")
CURRENT = 1
MISPLACED, PADDED, MISPRICED, BEST_MISPRICED = 1, 2, 3, 4
"""Faults of a loaded state."""


@dataclass(frozen=True, kw_only=True)
class TSPKoptConfig(PlacesConfig):
    """Options of the k-opt world."""

    num_loc: int = option(20, "nodes", low=4, high=10_000)
    moves: str = option("2opt", "the moves", choices=MOVES)
    action_mode: str = option("position", "2opt moves named by positions or by nodes", choices=ACTION_MODES)
    init: str = option("random", "the first tour: random, greedy (nearest neighbour from 0), identity", choices=STARTS)
    reward_mode: str = option("best", "paid: the drop of the best cost, or of the current one", choices=REWARD_MODES)
    max_steps: int | str | None = option(
        "auto", "moves until a row is truncated; auto = 200; None = no limit", low=1, words=("auto",)
    )

    def validate(self) -> None:
        super().validate()
        if self.moves == "3opt" and self.action_mode == "node":
            raise ConfigError("action_mode='node' goes with moves='2opt': 3opt moves are named by positions")


class TSPKopt(Places):
    """TSP by improvement: a complete tour, shortened by 2-opt or 3-opt moves."""

    id = "milkrun/TSPKopt-v0"
    Config = TSPKoptConfig
    config: TSPKoptConfig
    problem = "tsp_kopt"
    task = "milkrun.routing.tasks:TSP"
    generator = "milkrun.routing.generators:TSPGenerator"
    policies = {"steepest": "milkrun.solvers.policies:steepest"}
    solvers = dict.fromkeys((*HEURISTICS, "exact", "pyvrp", "ortools"), SOLVER)
    plans_are_actions = False  # a plan is a tour, an action changes one
    environments = {"torchrl": "milkrun.api.torchrl.kopt:TSPkoptEnv"}
    action = discrete("A")
    depot_apart = False
    synonyms = {"solution": "tour", "best_solution": "best_tour"}

    moves = constant(int64)
    action_mode = constant(int64)
    init = constant(int64)
    reward_mode = constant(int64)
    piece = scratch(int32, "N")

    tour = state(int32, "N", low=0, high="last node", doc="the nodes in order, node 0 first")
    pos = state(int32, "N", low=0, high="last node", doc="position of each node in the tour")
    best_tour = state(int32, "N", low=0, high="last node", doc="the shortest tour so far")
    cost_current = state(float32, low=0, doc="length of the tour")
    cost_best = state(float32, low=0, doc="length of the shortest tour so far")
    action_mask = mask("A")

    faults = {
        MISPLACED: ("pos", "must be the position of each node in the tour, which has each once"),
        MISPRICED: ("cost_current", "must be the length of tour on this instance"),
        BEST_MISPRICED: ("cost_best", "must be the length of best_tour on this instance"),
        PADDED: ("tour", "n_nodes is {n_nodes}, but padding is among its first entries, or a node follows them"),
    }

    @classmethod
    def size_of(cls, config: TSPKoptConfig) -> dict[str, int]:
        return {**cls.space(config), "A": config.num_loc**2, "last node": config.num_loc - 1}

    @classmethod
    def auto_max_steps(cls, config: TSPKoptConfig) -> int:
        return 200

    def constants(self) -> dict[str, Any]:
        c = self.config
        return {
            **super().constants(),
            "moves": MOVES.index(c.moves),
            "action_mode": ACTION_MODES.index(c.action_mode),
            "init": STARTS.index(c.init),
            "reward_mode": REWARD_MODES.index(c.reward_mode),
        }

    def check_instances(self, arrays: dict[str, np.ndarray]) -> None:
        super().check_instances(arrays)
        nodes = arrays["n_nodes"]
        refuse_where("n_nodes", nodes, nodes < 4, "a tour of fewer than 4 nodes has no move")

    def check_states(self, arrays: dict[str, np.ndarray]) -> None:
        places = np.arange(self.sizes["N"])
        padding = places >= arrays["n_nodes"][:, None]
        for name in ("tour", "best_tour"):
            tour, ordered = arrays[name], np.sort(arrays[name], axis=1)
            refuse_where(name, ordered, ordered != places, "a tour has every node once")
            refuse_where(name, tour, (tour != places) & padding, "padding follows the tour, each node at its own place")
        found = np.take_along_axis(arrays["tour"], arrays["pos"] % len(places), axis=1)
        refuse_where("pos", arrays["pos"], found != places, "is not where the tour has this node")

    def step(self, actions: Any, rows: Rows = None) -> None:
        """Plays one move in each named row: (B,) indices, or (B, 2) pairs; with moves="3opt" (B, 4) = m, i, j, k."""
        given = action_array("actions", actions)
        if given.ndim == 2 and given.dtype.kind in "iu":
            actions = self.encode(given)
        super().step(actions, rows)

    def encode(self, moves: np.ndarray) -> np.ndarray:
        """(B,) the actions of moves given as (B, 2), or (B, 4) with moves="3opt"; -1, never legal, if out of range."""
        n = self.sizes["N"]
        moves = np.asarray(moves).astype(np.int64)
        if moves.ndim != 2 or moves.shape[1] != (4 if self.config.moves == "3opt" else 2):
            return moves
        low, high = np.zeros(moves.shape[1], np.int64), np.full(moves.shape[1], n)
        if moves.shape[1] == 4:
            high[0] = 5
            # Move 0 ignores k: all its codes become one.
            moves = np.where((moves[:, :1] == 0) & (np.arange(4) == 3), 0, moves)
        code = np.zeros(len(moves), np.int64)
        for column in range(moves.shape[1]):
            code = code * n + moves[:, column]
        return np.where(((moves >= low) & (moves < high)).all(axis=1), code, -1)

    def decode(self, actions: np.ndarray) -> np.ndarray:
        """(B, 2) or (B, 4) the moves of actions."""
        n, actions = self.sizes["N"], np.asarray(actions)
        width = 4 if self.config.moves == "3opt" else 2
        sizes = [n] * width if width == 2 else [5, n, n, n]
        return np.stack([actions // n ** (width - 1 - k) % size for k, size in enumerate(sizes)], axis=-1)

    @property
    def mask_lists_all(self) -> bool:  # type: ignore[override]
        return self.config.moves == "2opt"

    @property
    def num_actions(self) -> int:
        nodes = self.sizes["N"]
        return nodes**2 if self.mask_lists_all else 5 * nodes**3

    def complete_actions(self, drawn: np.ndarray, field: FieldOf, chance: ChanceOf) -> np.ndarray:
        """Completes pairs (i, j) to 3-opt moves: m and k uniform among the valid ones.

        m = 1 replaces a move that would keep the cycle.
        """
        n = self.sizes["N"]
        i, j = drawn // n, drawn % n
        # Move 0 needs a stretch of two. A k exists for every pair of the mask, as j <= n - 2 there.
        lowest = np.where(j >= i + 2, 0, 1)
        m = lowest + np.floor(chance(0) * (5 - lowest)).astype(np.int64)
        nodes = field("n_nodes")
        k = j + 1 + np.floor(chance(1) * (nodes - 1 - j)).astype(np.int64)
        m = np.where(keeps_cycle.py_func(nodes, m, i, j, k), 1, m)
        return self.encode(np.stack([m, i, j, k], axis=1))

    def solution(self) -> np.ndarray:
        """(B, n) the shortest tour of each row: the `pi` of the TSP's task."""
        return self.best_tour.astype(np.int32)

    def why_illegal(self, row: int, action: int) -> str:
        n = int(self.n_nodes[self.instance_row[row]])
        if not 0 <= action < self.num_actions:
            return f"out of range 0..{self.num_actions - 1}"
        move = self.decode(np.array([action]))[0].tolist()
        return f"the move {tuple(move)} names no segment of at least two of the {n} nodes, or keeps their cycle"

    def why_masked(self, row: int, index: int) -> str:
        return "this move keeps the cycle of nodes or only reverses it, or there is no such segment"

    def action_name(self, agent: int, action: int) -> str:
        move = self.decode(np.array([action]))[0].tolist()
        if self.mask_lists_all:
            i, j = move
            by_node = self.config.action_mode == "node"
            return f"reverse from node {i} to {j}" if by_node else f"reverse positions {i + 1} to {j} of the tour"
        # The 3-opt mask has pairs, i * n + j; decoded as (m, i, j, k) the pair is the last two numbers.
        return f"positions {move[2]} and {move[3]} of the tour"

    def scene(self, row: int) -> Scene:
        self.check_row(row)
        q = self.instance_row[row]
        n = int(self.n_nodes[q])
        places = self.locs[q, :n].astype(float)
        s = Scene(places.min(0), places.max(0))
        s.points(
            "nodes",
            places,
            colour="muted",
            text=lambda: [f"node {j}" for j in range(n)],
            label=lambda: [str(j) for j in range(n)],
        )
        s.route("tour", "nodes", self.tour[row, :n], closed=True, paint=False)
        s.figure("length", self.cost_current[row])
        s.figure("best", self.cost_best[row])
        return s


@kernel
def reset(w, b):
    q = w.instance_row[b]
    n = np.int64(w.n_nodes[q])
    # Padding follows the tour, each node at its own place: `tour` and `pos` are permutations of all N nodes.
    for k in range(w.N):
        w.tour[b, k] = k
    if w.init == RANDOM:
        shuffle_from(row_stream(w, b, INIT), w.tour[b, :n], 1)
    elif w.init == GREEDY:
        chain_nearest(w, b, q, n)
    cost = 0.0
    for k in range(n):
        cost += travel(w, q, w.tour[b, k], w.tour[b, (k + 1) % n])
    for k in range(w.N):
        w.pos[b, w.tour[b, k]] = k
        w.best_tour[b, k] = w.tour[b, k]
    w.cost_current[b] = cost
    w.cost_best[b] = cost
    mark(w, b)


@kernel
def chain_nearest(w, b, q, n):
    """Builds the nearest neighbour tour from node 0 in place, ties to the lower node."""
    # Positions before k are the tour, the others candidates. Swaps change their order, so ties are broken by node
    # numbers, not by positions.
    for k in range(1, n):
        best = k
        for c in range(k + 1, n):
            here = w.tour[b, k - 1]
            way, shortest = travel(w, q, here, w.tour[b, c]), travel(w, q, here, w.tour[b, best])
            if way < shortest or (way == shortest and w.tour[b, c] < w.tour[b, best]):
                best = c
        w.tour[b, k], w.tour[b, best] = w.tour[b, best], w.tour[b, k]


@kernel
def mark(w, b):
    """Opens the moves that change the tour; only moves by nodes depend on the tour itself."""
    n = np.int64(w.n_nodes[w.instance_row[b]])
    for a in range(w.N * w.N):
        w.action_mask[b, a] = False
    for i in range(n):
        for j in range(n):
            w.action_mask[b, i * w.N + j] = opens(w, b, n, i, j)


@kernel
def opens(w, b, n, i, j):
    """True if this pair is a move, or for 3-opt the start of one."""
    # 3-opt: up to n - 2, so that a k > j exists. 2-opt: reversing one node changes nothing, and reversing n - 1 or n
    # nodes gives the same tour in the other direction.
    if w.moves == THREE:
        return i < j <= n - 2
    if w.action_mode == NODE:
        return 2 <= (np.int64(w.pos[b, j]) - w.pos[b, i] + n) % n + 1 <= n - 2
    return i + 2 <= j and not (i == 0 and j == n - 1)


@kernel
def legal(w, b, action):
    n = np.int64(w.n_nodes[w.instance_row[b]])
    if action < 0:
        return False
    if w.moves != THREE:
        # `reverse` indexes with the move, so a loaded mask is not trusted alone.
        within = action < w.N * w.N and w.action_mask[b, action]
        i, j = action // w.N, action % w.N
        return within and i < n and j < n and opens(w, b, n, i, j)
    m, i, j, k = split(w, action)
    if m > 4 or not i < j <= n - 2:
        return False
    return i + 2 <= j if m == 0 else j < k <= n - 1 and not keeps_cycle(n, m, i, j, k)


@kernel
def keeps_cycle(n, m, i, j, k):
    """True if a 3-opt move keeps the cycle of nodes or only reverses it; takes numbers or arrays."""
    # With one node in B, B A' reverses all nodes between the ends; so does B' A with one node in A.
    reverses_all = (i == 0) & (k == n - 1) & (((m == 2) & (k == j + 1)) | ((m == 3) & (j == i + 1)))
    return reverses_all | ((m == 4) & (k == i + 2))


@kernel(inline=True)
def split(w, action):
    """(m, i, j, k) of a 3-opt action."""
    return action // (w.N * w.N * w.N), action // (w.N * w.N) % w.N, action // w.N % w.N, action % w.N


@kernel
def step(w, b, action):
    q = w.instance_row[b]
    n = np.int64(w.n_nodes[q])
    if w.moves == THREE:
        m, i, j, k = split(w, action)
        delta = reverse(w, b, q, n, i, j) if m == 0 else rejoin(w, b, q, n, m, i, j, k)
    elif w.action_mode == NODE:
        delta = reverse_path(w, b, q, n, np.int64(w.pos[b, action // w.N]), np.int64(w.pos[b, action % w.N]))
        mark(w, b)
    else:
        delta = reverse(w, b, q, n, action // w.N, action % w.N)
    before, best = w.cost_current[b], w.cost_best[b]
    w.cost_current[b] = before + delta
    if w.cost_current[b] < best:
        w.cost_best[b] = w.cost_current[b]
        for p in range(w.N):
            w.best_tour[b, p] = w.tour[b, p]
    # From the stored costs, not from `delta`, so that rewards agree with the fields after rounding to float32.
    if w.reward_mode == CURRENT:
        w.reward[b] = before - w.cost_current[b]
    else:
        w.reward[b] = best - w.cost_best[b]


@kernel(inline=True)
def segment_length(w, b, q, first, last):
    """The length of the tour from one position to another."""
    way = 0.0
    for p in range(first, last):
        way += travel(w, q, w.tour[b, p], w.tour[b, p + 1])
    return way


@kernel(inline=True)
def reverse_positions(w, b, first, last):
    """Reverses the positions first..last."""
    while first < last:
        a, c = w.tour[b, first], w.tour[b, last]
        w.tour[b, first], w.tour[b, last] = c, a
        w.pos[b, c] = first
        w.pos[b, a] = last
        first += 1
        last -= 1


@kernel
def reverse(w, b, q, n, i, j):
    """Reverses the positions i+1..j and returns the change of the cost.

    Only the two end legs change, except with a matrix: there the segment is summed before and after, since its length
    may depend on the direction.
    """
    p, a = w.tour[b, i], w.tour[b, i + 1]
    z, s = w.tour[b, j], w.tour[b, (j + 1) % n]
    delta = travel(w, q, p, z) + travel(w, q, a, s) - travel(w, q, p, a) - travel(w, q, z, s)
    if w.metric == MATRIX:
        delta -= segment_length(w, b, q, i + 1, j)
        reverse_positions(w, b, i + 1, j)
        return delta + segment_length(w, b, q, i + 1, j)
    reverse_positions(w, b, i + 1, j)
    return delta


@kernel
def reverse_path(w, b, q, n, first, last):
    """Reverses the path from one position forward to another, across the end of the array too; node 0 stays first."""
    # A path that neither wraps nor contains position 0 leaves node 0 in place: a plain reversal.
    if first <= last and first > 0:
        return reverse(w, b, q, n, first - 1, last)
    before = whole_length(w, b, q, n) if w.metric == MATRIX else 0.0
    count = (last - first + n) % n + 1
    p, a = w.tour[b, (first - 1 + n) % n], w.tour[b, first]
    z, s = w.tour[b, last], w.tour[b, (last + 1) % n]
    delta = travel(w, q, p, z) + travel(w, q, a, s) - travel(w, q, p, a) - travel(w, q, z, s)
    # `pos` is wrong from here on; `rotate_to_front` rewrites it.
    for c in range(count // 2):
        x, y = (first + c) % n, (last - c + n) % n
        w.tour[b, x], w.tour[b, y] = w.tour[b, y], w.tour[b, x]
    rotate_to_front(w, b, n)
    return whole_length(w, b, q, n) - before if w.metric == MATRIX else delta


@kernel
def rotate_to_front(w, b, n):
    """Rotates the tour so that node 0 is first."""
    start = 0
    for p in range(n):
        w.piece[p] = w.tour[b, p]
        if w.tour[b, p] == 0:
            start = p
    for p in range(n):
        node = w.piece[(start + p) % n]
        w.tour[b, p] = node
        w.pos[b, node] = p


@kernel
def whole_length(w, b, q, n):
    return segment_length(w, b, q, 0, n - 1) + travel(w, q, w.tour[b, n - 1], w.tour[b, 0])


@kernel
def rejoin(w, b, q, n, m, i, j, k):
    """Reconnects A = i+1..j and B = j+1..k and returns the change of the cost."""
    before = segment_length(w, b, q, i, k) + travel(w, q, w.tour[b, k], w.tour[b, (k + 1) % n])
    if m == 4:
        reverse_positions(w, b, i + 1, j)
        reverse_positions(w, b, j + 1, k)
    else:
        for p in range(i + 1, k + 1):
            w.piece[p] = w.tour[b, p]
        at = i + 1
        for c in range(k - j):
            w.tour[b, at] = w.piece[k - c] if m == 3 else w.piece[j + 1 + c]
            at += 1
        for c in range(j - i):
            w.tour[b, at] = w.piece[j - c] if m == 2 else w.piece[i + 1 + c]
            at += 1
        for p in range(i + 1, k + 1):
            w.pos[b, w.tour[b, p]] = p
    return segment_length(w, b, q, i, k) + travel(w, q, w.tour[b, k], w.tour[b, (k + 1) % n]) - before


@kernel
def fault(w, b):
    """The rule that a loaded state breaks, 0 if none.

    If `pos` leads each tour entry back to its position, all entries differ, so the tour has every node.
    """
    n = w.n_nodes[w.instance_row[b]]
    for k in range(w.N):
        if w.pos[b, w.tour[b, k]] != k:
            return MISPLACED
        if k >= n and w.tour[b, k] != k:
            return PADDED
    # Rewards are differences of these costs. Each step rounds a cost to float32, half a unit in its last place.
    slack = (1_000.0 + w.i[b]) * 2.0**-22 * n * longest_leg(w, b, n)
    if abs(w.cost_current[b] - length_of(w, b, n, w.tour)) > slack:
        return MISPRICED
    return BEST_MISPRICED if abs(w.cost_best[b] - length_of(w, b, n, w.best_tour)) > slack else 0


@kernel
def length_of(w, b, n, tours):
    q, length = w.instance_row[b], 0.0
    for k in range(n):
        length += travel(w, q, tours[b, k], tours[b, (k + 1) % n])
    return length


@kernel
def longest_leg(w, b, n):
    """An upper bound of the legs.

    By the triangle inequality two legs to node 0 bound the leg between their ends, up to the rounding of the metric.
    """
    q, most = w.instance_row[b], 0.0
    if w.metric == MATRIX:
        for i in range(n):
            for j in range(n):
                most = max(most, travel(w, q, i, j))
        return most
    for j in range(n):
        most = max(most, travel(w, q, 0, j))
    return 2.0 * most + (2.0 if w.metric in (ROUND, CEIL, TRUNC1) else 0.0)


TSPKopt.bind(generate=generate, reset=reset, step=step, legal=legal, derive_mask=mark, fault=fault)

__all__ = ["TSPKopt", "TSPKoptConfig", "generate", "legal", "reset", "step"]
