"""The options of the clutter world: tray, objects, physics, cup, observation and reward."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from milkrun.clutter.catalogue import LEAST, ObjectType, object_type
from milkrun.core.config import RuledConfig, option
from milkrun.core.errors import ConfigError

BOX_OBJECTS = ("004_sugar_box", "006_mustard_bottle", "008_pudding_box")
WEIGHTS = ("success", "disturb", "blocked", "drop", "lost", "time", "illegal", "clear")
BASE = 0.02  # m, the top of the tray's base
RIM = 0.02  # m, how thick its walls are
CUP_FAR, CUP_HIGH = 0.6, 0.8  # m, the least range in which a policy may move the cup
LONGEST = 2**15 - 1  # ticks of a stage, which are stored in 16 bits
FACTORS = (1e-6, 1e6)  # bounds of factors on masses, friction and suction; the engine refuses a mass near 0

REWARDS: dict[str, dict[str, float]] = {
    rule: {f"reward_{name}": number for name, number in zip(WEIGHTS, numbers, strict=True)}
    for rule, numbers in {
        "default": (1.0, 2.0, 0.25, 0.5, 1.0, 0.01, 0.5, 2.0),
        "published": (3.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 15.0),
    }.items()
}
"""The weights of each reward rule."""

_RANGE = (1.0, 1.0)
Place = tuple[float, float, float]
Range = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class ClutterConfig(RuledConfig):
    """Options of the clutter world. Lengths in m, masses in kg, forces in N, times in s."""

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "default": {},
        "large_scene": {"num_objects_per_type": 6, "max_episode_steps_discrete": 20},
        "small_scene": {"num_objects_per_type": 2, "max_episode_steps_discrete": 8},
        "loose_scene": {"tray_side": 0.55, "tray_wall": 0.12},
        "fast": {"timestep": 0.01, "substeps": 2},
    }
    rule_option: ClassVar[str] = "rewards"
    by_rule: ClassVar[Mapping[str, Mapping[str, Any]]] = REWARDS

    box_objects: tuple[str, ...] = option(BOX_OBJECTS, "types of objects, by the names of the catalogue")
    num_objects_per_type: int = option(4, "objects of each type", low=1, high=64)
    max_episode_steps_discrete: int = option(15, "attempts of an episode", low=1, high=10**4)
    max_ticks: int | None = option(
        None, "ticks until a row is truncated where a step is a tick; None = 250 an attempt", low=1, high=10**8
    )
    use_discrete_action: bool = option(True, "True: choose an object; False: move the cup (continuous)")
    step_mode: str = option("pick", "a step is a whole pick, or one tick of it", choices=("pick", "tick"))
    goal_thresh: float = option(0.03, "continuous: letting go this near to drop_pos banks the object", low=0, high=10)
    canonical: bool = option(True, "between picks a row is its fields and nothing else: saved rows go on to the bit")

    tray_side: float | None = option(
        None, "inner side of the tray; None = 0.18 + 0.01 an object, at least 1.15 of the longest", low=0.01, high=10
    )
    tray_wall: float | None = option(
        None, "height of its walls; None = 0.12 + 0.01 an object, at most 0.26", low=0.001, high=0.8
    )
    bank_size: int = option(256, "settled scenes to draw from", low=1, high=10**6)
    bank_seed: int = option(0, "seed of these scenes", low=0)
    augment: bool = option(True, "scenes are turned by quarters, and objects of a type exchanged")
    split: str = option(
        "train", "train: scenes drawn; test: 64 other scenes, one after the other", choices=("train", "test")
    )
    mass_range: Range = option(_RANGE, "factor on each mass, drawn uniformly")
    friction_range: Range = option(_RANGE, "factor on the friction of the objects of a row")
    suction_range: Range = option(_RANGE, "factor on the suction of a row")

    timestep: float = option(1 / 150, "of the physics", low=1e-4, high=0.05)
    substeps: int = option(3, "steps of the physics in a tick", low=1, high=100)
    iterations: int = option(8, "of the solver, at most", low=4, high=1000)
    ls_iterations: int = option(10, "of its line search, at most", low=1, high=1000)
    tolerance: float = option(1e-5, "at which it stops", low=0, high=1)
    sleep: bool = option(True, "objects at rest sleep, which saves their time")
    sleep_tolerance: float = option(0.02, "speed below which they do", low=0, high=10)
    joint_damping: float = option(0.005, "damping of the motion of objects", low=0, high=10)
    object_friction: float = option(0.6, "sliding friction of objects", low=0, high=10)
    tray_friction: float = option(1.0, "sliding friction of the tray; a contact has the larger one", low=0, high=10)
    rest_speed: float = option(0.02, "a pile is at rest below this speed, m/s", low=1e-6, high=10)
    rest_spin: float = option(0.3, "and below this spin, rad/s", low=1e-6, high=100)
    rest_ticks: int = option(2, "for so many ticks in a row", low=1, high=100)
    settle_max: int = option(60, "ticks after a lift that a pick waits for the pile at most", low=1, high=10**4)

    suction_force: float = option(40.0, "what the cup can hold", low=1e-6, high=1e9)
    max_tilt_cos: float = option(0.5, "a surface is gripped if its normal's z is at least this", low=0, high=1)
    weld_timeconst: float = option(0.02, "time constant of the cup's hold", low=1e-4, high=1)
    weld_torquescale: float = option(0.02, "how stiff it is in rotation: soft, as bellows are", low=0, high=1)
    lift_acc: float = option(8.0, "of the lift, m/s2", low=1e-3, high=100)
    lift_height: float = option(0.25, "of a lift at most", low=1e-3, high=10)
    clearance: float = option(0.01, "an object is out when it hangs this high over all others", low=0, high=10)
    approach: float = option(0.10, "the cup comes down from this high over the grip", low=1e-3, high=10)
    cup_speed: float = option(0.5, "of the free cup, m/s", low=1e-3, high=100)
    descend_speed: float = option(0.2, "of its last way down, m/s", low=1e-3, high=100)
    grip_ticks: int = option(5, "until the vacuum holds", low=1, high=1000)
    release_ticks: int = option(5, "until it lets go", low=1, high=1000)
    home_pos: Place = option((0.0, 0.0, 0.6), "where the cup starts")
    drop_pos: Place | None = option(None, "where objects are carried; None = (0, side/2 + 0.2, 0.45)")

    ray_samples: int = option(3, "rays a side of a face: how finely exposure is measured", low=1, high=20)
    blocked_cover: float = option(0.25, "an object covered to this share is blocked", low=0, high=1)
    maps: bool = option(False, "height and segmentation images are observed too")
    map_size: int = option(32, "pixels a side of these", low=1, high=512)

    rewards: str = option("default", "the order matters; published: 3 a success, 15 for all", choices=tuple(REWARDS))
    reward_success: float | None = option(None, "earned by a success: 1; published 3", low=-1e6, high=1e6)
    reward_disturb: float | None = option(None, "paid a metre that others moved: 2; published 0", low=-1e6, high=1e6)
    reward_blocked: float | None = option(None, "paid for taking a blocked object: 0.25; 0", low=-1e6, high=1e6)
    reward_drop: float | None = option(None, "paid for a drop: 0.5; published 0", low=-1e6, high=1e6)
    reward_lost: float | None = option(None, "paid for each object that left the tray: 1; 0", low=-1e6, high=1e6)
    reward_time: float | None = option(None, "paid a second: 0.01; published 0", low=-1e6, high=1e6)
    reward_illegal: float | None = option(None, "paid for an illegal action: 0.5; published 0", low=-1e6, high=1e6)
    reward_clear: float | None = option(None, "earned when all are out: 2; published 15", low=-1e6, high=1e6)

    def __post_init__(self) -> None:
        if self.box_objects is None:
            object.__setattr__(self, "box_objects", BOX_OBJECTS)
        super().__post_init__()

    def validate(self) -> None:
        super().validate()
        names = self.box_objects
        if not names or not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
            self._refuse("box_objects", "must name one type or more, each once")
        longest = max(max(t.size) for t in self.types)
        if self.side < 1.1 * longest:
            self._refuse("tray_side", f"must be at least 1.1 of the longest extent, {1.1 * longest:.4g}")
        for name in ("mass_range", "friction_range", "suction_range"):
            given = getattr(self, name)
            if len(given) != 2 or not all(map(_is_factor, given)) or given[0] > given[1]:
                self._refuse(name, f"must be two factors in {FACTORS[0]:g}..{FACTORS[1]:g}, the smaller first")
        if (least := min(t.least for t in self.types) * min(1.0, self.mass_range[0])) < LEAST:
            self._refuse(
                "mass_range",
                f"the smallest mass or moment of inertia would be {least:.3g}, and must be at least {LEAST:g}",
            )
        for name in ("home_pos", "drop_pos"):
            if (at := getattr(self, name)) is not None and (len(at) != 3 or not all(map(_is_number, at))):
                self._refuse(name, "must be three finite numbers")
        ways = [math.hypot(*place) for place in (self.home_pos, self.drop)]
        # m, an upper bound of the cup's way in a stage: between a place, a lift and a grip
        far = max(*ways, self.grip_far) + self.grip_far + self.rise + self.approach + 1
        ticks = {
            "cup_speed": far / (self.cup_speed * self.tick) + self.release_ticks + self.settle_max,
            "descend_speed": self.descend_ticks,
            "lift_acc": self.lift_ticks,
        }
        for name, most in ticks.items():
            if most > LONGEST:
                self._refuse(
                    name,
                    f"a stage would take up to {most:.6g} ticks of {self.tick:.3g} s, at most "
                    f"{LONGEST}: go faster, or take longer ticks or shorter ways",
                )
        if self.total_objects_per_env > 4096:
            self._refuse("num_objects_per_type", f"{self.total_objects_per_env} objects: at most 4096")
        if not self.use_discrete_action and self.step_mode == "tick":
            self._refuse("step_mode", "with use_discrete_action=False every step is a tick: leave it at 'pick'")
        if self.max_episode_steps_discrete < self.total_objects_per_env and self.use_discrete_action:
            warnings.warn(
                f"max_episode_steps_discrete = {self.max_episode_steps_discrete} attempts cannot clear a tray "
                f"of {self.total_objects_per_env} objects",
                stacklevel=5,
            )

    def _refuse(self, name: str, rule: str) -> None:
        raise ConfigError(f"ClutterConfig.{name} = {getattr(self, name)!r}: {rule}")

    @property
    def num_object_types(self) -> int:
        """Number of types."""
        return len(self.box_objects)

    @property
    def total_objects_per_env(self) -> int:
        """Number of objects of a row."""
        return len(self.box_objects) * self.num_objects_per_type

    @property
    def types(self) -> list[ObjectType]:
        """The type of each object of a row: all of the first type, then all of the second, ..."""
        return [object_type(name) for name in self.box_objects for _ in range(self.num_objects_per_type)]

    @property
    def side(self) -> float:
        """Inner side of the tray."""
        if self.tray_side is not None:
            return self.tray_side
        return max(0.18 + 0.01 * self.total_objects_per_env, 1.15 * max(max(t.size) for t in self.types))

    @property
    def wall(self) -> float:
        """Height of its walls."""
        return min(0.12 + 0.01 * self.total_objects_per_env, 0.26) if self.tray_wall is None else self.tray_wall

    @property
    def drop(self) -> Place:
        """The place to which objects are carried."""
        return (0.0, self.side / 2 + 0.2, 0.45) if self.drop_pos is None else self.drop_pos

    @property
    def tick(self) -> float:
        """Length of a tick in s."""
        return self.timestep * self.substeps

    @property
    def lift_ticks(self) -> int:
        """Longest lift in ticks."""
        return max(1, math.ceil(math.sqrt(2 * self.lift_height / self.lift_acc) / self.tick - 1e-9))

    @property
    def rise(self) -> float:
        """Highest lift: above `lift_height`, since the last tick is completed."""
        return self.lift_acc * (self.lift_ticks * self.tick) ** 2 / 2

    @property
    def descend_ticks(self) -> int:
        """Length of the descent in ticks."""
        return max(1, math.ceil(self.approach / (self.descend_speed * self.tick) - 1e-9))

    @property
    def grip_far(self) -> float:
        """Largest distance of a grip from the middle of the tray; higher objects are lost."""
        half = self.side / 2 + RIM
        return math.hypot(half, half, BASE + self.wall) + max(max(t.size) for t in self.types) + 0.25

    @property
    def cup_most(self) -> float:
        """The largest possible coordinate of the cup."""
        places = [abs(at) for place in (self.home_pos, self.drop) for at in place]
        return max(self.cup_far, self.cup_high, self.grip_far + max(self.rise, self.approach), *places)

    @property
    def cup_far(self) -> float:
        """Range of the cup along x and y: it covers the tray, home and the drop."""
        return max(CUP_FAR, self.side / 2, *(abs(at) for place in (self.home_pos, self.drop) for at in place[:2]))

    @property
    def cup_high(self) -> float:
        """Largest height of the cup."""
        return max(CUP_HIGH, self.home_pos[2], self.drop[2])

    @property
    def tick_limit(self) -> int:
        """Ticks until a row is truncated, if a step is a tick."""
        return 250 * self.max_episode_steps_discrete if self.max_ticks is None else self.max_ticks


def _is_factor(x: Any) -> bool:
    return _is_number(x) and FACTORS[0] <= x <= FACTORS[1]


def _is_number(x: Any) -> bool:
    return isinstance(x, (int, float)) and not isinstance(x, bool) and math.isfinite(x)
