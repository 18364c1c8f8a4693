"""The profit and waste worlds, rule by rule, compared with numbers by hand on a 3 x 4 rectangle."""

from __future__ import annotations

import pytest

from tests.routing.rows import SQUARE, Row, check, play

PRIZE = [0, 10, 10, 1]
WASTE = [0, 0.5, 1, 0.3]
WEIGHTS = {"waste_weight": 10.0, "length_weight": 1.0, "overflow_weight": 10.0}
ONLY_3 = [False, False, False, True]
FIELDS = ("must_go", "max_length", "n_nodes", "time_windows", "service_time", "speed", "weight", "capacity")


def split(changes):
    """Splits the changes into instance fields and options."""
    fields = {name: changes.pop(name) for name in (*FIELDS, "dist", "prize", "max_waste") if name in changes}
    return fields, changes


def vrpp(**changes):
    """A row of the VRPP, or of the CVRPP if customers have weights."""
    fields, options = split(changes)
    instance = {"prize": PRIZE, **({} if "dist" in fields else {"locs": SQUARE}), **fields}
    if "time_windows" in fields:
        options["time_windows"] = True
    name = "CVRPP" if "weight" in fields else "VRPP"
    return Row(name, instance, prize_weight=1.0, length_weight=1.0, **options)


def wcvrp(waste=WASTE, capacity=1.6, **changes):
    """A row of the WCVRP."""
    fields, options = split(changes)
    instance = {"locs": SQUARE, "waste": waste, "max_waste": 1.0, "capacity": capacity, **fields}
    return Row("WCVRP", instance, **WEIGHTS, **options)


def test_vrpp_episode_field_by_field():
    """Prizes 10 + 10 less 3 + 4 + 5 driven: 8, in steps 7, 6, -5; the return counts as a trip."""
    m = vrpp()
    check(m, allowed=[0, 1, 2, 3], collected=0, tour_length=0, trip_length=0, trips=0, load=0)
    m.step(1)
    check(m, allowed=[0, 2, 3], visited=[1], reward=7, collected=10, tour_length=3, trip_length=3, current_node=1)
    m.step(2)
    check(m, allowed=[0, 3], visited=[1, 2], reward=6, collected=20, tour_length=7, trip_length=7, load=0)
    m.step(0)
    check(m, allowed=[0], reward=-5, tour_length=12, trip_length=12, trips=1, current_node=0, terminated=True)
    check(m, skipped=1, missed_must_go=0, tour=[1, 2, 0])


@pytest.mark.parametrize(("weight", "is_open"), [(5.00014, True), (5.00016, False)])
def test_capacity_is_compared_with_the_tolerance(weight, is_open):
    """15 + 1e-5 * 15 is 15.00015: a load of 10 + 5.00014 fits, 10 + 5.00016 does not."""
    m = vrpp(weight=[0, 10, weight, 1], capacity=15)
    m.step(1)
    assert m.action_mask[2] is is_open


def test_large_integers_are_compared_exactly():
    """At 1 000 000 the relative tolerance would be 10; it is 0.5, so one unit too many is masked."""
    m = vrpp(weight=[0, 600_000, 400_000, 400_001], capacity=1_000_000)
    m.step(1)
    check(m, allowed=[0, 2])


def test_max_length_counts_the_leg_home():
    """12 fits 12: 0-1-2-0. From 1, node 3 needs 3 + 5 + 4 = 12 and fits; from 2 after 1, node 3 needs 7 + 3 + 4."""
    m = vrpp(max_length=12)
    m.step(1)
    check(m, allowed=[0, 2, 3])
    m.step(2)
    check(m, allowed=[0])


def test_reserve_keeps_capacity_for_mandatory_customers():
    """Of 1.6, the capacity for bin 3 (.3) is reserved: after bin 1 the full bin 2 would make 1.8, so only bin 3 is
    allowed."""
    m = wcvrp(must_go=ONLY_3)
    check(m, allowed=[1, 2, 3])
    m.step(1)
    check(m, allowed=[3])
    m.step(3)
    check(m, allowed=[0])
    m.step(0)
    check(m, overflows=1, skipped=1, missed_must_go=0, reward=-14)


def test_reserve_ends_with_the_visit():
    """Truck of 1.3: after bin 3 (.3) is served no capacity is reserved and the full bin 2 fits."""
    m = wcvrp(capacity=1.3, must_go=ONLY_3)
    m.step(3)
    check(m, allowed=[0, 1, 2])


def test_without_reserve_a_mandatory_customer_may_not_fit():
    """Bins 1 and 2 make 1.5; bin 3 no longer fits, so the depot is allowed and the mandatory bin is missed."""
    m = wcvrp(must_go=ONLY_3, must_go_reserve=False)
    m.step(1)
    check(m, allowed=[2, 3])
    m.step(2)
    check(m, allowed=[0])
    m.step(0)
    check(m, terminated=True, overflows=0, skipped=1, missed_must_go=1)


def test_reserve_ignores_customers_out_of_reach():
    """Bin 2 lies 10 there and back, over the limit 9: no capacity is reserved for it and it does not mask the depot."""
    m = wcvrp(max_length=9, must_go=[False, False, True, False], capacity=1)
    check(m, allowed=[0, 1, 3])
    play(m, [1, 0])
    check(m, missed_must_go=1, overflows=1)


def test_reserve_does_not_mask_mandatory_customers():
    """Mandatory 2 and 3 (1 + .3) exceed a truck of 1: no optional bin is allowed, but each mandatory one is."""
    m = wcvrp(capacity=1, must_go=[False, False, True, True])
    check(m, allowed=[2, 3])
    m.step(3)
    check(m, allowed=[0])


def test_mandatory_without_weight_reserves_nothing():
    """VRPP has no weights, so W is 0: optional customers stay allowed, only the end is masked until 3 is visited."""
    m = vrpp(must_go=ONLY_3)
    check(m, allowed=[1, 2, 3])
    play(m, [1, 3])
    check(m, allowed=[0, 2])


def test_multi_trip_depot_rule():
    """At the depot an unserved mandatory bin masks the end; from a customer the way home is always allowed."""
    m = wcvrp(capacity=1, trips="multi", must_go=ONLY_3)
    check(m, allowed=[1, 2, 3])
    m.step(1)
    check(m, allowed=[0, 3])
    m.step(0)
    check(m, allowed=[2, 3], load=0, trip_length=0, trips=1, tour_length=6, terminated=False)
    play(m, [3, 0])
    check(m, allowed=[0, 2], trips=2, tour_length=14)
    m.step(0)
    check(m, terminated=True, reward=-10, trips=2, tour_length=14, overflows=1, skipped=1)


def test_empty_tour_is_legal_and_charged_for_the_full_bin():
    """The depot at the depot ends the episode: nothing collected, bin 2 is full."""
    for trips in ("single", "multi"):
        m = wcvrp(trips=trips)
        m.step(0)
        check(m, terminated=True, reward=-10, tour_length=0, trips=0, overflows=1, skipped=3, tour=[0])


def test_multi_return_ends_without_remaining_customers():
    """After the third trip no customer is allowed and the return itself ends: no extra action at the depot."""
    m = wcvrp(capacity=1, trips="multi")
    rewards = play(m, [1, 0, 2, 0, 3])
    assert rewards == pytest.approx([2, -3, 5, -5, -1])
    check(m, terminated=False, allowed=[0])
    m.step(0)
    check(m, terminated=True, reward=-4, trips=3, tour_length=24, skipped=0)


def test_multi_return_ends_if_the_rest_is_out_of_reach():
    """Limit 8: trips to 1 (6) and 3 (8) fit, bin 2 (10) never does; the second return ends with the charge of its
    overflow."""
    m = wcvrp(trips="multi", max_length=8)
    check(m, allowed=[0, 1, 3])
    play(m, [1, 0, 3, 0])
    check(m, terminated=True, reward=-14, overflows=1, skipped=1)


@pytest.mark.parametrize(("level", "overflows"), [(0.9999995, 1), (0.99999, 0)])
def test_full_means_within_a_millionth(level, overflows):
    """A bin within 1e-6 of its maximum overflows, one at 0.99999 does not; units of percent scale with max_waste."""
    for scale in (1, 100):
        m = wcvrp(waste=[0, 0, level * scale, 0], max_waste=scale, capacity=2 * scale)
        m.step(0)
        check(m, overflows=overflows)


def test_padding_is_never_allowed_and_never_charged():
    """With three real nodes, node 3 is masked, and its full mandatory bin counts neither as overflow nor as missed."""
    m = wcvrp(waste=[0, 0.5, 0.5, 1], must_go=ONLY_3, n_nodes=3)
    check(m, allowed=[0, 1, 2])
    m.step(3)
    check(m, illegal=True, i=1, tour=[])
    m.step(0)
    check(m, terminated=True, reward=0, overflows=0, skipped=2, missed_must_go=0)


def test_illegal_action_changes_only_the_count():
    """A visited customer again: no reward, no leg, one more step."""
    m = vrpp()
    m.step(1)
    m.step(1)
    check(m, illegal=True, i=2, reward=0, tour_length=3, collected=10, allowed=[0, 2, 3], tour=[1])


def test_truncation_charges_no_overflow():
    """Truncated after one step: bin 2 is full but not charged, only index 0 stays allowed."""
    for reward in ("dense", "terminal"):
        m = wcvrp(max_steps=1, reward=reward)
        m.step(1)
        check(m, truncated=True, terminated=False, reward=2, overflows=0, allowed=[0])


def test_asymmetric_matrix_reads_row_to_column():
    """Out to 1 costs 1 and back 10: the limit 5 masks customer 1 (11 in total), customer 2 costs 2 + 3 and fits."""
    dist = [[0, 1, 2], [10, 0, 1], [3, 1, 0]]
    m = vrpp(dist=dist, prize=[0, 5, 5], max_length=5)
    check(m, allowed=[0, 2])
    assert play(m, [2, 0]) == [3, -3]


def windows(*pairs, close_depot=20.0, **config):
    return vrpp(time_windows=[(0, close_depot), *pairs], service_time=[0, 1, 1, 1], **config)


def test_early_arrival_waits_without_cost():
    """Arrive at 1 at 3, wait until 5, serve until 6; then 2 (at 10, closes 9.9) is too late, 3 (at 11) is not."""
    m = windows((5, 6), (0, 9.9), (0, 20))
    check(m, allowed=[0, 1, 2, 3])
    m.step(1)
    check(m, current_time=[6], tour_length=3, reward=7, allowed=[0, 3])
    m.step(3)
    check(m, current_time=[12], tour_length=8)
    m.step(0)
    check(m, current_time=[0], terminated=True)


@pytest.mark.parametrize(("close", "is_open"), [(3, True), (2.99998, True), (2.9999, False)])
def test_arrival_is_compared_with_the_tolerance(close, is_open):
    """Arrival at 3; the tolerance at 3 is 3e-5."""
    assert windows((0, close), (0, 20), (0, 20)).action_mask[1] is is_open


@pytest.mark.parametrize(("close", "is_open"), [(11, True), (10.9999, True), (10.9998, False)])
def test_the_truck_must_be_home_before_the_depot_closes(close, is_open):
    """Node 2: arrive 5, serve until 6, home at 11; the tolerance at 11 is 1.1e-4."""
    assert windows((0, 20), (0, 20), (0, 20), close_depot=close).action_mask[2] is is_open


def test_speed_divides_travel_and_not_service():
    """At speed 2 node 2 is reached at 2.5, left at 3.5, home by 6 when the depot closes; the driven length stays 5."""
    m = windows((0, 20), (0, 20), (0, 20), speed=2, close_depot=6)
    check(m, allowed=[0, 1, 2, 3])
    m.step(2)
    check(m, current_time=[3.5], tour_length=5)


def test_each_trip_starts_at_time_zero():
    """Node 2 closes at 5: after a first trip to 1 it is reached in time, directly from 1 it is not."""
    m = windows((0, 20), (0, 5), (0, 20), trips="multi")
    m.step(1)
    check(m, current_time=[4], allowed=[0, 3])
    m.step(0)
    check(m, current_time=[0], allowed=[0, 2, 3])
