"""Reasons why an action of the truck or of a drone is masked, for `illegal="raise"`."""

from __future__ import annotations

from typing import Any

import numpy as np

from milkrun.delivery.truckdrone.flight import CRASHED, DELIVER, HOVER, MOVE, ONBOARD, RETURN

WORDS = {
    "STAY": "stay",
    "MOVE": "drive to N",
    "RELEASE": "release drone ",
    "RECOVER": "take up drone ",
    "HOVER": "hover",
    "RETURN": "return to the truck",
    "DELIVER": "deliver to customer ",
}
STRANDED = "the battery might not suffice for the return"


def why_illegal(world: Any, row: int, actions: Any) -> str:
    """The reason for the first masked action, such as "drone_0: DELIVER_3: carried by drone_1"."""
    names = [name for group in world.groups.values() for name in group]
    masks = [world.truck_mask[row, 0], *world.drone_mask[row]]
    for agent, (name, action, mask) in enumerate(zip(names, actions, masks, strict=True)):
        if not 0 <= action < len(mask):
            return f"{name}: {action} is not one of its {len(mask)} actions"
        if not mask[action]:
            return f"{name}: {code(world, agent, action)}: {_why(world, row, agent, action)}"
    return "not in the action mask"


def why_masked(world: Any, row: int, index: int) -> str:
    """The reason for an action by its index in the flat mask, with display names of agents."""
    d, action = divmod(index - world.sizes["T"], world.sizes["K"])
    agent, action = (0, index) if index < world.sizes["T"] else (1 + d, action)
    return _why(world, row, agent, action).replace("drone_", "drone ")


def code(world: Any, agent: int, action: int) -> str:
    """The code of an action (STAY, MOVE_2, DELIVER_0, ...) of agent 0, the truck, or of drone agent - 1."""
    d, n, k = world.sizes["D"], world.sizes["N"], world.sizes["K"]
    if agent == 0 and 0 <= action < world.sizes["T"]:
        named = ["STAY", *(f"MOVE_{j}" for j in range(n))]
        return [*named, *(f"RELEASE_{j}" for j in range(d)), *(f"RECOVER_{j}" for j in range(d))][action]
    if agent > 0 and 0 <= action < k:
        return ("HOVER", "RETURN")[action] if action < DELIVER else f"DELIVER_{action - DELIVER}"
    return f"action {action}"


def in_words(code: str) -> str:
    """The words for a code: MOVE_2 is "drive to N2"."""
    verb, _, number = code.partition("_")
    return f"{WORDS[verb]}{number}" if verb in WORDS else code


def _why(world: Any, row: int, agent: int, action: int) -> str:
    return _truck(world, row, action) if agent == 0 else _drone(world, row, agent - 1, action)


def _truck(world: Any, row: int, action: int) -> str:
    if action < MOVE + world.sizes["N"]:
        # Only roads close a MOVE, so `truck_edge` has two entries here; without roads it is empty.
        u, v = world.truck_edge[row].tolist()
        return f"no road leads there from node {u}" if u == v else f"it is on the road between nodes {u} and {v}"
    recovers, d = divmod(action - MOVE - world.sizes["N"], world.sizes["D"])
    status = world.status[row, d]
    if recovers:
        if status == ONBOARD:
            return f"drone_{d} is on board"
        return f"drone_{d} has crashed" if status == CRASHED and world.sound else f"drone_{d} is out of reach"
    return f"drone_{d} is not on board" if status != ONBOARD else f"the battery of drone_{d} is too low"


def _drone(world: Any, row: int, d: int, action: int) -> str:
    status, own = world.status[row, d], int(world.carrying[row, d])
    if status == ONBOARD:
        return "it is on board"
    if status == CRASHED:
        return "it has crashed"
    if action == HOVER:
        return STRANDED
    if action == RETURN:
        return f"it carries the parcel of customer {own}"
    return _delivery(world, row, d, action - DELIVER, own)


def _delivery(world: Any, row: int, d: int, c: int, own: int) -> str:
    if world.served[row, c]:
        return "has been served"
    if own >= 0 and own != c:
        return f"it carries the parcel of customer {own}"
    if world.lost[row, c]:
        return "the parcel is in a wreck"
    if own < 0:
        carriers = np.flatnonzero((world.carrying[row] == c) & (world.status[row] != CRASHED))
        others = [int(other) for other in carriers if other != d]
        if world.reserve and others:
            return f"carried by drone_{others[0]}"
        gap = np.hypot(*(world.drone_pos[row, d] - world.truck_pos[row]))
        if not world.air and gap > world.reach:
            return "parcels are loaded at the truck"
    return STRANDED
