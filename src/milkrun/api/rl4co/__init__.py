"""Milkrun's worlds as RL4CO environments, for RL4CO's policies and trainers.

TSP, CVRP and the multi-task VRP have RL4CO's constructor, keys, shapes and calls, and Milkrun's kernels:

    from milkrun.api.rl4co import CVRPEnv
    env = CVRPEnv(generator_params={"num_loc": 50}, seed=7)
    model = AttentionModel(env, baseline="rollout")

MTDVRPEnv is RouteFinder's multi-task VRP with several depots.

Differences: a step is compiled; a VRP ends on the last return to the depot, where RL4CO may end one step before;
instances come from `seed`, and torch's global random state is neither read nor written (give a seed:
`torch.manual_seed` does not make a run repeatable).

Any other world whose action is a node is a `NodeEnv`, and `embeddings` makes the modules that read it:

    env = milkrun.make("milkrun/WCVRP-v0", api="rl4co", num_loc=20, seed=7)
    init, context, dynamic = embeddings(env)
    policy = AttentionModelPolicy(
        env_name=env.name, init_embedding=init, context_embedding=context, dynamic_embedding=dynamic
    )
    model = AttentionModel(env, policy, baseline="rollout")
"""

from __future__ import annotations

import secrets
from typing import Any

from milkrun.core.arguments import autoreset_name, check_seed
from milkrun.core.errors import missing_extra
from milkrun.core.references import refer
from milkrun.core.registry import world_spec

try:
    import rl4co  # noqa: F401
except ImportError as e:
    raise missing_extra("rl4co", "rl4co") from e

from milkrun.api.rl4co.embeddings import embeddings
from milkrun.api.rl4co.envs import CVRPEnv, TSPEnv
from milkrun.api.rl4co.generator import RL4COGenerator, laws_of
from milkrun.api.rl4co.mtvrp import MTDVRPEnv, MTVRPEnv
from milkrun.api.rl4co.node_env import NodeEnv


def make(
    world_id: str,
    num_envs: int | None = None,
    *,
    preset: str | None = None,
    config: Any = None,
    seed: int | None = None,
    first_row: int = 0,
    autoreset: Any = "next_step",
    illegal: str = "noop",
    threads: int | None = None,
    **overrides: Any,
) -> TSPEnv | CVRPEnv | NodeEnv:
    """`milkrun.make(id, api="rl4co")`: the class that the world names, or a NodeEnv. `num_envs` is the batch of a
    `reset()` without arguments.

    Options of TSP and CVRP are those that draw instances, and the TSP starts at the node of the first action. RL4CO has
    no autoreset, so `autoreset` has no effect.
    """
    spec = world_spec(world_id)
    world = spec.load()
    autoreset_name(autoreset)
    batch_size = None if num_envs is None else [num_envs]
    if "rl4co" not in vars(world).get("environments", {}):  # an inherited one has the rules of the base alone
        given = dict(preset=preset, config=config, seed=seed, first_row=first_row, illegal=illegal, threads=threads)
        return NodeEnv(spec.id, batch_size=batch_size, **given, **overrides)
    env = refer(world, "environments", "rl4co")
    laws = laws_of(env.name, world.Config.build(preset, config, **{**spec.kwargs, **overrides}))
    laws.seed = secrets.randbits(63) if seed is None else check_seed(seed)
    laws.position = first_row
    made: TSPEnv | CVRPEnv = env(RL4COGenerator(laws), batch_size=batch_size, illegal=illegal, threads=threads)
    return made


__all__ = ["CVRPEnv", "MTDVRPEnv", "MTVRPEnv", "NodeEnv", "RL4COGenerator", "TSPEnv", "embeddings", "make"]
