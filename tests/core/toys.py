"""Small worlds for tests of the core: one for each need that the core must serve beyond routing.

Sorter      scratch: work space of a thread far larger than a register file
Borrowed    fields on foreign memory, columns of one array with another owner
Lantern     a large view made only on demand; also the plainest world, for autoreset and instances
Convoy      groups of agents, a joint `state` view, masks one after another
Turnstile   its own rule of legality, and a clock that runs on when the agent may not act
Glider      numbers instead of choices
Drifter     the same with the mask of size 0 that a class with choices may leave it

Rules are so simple that each test can work them out by hand. Below the worlds: what tests compare rows by.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from milkrun.core import fields
from milkrun.core.actions import agents, box, discrete
from milkrun.core.config import Config, option
from milkrun.core.fields import constant, float32, float64, instance, int32, int64, mask, scratch, state, view
from milkrun.core.kernels import kernel
from milkrun.core.rng import integers, stream, uniform
from milkrun.core.world import World

DRAW = 1  # the purpose of every stream here


@kernel
def row_stream(w, b):
    return stream(w.stream[b, 0], w.stream[b, 1], w.stream[b, 2], DRAW)


# -- Sorter ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class SorterConfig(Config):
    length: int = option(700, "numbers a row", low=2, high=5000)


@kernel
def sorter_generate(w, b):
    q = w.instance_row[b]
    for j in range(w.L):
        w.numbers[q, j] = integers(row_stream(w, b), j, 0, 1_000_000)


@kernel
def sorter_reset(w, b):
    w.picked[b] = 0
    w.below[b] = 0
    for j in range(w.L):
        w.action_mask[b, j] = True


@kernel
def sorter_step(w, b, action):
    """Picks the number of rank `action`: merges runs from one scratch page to the other, then sums what lies below."""
    q, n = w.instance_row[b], w.L
    for j in range(n):
        w.pages[0, j] = w.numbers[q, j]
    page, run = 0, 1
    while run < n:
        merge_runs(w, page, run)
        page, run = 1 - page, 2 * run
    w.sums[0] = 0
    for j in range(n):
        w.sums[j + 1] = w.sums[j] + w.pages[page, j]
    w.picked[b] = w.pages[page, action]
    w.below[b] = w.sums[action]
    w.reward[b] = 1


@kernel
def merge_runs(w, page, run):
    for start in range(0, w.L, 2 * run):
        i, j = start, min(start + run, w.L)
        i_end, j_end = j, min(start + 2 * run, w.L)
        for k in range(start, j_end):
            if i < i_end and (j >= j_end or w.pages[page, i] <= w.pages[page, j]):
                w.pages[1 - page, k] = w.pages[page, i]
                i += 1
            else:
                w.pages[1 - page, k] = w.pages[page, j]
                j += 1


class Sorter(World):
    """Pick a number by its rank."""

    Config = SorterConfig
    action = discrete("L")

    pages = scratch(int64, 2, "L")
    sums = scratch(int64, "L1")
    numbers = instance(int64, "L", low=0)
    picked = state(int64, doc="the number of the rank requested last")
    below = state(int64, doc="the sum of all smaller ones")
    action_mask = mask("L")

    @classmethod
    def size_of(cls, config: SorterConfig) -> dict[str, int]:
        return {"L": config.length, "L1": config.length + 1}


Sorter.bind(generate=sorter_generate, reset=sorter_reset, step=sorter_step)


# -- Borrowed --------------------------------------------------------------------------------------------------


@kernel
def borrowed_generate(w, b):
    for k in range(3):
        w.goal[w.instance_row[b], k] = uniform(row_stream(w, b), k)


@kernel
def borrowed_reset(w, b):
    for k in range(3):
        w.place[b, k] = 0.0
        w.action_mask[b, k] = True
    w.fuel[b] = 4.0


@kernel
def borrowed_step(w, b, action):
    """One axis jumps to its goal."""
    w.place[b, action] = w.goal[w.instance_row[b], action]
    w.fuel[b] -= 1.0
    w.reward[b] = -w.fuel[b]
    w.action_mask[b, action] = False
    w.terminated[b] = w.fuel[b] == 1.0


class Borrowed(World):
    """A body whose place, fuel and goal lie in arrays of another program, with gaps between them."""

    action = discrete(3)

    goal = instance(float64, 3, strided=True)
    place = state(float64, 3, strided=True)
    fuel = state(float64, strided=True)
    action_mask = mask(3)

    def allocate(self, field: fields.Field, shape: tuple[int, ...]) -> np.ndarray:
        """`place` every second column backwards, `fuel` a column, `goal` the transpose of an array of its own."""
        if field.name == "goal":
            self.goals = np.full((3, shape[0] + 2), -7.0)
            return self.goals.T[2:]
        if not hasattr(self, "memory"):
            self.memory = np.full((self.num_envs, 9), -7.0)
        if field.name == "place":
            return self.memory[:, 5:0:-2]
        if field.name == "fuel":
            return self.memory[:, 7]
        return super().allocate(field, shape)


Borrowed.bind(generate=borrowed_generate, reset=borrowed_reset, step=borrowed_step)


# -- Lantern ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class LanternConfig(Config):
    longest: int = option(5, "largest goal drawn", low=2, high=1000)
    side: int = option(8, "pixels of the image", low=1, high=512)


@kernel
def lantern_generate(w, b):
    w.goal[w.instance_row[b]] = integers(row_stream(w, b), 0, 2, w.longest + 1)


@kernel
def lantern_reset(w, b):
    w.lit[b] = 0
    lantern_mark(w, b)


@kernel
def lantern_step(w, b, action):
    """0 waits, 1 and 2 light as many lamps; the episode ends when exactly `goal` are lit."""
    w.lit[b] += action
    w.reward[b] = action
    w.terminated[b] = w.lit[b] == w.goal[w.instance_row[b]]
    lantern_mark(w, b)


@kernel
def lantern_mark(w, b):
    for j in range(3):
        w.action_mask[b, j] = w.lit[b] + j <= w.goal[w.instance_row[b]]


@kernel
def lantern_observe(w, b):
    for x in range(w.S):
        for y in range(w.S):
            w.image[b, x, y] = 10 * w.lit[b] + w.goal[w.instance_row[b]]
    w.looks[b] += 1


class Lantern(World):
    """Light lamps until the goal is reached; an image shows them, and `looks` counts how often it was painted."""

    Config = LanternConfig
    action = discrete(3)

    longest = constant(int64)
    goal = instance(int32, low=1, high=1000)
    lit = state(int32, low=0)
    image = view(fields.uint8, "S", "S", primary=True, on_demand=True)
    looks = view(int64, on_demand=True)
    action_mask = mask(3)

    @classmethod
    def size_of(cls, config: LanternConfig) -> dict[str, int]:
        return {"S": config.side}


Lantern.bind(generate=lantern_generate, reset=lantern_reset, step=lantern_step, observe=lantern_observe)


# -- Convoy ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ConvoyConfig(Config):
    drones: int = option(2, "drones in addition to the truck", low=1, high=9)


@kernel
def convoy_generate(w, b):
    for a in range(w.A):
        w.home[w.instance_row[b], a] = integers(row_stream(w, b), a, 0, 5)


@kernel
def convoy_reset(w, b):
    for a in range(w.A):
        w.at[b, a] = w.home[w.instance_row[b], a]
    convoy_look(w, b)


@kernel
def convoy_step(w, b, action):
    """The truck drives 0..3, a drone flies 0 or 1 forward; the team earns what was moved and ends at 20."""
    total = 0
    for a in range(w.A):
        w.at[b, a] += action[a]
        w.reward[b] += action[a]
        total += w.at[b, a]
    w.terminated[b] = total >= 20
    convoy_look(w, b)


@kernel
def convoy_look(w, b):
    """Agents stop at place 9 at most; each sees itself, `state` sees all."""
    for j in range(4):
        w.action_mask[b, j] = w.at[b, 0] + j <= 9
    for d in range(w.D):
        w.action_mask[b, 4 + 2 * d] = True
        w.action_mask[b, 5 + 2 * d] = w.at[b, 1 + d] < 9
        w.drone_obs[b, d, 0] = w.at[b, 1 + d]
    w.truck_obs[b, 0, 0] = w.at[b, 0]
    for a in range(w.A):
        w.state[b, a] = w.at[b, a]


class Convoy(World):
    """A truck and its drones on a line."""

    Config = ConvoyConfig
    action = agents(truck=(1, 4), drone=("D", 2))

    home = instance(int32, "A", low=0)
    at = state(int32, "A")
    truck_obs = view(float32, 1, 1, observed=True)
    drone_obs = view(float32, "D", 1, observed=True)
    state = view(float32, "A", observed=True, doc="what the critic sees")
    action_mask = mask("M")

    @classmethod
    def size_of(cls, config: ConvoyConfig) -> dict[str, int]:
        return {"D": config.drones, "A": 1 + config.drones, "M": 4 + 2 * config.drones}


Convoy.bind(generate=convoy_generate, reset=convoy_reset, step=convoy_step)


# -- Turnstile -------------------------------------------------------------------------------------------------


@kernel
def turnstile_generate(w, b):
    w.closing[w.instance_row[b]] = integers(row_stream(w, b), 0, 4, 9)


@kernel
def turnstile_reset(w, b):
    w.clock[b] = 0
    w.last[b] = 0
    turnstile_tick(w, b, 0)


@kernel
def turnstile_step(w, b, action):
    w.last[b] = action
    w.reward[b] = 1
    turnstile_tick(w, b, 1)


@kernel
def turnstile_legal(w, b, action):
    """Any gate but the last one; and -1, to step back, which no mask can show."""
    return action >= -1 and action < 4 and action != w.last[b]


@kernel
def turnstile_idle(w, b, action):
    """The clock does not wait for the agent."""
    w.reward[b] = -0.25
    turnstile_tick(w, b, 1)


@kernel
def turnstile_tick(w, b, minutes):
    w.clock[b] += minutes
    w.terminated[b] = w.clock[b] == w.closing[w.instance_row[b]]
    for j in range(4):
        w.action_mask[b, j] = j != w.last[b]


class Turnstile(World):
    """Pass gates until they close; never the same one twice in a row."""

    action = discrete(4)

    closing = instance(int32, low=1)
    clock = state(int32, low=0)
    last = state(int64)
    action_mask = mask(4)


Turnstile.bind(
    generate=turnstile_generate, reset=turnstile_reset, step=turnstile_step, legal=turnstile_legal, idle=turnstile_idle
)


# -- Glider ----------------------------------------------------------------------------------------------------


@kernel
def glider_generate(w, b):
    w.wind[w.instance_row[b]] = uniform(row_stream(w, b), 0)


@kernel
def glider_reset(w, b):
    for k in range(w.K):
        w.place[b, k] = 0.0


@kernel
def glider_step(w, b, action):
    for k in range(w.K):
        w.place[b, k] += action[k] + w.wind[w.instance_row[b]]
    w.reward[b] = w.place[b, 0]
    w.terminated[b] = w.place[b, 0] > 3.0


class Glider(World):
    """Push a body along; the wind pushes too."""

    action = box("K")

    wind = instance(float64, low=0, high=1)
    place = state(float64, "K")

    @classmethod
    def size_of(cls, config: Config) -> dict[str, int]:
        return {"K": 2}


Glider.bind(generate=glider_generate, reset=glider_reset, step=glider_step)


class Drifter(Glider):
    """A glider that declares a mask, of no choices."""

    action_mask = mask("A")

    @classmethod
    def size_of(cls, config: Config) -> dict[str, int]:
        return {**super().size_of(config), "A": 0}


@kernel
def drifter_reset(w, b):
    for j in range(w.A):
        w.action_mask[b, j] = True
    glider_reset(w, b)


Drifter.bind(reset=drifter_reset)


# -- what tests compare ----------------------------------------------------------------------------------------


def rows_of(world: World, rows: Any = None) -> dict[str, bytes]:
    """All that rows are, field by field, to the bit."""
    return {name: array.tobytes() for name, array in sorted(world.state_dict(rows).items())}


def checksum(world: World) -> str:
    """One word for all that a world is."""
    digest = hashlib.sha256()
    for name, content in rows_of(world).items():
        digest.update(name.encode() + content)
    return digest.hexdigest()


def rolled(seed: int, threads: int = 2, num_envs: int = 2048, steps: int = 6) -> str:
    """The checksum of lanterns after some random steps: the same in every process, thread and layer."""
    world = Lantern(num_envs, seed=seed, threads=threads)
    world.reset()
    for turn in range(steps):
        world.step(world.sample_actions(seed, turn))
    world.observe()
    return checksum(world)
