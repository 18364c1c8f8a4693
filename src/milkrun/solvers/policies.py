"""Compiled policies without training, as baselines for learned ones.

A policy is called with a world and returns one action for each row, `actions = policy(world)`. World classes name their
policies; `policies_for("milkrun/CVRP-v0")` returns them.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from milkrun.core.arguments import check_seed
from milkrun.core.errors import ConfigError, RegistryError
from milkrun.core.kernels import kernel
from milkrun.core.references import refer, resolve
from milkrun.core.registry import world_spec
from milkrun.core.world import World
from milkrun.routing.darp.travel import distance32, travel_time
from milkrun.routing.distance import MATRIX, travel
from milkrun.routing.tsp_kopt import NODE, THREE
from milkrun.routing.wcvrp import FULL

Policy: TypeAlias = Callable[[World], np.ndarray]
Factory: TypeAlias = Callable[[int], Policy]


@dataclass(frozen=True)
class RandomPolicy:
    """Uniform among the allowed actions, from a stream of `seed` for each row.

    A draw depends only on the seeds, the row, its episode and its step, not on the number of calls. So a row draws the
    same in any batch, also in a continued one.
    """

    seed: int = 0

    def __post_init__(self) -> None:
        check_seed(self.seed)

    def __call__(self, world: World) -> np.ndarray:
        return world.sample_actions(self.seed)


def random_policy(seed: int = 0) -> RandomPolicy:
    """A random policy; the same seed draws the same actions in equal worlds."""
    return RandomPolicy(seed)


def require_fields(policy: str, world: Any, of: str, *needed: str) -> None:
    """Refuses a world that lacks fields read by a policy."""
    if lacking := [name for name in needed if not hasattr(world, name)]:
        raise ConfigError(
            f"{policy!r} is a policy of {of}: it reads {', '.join(map(repr, lacking))}, which "
            f"{type(world).__name__} does not have; policies_for lists the policies of a world"
        )


def nearest(world: Any) -> np.ndarray:
    """In routing: the nearest allowed customer, ties to the lower index; a depot only if none is allowed."""
    require_fields("nearest", world, "a vehicle that drives from node to node", "first_customer", "current_node")
    return world.map_rows(nearest_allowed, np.int64, world.first_customer)


@kernel
def nearest_allowed(w, b, first, _):
    """The nearest allowed node from `first` on, else of those before. Without a depot a free tour starts at node 0,
    where the vehicle is."""
    best = nearest_between(w, b, first, w.N)
    return best if best >= 0 else max(0, nearest_between(w, b, 0, first))


@kernel
def nearest_between(w, b, low, high):
    """The nearest allowed one of these nodes, -1 if none is allowed."""
    q = w.instance_row[b]
    here = w.current_node[b]
    best, shortest = -1, math.inf
    for j in range(low, high):
        if w.action_mask[b, j]:
            distance = travel(w, q, here, j)
            if distance < shortest:
                best, shortest = j, distance
    return best


def thrifty(world: Any) -> np.ndarray:
    """In the PCTSP: the most prize for its detour until the depot opens, then what saves more penalty than it costs."""
    require_fields("thrifty", world, "the prize-collecting TSP", "penalty", "prize_required")
    return world.map_rows(thriftiest)


@kernel
def thriftiest(w, b, _, __):
    q = w.instance_row[b]
    here, may_end = w.current_node[b], w.action_mask[b, 0]
    back = travel(w, q, here, 0)
    best, most = 0, 0.0 if may_end else -math.inf
    for j in range(1, w.N):
        if w.action_mask[b, j]:
            detour = travel(w, q, here, j) + travel(w, q, j, 0) - back
            worth = w.penalty[q, j] - detour if may_end else (w.prize[q, j] + 1e-9) / (detour + 1e-9)
            if worth > most:
                best, most = j, worth
    return best


def greedy(world: Any) -> np.ndarray:
    """In the profit and waste worlds: the allowed customer with the largest gain less detour, mandatory ones first.

    Returns to the depot if no customer pays and no mandatory one is open.
    """
    require_fields("greedy", world, "the worlds of profit and waste", "must_go", "gain_weight", "beta")
    gain = next(choose for field, choose in GAINS.items() if field in world.fields)
    return world.map_rows(gain, np.int64, 0)


@kernel
def greediest(w, b, gain, r, must, s, full, bonus):
    """The allowed customer of the largest gain less detour, 0 if none is positive; gains from `full` on earn a bonus.

    The detour is relative to a direct return. From the depot only the way out counts, since hardly any customer pays
    for a round trip alone.
    """
    q = w.instance_row[b]
    here = w.current_node[b]
    home = travel(w, q, here, 0)
    best, most, mandatory = 0, 0.0, False
    for j in range(1, w.N):
        if w.action_mask[b, j] and (must[s, j] or not mandatory):
            way = travel(w, q, here, j) + (travel(w, q, j, 0) if here != 0 else 0.0) - home
            worth = w.gain_weight * gain[r, j] - w.beta * way
            if gain[r, j] >= full:
                worth += bonus
            # the first mandatory customer replaces any optional one, even at a loss
            if worth > most or (must[s, j] and not mandatory):
                best, most, mandatory = j, worth, must[s, j]
    return best


@kernel
def best_prize(w, b, _, __):
    q = w.instance_row[b]
    return greediest(w, b, w.prize, q, w.must_go, q, math.inf, 0.0)


@kernel
def best_waste(w, b, _, __):
    q = w.instance_row[b]
    return greediest(w, b, w.waste, q, w.must_go, q, w.max_waste[q] * FULL, w.overflow_price)


@kernel
def best_expected(w, b, _, __):
    q = w.instance_row[b]
    return greediest(w, b, w.expected_waste, b, w.must_go, q, w.max_waste[q] * FULL, w.overflow_price)


@kernel
def best_tonight(w, b, _, __):
    """A bin that an average day would fill counts as full."""
    q = w.instance_row[b]
    here = w.current_node[b]
    home = travel(w, q, here, 0)
    best, most, mandatory = 0, 0.0, False
    for j in range(1, w.N):
        if w.action_mask[b, j] and (w.must_go[b, j] or not mandatory):
            way = travel(w, q, here, j) + (travel(w, q, j, 0) if here != 0 else 0.0) - home
            worth = w.gain_weight * w.expected_waste[b, j] - w.beta * way
            if w.expected_waste[b, j] + w.fill_mean[q, j] >= w.max_waste[q] * FULL:
                worth += w.overflow_price
            if worth > most or (w.must_go[b, j] and not mandatory):
                best, most, mandatory = j, worth, w.must_go[b, j]
    return best


GAINS = {"prize": best_prize, "fill_mean": best_tonight, "expected_waste": best_expected, "waste": best_waste}
"""Field -> kernel; the first of these fields that a world has selects the kernel."""


def soonest(world: Any) -> np.ndarray:
    """In dial-a-ride: the allowed stop with the earliest start of service plus 0.3 times the travel time.

    The depot only if no stop is allowed. Under the rule `deadlines`, which has no waiting: the nearest stop.
    """
    require_fields("soonest", world, "dial-a-ride", "current_agent", "vehicle_finished")
    return world.map_rows(nearest_stop if world.config.rule == "deadlines" else soonest_stop, np.int64)


@kernel
def soonest_stop(w, b, _, __):
    q = w.instance_row[b]
    here = w.current_node[b]
    best, least = 0, math.inf
    for j in range(1, w.N):
        if w.action_mask[b, j]:
            way = travel_time(w, q, here, j)
            start = max(w.tight_open[q, j], w.current_time[b] + (w.service_time[q, here] + way))
            if start + 0.3 * way < least:
                best, least = j, start + 0.3 * way
    return best


@kernel
def nearest_stop(w, b, _, __):
    q = w.instance_row[b]
    best, shortest = 0, math.inf
    for j in range(1, w.N):
        if w.action_mask[b, j]:
            way = np.float64(distance32(w, q, w.current_node[b], j))
            if way < shortest:
                best, shortest = j, way
    return best


def steepest(world: Any) -> np.ndarray:
    """In the world that improves tours: the 2-opt move of each row that shortens the tour most.

    At a local optimum it is the move that costs least, so the search leaves it again.
    """
    if not hasattr(world, "action_mode"):
        raise ConfigError(f"'steepest' is a policy of the world that improves a tour, not of {type(world).__name__}")
    return world.map_rows(best_move, np.int64)


@kernel
def best_move(w, b, x, y):
    q = w.instance_row[b]
    n = np.int64(w.n_nodes[q])
    last = n - 2 if w.moves == THREE else n - 1
    best, least = 0, math.inf
    for i in range(n - 2):
        along = back = 0.0  # the segment i+1..j in both directions
        for j in range(i + 2, last + 1):
            p, a, z, s = w.tour[b, i], w.tour[b, i + 1], w.tour[b, j], w.tour[b, (j + 1) % n]
            # only a matrix may depend on the direction; under other metrics the two sums cancel
            if w.metric == MATRIX:
                along += travel(w, q, w.tour[b, j - 1], z)
                back += travel(w, q, z, w.tour[b, j - 1])
            # Reversing all nodes but the first gives the same cycle, which is no move of the world.
            if i == 0 and j == n - 1:
                continue
            change = travel(w, q, p, z) + travel(w, q, a, s) - travel(w, q, p, a) - travel(w, q, z, s) + back - along
            if change < least:
                least = change
                best = (np.int64(a) * w.N + z) if w.action_mode == NODE else (i * w.N + j)
    return best * w.N if w.moves == THREE else best


FILES = {".safetensors": "milkrun.learn.trained:player"}
"""Suffix of a policy's file -> the function that reads it: (path, decode) -> factory(seed) -> policy."""


def policy_file(name: str) -> Factory | None:
    """The factory of a policy that is named by its file, as "best.safetensors" or "best.safetensors:starts"; None for
    other names."""
    for suffix, reader in FILES.items():
        path, found, decode = name.partition(f"{suffix}:") if f"{suffix}:" in name else (name, "", "")
        if found or name.endswith(suffix):
            factory: Factory = resolve(reader, "FILES")(path + suffix if found else path, decode or None)
            return factory
    return None


def split_names(text: str) -> list[str]:
    """The names in a list with commas; the "x8" of a decoding belongs to the name before it."""
    return [name.strip() for name in re.split(r",(?!\s*x8\s*(?:,|$))", text)]


_added: dict[str, dict[str, Factory]] = {}
"""Policies added by `add_policy`, by family or by id of a world."""


def policies_for(world_id: str) -> dict[str, Factory]:
    """Name -> factory(seed) -> policy: "random", then those of the world class, strongest first, then added ones."""
    spec = world_spec(world_id)
    cls = spec.load()
    own = {name: partial(_made, cls, name) for name in cls.policies}
    return {"random": random_policy, **own, **_added.get(spec.id, _added.get(spec.family, {}))}


def _made(cls: Any, name: str, seed: int) -> Policy:
    """The policy of a name: a function itself, or a new object of a class, with the seed if it takes one."""
    found: Any = refer(cls, "policies", name)
    if isinstance(found, type):
        found = found(seed=seed) if "seed" in inspect.signature(found).parameters else found()
    if not callable(found):
        raise RegistryError(f"{cls.__name__}.policies[{name!r}] is a {type(found).__name__}, not a function of a world")
    policy: Policy = found
    return policy


def add_policy(owner: str, name: str, factory: Factory) -> None:
    """Adds a policy by name to a family, or by id to one world, which then ignores the additions of its family."""
    if not isinstance(owner, str) or not isinstance(name, str) or not callable(factory):
        raise RegistryError(
            f"add_policy({owner!r}, {name!r}, {factory!r}): takes a family or an id, a name, and a "
            "function of a seed that returns a policy"
        )
    if name == "random":
        raise RegistryError("the policy 'random' belongs to every world and cannot be replaced")
    _added.setdefault(owner, {})[name] = factory
