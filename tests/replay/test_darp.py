"""The figure of dial-a-ride routes shows the times of the routes, computed by hand on a line."""

from __future__ import annotations

import json
import math
from itertools import pairwise

import numpy as np
import pytest
from matplotlib.patches import Rectangle

import milkrun
from milkrun.core.errors import BadSolution
from milkrun.render.canvas import PALETTE
from milkrun.render.scene import Mark, Window
from milkrun.replay.darp import draw_darp, figure_of_timetables, timetable_of, timetable_of_row
from milkrun.replay.figures import figure_of, label_places, rgb, side_by_side
from milkrun.routing.darp import DARP
from milkrun.routing.darp.timetable import timetable
from milkrun.routing.instances import cordeau
from tests.published import published_file
from tests.routing.darp_by_hand import ONE, TWO, darp

PNG = b"\x89PNG\r\n\x1a\n"
INF = math.inf


def bars(axes, hatched=False):
    """The bars of a chart as (start, end), in the order of drawing."""
    found = [p for p in axes.patches if type(p) is Rectangle and p.get_height() < 1 and bool(p.get_hatch()) == hatched]
    return [(bar.get_x(), bar.get_x() + bar.get_width()) for bar in found]


def driven(axes):
    """x of the ends of the legs of a map."""
    return [line.get_xdata().tolist() for line in axes.lines]


def lanes(axes):
    return [label.get_text() for label in axes.get_yticklabels()]


def legend(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


@pytest.fixture
def seed_trace():
    """Vehicle 1 takes requests 2 and 1, sets 1 down and must go home with 2 aboard; vehicle 2 can serve no request."""
    world = milkrun.make("milkrun/DARP-v0", preset="published", num_requests=2, num_agents=2, autoreset="disabled")
    world.reset(
        instance={
            "locs": [[[0, 0], [30, 40], [60, 80], [0, 50], [100, 0]]],
            "demand": [[0, 2, -2, 1, -1]],
            "capacity": [[5, 5]],
            "time_windows": [[48, 10, 13, 12, 5]],
        }
    )
    for node in (3, 1, 2, 0, 0):
        world.step([node])
    return world


def spans(chart, lane, *kinds):
    """The start and end of the bars of a lane."""
    return [(bar.t0, bar.t1) for bar in chart.bars if bar.lane == lane and bar.kind in kinds]


def test_one_request_by_hand():
    """Out at 0, there at 3, waits till 30 so that the ride is 20 at most, there at 37, waits till 50, home at 60."""
    report, chart = timetable(darp(**ONE), [[1, 2], []])
    assert report.distance == 20
    assert spans(chart, "vehicle 1", "drive") == [(0, 3), (30, 37), (50, 60)]
    assert spans(chart, "vehicle 1", "wait") == [(3, 30), (37, 50)]
    assert spans(chart, "vehicle 1", "service") == spans(chart, "request 1", "service") == [(30, 30), (50, 50)]
    assert spans(chart, "request 1", "ride") == [(30, 50)] and spans(chart, "request 1", "limit") == [(50, 50)]
    assert chart.windows == (
        Window("request 1, pickup", -INF, 100, 30, "vehicle 1"),
        Window("request 1, dropoff", 50, 60, 50, "vehicle 1"),
    )
    assert chart.lanes == ("vehicle 1", "request 1", "vehicle 2, stays at the depot") and not chart.marks


def test_service_is_neither_ride_nor_drive():
    """2 at each stop: there at 3, on at 5, the ride ends at 12, the stop at 14, home at 24; 20 after 5 is the limit."""
    _, chart = timetable(darp([3, 10], closes=1000.0, service=2.0, ride=20.0), [[1, 2]])
    assert spans(chart, "vehicle 1", "drive") == [(0, 3), (5, 12), (14, 24)]
    assert spans(chart, "vehicle 1", "service") == [(3, 5), (12, 14)] and not spans(chart, "vehicle 1", "wait")
    assert spans(chart, "request 1", "ride") == [(5, 12)] and spans(chart, "request 1", "limit") == [(12, 25)]
    assert spans(chart, "request 1", "service") == [(3, 5), (12, 14)] and not chart.windows


def test_vehicle_and_rider_account_for_all_time():
    """Drives, services and waits follow each other from departure to return: nothing is left out or counted twice."""
    instance = darp([1, 10, -5, 2], opens=[0, 40, 0, 0], service=[1.0, 2.0, 3.0, 4.0], ride=35.0)
    report, chart = timetable(instance, [[1, 3, 4, 2]])
    parts = sorted(spans(chart, "vehicle 1", "drive", "service", "wait"))
    assert parts[0][0] == report.schedule[0][0] and parts[-1][1] == report.schedule[0][-1]
    assert all(a[1] == pytest.approx(b[0]) for a, b in pairwise(parts))
    assert len(spans(chart, "vehicle 1", "wait")) > 0


def test_the_chart_has_those_bars():
    """Two waits hatched; the ride from 30 to 50, which the limit lets last no longer; below it both windows."""
    figure = figure_of_timetables([timetable_of(darp(**ONE), [[1, 2], []], "by hand")])
    on_map, chart = figure.axes
    assert on_map.get_title() == "by hand\ndistance 20.00, 1 of 1 served, longest ride 20.0"
    assert driven(on_map) == [[0, 3], [3, 10], [10, 0]]
    assert bars(chart, hatched=True) == [(3, 30), (37, 50)]
    assert (30, 50) in bars(chart) and bars(chart)[-2:] == [(0, 60), (50, 60)]
    expected = ["vehicle 1", "request 1", "vehicle 2, stays at the depot", "request 1, pickup", "request 1, dropoff"]
    assert lanes(chart) == expected
    assert {"waits", "could ride until", "time window"} < set(legend(figure)) and "not served" not in legend(figure)


def test_a_request_that_is_not_served_is_hollow():
    """Request 1 has the colour of its vehicle, request 2 none; the legend explains it."""
    figure = figure_of_timetables([timetable_of(darp(**TWO), [[], [1, 2]])])
    on_map, chart = figure.axes
    inside = on_map.collections[0].get_facecolors()[:, :3]
    assert inside.tolist() == pytest.approx(np.array([*[rgb(PALETTE[1])] * 2, *[(1.0, 1.0, 1.0)] * 2]))
    assert [t.get_text() for t in on_map.texts] == ["1", "1", "2", "2"]
    assert "1 of 2 served" in on_map.get_title() and "not served" in legend(figure)
    assert lanes(chart)[:3] == ["vehicle 1, stays at the depot", "vehicle 2", "request 1"]


def test_a_route_without_a_schedule_says_so():
    """A ride of 7 under a limit of 6: no times, no bars, but the way is on the map."""
    figure = figure_of_timetables([timetable_of(darp([3, 10], ride=6.0), [[1, 2]])])
    on_map, chart = figure.axes
    assert lanes(chart) == ["vehicle 1, no schedule keeps its times"]
    assert bars(chart) == [] and driven(on_map) == [[0, 3], [3, 10], [10, 0]]


def test_a_node_that_does_not_exist_is_refused():
    """The depot is no stop of a route."""
    with pytest.raises(BadSolution, match=r"hand: route 1 has node 0, nodes are 1\.\.2"):
        timetable(darp(**ONE), [[1, 2], [0]])


def test_the_rule_seed_on_its_clock_of_whole_numbers(seed_trace):
    """At 2, 3 and 5 at the stops, home at 9; request 2 is aboard from 2 to the end, and never set down."""
    plan = timetable_of_row(seed_trace, 0)
    chart = plan.chart
    drives = spans(chart, "vehicle 1", "drive")
    assert (drives[0][0], drives[-1][1], len(plan.report.schedule)) == (0, 9, 2) and not plan.report.schedule[1]
    assert chart.lanes == ("vehicle 1", "request 2", "request 1", "vehicle 2, stays at the depot")
    assert [spans(chart, lane, "ride") for lane in ("request 2", "request 1")] == [[(2, 9)], [(3, 5)]]
    assert chart.marks == (Mark("request 2", "left", 9),) and not spans(chart, "request 1", "limit")
    assert [(w.name, w.opens, w.closes, w.arrival) for w in chart.windows] == [
        ("request 2, pickup", -INF, 12, 2),
        ("request 2, dropoff", -INF, 5, None),
        ("request 1, pickup", -INF, 10, 3),
        ("request 1, dropoff", -INF, 13, 5),
    ]
    assert plan.facts == "distance 231.62, 1 of 2 served, longest ride 2.0"


def test_an_episode_of_the_world_is_drawn_as_a_plan(seed_trace):
    """A map and a chart for each picture, with the heading; the legend has deadlines, and no waiting or ride limits."""
    figure = side_by_side([(seed_trace, 0, "best"), (seed_trace, 0, "median")], "title")
    assert [axes.get_title().partition("\n")[0] for axes in figure.axes] == ["best", "", "median", ""]
    assert driven(figure.axes[0]) == [[0, 0], [0, 30], [30, 60], [60, 0]]
    entries = legend(figure)
    assert {"never dropped off", "not served", "time window"} < set(entries)
    assert not {"waits", "could ride until"} & set(entries)


def test_after_the_last_stop_of_all_no_vehicle_drives_home():
    """By deadlines alone the way back is neither driven nor drawn, and a deadline beyond the depot's still counts."""
    world = milkrun.make("milkrun/DARP-v0", preset="published", num_requests=1, num_agents=1, autoreset="disabled")
    world.reset(
        instance={
            "locs": [[[0, 0], [50, 0], [100, 0]]],
            "demand": [[0, 1, -1]],
            "capacity": [[5]],
            "time_windows": [[48, 10, 60]],
        }
    )
    world.step([1])
    world.step([2])
    figure = figure_of(world)
    assert driven(figure.axes[0]) == [[0, 50], [50, 100]]
    chart = timetable_of_row(world, 0).chart
    assert chart.end == 4 and [(w.opens, w.closes) for w in chart.windows] == [(-INF, 10), (-INF, 60)]


def test_an_unfinished_episode_shows_the_worlds_own_picture(seed_trace):
    """Later stops are unknown."""
    seed_trace.reset()
    (axes,) = figure_of(seed_trace).axes
    assert (axes.images[0].get_array() == seed_trace.render(0)).all()


def test_padding_is_not_drawn():
    """One request in an instance of two, and one vehicle of two: the plan is that of the instance alone."""
    alone = darp(**ONE, capacity=(1,))
    world = DARP.from_instances([alone, darp(**TWO)], autoreset="disabled")
    for actions in ([1, 1], [2, 2], [0, 3]):
        world.step(actions)
    for node in (4, 0):
        world.step([node], rows=[1])
    plan, other = timetable_of_row(world, 0), timetable_of_row(world, 1)
    assert plan.instance == alone and plan.routes == [[1, 2]]
    assert plan.chart.bars == timetable(alone, [[1, 2]])[1].bars
    assert other.instance == darp(**TWO) and other.routes == [[1, 2, 3, 4], []]


def test_a_vehicle_that_was_passed_over_stays():
    """Three riders before cars of 2 and 3: the second car has the route."""
    world = DARP.from_instances([darp(**ONE, load=3, capacity=(2, 3))], autoreset="disabled")
    for node in (1, 2, 0):
        world.step([node])
    assert timetable_of_row(world, 0).routes == [[], [1, 2]]


def test_names_keep_clear_of_markers_and_of_each_other():
    """Twelve nodes in a row, 9 points apart, signs of 7: no box of a name meets another box."""
    nodes = np.stack([9.0 * np.arange(13), np.zeros(13)], axis=1)
    places = label_places(nodes, ["10"] * 12, 7.0, 1.0)
    boxes = np.concatenate([np.c_[nodes, np.full((13, 2), 4.0)], np.c_[places, np.full(12, 4.76), np.full(12, 3.5)]])
    meet = [
        (i, j)
        for i in range(13, 25)
        for j in range(i)
        if (abs(boxes[i, :2] - boxes[j, :2]) < boxes[i, 2:] + boxes[j, 2:] - 1e-9).all()
    ]
    assert meet == []


def test_a_name_leaves_the_line_free():
    """A leg that leaves to the right: the name, which else stands there, does not."""
    nodes = np.array([[100.0, 0.0], [0.0, 0.0]])
    free, avoiding = (label_places(nodes, ["1"], 7.0, 1.0, legs)[0] for legs in ([], [nodes[::-1]]))
    assert free[0] > 0 and free[1] == pytest.approx(0)
    assert abs(avoiding[1]) > 3.5


def test_the_same_plan_gives_the_same_picture(tmp_path):
    """Byte for byte, named after the instance unless titled."""
    for name in ("a", "b"):
        draw_darp(darp(**ONE), [[1, 2]], tmp_path / f"{name}.png")
    first = (tmp_path / "a.png").read_bytes()
    assert first.startswith(PNG) and first == (tmp_path / "b.png").read_bytes()
    draw_darp(darp(**ONE), [[1, 2]], tmp_path / "c.png", "other")
    assert (tmp_path / "c.png").read_bytes() != first


def test_the_published_optimum_of_a2_16():
    """294.25 and all served; the first vehicle picks up request 10 at 32 and 5 at 49, as its windows open."""
    instance = cordeau.load(published_file("darp/a2-16.txt"))
    routes = json.loads(published_file("darp/solutions.json").read_text())["a2-16"]["routes"]
    plan = timetable_of(instance, [[2 * i - 1 if i <= 16 else 2 * (i - 16) for i in route] for route in routes])
    assert plan.facts == "distance 294.25, 16 of 16 served, longest ride 30.0"
    assert plan.chart.lanes[:3] == ("vehicle 1", "request 10", "request 5")
    ten, five = (spans(plan.chart, lane, "service")[0] for lane in ("request 10", "request 5"))
    window = next(w for w in plan.chart.windows if w.name == "request 10, pickup")
    assert ten == (32, 35) and (window.opens, window.closes) == (32, 47)
    assert five == (pytest.approx(49, abs=1e-3), pytest.approx(52, abs=1e-3))
    _, chart = figure_of_timetables([plan]).axes
    names = [lane for lane in lanes(chart) if lane.startswith("request") and "," not in lane]
    assert sorted(names) == sorted(f"request {r}" for r in range(1, 17))
