"""Truck and drones in the words of the public multi-agent environment: lists by agent, entities with attributes.

`VRP_env.VRPEnv(args)` makes a `MultiAgentVRPEnv` on one row of the world `milkrun/TruckDrone-v0`, by default with its
preset "published"; `env_wrappers` plays several of them. Nothing of the rules is here: the world plays, and the
entities of `core` are views of its row.
"""
