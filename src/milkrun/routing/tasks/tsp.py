"""The travelling salesman's checker: one closed tour through every node. Node 0 is a node like any other."""

from __future__ import annotations

import numpy as np

from milkrun.routing.tasks.base import BaseProblem, Faults, visits
from milkrun.routing.tasks.dataset import Bools, Dataset, Ints
from milkrun.routing.tasks.distances import Floats


class TSP(BaseProblem):
    """The first `n_nodes` entries of a row are its tour, closed from the last to the first; zeros follow.

    So the actions of both start modes are read alike: `free` (any order) and `depot` (customers, then node 0).
    """

    @classmethod
    def _length(cls, data: Dataset, plan: Ints) -> Floats:
        if plan.shape[1] == 0:
            return np.zeros(len(plan))
        # beyond its tour a row stays where it began, which closes the tour and adds legs of length 0
        closed = np.where(_in_tour(data, plan), plan, plan[:, :1])
        return data.length(np.concatenate([closed, plan[:, :1]], axis=1))

    @classmethod
    def _judge(cls, data: Dataset, plan: Ints, faults: Faults) -> None:
        in_tour = _in_tour(data, plan)
        late = (plan != 0) & ~in_tour
        faults.add(late, lambda b, k: f"node {plan[b, k]} follows the tour, which has {data.n_nodes[b]} nodes")
        # Zeros behind the tour are no visits of node 0: they count as a node beyond the last, which is cut off.
        seen = visits(np.where(in_tour, plan, data.num_nodes), data.num_nodes + 1)[:, :-1]
        faults.add(seen > 1, lambda b, i: f"node {i} is visited {seen[b, i]} times")
        missed = (seen == 0) & (np.arange(data.num_nodes) < data.n_nodes[:, None])
        faults.add(missed, lambda b, i: f"node {i} is never visited")


def _in_tour(data: Dataset, plan: Ints) -> Bools:
    return np.arange(plan.shape[1]) < data.n_nodes[:, None]
