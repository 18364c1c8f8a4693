"""Recorded episodes equal the worlds: the numbers of published runs, and unrecorded ones bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

import milkrun
from milkrun.core.errors import ConfigError
from milkrun.core.registry import list_worlds
from milkrun.render.recorder import EpisodeRecorder
from milkrun.replay.columns import decode
from milkrun.replay.episode import Episode
from milkrun.replay.record_policies import compare, record
from milkrun.solvers import policies_for, rollout
from tests import small

WORLDS = sorted(id for id in list_worlds() if id.startswith("milkrun/"))


def test_two_policies_on_the_same_customers():
    """CVRP of 50: lengths, first and last stops, and the number of allowed actions before each step."""
    ((near, saved),) = compare("milkrun/CVRP-v0", ["nearest", "savings"], rows=(3,), seed=7, num_loc=50)
    assert (near.steps, near.objective) == (57, -14.462911566719413)
    assert near.column("action")[:6].tolist() == [8, 14, 34, 23, 2, 31]
    assert near.column("action")[-3:].tolist() == [46, 3, 0]
    allowed = near.column("mask")[:-1].sum(axis=1)
    assert allowed[:6].tolist() == [50, 50, 49, 48, 47, 46] and allowed.sum() == 1183 and allowed[38] == 2
    assert saved.objective == -10.937049662694335 and saved.column("mask")[:-1].sum() == 1345
    assert saved.column("action")[:6].tolist() == [7, 12, 22, 0, 8, 34]
    assert near.instance == saved.instance and near.figure("return")[38] == pytest.approx(-6.996, abs=5e-4)
    assert saved.figure("return")[38] == pytest.approx(-7.235, abs=5e-4)
    assert near.data["names"][0][4] == "customer 4, demand 1" and near.data["names"][0][3] == "customer 3, demand 7"
    assert near.why(38, 3) == "over capacity: 39 + 7 > 40" and near.why(38, 7) == "visited"


def test_lanes_agree_with_the_fields():
    """Truck and three drones: lanes without gap, and a delivery in them wherever `served` changes."""
    ((greedy, ahead),) = compare(
        "milkrun/TruckDrone-v0", ["greedy", "lookahead"], rows=(5,), seed=3, num_customers=10, num_drones=3
    )
    assert (greedy.steps, greedy.objective, greedy.column("mask")[:-1].sum()) == (110, 43.68137529112185, 1538)
    assert (ahead.steps, ahead.objective, ahead.column("mask")[:-1].sum()) == (80, 57.88251122052036, 1141)
    for episode in (greedy, ahead):
        chart = episode.data["chart"]
        assert chart["lanes"] == ["truck", "drone 0", "drone 1", "drone 2"] == episode.data["agents"]
        for lane in range(4):
            spans = [(t0, t1) for k, _, t0, t1, *_ in chart["bars"] if k == lane]
            assert [a for a, _ in spans] == [0, *(b for _, b in spans[:-1])] and spans[-1][1] == episode.steps
        colours = np.array([episode.mark("customers", "colour", f) for f in range(episode.frames + 1)])
        changes = {(int(t), str(c)) for t, c in np.argwhere(np.diff((colours == 3).astype(int), axis=0)) + [1, 0]}
        assert {(int(t), label) for _, kind, t, label, _ in chart["marks"] if kind == "served"} == changes
        assert decode(chart["clock"]).tolist() == list(range(episode.frames + 1))


def test_a_week_of_waste():
    """Actions a day, a new route each day, and the levels of every morning and of the end."""
    ((week,),) = compare("milkrun/SDWCVRP-v0", ["greedy"], seed=5, preset="week")
    heat = week.data["chart"]["heat"]
    assert (week.steps, week.objective) == (43, -43.3954146578908)
    assert np.diff(heat["at"]).tolist() == [7, 9, 6, 7, 1, 9, 4]
    assert week.column("action")[:7].tolist() == [16, 18, 3, 0, 5, 0, 0]
    assert week.mark("tour", "stops", 6) == [0, 16, 18, 3, 0, 5, 0]
    assert [week.mark("tour", "stops", f) for f in heat["at"][:-1]] == [[0]] * 7
    sums = [7.291936, 7.955301, 6.159787, 6.753186, 7.223458, 9.757161, 8.154372, 9.044065]
    assert decode(heat["values"]).shape == (20, 8)
    assert decode(heat["values"]).sum(axis=0) == pytest.approx(sums, abs=1e-5)


def test_improvement_operations_and_rides():
    """Every tour of the k-opt world is one; the chart of truck and drone ends with its clock; dial-a-ride's plan."""
    ((kopt,),) = compare("milkrun/TSPKopt-v0", ["steepest"], seed=4, rows=(2,))
    assert kopt.steps == 200
    assert all(sorted(kopt.mark("tour", "stops", f)) == list(range(20)) for f in (0, 1, 50, 200))
    ((drone,),) = compare("milkrun/TSPD-v0", ["partition"], seed=6, rows=(1,))
    chart = drone.data["chart"]
    assert drone.steps == 15
    assert max(bar[3] for bar in chart["bars"]) == decode(chart["clock"])[-1] == 236.45888974808062
    ((rides,),) = compare("milkrun/DARP-v0", ["soonest"], seed=2)
    assert (rides.steps, rides.objective) == (28, -869.793898550096)
    known = {(lane, at) for lane, _, _, _, _, at in rides.data["chart"]["bars"]}
    names = rides.data["chart"]["lanes"]
    finish = {names[lane]: at for lane, at in known if names[lane].startswith("vehicle")}
    assert finish == {"vehicle 1": 21, "vehicle 2": 28}  # the frames after its returns to the depot
    assert np.flatnonzero(rides.column("action") == 0).tolist() == [20, 27]


def test_failed_services_are_driven_home():
    """Bins .5, .7, .3 on a truck of 1: the second does not fit, and the route includes the return."""
    world = milkrun.make("milkrun/SCWCVRP-v0", num_loc=3, length_weight=0.1, autoreset="disabled")
    world.reset(
        instance={
            "locs": [[[0, 0], [3, 0], [3, 4], [0, 4]]],
            "expected0": [[0, 0.5, 0.5, 0.3]],
            "real_waste": [[0, 0.5, 0.7, 0.3]],
            "capacity": [1.0],
            "max_waste": [1.0],
        }
    )
    plan = iter([1, 2, 2, 3, 0])
    (episode,) = record(world, lambda _: np.array([next(plan)]), max_steps=5)
    stops = [episode.mark("tour", "stops", f) for f in range(episode.frames + 1)]
    assert stops[2:] == [[0, 1, 2, 0], [0, 1, 2, 0, 2], [0, 1, 2, 0, 2, 3], [0, 1, 2, 0, 2, 3, 0]]


def play(id, policy, mode, batch, row, watch):
    """A row played to its end, alone or in a batch."""
    first = row if batch == 1 else 0
    world = milkrun.make(id, batch, seed=3, first_row=first, autoreset=mode, **small.options(id))
    world.reset()
    chosen = policies_for(id)[policy](3) if policy else by_state
    if watch:
        return record(world, chosen, [row - first], max_steps=60)[0], world
    rollout(world, chosen, 60)
    return None, world


def by_state(world):
    """Actions that depend on nothing but the mask and the step of each row."""
    if world.action.kind == "box":
        return np.full(world._action_shape, 0.1, np.float32)
    parts, first = [], 0
    for n in world.action.nvec(world.sizes):
        mask = world.action_mask[:, first : first + n]
        parts.append([np.flatnonzero(m)[(7 * int(i) + 3) % m.sum()] if m.any() else 0 for m, i in zip(mask, world.i)])
        first += n
    return np.array(parts[0]) if world.action.kind == "discrete" else np.array(parts).T


@pytest.mark.parametrize("id", WORLDS)
def test_every_world_is_recorded_the_same_in_every_mode_and_batch(id):
    """The same JSON alone and among others, under three autoreset modes; and it can be read back."""
    row = 2
    texts = {
        play(id, None, mode, batch, row, watch=True)[0].to_json()
        for mode, batch in (("disabled", 1), ("next_step", 3), ("same_step", 3))
    }
    assert len(texts) == 1
    (text,) = texts
    episode = Episode.from_json(text)
    assert episode.to_json() == text and episode.data["row"] == row and episode.data["title"]


@pytest.mark.parametrize("id", WORLDS)
def test_recording_changes_no_world(id):
    """The state after up to 60 steps of the first heuristic: bit for bit that of an unrecorded run."""
    policy = next(name for name in policies_for(id) if name != "random")
    episode, watched = play(id, policy, "same_step", 2, 1, watch=True)
    _, world = play(id, policy, "same_step", 2, 1, watch=False)
    mine, other = watched.state_dict(), world.state_dict()
    assert [name for name in other if mine[name].tobytes() != other[name].tobytes()] == [] and episode.steps > 0


@pytest.mark.long
@pytest.mark.parametrize(("id", "policy"), [(id, name) for id in WORLDS for name in policies_for(id)])
def test_every_policy_is_recorded_as_it_plays(id, policy):
    """Actions, rewards and masks of a recorded row equal those of an unrecorded world, in a batch of 64."""
    batch = small.rows(id, 64)
    episode, _ = play(id, policy, "disabled", batch, 1, watch=True)
    world = milkrun.make(id, batch, seed=3, autoreset="disabled", **small.options(id))
    world.reset()
    chosen, rewards, masks, actions = policies_for(id)[policy](3), [], [], []
    while len(rewards) < episode.steps:
        live = np.flatnonzero(~(world.terminated | world.truncated))
        if world._mask is not None:
            masks.append(world.action_mask[1].copy())
        taken = chosen(world)
        actions.append(taken[1])
        world.step(taken[live], rows=live)
        rewards.append(float(world.reward[1]))
    assert np.array_equal(episode.column("action"), np.array(actions)) and rewards == episode.column("reward").tolist()
    assert not masks or np.array_equal(episode.column("mask")[:-1], masks)
    assert Episode.from_json(episode.to_json()) == episode


def test_scores_of_a_policy_are_recorded():
    """The scores of every action before each step, as float32."""

    class Scored:
        def scores(self, world):
            return np.arange(6, dtype=float)[None] / 3 + world.i[:, None]

        def __call__(self, world):
            return world.action_mask.argmax(axis=1)

    world = milkrun.make("milkrun/CVRP-v0", 1, seed=1, num_loc=5, autoreset="disabled")
    world.reset()
    (episode,) = record(world, Scored(), name="mine")
    expected = (np.arange(6)[None] / 3 + np.arange(episode.steps)[:, None]).astype(np.float32)
    assert np.array_equal(episode.column("scores"), expected) and episode.policy == "mine"


@pytest.mark.parametrize(
    ("policies", "why"),
    [
        ([], "0 policies: 1 to 3 are allowed"),
        (["random", "nearest", "savings", "exact"], "4 policies: 1 to 3"),
        (["nearest", "nearest"], "'nearest' is given twice"),
        (["nearst"], "no policy or method 'nearst'; did you mean 'nearest'"),
    ],
)
def test_incomparable_policies_are_refused(policies, why):
    """The error has the number, or the name with close ones of policies and methods."""
    with pytest.raises(ConfigError, match=why):
        compare("milkrun/CVRP-v0", policies, num_loc=5)


def test_policies_may_be_one_text():
    """As on the command line; the text is not iterated."""
    one, both = (compare("milkrun/CVRP-v0", names, seed=7, num_loc=8)[0] for names in ("nearest", "nearest,savings"))
    assert [episode.data["policy"] for episode in one + both] == ["nearest", "nearest", "savings"]


def test_actions_are_named_by_what_stands_where_they_lead():
    """The world has the same texts as its episode; seed 7 has demands 5 and 6 at the first two customers."""
    world = milkrun.make("milkrun/CVRP-v0", 1, seed=7, num_loc=8)
    world.reset()
    words = [world.action_name(0, action) for action in range(9)]
    assert words[:3] == ["depot", "customer 1, demand 5", "customer 2, demand 6"]
    assert compare("milkrun/CVRP-v0", ["nearest"], seed=7, num_loc=8)[0][0].data["names"] == [words]


def test_reward_that_is_not_finite_is_written_as_null():
    """A figure of NaN is stored as missing, and the file is valid JSON."""
    world = milkrun.make("milkrun/CVRP-v0", 1, seed=1, num_loc=5, autoreset="disabled")
    world.reset()
    recorder = EpisodeRecorder(world)
    recorder.step(world.action_mask.argmax(axis=1))
    (recording,) = recorder.episodes()
    recording.rewards[0] = float("nan")
    recording.objectives[-1] = float("inf")
    recording.scenes[-1].figures["length"] = float("-inf")
    episode = Episode.from_json(Episode.of(recording).to_json())
    assert episode.data["objective"] is None and episode.data["reward"]["values"] == [None]
    assert episode.data["series"]["length"]["values"][-1] is None and np.isnan(episode.objective)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"policies": None}, "policies must be a list of names, not None"),
        ({"policies": [3]}, r"policies must be a list of names, not \[3\]"),
        ({"rows": 3}, "rows=3: must be a list of row numbers"),
        ({"episode": "first"}, "episode='first': must be an integer >= 0"),
        ({"episode": -1}, "episode=-1: must be an integer >= 0"),
        ({"seed": None}, "seed None: must be an integer"),
    ],
)
def test_invalid_comparisons_are_refused(changes, why):
    """Without a seed each policy would have an instance of its own."""
    with pytest.raises(ConfigError, match=why):
        compare("milkrun/CVRP-v0", **{"policies": ["nearest", "random"], "num_loc": 5, **changes})


def test_only_a_policy_plays_only_a_world_is_played():
    """A number is no policy, and none of these is a world."""
    world = milkrun.make("milkrun/CVRP-v0", 2, num_loc=5)
    world.reset()
    with pytest.raises(ConfigError, match="a policy is a function of a world that returns its actions, not a int"):
        record(world, 3)
    with pytest.raises(ConfigError, match=r"a world is expected, as from milkrun\.make, not a int"):
        record(3, policies_for("milkrun/CVRP-v0")["nearest"](0))


def test_the_configuration_of_an_episode_makes_its_world_again():
    """TSPD's limit of flights is infinite by default, TruckDrone's windows are a pair: both survive JSON."""
    for id in ("milkrun/TSPD-v0", "milkrun/TruckDrone-v0"):
        world = milkrun.make(id, 1, seed=1, autoreset="disabled")
        world.reset()
        (episode,) = record(world, policies_for(id)["random"](0), max_steps=2)
        again = milkrun.make(id, 1, config=Episode.from_json(episode.to_json()).data["config"])
        assert again.config == world.config


@pytest.mark.parametrize("id", ["milkrun/TSP-v0", "milkrun/CVRP-v0", "milkrun/TSPD-v0", "milkrun/DARP-v0"])
def test_a_cost_is_never_negative(id):
    """Whole random episodes of worlds that say `is_cost`: no reward above 0, and a return below it."""
    world = milkrun.make(id, 8, seed=2, autoreset="disabled")
    world.reset()
    for episode in record(world, policies_for(id)["random"](0), range(8)):
        assert episode.data["is_cost"] is True
        assert (episode.column("reward") <= 0).all() and episode.objective < 0
    assert milkrun.world_spec("milkrun/VRPP-v0").load().is_cost is False
