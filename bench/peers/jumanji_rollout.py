"""Whole random rollouts of Jumanji's TSP and CVRP; prints one line of JSON with row-steps per second.

A script for the Python of a venv of its own (`pip install jax jumanji`), so that JAX and torch need not share one:

    .venv-jumanji/bin/python bench/peers/jumanji_rollout.py [--rows 1024] [--clock cpu]

A rollout is one compiled call: a reset that draws a new instance for every row, then a loop that picks a uniformly
random allowed action and steps, until the last row is done. One core and one thread; the call returns only the returns.
Chosen in Jumanji's favour: the fastest of three samplers (`categorical` is the one of its own random agent), one random
key per step for the whole batch, XLA may drop unused results, and every row of every step counts, even finished ones.
"""

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

# Both before JAX is imported, which sizes its thread pools by them. The last core, if there is a choice.
os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
from jumanji.environments.routing.cvrp import CVRP  # noqa: E402
from jumanji.environments.routing.cvrp.generator import UniformGenerator as CVRPGenerator  # noqa: E402
from jumanji.environments.routing.tsp import TSP  # noqa: E402
from jumanji.environments.routing.tsp.generator import UniformGenerator as TSPGenerator  # noqa: E402

NUM_LOC = 50
ENVIRONMENTS = {
    "tsp": lambda: TSP(TSPGenerator(num_cities=NUM_LOC)),
    # Demands 1..9 and capacity 40, as everywhere: its generator excludes max_demand.
    "cvrp": lambda: CVRP(CVRPGenerator(num_nodes=NUM_LOC, max_capacity=40, max_demand=10)),
}


def categorical(key: jax.Array, mask: jax.Array) -> jax.Array:
    """Gumbel noise on every node, as `jax.random.categorical` does it."""
    return jax.random.categorical(key, jnp.where(mask, 0.0, -jnp.inf))


def highest_bits(key: jax.Array, mask: jax.Array) -> jax.Array:
    """Plain random bits on every node; the highest wins."""
    return jnp.where(mask, jax.random.bits(key, mask.shape) | 1, 0).argmax(-1)


def kth_allowed(key: jax.Array, mask: jax.Array) -> jax.Array:
    """One random number a row: the k-th allowed node. In XLA a product with a triangle is faster than cumsum."""
    nodes = mask.shape[-1]
    rank = mask.astype(jnp.float32) @ jnp.triu(jnp.ones((nodes, nodes), jnp.float32))
    k = jnp.floor(jax.random.uniform(key, mask.shape[:1]) * rank[:, -1])
    return (rank <= k[:, None]).sum(-1)


SAMPLERS = [categorical, highest_bits, kth_allowed]


def compiled_rollout(env: Any, rows: int, sample: Callable[[jax.Array, jax.Array], jax.Array]) -> Callable:
    """A jitted rollout: key -> (returns of the rows, number of steps until all were done)."""
    reset, step = jax.vmap(env.reset), jax.vmap(env.step)

    def run(key: jax.Array) -> tuple[jax.Array, jax.Array]:
        for_reset, for_actions = jax.random.split(key)
        state, timestep = reset(jax.random.split(for_reset, rows))

        def some_row_is_live(carry: tuple) -> jax.Array:
            return ~carry[3].all()

        def advance(carry: tuple) -> tuple:
            t, state, mask, done, returns = carry
            action = sample(jax.random.fold_in(for_actions, t), mask).astype(jnp.int32)
            state, timestep = step(state, action)
            returns += jnp.where(done, 0.0, timestep.reward)
            return t + 1, state, timestep.observation.action_mask, done | timestep.last(), returns

        start = (0, state, timestep.observation.action_mask, jnp.zeros(rows, bool), jnp.zeros(rows))
        steps, *_, returns = jax.lax.while_loop(some_row_is_live, advance, start)
        return returns, steps

    return jax.jit(run)


def row_steps_per_second(rollout: Callable, rows: int, repeats: int, clock: Callable[[], float]) -> tuple[float, float]:
    """Median rate over warm rollouts, each on its own instances, and the mean return as a plausibility check."""
    jax.block_until_ready(rollout(jax.random.key(0)))
    rates, returns = [], []
    for seed in range(1, repeats + 1):
        key = jax.block_until_ready(jax.random.key(seed))
        before = clock()
        result, steps = jax.block_until_ready(rollout(key))
        rates.append(rows * int(steps) / (clock() - before))
        returns.append(float(result.mean()))
    return statistics.median(rates), statistics.mean(returns)


def main() -> None:
    parser = argparse.ArgumentParser(description="row-steps per second of whole random rollouts in Jumanji")
    parser.add_argument("--rows", type=int, default=1024)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall")
    options = parser.parse_args()
    clock = {"wall": time.perf_counter, "cpu": time.process_time}[options.clock]

    report: dict[str, Any] = {"rows": options.rows, "clock": options.clock, "jax": jax.__version__, "samplers": {}}
    for name, make in ENVIRONMENTS.items():
        rates = {}
        for sample in SAMPLERS:
            rollout = compiled_rollout(make(), options.rows, sample)
            rates[sample.__name__], report[f"{name}_return"] = row_steps_per_second(
                rollout, options.rows, options.repeats, clock
            )
        report[name], report["samplers"][name] = max(rates.values()), rates
    print(json.dumps(report))


if __name__ == "__main__":
    main()
