"""The physics model of a row: a tray, its objects, and a cup that holds an object by a weld."""

from __future__ import annotations

import math

from milkrun.clutter.options import BASE, RIM, ClutterConfig

TORSION, ROLLING = 0.005, 0.0001  # torsional and rolling friction of every contact
PARKED, APART, GAP = 1.0, 0.3, 0.02  # m, of objects out of play: place of the first, distance, least gap


def model_xml(config: ClutterConfig, *, wall: float | None = None, cup: bool = True) -> str:
    """The MJCF description of a row. `wall` overrides the height of the walls; scenes have no cup.

    Rows disable MuJoCo's midphase: with six geoms of the tray and one per object, bounding trees cost more than they
    save. Contacts and their order are the same. Scenes keep the midphase, since their text is the key of shipped banks.
    """
    half, height = config.side / 2, config.wall if wall is None else wall
    tray = f'friction="{config.tray_friction} {TORSION} {ROLLING}"'
    grip = f'friction="{config.object_friction} {TORSION} {ROLLING}"'

    def side(sx: float, sy: float, x: float, y: float) -> str:
        size = f"{sx} {sy} {height / 2}"
        return f'<geom type="box" size="{size}" pos="{x} {y} {BASE + height / 2}" {tray}/>'

    bodies, welds = [], []
    for i, (kind, pose) in enumerate(zip(config.types, parking(config), strict=True)):
        x, y, z = (extent / 2 for extent in kind.size)
        size = f"{x} {y} {z}" if kind.shape == "box" else f"{x} {z}"
        bodies.append(
            f'<body name="o{i}" pos="{pose[0]} {pose[1]} {pose[2]}">'
            f'<joint type="free" damping="{config.joint_damping}"/>'
            f'<geom name="g{i}" type="{kind.shape}" size="{size}" mass="{kind.mass}" {grip}/></body>'
        )
        welds.append(
            f'<weld body1="cup" body2="o{i}" relpose="0 0 0 1 0 0 0" solref="{config.weld_timeconst} 1" '
            f'torquescale="{config.weld_torquescale}" active="false"/>'
        )
    x, y, z = config.home_pos
    held = f'<body name="cup" mocap="true" pos="{x} {y} {z}"><site name="cs"/></body>' if cup else ""
    holds = f'<equality>{"".join(welds)}</equality><sensor><force site="cs"/></sensor>' if cup else ""
    trees = ' midphase="disable"' if cup else ""
    return f"""<mujoco>
<option timestep="{config.timestep}" integrator="implicitfast" cone="elliptic" solver="Newton"
 iterations="{config.iterations}" ls_iterations="{config.ls_iterations}" tolerance="{config.tolerance}"
 sleep_tolerance="{config.sleep_tolerance}"><flag sleep="{"enable" if config.sleep else "disable"}"{trees}/></option>
<worldbody>
<geom name="floor" type="plane" size="5 5 .1" {tray}/>
<geom name="base" type="box" size="{half + RIM} {half + RIM} {BASE / 2}" pos="0 0 {BASE / 2}" {tray}/>
{side(RIM / 2, half + RIM, half + RIM / 2, 0)}{side(RIM / 2, half + RIM, -half - RIM / 2, 0)}
{side(half, RIM / 2, 0, half + RIM / 2)}{side(half, RIM / 2, 0, -half - RIM / 2)}
{"".join(bodies)}
{held}
</worldbody>
{holds}
</mujoco>"""


def parking(config: ClutterConfig) -> list[tuple[float, ...]]:
    """The pose of each object out of play: rows of four beside the tray, out of reach of all other objects."""
    wide, long = max(max(t.size[:2]) for t in config.types), max(math.hypot(*t.size) for t in config.types)
    edge = config.side / 2 + RIM + long / 2  # an object's centre may be over a wall
    if not config.use_discrete_action:
        edge = max(edge, config.cup_far + long)
    first, apart = max(PARKED, edge + wide / 2), max(APART, wide + GAP)
    return [
        (first + apart * (i % 4), -0.5 + apart * (i // 4), kind.size[2] / 2, 1.0, 0.0, 0.0, 0.0)
        for i, kind in enumerate(config.types)
    ]
