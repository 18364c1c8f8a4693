"""Which states of a row of the TSP with a drone can be: rules between fields that every play keeps, illegal actions or
not.

A state from outside that breaks one would let a kernel look up a node that is not there, or count nodes wrongly. The
rules hold for all rows at once, also for those that have ended; what the mask allows is asked of live rows only.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from milkrun.core.instances import refuse_where
from milkrun.delivery.instances.tspd import DEAREST

Arrays = Mapping[str, np.ndarray]


def check_machines(arrays: Arrays) -> None:
    """Where truck and drone are, and what they have covered."""
    truck, launch, fly, covered = (arrays[name] for name in ("truck", "launch", "fly", "covered"))
    nodes, row, n, out = covered.shape[1], np.arange(len(truck)), arrays["n_nodes"], fly >= 0
    for name, place in (("truck", truck), ("launch", launch), ("fly", fly)):
        refuse_where(name, place, place >= n, "is no node of this instance")
    refuse_where("launch", launch, out != (launch >= 0), "must be -1 exactly where fly is")
    refuse_where("fly", fly, out & (fly == launch), "is where the drone was launched")
    refuse_where("fly", fly, fly == 0, "the depot is covered from the start")
    kept = (np.arange(nodes) == 0) | (np.arange(nodes) >= n[:, None])
    refuse_where("covered", covered, ~covered & kept, "the depot and padding are covered from the start")
    for name, place in (("truck", truck), ("launch", launch), ("fly", fly)):
        refuse_where(name, place, (place >= 0) & ~covered[row, place], "is a node that is not covered")
    left = arrays["left"]
    refuse_where("left", left, left != (~covered).sum(axis=1), "must be the nodes not covered")
    refuse_where("must_join", arrays["must_join"], arrays["must_join"] & ~out, "the drone is aboard")
    leg, clock = arrays["truck_leg"], arrays["clock"]
    refuse_where("truck_leg", leg, ~out & (leg != 0), "must be 0 with the drone aboard")
    refuse_where("truck_leg", leg, leg > clock * (1 + 1e-9), "is more than the time that has passed")
    most = 6 * nodes * DEAREST  # of 3 N actions, a drive costs one leg and a join two
    refuse_where("clock", clock, clock > most, f"must be <= {most:g}")


def check_mask(arrays: Arrays) -> None:
    """What is open in a live row, as far as places decide."""
    truck, fly, covered, forbid = (arrays[name] for name in ("truck", "fly", "covered", "forbid"))
    nodes, row, out = covered.shape[1], np.arange(len(truck)), (fly >= 0)[:, None]
    node = np.arange(nodes)
    live = ~(arrays["terminated"] | arrays["truncated"])[:, None]
    allowed = arrays["action_mask"] & live
    drives, launches, joins = allowed[:, :nodes], allowed[:, nodes : 2 * nodes], allowed[:, 2 * nodes :]
    home = (node == 0) & (arrays["left"] == 0)[:, None]
    refuse_where("action_mask", drives, drives & ~out & covered & ~home, "the node is covered and the drone aboard")
    there = (node == fly[:, None]) | (node == truck[:, None]) | (node >= arrays["n_nodes"][:, None])
    refuse_where("action_mask", drives, drives & out & there, "the truck or the drone is there, or nothing is")
    refuse_where("action_mask", drives, drives & arrays["must_join"][:, None], "the drone must join")
    shut = out | covered | arrays["no_visit"] | forbid | forbid[row, truck][:, None]
    refuse_where("launches in action_mask", launches, launches & shut, "the drone may not be launched to it")
    refuse_where("joins in action_mask", joins, joins & ~out, "the drone is aboard")


def check_record(arrays: Arrays) -> None:
    """The actions taken: launches and joins in turn, as many as the counts say. Stepping without a record has none."""
    if "plan" not in arrays or "ops" not in arrays:
        return
    plan, steps, fly = arrays["plan"].astype(np.int64), arrays["steps"], arrays["fly"]
    nodes, longest = arrays["covered"].shape[1], plan.shape[1]
    refuse_where("steps", steps, steps > longest, f"must be <= {longest}")
    taken = np.arange(longest) < steps[:, None]
    wrong = np.where(taken, (plan < 0) | (plan > 2 * nodes), plan != -1)
    refuse_where("plan", plan, wrong, f"must be 0..{2 * nodes} up to steps = {int(steps.max(initial=0))}, then -1")
    sent, back = (plan >= nodes) & (plan < 2 * nodes), plan == 2 * nodes
    out = np.cumsum(sent, axis=1) - np.cumsum(back, axis=1)
    refuse_where("plan", plan, (out < 0) | (out > 1), "launches and joins must follow each other in turn")
    airborne = sent.sum(axis=1) - back.sum(axis=1)
    refuse_where("fly", fly, (fly >= 0) != (airborne == 1), "does not fit the launches and joins of the plan")
    by_drone, done = arrays["by_drone"], arrays["num_ops"]
    refuse_where("by_drone", by_drone, by_drone != sent.sum(axis=1), "must be the launches of the plan")
    refuse_where("num_ops", done, done > arrays["ops"].shape[1], f"must be <= {arrays['ops'].shape[1]}")
