"""Given and drawn instances of VRP-v0 at their edges: refused with a sentence, or played to the end."""

from __future__ import annotations

import numpy as np
import pytest

import milkrun
from milkrun.core.errors import BadInstance, ConfigError, ShapeError
from milkrun.routing.vrp import VRP

PLACES = np.array([[0, 0], [3, 0], [3, 4], [0, 4]], float)


def one(**more):
    return {"locs": PLACES, "linehaul": np.array([0, 5, 5, 5]), "capacity": np.array([10]), **more}


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"linehaul": np.array([0, 5, 5])}, "linehaul of an instance has 3 entries for 4 nodes"),
        (
            {"linehaul": np.array([0, 5, 50, 5])},
            "customer 2 can be served alone from no depot: a vehicle of depot 0 holds",
        ),
        ({"linehaul": np.array([1, 5, 5, 5])}, r"linehaul\[0\] = 1: a depot has none"),
        ({"backhaul": np.array([0, 5, 0, 0])}, "under class 1"),
        ({"distance_limit": np.array([9.0])}, "customer 2 .* would drive too far"),
        ({"duration_limit": np.array([9.0])}, "customer 2 .* would be under way too long"),
        ({"time_windows": np.array([[0, 20], [0, 2], [0, 9], [0, 9]], float)}, "customer 1 .* arrives late"),
        ({"time_windows": np.array([[0, 9], [0, 9], [0, 9], [0, 9]], float)}, "customer 2 .* is back late"),
        ({"time_windows": np.array([[0, 20], [5, 4], [0, 9], [0, 9]], float)}, "closes before it opens"),
        ({"serves": np.array([1, 1, 1, 1])}, r"serves\[0\] = 1: a depot has none"),
        ({"serves": np.array([0, 2, 1, 1])}, "names a depot that does not exist"),
        ({"serves": np.array([0, 0, 1, 1])}, "customer 1 .* may not serve it"),
        ({"vehicles": np.array([0])}, "customer 1 .* does not exist"),
        ({"locs": np.where(PLACES == 4, np.nan, PLACES)}, "must be finite"),
    ],
)
def test_bad_instances_are_refused(fields, sentence):
    """With the row, the field and the rule."""
    with pytest.raises((BadInstance, ShapeError), match=sentence):
        VRP.from_instances([one(**fields)])


@pytest.mark.parametrize(
    "fields",
    [
        {"locs": PLACES, "linehaul": np.array([0, 5, 5, 5])},
        {"locs": PLACES[None], "linehaul": np.array([["a", "b", "c", "d"]])},
        {"locs": PLACES[None], "linehaul": np.array([[0, 5, 5, 5]]), "capacity": np.array([[1, 2, 3]])},
    ],
)
def test_arrays_of_wrong_shape_or_type_are_refused_by_name(fields):
    """Also an instance without its batch axis."""
    world = milkrun.make("milkrun/VRP-v0", 1, num_loc=3)
    with pytest.raises(ShapeError, match=r"locs|linehaul|capacity"):
        world.reset(instance=fields)


def test_given_arrays_are_not_written():
    """The caller's `serves` stays as it is."""
    serves = np.array([[0, 0, 3, 3, 1]])
    world = milkrun.make("milkrun/VRP-v0", 1, num_loc=3, num_depots=2, restricted=True)
    places = np.concatenate([PLACES[:1], PLACES])[None]
    world.reset(instance={"locs": places, "linehaul": np.array([[0, 0, 5, 5, 5]]), "serves": serves})
    assert serves.tolist() == [[0, 0, 3, 3, 1]] and world.alone[0].tolist() == [0, 0, 3, 3, 1]


@pytest.mark.parametrize(
    ("sentence", "options"),
    [
        ("num_depots = 1", {"variant": "mdcvrp", "num_depots": 1}),
        ("split", {"variant": "vrpb", "split": True}),
        ("longest route", {"objective": "max", "fleet_costs": True}),
        ("give one of them", {"variant": "vrptw", "prob_open": 0.5}),
        ("no vehicle can take it", {"capacity": 5}),
    ],
)
def test_contradictory_options_are_refused(sentence, options):
    """With the names of both."""
    with pytest.raises(ConfigError, match=sentence):
        milkrun.make("milkrun/VRP-v0", **options)


@pytest.mark.parametrize(
    "options",
    [
        {"variant": "vrpl", "law": "rl4co", "metric": "manhattan"},
        {"variant": "vrptw", "law": "mvmoe", "metric": "manhattan"},
        {"variant": "all48", "law": "mvmoe", "depot_type": "corner"},
        {"variant": "all48", "law": "skills", "restricted": True, "max_demand": 0},
        {"split": True, "capacity": 1},
        {"split": True, "capacity": 1, "vehicles": 2**30},
        {"preset": "svrp"},
    ],
)
def test_drawn_instances_are_played_to_the_end(options):
    """Also under laws whose limits and windows are made for the unit square of another metric."""
    world = milkrun.make("milkrun/VRP-v0", 64, num_loc=8, seed=0, autoreset="disabled", **options)
    world.reset()
    while not world.done.all():
        live = np.flatnonzero(~world.done)
        assert world.action_mask[live].any(axis=1).all()
        world.step(world.sample_actions(1)[live], rows=live)
    assert world.terminated.all() and (world.unserved.max() == 0 or options.get("preset") == "svrp")
