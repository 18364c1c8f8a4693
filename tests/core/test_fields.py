"""Fields: their declarations, foreign memory, views made on demand, groups of agents."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from numba.core import event

from milkrun.core import fields
from milkrun.core.actions import agents, discrete
from milkrun.core.errors import ConfigError, IllegalAction, MilkrunError, ShapeError
from milkrun.core.fields import Role, constant, float32, instance, int32, mask, state, view
from milkrun.core.sampling import random_step
from milkrun.core.world import World
from milkrun.routing.cvrp import CVRP, CVRPConfig
from milkrun.routing.tsp import TSP
from tests.core.toys import Borrowed, Convoy, ConvoyConfig, Drifter, Glider, Lantern, LanternConfig, Sorter, rows_of

# -- declarations --------------------------------------------------------------------------------------------------


class Plain(World):
    """Every kind of field, once; never run."""

    action = discrete("N")
    factor = constant(float32)
    places = instance(float32, "N", 2, low=0, high=1, doc="where")
    limit = instance(float32, low=0, limit=True)
    secret = instance(int32, hidden=True)
    here = state(int32, index="N")
    lamps = state(int32, low=0, high="N")
    quiet = state(int32, observed=False)
    count = state(int32, tally=True)
    off = state(int32, "Z")
    page = view(float32, "N")
    action_mask = mask("N")


class Watched(Plain):
    """The same with a view that is the observation, and a field declared again."""

    lamps = state(int32, low=0, high=3, doc="fewer")
    picture = view(float32, "N", primary=True)


SIZES = {"N": 4, "Z": 0}


def test_fields_stand_in_the_order_of_their_declaration():
    """A world's own first, a base class before its subclass, the contract's last; declared again they keep their
    place."""
    own = ["factor", "places", "limit", "secret", "here", "lamps", "quiet", "count", "off", "page", "action_mask"]
    contract = [name for name, value in vars(World).items() if isinstance(value, fields.Field)]
    assert {"reward", "terminated", "truncated", "illegal", "instance_row", "stream"} <= set(contract)
    assert list(Plain.fields) == own + contract
    assert list(Watched.fields)[: len(own) + 1] == [*own, "picture"] and Watched.fields["lamps"].doc == "fewer"
    assert Plain.fields["lamps"].doc == ""


def test_an_agent_sees_the_observed_fields():
    """Instance and state fields that are neither hidden nor unobserved, no tally and not off; observed views replace
    them all."""
    seen = [f.name for f in fields.observed_fields(Plain.fields, SIZES)]
    assert seen == ["places", "limit", "here", "lamps", "i"]
    assert [f.name for f in fields.observed_fields(Watched.fields, SIZES)] == ["picture"]


def test_shapes_and_bounds_come_from_sizes():
    """Names get their value; an index runs to the size less one; a bound may be the name of a size."""
    f = Plain.fields
    assert f["places"].shape(SIZES) == (4, 2) and f["here"].shape(SIZES) == () and f["off"].shape(SIZES) == (0,)
    assert f["here"].bounds(SIZES) == (0, 3) and f["lamps"].bounds(SIZES) == (0, 4)
    assert f["places"].bounds(SIZES) == (0, 1) and f["quiet"].bounds(SIZES) == (None, None)


def test_the_table_of_the_docs():
    """One line a field with its meaning and bounds; constants and scratch are left out."""
    lines = fields.table_markdown(Plain.fields).splitlines()
    assert "| `places` | float32 | (N, 2) | instance | where (0..1) |" in lines
    assert any(line.startswith("| `secret` | int32 | scalar | instance, hidden |") for line in lines)
    assert any("0..N-1" in line for line in lines if "`here`" in line)
    assert any("inf = no limit" in line for line in lines if "`limit`" in line)
    assert len(lines) == 2 + sum(f.role not in (Role.CONSTANT, Role.SCRATCH) for f in Plain.fields.values())


@pytest.mark.parametrize("world_class", [TSP, CVRP, Lantern, Convoy, Glider, Borrowed, Sorter])
def test_arrays_are_as_declared(world_class):
    """Every field has its dtype and, with the row first, its shape."""
    world = world_class(3)
    for f in world.fields.values():
        if f.per_row:
            array = getattr(world, f.name)
            assert array.dtype == f.dtype and array.shape == (3, *f.shape(world.sizes)), f.name


def test_a_field_of_size_0_is_off():
    """Without a matrix CVRP has no `dist` to see, without record no `tour`; with them it has both."""
    plain = CVRP(2, CVRPConfig(num_loc=4, record=False))
    full = CVRP(2, CVRPConfig(num_loc=4, metric="matrix"))
    plain.reset(), full.reset()
    assert plain.dist.size == plain.tour.size == 0 and "dist" not in plain.observe()
    assert full.observe()["dist"].shape == (2, 5, 5) and full.tour.shape == (2, 10)


def test_no_configuration_value_causes_a_compile():
    """After one CVRP has run, others of every size, metric, law and limit run on the same code."""
    CVRP(2).reset()
    CVRP(2, CVRPConfig(num_loc=3)).reset()
    heard = event.RecordingListener()
    event.register("numba:compile", heard)
    try:
        for config in ({"num_loc": 9}, {"metric": "matrix"}, {"loc_distribution": "mixed"}, {"record": False}):
            CVRP(2, CVRPConfig(**config)).reset()
    finally:
        event.unregister("numba:compile", heard)
    assert heard.buffer == []


@pytest.mark.parametrize("name", ["step", "reset", "fields", "num_envs", "seed", "config", "sizes", "final", "spec"])
def test_a_field_cannot_take_a_name_of_the_contract(name):
    """It would shadow a part of every World."""
    with pytest.raises(ConfigError, match=name):
        type("Shadow", (World,), {"action": discrete(2), name: state(int32)})


class TooFewMasks(Lantern):
    action = discrete(7)


class TooFewJointMasks(Convoy):
    action = agents(truck=(1, 40), drone=("D", 2))


class NoSuchSize(Lantern):
    extra = state(int32, "Q")


class NoSuchOption(Lantern):
    unheard = constant(int32)


class SizeLikeField(Lantern):
    S = state(int32)


class GapsUndeclared(Lantern):
    def allocate(self, field: Any, shape: tuple[int, ...]) -> np.ndarray:
        return np.zeros((*shape, 2), field.dtype)[..., 0] if field.name == "lit" else super().allocate(field, shape)


class OtherDtype(Lantern):
    def allocate(self, field: Any, shape: tuple[int, ...]) -> np.ndarray:
        return np.zeros(shape, np.int64) if field.name == "lit" else super().allocate(field, shape)


@pytest.mark.parametrize(
    "world_class",
    [TooFewMasks, TooFewJointMasks, NoSuchSize, NoSuchOption, SizeLikeField, GapsUndeclared, OtherDtype],
)
def test_an_invalid_declaration_is_refused(world_class):
    """Kernels trust the declarations: a mask of another width, undeclared gaps or another dtype would make them write
    out of bounds. Such a world is refused with an error of the library."""
    with pytest.raises(MilkrunError):
        world_class(2)


# -- foreign memory ------------------------------------------------------------------------------------------------


def test_kernels_write_into_foreign_memory():
    """Places go to columns 5, 3, 1 of the owner's array, fuel to column 7, goals through a transpose; gaps stay."""
    world = Borrowed(3, seed=2, autoreset="disabled")
    world.reset()
    world.step([0, 1, 2])
    expected = np.full((3, 9), -7.0)
    expected[:, [1, 3, 5]] = 0.0
    expected[:, 7] = 3.0
    expected[[0, 1, 2], [5, 3, 1]] = world.goals[[0, 1, 2], [2, 3, 4]]
    assert (world.memory == expected).all() and (world.goals[:, :2] == -7).all()
    assert (0 < world.goals[:, 2:]).all() and (world.goals[:, 2:] < 1).all()
    assert world.reward.tolist() == [-3, -3, -3]


def test_foreign_rows_reset_save_and_load_like_any():
    """Only the named rows of the owner's array change, and a saved state comes back to it."""
    world = Borrowed(4, seed=2)
    world.reset()
    world.step([0, 1, 2, 0])
    saved, before = world.state_dict(), world.memory.copy()
    world.reset(rows=[1])
    assert (world.memory[[0, 2, 3]] == before[[0, 2, 3]]).all() and world.memory[1, 7] == 4.0
    for action in (1, 2, 0):
        world.step([action] * 4)
    world.load_state_dict(saved)
    assert (world.memory == before).all() and rows_of(world)["goal"] == saved["goal"].tobytes()


def test_foreign_instances_may_be_shared():
    """Fewer instance rows than rows: the hook lays them out again, with its own gaps."""
    world = Borrowed(4, seed=2)
    world.reset(instance={"goal": [[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]], "instance_row": [1, 0, 1, 0]})
    assert world.goals.shape == (3, 4) and world.goal.base is not None
    world.step([2, 2, 0, 1])
    assert world.place.tolist() == [[0, 0, 0.6], [0, 0, 0.3], [0.4, 0, 0], [0, 0.2, 0]]


def test_a_mask_of_size_0_is_no_mask():
    """Kernels have its memory, and it is in no output, also at an end; a saved state goes on as usual."""
    world = Drifter(2, seed=1, autoreset="same_step")
    world.reset(instance={"wind": [1.0, 0.0]})
    assert world.action_mask.shape == (2, 0) and list(world.observe()) == list(Glider(2).observe())
    saved = world.state_dict()
    for _ in range(2):
        world.step(np.ones((2, 2), np.float32))
    assert world.final_rows.tolist() == [0] and "action_mask" not in world.final
    world.load_state_dict(saved)
    assert rows_of(world) == {name: array.tobytes() for name, array in sorted(saved.items())}


# -- views on demand -----------------------------------------------------------------------------------------------


def test_a_view_is_made_only_by_observe():
    """Ten steps paint nothing; `observe` paints each row once; a second call without a step paints nothing."""
    world = Lantern(3, LanternConfig(side=64, longest=900), seed=1)
    world.reset()
    for _ in range(10):
        world.step([1, 1, 0])
    assert world.looks.tolist() == [0, 0, 0]
    seen = world.observe()
    assert (seen["image"] == ((10 * world.lit + world.goal) % 256).astype(np.uint8)[:, None, None]).all()
    world.observe()
    assert world.looks.tolist() == [1, 1, 1] and seen["image"].shape == (3, 64, 64)


@pytest.mark.parametrize("how", ["step", "step rows", "reset", "reset rows", "load", "load rows"])
def test_observe_is_up_to_date_after_any_change(how):
    """Whatever changed a row, the next call of `observe` shows it."""
    world = Lantern(2, seed=1)
    world.reset(instance={"goal": [5, 4]})
    other = world.state_dict()
    world.step([1, 2])
    assert world.observe()["image"][:, 0, 0].tolist() == [15, 24]
    action = {
        "step": lambda: world.step([2, 1]),
        "step rows": lambda: world.step([1], rows=[1]),
        "reset": lambda: world.reset(instance={"goal": [3, 2]}),
        "reset rows": lambda: world.reset(rows=[0]),
        "load": lambda: world.load_state_dict(other),
        "load rows": lambda: world.load_state_dict({k: v[:1] for k, v in other.items()}, rows=[0]),
    }
    action[how]()
    expected = {
        "step": [35, 34],
        "step rows": [15, 34],
        "reset": [3, 2],
        "reset rows": [5, 24],
        "load": [5, 4],
        "load rows": [5, 24],
    }
    assert world.observe()["image"][:, 0, 0].tolist() == expected[how]


def test_observing_some_rows_makes_their_views_alone():
    """Only requested rows that moved since the last call are painted; the returned arrays are the world's own
    memory."""
    world = Lantern(4, LanternConfig(longest=900), seed=1)
    world.reset()
    goals = world.goal.tolist()
    image = world.observe(rows=[3, 1])["image"]
    assert image[[1, 3], 0, 0].tolist() == [goals[1] % 256, goals[3] % 256] and world.looks.tolist() == [0, 1, 0, 1]
    world.observe(rows=np.array([True, True, False, False]))
    assert world.looks.tolist() == [1, 1, 0, 1]
    world.step([1], rows=[1])
    world.reset(rows=[3])
    world.observe(rows=[2])
    assert world.looks.tolist() == [1, 1, 1, 1] and image[1, 0, 0] == goals[1] % 256
    world.observe()
    assert world.looks.tolist() == [1, 2, 1, 2] and image[1, 0, 0] == (10 + goals[1]) % 256
    world.step([1, 1, 1, 1])
    world.observe([0])
    world.step([1], rows=[0])
    world.observe()
    assert world.looks.tolist() == [3, 3, 2, 3]
    with pytest.raises(ShapeError, match=r"4 is not in 0\.\.3"):
        world.observe(rows=[4])


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda world: pickle.loads(pickle.dumps(world))])
def test_a_copy_knows_which_rows_are_outdated(copied):
    """The copy paints the row that moved since the last call, and no other."""
    world = Lantern(3, seed=1)
    world.reset(instance={"goal": [5, 4, 3]})
    world.observe()
    world.step([2], rows=[1])
    twin = copied(world)
    assert twin.observe()["image"][:, 0, 0].tolist() == [5, 24, 3] and twin.looks.tolist() == [1, 2, 1]
    assert world.image[:, 0, 0].tolist() == [5, 4, 3] and world.looks.tolist() == [1, 1, 1]


def test_ended_rows_are_painted_at_their_end_and_in_their_new_episode():
    """SAME_STEP, one row stepped alone: its last picture is kept, and its new episode is painted by `observe`."""
    world = Lantern(3, seed=1, autoreset="same_step")
    world.reset(instance={"goal": [5, 4, 2]})
    world.observe()
    world.step([2], rows=[2])
    assert world.final["image"][:, 0, 0].tolist() == [22] and world.looks.tolist() == [1, 1, 2]
    assert world.observe()["image"][:, 0, 0].tolist() == [5, 4, 2] and world.looks.tolist() == [1, 1, 3]


def test_episodes_begun_by_autoreset_are_painted():
    """NEXT_STEP, one row stepped alone: its end, then its beginning; `play_out` outdates every row."""
    world = Lantern(2, LanternConfig(max_steps=9), seed=1)
    world.reset(instance={"goal": [5, 2]})
    for action, expected in ((2, [5, 22]), (0, [5, 2])):
        world.step([action], rows=[1])
        assert world.observe()["image"][:, 0, 0].tolist() == expected
    assert world.looks.tolist() == [1, 2]
    world.play_out(random_step, 3)
    ends = (10 * world.lit + world.goal).tolist()
    assert world.observe(rows=[0])["image"][0, 0, 0] == ends[0] and world.looks.tolist() == [2, 2]
    assert world.observe()["image"][:, 0, 0].tolist() == ends


# -- groups of agents ----------------------------------------------------------------------------------------------


def convoy(*homes: list[int], **options: Any) -> Convoy:
    world = Convoy(len(homes), ConvoyConfig(drones=len(homes[0]) - 1), seed=1, **options)
    world.reset(instance={"home": homes})
    return world


def test_groups_name_their_agents():
    """One truck of four actions, three drones of two each: four actions a row, masks one after another."""
    world = convoy([0, 0, 0, 0])
    assert world.groups == {"truck": ["truck_0"], "drone": ["drone_0", "drone_1", "drone_2"]}
    assert world.action.nvec(world.sizes) == [4, 2, 2, 2] and world.action.shape(world.sizes) == (4,)
    assert world.action_mask.shape == (1, 10) and world.action.kind == "multi"


def test_agents_move_together_and_see_one_moment():
    """Views, `state` and masks are of the moment after the step, also on the turn that ends and the one that resets."""
    world = convoy([6, 0, 8], [9, 9, 0])
    world.step([[3, 1, 1], [0, 0, 1]])
    assert world.at.tolist() == [[9, 1, 9], [9, 9, 1]] and world.reward.tolist() == [5, 1]
    assert world.state.tolist() == world.at.tolist() and world.truck_obs.tolist() == [[[9]], [[9]]]
    assert world.drone_obs[..., 0].tolist() == [[1, 9], [9, 1]]
    assert world.action_mask.astype(int).tolist() == [[1, 0, 0, 0, 1, 1, 1, 0], [1, 0, 0, 0, 1, 0, 1, 1]]
    world.step([[0, 1, 0], [0, 0, 1]])
    assert world.terminated.tolist() == [True, True]
    assert world.action_mask.astype(int).tolist() == [[1, 0, 0, 0, 1, 0, 1, 0]] * 2
    assert list(world.observe()) == ["truck_obs", "drone_obs", "state", "action_mask"]
    world.step([[3, 1, 1], [3, 1, 1]])
    assert world.at.tolist() == world.state.tolist() == [[6, 0, 8], [9, 9, 0]]
    assert world.action_mask.astype(int).tolist() == [[1, 1, 1, 1, 1, 1, 1, 1], [1, 0, 0, 0, 1, 0, 1, 1]]


@pytest.mark.parametrize("action", [[1, 0, 0], [0, 2, 0], [0, 0, -1], [2**40, 0, 0], [0, 0, 1]])
def test_one_illegal_agent_makes_the_joint_action_illegal(action):
    """No agent of that row moves; under `raise` the error names the row and the whole action."""
    world = convoy([9, 0, 9], [0, 0, 0])
    world.step([action, [1, 1, 1]])
    assert world.illegal.tolist() == [True, False] and world.at.tolist() == [[9, 0, 9], [1, 1, 1]]
    strict = convoy([0, 0, 0], [9, 0, 9], illegal="raise")
    with pytest.raises(IllegalAction, match=r"row 1: action \[" + ", ".join(map(str, action))):
        strict.step([[1, 1, 1], action])


@pytest.mark.parametrize(
    "actions", [[0, 0], [[0, 0], [0, 0]], [[0, 0, 0]], [[0.0, 0, 0]] * 2, [[True, False, True]] * 2]
)
def test_joint_actions_of_a_wrong_shape_are_refused(actions):
    """One integer an agent, one list a row."""
    world = convoy([9, 0, 9], [0, 0, 0])
    with pytest.raises(ShapeError, match=r"\(2, 3\)"):
        world.step(actions)


@pytest.mark.parametrize("world_class", [TSP, Convoy, Glider])
def test_sampled_actions_are_allowed_and_belong_to_their_row(world_class):
    """A row's draw depends on its key, the seed and the turn: the row made alone draws the same."""
    world = world_class(6, seed=3)
    world.reset()
    alone = world_class(1, seed=3, first_row=4)
    alone.reset()
    draws = [world.sample_actions(8, turn) for turn in range(5)]
    assert all((alone.sample_actions(8, turn)[0] == draw[4]).all() for turn, draw in enumerate(draws))
    assert len({draw.tobytes() for draw in draws}) == 5
    world.step(draws[0])
    assert not world.illegal.any()


def test_sampling_covers_every_allowed_action_of_every_agent():
    """A truck at 7 may go 0, 1, 2 and a drone at 9 only stay; over 400 rows each allowed action comes, no other."""
    world = Convoy(400, ConvoyConfig(drones=2), seed=1)
    world.reset(instance={"home": [[7, 9, 0]], "instance_row": np.zeros(400, int)})
    drawn = world.sample_actions(1)
    assert [sorted(set(column)) for column in drawn.T.tolist()] == [[0, 1, 2], [0], [0, 1]]
    assert np.bincount(drawn[:, 0]).min() > 90


def test_a_type_that_is_none_is_refused_with_the_name_of_the_field():
    """numpy knows neither the field nor the class; here both are named, and the types there are."""
    said = (
        "Wide: the field 'stage' has the unknown type 'int31': it must be one of bool, int8, int16, int32, int64, "
        "uint8, float32, float64"
    )
    with pytest.raises(ConfigError, match=f"^{said}$"):
        type("Wide", (TSP,), {"stage": state("int31", "N")})
