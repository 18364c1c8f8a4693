"""The TSP with a drone by hand: every rule of the mask, costs of waiting, reasons of masked actions.

Problems are on a line, which allows mental arithmetic; see `tspd_by_hand`.
"""

from __future__ import annotations

import numpy as np
import pytest

from milkrun.core.errors import IllegalAction
from milkrun.delivery.tspd import TSPD
from tests.core.toys import rows_of
from tests.delivery.tspd_by_hand import begun, code, line, opened, play

UNIFORM_1_N5 = {"locs": np.array([[0.6465821602909256, 0.9513577109193919], [10, 93], [29, 49], [97, 37], [60, 38]])}


# -- time and cost ----------------------------------------------------------------------------------------------------


def test_the_published_plan_of_uniform_1_n5():
    """Agatz, Bouman and Schmidt's file: two operations, in both the drone waits, the truck never."""
    world = begun(UNIFORM_1_N5)
    play(world, "L3 D4 J")
    assert world.clock[0] == pytest.approx(69.96735027653504, abs=1e-12)
    assert world.drone_wait[0] == pytest.approx(0.022559846, abs=1e-9)
    play(world, "L1 D2 D0 J")
    assert world.terminated[0]
    assert world.clock[0] == pytest.approx(158.65169431234995, abs=1e-12)
    assert world.drone_wait[0] == pytest.approx(0.022559846 + 5.257852005, abs=2e-9)
    assert world.truck_wait[0] == 0
    kpis, _ = TSPD.replay(UNIFORM_1_N5, [(0, 0, -1, ()), (0, 4, 3, ()), (4, 0, 1, (2,))])
    assert kpis["makespan"] == world.clock[0]


def test_the_truck_waits_for_a_slow_drone():
    """The flight 0-3-1 costs 15 + 10; the truck is at 1 after 10 and waits 15 until the join."""
    world = begun(line())
    assert play(world, "L3 D1 J D2 D0") == [0, -10, -15, -10, -20]
    assert world.terminated[0] and world.objective[0] == -55 and world.clock[0] == 55
    assert world.truck_wait[0] == 15 and world.drone_wait[0] == 0 and world.drone_fly[0] == 25


def test_the_drone_waits_for_a_slow_truck():
    """The flight 0-1-3 costs 5 + 10, the drive 30: the join costs nothing and the drone waits 15."""
    world = begun(line())
    assert play(world, "L1 D3 J D2 D0") == [0, -30, 0, -10, -20]
    assert world.drone_wait[0] == 15 and world.truck_wait[0] == 0 and world.truck_drive[0] == 60


def test_a_drone_may_return_to_its_launch_node():
    """The truck stands and waits for 5 + 5; with two nodes that is the whole plan, without driving."""
    assert play(begun(line()), "L1 J") == [0, -10]
    both = begun(line((0.0, 10.0)))
    assert play(both, "L1 J") == [0, -10]
    assert both.terminated[0] and both.truck_drive[0] == 0


def test_only_the_drive_since_the_launch_counts():
    """After 10 to node 1 the flight 1-2-1 costs 10, and the truck waits there for all of it."""
    assert play(begun(line()), "D1 L2 J D3 D0") == [-10, 0, -10, -20, -30]


def test_costs_may_differ_by_direction():
    """The flight 0-2-1 costs 20 + 60, the drive 0-1 costs 1 and home 3."""
    costs = {
        "c_truck": np.array([[0, 1, 2], [3, 0, 4], [5, 6, 0]], float),
        "c_drone": np.array([[0, 10, 20], [30, 0, 40], [50, 60, 0]], float),
    }
    world = begun(costs)
    assert play(world, "L2 D1 J D0") == [0, -1, -79, -3]
    assert world.fly_on[0].tolist() == [10, 30, 50]
    assert opened(begun({**costs, "max_fly": np.float64(70)})) == "D1 D2 L1 L2"
    assert opened(begun({**costs, "max_fly": np.float64(69.9)})) == "D1 D2 L1"
    short = begun({**costs, "max_fly": np.float64(70)})
    play(short, "L2 D1")
    assert opened(short) == "D0"  # 20 + 60 to node 1 is too far, 20 + 50 home is not


# -- the mask ---------------------------------------------------------------------------------------------------------


def test_all_but_the_depot_and_the_join_are_allowed_at_the_start():
    """Drives and launches to every customer."""
    assert opened(begun(line())) == "D1 D2 D3 L1 L2 L3"


def test_the_depot_is_allowed_when_all_is_covered():
    """With the drone aboard not before, and then as the only action."""
    world = begun(line())
    for stop, then in (("D1", "D2 D3 L2 L3"), ("D2", "D3 L3"), ("D3", "D0")):
        play(world, stop)
        assert opened(world) == then


def test_with_the_drone_out_covered_nodes_are_meeting_nodes():
    """From node 1 back to the depot: there only the join is left."""
    world = begun(line())
    play(world, "L3")
    assert opened(world) == "D1 D2 J"
    play(world, "D1")
    assert opened(world) == "D0 D2 J"
    play(world, "D0")
    assert world.must_join[0] and opened(world) == "J"
    play(world, "J")
    assert not world.must_join[0] and opened(world) == "D2 L2"


def test_at_a_forbidden_node_the_drone_neither_launches_nor_joins():
    """The truck may serve it, with the drone aboard or out."""
    world = begun(line(forbid=[1]))
    assert opened(world) == "D1 D2 D3 L2 L3"
    play(world, "L3 D1")
    assert opened(world) == "D0 D2"
    play(world, "D2")
    assert opened(world) == "D0 J"
    aboard = begun(line(forbid=[1]))
    play(aboard, "D1")
    assert opened(aboard) == "D2 D3"
    play(aboard, "D2")
    assert opened(aboard) == "D3 L3"


def test_a_forbidden_depot_still_ends_the_day():
    """No launch and no join there, but the way home."""
    world = begun(line(forbid=[0]))
    assert opened(world) == "D1 D2 D3"
    play(world, "D1 L2")
    assert opened(world) == "D3 J"
    play(world, "D3")
    assert opened(world) == "D1 J"
    play(world, "J")
    assert opened(world) == "D0"


def test_a_node_that_the_drone_may_not_serve_is_still_a_meeting_node():
    """The drone cannot serve node 2, but join there."""
    world = begun(line(no_visit=[2]))
    assert opened(world) == "D1 D2 D3 L1 L3"
    play(world, "L3 D2")
    assert opened(world) == "D0 D1 J"


def test_a_launch_needs_a_meeting_node():
    """From the depot out and on to the nearest node: 10, 15 and 20 for the nodes 1, 2 and 3."""
    assert opened(begun(line(max_fly=20))) == "D1 D2 D3 L1 L2 L3"
    assert opened(begun(line(max_fly=15))) == "D1 D2 D3 L1 L2"
    assert opened(begun(line(max_fly=9))) == "D1 D2 D3"
    assert opened(begun(line(max_fly=0))) == "D1 D2 D3"


def test_a_forbidden_node_is_no_meeting_node_of_a_launch():
    """With 1 and 3 forbidden the nearest meeting node after node 2 is the depot: 10 + 10."""
    assert opened(begun(line(max_fly=15, forbid=[1, 3]))) == "D1 D2 D3"
    assert opened(begun(line(max_fly=20, forbid=[1, 3]))) == "D1 D2 D3 L2"


def test_range_masks_the_join_and_covered_nodes():
    """Out to 2 for 10, 5 left: nodes 1 and 3 are in range, the depot is not."""
    world = begun(line(max_fly=15))
    play(world, "L2")
    assert opened(world) == "D1 D3"
    play(world, "D1")
    assert opened(world) == "D3 J"
    play(world, "D3")
    assert opened(world) == "D1 J"


def test_the_truck_may_serve_a_node_out_of_range_on_the_way():
    """Node 4 at 100 is out of the drone's range; the drone waits at 1 or 3 for the truck."""
    world = begun(line((0.0, 10.0, 20.0, 30.0, 100.0), max_fly=15))
    play(world, "L2")
    assert opened(world) == "D1 D3 D4"
    play(world, "D4")
    assert opened(world) == "D1 D3"
    play(world, "D3 J")
    assert world.clock[0] == 170 and world.drone_wait[0] == 155


def test_range_has_a_tolerance_of_a_billionth():
    """Flights of 15, out and on, and of 20, back to the depot, are allowed with a limit 5e-10 less, not 2e-9 less."""
    assert "L2" in opened(begun(line(max_fly=15 - 5e-10)))
    assert "L2" not in opened(begun(line(max_fly=15 - 2e-9)))
    for less, here, there in ((5e-10, "D1 D3 J", "D0 D3 J"), (2e-9, "D1 D3", "D3 J")):
        world = begun(line(max_fly=20 - less))
        play(world, "L2")
        assert opened(world) == here
        play(world, "D1")
        assert opened(world) == there


def test_waiting_costs_no_range():
    """The drone flies 10 of its 10 and then waits for a drive of 60."""
    world = begun(line(max_fly=10))
    play(world, "L1 D3")
    assert opened(world) == "D0 D2"
    play(world, "D0 J")
    assert world.clock[0] == 60 and world.drone_wait[0] == 50


# -- reasons ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("taken", "action_name", "reason"),
    [
        ("", "J", "JOIN: the drone is aboard"),
        ("", "D0", "DRIVE_0: nodes are left to cover"),
        ("D1", "D1", "DRIVE_1: covered"),
        ("D1", "L1", "LAUNCH_1: covered"),
        ("", "L2", "LAUNCH_2: the drone may not serve 2"),
        ("", "L3", "LAUNCH_3: node 3 is forbidden to the drone"),
        ("D3", "L1", "LAUNCH_1: node 3 is forbidden to the drone"),
        ("", "L4", "LAUNCH_4: there and on to the nearest node costs 25, over max_fly = 20"),
        ("L1", "L2", "LAUNCH_2: the drone is out"),
        ("L1", "D0", "DRIVE_0: the truck is there"),
        ("L1", "D1", "DRIVE_1: the drone serves it"),
        ("L1 D3", "J", "JOIN: node 3 is forbidden to the drone"),
        ("L1 D4", "J", "JOIN: the flight to 4 would cost 25, over max_fly = 20"),
        ("L1 D3 D2", "D3", "DRIVE_3: covered, and node 3 is forbidden to the drone"),
        ("L1 D2 D0", "D3", "DRIVE_3: the truck is back at a covered node: the drone must join"),
    ],
)
def test_reasons(taken, action_name, reason):
    """Places at 0, 10, 20, 30 and 50; range 20; the drone may not serve 2; 3 is forbidden to it."""
    world = begun(line((0.0, 10.0, 20.0, 30.0, 50.0), max_fly=20, no_visit=[2], forbid=[3]), illegal="raise")
    if action_name == "L4":
        world = begun(line((0.0, 10.0, 20.0, 30.0, 40.0), max_fly=20), illegal="raise")
    play(world, taken)
    action = code(world, action_name)
    with pytest.raises(IllegalAction) as caught:
        world.step([action])
    assert str(caught.value) == f"row 0: action {action}: {reason}"


def test_an_illegal_action_changes_nothing():
    """It counts as a step without reward, and every other field keeps its bits."""
    world = begun(line())
    play(world, "L3 D1")
    before = rows_of(world)
    world.step([code(world, "L2")])
    assert world.illegal[0] and world.i[0] == 3 and world.steps[0] == 2 and world.reward_exact[0] == 0
    after = rows_of(world)
    assert {name for name in after if after[name] != before[name]} == {"i", "illegal", "reward", "reward_exact"}
