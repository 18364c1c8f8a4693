"""The TSP with a drone fulfils the contract of all worlds: laws, padding, independent rows, official checkers. On
random instances with every restriction its mask follows the rules and is never empty, and its cost is the checker's.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import milkrun
from milkrun.delivery.instances import TSPDInstance, load_tspd, load_tspd_solution
from milkrun.delivery.tasks import tspd_cost
from milkrun.delivery.tspd import TSPD, TSPDConfig
from milkrun.solvers.tspd import exact
from tests.core.toys import rows_of
from tests.delivery.tspd_by_hand import begun, drawn, instance_of, line, mask_by_the_book, play, walk
from tests.published import published_file, published_files

ID = "milkrun/TSPD-v0"


def test_the_laws():
    """Integers 0..99 and a depot in the unit square; a normal radius of 50; half of the nodes 200 to the east."""
    grid = drawn(2000).locs
    assert (grid[:, 0] < 1).all() and (grid[:, 0] >= 0).all() and len(np.unique(grid[:, 0])) == 4000
    assert (grid[:, 1:] == np.floor(grid[:, 1:])).all()
    assert set(np.unique(grid[:, 1:])) == set(range(100))
    assert grid[:, 1:].mean() == pytest.approx(49.5, abs=0.6)
    single = drawn(2000, law="singlecenter").locs
    assert np.sqrt((single**2).sum(-1).mean()) == pytest.approx(50, abs=1.5)
    assert np.abs(np.hypot(*np.moveaxis(single, -1, 0)) < 50).mean() == pytest.approx(0.6827, abs=0.015)
    assert np.abs(single.mean((0, 1))).max() < 1.5
    double = drawn(2000, law="doublecenter").locs
    shift = double - single
    assert (shift[:, 0] == 0).all() and (shift[..., 1] == 0).all()
    assert set(np.round(np.unique(shift[..., 0]), 6)) == {0.0, 200.0}
    assert (shift[:, 1:, 0] > 100).mean() == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize("alpha", [1, 2, 3])
def test_given_places_have_the_costs_of_drawn_places(alpha):
    """To the bit, and the drone's costs are 1/alpha of the truck's."""
    world = drawn(30, preset=f"alpha{alpha}")
    given = milkrun.make(ID, 30, preset=f"alpha{alpha}")
    given.reset(instance={"locs": world.locs})
    for name in ("c_truck", "c_drone", "fly_on", "max_fly", "no_visit", "forbid", "n_nodes", "action_mask"):
        assert getattr(world, name).tobytes() == getattr(given, name).tobytes(), name
    assert (world.c_drone == (1 / alpha) * world.c_truck).all()
    i, j = world.locs[4, 3], world.locs[4, 8]
    assert world.c_truck[4, 3, 8] == pytest.approx(np.hypot(*(i - j)))


def test_padding_has_no_effect():
    """An instance of 5 nodes padded to 8 plays as alone: masks, rewards, ends."""
    world = drawn(40, num_nodes=5, max_fly=60.0)
    one = [{name: getattr(world, name)[k] for name in ("locs", "c_truck", "c_drone", "max_fly")} for k in range(40)]
    wide = TSPD.from_instances(one, num_nodes=8, autoreset="disabled")
    assert wide.n_nodes.tolist() == [5] * 40
    turn = 0
    while len(rows := np.flatnonzero(~world.done)):
        mask = wide.action_mask
        assert (np.hstack([mask[:, :5], mask[:, 8:13], mask[:, 16:]]) == world.action_mask).all()
        assert not mask[:, 5:8].any() and not mask[:, 13:16].any()
        actions = world.sample_actions(8, turn)[rows]
        world.step(actions, rows=rows)
        wide.step(actions + 3 * (actions >= 5) + 3 * (actions >= 10), rows=rows)
        for name in ("reward_exact", "terminated", "clock", "left"):
            assert (getattr(world, name) == getattr(wide, name)).all()
        turn += 1
    assert wide.terminated.all()
    assert [wide.operations(k) for k in range(40)] == [world.operations(k) for k in range(40)]


def test_instances_of_many_sizes_share_one_world():
    """Row r plays instance r // repeat, each to an end at the checker's cost."""
    sizes = (2, 3, 6, 9)
    made = [instance_of(drawn(1, num_nodes=n), 0) for n in sizes]
    world = walk(TSPD.from_instances(made, repeat=5, autoreset="disabled"))
    assert world.terminated.all() and world.locs.shape == (4, 9, 2)
    for row in range(20):
        assert tspd_cost(made[row // 5], world.operations(row)) == pytest.approx(-world.objective[row], abs=1e-9)


# -- the contract -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"max_fly": 40.0, "law": "doublecenter"}], ids=["free", "short range"])
def test_a_row_is_the_same_in_every_batch(options):
    """Alone, among 7 and among 600, on one thread and two, across the ends of episodes."""
    large = walk(drawn(600, autoreset="next_step", threads=2, **options))
    assert (large.stream[:, 2] > 0).all()
    assert rows_of(walk(drawn(600, autoreset="next_step", threads=1, **options))) == rows_of(large)
    for rows, first in ((1, 0), (1, 599), (7, 300)):
        part = walk(drawn(rows, first_row=first, autoreset="next_step", **options))
        assert rows_of(part, np.arange(rows)) == rows_of(large, np.arange(first, first + rows))


@pytest.mark.parametrize("options", [{}, {"max_fly": 40.0}, {"num_nodes": 2}, {"law": "singlecenter", "max_steps": 9}])
def test_check_world_finds_nothing(options):
    """The delivery checker's cost of every finished episode equals the world's."""

    def costs(world):
        found = np.zeros(world.num_envs)
        for row in np.flatnonzero(world.terminated):
            found[row] = tspd_cost(instance_of(world, row), world.operations(row))
        return found

    assert milkrun.check_world(milkrun.make(ID, 32, seed=1, **options), task=costs) == []


@pytest.mark.parametrize("options", [{}, {"max_fly": 40.0}])
def test_the_checker_of_gymnasium_passes(options):
    """With a mask that its sampling obeys."""
    import gymnasium
    from gymnasium.utils.env_checker import check_env

    env = gymnasium.make(ID, disable_env_checker=True, **options).unwrapped
    check_env(env, skip_render_check=True)
    observation, info = env.reset(seed=3)
    assert ("max_fly" in observation) == bool(options)
    assert not {"ops", "plan", "truck_wait"} & set(observation)
    while True:
        action = env.action_space.sample(np.asarray(info["action_mask"]).astype(np.int8))
        observation, _, terminated, truncated, info = env.step(action)
        if terminated or truncated:
            break
    assert terminated and not truncated


def test_options():
    """The defaults, the presets, and the step limit behind `auto`."""
    config = TSPDConfig()
    assert (config.num_nodes, config.law, config.alpha, config.max_fly, config.max_steps) == (
        11,
        "uniform",
        2.0,
        np.inf,
        None,
    )
    assert [TSPDConfig.preset(f"alpha{a}").alpha for a in (1, 2, 3)] == [1.0, 2.0, 3.0]
    world = drawn(1, max_steps="auto")
    assert world.max_steps == 33 and world.num_actions == 23


def test_the_picture():
    """Truck and drone have lines in their own colours; covered nodes have the colour of their vehicle."""
    world = begun(line((0.0, 10.0, 20.0, 30.0)))
    world.locs[0, 2] = 20, 15
    play(world, "L2 D1 J")
    picture = world.render()
    colours = {tuple(pixel) for pixel in picture.reshape(-1, 3)}
    assert {(0, 114, 178), (213, 94, 0), (150, 157, 168)} <= colours  # by truck, by drone, allowed


# -- random play ------------------------------------------------------------------------------------------------------


@st.composite
def instances(draw, most=7):
    """Any asymmetric costs, with ties and zeros; a range, forbidden nodes and nodes that the drone may not serve."""
    n = draw(st.integers(2, most))
    cost = st.lists(st.integers(0, 20), min_size=n * n, max_size=n * n)
    marks = st.lists(st.booleans(), min_size=n, max_size=n)
    price = [np.array(draw(cost), float).reshape(n, n) * (1 - np.eye(n)) for _ in range(2)]
    return TSPDInstance(
        name="drawn",
        locs=np.zeros((n, 2)),
        c_truck=price[0],
        c_drone=price[1] / 2,
        max_fly=draw(st.one_of(st.just(np.inf), st.integers(0, 20).map(float))),
        no_visit=np.array(draw(marks)),
        forbid=np.array(draw(marks)) & draw(st.booleans()),
    )


@settings(max_examples=150, deadline=None)
@given(one=instances(), seed=st.integers(0, 2**30))
def test_random_masked_play_keeps_every_rule(one, seed):
    """Eight plays of an instance: the mask follows the rules at every step, an end within 3 n steps, the checker's
    cost."""
    world = TSPD.from_instances([one], repeat=8, autoreset="disabled", num_nodes=7)
    paid, turn = np.zeros(8), 0
    while len(rows := np.flatnonzero(~world.done)):
        assert turn < 3 * one.num_nodes
        for row in rows:
            assert (world.action_mask[row] == mask_by_the_book(world, row)).all()
            assert world.action_mask[row].any()
            assert world.left[row] == (~world.covered[row]).sum()
        world.step(world.sample_actions(seed, turn)[rows], rows=rows)
        paid[rows] += world.reward_exact[rows]
        assert not world.illegal.any()
        turn += 1
    for row in range(8):
        assert paid[row] == -world.clock[row] == world.objective[row] == -world.kpis(row)["makespan"]
        assert world.clock[row] == pytest.approx(tspd_cost(one, world.operations(row)), abs=1e-9)
        assert TSPD.replay(one, world.operations(row))[0]["makespan"] == world.clock[row]


@settings(max_examples=25, deadline=None)
@given(one=instances(most=4))
def test_the_best_play_is_the_optimum(one):
    """All masked plays of up to 4 nodes, compared with the exact solver."""
    world = begun(one)
    best, open_plays = np.inf, [world.state_dict()]
    while open_plays:
        here = open_plays.pop()
        for action in np.flatnonzero(here["action_mask"][0]):
            world.load_state_dict(here)
            world.step([action])
            if world.done[0]:
                best = min(best, float(world.clock[0]))
            elif world.clock[0] < best:
                open_plays.append(world.state_dict())
    assert best == pytest.approx(exact(one).cost, abs=1e-9)


# -- files ------------------------------------------------------------------------------------------------------------


@pytest.mark.truth
def test_published_optima_replay_through_mask_and_step():
    """All 150 plans of Agatz, Bouman and Schmidt's uniform instances of 5..9 nodes, to 1e-9."""
    plans = published_files("delivery/tspd/uniform/solutions/*-n[5-9]-DP.txt")
    for path in plans:
        solution = load_tspd_solution(path)
        instance = published_file(f"delivery/tspd/uniform/{path.name.replace('-DP', '')}")
        kpis, _ = TSPD.replay(load_tspd(instance), solution.operations)
        assert kpis["makespan"] == pytest.approx(solution.total, abs=1e-9), path.name
    assert len(plans) == 150


@pytest.mark.truth
def test_random_play_on_every_file():
    """All files in one padded batch, eight rows each: ends within 3 n steps at the checker's cost."""
    folders = ("uniform", "restricted/maxradius", "restricted/novisit")
    made = [load_tspd(path) for name in folders for path in published_files(f"delivery/tspd/{name}/*.txt")]
    world = TSPD.from_instances(made, repeat=8, autoreset="disabled")
    walk(world, 3 * world.sizes["N"])
    assert len(made) > 160 and world.terminated.all()
    assert (world.steps <= 3 * world.n_nodes[world.instance_row]).all()
    assert (world.objective == -world.clock).all()
    for row in range(world.num_envs):
        assert tspd_cost(made[row // 8], world.operations(row)) == pytest.approx(world.clock[row], abs=1e-9)
