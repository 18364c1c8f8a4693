"""Ends: the three autoreset modes turn by turn, the step limit, illegal actions. Worked out by hand on lanterns.

A lantern row ends when exactly `goal` lamps are lit; actions 0, 1, 2 light as many and pay as much; an action that
would light too many is not allowed. Its image shows 10 * lit + goal in every pixel.
"""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

import milkrun
from milkrun.core.errors import BadInstance, ConfigError, IllegalAction, ResetNeeded
from tests.core.toys import Lantern, LanternConfig, Turnstile, rows_of


def lanterns(*goals: int, max_steps: int | None = None, **rules: object) -> Lantern:
    world = Lantern(len(goals), LanternConfig(max_steps=max_steps), seed=5, **rules)
    world.reset(instance={"goal": np.array(goals)})
    return world


def shown(world: Lantern) -> list[tuple[int, float, bool, bool, int]]:
    """(lit, reward, terminated, truncated, steps) of each row."""
    columns = (world.lit, world.reward, world.terminated, world.truncated, world.i)
    return list(zip(*(c.tolist() for c in columns)))


# -- NEXT_STEP -----------------------------------------------------------------------------------------------------


def test_next_step_turn_by_turn():
    """A row shows its end for one turn; the next turn only resets it, whatever the action; then it plays on."""
    world = lanterns(2, 3, 5)
    assert world.autoreset == "next_step"
    world.step([2, 1, 1])
    assert shown(world) == [(2, 2, True, False, 1), (1, 1, False, False, 1), (1, 1, False, False, 1)]
    assert world.action_mask.tolist() == [[True, False, False], [True, True, True], [True, True, True]]
    assert world.observe()["image"][:, 0, 0].tolist() == [22, 13, 15]
    world.step([1, 2, 2])
    assert shown(world) == [(0, 0, False, False, 0), (3, 2, True, False, 2), (3, 2, False, False, 2)]
    assert world.action_mask.tolist() == [[True, True, True], [True, False, False], [True, True, True]]
    assert world.objective.tolist() == [0, 3, 3] and world.stream[:, 2].tolist() == [1, 0, 0]
    world.step([1, 0, 2])
    assert shown(world) == [(1, 1, False, False, 1), (0, 0, False, False, 0), (5, 2, True, False, 3)]
    assert world.goal.tolist() == [2, 3, 5] and world.stream[:, 2].tolist() == [1, 1, 0]


@pytest.mark.parametrize("illegal", ["noop", "raise"])
def test_the_action_of_a_reset_turn_is_ignored(illegal):
    """Not even an impossible one counts as illegal there."""
    world = lanterns(2, 4, illegal=illegal)
    world.step([2, 1])
    world.step([99, 1])
    assert not world.illegal.any() and shown(world) == [(0, 0, False, False, 0), (2, 1, False, False, 2)]


def test_an_illegal_last_step_leaves_no_trace_on_the_reset_turn():
    """A row cut off by an illegal step resets with illegal False."""
    world = lanterns(2, max_steps=1)
    world.step([7])
    assert world.illegal[0] and world.truncated[0]
    world.step([0])
    assert not world.illegal[0] and shown(world) == [(0, 0, False, False, 0)]


# -- SAME_STEP -----------------------------------------------------------------------------------------------------


def test_same_step_turn_by_turn():
    """Flags and reward are those of the end, all else is of the new episode; `final` keeps the last state shown."""
    world = lanterns(2, 3, 5, autoreset="same_step")
    world.step([2, 1, 1])
    assert shown(world) == [(0, 2, True, False, 0), (1, 1, False, False, 1), (1, 1, False, False, 1)]
    assert world.final_rows.tolist() == [0] and world.stream[:, 2].tolist() == [1, 0, 0]
    assert (world.final["image"] == 22).all() and world.final["image"].shape == (1, 8, 8)
    assert world.final["action_mask"].tolist() == [[True, False, False]]
    assert [world.final[k].tolist() for k in ("objective", "i", "illegal")] == [[2], [1], [False]]
    assert world.observe()["image"][:, 0, 0].tolist() == [2, 13, 15]
    assert world.action_mask[0].tolist() == [True, True, True]
    world.step([1, 2, 2])
    assert shown(world) == [(1, 1, False, False, 1), (0, 2, True, False, 0), (3, 2, False, False, 2)]
    assert world.final_rows.tolist() == [1] and (world.final["image"] == 33).all()
    world.step([0, 1, 1])
    assert shown(world) == [(1, 0, False, False, 2), (1, 1, False, False, 1), (4, 1, False, False, 3)]
    assert world.final_rows.tolist() == [] and world.final == {}


def test_same_step_plays_on_at_once():
    """A goal of 2 reached every turn ends every turn, under `raise` too: the mask in force is the new episode's."""
    world = lanterns(2, 2, autoreset="same_step", illegal="raise")
    for turn in range(3):
        world.step([2, 2])
        assert world.final_rows.tolist() == [0, 1] and world.terminated.all() and world.reward.tolist() == [2, 2]
        assert world.stream[:, 2].tolist() == [turn + 1] * 2
    with pytest.raises(IllegalAction, match="row 1: action 3"):
        world.step([2, 3])


def test_same_step_keeps_the_last_observation_of_a_truncated_row():
    """Cut off by the step limit after an illegal action: the flag, `illegal` and the final observation show both."""
    world = lanterns(4, autoreset="same_step", max_steps=2)
    world.step([1])
    world.step([9])
    assert shown(world) == [(0, 0, False, True, 0)] and world.illegal[0]
    assert (world.final["image"] == 14).all() and world.final["illegal"].tolist() == [True]


def test_same_step_keeps_the_instance_a_row_played():
    """Rows that share instances: `final` holds that of each ended row, whatever its number."""
    world = milkrun.make("milkrun/TSP-v0", 4, seed=1, num_loc=2, autoreset="same_step")
    places = np.arange(8.0, dtype=np.float32).reshape(2, 2, 2)
    world.reset(instance={"locs": places, "instance_row": [0, 1, 0, 1]})
    world.step([1, 1, 1, 1])
    world.step([9, 0, 0, 0])
    assert world.final_rows.tolist() == [1, 2, 3] and (world.final["locs"] == places[[1, 0, 1]]).all()
    assert world.final["n_nodes"].tolist() == [2, 2, 2] and world.final["visited"].all()


def test_same_step_paints_only_the_rows_that_ended():
    """The image is costly: for `final` only that of the ended row is made."""
    world = lanterns(2, 3, 5, autoreset="same_step")
    world.step([2, 1, 1])
    assert world.looks.tolist() == [1, 0, 0]


# -- DISABLED ------------------------------------------------------------------------------------------------------


def test_disabled_waits_for_a_reset():
    """A step that includes ended rows names them, raises and moves no row; the other rows may go on."""
    world = lanterns(2, 4, 2, autoreset="disabled")
    world.step([2, 1, 2])
    before = rows_of(world)
    with pytest.raises(ResetNeeded, match=r"rows 0, 2"):
        world.step([0, 1, 0])
    with pytest.raises(ResetNeeded, match=r"row 2\b"):
        world.step([1, 0], rows=[1, 2])
    assert rows_of(world) == before
    world.step([1], rows=[1])
    world.reset(rows=[0, 2])
    world.step([1, 1, 1])
    assert shown(world) == [(1, 1, False, False, 1), (3, 1, False, False, 3), (1, 1, False, False, 1)]


def test_a_step_before_the_first_reset_is_refused():
    """Also of one row that was left out of the only reset."""
    world = Lantern(2)
    with pytest.raises(ResetNeeded, match="before the first reset"):
        world.step([1, 1])
    world.reset(rows=[1])
    with pytest.raises(ResetNeeded):
        world.step([1, 1])
    world.step([1], rows=[1])
    world.reset(rows=[0])
    world.step([1, 1])
    assert world.i.tolist() == [1, 2]


# -- modes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", AutoresetMode)
def test_modes_by_all_their_names(mode):
    """Gymnasium's member, its value and our own word mean the same."""
    word = mode.name.lower()
    assert Lantern(1, autoreset=mode).autoreset == Lantern(1, autoreset=mode.value).autoreset == word
    assert Lantern(1, autoreset=word).autoreset == word


@pytest.mark.parametrize("mode", ["later", None, 1, ""])
def test_an_unknown_mode_is_refused(mode):
    """The sentence lists the three."""
    with pytest.raises(ConfigError, match=r"autoreset.*'next_step', 'same_step' or 'disabled'"):
        Lantern(1, autoreset=mode)


def test_all_modes_play_the_same_episodes():
    """The k-th episode of a row is the same drawn instance whether a mode or a caller began it."""
    goals: dict[str, list[list[int]]] = {}
    for mode in ("next_step", "same_step", "disabled"):
        world = Lantern(20, seed=8, autoreset=mode)
        world.reset()
        seen = [[int(g)] for g in world.goal]
        for _ in range(30):
            episode = world.stream[:, 2].copy()
            world.step(np.where(world.action_mask[:, 1], 1, 0))
            if mode == "disabled" and (done := np.flatnonzero(world.terminated)).size:
                world.reset(rows=done)
            for b in np.flatnonzero(world.stream[:, 2] > episode):
                seen[b].append(int(world.goal[b]))
        goals[mode] = [row[:5] for row in seen]
    assert min(len(row) for row in goals["next_step"]) == 5
    assert goals["next_step"] == goals["same_step"] == goals["disabled"]
    assert len({tuple(row) for row in goals["disabled"]}) > 10


# -- the step limit ------------------------------------------------------------------------------------------------


def test_the_step_limit_truncates():
    """Three steps, illegal ones too; a row that ends by its own rules on that step is terminated only."""
    world = lanterns(5, 3, 4, max_steps=3)
    for actions in ([1, 1, 1], [0, 9, 0]):
        world.step(actions)
        assert not world.truncated.any()
    world.step([1, 2, 3])
    assert shown(world) == [(2, 1, False, True, 3), (3, 2, True, False, 3), (1, 0, False, True, 3)]
    assert world.action_mask.tolist() == [[True, False, False]] * 3


def test_a_terminal_reward_is_the_same_sum_paid_at_the_end():
    """TSP with three nodes: nothing, nothing, then minus the whole tour; also when the limit cuts it off."""
    paid = {}
    for rule, limit in (("dense", None), ("terminal", None), ("terminal", 2)):
        world = milkrun.make("milkrun/TSP-v0", 2, seed=3, num_loc=3, reward=rule, max_steps=limit)
        world.reset()
        paid[rule, limit] = []
        for action in (1, 2, 0)[:limit]:
            world.step([action] * 2)
            paid[rule, limit].append(world.reward.copy())
    dense, whole, cut = paid.values()
    assert (whole[0] == 0).all() and (whole[1] == 0).all() and (cut[0] == 0).all()
    np.testing.assert_allclose(whole[2], sum(dense), rtol=1e-6)
    np.testing.assert_allclose(cut[1], dense[0] + dense[1], rtol=1e-6)


# -- illegal actions -----------------------------------------------------------------------------------------------


def test_noop_counts_the_step_and_does_nothing_else():
    """Lit stays, the mask stays, reward 0; only `i` and the flag move, and only in that row."""
    world = lanterns(2, 4)
    world.step([1, 1])
    before = world.state_dict()
    world.step([2, 2])
    after = world.state_dict()
    assert after["illegal"].tolist() == [True, False] and after["reward"].tolist() == [0, 2]
    assert {name for name in before if (before[name][0] != after[name][0]).any()} == {"illegal", "reward", "i"}
    world.step([1, 1])
    assert not world.illegal.any()


@pytest.mark.parametrize("action", [-1, 3, 2**40, -(2**40), 2**63 - 1])
def test_out_of_range_is_illegal_like_any_other(action):
    """It never indexes memory: noop under `noop`, refused by number under `raise`."""
    world = lanterns(3, 3)
    world.step([1, action])
    assert world.illegal.tolist() == [False, True] and world.lit.tolist() == [1, 0]
    strict = lanterns(3, 3, illegal="raise")
    with pytest.raises(IllegalAction, match=f"row 1: action {action}:"):
        strict.step([1, action])


def test_raise_names_the_first_illegal_row_and_moves_no_row():
    """First in the order of the call; rows with legal actions do not move either."""
    world = lanterns(*[3] * 9, illegal="raise")
    before = rows_of(world)
    with pytest.raises(IllegalAction, match="row 4: action 3: not in the action mask"):
        world.step([1, 1, 1, 1, 3, 1, 9, 1, 1])
    with pytest.raises(IllegalAction, match="row 6: action 9"):
        world.step([1, 9, 3], rows=[8, 6, 4])
    assert rows_of(world) == before
    world.step([1] * 9)
    assert world.lit.tolist() == [1] * 9


def test_raise_uses_a_worlds_own_rule():
    """-1 passes a turnstile though the mask cannot show it; the last gate does not."""
    world = Turnstile(2, seed=0, illegal="raise")
    world.reset(instance={"closing": [8, 8]})
    world.step([-1, 3])
    with pytest.raises(IllegalAction, match="row 1: action 3"):
        world.step([2, 3])


def test_same_step_refuses_to_load_a_row_that_is_over():
    """The flags of a row are those of the previous episode: a loaded row must have begun the next one."""
    over = milkrun.make("milkrun/TSP-v0", 2, seed=1, num_loc=5, autoreset="disabled")
    over.reset()
    going_on = milkrun.make("milkrun/TSP-v0", 2, seed=1, num_loc=5, autoreset="same_step")
    going_on.reset()
    for world in (over, going_on):
        while not world.terminated.all():
            world.step(world.action_mask.argmax(axis=1))
    with pytest.raises(BadInstance, match="row 0: i = 5: the episode is over, and a world with autoreset='same_step'"):
        going_on.load_state_dict(over.state_dict())
    going_on.load_state_dict(going_on.state_dict())
    assert going_on.i.tolist() == [0, 0] and going_on.terminated.all()


@pytest.mark.parametrize("flag", ["terminated", "truncated"])
def test_same_step_checks_the_rows_that_it_will_play(flag):
    """A join of a drone that is aboard would read outside of the costs; only a row that has ended may allow it."""
    for mode in ("disabled", "same_step"):
        world = milkrun.make("milkrun/TSPD-v0", 1, seed=1, num_nodes=5, autoreset=mode)
        world.reset()
        saved = world.state_dict()
        saved[flag][:] = saved["done"][:] = True
        saved["action_mask"][:, 10] = True
        if mode == "disabled":
            world.load_state_dict(saved)
        else:
            with pytest.raises(BadInstance, match=r"row 0: action_mask\[10\] = True: the state does not"):
                world.load_state_dict(saved)
