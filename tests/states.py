"""The states that a play goes through, checked as their world checks those that come from outside."""

from __future__ import annotations

import numpy as np

from milkrun.core.fields import Role
from milkrun.core.instances import Given

ROLES = (Role.STATE, Role.KEY, Role.MASK, Role.INSTANCE)


def arrays_of(world):
    """Copies of all fields of the rows, instances as each row plays them."""
    fields = [f for f in world.fields.values() if f.role in ROLES]
    return {
        f.name: getattr(world, f.name)[world.instance_row] if f.role is Role.INSTANCE else getattr(world, f.name).copy()
        for f in fields
    }


def check(world, arrays):
    """What `load_state_dict` checks beyond declared bounds, of all rows with the instance that each plays."""
    own = {name: array for name, array in arrays.items() if world.fields[name].role is Role.INSTANCE}
    rest = {name: array for name, array in arrays.items() if name not in own and name != "instance_row"}
    given = Given(own, np.arange(world.num_envs, dtype=np.int32))
    if not world._plays(given, np.arange(world.num_envs)):
        world.check_instances(own)
    world.check_states({**rest, **own})
    world.refuse_faults(rest, given)


def check_play(world, turns=60, seed=3, wild=0.25):
    """Steps all rows at random, each with chance `wild` by any number, and lets the world check every state."""
    rng = np.random.default_rng(seed)
    check(world, arrays_of(world))
    for turn in range(turns):
        if world.autoreset == "disabled" and world.done.any():
            world.reset(np.flatnonzero(world.done))
        actions = world.sample_actions(seed, turn)
        strange = rng.integers(-2, world.num_actions + 2, len(actions))
        world.step(np.where(rng.random(len(actions)) < wild, strange, actions))
        check(world, arrays_of(world))
