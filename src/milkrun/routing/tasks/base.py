"""The base of all checkers: reads a solution, prices it, and names the rule that it breaks.

The checkers are independent of the worlds. They are written from the rules of the problems alone, work on finished
solutions in numpy float64, and import no kernel and no world. A problem is a subclass of `BaseProblem` with its rules
in `_find_faults`. If its cost is more than length, the amounts are in `_parts` and `terms`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from milkrun.core.errors import BadSolution, ConfigError, ShapeError, did_you_mean
from milkrun.routing.tasks.dataset import Bools, Dataset, Ints, like, to_numpy
from milkrun.routing.tasks.distances import Floats

TOL = 1e-5
WEIGHTS = ("prize", "waste", "length", "overflow", "failure", "lost", "penalty")
PLAN_SHAPE = {2: "(B, L)", 3: "(B, T, L)"}


def fits(x: Any, limit: Any) -> Bools:
    """x <= limit within the tolerance of the family; the cap of 0.5 keeps whole numbers of any size exact."""
    within: Bools = np.less_equal(x, limit + np.minimum(0.5, TOL * np.maximum(1.0, np.abs(limit))))
    return within


class Faults:
    """The rules that the rows of a batch break. A row keeps its first fault, whose sentence is formatted on demand."""

    def __init__(self, batch: int) -> None:
        self.valid: Bools = np.ones(batch, np.bool_)
        self._found: list[tuple[Ints, Callable[[int], str]]] = []

    def add(self, wrong: Bools, sentence: Callable[[int, int], str]) -> None:
        """Adds a fault where `wrong` (B, K); `sentence(b, k)` describes the first wrong entry k of row b."""
        broken: Bools = np.any(wrong, axis=1)
        self._found.append((np.flatnonzero(broken & self.valid), lambda b: sentence(b, int(wrong[b].argmax()))))
        self.valid &= ~broken

    def add_rows(self, wrong: Bools, sentence: Callable[..., str], *values: Any) -> None:
        """Adds a fault where `wrong` (B,); `sentence` takes the row's entry of each of `values` (B,)."""
        rows = np.flatnonzero(wrong & self.valid)
        if len(rows):
            kept = [value[rows] for value in values]
            # `rows` ascend, so searchsorted finds the entry of row b.
            self._found.append((rows, lambda b: sentence(*(v[np.searchsorted(rows, b)] for v in kept))))
            self.valid[rows] = False

    def reasons(self) -> list[str | None]:
        """The sentence of each faulty row, None of the others."""
        reasons: list[str | None] = [None] * len(self.valid)
        for rows, sentence in self._found:
            for b in rows.tolist():
                reasons[b] = sentence(b)
        return reasons

    def first(self) -> BadSolution:
        """The error for the lowest row that breaks a rule."""
        b, sentence = min(((int(rows[0]), say) for rows, say in self._found if len(rows)), key=lambda found: found[0])
        others = len(self.valid) - int(self.valid.sum()) - 1
        return BadSolution(f"row {b}: {sentence(b)}" + (f" ({others} more rows break a rule)" if others else ""))


class BaseProblem:
    """A tour from the depot and back, `pi` (B, L) node numbers padded with 0; its cost is its length.

    `dataset` is a dict or TensorDict in either layout, `metric` one of METRICS (default: `matrix` if there is one,
    else `euclid`). Results are arrays of the type of `pi`, torch for torch; numbers are float64.
    """

    limits: ClassVar[tuple[str, ...]] = ()  # dataset keys that check or get_costs may override
    modes: ClassVar[Mapping[str, tuple[Any, ...]]] = {}  # rules that they may choose, the default first
    terms: ClassVar[Mapping[str, tuple[str, float]]] = {"length": ("length", 1.0)}  # part -> (weight, sign)
    plan_axes: ClassVar[int] = 2
    calls: ClassVar[int] = 1  # how often a tour may visit a customer
    reader: ClassVar[type[Dataset]] = Dataset

    @classmethod
    def validate_tours(cls, pi: Any) -> bool:
        """True if `pi` (..., L) holds integers >= 0 and visits no customer more than `calls` times within a tour.

        0, the depot, may recur.
        """
        plan = to_numpy(pi)
        if plan.size == 0:
            return True
        if plan.dtype.kind not in "iu" or plan.ndim == 0 or plan.min() < 0:
            return False
        # In sorted order a number that occurs too often equals the entry `calls` places later.
        ordered = np.sort(plan, axis=-1)
        later = ordered[..., cls.calls :]
        return not ((later == ordered[..., : -cls.calls]) & (later > 0)).any()

    @classmethod
    def get_tour_length(cls, dataset: Any, pi: Any, dist_matrix: Any = None, *, metric: str | None = None) -> Any:
        """Length (B,) of 0 -> pi -> 0. Only the existence of the nodes is checked."""
        plan = _read_plan(pi, cls.plan_axes)
        data = cls.reader(dataset, len(plan), metric=metric, dist_matrix=dist_matrix)
        plan, faults = _existing(data, plan)
        if not faults.valid.all():
            raise faults.first()
        return like(pi, cls._length(data, plan))

    @classmethod
    def check(cls, dataset: Any, pi: Any, *, metric: str | None = None, **limits: Any) -> tuple[Any, list[str | None]]:
        """Validity (B,) of each row, and for the invalid ones the first broken rule as a sentence."""
        *_, faults = cls._evaluate(dataset, pi, metric, limits)
        return like(pi, faults.valid), faults.reasons()

    @classmethod
    def get_costs(
        cls,
        dataset: Any,
        pi: Any,
        cw_dict: Mapping[str, float] | None = None,
        *,
        metric: str | None = None,
        on_violation: str = "raise",
        **limits: Any,
    ) -> tuple[Any, dict[str, Any], None]:
        """Cost (B,) = - objective, the raw amounts, and None.

        A row that breaks a rule raises `BadSolution`, or costs inf with `on_violation="inf"`. Its amounts are then
        those of the plan without nonexistent nodes; where plans are replayed, up to the broken rule.
        """
        if not _is_one_of(on_violation, ("raise", "inf")):
            raise ConfigError(f"on_violation is {on_violation!r}, allowed are 'raise' and 'inf'")
        weights = _read_weights(cw_dict)
        data, plan, replay, faults = cls._evaluate(dataset, pi, metric, limits)
        if on_violation == "raise" and not faults.valid.all():
            raise faults.first()
        parts = cls._parts(data, plan, replay)
        cost = np.where(faults.valid, cls._price(data, parts, weights), np.inf)
        return like(pi, cost), {name: like(pi, amount) for name, amount in parts.items()}, None

    @classmethod
    def _evaluate(
        cls, dataset: Any, pi: Any, metric: str | None, limits: Mapping[str, Any]
    ) -> tuple[Dataset, Ints, Any, Faults]:
        modes = {key: allowed[0] for key, allowed in cls.modes.items()}
        overrides = {}
        for key, value in limits.items():
            if key in cls.limits:
                overrides[key] = value
            elif key not in modes:
                raise ConfigError(f"{cls.__name__} has no limit {key!r}{did_you_mean(key, [*cls.limits, *modes])}")
            elif not _is_one_of(value, cls.modes[key]):
                raise ConfigError(f"{key} is {value!r}, allowed are {' and '.join(map(repr, cls.modes[key]))}")
            else:
                modes[key] = value
        plan = _read_plan(pi, cls.plan_axes)
        data = cls.reader(dataset, len(plan), metric=metric, overrides=overrides, modes=modes)
        plan, faults = _existing(data, plan)
        replay = cls._find_faults(data, plan, faults)
        return data, plan, replay, faults

    @classmethod
    def _length(cls, data: Dataset, plan: Ints) -> Floats:
        return data.length(walk(plan))

    @classmethod
    def _find_faults(cls, data: Dataset, plan: Ints, faults: Faults) -> Any:
        """Adds the broken rules (here: a customer visited twice); the result is passed to `_parts`."""
        seen = visits(plan, data.num_nodes)
        seen[:, 0] = 0
        faults.add(seen > 1, lambda b, c: f"customer {c} is visited {seen[b, c]} times")

    @classmethod
    def _parts(cls, data: Dataset, plan: Ints, replay: Any) -> dict[str, NDArray[Any]]:
        """The raw amounts that the objective weighs."""
        return {"length": cls._length(data, plan)}

    @classmethod
    def default_weights(cls, n: int, side: float = 1.0, max_waste: Any = 1.0) -> dict[str, Any]:
        """The weights for `n` customers in a box of this side; `max_waste` may be an array."""
        return {"length": 1.0}

    @classmethod
    def _default_weights(cls, data: Dataset) -> Mapping[str, Any]:
        """The weights that the caller does not give."""
        return cls.default_weights(data.num_nodes - 1)

    @classmethod
    def _price(cls, data: Dataset, parts: Mapping[str, NDArray[Any]], weights: Mapping[str, float]) -> Floats:
        """Cost (B,) of these amounts."""
        full = {**cls._default_weights(data), **weights}
        cost = np.zeros(len(data.rows))
        for name, (weight, sign) in cls.terms.items():
            amount = parts[name].reshape(len(cost), -1).sum(axis=1)  # over the days, if any
            cost += sign * full[weight] * amount
        return cost


def walk(plan: Ints) -> Ints:
    """The nodes driven, 0 -> plan -> 0, (B, L + 2)."""
    return np.pad(plan, ((0, 0), (1, 1)))


def visits(plan: Ints, num_nodes: int) -> Ints:
    """How often each node occurs in each row, (B, N)."""
    # Row b uses the cells b N .. b N + N - 1, so that one bincount serves all rows. `_existing` has replaced
    # nonexistent nodes, so none falls into the cells of another row.
    cells = plan + num_nodes * np.arange(len(plan))[:, None]
    return np.bincount(cells.ravel(), minlength=len(plan) * num_nodes).reshape(len(plan), num_nodes)


def trip_of_leg(nodes: Ints) -> Ints:
    """The trip of each leg of a walk, (B, M - 1), counted from 1; depot to depot starts no trip."""
    return np.cumsum((nodes[:, :-1] == 0) & (nodes[:, 1:] != 0), axis=1)


def trip_totals(trip: Ints, values: Floats) -> Floats:
    """Sums of `values` (B, M) over each trip, (B, trips + 1); column 0 holds the legs before the first trip."""
    width = int(trip.max(initial=0)) + 1
    cells = trip + width * np.arange(len(trip))[:, None]
    totals = np.bincount(cells.ravel(), weights=values.ravel(), minlength=len(trip) * width)
    return np.asarray(totals, np.float64).reshape(len(trip), width)


def _is_one_of(value: Any, allowed: tuple[Any, ...]) -> bool:
    return isinstance(value, (str, bool, np.bool_, int)) and value in allowed


def _read_weights(given: Any) -> dict[str, float]:
    """The caller's weights by name, each a finite number."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise ConfigError(f"cost weights are a mapping of names to numbers, not a {type(given).__name__}")
    for key, value in given.items():
        if key not in WEIGHTS:
            raise ConfigError(f"cost weight {key!r} is unknown{did_you_mean(str(key), WEIGHTS)}")
        if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, np.number)):
            raise ConfigError(f"cost weight {key!r} is {value!r}, expected a number")
        if not np.isreal(value) or not np.isfinite(float(value.real)):
            raise ConfigError(f"cost weight {key!r} is {value!r}, must be finite")
    return {key: float(value) for key, value in given.items()}


def _read_plan(pi: Any, axes: int) -> Ints:
    plan = to_numpy(pi)
    if plan.ndim != axes or plan.dtype.kind not in "iu":
        raise ShapeError(f"pi has shape {plan.shape} and dtype {plan.dtype}, expected {PLAN_SHAPE[axes]} integers")
    return plan.astype(np.int64, copy=False)


def _existing(data: Dataset, plan: Ints) -> tuple[Ints, Faults]:
    """The plan with the depot in place of nonexistent nodes, and the faults for them."""
    flat = plan.reshape(len(plan), -1) if plan.size else np.zeros((len(plan), 0), np.int64)
    unknown = (flat < 0) | (flat >= data.n_nodes[:, None])
    faults = Faults(len(plan))
    faults.add(unknown, lambda b, k: f"node {flat[b, k]} does not exist, nodes are 0..{data.n_nodes[b] - 1}")
    return plan if faults.valid.all() else np.where(unknown, 0, flat).reshape(plan.shape), faults
