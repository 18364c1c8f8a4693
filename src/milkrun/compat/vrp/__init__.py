"""Truck and drones with the interface of the published MAPPO environment: lists by agent, entities with attributes.

`VRP_env.VRPEnv(args)` makes a `MultiAgentVRPEnv` on one row of the world `milkrun/TruckDrone-v0`, by default with its
preset "published"; `env_wrappers` plays several of them. It has no rules of its own: the world steps, and the
entities of `core` are views of its row.
"""
