"""Train a world of your own: a courier chooses paid jobs with deadlines, then returns to the hub.

    python examples/train_own_world.py --minutes 2

The file declares a world and a heuristic to compare with. It says nothing about networks: the inputs of the policy are
derived from the declared fields. It needs the extra `learn`.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import milkrun
from milkrun.core.actions import discrete
from milkrun.core.config import Config, option
from milkrun.core.features import derive
from milkrun.core.fields import bool_, constant, float32, float64, instance, int64, mask, state
from milkrun.core.kernels import kernel
from milkrun.core.rng import row_stream, uniform
from milkrun.core.world import World
from milkrun.render.scene import Scene, colours
from milkrun.solvers import evaluate

HUB = 0
PLACE, PAY, DEADLINE = 1, 2, 3  # the purposes of the random streams


@dataclass(frozen=True, kw_only=True)
class CourierConfig(Config):
    num_jobs: int = option(20, "jobs on offer", low=1, high=500)
    longest: float = option(3.0, "latest deadline drawn, in units of time", low=0.1, high=100.0)


class Courier(World):
    """A courier drives at speed 1 in the unit square. A job is paid if it is reached by its deadline.

    Observations: `locs`, `pay`, `deadline`, `current_node`, `visited`, `time`, `i`.
    Actions: Discrete(num_jobs + 1): j drives to job j, 0 returns to the hub.
    Mask: jobs that are not done and can be reached in time; the hub always.
    Ends: terminated on the return to the hub.
    Reward: the pay of the job; the return is the day's pay.
    """

    id = "example/Courier-v0"
    Config = CourierConfig
    action = discrete("N")

    longest = constant(float64)

    locs = instance(float32, "N", 2, low=0, high=1, doc="places in the unit square; node 0 is the hub")
    pay = instance(float32, "N", low=0, high=1, doc="pay of each job; 0 at the hub")
    deadline = instance(float32, "N", low=0, doc="latest arrival; 0 at the hub, which is always open")
    current_node = state(int64, index="N", doc="where the courier is")
    visited = state(bool_, "N", doc="jobs that are done")
    time = state(float64, low=0, doc="time since the start")
    action_mask = mask("N")

    @classmethod
    def size_of(cls, config: CourierConfig) -> dict[str, int]:
        return {"N": config.num_jobs + 1}

    def scene(self, row: int) -> Scene:
        q = self.instance_row[row]
        s = Scene((0, 0), (1, 1))
        colour = colours(np.where(self.visited[row], "served", "waiting"))
        s.points("jobs", self.locs[q], action=np.arange(self.sizes["N"]), colour=colour)
        s.figure("time", self.time[row])
        return s


@kernel
def generate(w, b):
    q = w.instance_row[b]
    places, pays, deadlines = row_stream(w, b, PLACE), row_stream(w, b, PAY), row_stream(w, b, DEADLINE)
    for j in range(w.N):
        w.locs[q, j, 0] = uniform(places, 2 * j)
        w.locs[q, j, 1] = uniform(places, 2 * j + 1)
        w.pay[q, j] = uniform(pays, j) if j != HUB else 0.0
        w.deadline[q, j] = w.longest * uniform(deadlines, j) if j != HUB else 0.0


@kernel
def reset(w, b):
    for j in range(w.N):
        w.visited[b, j] = j == HUB
    w.current_node[b] = HUB
    w.time[b] = 0.0
    mark_allowed(w, b)


@kernel
def step(w, b, action):
    q = w.instance_row[b]
    w.time[b] += travel_time(w, q, w.current_node[b], action)
    w.current_node[b] = action
    if action == HUB:
        w.terminated[b] = True
        return
    w.visited[b, action] = True
    w.reward[b] = w.pay[q, action]
    mark_allowed(w, b)


@kernel
def travel_time(w, q, i, j):
    return math.hypot(w.locs[q, j, 0] - w.locs[q, i, 0], w.locs[q, j, 1] - w.locs[q, i, 1])


@kernel
def mark_allowed(w, b):
    q = w.instance_row[b]
    for j in range(w.N):
        arrival = w.time[b] + travel_time(w, q, w.current_node[b], j)
        w.action_mask[b, j] = (not w.visited[b, j]) & (arrival <= w.deadline[q, j])
    w.action_mask[b, HUB] = True


Courier.bind(generate=generate, reset=reset, step=step)


@kernel
def best_paid(w, b, x, y):
    """The allowed job with the most pay a unit of time; the hub if none is left."""
    q = w.instance_row[b]
    best, highest = HUB, 0.0
    for j in range(1, w.N):
        rate = w.pay[q, j] / (travel_time(w, q, w.current_node[b], j) + 1e-9)
        if w.action_mask[b, j] and rate > highest:
            best, highest = j, rate
    return best


def greedy(world: World) -> Any:
    return world.map_rows(best_paid)


Courier.policies = {"greedy": f"{__name__}:greedy"}
milkrun.register("example/Courier-v0", Courier, title="Courier with deadlines")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=2.0, help="budget of the training")
    parser.add_argument("--steps", type=int, help="budget in training steps instead")
    parser.add_argument("--out", type=Path, help="folder of the run (default: a new temporary one)")
    parser.add_argument("--instances", type=int, default=1000, help="instances of the comparison")
    given = parser.parse_args()

    print(derive(milkrun.make("example/Courier-v0", 1, seed=0)))
    from milkrun import learn

    budget = {"steps": given.steps} if given.steps else {"minutes": given.minutes}
    folder = given.out or Path(tempfile.mkdtemp()) / "courier"
    run = learn.train("example/Courier-v0", out=folder, seed=0, **budget)

    count = given.instances
    world = milkrun.make("example/Courier-v0", count, seed=7)
    print(f"pay of a day, mean of {count:,} instances that the training has not seen:")
    print(f"  {'greedy heuristic':<20} {evaluate(world, greedy, count).mean:.3f}")
    for decode in ("greedy", "starts", "starts,x8"):
        policy = learn.load(run.folder / "best.safetensors", decode)
        print(f"  {'trained, ' + decode:<20} {evaluate(world, policy, count).mean:.3f}")


if __name__ == "__main__":
    main()
