"""One small sound world, and every defect that check_world must find.

Stairs: climb one, two or three treads at a time to the top; each tread reached pays its worth. The option `defect`
breaks one rule of the contract. It is stored in `w` as a number, so all defects of the kernels are compiled once;
`variant` gives those of declarations and of Python code.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from milkrun.core import fields
from milkrun.core.actions import discrete
from milkrun.core.config import Config, option
from milkrun.core.errors import BadInstance
from milkrun.core.fields import bool_, constant, float32, float64, instance, int16, int32, int64, mask, state
from milkrun.core.kernels import kernel
from milkrun.core.rng import integers, stream, uniform
from milkrun.core.world import World
from milkrun.routing import cvrp
from milkrun.routing.cvrp import CVRP

DRAW = 1
TOO_FAR, TOO_MANY = 1, 2

DEFECTS = (
    "none",
    "keyed_by_place",
    "draws_on",
    "too_high",
    "forgets_trail",
    "over_at_start",
    "shut_at_start",
    "dead_end",
    "beyond_top",
    "nan_sum",
    "nan_reward",
    "both_ends",
    "spends_instance",
    "pushes_neighbour",
    "reads_neighbour",
    "reads_scratch",
    "own_objective",
    "counts_twice",
    "endless",
    "free_tread",
    "overrun",
    "overread",
    "reads_view",
    "reads_tally",
    "drops_view",
    "reads_own_place",
    "moves_when_seen",
    "counts_looks",
    "nan_when_seen",
    "pays_twice_late",
    "refuses_open",
    "takes_closed",
    "moves_when_judging",
    "records_by_clock",
    "looks_behind",
    "nan_to_count",
    "wide_record",
    "divides_by_none",
    "keys_itself",
)
(
    NONE,
    KEYED_BY_PLACE,
    DRAWS_ON,
    TOO_HIGH,
    FORGETS_TRAIL,
    OVER_AT_START,
    SHUT_AT_START,
    DEAD_END,
    BEYOND_TOP,
    NAN_SUM,
    NAN_REWARD,
    BOTH_ENDS,
    SPENDS_INSTANCE,
    PUSHES_NEIGHBOUR,
    READS_NEIGHBOUR,
    READS_SCRATCH,
    OWN_OBJECTIVE,
    COUNTS_TWICE,
    ENDLESS,
    FREE_TREAD,
    OVERRUN,
    OVERREAD,
    READS_VIEW,
    READS_TALLY,
    DROPS_VIEW,
    READS_OWN_PLACE,
    MOVES_WHEN_SEEN,
    COUNTS_LOOKS,
    NAN_WHEN_SEEN,
    PAYS_TWICE_LATE,
    REFUSES_OPEN,
    TAKES_CLOSED,
    MOVES_WHEN_JUDGING,
    RECORDS_BY_CLOCK,
    LOOKS_BEHIND,
    NAN_TO_COUNT,
    WIDE_RECORD,
    DIVIDES_BY_NONE,
    KEYS_ITSELF,
) = range(len(DEFECTS))


@dataclass(frozen=True, kw_only=True)
class StairsConfig(Config):
    defect: str = option("none", "the rule to break", choices=DEFECTS)
    reward: str = option("dense", "paid per step, or all on the last one", choices=("dense", "terminal"))


class Stairs(World):
    """Climb to the top."""

    Config = StairsConfig
    action = discrete(3)
    task = "tests.core.broken_worlds:StairsTask"

    defect = constant(int64)
    work = fields.scratch(float64, 4)
    height = instance(int32, low=3, high=8, doc="treads to climb")
    worth = instance(float32, "N", low=0, high=1, doc="paid for standing on a tread")
    tread = state(int64, index="N", doc="where the climber stands")
    trail = state(bool_, "N", doc="treads stood on")
    earned = state(float32, low=0, doc="sum of the worths")
    climbs = state(int32, low=0, doc="actions taken")
    leaps = state(int32, low=0, tally=True, doc="climbs of three treads")
    record = state(int16, "N", observed=False, tally=True, doc="the treads taken")
    left = fields.view(int32, low=0, doc="treads to the top")
    picture = fields.view(float32, "N", on_demand=True, low=0, high=1, doc="the climber on the stairs")
    action_mask = mask(3)
    faults = {
        TOO_FAR: ("tread", "at the top {height} and not terminated, or so near to it that the mask leads beyond"),
        TOO_MANY: ("climbs", "more than the treads climbed"),
    }

    @classmethod
    def size_of(cls, config: StairsConfig) -> dict[str, int]:
        return {"N": 10}

    def constants(self) -> dict[str, float]:
        return {"defect": DEFECTS.index(self.config.defect)}

    def solution(self) -> np.ndarray:
        return np.where(np.arange(10) < self.climbs[:, None], self.record, 0)


class StairsTask:
    """Minus the worth of the treads in a plan."""

    @staticmethod
    def get_costs(instances: Any, plan: np.ndarray, on_violation: str) -> tuple[np.ndarray, dict, None]:
        paid = np.take_along_axis(instances["worth"], plan.astype(int), axis=1).astype(float)
        return -np.where(plan > 0, paid, 0).sum(1), {}, None


@kernel
def generate(w, b):
    q = w.instance_row[b]
    s = stream(w.stream[b, 0], b if w.defect == KEYED_BY_PLACE else w.stream[b, 1], w.stream[b, 2], DRAW)
    w.height[q] = 9 if w.defect == TOO_HIGH else integers(s, 0, 3, 9)
    for j in range(w.N):
        drawn = uniform(s, 1 + j)
        w.worth[q, j] = 0.5 * (drawn + w.worth[q, j]) if w.defect == DRAWS_ON else drawn


@kernel
def reset(w, b):
    w.tread[b] = 0
    w.earned[b] = 0
    w.climbs[b] = 0
    w.leaps[b] = 0
    if w.defect != FORGETS_TRAIL:
        for j in range(w.N):
            w.trail[b, j] = False
    w.terminated[b] = w.defect == OVER_AT_START
    glance(w, b)
    if w.defect == SHUT_AT_START:
        for a in range(3):
            w.action_mask[b, a] = False


@kernel
def step(w, b, action):
    q = w.instance_row[b]
    break_a_rule(w, b, q)
    w.tread[b] += action + 1
    w.trail[b, w.tread[b]] = True
    w.record[b, w.climbs[b]] = w.tread[b]
    w.climbs[b] += 1
    w.leaps[b] += action == 2
    w.reward[b] += w.worth[q, w.tread[b]]
    w.earned[b] += w.worth[q, w.tread[b]]
    w.terminated[b] = w.tread[b] >= w.height[b if w.defect == READS_OWN_PLACE else q]
    if w.terminated[b]:
        break_the_end(w, b)
    glance(w, b)


@kernel
def break_a_rule(w, b, q):
    rows = w.tread.shape[0]
    if w.defect == NAN_SUM:
        w.earned[b] = np.nan
    elif w.defect == NAN_REWARD:
        w.reward[b] = np.nan
    elif w.defect == SPENDS_INSTANCE:
        w.worth[q, w.tread[b]] = 0
    elif w.defect == PUSHES_NEIGHBOUR:
        w.earned[(b + 1) % rows] += 1
    elif w.defect == READS_NEIGHBOUR:
        w.earned[b] += w.tread[(b + 1) % rows]
    elif w.defect == READS_SCRATCH:
        w.earned[b] += w.work[0]
        w.work[0] = w.tread[b]
    elif w.defect == OWN_OBJECTIVE:
        w.objective[b] += 1
    elif w.defect == COUNTS_TWICE:
        w.i[b] += 1
    elif w.defect == FREE_TREAD and w.tread[b] == 2:
        w.reward[b] = 0.5
    elif w.defect == OVERRUN:
        w.record[b, w.N] = 1
    elif w.defect == OVERREAD:
        w.earned[b] += w.height[q + 1] > 5
    elif w.defect == READS_VIEW:
        w.earned[b] += w.left[b]
    elif w.defect == READS_TALLY:
        w.earned[b] += w.leaps[b]
    elif w.defect == PAYS_TWICE_LATE and w.reward_at_end == 1:
        w.reward[b] = 1
    elif w.defect == RECORDS_BY_CLOCK:
        w.record[b, w.i[b]] = w.tread[b]
    elif w.defect == LOOKS_BEHIND:
        w.earned[b] += w.record[b, w.climbs[b] - 1] > 20
    elif w.defect == NAN_TO_COUNT:
        w.leaps[b] = np.inf * w.earned[b]
    elif w.defect == WIDE_RECORD:
        w.record[b, 0] = w.tread[b] + 40_000
    elif w.defect == DIVIDES_BY_NONE:
        w.leaps[b] += w.height[q] // w.climbs[b]
    elif w.defect == KEYS_ITSELF:
        w.stream[b, 2] += 1


@kernel
def break_the_end(w, b):
    if w.defect == BOTH_ENDS:
        w.truncated[b] = True
    elif w.defect == BEYOND_TOP:
        w.tread[b] = w.N
    elif w.defect == ENDLESS:
        w.terminated[b] = False
        w.tread[b] = 0
        w.climbs[b] = 0


@kernel
def glance(w, b):
    """The mask and the view of this moment."""
    left = w.height[w.instance_row[b]] - w.tread[b]
    if w.defect != DROPS_VIEW or w.tread[b] != 2:
        w.left[b] = max(left, 0)
    for a in range(3):
        w.action_mask[b, a] = a < left and not (w.defect == DEAD_END and w.tread[b] == 2)


@kernel
def observe(w, b):
    for j in range(w.N):
        w.picture[b, j] = (w.picture[b, j] + 0.01 if w.defect == COUNTS_LOOKS else 0.0) + 0.5 * (w.tread[b] == j)
    if w.defect == NAN_WHEN_SEEN:
        w.picture[b, 0] = np.nan
    if w.defect == MOVES_WHEN_SEEN:
        w.earned[b] += 1


@kernel
def legal(w, b, action):
    """The rule of the mask, repeated by the world itself."""
    if w.defect == MOVES_WHEN_JUDGING:
        w.earned[b] += 1
    if w.defect == REFUSES_OPEN and action == 2:
        return False
    return 0 <= action < 3 and (w.action_mask[b, action] or (w.defect == TAKES_CLOSED and action == 1))


@kernel
def fault(w, b):
    """Live rows from which a step would leave the trail or the record."""
    if w.terminated[b] or w.truncated[b]:
        return 0
    left = w.height[w.instance_row[b]] - w.tread[b]
    for a in range(3):
        if left <= 0 or (w.action_mask[b, a] and a >= left):
            return TOO_FAR
    return TOO_MANY if w.climbs[b] > w.tread[b] else 0


Stairs.bind(generate=generate, reset=reset, step=step, observe=observe, legal=legal, fault=fault)


# -- defects of Python code -------------------------------------------------------------------------------------


def variant(base: type[World] = Stairs, **attributes: Any) -> type[World]:
    """A world with some attributes changed; the kernels are the same, so the compiled code is shared."""
    changed = type(base.__name__, (base,), {"__module__": base.__module__, **attributes})
    changed._launchers = {False: base._launcher_for(False)}
    return changed


def opens_when_ended(self: Any, actions: Any, rows: Any = None) -> None:
    """A step that opens the masks of finished rows again."""
    World.step(self, actions, rows)
    self.action_mask[self.terminated] = True


def resets_by_python(self: Any, rows: Any = None, **options: Any) -> None:
    """A reset that does part of its work outside the kernel, which autoreset does not run."""
    World.reset(self, rows, **options)
    self.trail[slice(None) if rows is None else rows, 0] = True


def remembers_in_python(self: Any, actions: Any, rows: Any) -> None:
    """A step that counts in an attribute, which state_dict omits."""
    World.step(self, actions, rows)
    moved = rows[~self.illegal[rows]]
    self.__dict__.setdefault("memory", np.zeros(self.num_envs, int))[moved] += 1
    self.left[moved] = self.memory[moved]


def differs_on_threads(self: Any, actions: Any, rows: Any = None) -> None:
    """A step that depends on its number of threads."""
    World.step(self, actions, rows)
    self.left[slice(None) if rows is None else rows] += self.threads - 1


def differs_in_same_step(self: Any, actions: Any, rows: Any = None) -> None:
    """A step that depends on the autoreset mode."""
    World.step(self, actions, rows)
    if self.autoreset == "same_step":
        self.reward += 1
        self.left += 1


def shuts_last_drone(self: Any, actions: Any, rows: Any = None) -> None:
    """A step of the convoy that leaves the last drone nothing to do."""
    World.step(self, actions, rows)
    self.action_mask[~self.terminated, -2:] = False


def spends_in_python(self: Any, actions: Any, rows: Any) -> None:
    """A step that writes into the instances."""
    World.step(self, actions, rows)
    moved = rows[~self.illegal[rows]]
    self.worth[self.instance_row[moved], 0] = 0.25


def draws_in_python(self: Any, actions: Any, rows: Any) -> None:
    """A step that draws from a generator shared by all rows."""
    World.step(self, actions, rows)
    self.left[rows[~self.illegal[rows]]] = np.random.randint(1000)


def pushes_in_python(self: Any, actions: Any, rows: Any) -> None:
    """A step that writes into a row outside the call."""
    World.step(self, actions, rows)
    others = np.setdiff1d(np.arange(self.num_envs), rows)
    self.earned[others[:1]] += 1


def overruns_in_python(self: Any, actions: Any, rows: Any = None) -> None:
    """A step that writes behind the end of an array."""
    World.step(self, actions, rows)
    np.lib.stride_tricks.as_strided(self.record, (self.record.size + 1,), self.record.strides[1:])[-1] = 1


def overreads_in_python(self: Any, actions: Any, rows: Any) -> None:
    """A step that reads behind the end of an array."""
    World.step(self, actions, rows)
    record = np.lib.stride_tricks.as_strided(self.record, (self.record.size + 1,), self.record.strides[1:])
    self.left[rows[~self.illegal[rows]]] += record[-1] > 0


def depends_on_compiling(self: Any, actions: Any, rows: Any) -> None:
    """A step that differs when its kernels are compiled."""
    World.step(self, actions, rows)
    self.left[rows[~self.illegal[rows]]] += not self.debug


def pays_late_in_part(self: Any, actions: Any, rows: Any = None) -> None:
    """A step that pays half of what is due on the last step, where all is paid then."""
    World.step(self, actions, rows)
    if self.config.reward == "terminal":
        self.reward[slice(None) if rows is None else rows] /= 2


def draws_on_the_world(self: Any, row: int, canvas: Any) -> None:
    """A picture that writes into the row it shows."""
    self.left[row] += 1


def refuses_all(self: Any, arrays: Any) -> None:
    """A check that lets no instance in."""
    raise BadInstance("row 0: height = 3: must be even")


def raises(*args: Any, **options: Any) -> Any:
    """A hook with a mistake of its own."""
    raise ValueError("the author slipped")


def gives_nothing(*args: Any, **options: Any) -> None:
    """A hook that forgets to return what it made."""


# -- defects that cannot be compiled together with the others ----------------------------------------------------------


@kernel
def misspelling_step(w, b, action):
    w.tread[b] += action + 1
    w.traill[b, w.tread[b]] = True


class Misspelt(Stairs):
    """An assignment to an undeclared field."""


Misspelt.bind(step=misspelling_step)


@kernel
def drawing_generate(w, b):
    generate(w, b)
    w.worth[w.instance_row[b], 0] = np.random.random()


class Drawing(Stairs):
    """A generator that all rows share."""


Drawing.bind(generate=drawing_generate)


@kernel
def allocating_step(w, b, action):
    step(w, b, action)
    w.leaps[b] += len([action, action])


class Allocating(Stairs):
    """A step that runs as Python, but does not compile."""


Allocating.bind(step=allocating_step)


@kernel
def step_by_clock(w, b, action):
    """A defect once overlooked: `i` also counts illegal steps, so the index leaves `tour` sooner or later."""
    w.tour[b, w.i[b]] = action
    cvrp.step(w, b, action)


class ClockCVRP(CVRP):
    """Records its actions by the clock."""


ClockCVRP.bind(step=step_by_clock)


@dataclass(frozen=True, kw_only=True)
class ShelfConfig(Config):
    max_steps: int = option(4, "steps until a row is truncated", low=1)
    places: int = option(6, "places of the shelf", low=1, high=50)


class Shelf(World):
    """A shelf whose second place is always used, whether there is one or not."""

    Config = ShelfConfig
    action = discrete(2)
    filled = state(bool_, "N", doc="places in use")
    action_mask = mask(2)

    @classmethod
    def size_of(cls, config: ShelfConfig) -> dict[str, int]:
        return {"N": config.places}


@kernel
def build_shelf(w, b):
    pass


@kernel
def clear_shelf(w, b):
    for j in range(w.N):
        w.filled[b, j] = False
    for a in range(2):
        w.action_mask[b, a] = True


@kernel
def fill_shelf(w, b, action):
    w.filled[b, 1] = True


Shelf.bind(generate=build_shelf, reset=clear_shelf, step=fill_shelf)


class Lift(World):
    """Bring all people down; the stops are kept in a plan whose end is guarded too weakly."""

    action = discrete(2)
    plan = state(int32, "L", low=0, high=1, doc="what was done, first to last")
    used = state(int32, low=0, high="L", doc="entries of the plan")
    waiting = state(int32, low=0, high=3, doc="people upstairs")
    action_mask = mask(2)
    faults = {1: ("used", "the plan is full"), 2: ("used", "too few entries are left for the people waiting")}

    @classmethod
    def size_of(cls, config: Config) -> dict[str, int]:
        return {"L": 3}


@kernel
def call_lift(w, b):
    w.used[b] = 0
    w.waiting[b] = 3
    for k in range(w.L):
        w.plan[b, k] = 0
    for a in range(2):
        w.action_mask[b, a] = True


@kernel
def fetch_one(w, b, action):
    """An entry of the plan for each: with one entry left and two people upstairs the second is written beyond it."""
    w.plan[b, w.used[b]] = action
    w.used[b] += 1
    w.waiting[b] -= 1
    w.terminated[b] = w.waiting[b] <= 0


@kernel
def fault_of_full_plans(w, b):
    return int(w.used[b] >= w.L and not w.terminated[b])


@kernel
def fault_of_short_plans(w, b):
    return 2 if w.used[b] + w.waiting[b] > w.L else 0


Lift.bind(generate=build_shelf, reset=call_lift, step=fetch_one, fault=fault_of_full_plans)


class GuardedLift(Lift):
    """The same with a `fault` that refuses every state for which the plan would be too short."""


GuardedLift.bind(fault=fault_of_short_plans)
