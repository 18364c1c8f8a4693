"""World: independent rows, seeds, saving, given and shared instances, generators and their laws."""

from __future__ import annotations

import random

import numpy as np
import pytest
from scipy import stats

import milkrun
from milkrun.core.errors import Closed, ResetNeeded, ShapeError
from milkrun.core.sampling import random_step
from milkrun.routing.cvrp import CVRP
from milkrun.routing.generators import get_generator
from milkrun.routing.tsp import TSP
from milkrun.solvers import random_policy
from tests.core.toys import Lantern, checksum, rows_of

CVRP_KEYS = ("locs", "demand_units", "capacity")


def cvrp(num_envs: int = 6, seed: int | None = 7, **options: object) -> CVRP:
    return milkrun.make("milkrun/CVRP-v0", num_envs=num_envs, seed=seed, **{"num_loc": 5, "capacity": 12, **options})


def played(world: CVRP, turns: int = 4, rows: object = None) -> CVRP:
    """Some random turns; the draws depend on the rows' own keys only."""
    for turn in range(turns):
        actions = world.sample_actions(1, turn)
        world.step(actions if rows is None else actions[rows], rows)
    return world


def ready(num_envs: int = 6, turns: int = 4, **options: object) -> CVRP:
    world = cvrp(num_envs, **options)
    world.reset()
    return played(world, turns)


def instance_of(world: CVRP, rows: object = slice(None)) -> dict[str, np.ndarray]:
    return {name: getattr(world, name)[rows].copy() for name in CVRP_KEYS}


# -- some rows -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [[1, 4], [4, 1], np.array([False, True, False, False, True, False]), []])
def test_reset_of_some_rows_touches_no_other(rows):
    """Rows 0, 2, 3, 5 keep every bit of every field; the named ones begin their second episode."""
    world = ready()
    chosen = np.flatnonzero(rows) if isinstance(rows, np.ndarray) else np.array(rows, int)
    others = np.setdiff1d(np.arange(6), chosen)
    before = rows_of(world, others)
    world.reset(rows=rows)
    assert rows_of(world, others) == before
    assert world.i[chosen].tolist() == [0] * len(chosen) and world.stream[chosen, 2].tolist() == [1] * len(chosen)


def test_step_of_some_rows_touches_no_other():
    """Rows 5 and 2, in this order, move as they do in a full step; the others keep every bit."""
    world, full = ready(), ready()
    actions = world.sample_actions(1, 9)
    before = rows_of(world, [0, 1, 3, 4])
    world.step(actions[[5, 2]], rows=[5, 2])
    full.step(actions)
    assert rows_of(world, [0, 1, 3, 4]) == before
    assert rows_of(world, [2, 5]) == rows_of(full, [2, 5]) != rows_of(ready(), [2, 5])


def test_slices_of_the_worlds_own_rows_are_rows():
    """own_rows(2) and own_rows(1, 4) name what lists would; every second of them, and a copy, too. Else as before."""
    for own, named in (((2,), [2]), ((1, 4), [1, 2, 3])):
        one, other = ready(), ready()
        assert one.own_rows(*own).tolist() == named
        played(one, rows=one.own_rows(*own)), played(other, rows=named)
        assert checksum(one) == checksum(other)
    one, other = ready(), ready()
    one.reset(one.own_rows(0, 6)[::-2]), other.reset([5, 3, 1])
    one.reset(one.own_rows(4).copy()), other.reset([4])
    assert checksum(one) == checksum(other)
    for wrong in (one.own_rows(0, 6).view(np.float64), one.own_rows(0, 6).reshape(2, 3), one.own_rows(5) + 1):
        with pytest.raises(ShapeError):
            one.reset(wrong)


def test_arrays_stay_where_they_are():
    """What a caller holds is what later calls write: reset and step never move a field."""
    world = cvrp()
    held = {name: getattr(world, name) for name, f in world.fields.items() if f.per_row}
    world.reset()
    played(world)
    world.reset(rows=[0], seed=3)
    assert all(getattr(world, name) is array for name, array in held.items())


# -- seeds (table 3.5) ---------------------------------------------------------------------------------------------


def test_an_int_seed_gives_row_i_the_key_seed_i_0():
    """At construction and at reset; `first_row` shifts the row; a reset without seed adds 1 to the episode."""
    world = cvrp(3, seed=7, first_row=10)
    world.reset()
    assert world.stream.tolist() == [[7, 10, 0], [7, 11, 0], [7, 12, 0]]
    world.reset()
    world.reset(rows=[1])
    assert world.stream.tolist() == [[7, 10, 1], [7, 11, 2], [7, 12, 1]]
    world.reset(seed=np.int64(9))
    assert world.stream.tolist() == [[9, 10, 0], [9, 11, 0], [9, 12, 0]] and world.seed == 9
    world.reset(rows=[2], seed=4)
    assert world.stream[2].tolist() == [4, 12, 0] and world.seed == 9


def test_a_list_of_seeds_gives_row_i_the_key_seed_i_0_0():
    """The same seed is the same row wherever it stands; also for some rows."""
    world = cvrp(3, first_row=5)
    world.reset(seed=[30, 40, 30])
    assert world.stream.tolist() == [[30, 0, 0], [40, 0, 0], [30, 0, 0]]
    assert (world.locs[0] == world.locs[2]).all() and (world.locs[0] != world.locs[1]).any()
    world.reset(rows=[1, 0], seed=(30, 2**63 - 1))
    assert world.stream.tolist() == [[2**63 - 1, 0, 0], [30, 0, 0], [30, 0, 0]]
    assert (world.locs[1] == world.locs[2]).all()


def test_never_seeded_worlds_differ_and_can_be_repeated():
    """`world.seed` holds the entropy that was drawn; a world made of it is the same world."""
    world, other = ready(seed=None), ready(seed=None)
    assert world.seed != other.seed and 0 <= world.seed < 2**63
    assert checksum(ready(seed=world.seed)) == checksum(world)


def test_a_seeded_reset_forgets_all_history():
    """Whatever was reset, stepped or given before, seed 7 is seed 7."""
    world = ready(seed=99)
    world.reset(rows=[0, 3])
    world.reset(instance=instance_of(world, [0] * 6))
    played(world, 8)
    world.reset(seed=7)
    now, fresh = rows_of(played(world)), rows_of(ready())
    assert {name for name in fresh if now[name] != fresh[name]} == set()


def test_episodes_and_rows_differ():
    """Forty keys of one seed give forty instances."""
    world = cvrp(20)
    world.reset()
    first = world.locs.copy()
    world.reset()
    assert len({x.tobytes() for x in (*first, *world.locs)}) == 40


# -- saving --------------------------------------------------------------------------------------------------------


def test_a_loaded_state_continues_bit_for_bit():
    """Into the same world, and into one of another seed, after it went elsewhere; through autoresets."""
    world, other = ready(), ready(seed=1234, turns=7)
    saved = world.state_dict()
    ends = checksum(played(world, 20))
    world.load_state_dict(saved)
    other.load_state_dict(saved)
    assert (world.stream[:, 2] == 0).all() and rows_of(other) == rows_of(world)
    assert checksum(played(world, 20)) == checksum(played(other, 20)) == ends


def test_a_fresh_world_may_start_from_a_saved_state():
    """No reset is needed first."""
    saved = ready().state_dict()
    world = cvrp(seed=0)
    world.load_state_dict(saved)
    assert checksum(played(world)) == checksum(played(ready()))


def test_saved_rows_may_be_loaded_elsewhere():
    """Rows 4 and 1 of one world become rows 0 and 5 of another and play on the same; its other rows keep every bit."""
    world, other = ready(), ready(seed=50)
    before = rows_of(other, [1, 2, 3, 4])
    other.load_state_dict(world.state_dict([4, 1]), rows=[0, 5])
    assert rows_of(other, [1, 2, 3, 4]) == before
    assert rows_of(other, [0, 5]) == rows_of(world, [4, 1])
    assert rows_of(played(other, 12), [0, 5]) == rows_of(played(world, 12), [4, 1])


def test_a_saved_state_is_a_copy():
    """Later steps do not reach it, and writing into it does not reach the world."""
    world = ready()
    saved = world.state_dict()
    kept = {name: array.copy() for name, array in saved.items()}
    played(world)
    assert all((saved[name] == kept[name]).all() for name in kept)
    before = checksum(world)
    for array in saved.values():
        array.fill(1)
    assert checksum(world) == before


# -- given instances -----------------------------------------------------------------------------------------------


def test_given_instances_stay_until_a_full_reset():
    """Rows 1 and 2 keep theirs through autoresets and partial resets, the others draw; a full reset draws all."""
    world = ready(4, seed=3)
    given = instance_of(ready(2, seed=77))
    world.reset(rows=[2, 1], instance=given)
    for _ in range(30):
        world.step(world.sample_actions())
    world.reset(rows=[0, 1, 2])
    assert world.stream[:, 2].min() >= 2
    assert (world.locs[[2, 1]] == given["locs"]).all() and (world.demand_units[[2, 1]] == given["demand_units"]).all()
    assert world.given.tolist() == [False, True, True, False]
    drawn = cvrp(4, seed=3)
    drawn.reset()
    for _ in range(int(world.stream[0, 2])):
        drawn.reset()
    assert (world.locs[0] == drawn.locs[0]).all()
    world.reset()
    assert not world.given.any() and (world.locs[[2, 1]] != given["locs"]).any(axis=(1, 2)).all()


def test_many_rows_on_one_instance_row_without_copies():
    """600 rows on two instances hold two rows of every instance array, and play as if each had its own."""
    two = instance_of(ready(2, seed=77))
    shared, owned = cvrp(600), cvrp(600)
    owner = np.arange(600) % 2
    shared.reset(seed=1, instance={**two, "instance_row": owner})
    owned.reset(seed=1, instance={name: array[owner] for name, array in two.items()})
    assert shared.num_instances == 2 and shared.locs.shape == (2, 6, 2) and shared.demand_units.shape == (2, 6)
    assert shared.locs.nbytes == 96 and owned.locs.nbytes == 28_800
    state = [f.name for f in shared.fields.values() if f.role.value in ("state", "mask")] + ["reward"]
    for _ in range(3):
        played(shared)
        played(owned)
        assert all((getattr(shared, n) == getattr(owned, n)).all() for n in state)
    assert shared.num_instances == 2
    shared.reset(seed=7)
    fresh = cvrp(600)
    fresh.reset()
    assert shared.num_instances == 600 and all((getattr(shared, n) == getattr(fresh, n)).all() for n in CVRP_KEYS)


def test_shared_instances_can_be_saved_and_loaded():
    """Whole, the sharing is kept; of some rows, each comes with its own copy."""
    two = instance_of(ready(2, seed=77))
    world = cvrp(6)
    world.reset(instance={**two, "instance_row": [0, 1, 0, 1, 1, 0]})
    played(world)
    saved, some = world.state_dict(), world.state_dict([1, 2])
    other = ready(6, seed=5)
    other.load_state_dict(saved)
    assert other.num_instances == 2 and checksum(played(other, 9)) == checksum(played(world, 9))
    alone = ready(2, seed=6)
    alone.load_state_dict(some)
    assert (alone.locs == two["locs"][[1, 0]]).all()
    world.load_state_dict(some, rows=[0, 3])
    assert world.num_instances == 6 and rows_of(world, [0, 3]) == rows_of(alone, [0, 1])
    assert (world.locs[[1, 2, 4, 5]] == two["locs"][[1, 0, 1, 0]]).all()


def test_an_instance_given_to_some_rows_of_a_shared_world():
    """The row gets its own; its neighbours keep what they shared."""
    two, one = instance_of(ready(2, seed=77)), instance_of(ready(1, seed=78))
    world = cvrp(4)
    world.reset(instance={**two, "instance_row": [0, 1, 0, 1]})
    world.reset(rows=[2], instance=one)
    row = world.instance_row
    assert (world.locs[row] == np.stack([two["locs"][0], two["locs"][1], one["locs"][0], two["locs"][1]])).all()


def test_from_instances_mixes_sizes_and_repeats():
    """Two and four customers in one batch, three rows each: padding is never allowed, both can be finished."""
    small = {"locs": [[0, 0], [3, 0], [3, 4]], "demand_units": [0, 5, 5], "capacity": 10}
    large = {"depot": [0, 0], "locs": [[1, 0], [2, 0], [3, 0], [4, 0]], "demand_units": [1, 1, 1, 1], "capacity": 4}
    world = CVRP.from_instances([small, large], repeat=3, autoreset="disabled", illegal="raise")
    assert world.num_envs == 6 and world.num_instances == 2 and world.n_nodes.tolist() == [3, 5]
    assert world.instance_row.tolist() == [0, 0, 0, 1, 1, 1]
    assert world.action_mask[0].tolist() == [False, True, True, False, False]
    for actions in ([1] * 6, [2] * 6):
        world.step(actions)
    world.step([0, 0, 0], rows=[0, 1, 2])
    assert world.terminated.tolist() == [True] * 3 + [False] * 3 and world.objective[:3].tolist() == [-12] * 3
    for action in (3, 4, 0):
        world.step([action] * 3, rows=[3, 4, 5])
    assert world.terminated.all() and world.objective[3:].tolist() == [-8] * 3


# -- generators ----------------------------------------------------------------------------------------------------


def test_generated_instances_are_the_rows_of_a_world():
    """Bit for bit, by address (first, episode), in any batch shape, and playable as given instances."""
    world = cvrp(40)
    world.reset()
    world.reset()
    gen = get_generator("cvrp", num_loc=5, capacity=12)
    made = gen.generate(40, seed=7, episode=1)
    assert (made["locs"] == world.locs[:, 1:]).all() and (made["depot"] == world.locs[:, 0]).all()
    assert (made["demand_units"] == world.demand_units[:, 1:]).all() and (made["capacity"] == world.capacity).all()
    part = gen.generate([2, 3], seed=7, first=30, episode=1)
    assert (part["locs"].reshape(6, 5, 2) == made["locs"][30:36]).all() and part["depot"].shape == (2, 3, 2)
    given = cvrp(40, seed=0)
    given.reset(instance=made)
    assert all((getattr(given, name) == getattr(world, name)).all() for name in CVRP_KEYS)


def test_a_generator_continues_without_a_seed():
    """Five and three instances are the first eight of its seed; an addressed call in between changes nothing."""
    gen = get_generator("tsp", num_loc=4, seed=3)
    first = gen.generate(5)["locs"]
    gen.generate(9, seed=3)
    assert gen.position == 5
    walked = np.concatenate([first, gen(3)["locs"]])
    assert (walked == get_generator("tsp", num_loc=4).generate(8, seed=3)["locs"]).all()


@pytest.mark.parametrize("law", ["uniform", "normal", "clustered", "mixed"])
def test_customers_are_the_same_in_every_world(law):
    """TSP and CVRP of one seed and size place their customers alike, whatever the depot and the demands."""
    places = get_generator("tsp", num_loc=9, loc_distribution=law).generate(50, seed=4)["locs"]
    for depot in ("center", "customer"):
        gen = get_generator("cvrp", num_loc=9, loc_distribution=law, depot_type=depot, max_demand=3)
        assert (gen.generate(50, seed=4)["locs"] == places).all()


def clipped_moments(centre: np.ndarray, spread: float) -> tuple[np.ndarray, np.ndarray]:
    """Mean and mean square of N(centre, spread) clipped to [0, 1], by quadrature."""
    z, weight = np.polynomial.hermite_e.hermegauss(200)
    x = np.clip(np.asarray(centre)[..., None] + spread * z, 0, 1)
    return x @ weight / weight.sum(), x**2 @ weight / weight.sum()


def test_location_laws_have_their_moments():
    """Mean, variance and the covariance of two customers of a row: 1/3 of the centres' for three clusters."""
    rows = 40_000
    centres = 0.1 + 0.8 * (np.arange(2000) + 0.5) / 2000
    mean, square = clipped_moments(centres, 0.1)
    clustered = square.mean() - mean.mean() ** 2
    _, normal = clipped_moments(np.array(0.5), 1 / 6)
    expected = {"uniform": (1 / 12, 0.0), "normal": (normal - 0.25, 0.0), "clustered": (clustered, mean.var() / 3)}
    for law, (variance, covariance) in expected.items():
        x = get_generator("tsp", num_loc=2, loc_distribution=law).generate(rows, seed=6)["locs"].astype(float)
        assert x.min() >= 0 and x.max() <= 1
        sigma = np.sqrt(variance)
        assert np.abs(x.mean(0) - 0.5).max() < 4.5 * sigma / np.sqrt(rows), law
        np.testing.assert_allclose(x.var(0), variance, rtol=0.025, err_msg=law)
        cov = ((x[:, 0] - 0.5) * (x[:, 1] - 0.5)).mean(0)
        assert np.abs(cov - covariance).max() < 4.5 * variance / np.sqrt(rows), law


def test_mixed_places_are_half_uniform_half_clustered():
    """Of seven the first four are those of the uniform law, the last three those of the clustered one."""
    made = {
        law: get_generator("tsp", num_loc=7, loc_distribution=law).generate(30, seed=2)["locs"]
        for law in ("mixed", "uniform", "clustered")
    }
    assert (made["mixed"][:, :4] == made["uniform"][:, :4]).all()
    assert (made["mixed"][:, 4:] == made["clustered"][:, 4:]).all()


def test_the_box_moves_and_stretches_the_places():
    """min_loc and max_loc carry the unit square over; the uniform law stays uniform (Kolmogorov-Smirnov)."""
    unit = get_generator("tsp", num_loc=50).generate(400, seed=9)["locs"]
    moved = get_generator("tsp", num_loc=50, min_loc=-10.0, max_loc=30.0).generate(400, seed=9)["locs"]
    np.testing.assert_allclose(moved, 40 * unit - 10.0, atol=1e-5)
    assert stats.kstest(unit.ravel(), "uniform").pvalue > 1e-4


def ring(rng: np.random.Generator, n: int) -> np.ndarray:
    angle = 2 * np.pi * rng.random(n)
    return np.stack([3 + np.cos(angle), np.sin(angle)], axis=1)


def test_a_law_given_as_a_function():
    """All places on its ring, addressed by row and episode like any law, through autoresets in both modes."""
    worlds = [
        milkrun.make("milkrun/TSP-v0", 5, seed=1, num_loc=3, loc_distribution=ring, autoreset=m)
        for m in ("next_step", "same_step")
    ]
    by_turn = []
    for world in worlds:
        world.reset()
        for turn in range(3 if world.autoreset == "same_step" else 4):
            world.step([(1, 2, 0, 0)[turn]] * 5)
        assert (world.stream[:, 2] == 1).all() and (world.i == 0).all()
        np.testing.assert_allclose(np.hypot(world.locs[..., 0] - 3, world.locs[..., 1]), 1, atol=1e-6)
        by_turn.append(world.locs.copy())
    assert (by_turn[0] == by_turn[1]).all() and len(np.unique(by_turn[0])) > 25
    made = get_generator("tsp", num_loc=3, loc_distribution=ring).generate(2, seed=1, first=3, episode=1)
    assert (made["locs"] == by_turn[0][3:]).all()


def test_a_drawn_matrix_fits_its_places():
    """metric="matrix" has the Euclidean distances of the places, whichever law placed them."""
    for law in ("uniform", ring):
        world = milkrun.make("milkrun/TSP-v0", 2, seed=1, num_loc=4, metric="matrix", loc_distribution=law)
        world.reset()
        apart = np.linalg.norm(world.locs[:, :, None].astype(float) - world.locs[:, None], axis=-1)
        np.testing.assert_allclose(world.dist, apart, atol=1e-6)


# -- the rest ------------------------------------------------------------------------------------------------------


def test_no_global_generator_is_read_or_written():
    """Python's and numpy's global states are the same after as before, and another state changes nothing."""
    sums = set()
    for state in (1, 2):
        np.random.seed(state)
        random.seed(state)
        before = (random.getstate(), np.random.get_state()[1].tobytes(), np.random.get_state()[2])
        world = ready(loc_distribution=ring)
        world.reset(rows=[1])
        get_generator("cvrp", num_loc=5).generate(3)
        assert (random.getstate(), np.random.get_state()[1].tobytes(), np.random.get_state()[2]) == before
        sums.add(checksum(world))
    assert len(sums) == 1


@pytest.mark.parametrize(
    "use", ["reset", "step", "observe", "load_state_dict", "state_dict", "sample_actions", "render"]
)
def test_a_closed_world_refuses_to_be_used(use):
    """Closing twice is fine; any later use raises an error of the library that names the world."""
    world = ready()
    arguments = {"step": [np.zeros(6, int)], "load_state_dict": [world.state_dict()]}.get(use, [])
    world.close()
    world.close()
    with pytest.raises(Closed, match="CVRP"):
        getattr(world, use)(*arguments)


@pytest.mark.parametrize("world_class", [TSP, CVRP, Lantern])
def test_a_picture_is_512_pixels_square(world_class):
    """uint8, three colours, something drawn, another row another picture, and the world keeps every bit."""
    world = world_class(2, seed=1)
    world.reset()
    before = checksum(world)
    first, second = world.render(), world.render(1)
    assert first.shape == (512, 512, 3) and first.dtype == np.uint8 and len(np.unique(first)) > 1
    assert (first != second).any() and checksum(world) == before


@pytest.mark.parametrize("world_id", ["milkrun/TSP-v0", "milkrun/CVRP-v0"])
def test_play_out_is_the_same_as_stepping(world_id):
    """A whole episode in one native call takes the actions and pays the rewards of the same policy step by step."""
    once, stepped = (milkrun.make(world_id, 70, seed=3, num_loc=7, autoreset="disabled") for _ in range(2))
    once.reset()
    stepped.reset()
    steps = once.play_out(random_step, 5)
    turn = 0
    while not stepped.terminated.all():
        live = np.flatnonzero(~stepped.terminated)
        stepped.step(stepped.sample_actions(5, turn)[live], rows=live)
        turn += 1
    assert steps == once.i.sum() and once.terminated.all()
    assert checksum(once) == checksum(stepped)
    with pytest.raises(ResetNeeded):
        once.step(np.zeros(70, int))


@pytest.mark.parametrize("world_id", ["milkrun/TSPKopt-v0", "milkrun/VRPP-v0", "milkrun/TruckDrone-v0"])
def test_a_loop_of_sampled_actions_is_the_random_policy(world_id):
    """Step for step, through ends and new episodes, and a second loop repeats the first."""
    loops = [milkrun.make(world_id, 20, seed=3, autoreset="same_step") for _ in range(3)]
    policy = random_policy()
    for world in loops:
        world.reset()
    for _ in range(60):
        drawn = [loops[0].sample_actions(), policy(loops[1]), loops[2].sample_actions()]
        assert (drawn[0] == drawn[1]).all() and (drawn[0] == drawn[2]).all()
        for world, actions in zip(loops, drawn, strict=True):
            world.step(actions)
    assert checksum(loops[0]) == checksum(loops[1])


def test_sampled_actions_of_two_steps_are_independent():
    """4 nodes have 2 moves, always both open: the pairs of moves at steps 0 and 1 of 20,000 rows are uniform over 4."""
    world = milkrun.make("milkrun/TSPKopt-v0", 20_000, seed=5, num_loc=4)
    world.reset()
    drawn = []
    for _ in range(2):
        drawn.append(world.sample_actions())
        world.step(drawn[-1])
    pairs = np.unique(np.stack(drawn), axis=1, return_counts=True)[1]
    assert len(pairs) == 4 and stats.chisquare(pairs).pvalue > 1e-4


def test_a_random_action_is_drawn_from_the_whole_mask():
    """1,100 nodes have 1,210,000 pairs: of 640 draws a third and more lie in the upper half of the tours' positions."""
    world = milkrun.make("milkrun/TSPKopt-v0", 64, seed=3, num_loc=1100)
    world.reset()
    drawn = np.concatenate([world.sample_actions(5, turn) for turn in range(10)])
    first = drawn // 1100
    assert world.action_mask[np.tile(np.arange(64), 10), drawn].all()
    # Of pairs i < j the share with i below 550 is 3 / 4.
    assert abs((first < 550).mean() - 0.75) < 4 * np.sqrt(0.75 * 0.25 / 640)


def test_agents_far_apart_in_the_mask_draw_for_themselves():
    """10 drones of 512 choices each, all allowed: none agrees with another more often than chance has it."""
    world = milkrun.make("milkrun/TruckDrone-v0", 400, seed=3, num_customers=510, num_drones=10, drone_capacity=10)
    world.reset()
    first = world.sizes["T"]
    world.action_mask[:, first:] = True
    drones = world.sample_actions(7, 0)[:, 1:]
    assert drones.max() > 500
    for a in range(10):
        for b in range(a):
            assert (drones[:, a] == drones[:, b]).mean() < 0.03
