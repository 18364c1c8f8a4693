"""Compiles every world before the tests ask for it, each process others.

On an empty cache two test processes meet at the same worlds at the same time and compile each of them twice. Where the
cache is full this takes some seconds.
"""

import sys
from multiprocessing import get_context

import milkrun

VARIANTS = [("milkrun/DARP-v0", "seed"), ("milkrun/TruckDrone-v0", "default"), ("milkrun/DARP-v0", "classic")]
"""Presets whose kernels are others than those of the defaults; they and the slowest stand first."""


def play(id, preset, how):
    """A reset and a step in one of the ways that are compiled apart; what a policy does, too."""
    if how == "torchrl":
        env = milkrun.make(id, 2, api="torchrl", preset=preset)
        td = env.reset()
        drawn = env.sample_actions(td)
        td = td.update(drawn) if milkrun.world_spec(id).agents == "multi" else td.set("action", drawn)
        env.step_and_maybe_reset(td)
        return
    world = milkrun.make(id, 4, preset=preset, threads=2 if how == "threads" else 1)
    world.reset()
    for turn in range(2):
        world.observe()
        world.step(world.sample_actions(0, turn))
    if how == "world" and preset is None:
        from milkrun.solvers import evaluate, policies_for

        for factory in list(policies_for(id).values())[:2]:
            evaluate(world, factory(0), 4)


def attempt(job):
    """What cannot be played is for a test to say."""
    try:
        play(*job)
    except Exception as e:
        print(f"not compiled: {job}: {e}", file=sys.stderr)


def jobs():
    """The plain steps first: the other ways have the most of their code from them."""
    every = [*VARIANTS, *((id, None) for id in milkrun.list_worlds() if id != "milkrun/TruckDrone-v0")]
    return [(id, preset, how) for how in ("world", "threads", "torchrl") for id, preset in every]


if __name__ == "__main__":
    with get_context("spawn").Pool(int(sys.argv[1])) as pool:
        pool.map(attempt, jobs(), chunksize=1)
