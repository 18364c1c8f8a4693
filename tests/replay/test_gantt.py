"""A Gantt chart has a lane for each machine, filled from 0 to the end, and the arrival of each parcel."""

from __future__ import annotations

from collections import defaultdict

import pytest
from matplotlib.patches import Rectangle

import milkrun
from milkrun.delivery import TSPD, Recorder
from milkrun.delivery.instances import TSPDInstance
from milkrun.delivery.tspd.log import chart_of_events
from milkrun.render.canvas import LATE, OPEN, PALETTE, SERVED
from milkrun.render.recorder import EpisodeRecorder
from milkrun.render.scene import Bar, Mark, Window
from milkrun.replay.figures import figure_of, rgb, side_by_side
from milkrun.replay.gantt import chart_of_log, figure_of_chart
from milkrun.solvers import random_policy, rollout

RELEASE, RETURN, DELIVER = 7, 1, 2


def delivery(opens, closes, steps):
    """One drone serves (.5, 0) from a truck that stands at the origin: a step of hovering, three on the way."""
    world = milkrun.make(
        "milkrun/TruckDrone-v0", num_drones=1, num_customers=1, num_route_nodes=6, autoreset="disabled"
    )
    world.reset(
        instance={"customer_pos": [[[0.5, 0.0]]], "demand": [[0.8]], "tw_start": [[opens]], "tw_end": [[closes]]}
    )
    log = Recorder(world)
    for truck, drone in [(RELEASE, 0), *[(0, DELIVER)] * (steps - 3), *[(0, RETURN)] * 2]:
        log.step([[truck, drone]])
    return log


def texts(axes):
    return [text.get_text() for text in axes.texts if text.get_text()]


def test_the_chart_of_a_delivery_before_the_window_opens():
    """Out in steps 2 to 4, waiting until step 8, back in 9 and 10; the truck waits all the time."""
    chart = chart_of_log(delivery(8, 20, steps=10))
    assert chart.lanes == ("truck", "drone") and chart.end == 10
    assert chart.bars == (
        Bar("truck", "wait", 0, 10),
        Bar("drone", "hover", 0, 1),
        Bar("drone", "fly_out", 1, 4, "\u21920"),
        Bar("drone", "wait_open", 4, 8),
        Bar("drone", "return", 8, 10),
    )
    assert chart.marks == (Mark("drone", "served", 8, "0"),)
    assert chart.windows == (Window("customer 0", 8, 20, 8, "drone"),) and chart.windows[0].late == 0


def test_the_figure_draws_every_bar_where_it_is():
    """Five bars and a window that is cut at the end of the chart, since it closes later."""
    (axes,) = figure_of_chart(chart_of_log(delivery(8, 20, steps=10)), "by hand").axes
    drawn = [(p.get_x(), p.get_x() + p.get_width()) for p in axes.patches if isinstance(p, Rectangle)]
    assert drawn == [(0, 10), (0, 1), (1, 4), (4, 8), (8, 10), (8, 10)]
    assert axes.patches[-1].get_facecolor()[:3] == pytest.approx(rgb(OPEN))
    assert [label.get_text() for label in axes.get_yticklabels()] == ["truck", "drone", "customer 0"]
    dots = [(line.get_xdata()[0], line.get_color()) for line in axes.lines if line.get_marker() == "o"]
    assert dots == [(8, rgb(SERVED))] * 2
    assert axes.figure.get_suptitle() == "by hand"


def test_a_late_parcel_is_red_and_says_by_how_much():
    """Served in step 4 where the window closed with step 1: three late."""
    figure = figure_of_chart(chart_of_log(delivery(0, 1, steps=6)))
    (axes,) = figure.axes
    assert "drone, 3 late" in texts(axes)
    assert {line.get_color() for line in axes.lines if line.get_marker() == "D"} == {rgb(LATE)}
    assert not any(line.get_marker() == "o" for line in axes.lines)
    named = [text.get_text() for text in figure.legends[0].get_texts()]
    assert "delivered late" in named and "delivered in time" not in named
    assert not {"drone crashed", "drone on board", "masked action"} & set(named)


def test_a_parcel_that_never_came_is_shown():
    """The drone is called back on its way: no delivery in the lane, `not served` in the customer's."""
    figure = figure_of_chart(chart_of_log(delivery(8, 20, steps=4)))
    assert texts(figure.axes[0]) == ["\u21920", "not served "]
    assert not any("delivered" in text.get_text() for text in figure.legends[0].get_texts())


def test_lanes_tile_the_episode_whatever_is_played():
    """20 episodes at random, masks ignored every third step: each lane from 0 to the end without gap or overlap."""
    for seed in range(20):
        world = milkrun.make(
            "milkrun/TruckDrone-v0", 1, seed=seed, num_drones=3, autoreset="disabled", episode_length=60
        )
        world.reset()
        log, policy = Recorder(world), random_policy(seed)
        while not world.done[0]:
            log.step(policy(world) * (world.i[0] % 3 > 0))
        chart = chart_of_log(log)
        lanes = defaultdict(list)
        for bar in chart.bars:
            lanes[bar.lane].append((bar.t0, bar.t1))
        assert tuple(lanes) == chart.lanes and chart.end == world.i[0]
        for spans in lanes.values():
            assert [t0 for t0, _ in spans] == [0, *(t1 for _, t1 in spans[:-1])] and spans[-1][1] == chart.end


def test_only_the_last_episode_is_shown():
    """A second episode of a row begins at 0 again; bars of the first would reach to 10."""
    log = delivery(8, 20, steps=10)
    log.reset()
    log.step([[0, 0]])
    assert chart_of_log(log).bars == (Bar("truck", "wait", 0, 1), Bar("drone", "onboard", 0, 1))


@pytest.fixture
def triangle():
    """Legs of 5, 5 and 6 for the truck, half of it for the drone, which serves 1 while the truck drives 0-2."""
    world = TSPD.from_instances([TSPDInstance.of_places("triangle", [[0, 0], [3, 4], [6, 0]])], autoreset="disabled")
    for action in (4, 2, 6, 0):  # launch to 1, drive to 2, join, drive home
        world.step([action])
    return world


def test_the_chart_of_operations(triangle):
    """The drone is back after 5 and waits 1; then both drive home in 6."""
    chart = chart_of_events(triangle.events(0))
    assert chart.lanes == ("truck", "drone") and chart.end == 12 and chart.unit == "time, in cost units"
    assert chart.bars == (
        Bar("truck", "drive", 0, 6, "\u21922"),
        Bar("truck", "drive", 6, 12, "\u21920"),
        Bar("drone", "fly_out", 0, 2.5, "\u21921"),
        Bar("drone", "return", 2.5, 5, "\u21922"),
        Bar("drone", "wait", 5, 6),
        Bar("drone", "onboard", 6, 12),
    )
    (axes,) = figure_of_chart(chart).axes
    assert texts(axes) == ["\u21922", "\u21920", "\u21921", "\u21922"]


def test_the_map_of_operations(triangle):
    """The drone's way out, back and home aboard, the truck's two legs over it, the depot, and the nodes' vehicles."""
    (axes,) = figure_of(triangle, 0, "by hand").axes
    legs = [line.get_xydata().tolist() for line in axes.lines]
    assert legs == [[[0, 0], [3, 4]], [[3, 4], [6, 0]], [[6, 0], [0, 0]], [[0, 0], [6, 0]], [[6, 0], [0, 0]]]
    assert [line.get_color() for line in axes.lines] == [rgb(PALETTE[1])] * 3 + [rgb(PALETTE[0])] * 2
    assert axes.get_title() == "by hand\nmakespan 12.000, 2 operations, 1 of 2 nodes by drone"
    assert texts(axes) == ["1", "2"]


def test_the_map_of_an_episode_in_steps():
    """A recorder in the place of its world shows the ways: out to the customer, back to within the truck's reach."""
    log = delivery(8, 20, steps=10)
    figure = side_by_side([(log, 0, "left"), (log, 0, "right")], "both")
    for axes, heading in zip(figure.axes, ("left", "right"), strict=True):
        assert axes.get_title() == f"{heading}\nreturn 23.714, 10 steps, 1 of 1 served, 1 in time"
        drive, out, back = (collection.get_segments() for collection in axes.collections[:3])
        assert drive == [] and len(out) == len(back) == 1
        assert out[0][0] == pytest.approx([0, 0]) and out[0][-1] == pytest.approx([0.5, 0])
        assert back[0][0] == pytest.approx([0.5, 0]) and back[0][-1] == pytest.approx([0.1, 0])


def test_many_customers_have_no_lane_each():
    """Forty have, forty-one would make a page of windows: the machines alone are shown."""
    for customers, lanes in ((40, 43), (41, 3)):
        world = milkrun.make(
            "milkrun/TruckDrone-v0", 1, num_customers=customers, autoreset="disabled", episode_length=9
        )
        world.reset()
        log = Recorder(world)
        rollout(log, lambda _, world=world: random_policy(1)(world))
        (axes,) = figure_of_chart(chart_of_log(log)).axes
        assert len(axes.get_yticks()) == lanes


def test_the_timetable_of_trips_with_windows():
    """3 to customer 1 in time, a stop of 1; 4 to customer 2, whose window opens at 20; a stop of 1, and 5 home."""
    world = milkrun.make("milkrun/CVRPP-v0", num_loc=3, time_windows=True, length_weight=0.1, autoreset="disabled")
    world.reset(
        instance={
            "locs": [[[0, 0], [3, 0], [3, 4], [0, 4]]],
            "prize": [[0, 9, 9, 9]],
            "weight": [[0, 1, 1, 1]],
            "capacity": [9],
            "time_windows": [[[0, 100], [0, 10], [20, 30], [0, 50]]],
            "service_time": [[0, 1, 1, 1]],
        }
    )
    recorder = EpisodeRecorder(world)
    for action in (1, 2, 0, 0):
        if not world.terminated[0]:
            recorder.step([action])
    chart = recorder.episodes()[-1].chart
    assert chart.lanes == ("trip 1",)
    assert [(bar.kind, bar.t0, bar.t1, bar.at) for bar in chart.bars] == [
        ("drive", 0, 3, 1),
        ("serve", 3, 4, 1),
        ("drive", 4, 8, 2),
        ("wait", 8, 20, 2),
        ("serve", 20, 21, 2),
        ("drive", 21, 26, 3),
    ]
    assert [(w.name, w.opens, w.closes, w.arrival, w.by) for w in chart.windows] == [
        ("customer 1", 0, 10, 3, "trip 1"),
        ("customer 2", 20, 30, 8, "trip 1"),
        ("customer 3", 0, 50, None, ""),
    ]


def test_without_windows_there_is_no_timetable():
    """No clock, no lanes."""
    world = milkrun.make("milkrun/CVRPP-v0", seed=1, num_loc=3, autoreset="disabled")
    world.reset()
    recorder = EpisodeRecorder(world)
    recorder.step(world.sample_actions(0, 0))
    assert recorder.episodes()[-1].chart is None
