"""Small problems for the TSP with a drone, for mental arithmetic.

Places on a line cost the truck their distance and the drone half of it: 0 at the depot, 1 at 10, 2 at 20, 3 at 30.
"""

from __future__ import annotations

import numpy as np

import milkrun
from milkrun.delivery.instances import TSPDInstance
from milkrun.delivery.tspd import TSPD

LINE = (0.0, 10.0, 20.0, 30.0)


def line(places=LINE, max_fly=np.inf, no_visit=(), forbid=()):
    node = np.arange(len(places))
    return {
        "locs": np.stack([np.array(places, float), np.zeros(len(places))], axis=1),
        "max_fly": np.float64(max_fly),
        "no_visit": np.isin(node, no_visit),
        "forbid": np.isin(node, forbid),
    }


def begun(instance, **options):
    """A world of one row on an instance."""
    return TSPD.from_instances([instance], **{"autoreset": "disabled", **options})


def code(world, name):
    """The action called D3 (drive to 3), L2 (launch to 2) or J."""
    n = world.sizes["N"]
    return 2 * n if name == "J" else int(name[1:]) + (n if name[0] == "L" else 0)


def play(world, names):
    """Steps a world of one row through named actions; returns the rewards."""
    paid = []
    for name in names.split():
        assert world.action_mask[0, code(world, name)], f"{name} is closed"
        world.step([code(world, name)])
        paid.append(float(world.reward_exact[0]))
    return paid


def opened(world, row=0):
    """The names of the allowed actions."""
    n = world.sizes["N"]
    found = np.flatnonzero(world.action_mask[row]).tolist()
    return " ".join("J" if a == 2 * n else f"D{a}" if a < n else f"L{a - n}" for a in found)


def mask_by_the_book(world, row):
    """The rules of the mask literally, from the state of a row: slow, and without code of the kernels."""
    q, n, size = world.instance_row[row], int(world.n_nodes[world.instance_row[row]]), world.sizes["N"]
    drone, forbid, no_visit = world.c_drone[q], world.forbid[q], world.no_visit[q]
    limit, covered = world.max_fly[q] + 1e-9, world.covered[row]
    truck, launch, fly = int(world.truck[row]), int(world.launch[row]), int(world.fly[row])
    allowed = np.zeros(2 * size + 1, bool)

    def feasible(w):
        return not forbid[w] and drone[launch, fly] + drone[fly, w] <= limit

    if fly < 0:
        for j in range(1, n):
            allowed[j] = not covered[j]
            onward = [drone[j, w] for w in range(n) if w != j and not forbid[w]]
            welcome = not (covered[j] or no_visit[j] or forbid[j] or forbid[truck])
            allowed[size + j] = welcome and drone[truck, j] + min(onward) <= limit
        allowed[0] = all(covered[:n])
        return allowed
    allowed[2 * size] = feasible(truck)
    if not world.must_join[row]:
        for j in set(range(n)) - {fly, truck}:
            others = any(feasible(w) for w in range(n) if w not in (j, fly))
            allowed[j] = feasible(j) or (not covered[j] and others)
    return allowed


def instance_of(world, row):
    """The instance of a row, without padding."""
    q = world.instance_row[row]
    n = world.n_nodes[q]
    costs = {name: getattr(world, name)[q, :n, :n] for name in ("c_truck", "c_drone")}
    nodes = {name: getattr(world, name)[q, :n] for name in ("locs", "no_visit", "forbid")}
    return TSPDInstance.of_row(f"row {row}", {**costs, **nodes, "max_fly": world.max_fly[q]})


def drawn(rows, **options):
    """A world on random instances after its reset; finished rows wait."""
    world = milkrun.make("milkrun/TSPD-v0", rows, **{"seed": 7, "autoreset": "disabled", **options})
    world.reset()
    return world


def walk(world, turns=40):
    """Random masked steps, across autoresets."""
    for turn in range(turns):
        live = np.flatnonzero(~world.done) if world.autoreset == "disabled" else np.arange(world.num_envs)
        if len(live):
            world.step(world.sample_actions(3, turn)[live], rows=live)
    return world
