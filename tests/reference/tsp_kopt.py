"""The scalar reference of the k-opt improvement world: one row, plain Python, written from the rules alone.

Each step changes a closed tour, node 0 first, by one 2-opt or 3-opt move. The model cuts and joins lists by the text of
the rules and measures both tours in full, so asymmetric matrices need no special case.
"""

from __future__ import annotations

from collections.abc import Sequence

from .tsp import distance_table, f32

__all__ = ["KoptModel", "nearest_neighbour_tour"]


def nearest_neighbour_tour(d: list[list[float]], n_nodes: int) -> list[int]:
    """The `greedy` start: from 0 always to the nearest unvisited node, the lower index on a tie."""
    tour, left = [0], list(range(1, n_nodes))
    while left:
        tour.append(min(left, key=lambda j: (d[tour[-1]][j], j)))
        left.remove(tour[-1])
    return tour


class KoptModel:
    """Improve a tour. Actions: (i, j) or i*n+j; in node mode (u, v) or u*n+v; with `3opt` (m, i, j, k).

    `init` is the first tour, node 0 first; padding nodes follow the real ones. The tour is a list that `step` replaces
    and never changes: a shallow copy of a model is a snapshot of it.
    """

    def __init__(
        self,
        locs: Sequence | None,
        init: Sequence[int],
        moves: str = "2opt",
        action_mode: str = "position",
        reward_mode: str = "best",
        metric: str = "euclid",
        dist: Sequence | None = None,
        n_nodes: int | None = None,
        max_steps: int | None = 200,
    ) -> None:
        if moves not in ("2opt", "3opt") or action_mode not in ("position", "node"):
            raise ValueError(f"moves {moves!r} with action_mode {action_mode!r} is unknown")
        if moves == "3opt" and action_mode == "node":
            raise ValueError("action_mode node is for moves 2opt only")
        if reward_mode not in ("best", "current"):
            raise ValueError(f"reward_mode {reward_mode!r} is neither best nor current")
        self.d = distance_table(metric, locs, dist)
        self.num_nodes = len(self.d)
        self.n_nodes = self.num_nodes if n_nodes is None else int(n_nodes)
        self.init = [int(node) for node in init]
        if self.init[:1] != [0] or sorted(self.init[: self.n_nodes]) != list(range(self.n_nodes)):
            raise ValueError(f"init {self.init} is not a tour of nodes 0..{self.n_nodes - 1} with 0 first")
        self.moves = moves
        self.action_mode = action_mode
        self.reward_mode = reward_mode
        self.max_steps = max_steps
        nodes = range(self.num_nodes)
        is_open = self._is_open_2opt if moves == "2opt" else self._has_third_cut
        self._mask_of_positions = [is_open(i, j) for i in nodes for j in nodes]
        self.reset()

    @property
    def pos(self) -> list[int]:
        """The position of each node in the tour."""
        place = {node: p for p, node in enumerate(self.tour)}
        return [place[node] for node in range(self.num_nodes)]

    @property
    def finished(self) -> bool:
        return self.terminated or self.truncated

    def allowed(self) -> list[int]:
        return [index for index, is_allowed in enumerate(self.action_mask) if is_allowed]

    def length(self, tour: list[int]) -> float:
        cycle = tour[: self.n_nodes]
        return sum(self.d[a][b] for a, b in zip(cycle, [*cycle[1:], cycle[0]], strict=True))

    def reset(self) -> None:
        self.tour = [*self.init[: self.n_nodes], *range(self.n_nodes, self.num_nodes)]
        self.best_tour = self.tour
        self.cost_current = self.cost_best = f32(self.length(self.tour))
        self.i = 0
        self.reward = 0.0
        self.terminated = False
        self.truncated = False
        self.illegal = False
        self.action_mask = self._mask()

    def step(self, action: int | Sequence[int]) -> None:
        if self.finished:
            self.reward = 0.0
            return
        self.i += 1
        current, best = self.cost_current, self.cost_best
        after = self._moved(action)
        self.illegal = after is None
        if after is not None:
            self.cost_current = f32(self.cost_current + (self.length(after) - self.length(self.tour)))
            self.tour = after
            if self.cost_current < self.cost_best:
                self.cost_best, self.best_tour = self.cost_current, after
        self.truncated = self.max_steps is not None and self.i >= self.max_steps
        self.reward = f32(best - self.cost_best if self.reward_mode == "best" else current - self.cost_current)
        self.action_mask = self._mask()

    def _moved(self, action: int | Sequence[int]) -> list[int] | None:
        """The tour after the action, None if the action is illegal."""
        if self.moves == "3opt":
            m, i, j, k = (int(x) for x in action)
            return self._glued(m, i, j, k) if self._is_open_3opt(m, i, j, k) else None
        if hasattr(action, "__len__"):
            first, second = (int(x) for x in action)
        else:
            first, second = divmod(int(action), self.num_nodes)
        if self.action_mode == "position":
            return self._reversed_between(first, second) if self._is_open_2opt(first, second) else None
        return self._reversed_path(first, second) if self._is_open_path(first, second) else None

    # Moves.

    def _reversed_between(self, i: int, j: int) -> list[int]:
        t = self.tour
        return [*t[: i + 1], *reversed(t[i + 1 : j + 1]), *t[j + 1 :]]

    def _reversed_path(self, u: int, v: int) -> list[int]:
        n, cycle = self.n_nodes, self.tour[: self.n_nodes]
        start, count = cycle.index(u), self._path_count(u, v)
        path = [cycle[(start + s) % n] for s in range(count)]
        others = [cycle[(start + s) % n] for s in range(count, n)]
        around = [*reversed(path), *others]
        zero = around.index(0)
        return [*around[zero:], *around[:zero], *self.tour[n:]]

    def _glued(self, m: int, i: int, j: int, k: int) -> list[int]:
        if m == 0:
            return self._reversed_between(i, j)
        t = self.tour
        a, b = t[i + 1 : j + 1], t[j + 1 : k + 1]
        middle = {1: [*b, *a], 2: [*b, *a[::-1]], 3: [*b[::-1], *a], 4: [*a[::-1], *b[::-1]]}[m]
        return [*t[: i + 1], *middle, *t[k + 1 :]]

    # Masks.

    def _path_count(self, u: int, v: int) -> int:
        """The number of nodes on the path from u forward to v, both included."""
        return (self.tour.index(v) - self.tour.index(u)) % self.n_nodes + 1

    def _is_open_2opt(self, i: int, j: int) -> bool:
        n = self.n_nodes
        return 0 <= i and i + 2 <= j <= n - 1 and (i, j) != (0, n - 1)

    def _is_open_path(self, u: int, v: int) -> bool:
        n = self.n_nodes
        return 0 <= u < n and 0 <= v < n and 2 <= self._path_count(u, v) <= n - 2

    def _has_third_cut(self, i: int, j: int) -> bool:
        return 0 <= i < j <= self.n_nodes - 2

    def _is_open_3opt(self, m: int, i: int, j: int, k: int) -> bool:
        """m = 0 ignores k."""
        if not self._has_third_cut(i, j):
            return False
        if m == 0:
            return self._is_open_2opt(i, j)
        if not (1 <= m <= 4 and j < k <= self.n_nodes - 1):
            return False
        old, new = self.tour[: self.n_nodes], self._glued(m, i, j, k)[: self.n_nodes]
        return new not in (old, [old[0], *old[:0:-1]])

    def _mask(self) -> list[bool]:
        """One entry for each pair, i*n+j. By position it is constant; with 3opt it allows the pairs that some k
        completes."""
        n = self.num_nodes
        if self.finished:
            return [index == 0 for index in range(n * n)]
        return self._mask_of_paths() if self.action_mode == "node" else self._mask_of_positions

    def _mask_of_paths(self) -> list[bool]:
        n, n_true = self.num_nodes, self.n_nodes
        mask = [False] * (n * n)
        twice_around = self.tour[:n_true] * 2
        for start, u in enumerate(self.tour[:n_true]):
            for v in twice_around[start + 1 : start + n_true - 2]:
                mask[u * n + v] = True
        return mask
