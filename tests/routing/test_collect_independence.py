"""Invariances of the profit and waste worlds.

A row has the same bits in every batch, with any threads and history. Customers of a seed are equal in all worlds. A
waste world without noise equals the simpler one. Scaled or relabelled instances are played equally.
"""

from __future__ import annotations

import random

import numpy as np
import pytest

import milkrun
from milkrun.routing.generators import get_generator
from tests.core.toys import rows_of
from tests.truth.test_collect_by_hand import enumerate_all

NAMES = ("VRPP", "CVRPP", "WCVRP", "CWCVRP", "SCWCVRP", "SDWCVRP")
WASTE = NAMES[2:]
N = 9


def make(name, rows, **options):
    return milkrun.make(f"milkrun/{name}-v0", num_envs=rows, **{"seed": 7, "num_loc": N, **options})


def walk(world, turns=25):
    """Random masked steps, across the ends of episodes."""
    for turn in range(turns):
        world.step(world.sample_actions(1, turn))
    return world


def begun(name, rows, **options):
    world = make(name, rows, **options)
    world.reset()
    return world


# -- rows -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_rows_do_not_depend_on_their_batch(name):
    """Rows of 1000 equal those of batches of 1, 7 and 64 at any offset, on one thread and on two."""
    days = {"horizon": 2} if name == "SDWCVRP" else {}
    whole = walk(begun(name, 1000, threads=2, **days))
    assert (whole.stream[:, 2] > 0).mean() > 0.2
    assert rows_of(walk(begun(name, 1000, threads=1, **days))) == rows_of(whole)
    for rows, first in ((1, 0), (1, 999), (7, 5), (64, 300)):
        part = walk(begun(name, rows, first_row=first, **days))
        found = {key: value for key, value in part.state_dict().items() if key != "instance_row"}
        theirs = whole.state_dict(range(first, first + rows))
        for key, value in found.items():
            assert value.tobytes() == theirs[key].tobytes(), (key, rows, first)


@pytest.mark.parametrize("name", NAMES)
def test_rows_do_not_depend_on_history(name):
    """After other episodes, other instances and resets of some rows, the seed gives the same rows again."""
    fresh = rows_of(begun(name, 16))
    world = walk(begun(name, 16, seed=99))
    world.reset(rows=[3, 1])
    world.reset(instance={key: getattr(world, key)[::-1].copy() for key in given_fields(name)})
    walk(world)
    world.reset(seed=7)
    assert rows_of(world) == fresh
    for rows in ([2, 9], [0], range(10, 16)):
        world.reset(rows=rows)
        fresh_row = world.state_dict(rows)
        other = make(name, 16)
        other.reset()
        other.reset(rows=rows)
        for key, value in other.state_dict(rows).items():
            assert value.tobytes() == fresh_row[key].tobytes(), key


def given_fields(name):
    own = {
        "VRPP": ("prize", "must_go"),
        "CVRPP": ("prize", "weight", "capacity", "must_go"),
        "SCWCVRP": ("expected0", "real_waste", "max_waste", "capacity", "must_go"),
        "SDWCVRP": ("initial_waste", "daily_fill", "fill_mean", "fill_std", "max_waste", "capacity"),
    }
    return ("locs", *own.get(name, ("waste", "max_waste", "capacity", "must_go")))


@pytest.mark.parametrize("name", NAMES)
def test_a_reset_of_some_rows_does_not_change_the_others(name):
    """To the bit, and the reset rows start their next episode."""
    world = walk(begun(name, 12), turns=2)
    others = [0, 1, 3, 4, 6, 7, 8, 10]
    before, episodes = rows_of(world, others), world.stream[:, 2].copy()
    world.reset(rows=[2, 5, 9, 11])
    assert rows_of(world, others) == before
    assert (world.stream[[2, 5, 9, 11], 2] == episodes[[2, 5, 9, 11]] + 1).all()
    assert (world.i[[2, 5, 9, 11]] == 0).all() and (world.tour_length[[2, 5, 9, 11]] == 0).all()


@pytest.mark.parametrize("name", NAMES)
def test_generator_and_world_draw_the_same(name):
    """Instance i of a seed is row i of the world, individually or in a batch, and plays equally if given."""
    options = {"sensor_sigma": 0.2} if name == "SDWCVRP" else {}
    generator = get_generator(name.lower(), num_loc=N, **options)
    made, world = generator.generate(128, seed=7), begun(name, 128, autoreset="disabled", **options)
    for i in (0, 5, 127):
        alone = generator.generate(1, seed=7, first=i)
        assert all(alone[key][0].tobytes() == made[key][i].tobytes() for key in made)
    assert (world.locs[:, 0] == made["depot"]).all() and (world.locs[:, 1:] == made["locs"]).all()
    for key in given_fields(name)[1:]:
        theirs = made.get(key, made.get("expected_waste") if key == "expected0" else None)
        ours = getattr(world, key)
        assert (ours[..., 1:] if theirs.ndim > 1 else ours).tobytes() == theirs.tobytes(), key
    handed = make(name, 128, autoreset="disabled", **options)
    handed.reset(seed=7, instance={key: value for key, value in made.items() if key != "demand"})
    play_alike(world, handed)
    again = generator.generate(128, seed=7, episode=1)
    assert (again["locs"] != made["locs"]).any()
    world.reset()
    assert (world.locs[:, 1:] == again["locs"]).all()


def test_a_generator_continues():
    """Without a seed the second call returns the next instances."""
    generator = get_generator("cwcvrp", num_loc=N, seed=7)
    first, second, whole = generator.generate(3), generator.generate((2, 2)), generator.generate(7, seed=7)
    assert second["waste"].shape == (2, 2, N) and generator.position == 7
    assert np.concatenate([first["waste"], second["waste"].reshape(4, N)]).tobytes() == whole["waste"].tobytes()


def test_customers_of_a_seed_are_equal_in_all_worlds():
    """Places and depots of all worlds; levels of WCVRP, CWCVRP and SCWCVRP; prizes of VRPP and CVRPP."""
    worlds = {name: begun(name, 50) for name in ("CVRP", *NAMES)}
    tsp = milkrun.make("milkrun/TSP-v0", num_envs=50, seed=7, num_loc=N)
    tsp.reset()
    for world in worlds.values():
        assert (world.locs == worlds["CVRP"].locs).all()
    assert (tsp.locs == worlds["CVRP"].locs[:, 1:]).all()
    assert (worlds["WCVRP"].waste == worlds["CWCVRP"].waste).all()
    assert (worlds["WCVRP"].waste == worlds["SCWCVRP"].expected0).all()
    assert (worlds["WCVRP"].must_go == worlds["SCWCVRP"].must_go).all()
    assert (worlds["VRPP"].prize == worlds["CVRPP"].prize).all()


def test_an_attribute_affects_no_other():
    """Another law of prizes, noise, must-go or windows does not change the rest."""
    plain, other = begun("CVRPP", 20), begun("CVRPP", 20, prize_distribution="continuous", weight_law="units")
    assert (plain.locs == other.locs).all()
    assert (begun("VRPP", 20).prize == begun("VRPP", 20, time_windows=True).prize).all()
    plain, other = begun("SCWCVRP", 20), begun("SCWCVRP", 20, must_go="none", noise_distribution="truncnorm", sigma=0.1)
    assert (plain.expected0 == other.expected0).all() and (plain.real_waste != other.real_waste).any()
    plain, other = begun("SDWCVRP", 20), begun("SDWCVRP", 20, sensor_sigma=0.3, horizon=9)
    assert (plain.daily_fill == other.daily_fill[:, :7]).all() and (plain.initial_waste == other.initial_waste).all()


@pytest.mark.parametrize("name", NAMES)
def test_global_generators_are_not_used(name):
    """Constructing, seeding, drawing, stepping, sampling: the states of numpy, Python and torch are unchanged."""
    torch = pytest.importorskip("torch")

    def states():
        kind, keys, *place = np.random.get_state()
        return kind, keys.tolist(), place, random.getstate(), torch.get_rng_state().tolist()

    before = states()
    world = walk(begun(name, 8), turns=5)
    world.reset(seed=11)
    get_generator(name.lower(), num_loc=N).generate(4)
    walk(milkrun.make(f"milkrun/{name}-v0", num_envs=2), turns=0).reset()
    assert states() == before


# -- rules ------------------------------------------------------------------------------------------------------------

SAME = (
    "current_node",
    "visited",
    "tour_length",
    "trip_length",
    "trips",
    "collected",
    "load",
    "action_mask",
    "reward",
    "terminated",
    "truncated",
    "i",
    "objective",
)


def play_alike(plain, other, *, but=()):
    """Plays both worlds, reset on the same instances, by the actions of the first until all its rows have ended."""
    turn = 0
    while True:
        for key in SAME:
            ours, theirs = getattr(plain, key), getattr(other, key)
            live = ~plain.terminated if key in but else np.ones(len(ours), bool)
            assert ours[live].tobytes() == theirs[live].tobytes(), (key, turn)
        rows = np.flatnonzero(~(plain.terminated | plain.truncated))
        if not len(rows):
            return
        actions = plain.sample_actions(5, turn)[rows]
        plain.step(actions, rows=rows)
        other.step(actions, rows=rows)
        turn += 1


@pytest.mark.parametrize("recourse", ["return", "round_trip"])
@pytest.mark.parametrize("limit", [None, 1.5])
def test_scwcvrp_without_noise_is_cwcvrp(recourse, limit):
    """Step for step, to the bit, must-go and overflows included."""
    found = {"autoreset": "disabled", "num_loc": 25, "max_length": limit}
    plain, other = begun("CWCVRP", 300, **found), begun("SCWCVRP", 300, sigma=0.0, recourse=recourse, **found)
    play_alike(plain, other)
    assert not other.failures.any() and (plain.overflows == other.overflows).all() and plain.overflows.any()
    assert (plain.missed_must_go == other.missed_must_go).all()


def test_sdwcvrp_of_one_day_without_fill_is_cwcvrp():
    """The night adds nothing and charges the full bins; it resets the marks of the day."""
    found = {"autoreset": "disabled", "num_loc": 25, "must_go": "none"}
    plain, other = begun("CWCVRP", 300, **found), make("SDWCVRP", 300, horizon=1, **found)
    nothing = np.zeros_like(plain.waste)
    other.reset(
        seed=7,
        instance={
            "locs": plain.locs,
            "initial_waste": plain.waste,
            "daily_fill": nothing[:, None],
            "fill_mean": nothing,
            "fill_std": nothing,
            "capacity": plain.capacity,
            "max_waste": plain.max_waste,
        },
    )
    play_alike(plain, other, but=("visited", "trip_length", "load"))
    assert (plain.overflows == other.overflows).all() and plain.overflows.any()
    assert not other.lost.any() and (other.day == 1).all()


@pytest.mark.parametrize("recourse", ["return", "round_trip"])
def test_waste_is_conserved(recourse):
    """Initial + nights = collected + lost + left, to 1e-4; a truck that waits at home loses some."""
    world = begun("SDWCVRP", 400, num_loc=15, horizon=10, recourse=recourse, sensor_sigma=0.3, autoreset="disabled")
    initial, fill = (world.initial_waste.sum(axis=1, dtype=float), world.daily_fill.sum(axis=(1, 2), dtype=float))
    finish(world)
    left = world.real_waste.sum(axis=1, dtype=float)
    np.testing.assert_allclose(initial + fill, world.collected + world.lost.astype(float) + left, rtol=1e-4)
    assert (world.lost > 0).any() and (world.failures > 0).any()


@pytest.mark.parametrize("name", ["SCWCVRP", "SDWCVRP"])
def test_a_customer_fails_once_a_day(name):
    """Under `return` a failure reveals the bin, which alone fits a truck: it does not fail again that day."""
    noise = {"sigma": 0.8} if name == "SCWCVRP" else {"sensor_sigma": 0.8, "horizon": 3}
    world = begun(name, 300, num_loc=12, capacity=1.3, autoreset="disabled", **noise)
    failed = np.zeros((300, 3, 13), int)
    while not world.terminated.all():
        rows = np.flatnonzero(~world.terminated)
        actions = world.sample_actions(4, int(world.i.max()))[rows]
        day = world.day[rows].copy() if name == "SDWCVRP" else np.zeros(len(rows), int)
        before = world.failures[rows].copy()
        world.step(actions, rows=rows)
        np.add.at(failed, (rows, day, actions), world.failures[rows] - before)
    assert failed.max() == 1 and (failed.sum(axis=(1, 2)) == world.failures).all() and not failed[..., 0].any()
    assert world.failures.mean() > 0.5 and not world.truncated.any()


@pytest.mark.parametrize("name", NAMES)
def test_no_mandatory_customer_is_missed_on_many_trips(name):
    """Without max_length, despite failures."""
    rule = {"must_go": "level", "must_go_level": 0.5} if name == "SDWCVRP" else {"must_go_rate": 0.4}
    world = begun(name, 400, num_loc=10, trips="multi", autoreset="disabled", **(rule if name in WASTE else {}))
    finish(name_some(world, name))
    assert not world.missed_must_go.any()
    assert name == "SDWCVRP" or world.must_go.sum() > 800


@pytest.mark.parametrize("name", NAMES[:5])
def test_no_mandatory_customer_is_missed_if_all_fit(name):
    """In a single trip without max_length; in SCWCVRP if no bin holds more than expected."""
    rule = {"must_go_rate": 0.3} if name in WASTE else {}
    rule |= {"mu": 0.5, "sigma": 0.1} if name == "SCWCVRP" else {}
    world = begun(name, 400, num_loc=10, trips="single", autoreset="disabled", **rule)
    name_some(world, name)
    weight = {"VRPP": np.zeros((400, 11)), "SCWCVRP": getattr(world, "expected0", None)}.get(name)
    if weight is None:
        weight = world.weight if name == "CVRPP" else world.waste
    room = np.inf if name == "VRPP" else world.capacity
    fit = np.where(world.must_go, weight, 0).sum(axis=1, dtype=float) <= room
    finish(world)
    assert not world.missed_must_go[fit].any()
    assert world.must_go[fit].any(axis=1).sum() > 100
    assert name == "SCWCVRP" or world.missed_must_go[~fit].all()


@pytest.mark.parametrize("trips", ["single", "multi"])
def test_skipped_and_missed_add_up_over_the_days(trips):
    """SDWCVRP at the end: the sum over the days of each morning's bins and mandatory bins without a visit."""
    world = begun(
        "SDWCVRP", 100, horizon=3, trips=trips, must_go="level", must_go_level=0.4, autoreset="disabled", max_length=1.6
    )
    mornings = np.zeros((100, 3, N + 1), bool)
    while len(rows := np.flatnonzero(~world.terminated)):
        mornings[rows, world.day[rows]] = world.must_go[rows]
        world.step(world.sample_actions(6, int(world.i.max()))[rows], rows=rows)
    left = ~(world.solution()[..., None] == np.arange(N + 1)).any(axis=2)
    assert not world.failures.any()
    assert (world.skipped == left[..., 1:].sum(axis=(1, 2))).all()
    assert (world.missed_must_go == (left & mornings).sum(axis=(1, 2))).all() and world.missed_must_go.any()


@pytest.mark.parametrize("name", NAMES)
def test_padding_has_no_effect(name):
    """Nodes beyond n_nodes, even if full and mandatory, change no mask, reward or count of a smaller instance."""
    days = {"horizon": 2, "must_go": "level"} if name == "SDWCVRP" else {}
    weights = {"length_weight": 3.0, "autoreset": "disabled", **days}
    small, padded = begun(name, 60, num_loc=5, **weights), make(name, 60, num_loc=8, **weights)
    one = {key: getattr(small, key).copy() for key in given_fields(name)}
    wide = {
        key: np.pad(
            a, [(0, 0)] * (a.ndim - 1 - (key == "locs")) + [(0, 3)] + [(0, 0)] * (key == "locs"), constant_values=1
        )
        if a.ndim > 1
        else a
        for key, a in one.items()
    }
    padded.reset(instance={**wide, "n_nodes": np.full(60, 6)})
    turn = 0
    while len(rows := np.flatnonzero(~small.terminated)):
        assert (small.action_mask == padded.action_mask[:, :6]).all() and not padded.action_mask[:, 6:].any()
        actions = small.sample_actions(8, turn)[rows]
        small.step(actions, rows=rows)
        padded.step(actions, rows=rows)
        assert (small.reward == padded.reward).all() and (small.terminated == padded.terminated).all()
        turn += 1
    counts = {
        "WCVRP": ("overflows",),
        "CWCVRP": ("overflows",),
        "SCWCVRP": ("overflows", "failures"),
        "SDWCVRP": ("overflows", "failures", "lost"),
    }.get(name, ())
    for key in ("skipped", "missed_must_go", "tour_length", "collected", "objective", *counts):
        assert (getattr(small, key) == getattr(padded, key)).all(), key


def name_some(world, name):
    """Adds mandatory customers to the profit worlds, whose generator draws none."""
    if name in NAMES[:2]:
        named = np.random.default_rng(1).random((400, 11)) < 0.3
        named[:, 0] = False
        world.reset(instance={**{key: getattr(world, key).copy() for key in given_fields(name)}, "must_go": named})
    return world


def finish(world):
    """Random masked steps until every row has terminated."""
    while len(rows := np.flatnonzero(~world.terminated)):
        world.step(world.sample_actions(6, int(world.i.max()))[rows], rows=rows)
        assert not world.truncated.any()


# -- scale ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("side", [4.0, 1000.0])
def test_scaling_the_box_scales_the_lengths(name, side):
    """Auto weights keep every reward: by 4 to the bit, by 1000 to the precision of float32; the masks are equal."""
    small = begun(name, 100, max_length=2.0, autoreset="disabled")
    large = begun(name, 100, max_length=2.0 * side, max_loc=side, autoreset="disabled")
    exact = side == 4
    np.testing.assert_allclose(large.locs, side * small.locs, rtol=0 if exact else 1e-6)
    turn = 0
    while len(rows := np.flatnonzero(~small.terminated)):
        assert (small.action_mask == large.action_mask).all()
        np.testing.assert_allclose(large.tour_length, side * small.tour_length, rtol=0 if exact else 1e-5)
        np.testing.assert_allclose(large.reward, small.reward, rtol=0, atol=0 if exact else 1e-3)
        actions = small.sample_actions(8, turn)[rows]
        small.step(actions, rows=rows)
        large.step(actions, rows=rows)
        turn += 1
    assert (large.terminated == small.terminated).all()
    np.testing.assert_allclose(large.objective, small.objective, rtol=0 if exact else 1e-5, atol=0 if exact else 1e-3)


@pytest.mark.parametrize("name", NAMES)
def test_scaling_the_box_keeps_the_best_plans(name):
    """All plans of 30 instances of 4 customers (SDWCVRP: 10 of 2 over two days) in boxes of 1 and of 3."""
    n, count = (2, 10) if name == "SDWCVRP" else (4, 30)
    days = {"horizon": 2} if name == "SDWCVRP" else {}
    world = begun(name, count, num_loc=n, **days)
    one = {key: getattr(world, key).copy() for key in given_fields(name)}
    best = []
    for side in (1.0, 3.0):
        scaled = {**one, "locs": np.float32(side) * one["locs"]}
        owner, plans, returns = enumerate_all(f"milkrun/{name}-v0", scaled, num_loc=n, max_loc=side, **days)
        top = [returns[owner == q].max() for q in range(count)]
        best.append(
            [{tuple(plans[k]) for k in np.flatnonzero((owner == q) & (returns > top[q] - 1e-3))} for q in range(count)]
        )
    assert best[0] == best[1]


@pytest.mark.parametrize("name", NAMES)
def test_relabelling_the_customers_relabels_the_play(name):
    """Customer j becomes label[j]: masks are permuted, rewards and lengths are equal."""
    first = begun(name, 60, max_length=2.0, autoreset="disabled")
    one = {key: getattr(first, key).copy() for key in (*given_fields(name), "max_length")}
    label = np.concatenate([[0], 1 + np.random.default_rng(3).permutation(N)])
    origin = np.argsort(label)
    axes = {"locs": 1, "daily_fill": 2}
    other = {
        key: np.take(value, origin, axis=axes.get(key, 1)) if value.ndim > 1 else value for key, value in one.items()
    }
    second = make(name, 60, autoreset="disabled")
    second.reset(instance=other)
    turn = 0
    while len(rows := np.flatnonzero(~first.terminated)):
        assert (first.action_mask == second.action_mask[:, label]).all()
        assert (first.reward == second.reward).all() and (first.tour_length == second.tour_length).all()
        actions = first.sample_actions(8, turn)[rows]
        first.step(actions, rows=rows)
        second.step(label[actions], rows=rows)
        turn += 1
    assert second.terminated.all() and not second.illegal.any()
    assert (label[first.solution()] == second.solution()).all() and (first.objective == second.objective).all()


# -- torch ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_functional_step(name):
    """Stepping a clone does not change the original; eight repeats of a TensorDict step to eight repeats of the
    step."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("torchrl")
    tools = pytest.importorskip("tests.api.torchrl_tools")
    env = milkrun.make(f"milkrun/{name}-v0", 5, api="torchrl", seed=7, num_loc=N)
    td = tools.started(env, 3)
    kept = tools.checksums(td)
    after = env.step(td.clone())["next"]
    assert tools.checksums(td) == kept
    assert (after["i"] != td["i"]).any()
    eight = torch.cat([td] * 8).clone()
    tools.assert_same(env.step(eight)["next"], torch.cat([after] * 8))
    tools.assert_same(env.step(td)["next"], after)
