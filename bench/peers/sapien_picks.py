"""Picks from clutter on raw SAPIEN (PhysX, CPU, one process, no renderer); prints one line of JSON with picks a second.

A script for the Python of a venv of its own (`pip install sapien`):

    .venv-sapien/bin/python bench/peers/sapien_picks.py scenes.json [--seconds 10]

`bench/clutter.py` writes scenes.json: tray, objects, settled poses and options of our world. The macro is that of the
world: highest first, a lift by z = z0 + a t^2 / 2 until the object is clear of all others, then physics until the pile
is at rest; no physics runs while nothing moves. Differences: SAPIEN's macro casts no rays (every object is allowed,
with its grip at the middle of the most level face), makes no observation, and its cup has no limit of force, so that
every pick succeeds. In SAPIEN's favour, PhysX first settles scenes outside of the timed part, and objects out of play
sleep.
"""

import argparse
import gc
import json
import time
import warnings
from pathlib import Path
from typing import Any

warnings.filterwarnings("ignore", message="Failed to find system libvulkan")

import numpy as np  # noqa: E402
import sapien  # noqa: E402
from sapien import physx  # noqa: E402

LEAST_TOP = 0.03  # m, an object is out only above this height
SETTLING = 600  # ticks in which PhysX brings a scene to rest, at most


class Tray:
    """A scene of PhysX with one tray, its objects and a cup."""

    def __init__(self, task: dict[str, Any]) -> None:
        self.task = task
        self.system = physx.PhysxCpuSystem()
        self.system.timestep = task["timestep"]
        self.scene = sapien.Scene([self.system])
        # PhysX uses the mean of two frictions, the world the larger one: with this value both are equal.
        self._wall = physx.PhysxMaterial(*2 * [2 * task["tray_friction"] - task["object_friction"]], 0.0)
        self._object = physx.PhysxMaterial(*2 * [task["object_friction"]], 0.0)
        for half, at in task["boxes"]:
            self._add(physx.PhysxRigidStaticComponent(), half, self._wall, at)
        self.half = np.array(task["half"])
        self.bodies = [
            self._add(physx.PhysxRigidDynamicComponent(), half, self._object, park, mass / (8 * np.prod(half)))
            for half, mass, park in zip(task["half"], task["mass"], task["parking"], strict=True)
        ]
        self.cup = self._add(physx.PhysxRigidDynamicComponent(), None, None, task["home"])
        self.cup.kinematic = True
        self.substeps = 0

    def _add(self, body: Any, half: Any, material: Any, at: Any, density: float = 1000.0) -> Any:
        if half is not None:
            shape = physx.PhysxCollisionShapeBox(half_size=half, material=material)
            shape.density = density
            body.attach(shape)
        entity = sapien.Entity()
        entity.add_component(body)
        entity.pose = sapien.Pose(at[:3], at[3:] or [1, 0, 0, 0])
        self.scene.add_entity(entity)
        return body

    # -- an episode -------------------------------------------------------------------------------------------

    def begin(self, poses: list[list[float]]) -> None:
        for body, pose in zip(self.bodies, poses, strict=True):
            self._put(body, pose)
        self.left = list(range(len(self.bodies)))
        self.cup_at = np.array(self.task["home"])
        self.quiet = 0
        self.at_rest = True

    def _put(self, body: Any, pose: list[float]) -> None:
        body.entity.pose = sapien.Pose(pose[:3], pose[3:])
        body.linear_velocity = body.angular_velocity = [0.0, 0.0, 0.0]

    def settled(self, poses: list[list[float]]) -> list[list[float]]:
        """The poses at which the objects come to rest."""
        self.begin(poses)
        self.at_rest = False
        self.run_until_rest(SETTLING)
        return [[*body.entity.pose.p.tolist(), *body.entity.pose.q.tolist()] for body in self.bodies]

    def play(self) -> int:
        """Picks until nothing is left or the attempts are used up."""
        picks = 0
        while self.left and picks < self.task["attempts"]:
            tops = [self.bodies[i].compute_global_aabb_tight()[1, 2] for i in self.left]
            self.pick(self.left[int(np.argmax(tops))])
            picks += 1
        return picks

    def pick(self, i: int) -> None:
        task, body = self.task, self.bodies[i]
        if not self.at_rest:
            self.run_until_rest(self.approach_ticks(body, self.grip(i)))
        grip = self.grip(i)
        hold = self.hold(body, grip)
        at = self.cup.entity.pose
        start = at.p
        for tick in range(task["lift_ticks"]):
            for k in range(task["substeps"]):
                t = (tick * task["substeps"] + k + 1) * task["timestep"]
                rise = start + np.array([0.0, 0.0, 0.5 * task["lift_acc"] * t * t], np.float32)
                self.cup.kinematic_target = sapien.Pose(rise, at.q)
                self.step()
            if self.is_clear(i):
                break
        hold.entity.remove_component(hold)
        self.left.remove(i)
        self._put(body, task["parking"][i])
        body.put_to_sleep()
        self.cup_at = np.array(task["drop"])
        self.quiet = 1
        self.at_rest = False
        self.run_until_rest(task["settle_max"])

    def grip(self, i: int) -> np.ndarray:
        """The middle of the most level upward face, in the object's frame."""
        up = self.bodies[i].entity.pose.to_transformation_matrix()[2, :3]
        face = int(abs(up).argmax())
        grip = np.zeros(3)
        grip[face] = np.copysign(self.half[i, face], up[face])
        return grip

    def approach_ticks(self, body: Any, grip: np.ndarray) -> int:
        """Ticks until the cup grips, in which the pile may still move."""
        over = (body.entity.pose * sapien.Pose(grip)).p + [0.0, 0.0, self.task["approach"]]
        way = np.linalg.norm(over - self.cup_at) / (self.task["cup_speed"] * self.task["tick"])
        return int(np.ceil(way)) + self.task["descend_ticks"] + self.task["grip_ticks"]

    def hold(self, body: Any, grip: np.ndarray) -> Any:
        """Attach an object to the cup at its grip: stiff in place as the world's weld, soft in rotation."""
        task, at = self.task, sapien.Pose(grip)
        self.cup.entity.pose = body.entity.pose * at
        drive = self.scene.create_drive(self.cup, sapien.Pose(), body, at)
        stiffness, damping = task["weld_timeconst"] ** -2, 2 / task["weld_timeconst"]
        for axis in "xyz":
            getattr(drive, f"set_drive_property_{axis}")(stiffness, damping, mode="acceleration")
        soft = task["weld_torquescale"]
        drive.set_drive_property_slerp(soft * stiffness, soft * damping, mode="acceleration")
        body.wake_up()
        return drive

    def is_clear(self, i: int) -> bool:
        tops = [self.bodies[j].compute_global_aabb_tight()[1, 2] for j in self.left if j != i]
        bottom = self.bodies[i].compute_global_aabb_tight()[0, 2]
        return bool(bottom > max([LEAST_TOP, *tops]) + self.task["clearance"])

    def run_until_rest(self, ticks: int) -> None:
        for _ in range(ticks):
            if self.at_rest:
                return
            for _ in range(self.task["substeps"]):
                self.step()
            self.quiet = self.quiet + 1 if self.is_quiet() else 0
            self.at_rest = self.quiet >= self.task["rest_ticks"]

    def is_quiet(self) -> bool:
        for i in self.left:
            body = self.bodies[i]
            if not body.is_sleeping and (
                abs(body.linear_velocity).max() >= self.task["rest_speed"]
                or abs(body.angular_velocity).max() >= self.task["rest_spin"]
            ):
                return False
        return True

    def step(self) -> None:
        self.system.step()
        self.substeps += 1


def picks_per_second(task: dict[str, Any], seconds: float) -> dict[str, float]:
    """Whole episodes, one scene after the other, for this processor time; the first one warms up."""
    tray = Tray(task)
    scenes = [tray.settled(poses) for poses in task["poses"]]
    tray.begin(scenes[0])
    tray.play()
    tray.substeps = picks = episodes = left = 0
    gc.collect()
    gc.disable()
    wall, cpu = time.perf_counter(), time.process_time()
    while (spent := time.process_time() - cpu) < seconds:
        tray.begin(scenes[episodes % len(scenes)])
        picks += tray.play()
        left += len(tray.left)
        episodes += 1
    wall = time.perf_counter() - wall
    gc.enable()
    return {
        "wall": picks / wall,
        "cpu": picks / spent,
        "substeps": tray.substeps / picks,
        "picks": picks,
        "cleared": 1 - left / (episodes * len(tray.bodies)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="picks a second of raw SAPIEN")
    parser.add_argument("scenes", type=Path)
    parser.add_argument("--seconds", type=float, default=10.0)
    options = parser.parse_args()
    report: dict[str, Any] = {"sapien": sapien.__version__}
    for name, task in json.loads(options.scenes.read_text()).items():
        report[name] = picks_per_second(task, options.seconds)
    print(json.dumps(report))


if __name__ == "__main__":
    main()
