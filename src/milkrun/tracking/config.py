"""The options of the tracking world: drone and camera, town and traffic, start, ends, rewards, what is observed.

The names of DAT's configuration file are synonyms, so its "Benchmark" section is accepted unchanged.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from milkrun.core.config import Config, option
from milkrun.core.errors import ConfigError, did_you_mean, shown
from milkrun.tracking.files import BENCHMARK, Source, read_section
from milkrun.tracking.tables import KINDS, SCENES, WEATHERS

SIM_HZ = 500
"""Sim steps a second."""
FULL_SPEED = (40.0, 40.0, 5.0, 2.0)
"""vx, vy, vz in m/s and wz in rad/s of a velocity action of 1."""
REWARDS = ("default", "E2E", "D-VAT")
REASONS = (
    "",
    "crash",
    "height",
    "drift",
    "speed",
    "yaw_rate",
    "attitude",
    "lost",
    "nan",
    "range",
    "time",
    "target_gone",
    "link_lost",
)
"""Why an episode ended, by the code in the field `reason`."""
CURRICULUM = ("straight_mono", "straight", "full")

Range = tuple[float, float]
Names = tuple[str, ...]

_RANGES = {
    "start_pitch": (0.5, 1.5),
    "start_height": (0.5, 1000.0),
    "start_direction": (-100.0, 100.0),
    "start_long": (0.0, 1000.0),
    "start_lat": (0.0, 1000.0),
    "done_height": (-1000.0, 1e6),
    "lidar_range": (0.0, 1e6),
    "fog_sight": (1.0, 1e6),
}
"""Options of two numbers, the smaller first, and their bounds."""
_PAIRS = {"wind_mean": 100.0, "end_reward_list": 1e6}
"""Options of two numbers in any order, and the bound of their size."""


@dataclass(frozen=True, kw_only=True)
class TrackingConfig(Config):
    """Options of the tracking world. Lengths in m, angles in rad, times in s, speeds in m/s."""

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "dat": {},
        "dat_repo": {
            "start_pitch": (1.37, 1.37),
            "start_height": (22.0, 22.0),
            "start_direction": (0.0, 0.0),
            "start_long": (0.0, 0.0),
            "start_lat": (0.0, 0.0),
            "reward_mode": "discrete",
            "view_range": 1.0,
            "no_reward_done": 10000,
        },
        "published": {"reward": "D-VAT", "reward_params": True, "verbose": True},
        "dvat": {
            "reward": "D-VAT",
            "constants": "as_published",
            "critic": True,
            "frame_stack": 3,
            "action_mode": "velocity",
        },
        "aot": {"reward": "E2E"},
        "straight_mono": {"curriculum": "straight_mono"},
        "straight": {"curriculum": "straight"},
    }
    synonyms: ClassVar[Mapping[str, str]] = {
        "Action_dim": "action_dim",
        "State_size": "size",
        "State_channel": "channels",
        "Norm_Type": "norm",
        "Need_render": "need_render",
        "Forward_Speed": "forward",
        "Backward_Speed": "backward",
        "Left_Speed": "left",
        "Right_Speed": "right",
        "CW_omega": "cw",
        "CCW_omega": "ccw",
        "Control_Frequence": "control_hz",
        "RewardType": "reward",
        "Other_State": "other_state",
        "CloudPoint": "cloud",
        "RewardParams": "reward_params",
        "port_process": "port",
    }
    ignored: ClassVar[tuple[str, ...]] = ()
    """Keys of a simulator's file (`load_env_config`) that have no meaning here."""

    action_dim: int = option(7, "7 actions, or 6: without stop", choices=(6, 7))
    action_mode: str = option(
        "discrete",
        "or velocity: Box(-1, 1, (4,)) times (40, 40, 5, 2) = vx, vy, vz, wz",
        choices=("discrete", "velocity"),
    )
    forward: float = option(40.0, "speed of action 0", low=0, high=100)
    backward: float = option(-40.0, "speed of action 1, not above 0", low=-100, high=0)
    left: float = option(40.0, "speed of action 2", low=0, high=100)
    right: float = option(-40.0, "speed of action 3, not above 0", low=-100, high=0)
    cw: float = option(2.0, "turn of action 5, clockwise seen from above, rad/s", low=0, high=6)
    ccw: float = option(-2.0, "turn of action 4, counter-clockwise: not above 0", low=-6, high=0)
    control_hz: int = option(125, "agent steps a second: a divisor of 500", low=1, high=SIM_HZ)
    filter_hz: float = option(20.0, "of the Butterworth filter on the commands; 0 = off", low=0, high=249)
    filter_design: str = option(
        "bilinear",
        "as_coded: DAT's, whose -3 dB point is at 39.2 Hz instead of 20",
        choices=("bilinear", "as_coded"),
    )
    wind_mean: Range = option((0.0, 0.0), "mean wind along x and y")
    wind_sigma: float = option(0.0, "standard deviation of gusts; 0 = none", low=0, high=100)
    wind_tau: float = option(2.0, "time constant of gusts", low=0.01, high=1e4)

    size: int = option(84, "pixels a side of the image", low=16, high=512)
    channels: int = option(3, "3: RGB; 1: grey", choices=(1, 3))
    norm: int | None = option(0, "of DAT's classes: 0: /255; 1: (v-128)/128; None: uint8", choices=(0, 1))
    need_render: int = option(0, "of DAT's LunarLander only", choices=(0, 1))
    camera_px: tuple[int, int] = option((320, 240), "the virtual sensor, whose view is sampled at size x size")
    hfov: float = option(0.785398, "its horizontal field of view", low=0.05, high=2.5)
    near: float = option(0.01, "nearest view depth that is drawn", low=1e-4, high=1)
    supersample: int = option(1, "2: mean of 2x2 samples a pixel, in about three times the time", choices=(1, 2))
    details: bool = option(True, "windows, wall seams, car shadows, headlights")
    noise: bool = option(True, "camera noise, and flakes in snow")
    frame_stack: int = option(0, "H > 0: the last H images are observed, oldest first", low=0, high=16)
    other_state: bool = option(False, "the drone's own motion (19 numbers) is observed with the image")
    cloud: bool = option(False, "a horizontal lidar sweep is observed with the image")
    reward_params: bool = option(False, "60 numbers, the target's place among them, are observed with the image")
    critic: bool = option(False, "the target in the drone's frame (9 numbers) is observed with the image")
    lidar_points: int = option(400, "points of a sweep", low=1, high=3600)
    lidar_range: Range = option((0.2, 16.0), "distances that are returned")

    scene: str | Names | None = option("citystreet", f"{', '.join(SCENES)}, or several to draw from; None = citystreet")
    weather: str | Names | None = option("day", f"{', '.join(WEATHERS)}, or several to draw from; None = day")
    fog_sight: Range | None = option(None, "visibility in fog; None = 100 to 300 m")
    town: str = option(
        "episode",
        "a new town each episode, one a row, or the same fixed one for all rows",
        choices=("episode", "row", "fixed"),
    )
    town_seed: int = option(0, "seed of a fixed town", low=0)
    curriculum: str | None = option(
        None,
        "straight_mono: one red car on a straight road; straight: seven of any colour; full, None: the town",
        choices=CURRICULUM,
    )
    max_vehicles: int = option(16, "cars at most, the target among them", low=1, high=64)
    target_kinds: Names | None = option(None, f"kinds of the target: {', '.join(KINDS)}; None = as all cars")
    target_rgb: tuple[int, int, int] | None = option(None, "colour of the target; None = drawn")
    max_car_speed: float | None = option(
        None, "limit on the desired speeds of cars; None = as the scene has it", low=0.5, high=100
    )
    same_colour: float = option(0.1, "chance that another car has the target's colour", low=0, high=1)
    halt_rate: float = option(0.1, "halts of the target a second", low=0, high=10)
    ground_cell: float = option(0.5, "side of a cell of the ground", low=0.25, high=10)
    half_extent: float = option(120.0, "half the side of the map", low=120, high=400)
    max_boxes: int = option(168, "static boxes at most", low=1, high=2000)
    palette_jitter: float = option(0.15, "how much the colours of the ground vary", low=0, high=1)

    start_pitch: Range = option((0.6, 1.38), "pitch of the camera, downwards, drawn once an episode")
    start_height: Range = option((13.0, 22.0), "height at the start")
    start_direction: Range = option((-math.pi, math.pi), "yaw of the drone against the target's heading at the start")
    start_long: Range = option((2.5, 4.5), "how far before or behind its aim the target is at the start")
    start_lat: Range = option((2.5, 4.5), "how far aside of it")

    max_sim_steps: int = option(1500, "sim steps until a row is truncated", low=1, high=10**7)
    init_no_done: int = option(100, "sim steps before any end but a crash and the time limit", low=0, high=10**7)
    no_reward_done: int = option(
        100, "sim steps in a row without reward after which the target is lost", low=0, high=10**7
    )
    done_height: Range = option((2.0, 50.0), "heights that may be flown")
    done_drift: float = option(50.0, "how far wind may carry the drone from where it was commanded", low=0, high=1e9)
    done_speed: float = option(10000.0, "speed that ends an episode", low=0, high=1e9)
    done_yaw_rate: float = option(6.283, "turn that ends an episode, rad/s", low=0, high=1e9)
    done_roll: float = option(
        1.22, "roll that ends an episode; of linked simulators: here drones are level", low=0, high=math.pi
    )
    done_pitch: float = option(1.22, "pitch of the drone, likewise", low=0, high=math.pi)

    reward: str = option(
        "default",
        "default: the target in the middle of the window; E2E; D-VAT (also DVAT)",
        choices=REWARDS,
        words=("DVAT",),
    )
    reward_mode: str = option(
        "continuous",
        "of the default reward: falls with the distance from the middle, or 0 and 1",
        choices=("continuous", "discrete"),
    )
    reward_kind: str = option(
        "view", "of the default reward: by the window on the ground, or by metres", choices=("view", "distance")
    )
    view_range: float = option(0.7, "share of the picture that is the window", low=0.01, high=1)
    view_scale: float = option(4.0, "steepness of r_c", low=1e-6, high=1e6)
    cut_off: float = option(0.001, "r_c up to which the target counts as out of the window", low=0, high=1)
    distance_range: float = option(7.0, "of reward_kind distance: m within which it pays", low=0, high=1e6)
    distance_scale: float = option(0.01, "of reward_kind distance: how fast it falls", low=0, high=1e6)
    constants: str = option(
        "as_coded",
        "E2E and D-VAT as their code has them, or as_published in their papers",
        choices=("as_coded", "as_published"),
    )
    reward_scale: float = option(1.0, "factor on every reward but end_reward", low=-1e6, high=1e6)
    occlusion: str = option(
        "ignore", "zero: r_c and r_d are 0 while a static box hides the target", choices=("ignore", "zero")
    )
    end_reward: bool = option(False, "the default reward adds one of end_reward_list on the last step")
    end_reward_list: Range = option((-20.0, 20.0), "added if the last reward is not above 0, and if it is")

    verbose: bool = option(False, "of DAT's classes: a line of log a step")
    log_dir: str = option("milkrun_logs", "of DAT's classes: the folder of these logs")

    link: str | None = option(
        None,
        "of DAT's classes: tcp or tcp://host:port/group, a simulator that runs elsewhere; None: in this process",
    )
    port: int = option(33727, "of the link, where `link` names none; 0: a free one", low=0, high=65535)
    auto_start: bool = option(False, "of the link: a simulator is started, and ended with the environments")
    delay: float = option(20.0, "of the link: the longest wait for anything, s", low=0.1, high=86400)
    barrier: bool = option(True, "of the link: the environments of a group move together")
    token_file: str | None = option(None, "of the link: the file with the secret of both sides")
    max_restarts: int = option(3, "of the link: restarts a minute of a simulator that died", low=0, high=1000)

    def __post_init__(self) -> None:
        if isinstance(self.reward, str) and self.reward == "DVAT":
            object.__setattr__(self, "reward", "D-VAT")
        super().__post_init__()

    @classmethod
    def from_dat(cls, source: Source = None) -> TrackingConfig:
        """Reads a file of the benchmark DAT: its path, contents, or section "Benchmark"; None: the packaged one."""
        return read_section(cls, source, BENCHMARK)

    def replace(self, **changes: Any) -> TrackingConfig:
        made = super().replace(**changes)
        object.__setattr__(made, "ignored", self.ignored)
        return made

    def validate(self) -> None:
        for name, (low, high) in _RANGES.items():
            given = getattr(self, name)
            if given is None:
                continue
            if len(given) != 2 or not all(map(_is_number, given)) or not low <= given[0] <= given[1] <= high:
                self._refuse(name, f"must be two numbers within {low:g}..{high:g}, the smaller first")
        for name, most in _PAIRS.items():
            given = getattr(self, name)
            if len(given) != 2 or not all(map(_is_number, given)) or max(map(abs, given)) > most:
                self._refuse(name, f"must be two numbers within +-{most:g}")
        if SIM_HZ % self.control_hz:
            self._refuse("control_hz", f"must be a divisor of {SIM_HZ}")
        if len(self.camera_px) != 2 or not all(_is_whole(n) and 1 <= n <= 10**5 for n in self.camera_px):
            self._refuse("camera_px", "must be two whole numbers, 1..100000")
        if self.target_rgb is not None:
            if len(self.target_rgb) != 3 or not all(_is_whole(n) and 0 <= n <= 255 for n in self.target_rgb):
                self._refuse("target_rgb", "must be three whole numbers, 0..255")
        self._check_names("scene", self.scene, SCENES)
        self._check_names("weather", self.weather, WEATHERS)
        self._check_names("target_kinds", self.target_kinds, KINDS)
        if math.tan(self.start_pitch[0]) <= self.tan_v:
            self._refuse(
                "start_pitch",
                f"the picture would reach the horizon: tan(pitch) must be above half of its height, {self.tan_v:.4g}",
            )
        if self.cells > 2000:
            self._refuse("ground_cell", f"{self.cells} cells a side: at most 2000")
        if self.end_reward and self.reward != "default":
            warnings.warn(
                f"end_reward = True changes nothing with reward = {self.reward!r}: only the reward 'default' "
                "adds one of end_reward_list on the last step",
                stacklevel=5,
            )

    def _check_names(self, name: str, given: str | Names | None, known: tuple[str, ...]) -> None:
        names = () if given is None else (given,) if isinstance(given, str) else given
        if given is not None and not names:
            self._refuse(name, f"must name one or more of {', '.join(known)}")
        for one in names:
            if not isinstance(one, str) or one not in known:
                raise ConfigError(
                    f"TrackingConfig.{name} = {shown(given)}: must be of {', '.join(known)}"
                    f"{did_you_mean(str(one), known, listed=True)}"
                )
        if len(set(names)) < len(names):
            self._refuse(name, "names one twice")

    def _refuse(self, name: str, rule: str) -> None:
        raise ConfigError(f"TrackingConfig.{name} = {getattr(self, name)!r}: {rule}")

    # -- derived values ---------------------------------------------------------------------------------------

    @property
    def scenes(self) -> Names:
        """The scenes that may be drawn."""
        return ("citystreet",) if self.scene is None else _names(self.scene)

    @property
    def weathers(self) -> Names:
        """The weathers that may be drawn."""
        return ("day",) if self.weather is None else _names(self.weather)

    @property
    def stage(self) -> int:
        """The curriculum's stage: 0 straight_mono, 1 straight, 2 the whole town."""
        return CURRICULUM.index(self.curriculum or "full")

    @property
    def tan_h(self) -> float:
        """Half the width of the picture at view depth 1."""
        return math.tan(self.hfov / 2)

    @property
    def tan_v(self) -> float:
        """Half its height."""
        return self.tan_h * self.camera_px[1] / self.camera_px[0]

    @property
    def n_sub(self) -> int:
        """Sim steps of an agent step."""
        return SIM_HZ // self.control_hz

    @property
    def max_agent_steps(self) -> int:
        """Agent steps of an episode that reaches the time limit."""
        return -(-self.max_sim_steps // self.n_sub)

    @property
    def cells(self) -> int:
        """Cells a side of the ground."""
        return round(2 * self.half_extent / self.ground_cell)

    @property
    def moves(self) -> tuple[tuple[float, float, float, float], ...]:
        """The commands of the actions: vx, vy, vz in m/s, wz in rad/s, counter-clockwise positive. The last is stop."""
        return (
            (self.forward, 0, 0, 0),
            (self.backward, 0, 0, 0),
            (0, self.left, 0, 0),
            (0, self.right, 0, 0),
            (0, 0, 0, -self.ccw),
            (0, 0, 0, -self.cw),
            (0, 0, 0, 0),
        )

    def filter_numbers(self) -> tuple[float, float, float]:
        """b0, a1, a2 of the Butterworth filter; b0 = 0: there is none."""
        if self.filter_hz == 0:
            return 0.0, 0.0, 0.0
        coded = self.filter_design == "as_coded"
        # The bilinear transform has k = tan(pi f / F). DAT's k = 2 pi f / F cuts at atan(k) F / pi instead, which is
        # 39.2 Hz for 20.
        k = 2 * math.pi * self.filter_hz / SIM_HZ if coded else math.tan(math.pi * self.filter_hz / SIM_HZ)
        d = k * k + math.sqrt(2) * k + 1
        return k * k / d, 2 * (k * k - 1) / d, (k * k - math.sqrt(2) * k + 1) / d


def curriculum_stages(config: TrackingConfig) -> tuple[TrackingConfig, ...]:
    """The configurations of a curriculum, in its order: one car on a straight road, several, the whole town."""
    return tuple(config.replace(curriculum=stage) for stage in CURRICULUM)


def _names(given: str | Names) -> Names:
    return (given,) if isinstance(given, str) else tuple(given)


def _is_number(x: Any) -> bool:
    return isinstance(x, (int, float)) and not isinstance(x, bool) and math.isfinite(x)


def _is_whole(x: Any) -> bool:
    return isinstance(x, int) and not isinstance(x, bool)
