"""Interfaces of published code, under its own names. This package exists only so that such code runs with its import
path changed; new code uses `milkrun.make` and the bindings in `milkrun.api`.

| module | interface of |
|---|---|
| `dat` | the classes of the drone-tracking benchmark DAT |
| `vrp` | the MAPPO environment of a truck and its drones: lists by agent; its wrappers are `vrp.env_wrappers` |
| `clutter` | the tray environment `EnvClutterEnv`, with its lists of handles |
| `parallel` | `Envs`, which steps any environments in lockstep |

Milkrun's own binding to the on-policy library, for any world, is `milkrun.api.mappo`.
"""
