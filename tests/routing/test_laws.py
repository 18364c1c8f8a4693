"""Laws of instances: each quantity is drawn for the final places, in the units of the metric."""

from __future__ import annotations

import math

import numpy as np
import pytest

import milkrun
from milkrun.core.errors import BadInstance, ConfigError
from milkrun.routing.generators import GENERATOR_REGISTRY, get_generator
from tests.routing.law_bench import CUSTOMERS, ROWS, WORLDS, begun, faraway, hooked, maps_in, places, shares, ways
from tests.routing.map_files import KM, put

TOWN = {"map_name": "synthetic-town", "metric": "haversine"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return maps_in(tmp_path_factory.mktemp("maps"))


def play(world):
    """Plays a random episode of each row; asserts that every live row has an allowed action."""
    turn = 0
    while not (done := world.terminated | world.truncated).all():
        assert world.action_mask[~done].any(axis=1).all(), world.config
        world.step(world.sample_actions(3, turn)[~done], rows=~done)
        assert not world.illegal.any()
        turn += 1


# -- any law under any metric --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", WORLDS)
def test_a_live_row_always_has_an_action(name, folder):
    """For any law, metric and limit: through whole random episodes no mask of a live row is empty."""
    limits = (None, 1.0) if name in ("VRPP", "CVRPP", "WCVRP", "CWCVRP", "SCWCVRP", "SDWCVRP") else (None,)
    few = {"horizon": 2} if name == "SDWCVRP" else {"max_steps": 5} if name == "TSPKopt" else {}
    for law in places(folder):
        for limit in (None, 1e5) if name == "CVRP" else limits:
            world = begun(name, **law, **few, **({} if limit is None else {"max_length": limit}))
            play(world)
            assert name == "TSPKopt" or world.terminated.all(), law


@pytest.mark.parametrize("name", ["VRPP", "CVRPP"])
def test_windows_let_a_truck_of_its_own_serve_each_customer(name, folder):
    """A truck that leaves at 0 arrives before the window closes, and home before the depot closes; the mask agrees."""
    for law in places(folder):
        world = begun(name, **law, time_windows=True)
        d, windows, service = ways(world), world.time_windows.astype(float), world.service_time.astype(float)
        out, home, day = d[:, 0, 1:], d[:, 1:, 0], windows[:, :1, 1]
        slack = 1e-5 * np.maximum(1, day)
        assert (out <= windows[:, 1:, 0] + slack).all(), law
        assert (windows[:, 1:, 1] + service[:, 1:] + home <= day + slack).all(), law
        assert world.action_mask[:, 1:].all(), law


@pytest.mark.parametrize(
    ("name", "field", "options"),
    [
        ("VRPP", "prize", {"prize_distribution": "dist"}),
        ("CVRPP", "weight", {"prize_distribution": "dist"}),
        ("WCVRP", "waste", {"fill_distribution": "dist", "max_waste": 100.0}),
        ("CWCVRP", "waste", {"fill_distribution": "dist", "max_waste": 100.0}),
        ("SCWCVRP", "expected0", {"fill_distribution": "dist", "max_waste": 100.0}),
        ("SDWCVRP", "initial_waste", {"fill_distribution": "dist", "max_waste": 100.0}),
    ],
)
def test_the_law_dist_follows_the_distances_of_the_world(name, field, options, folder):
    """1 + floor(99 d / far) of the places in the world; maps with their own fills have no such law."""
    for law in places(folder):
        world = begun(name, **law, **options)
        if world.sizes["F"] and field not in ("prize", "weight"):
            continue
        np.testing.assert_allclose(getattr(world, field)[:, 1:], shares(world), rtol=1e-6, err_msg=str(law))


def test_mean_fills_follow_the_distances():
    """SDWCVRP: a day adds a fifth of the level of the law dist, also for places from a function."""
    world = begun("SDWCVRP", fill_distribution="dist", loc_distribution=faraway, daily_scale=0.2)
    np.testing.assert_allclose(world.fill_mean[:, 1:], 0.002 * shares(world), rtol=1e-6)
    np.testing.assert_allclose(world.daily_fill[:, 3, 1:], 0.002 * shares(world), rtol=1e-6)


@pytest.mark.parametrize("name", WORLDS)
def test_a_drawn_matrix_matches_the_drawn_places(name):
    """Straight lines between the nodes of the world, depot included, for every source of places."""
    for law in ("uniform", faraway):
        for depot in ({}, {"depot_type": "customer"}) if name not in ("TSP", "TSPKopt") else ({},):
            world = begun(name, metric="matrix", loc_distribution=law, **depot)
            apart = np.linalg.norm(world.locs[:, :, None].astype(float) - world.locs[:, None], axis=-1)
            np.testing.assert_allclose(world.dist, apart, rtol=1e-6)


# -- places by Python ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", WORLDS[2:])
def test_a_depot_like_a_customer_is_placed_by_the_function(name):
    """It is an additional place of the same call: the last one of a law that numbers its places."""

    def numbered(rng, n):
        return np.stack([np.arange(n), np.full(n, rng.random())], axis=1)

    world = begun(name, loc_distribution=numbered, depot_type="customer")
    assert (world.locs[:, :, 0] == [CUSTOMERS, *range(CUSTOMERS)]).all()
    assert (world.locs[:, :, 1] == world.locs[:, :1, 1]).all()
    assert len(np.unique(world.locs[:, 0, 1])) == ROWS
    others = begun(name, loc_distribution=numbered, depot_type="corner")
    assert (others.locs[:, 0] == 0).all()
    assert (others.locs[:, 1:] == world.locs[:, 1:]).all()


@pytest.mark.parametrize(
    ("problem", "key", "options"),
    [
        ("vrpp", "prize", {"prize_distribution": "dist"}),
        ("cvrpp", "weight", {"prize_distribution": "dist"}),
        ("wcvrp", "waste", {"fill_distribution": "dist", "max_waste": 100.0}),
        ("cwcvrp", "waste", {"fill_distribution": "dist", "max_waste": 100.0}),
        ("scwcvrp", "expected_waste", {"fill_distribution": "dist", "max_waste": 100.0}),
        ("sdwcvrp", "initial_waste", {"fill_distribution": "dist", "max_waste": 100.0}),
    ],
)
def test_hooks_place_before_other_draws(problem, key, options):
    """Fills and prizes by distance, and the matrix, use the hook's customers and depots."""
    made = hooked(problem, **options, metric="matrix").generate(ROWS, seed=3)
    assert made["locs"].min() >= 10
    assert (made["depot"] == 20).all()
    out = np.linalg.norm(made["locs"].astype(float) - 20.0, axis=-1)
    np.testing.assert_allclose(made["dist"][:, 0, 1:], out, rtol=1e-6)
    out = made["dist"][:, 0, 1:].astype(float)
    np.testing.assert_allclose(made[key], 1 + np.floor(99 * out / out.max(axis=1, keepdims=True)), rtol=1e-6)


def test_hooks_place_before_windows_are_drawn():
    """Customers at 12 and more from the depot of a box of side 1: each is in reach of a truck of its own."""
    made = hooked("vrpp", time_windows=True).generate(100, seed=3)
    out = np.linalg.norm(made["locs"].astype(float) - made["depot"][:, None], axis=-1)
    opens, closes = np.moveaxis(made["time_windows"].astype(float), -1, 0)
    assert (out <= opens[:, 1:] + 1e-4).all()
    assert (closes[:, 1:] + made["service_time"][:, 1:] + out <= closes[:, :1] + 1e-3).all()


def test_fields_without_hooks_are_drawn_unchanged():
    """Prizes by another law, and a depot without a hook, are those of the plain generator."""
    plain = get_generator("vrpp", num_loc=CUSTOMERS).generate(ROWS, seed=3)
    made = hooked("vrpp", depots=False).generate(ROWS, seed=3)
    assert (made["prize"] == plain["prize"]).all()
    assert (made["depot"] == plain["depot"]).all()
    again = hooked("vrpp", depots=False).generate(1, seed=3, first=4)
    assert all((again[name][0] == made[name][4]).all() for name in made)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"depot_type": "customer"}, "depot_type = 'customer'.*_generate_depot"),
        ({"map_name": "synthetic-town"}, "map_name = 'synthetic-town': the map gives the places"),
    ],
)
def test_hooks_with_unknown_ranges_are_refused(options, words):
    """The law of a hook's places is unknown, and a map has its own places."""
    with pytest.raises(ConfigError, match=words):
        hooked("vrpp", depots=False, **options).generate(2)


def test_a_hook_for_a_depot_is_refused_with_roads(folder):
    """A map has no road distances from another depot; with straight lines it accepts the hook."""
    kind = type(get_generator("cvrp"))
    hook = {"_generate_depot": lambda self, count, seed, first, episode: np.zeros((count, 2))}
    moved = type("Moved", (kind,), hook)
    town = {"map_name": "oneway", "map_path": str(folder), "num_loc": 3}
    assert (moved(**town).generate(2, seed=1)["depot"] == 0).all()
    with pytest.raises(ConfigError, match="'oneway' has no distances from other depots"):
        moved(**town, metric="matrix").generate(2)


@pytest.mark.parametrize("given", [np.zeros((2, 3)), np.full((2, 4, 2), np.nan), np.full((2, 4, 2), "x"), 1e300])
def test_the_error_on_a_wrong_hook_names_it(given):
    """It also has the required shape."""
    kind = type(get_generator("tsp"))
    made = np.full((2, 4, 2), given) if isinstance(given, float) else given
    hook = {"_generate_locations": lambda self, count, seed, first, episode: made}
    with pytest.raises(ConfigError, match=r"places .*must be \(2, 4, 2\) finite numbers"):
        type("Odd", (kind,), hook)(num_loc=4).generate(2)


# -- reach ---------------------------------------------------------------------------------------------------------


def test_a_function_that_places_customers_out_of_reach_is_refused():
    """By row, customer, distance and limit; the world keeps its instances."""

    def away(rng, n):
        return np.full((n, 2), 0.5 if rng.random() < 0.8 else 10.0)

    world = milkrun.make("milkrun/CVRP-v0", 1, seed=1, num_loc=3, max_length=3.0, loc_distribution=away)
    with pytest.raises(BadInstance, match=r"row 0: customer 1: there and back 2\d\.\d+ is over max_length = 3"):
        for _ in range(60):
            world.reset()
            before = world.locs.copy()
    assert (world.locs == before).all()
    assert world.action_mask.tolist() == [[False, True, True, True]]
    with pytest.raises(BadInstance, match="customer 1: there and back"):
        far = {"loc_distribution": lambda rng, n: np.full((n, 2), 10.0), "service_times": True}
        milkrun.make("milkrun/CVRP-v0", 1, seed=1, num_loc=3, max_length=3.0, **far).reset()
    world.step([1])  # it plays on unchanged
    assert world.current_node.tolist() == [1] and world.visited.tolist() == [[False, True, False, False]]


def test_generators_refuse_customers_out_of_reach():
    """From a function or from hooks, also with a matrix."""
    for metric in ("euclid", "matrix"):
        made = get_generator("cvrp", num_loc=3, max_length=34.0, loc_distribution=faraway, metric=metric)
        assert (made.generate(50, seed=2)["locs"] >= 10).all()
        with pytest.raises(BadInstance, match=r"row 0: customer 1: there and back .* is over max_length = 20"):
            get_generator("cvrp", num_loc=3, max_length=20.0, loc_distribution=faraway, metric=metric).generate(5)
        assert hooked("cvrp", max_length=29.0, metric=metric).generate(5, seed=2)["depot"].min() == 20
        with pytest.raises(BadInstance, match=r"row 0: customer 1: there and back .* is over max_length = 20"):
            hooked("cvrp", max_length=20.0, metric=metric).generate(5)


@pytest.mark.parametrize("metric", ["euclid", "haversine", "matrix"])
def test_a_limit_on_a_map_is_measured_on_the_map(metric):
    """By the bin farthest from the depot: that limit plays to the end, a smaller one is refused with the bin's name."""
    town = milkrun.make("milkrun/TSP-v0", map_name="synthetic-town").config.map
    out = np.hypot(town.x - town.x[0], town.y - town.y[0])
    farthest = 2 * out.max() / (1 if metric == "haversine" else town.km_per_unit)
    name = town.ids[int(out.argmax())].partition("-")[0]  # the bins of a site stand within a few metres
    world = begun("CVRP", map_name="synthetic-town", metric=metric, max_length=1.001 * farthest, num_loc=150)
    play(world)
    assert world.terminated.all()
    with pytest.raises(ConfigError, match=f"max_length = .*, there and back to the bin '{name}"):
        milkrun.make("milkrun/CVRP-v0", map_name="synthetic-town", metric=metric, max_length=0.99 * farthest)


def test_the_town_accepts_a_limit_in_kilometres():
    """It is 9 by 7 km: 25 km suffice for any bin and back, independent of the box."""
    assert begun("CVRP", **TOWN, max_length=25.0).action_mask[:, 1:].all()


def test_roads_count_in_both_directions(folder):
    """50 km there and 200 km back: 250 is sufficient, less is not."""
    options = {"map_name": "oneway", "map_path": str(folder), "metric": "matrix", "num_loc": 5}
    assert begun("CVRP", **options, max_length=250.0).action_mask[:, 1:].all()
    with pytest.raises(ConfigError, match="below 250, there and back to the bin 'b1' of the map 'oneway'"):
        milkrun.make("milkrun/CVRP-v0", **options, max_length=249.0)


@pytest.mark.parametrize(
    ("options", "farthest"),
    [
        ({"depot_type": "center"}, math.sqrt(2)),
        ({"depot_type": "corner"}, 2 * math.sqrt(2)),
        ({"depot_type": "center", "metric": "manhattan", "max_loc": 3.0}, 6.0),
        ({"metric": "trunc1"}, 28.0),
        ({"metric": "ceil"}, 4.0),
        ({"metric": "haversine"}, 2 * 157.2495),  # from (0, 0) to (1, 1): hav = sin² ½° (1 + cos 1°)
        ({"metric": "haversine", "depot_type": "center"}, 157.2495),
        # 180° of longitude along the equator: half of the circumference
        ({"metric": "haversine", "min_loc": -90.0, "max_loc": 90.0}, 2 * math.pi * 6371.0088),
        # from (0, 0) to (0, 90) and from (0, 0) to (90, 90): a quarter of it
        ({"metric": "haversine", "depot_type": "corner", "min_loc": 0.0, "max_loc": 90.0}, math.pi * 6371.0088),
    ],
)
def test_a_limit_in_a_box_is_measured_from_the_depot(options, farthest):
    """There and back to the farthest corner, or under haversine to the farthest latitude."""
    assert begun("CVRP", **options, max_length=1.0001 * farthest).action_mask[:, 1:].all()
    with pytest.raises(ConfigError, match="there and back from the depot across the box"):
        milkrun.make("milkrun/CVRP-v0", **options, max_length=0.9999 * farthest)


def test_on_a_globe_corners_are_not_always_farthest():
    """-10..90 degrees: from (-10, 0) to (50, 100) hav = 0.6216 and 11,583 km, from corner to corner 11,115 km."""
    options = {"metric": "haversine", "min_loc": -10.0, "max_loc": 90.0}
    with pytest.raises(ConfigError, match="max_length"):
        milkrun.make("milkrun/CVRP-v0", **options, max_length=2 * 11_400.0)


def test_invalid_latitudes_are_refused():
    """Latitudes end at 90 degrees."""
    for box in ({"max_loc": 91.0}, {"min_loc": -100.0, "max_loc": 100.0}):
        with pytest.raises(ConfigError, match=r"latitudes, which lie within -90\.\.90"):
            milkrun.make("milkrun/TSP-v0", metric="haversine", **box)


# -- units ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", WORLDS[3:])
def test_the_weight_of_length_depends_on_the_unit_of_the_metric(name):
    """The way across the box costs the same in tenths, in kilometres on the globe, and in units."""
    beta = {metric: begun(name, metric=metric).beta for metric in ("euclid", "trunc1", "haversine")}
    assert beta["trunc1"] == pytest.approx(beta["euclid"] / 10)
    assert beta["haversine"] == pytest.approx(beta["euclid"] / 111.195, rel=1e-4)  # a degree at the equator


def test_the_length_of_a_day_depends_on_the_unit_of_the_metric():
    """4.6 sides: 4.6 units, 46 tenths, 511.5 km; for distant customers 4.6 / 4.22 of the longest round trip."""
    for metric, day in (("euclid", 4.6), ("manhattan", 4.6), ("trunc1", 46.0), ("haversine", 4.6 * 111.1922)):
        closes = begun("VRPP", metric=metric, time_windows=True).time_windows[:, 0, 1]
        np.testing.assert_allclose(closes, day, rtol=1e-5)
    world = begun("VRPP", loc_distribution=faraway, time_windows=True)
    np.testing.assert_allclose(world.time_windows[:, 0, 1], 4.6 * 2 * ways(world)[:, 0].max(axis=1) / 4.22, rtol=1e-6)


def test_bins_with_deviation_0_fill_by_the_mean(tmp_path):
    """Each day adds the mean, 0.2 or 0."""
    town = {"map_name": "t", "map_path": str(put(tmp_path, "t.csv", KM)), "num_loc": 3}
    world = begun("SDWCVRP", **town, fill_days=4)
    assert np.isfinite(world.daily_fill).all()
    assert (world.daily_fill[:, :, 2] == np.float32(0.2)).all()
    assert (world.fill_mean[:, 1:] == np.float32([0.1, 0.2, 0])).all()
    assert (world.fill_std[:, 1:] == np.float32([0.05, 0, 0])).all()
    days = begun("WCVRP", **town, fill_days=4).waste[:, 2] / 0.2
    np.testing.assert_allclose(days, np.rint(days), atol=1e-5)
    assert set(np.rint(days)) <= {1, 2, 3, 4}


# -- batch sizes ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("problem", GENERATOR_REGISTRY)
def test_an_empty_batch_size_is_one_instance(problem):
    """Without a batch axis: the first instance of a batch; the generator advances by one."""
    gen = get_generator(problem, seed=5)
    first = get_generator(problem).generate(2, seed=5)
    for k, size in enumerate(((), [])):
        one = gen.generate(size)
        assert one.keys() == first.keys()
        for name, array in first.items():
            assert one[name].shape == array.shape[1:]
            assert (one[name] == array[k]).all()
    assert gen.position == 2


@pytest.mark.parametrize("size", [1.5, [1.5], "3", ["a"], None, [[1, 2], [3]], -1, [2, -1], np.zeros((2, 2), int)])
def test_invalid_batch_sizes_are_refused(size):
    """With a message, for any type."""
    with pytest.raises(ConfigError, match="batch_size"):
        get_generator("cvrp").generate(size)


def test_any_integer_type_is_a_batch_size():
    """Of numpy, and in an array without axes."""
    gen = get_generator("tsp", num_loc=4)
    for size in (np.int64(3), np.array(3)):
        assert gen.generate(size)["locs"].shape == (3, 4, 2)


def test_the_farthest_two_places_of_a_globe_are_found_exactly():
    """-88..89 degrees: from latitude -88 on one meridian to 88 on that 177 degrees east it is 20,003.5 km."""
    options = {"metric": "haversine", "min_loc": -88.0, "max_loc": 89.0, "num_loc": 2}
    with pytest.raises(ConfigError, match="there and back from the depot across the box"):
        milkrun.make("milkrun/CVRP-v0", **options, max_length=2 * 20_003.0)
    milkrun.make("milkrun/CVRP-v0", **options, max_length=2 * 20_003.6)
