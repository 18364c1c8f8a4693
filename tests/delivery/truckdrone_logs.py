"""Recorded episodes of the truck-and-drones world: two by hand, and random ones under many rules."""

from __future__ import annotations

from functools import cache

import numpy as np

import milkrun
from milkrun.delivery import Recorder, TruckDroneConfig

INSTANCE = ("customer_pos", "demand", "tw_start", "tw_end", "route_nodes", "road")


def on_line(*doors, demand=0.8, window=(0, 200)):
    """Customers on the x axis."""
    count = len(doors)
    return {
        "customer_pos": [[x, 0.0] for x in doors],
        "demand": [demand] * count,
        "tw_start": [window[0]] * count,
        "tw_end": [window[1]] * count,
    }


WORKED_PUBLISHED = (
    TruckDroneConfig(rules="published", num_drones=1, num_customers=1),
    on_line(0.5),
    [[6, 0], [0, 2], [0, 2], [0, 2]],
)
"""RELEASE; then three times DELIVER_0: .2 a step, the customer is .5 away."""

WORKED_SOUND = (
    TruckDroneConfig(num_drones=1, num_customers=1),
    on_line(0.5, window=(8, 20)),
    [[7, 0], *[[0, 2]] * 7, *[[0, 1]] * 2],
)
"""RELEASE; DELIVER_0 seven times, of which four wait for the window to open at 8; RETURN twice."""

TWISTS = {
    "seed": {"preset": "published"},
    "published, thirsty": {"preset": "published", "battery_rate": 1.0, "num_customers": 6},
    "published, short of breath": {"preset": "published", "battery_rate": 0.4, "episode_length": 60, "num_drones": 3},
    "default": {"preset": "default"},
    "small": {"num_drones": 1, "num_customers": 1, "drone_speed": 3.0},
    "off, thirsty": {"battery_rule": "off", "battery_rate": 0.9, "recovery_charge": 0.3, "end": "depot"},
    "off, shared parcels": {"battery_rule": "off", "battery_rate": 0.7, "reserve": False, "pickup": "air"},
    "to the depot": {"end": "depot", "num_customers": 2, "battery_rate": 0.1, "pickup": "air"},
    "served is enough": {"end": "served", "reserve": False, "early": "ignore", "num_customers": 3},
    "on roads": {"road_graph": True, "end": "depot", "num_customers": 3, "truck_speed": 1.7},
    "hard to hold": {"drone_speed": 1.3, "episode_length": 60, "recovery_charge": 0.2, "hover_rate": 1.0},
}


@cache
def played(twist, masked, rows=8, seed=5):
    """One episode of every row: a recorder of all rows, and the actions of each row; read-only. Half of the joint
    actions are drawn without the mask unless `masked`."""
    made = milkrun.make("milkrun/TruckDrone-v0", rows, autoreset="disabled", seed=seed, **TWISTS[twist])
    recorder = Recorder(made, range(rows))
    recorder.reset()
    rng = np.random.default_rng(seed)
    choices = recorder.action.nvec(recorder.sizes)
    taken = [[] for _ in range(rows)]
    for turn in range(recorder.config.limit):
        live = np.flatnonzero(~recorder.done)
        if not len(live):
            break
        actions = recorder.sample_actions(seed, turn)[live]
        if not masked:
            wild = rng.random(len(live)) < 0.5
            drawn = np.stack([rng.integers(-1, n + 1, len(live)) for n in choices], axis=1)
            actions = np.where(wild[:, None], drawn, actions)
        recorder.step(actions, rows=live)
        for row, action in zip(live, actions.tolist(), strict=True):
            taken[row].append(action)
    assert recorder.done.all()
    return recorder, taken


def instance_of(world, row):
    q = world.instance_row[row]
    return {name: getattr(world, name)[q].copy() for name in INSTANCE if getattr(world, name)[q].size}


def log_of(recorder, row, episode=0):
    events = recorder.events()
    return events[(events["row"] == row) & (events["episode"] == episode)]


def brief(events):
    """(agent, kind, t0, t1, ref) of each."""
    return events[["agent", "kind", "t0", "t1", "ref"]].tolist()


def complete(world):
    """(B,) by the rules, from the final states of episodes."""
    home = np.ones(world.num_envs, bool)
    if world.config.end in ("returned", "depot"):
        home &= np.isin(world.status, (0, 3)).all(1)
    if world.config.end == "depot":
        home &= world.truck_node == 0
    return home & world.served.all(1)
