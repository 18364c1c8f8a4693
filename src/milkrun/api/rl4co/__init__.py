"""Milkrun's TSP and CVRP as RL4CO environments: RL4CO's constructor, keys, shapes and calls, Milkrun's kernels.

    from milkrun.api.rl4co import CVRPEnv
    env = CVRPEnv(generator_params={"num_loc": 50}, seed=7)
    model = AttentionModel(env, baseline="rollout")

They work with RL4CO's policies and trainers. Differences: a step is compiled; a CVRP ends on the last return to the
depot, where RL4CO may end one step before; instances come from `seed`, and torch's global random state is neither read
nor written (give a seed: `torch.manual_seed` does not make a run repeatable).
"""

from __future__ import annotations

import secrets
from typing import Any

from milkrun.core.arguments import autoreset_name, check_seed
from milkrun.core.errors import ConfigError, did_you_mean, missing_extra
from milkrun.core.references import refer
from milkrun.core.registry import each_world, world_spec

try:
    import rl4co  # noqa: F401
except ImportError as e:
    raise missing_extra("rl4co", "rl4co") from e

from milkrun.api.rl4co.envs import CVRPEnv, TSPEnv
from milkrun.api.rl4co.generator import RL4COGenerator, laws_of


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
) -> TSPEnv | CVRPEnv:
    """`milkrun.make(id, api="rl4co")`. `num_envs` is the batch of a `reset()` without arguments.

    Options are those of the world that draw instances. RL4CO has no autoreset, so `autoreset` has no effect, and its
    TSP starts at the node of the first action.
    """
    spec = world_spec(world_id)
    world = spec.load()
    if "rl4co" not in vars(world).get("environments", {}):  # an inherited one has the rules of the base alone
        known = [other.name for other, cls in each_world() if "rl4co" in vars(cls).get("environments", {})]
        raise ConfigError(f"{spec.id} has no RL4CO environment{did_you_mean(spec.name, known)}")
    env = refer(world, "environments", "rl4co")
    laws = laws_of(env.name, world.Config.build(preset, config, **{**spec.kwargs, **overrides}))
    autoreset_name(autoreset)
    laws.seed = secrets.randbits(63) if seed is None else check_seed(seed)
    laws.position = first_row
    batch_size = None if num_envs is None else [num_envs]
    made: TSPEnv | CVRPEnv = env(RL4COGenerator(laws), batch_size=batch_size, illegal=illegal, threads=threads)
    return made


__all__ = ["CVRPEnv", "RL4COGenerator", "TSPEnv", "make"]
