"""The stochastic waste worlds, rule by rule, compared with numbers by hand on a 3 x 4 rectangle."""

from __future__ import annotations

import pytest

from tests.routing.rows import SQUARE, Row, check, play

WASTE = [0, 0.5, 1, 0.3]
WEIGHTS = {"waste_weight": 10.0, "length_weight": 1.0, "overflow_weight": 10.0}
FILLS = [(0, 0.3, 0.2, 0.2), (0, 0.3, 0.3, 0.6)]
CALM = [(0, 0, 0, 0), (0, 0, 0, 0)]


def sc(real=(0, 0.5, 0.7, 0.3), expected=(0, 0.5, 0.5, 0.3), **changes):
    """A row of the SCWCVRP with a truck of one bin."""
    fields = {name: changes.pop(name) for name in ("must_go", "max_length", "dist") if name in changes}
    instance = {"expected0": expected, "real_waste": real, "capacity": 1.0, "max_waste": 1.0, **fields}
    if "dist" not in fields:
        instance["locs"] = SQUARE
    return Row("SCWCVRP", instance, **{"failure_weight": 2.0, **WEIGHTS, **changes})


def sd(initial=WASTE, fills=FILLS, capacity=1.6, **changes):
    """A row of the SDWCVRP over two days."""
    moments = {"fill_mean": [0, 0, 0, 0], "fill_std": [0, 0, 0, 0]}
    fields = {name: changes.pop(name) for name in (*moments, "max_length", "sensor_noise") if name in changes}
    instance = {"locs": SQUARE, "initial_waste": initial, "daily_fill": fills, "capacity": capacity, "max_waste": 1.0}
    if "sensor_noise" in fields:
        changes["sensor_sigma"] = 0.1
    options = {"failure_weight": 2.0, "horizon": 2, **WEIGHTS, **changes}
    return Row("SDWCVRP", {**instance, **moments, **fields}, **options)


def near(values):
    return pytest.approx(values, abs=1e-6)


def test_failure_with_return_field_by_field():
    """Bin 2 was expected at .5 and has .7: .5 + .7 > 1, home without it for 4 + 5 + 2, then served alone."""
    m = sc()
    m.step(1)
    check(m, reward=2, load=0.5, allowed=[0, 2, 3], revealed=[False, True, False, False], failures=0)
    m.step(2)
    check(m, reward=-11, load=0, current_node=0, trip_length=0, trips=1, failures=1, visited=[1], tour_length=12)
    check(m, collected=0.5, revealed=[False, True, True, False], allowed=[0, 2, 3], tour=[1, 2])
    assert m.expected_waste == near([0, 0.5, 0.7, 0.3])
    assert play(m, [2, 3, 0]) == near([2, 0, -4])
    check(m, terminated=True, failures=1, trips=2, tour_length=24, skipped=0, overflows=0, tour=[1, 2, 2, 3, 0])
    assert m.collected == near(1.5)


def test_failure_with_round_trip_field_by_field():
    """The truck takes .5 of bin 2, empties, returns for .2 and is then 5 into a new trip."""
    m = sc(recourse="round_trip")
    assert play(m, [1, 2]) == near([2, -9])
    check(m, current_node=2, visited=[1, 2], trip_length=5, trips=1, failures=1, tour_length=17, allowed=[0, 3])
    assert (m.load, m.collected) == near((0.2, 1.2))
    assert play(m, [3, 0]) == near([0, -4])
    check(m, terminated=True, trips=2, tour_length=24)
    assert m.trip_length == 0


def test_round_trip_drives_home_and_out_on_an_asymmetric_matrix():
    """From 1 to 2 costs 1, 2 home 7, out again 3: 11 driven in the failing step, 3 of them on the new trip."""
    dist = [[0, 1, 3], [9, 0, 1], [7, 1, 0]]
    m = sc(real=(0, 0.5, 0.75), expected=(0, 0.5, 0.5), dist=dist, recourse="round_trip", failure_weight=0.0)
    play(m, [1, 2])
    check(m, tour_length=12, trip_length=3, load=0.25)


def test_failure_ends_a_single_trip():
    """`return` at the first failure of a single trip: the truck is home and stays; the real level of bin 2 is full and
    charged."""
    m = sc(real=(0, 0.5, 1, 0.3), trips="single", must_go=[False, False, False, True], must_go_reserve=False)
    assert play(m, [1, 2]) == near([2, -4 - 5 - 2 - 10])
    check(m, terminated=True, overflows=1, skipped=2, missed_must_go=1, trips=1, tour_length=12)


def test_failure_ends_if_the_rest_is_out_of_reach():
    """Bin 2 lies 1 behind bin 1 but 9 from the depot: after a failure no trip within 5 reaches it."""
    dist = [[0, 1, 9], [1, 0, 1], [1, 1, 0]]
    m = sc(real=(0, 0.5, 0.75), expected=(0, 0.5, 0.5), dist=dist, max_length=5)
    play(m, [1])
    check(m, allowed=[0, 2])
    play(m, [2])
    check(m, terminated=True, failures=1, tour_length=3, skipped=1, trips=1)


def test_terminal_reward_counts_failures():
    """2 - 11 + 2 + 0 - 4, all on the last step."""
    assert play(sc(reward="terminal"), [1, 2, 2, 3, 0]) == near([0, 0, 0, 0, -11])


def test_mask_reads_expected_and_overflow_reads_real():
    """Expected .5 + .5 fits 1 though bin 2 is really full; unserved it overflows."""
    m = sc(real=(0, 0.5, 1, 0.3))
    m.step(1)
    check(m, allowed=[0, 2, 3])
    play(m, [0, 0])
    check(m, overflows=1, reward=-10)


def test_failures_are_compared_with_the_tolerance():
    """Capacity 1 holds 1.00001: .5 + .500005 is served, .5 + .50002 fails."""
    for real, failures in ((0.500005, 0), (0.50002, 1)):
        m = sc(real=(0, 0.5, real, 0.3))
        play(m, [1, 2])
        check(m, failures=failures)


def test_two_days_field_by_field():
    """Night one leaves .3, .2, .5, night two .6, .5 and 1.1: one overflow and .1 lost."""
    m = sd()
    check(m, day=0, must_go=[False] * 4, allowed=[0, 1, 2, 3])
    assert play(m, [1, 2]) == near([2, 6])
    assert m.real_waste == m.expected_waste == near([0, 0, 0, 0.3])
    check(m, allowed=[0], load=1.5)
    assert play(m, [0]) == near([-5])
    check(m, day=0, allowed=[0, 3], trips=1, load=0)
    assert play(m, [0]) == near([0])
    assert m.real_waste == m.expected_waste == near([0, 0.3, 0.2, 0.5])
    check(m, day=1, visited=[], revealed=[False] * 4, allowed=[0, 1, 2, 3], overflows=0, lost=0, terminated=False)
    assert play(m, [0]) == near([-10])
    check(m, day=2, terminated=True, overflows=1, trips=1, tour_length=12, skipped=1 + 3, i=5, allowed=[0])
    check(m, tour=[[1, 2, 0, 0], [0]], tour_len=[4, 1])
    assert (m.lost, m.collected) == near((0.1, 1.5))
    assert m.real_waste == near([0, 0.6, 0.5, 1])


def test_lost_waste_is_charged_in_the_night_of_the_overflow():
    """Night one: bin 2 overflows by .2. Night two: .8 + .3, 1 + .3 and .5 + .6 overflow by .1, .3, .1; 5 a unit."""
    m = sd(lost_weight=5.0)
    assert play(m, [0, 0]) == near([-10 - 1, -30 - 2.5])
    check(m, overflows=4)
    assert m.lost == near(0.7)
    final = sd(lost_weight=5.0, reward="terminal")
    assert play(final, [0, 0]) == near([0, -43.5])


def test_served_bin_does_not_return_the_same_day():
    """A served bin is empty and masked until the morning."""
    m = sd(trips="single", fills=CALM)
    m.step(2)
    check(m, allowed=[0, 1, 3])
    m.step(0)
    check(m, day=1, load=0, trip_length=0, current_node=0, allowed=[0, 1, 2, 3], trips=1)


def test_sensor_noise_affects_the_expected_and_not_the_real_level():
    """Noise 1.5, 2, .4 gives .75, a capped 1 and .12; next morning a noise of .5 halves the levels."""
    m = sd(fills=CALM, capacity=1, sensor_noise=[(1, 1.5, 2, 0.4), (1, 0.5, 0.5, 0.5)])
    assert m.expected_waste == near([0, 0.75, 1, 0.12])
    assert m.real_waste == near(WASTE)
    m.step(1)
    check(m, load=0.5, allowed=[0, 3], revealed=[False, True, False, False])
    play(m, [3, 0, 0])
    assert m.real_waste == near([0, 0, 1, 0])
    assert m.expected_waste == near([0, 0, 0.5, 0])


def test_failed_bin_shows_its_real_level_for_the_day():
    """Bin 2 (1, expected .5) fails after bin 1 and stays full; served alone, its real and expected levels are 0."""
    m = sd(fills=CALM, capacity=1, sensor_noise=[(1, 1, 0.5, 1), (1, 1, 0.5, 1)])
    play(m, [1, 2])
    check(m, failures=1, allowed=[0, 2, 3], revealed=[False, True, True, False])
    assert m.expected_waste == m.real_waste == near([0, 0, 1, 0.3])
    m.step(2)
    assert m.expected_waste == m.real_waste == near([0, 0, 0, 0.3])


def test_round_trip_empties_the_bin_on_its_day():
    """Bin 2 (1, expected .5) exceeds the truck after bin 1: .5 stays in the truck, the bin is empty."""
    m = sd(fills=CALM, capacity=1, recourse="round_trip", sensor_noise=[(1, 1, 0.5, 1)] * 2)
    play(m, [1, 2])
    check(m, failures=1, load=0.5, current_node=2, collected=1.5, trip_length=5)
    assert m.expected_waste == m.real_waste == near([0, 0, 0, 0.3])


@pytest.mark.parametrize(
    ("rule", "today", "actions", "tomorrow"),
    [
        ("none", [], [2, 0, 0], []),
        ("level", [2], [2, 0, 0], [1]),
        ("lookahead", [2, 3], [2, 3, 0, 0], [1]),
        ("service_level", [1, 2, 3], [2, 3, 0, 1, 0], []),
    ],
)
def test_must_go_rules_each_morning(rule, today, actions, tomorrow):
    """Levels .5, 1, .3, plus .3, .2, .2 if not served; level .75; means .25, .2, .75; two deviations .4, .2, 0."""
    moments = {"fill_mean": [0, 0.25, 0.2, 0.75], "fill_std": [0, 0.2, 0.1, 0]}
    m = sd(must_go=rule, must_go_level=0.75, must_go_k=2.0, **moments)
    check(m, must_go=[j in today for j in range(4)])
    assert m.action_mask[0] is (not today)
    play(m, actions)
    check(m, day=1, must_go=[j in tomorrow for j in range(4)])
    assert m.action_mask[0] is (not tomorrow)


def test_must_go_missed_is_summed_over_days():
    """Limit 9 keeps bin 2 (10 there and back) out of reach: it is mandatory and missed on both days."""
    m = sd(must_go="level", max_length=9)
    check(m, allowed=[0, 1, 3])
    play(m, [0, 0])
    check(m, missed_must_go=2, skipped=6, overflows=4, terminated=True)
