"""The greedy policy of the truck-and-drones world if an episode ends at the depot."""

from __future__ import annotations

import numpy as np
import pytest

import milkrun
from milkrun.solvers.delivery import greedy, parked


@pytest.mark.parametrize("roads", [False, True])
def test_greedy_drives_home_when_all_are_served(roads):
    """Every row completes at node 0 before the limit, also with a parked truck."""
    for policy in (greedy, parked):
        world = milkrun.make(
            "milkrun/TruckDrone-v0", 32, seed=3, end="depot", road_graph=roads, autoreset="disabled", battery_rate=0.2
        )
        world.reset()
        left = False
        while (live := np.flatnonzero(~world.done)).size:
            world.step(policy(world)[live], rows=live)
            left |= bool((world.truck_node != 0).any())
        assert left == (policy is greedy)
        assert world.terminated.all() and world.served.all() and (world.truck_node == 0).all()
        assert (world.status == 0).all()
