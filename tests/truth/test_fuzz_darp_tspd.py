"""Configurations, instances and files of the dial-a-ride problem and of the TSP with a drone, with extreme values.

Each input raises a MilkrunError or is a playable problem. A random play then ends, visits valid states only, and has a
finite objective that equals the checker's. Each case has its own seed, which the failure prints.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

import milkrun
from milkrun.core.errors import MilkrunError
from milkrun.core.fields import Role
from milkrun.delivery.instances import TSPDInstance, load_tspd
from milkrun.delivery.tasks import TSPDProblem
from milkrun.delivery.tspd import TSPD
from milkrun.routing.darp import DARP
from milkrun.routing.instances import DARPInstance, cordeau
from milkrun.routing.tasks import DARPProblem
from tests.states import arrays_of, check

DARP_ID, TSPD_ID = "milkrun/DARP-v0", "milkrun/TSPD-v0"

NUMBERS = [
    0, 1, -1, 2, 3, 10, 60, 100, 0.5, -0.0, 1e-30, 1e-9, 1e-6, 1e-3, 1e6, 1e9, 1e9 + 64, 1e12, 1e30, -1e30, 1e38, 1e300,
    math.nan, math.inf, -math.inf, 2**15, 2**16, 2**31 - 1, 2**31, -(2**31), 2**32, 2**53, 2**62, 2**63 - 1,
]  # fmt: skip
STRANGE = [2**63, 10**400, -(10**400), True, "1", "seed", None, [1], 1j, np.float32(3), np.int8(2)]
SIZES = [1, 2, 3, 4, 0, -1, 2**31, 2**63, 2.0, None, True]  # an accepted size stays small

CONFIGS = {
    "deadlines": (
        "speed",
        "penalty_unvisited",
        "max_steps",
        "vehicle_capacity",
        "min_loc",
        "max_loc",
        "min_demand",
        "max_demand",
        "min_pickup_tw",
        "max_pickup_tw",
        "depot_deadline",
        "reward",
        "metric",
        "record",
    ),
    "classic": (
        "speed",
        "penalty_unvisited",
        "max_steps",
        "vehicle_capacity",
        "max_onboard",
        "style",
        "side",
        "window_width",
        "open_end",
        "max_duration",
        "max_ride",
        "service",
        "reward",
        "metric",
        "record",
    ),
    "tspd": ("alpha", "max_fly", "max_steps", "law"),
}
WORDS = {
    "reward": ["dense", "terminal"],
    "metric": ["euclid", "matrix"],
    "style": ["a", "b"],
    "law": ["uniform", "singlecenter", "doublecenter"],
    "record": [True, False],
}


def any_number(rng, strange=0.1):
    if rng.random() < strange:
        return STRANGE[rng.integers(len(STRANGE))]
    if rng.random() < 0.3:
        return float(rng.integers(-5, 200)) if rng.random() < 0.5 else int(rng.integers(-5, 200))
    return NUMBERS[rng.integers(len(NUMBERS))]


def any_size(rng):
    return SIZES[rng.integers(len(SIZES))] if rng.random() < 0.15 else int(rng.integers(1, 5))


def play(world, rng):
    """A random play with some illegal actions: all states are valid, it ends, and the checker agrees with the
    return."""
    rows = np.arange(world.num_envs)
    longest = 3 * (world.sizes["N"] + world.sizes.get("V", 0)) + 60
    for turn in range(longest):
        check(world, arrays_of(world))
        live = rows[~world.done]
        if not len(live):
            break
        assert world.action_mask[live].any(axis=1).all()
        actions = world.sample_actions(7, turn)[live]
        wild = rng.random(len(live)) < 0.1
        world.step(np.where(wild, rng.integers(-1, world.num_actions + 1, len(live)), actions), live)
    assert world.done.all(), "the play does not end"
    world.observe()
    assert np.isfinite(world.objective).all() and np.isfinite(world.reward).all()
    if not getattr(world.config, "record", True):
        return
    fields = [f.name for f in world.fields.values() if f.role is Role.INSTANCE and 0 not in f.shape(world.sizes)]
    ended = np.flatnonzero(world.terminated)
    data = {name: getattr(world, name)[world.instance_row[ended]] for name in fields}
    problem = TSPDProblem if isinstance(world, TSPD) else DARPProblem
    options = {} if isinstance(world, TSPD) else world.task_options(world.config)
    if len(ended):
        cost = problem.get_costs(data, world.solution()[ended], **options)[0]
        np.testing.assert_allclose(cost, -world.objective[ended], rtol=1e-4, atol=1e-9)


def refused_or_played(begin, rng):
    """Returns whether it was refused; plays it otherwise."""
    try:
        world = begin()
    except MilkrunError:
        return True
    play(world, rng)
    return False


def begin_config(rng):
    kind = ("deadlines", "classic", "tspd")[rng.integers(3)]
    given = {}
    for name in rng.choice(CONFIGS[kind], rng.integers(0, 4), replace=False).tolist():
        words = WORDS.get(name)
        given[name] = words[rng.integers(len(words))] if words and rng.random() < 0.8 else any_number(rng)
    if kind == "tspd":
        given["num_nodes"] = any_size(rng)
    else:
        given |= {"rule": kind, "num_requests": any_size(rng), "num_agents": any_size(rng)}
        if kind == "classic" and rng.random() < 0.7:
            given.setdefault("max_duration", 240.0)

    def begin():
        world = milkrun.make(TSPD_ID if kind == "tspd" else DARP_ID, num_envs=2, seed=3, autoreset="disabled", **given)
        world.reset()
        return world

    return begin


def spoil(fields, rng):
    """Changes one to three entries of the arrays; sometimes replaces or removes a whole array, its dtype or its
    shape."""
    fields = {name: np.array(array) for name, array in fields.items()}
    for _ in range(rng.integers(1, 4)):
        name = list(fields)[rng.integers(len(fields))]
        array, value, how = fields[name], any_number(rng), rng.random()
        if how < 0.03:
            del fields[name]
            if not fields:
                return {"locs": np.zeros(0)}
        elif how < 0.06:
            fields[name] = array[..., :-1] if array.ndim else array[None]
        elif how < 0.1:
            fields[name] = np.full(array.shape, value, dtype=object if not np.isscalar(value) else None)
        else:
            if isinstance(value, float) and array.dtype.kind != "f" and (rng.random() < 0.05):
                array = array.astype(np.float64)
            if array.size:
                flat = array.reshape(-1).copy()
                try:
                    flat[rng.integers(array.size)] = value
                except (OverflowError, ValueError, TypeError):  # this dtype cannot hold the value
                    continue
                fields[name] = flat.reshape(array.shape)
    return fields


def drawn_darp(rng, kind):
    requests, vehicles = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    options = {"rule": kind, "num_requests": requests, "num_agents": vehicles}
    if kind == "classic":
        options |= {"max_duration": float(rng.integers(60, 300)), "metric": ("euclid", "matrix")[rng.integers(2)]}
    if rng.random() < 0.2:
        options["speed"] = (1e-3, 0.5, 1.0, 30.0, 1e9)[rng.integers(5)]
    return options


def begin_instance(rng):
    kind = ("deadlines", "classic", "tspd")[rng.integers(3)]
    seed = int(rng.integers(2**31))
    if kind == "tspd":
        make = {"id": TSPD_ID, "num_nodes": int(rng.integers(2, 7)), "max_fly": (math.inf, 60.0)[rng.integers(2)]}
    else:
        make = {"id": DARP_ID, **drawn_darp(rng, kind)}
    draw = np.random.default_rng(int(rng.integers(2**31)))

    def begin():
        world = milkrun.make(num_envs=2, seed=seed, autoreset="disabled", **make)
        world.draw_instances()
        derived = ("tight_open", "tight_close", "fly_on")
        fields = {
            f.name: getattr(world, f.name)
            for f in world.fields.values()
            if f.role is Role.INSTANCE and f.name not in derived and 0 not in f.shape(world.sizes)
        }
        world.reset(instance=spoil(fields, draw))
        return world

    return begin


def begin_data_class(rng):
    """The instance classes, and a padded world of a spoilt and a sound instance."""
    kind = ("darp", "tspd")[rng.integers(2)]
    seed = int(rng.integers(2**31))
    draw = np.random.default_rng(int(rng.integers(2**31)))
    cls, data, options = (
        (DARP, DARPInstance, {"num_requests": 2, "num_agents": 2, "max_duration": 200.0})
        if kind == "darp"
        else (TSPD, TSPDInstance, {"num_nodes": 5})
    )

    def begin():
        world = milkrun.make(cls.id, num_envs=1, seed=seed, **options)
        world.reset()
        row = {f.name: getattr(world, f.name)[0] for f in world.fields.values() if f.role is Role.INSTANCE}
        sound = data.of_row("sound", row)
        plain = {name: array[0] for name, array in sound.fields().items()}
        return cls.from_instances([sound, data(name="spoilt", **{**plain, **spoil(plain, draw)})], autoreset="disabled")

    return begin


CORDEAU = """2 2 300 3 30
0 0.000 0.000 0 0 0 480
1 -1.198 -5.164 3 1 0 1440
2 5.573 7.114 3 1 80 95
3 -6.614 0.072 3 -1 150 165
4 -7.667 9.934 3 -1 0 1440
5 0.000 0.000 0 0 0 480
"""
BOUMAN = """#MAXFLY 40.0
#NOVISIT 2
/*cost*/ 1.0 0.5 4
0.0 0.0 depot
3.0 4.0 loc1
30.0 4.0 loc2
7.5 8.0 loc3
"""


def begin_file(rng, folder):
    kind = ("cordeau", "bouman")[rng.integers(2)]
    words = [line.split(" ") for line in (CORDEAU if kind == "cordeau" else BOUMAN).split("\n")]
    for _ in range(rng.integers(1, 4)):
        line = words[rng.integers(len(words) - 1)]
        line[rng.integers(len(line))] = str(any_number(rng, 0.2))
    path = folder / "spoilt.txt"
    path.write_text("\n".join(" ".join(line) for line in words))

    def begin():
        if kind == "cordeau":
            return DARP.from_instances([cordeau.load(path)], autoreset="disabled")
        return TSPD.from_instances([load_tspd(path)], autoreset="disabled")

    return begin


def check_dataset(rng):
    """The checkers alone, with spoilt data and any plan: a cost, inf for an invalid plan, or a refusal."""
    kind = ("deadlines", "classic", "tspd")[rng.integers(3)]
    if kind == "tspd":
        world = milkrun.make(TSPD_ID, num_envs=2, seed=5, num_nodes=4)
    else:
        world = milkrun.make(
            DARP_ID,
            num_envs=2,
            seed=5,
            rule=kind,
            num_requests=2,
            num_agents=2,
            **({"max_duration": 200.0} if kind == "classic" else {}),
        )
    world.reset()
    fields = [f.name for f in world.fields.values() if f.role is Role.INSTANCE and 0 not in f.shape(world.sizes)]
    plans = rng.integers(-1, world.num_actions + 1, (2, rng.integers(0, 8)))
    data = spoil({name: getattr(world, name) for name in fields}, rng)
    problem, options = (TSPDProblem, {}) if kind == "tspd" else (DARPProblem, {"rule": kind})
    if kind != "tspd" and rng.random() < 0.3:
        options |= {"speed": any_number(rng), "penalty_unvisited": any_number(rng, 0.0)}
    try:
        cost = problem.get_costs(data, plans, on_violation="inf", **options)[0]
    except MilkrunError:
        return True
    assert not np.isnan(cost).any()
    return False


def run(kind, cases, tmp_path):
    """Runs `cases` cases of a kind; returns how many were refused."""
    refused = 0
    for case in cases:
        rng = np.random.default_rng([*kind.encode(), case])
        try:
            if kind == "dataset":
                refused += check_dataset(rng)
            else:
                begin = begin_file(rng, tmp_path) if kind == "file" else BEGINNINGS[kind](rng)
                refused += refused_or_played(begin, rng)
        except Exception as e:
            raise AssertionError(f"{kind} case {case}: {type(e).__name__}: {e}") from e
    return refused


BEGINNINGS = {"config": begin_config, "instance": begin_instance, "data class": begin_data_class}
KINDS = (*BEGINNINGS, "file", "dataset")


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_some_extremes_are_refused_or_played(kind, tmp_path):
    """Forty of each kind, of which some are refused and some are played."""
    assert 0 < run(kind, range(40), tmp_path) < 40


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("block", range(5))
@pytest.mark.parametrize("kind", KINDS)
def test_extremes_are_refused_or_played(kind, block, tmp_path):
    """25,000 in all: 1,000 of each kind in each of five blocks."""
    assert 0 < run(kind, range(1000 * block, 1000 * (block + 1)), tmp_path) < 1000
