"""Drone visual tracking: a camera drone keeps a car of city traffic in the middle of its picture.

Observations: `image` (C, S, S) uint8 RGB or grey, channel first, rendered on demand; with `frame_stack` instead
    `frames` (H, C, S, S), oldest first. Optional: `other_state`, `cloud`, `reward_params`, `critic`.
Actions: Discrete(7): forward, backward, left, right, turn left (counter-clockwise), turn right, stop. With
    `action_mode="velocity"` the class is `TrackingVelocity`: Box(4), speeds along the drone's axes and its turn.
Mask: all True. An action out of range flies as stop and is flagged; time runs on.
Ends: terminated by a crash, by leaving the limits of flight, by losing the target; truncated by `max_sim_steps`,
    `max_steps`, or when the target drives off the map.
Reward: how near the target is to the middle of the window that the picture shows of the ground; or E2E, or D-VAT.
References: DAT (Sun et al., "Open-world drone active tracking with goal-centered rewards", 2024), whose benchmark this
    world follows; D-VAT (Dionigi et al., RA-L 2024); end-to-end active tracking (Luo et al., ICML 2018); the
    intelligent driver model (Treiber, Hennecke and Helbing, Phys. Rev. E 62, 2000).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import NormalDist
from typing import Any, ClassVar

import numpy as np

from milkrun.core.actions import box, discrete
from milkrun.core.errors import ConfigError
from milkrun.core.fields import (
    Role,
    bool_,
    constant,
    float32,
    float64,
    instance,
    int8,
    int16,
    int32,
    int64,
    mask,
    scratch,
    state,
    uint8,
    view,
)
from milkrun.core.references import resolve
from milkrun.core.world import World
from milkrun.render.scene import Scene
from milkrun.tracking import tables
from milkrun.tracking.config import REASONS, REWARDS, TrackingConfig
from milkrun.tracking.flight import idle, step, step_velocity
from milkrun.tracking.generator.town import generate
from milkrun.tracking.instances import arrange_towns, check_towns
from milkrun.tracking.observations import observe
from milkrun.tracking.start import reset
from milkrun.tracking.states import FAULTS, fault
from milkrun.tracking.traffic import MOST_HALTS

NODES, EDGES, WAYS = 64, 160, 6
PARAMS, OTHER, CRITIC = 60, 19, 9
QUANTILES = np.array([NormalDist().inv_cdf((k + 0.5) / 256) for k in range(256)])
"""Quantiles of the standard normal distribution, from which camera noise is drawn."""

# Bounds far beyond any play. Given towns and loaded states must keep within them, so that nothing overflows.
TOWN_REACH, REACH, LARGE = 1e6, 1e8, 1e12
"""m: places in a town, places of a drone; and any other number."""

MOVES = ("forward", "backward", "left", "right", "turn left", "turn right", "stop")


class Tracking(World):
    """A drone, a town and its traffic a row."""

    id = "milkrun/Tracking-v0"
    Config = TrackingConfig
    action: ClassVar[Any] = discrete("A")
    parallel_from = 4
    demo_rows = 128
    policies = {name: f"milkrun.solvers.tracking:{name}" for name in ("servo", "blob", "stay")}
    figure_fields = ("CR", "TSR", "reason")
    faults = FAULTS
    figure = "milkrun.replay.tracking:figure_of_views"
    run_details = "milkrun.cli.details:TRACKING"

    # The town.
    scene_id = instance(int8, low=0, high=5, observed=False, doc="number of the scene")
    town_key = instance(int64, 3, low=-1, hidden=True, doc="the key that the town was drawn with; -1: it was given")
    n_box = instance(int64, low=0, high="K", observed=False, doc="static boxes")
    box_pos = instance(float64, "K", 3, low=-TOWN_REACH, high=TOWN_REACH, observed=False, doc="their centres")
    box_half = instance(float64, "K", 3, low=0, high=TOWN_REACH, observed=False, doc="their half sizes")
    box_yaw = instance(float64, "K", low=-TOWN_REACH, high=TOWN_REACH, observed=False, doc="their yaw")
    box_cs = instance(float64, "K", 2, low=-1.000001, high=1.000001, observed=False, doc="its cosine and sine")
    box_rgb = instance(uint8, "K", 2, 3, observed=False, doc="colour of their walls, and of their top")
    box_kind = instance(
        int8,
        "K",
        low=0,
        high=8,
        observed=False,
        doc="1 building, 2 trunk, 3 crown, 4 rock, 5 overpass, 6 roof, 7 boat, 8 other",
    )
    tallest = instance(float64, low=0, high=2 * TOWN_REACH, observed=False, doc="highest top of a box")
    ground = instance(
        uint8,
        "G",
        "G",
        observed=False,
        doc="cells, y first: bits 0-3 material, 4-5 shade, 6 in a shadow, 7 lit by a lamp",
    )
    n_node = instance(int64, low=0, high="N", observed=False, doc="road nodes")
    node_xy = instance(float64, "N", 2, low=-TOWN_REACH, high=TOWN_REACH, observed=False, doc="where they are")
    guarded = instance(bool_, "N", observed=False, doc="junctions that one car at a time may pass")
    n_edge = instance(int64, low=0, high="E", observed=False, doc="directed edges; 2k and 2k+1 are the ways of a road")
    edge = instance(int16, "E", 2, index="N", observed=False, doc="from node, to node")
    edge_len = instance(float64, "E", low=0, observed=False, doc="length")
    edge_dir = instance(float64, "E", 2, low=-1.000001, high=1.000001, observed=False, doc="unit direction")
    edge_cut = instance(float64, "E", 2, low=0, observed=False, doc="how much of either end belongs to the junction")
    edge_ways = instance(int8, "E", low=0, high=WAYS, observed=False, doc="edges that may follow")
    edge_next = instance(int16, "E", WAYS, index="E", observed=False, doc="which these are")
    road_half = instance(float64, low=0, high=1e3, observed=False, doc="half width of the roads")

    # What an episode draws.
    weather_id = state(int8, low=0, high=3, observed=False, doc="day, night, foggy, snow")
    light = state(
        float64,
        8,
        low=-1e6,
        high=1e6,
        observed=False,
        doc="gain, ambient, sun xyz, fog beta, noise sigma, share of flakes",
    )
    sky = state(uint8, 3, observed=False, doc="colour of sky and fog")
    palette = state(uint8, 16, 3, observed=False, doc="colours of the materials, snow on them included")
    pitch = state(float64, low=0, high=1.6, observed=False, doc="of the camera, downwards")
    start = state(
        float64,
        4,
        low=-LARGE,
        high=LARGE,
        observed=False,
        doc="height, direction, bias ahead and aside that were drawn",
    )
    n_veh = state(int64, low=0, high="V", observed=False, doc="vehicles; number 0 is the target")
    veh_kind = state(int8, "V", low=0, high=7, observed=False, doc="their kinds")
    veh_rgb = state(uint8, "V", 3, observed=False, doc="their colours")
    veh_v0 = state(float64, "V", low=0, high=1e3, observed=False, doc="their desired speeds")
    veh_on = state(bool_, "V", observed=False, doc="False: it has driven off the map, or found no place")

    # The drone.
    pos = state(float64, 3, low=-REACH, high=REACH, observed=False, doc="place of the drone")
    yaw = state(float64, low=-math.pi, high=math.pi, observed=False, doc="its yaw, in (-pi, pi]")
    vel = state(float64, 3, low=-LARGE, high=LARGE, observed=False, doc="its velocity, world axes")
    acc = state(float64, 3, low=-LARGE, high=LARGE, observed=False, doc="its acceleration, world axes, without gravity")
    yaw_rate = state(float64, low=-LARGE, high=LARGE, observed=False, doc="its turn, rad/s")
    roll = state(
        float64,
        low=-LARGE,
        high=LARGE,
        hidden=True,
        doc="of the camera about its axis: 0 in play, for pictures of other poses",
    )
    cmd = state(
        float64,
        4,
        low=-LARGE,
        high=LARGE,
        observed=False,
        doc="command of this step: vx, vy, vz, wz in the drone's axes",
    )
    cmd_pos = state(
        float64, 3, low=-REACH, high=REACH, observed=False, doc="where the commands alone would have led it"
    )
    filt = state(
        float64, 4, 4, low=-LARGE, high=LARGE, observed=False, doc="filter memory of each command: x1, x2, y1, y2"
    )
    wind = state(float64, 2, low=-LARGE, high=LARGE, observed=False, doc="gust velocity")

    # The traffic.
    veh_edge = state(int16, "V", index="E", observed=False, doc="edge that it drives on")
    veh_to = state(int16, "V", index="E", observed=False, doc="edge that it takes next")
    veh_turning = state(bool_, "V", observed=False, doc="it is on the curve between them")
    veh_s = state(
        float64,
        "V",
        low=0,
        high=4 * TOWN_REACH,
        observed=False,
        doc="metres on the straight part, or share of the curve",
    )
    veh_v = state(float64, "V", low=0, high=1e3, observed=False, doc="speed")
    veh_curve = state(float64, "V", low=0, high=4 * TOWN_REACH, observed=False, doc="length of its next curve")
    veh_pose = state(float64, "V", 3, low=-4 * TOWN_REACH, high=4 * TOWN_REACH, observed=False, doc="x, y, heading")
    veh_rate = state(float64, low=-LARGE, high=LARGE, observed=False, doc="yaw rate of the target")
    veh_draws = state(int32, "V", low=0, high=10**9, observed=False, doc="turns drawn")
    node_owner = state(
        int8, "N", low=-1, high="last vehicle", observed=False, doc="vehicle that holds a junction; -1: none"
    )
    halts = state(int32, low=0, high=MOST_HALTS, observed=False, doc="halts of the target so far")
    next_halt = state(float64, low=0, high=LARGE, observed=False, doc="time of the next")
    halt_left = state(float64, low=0, high=10, observed=False, doc="seconds left of this one")

    # What the reward and the ends need.
    rel = state(
        float64,
        9,
        low=-LARGE,
        high=LARGE,
        observed=False,
        doc="the target in the drone's frame; its velocity and acceleration there",
    )
    d_ref = state(float64, low=-LARGE, high=LARGE, observed=False, doc="distance that E2E and D-VAT hold")
    sim_step = state(int32, low=0, observed=False, doc="sim steps")
    agent_step = state(int32, low=0, observed=False, doc="agent steps")
    lost_steps = state(int32, low=0, observed=False, doc="sim steps in a row without the target in the window")
    crash = state(bool_, observed=False, doc="the drone touches something")
    cr_sum = state(float64, low=0, observed=False, doc="sum of r_c")
    tsr_sum = state(float64, low=0, observed=False, doc="sum of r_d")
    past = state(
        float64,
        "H",
        "P",
        low=-REACH,
        high=REACH,
        observed=False,
        doc="of the last steps pos, yaw, agent step; of vehicles x, y, heading, presence",
    )

    reward_exact = view(float64, doc="the reward before it is rounded")
    r_c = view(float64, low=0, high=1, in_info=True, doc="how near the target is to the middle of the window")
    r_d = view(float64, low=0, high=1, in_info=True, doc="1: the target is in the window")
    gauge = view(float64, low=0, in_info=True, doc="by how much the window must grow to reach the target")
    visible = view(bool_, in_info=True, doc="the target is in the picture and no static box hides it")
    CR = view(float64, low=0, doc="sum of r_c of the episode so far")
    TSR = view(float64, low=0, high=1, doc="steps with the target in the window, a share of a whole episode")
    reason = view(int8, low=0, high=12, doc="why the episode ended, 0 while it lasts")
    target_kind = view(int8, low=0, high=7, doc="kind of the target")
    image = view(uint8, "C", "side", "side", low=0, high=255, primary=True, on_demand=True, doc="the camera's picture")
    frames = view(
        uint8, "H", "C", "S", "S", low=0, high=255, primary=True, on_demand=True, doc="the last pictures, oldest first"
    )
    other_state = view(
        float64,
        "other",
        observed=True,
        on_demand=True,
        doc="pos, vel, acc, angular velocity, quaternion wxyz, roll, pitch, yaw",
    )
    cloud = view(float32, "L5", observed=True, on_demand=True, doc="lidar points: x, y, z, layer, time; 0: no hit")
    reward_params = view(float64, "params60", observed=True, doc="camera, target and their relation")
    critic = view(float64, "critic9", observed=True, doc="the target in the drone's frame: place, speed, acceleration")
    action_mask = mask("A", doc="True = allowed")

    # Work spaces of a thread.
    line_at = scratch(float64, 2, 16)
    lake = scratch(float64, 2)
    footprint = scratch(float64, 7)
    poly_x = scratch(float64, 24)
    poly_y = scratch(float64, 24)
    hull_x = scratch(float64, 24)
    hull_y = scratch(float64, 24)
    push = scratch(float64, "V")
    along = scratch(float64, "V")
    half_len = scratch(float64, "V")
    first_on = scratch(int16, "E")
    next_on = scratch(int16, "V")
    params = scratch(float64, PARAMS)
    cam = scratch(float64, 12)
    corner = scratch(float64, 24, 3)
    clipped = scratch(float64, 24, 3)
    depth_inv = scratch(float32, "F", "F")
    ids = scratch(int16, "F", "F")
    lit = scratch(float32, "faces", 3)
    ground_lit = scratch(float32, 256, 3)
    line = scratch(float32, 3, "F")
    fine = scratch(float32, 3, "S")
    grain = scratch(float32, "S")
    axes = scratch(float64, 3, 3)
    paint = scratch(float64, 2, 3)
    cars = scratch(float64, "V", 4)
    ray = scratch(float64, 2, 3)
    spots = scratch(int32, 2, "F")
    panes = scratch(float64, 2, "F")
    left = scratch(float64, "F")
    right = scratch(float64, "F")
    words = scratch(np.uint32, "noise words")
    noise_of = scratch(float32, 256)
    targets = scratch(float64, "K+V", 6)

    # Options that kernels read, and values derived from them.
    town_mode = constant(int64)
    town_seed = constant(int64)
    stage = constant(int64)
    n_scenes = constant(int64)
    scene_list = constant(int64, 6)
    n_weathers = constant(int64)
    weather_list = constant(int64, 4)
    n_kinds = constant(int64)
    kind_list = constant(int64, 8)
    fixed_rgb = constant(int64)
    target_rgb = constant(float64, 3)
    n_sub = constant(int64)
    init_no_done = constant(int64)
    no_reward_done = constant(int64)
    max_sim_steps = constant(int64)
    reward_type = constant(int64)
    pays_discrete = constant(int64)
    pays_distance = constant(int64)
    as_published = constant(int64)
    hides = constant(int64)
    pays_end = constant(int64)
    details = constant(int64)
    noise = constant(int64)
    supersample = constant(int64)
    grey = constant(int64)
    cell = constant(float64)
    extent = constant(float64)
    jitter = constant(float64)
    near = constant(float64)
    hfov = constant(float64)
    tan_h = constant(float64)
    tan_v = constant(float64)
    cam_width = constant(float64)
    cam_height = constant(float64)
    b0 = constant(float64)
    a1 = constant(float64)
    a2 = constant(float64)
    wind_sigma = constant(float64)
    wind_tau = constant(float64)
    wind_mean = constant(float64, 2)
    start_pitch = constant(float64, 2)
    start_height = constant(float64, 2)
    start_direction = constant(float64, 2)
    start_long = constant(float64, 2)
    start_lat = constant(float64, 2)
    done_height = constant(float64, 2)
    done_drift = constant(float64)
    done_speed = constant(float64)
    done_yaw_rate = constant(float64)
    view_range = constant(float64)
    view_scale = constant(float64)
    cut_off = constant(float64)
    distance_range = constant(float64)
    distance_scale = constant(float64)
    reward_scale = constant(float64)
    end_reward_list = constant(float64, 2)
    most_steps = constant(float64)
    same_colour = constant(float64)
    halt_rate = constant(float64)
    lidar_range = constant(float64, 2)
    moves = constant(float64, 7, 4)
    # Tables.
    columns = constant(float64, "F")
    kinds = constant(float64, 8, 5)
    kind_weights = constant(float64, 6, 8)
    car_colours = constant(float64, 10, 3)
    tones = constant(float64, len(tables.TONES_OF_BOXES), 3)
    materials = constant(float64, 16, 3)
    bases = constant(float64, 6, 3)
    scenes = constant(float64, 6, tables.SCENE_LAWS.shape[1])
    box_laws = constant(float64, *tables.BOX_LAWS.shape)
    things = constant(float64, *tables.THINGS_BUILT.shape)
    weathers = constant(float64, 4, tables.WEATHER_LAWS.shape[1])
    quantiles = constant(float64, 256)
    lamps = constant(float64, 2, 3)

    def __init__(self, num_envs: int = 1, config: Any = None, **keywords: Any) -> None:
        if isinstance(config, TrackingConfig) and (config.link is not None or config.auto_start):
            given = f"link = {config.link!r}" if config.link is not None else "auto_start = True"
            raise ConfigError(
                f"TrackingConfig.{given}: a world plays in this process; environments whose simulator is "
                "elsewhere are made by milkrun.compat.dat (GE, general_env, BenchEnv_Multi)"
            )
        super().__init__(num_envs, config, **keywords)

    @classmethod
    def variant(cls, config: TrackingConfig) -> Any:
        return cls if config.action_mode == "discrete" else TrackingVelocity

    @classmethod
    def size_of(cls, config: TrackingConfig) -> dict[str, int]:
        k, v, h, size = config.max_boxes, config.max_vehicles, config.frame_stack, config.size
        # A box has six faces and eight numbers: its number is face >> 3, the side face & 7 (`faces`, `ids`).
        return {
            "A": config.action_dim if config.action_mode == "discrete" else 0,
            "K": k,
            "V": v,
            "N": NODES,
            "E": EDGES,
            "G": config.cells,
            "C": config.channels,
            "S": size,
            "side": 0 if h else size,
            "H": h,
            "P": 5 + 4 * v,
            "F": size * config.supersample,
            "faces": 8 * (k + 2 * v),
            "last vehicle": v - 1,
            "K+V": k + v,
            "noise words": 4 * size * (-(-size // 16)),
            "other": OTHER if config.other_state else 0,
            "L5": 5 * config.lidar_points if config.cloud else 0,
            "params60": PARAMS if config.reward_params else 0,
            "critic9": CRITIC if config.critic else 0,
        }

    def constants(self) -> dict[str, Any]:
        c = self.config
        scenes, weathers = _numbers(c.scenes, tables.SCENES), _numbers(c.weathers, tables.WEATHERS)
        kinds = _numbers(c.target_kinds or (), tables.KINDS)
        b0, a1, a2 = c.filter_numbers()
        red = c.stage == 0 and c.target_rgb is None
        return {
            "town_mode": ("episode", "row", "fixed").index(c.town),
            "stage": c.stage,
            "n_scenes": len(scenes),
            "scene_list": _padded(scenes, 6),
            "n_weathers": len(weathers),
            "weather_list": _padded(weathers, 4),
            "n_kinds": len(kinds),
            "kind_list": _padded(kinds, 8),
            "fixed_rgb": red or c.target_rgb is not None,
            "target_rgb": c.target_rgb or (255, 0, 0),
            "n_sub": c.n_sub,
            "reward_type": REWARDS.index(c.reward),
            "pays_discrete": c.reward_mode == "discrete",
            "pays_distance": c.reward_kind == "distance",
            "as_published": c.constants == "as_published",
            "hides": c.occlusion == "zero",
            "pays_end": c.end_reward,
            "grey": c.channels == 1,
            "cell": c.ground_cell,
            "extent": c.half_extent,
            "jitter": c.palette_jitter,
            "tan_h": c.tan_h,
            "tan_v": c.tan_v,
            "cam_width": c.camera_px[0],
            "cam_height": c.camera_px[1],
            "b0": b0,
            "a1": a1,
            "a2": a2,
            "most_steps": c.max_agent_steps,
            "moves": c.moves,
            "kinds": tables.KIND_SIZES,
            "kind_weights": tables.KIND_WEIGHTS,
            "car_colours": tables.CAR_COLOURS,
            "tones": tables.TONES_OF_BOXES,
            "materials": tables.MATERIALS,
            "bases": tables.BASES,
            "scenes": _scenes(c),
            "box_laws": tables.BOX_LAWS,
            "things": tables.THINGS_BUILT,
            "weathers": _weathers(c),
            "quantiles": QUANTILES,
            "lamps": tables.LAMPS,
            "columns": np.arange(self.sizes["F"]),
        }

    @classmethod
    def auto_max_steps(cls, config: TrackingConfig) -> int:
        return config.max_agent_steps

    def why_illegal(self, row: int, action: Any) -> str:
        return f"actions are 0..{self.sizes['A'] - 1}" if self.sizes["A"] else "four numbers within -1..1"

    def arrange_instances(self, values: dict[str, Any]) -> dict[str, Any]:
        return arrange_towns(self, values)

    def check_instances(self, arrays: dict[str, np.ndarray]) -> None:
        check_towns(self, arrays)

    def town(self, row: int = 0) -> dict[str, np.ndarray]:
        """The town of a row, as `reset(instance=...)` takes it: the instance fields with one row."""
        q = int(self.instance_row[row])
        fields = [f.name for f in self.fields.values() if f.role is Role.INSTANCE]
        return {**{name: getattr(self, name)[q : q + 1].copy() for name in fields}, "town_key": np.full((1, 3), -1)}

    def figures(self, last: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """CR, TSR, and for each reason whether the episode ended by it."""
        ended = {name: (last["reason"] == code).astype(np.float64) for code, name in enumerate(REASONS) if code}
        return {"CR": last["CR"], "TSR": last["TSR"], **ended}

    def shot(self, row: int = 0, size: int | None = None, supersample: int = 1) -> tuple[np.ndarray, ...]:
        """The camera's picture of a row at any size: image (C, size, size), the face in each sample, and its depth."""
        taken: tuple[np.ndarray, ...] = resolve("milkrun.tracking.rendering:shot", "Tracking.shot")(
            self, row, size, supersample
        )
        return taken

    def render(self, row: int = 0) -> np.ndarray:
        """The camera's picture of a row, and at its right the town from above, uint8 (512, 1024, 3)."""
        chosen = self._rows([row])
        self.refuse_unready(chosen)
        picture: np.ndarray = resolve("milkrun.tracking.picture:render", "Tracking.render")(self, int(chosen[0]))
        return picture

    def scene(self, row: int) -> Scene:
        self.check_row(row)
        scene: Scene = resolve("milkrun.tracking.picture:scene", "Tracking.scene")(self, row)
        return scene

    @property
    def fps(self) -> float:  # type: ignore[override]
        """Agent steps a second."""
        return float(self.config.control_hz)

    @property
    def render_fps(self) -> float:  # type: ignore[override]
        return self.config.control_hz

    def action_name(self, agent: int, action: int) -> str:
        return MOVES[action] if 0 <= action < len(MOVES) else f"action {action}"


def _scenes(config: TrackingConfig) -> np.ndarray:
    """The laws of scenes, with speeds limited by `max_car_speed`."""
    laws = tables.SCENE_LAWS.copy()
    if config.max_car_speed is not None:
        speeds = [tables.V_LOW, tables.V_HIGH]
        laws[:, speeds] = np.minimum(laws[:, speeds], config.max_car_speed)
    return laws


def _weathers(config: TrackingConfig) -> np.ndarray:
    """The laws of weathers, with `fog_sight`."""
    laws = tables.WEATHER_LAWS.copy()
    if config.fog_sight is not None:
        laws[tables.FOGGY, [tables.SIGHT_LOW, tables.SIGHT_HIGH]] = config.fog_sight
    return laws


def _numbers(names: tuple[str, ...], known: tuple[str, ...]) -> list[int]:
    return [known.index(name) for name in names]


def _padded(numbers: list[int], length: int) -> np.ndarray:
    return np.array([*numbers, *[0] * (length - len(numbers))])


Tracking.bind(generate=generate, reset=reset, step=step, idle=idle, observe=observe, fault=fault)


class TrackingVelocity(Tracking):
    """Tracking with continuous actions: four numbers in [-1, 1], speed forward, left, up, and turn counter-clockwise.

    They are shares of 40, 40, 5 m/s and 2 rad/s. There is no mask; numbers out of range fly as stop.
    """

    action = box(4)


TrackingVelocity.bind(step=step_velocity)
