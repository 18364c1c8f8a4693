"""The names of published code, so that it runs with another import and nothing else changed.

`dat`: the classes of the tracking benchmark DAT. `vrp`: the list interface of the MAPPO truck-and-drones environment
and its vector wrappers. `clutter`: the tray environment with its lists of handles. `parallel`: `Envs`, which steps
environments in lockstep.
New code uses `milkrun.make` and the bindings in `milkrun.api`.
"""
