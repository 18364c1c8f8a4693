"""Frames of box towns by MuJoCo's renderer on OSMesa (GL in software, no display); prints one line of JSON with frames
a second. A process of its own, since MuJoCo chooses its GL when it is imported:

    .venv/bin/python bench/peers/mujoco_frames.py scenes.json [--seconds 10]

`bench/tracking.py` writes scenes.json: for each number of boxes some scenes with their boxes, the pose of the camera,
and which box our own picture shows in each pixel. It needs libOSMesa (Debian: libosmesa6). In MuJoCo's favour: one
flat ground of two triangles, one sun, no shadows, no reflections, no sky, and the scene is passed to the renderer
before the clock starts. Its picture has no fog, no ground pattern and no windows. `WAYS` are its qualities.
"""

import argparse
import gc
import json
import os
import time
from pathlib import Path
from typing import Any

os.environ["MUJOCO_GL"] = "osmesa"
os.environ["LP_NUM_THREADS"] = "0"  # Mesa draws in the calling thread

import mujoco
import numpy as np

WAYS = {"as it comes": (4, 4), "large faces, 4 samples": (1, 4), "large faces, 1 sample": (1, 1)}
"""Parts per side of a face (useful for lamps, not for a sun), and samples per pixel (several: antialiased)."""
OFF = ("mjRND_SHADOW", "mjRND_REFLECTION", "mjRND_SKYBOX", "mjRND_FOG", "mjRND_HAZE")
FOCAL = 0.1
GROUND = -2
"""Id of the ground, as in ours; sky is -1."""


def model_of(scene: dict[str, Any], size: int, parts: int, samples: int) -> mujoco.MjModel:
    """A model of the static boxes of a scene, in their order after the ground."""
    boxes = "".join(
        f'<geom type="box" pos="{_numbers(box["pos"])}" size="{_numbers(box["half"])}" euler="0 0 {box["yaw"]}" '
        f'rgba="{_numbers(np.array(box["rgb"]) / 255)} 1"/>'
        for box in scene["boxes"]
    )
    sensor = 2 * FOCAL * scene["tan_h"], 2 * FOCAL * scene["tan_v"]
    return mujoco.MjModel.from_xml_string(f"""
<mujoco>
  <compiler angle="radian"/>
  <statistic extent="1"/>
  <visual>
    <quality offsamples="{0 if samples == 1 else samples}" numquads="{parts}"/>
    <global offwidth="{size}" offheight="{size}"/>
    <map znear="0.05" zfar="500"/>
  </visual>
  <worldbody>
    <light directional="true" dir="{_numbers(-np.array(scene["sun"]))}" castshadow="false"/>
    <geom type="plane" size="{scene["extent"]} {scene["extent"]} {scene["extent"]}" rgba=".5 .5 .5 1"/>
    {boxes}
    <camera name="drone" pos="{_numbers(scene["pos"])}" xyaxes="{_numbers([*scene["right"], *scene["up"]])}"
            focal="{FOCAL} {FOCAL}" sensorsize="{_numbers(sensor)}" resolution="{size} {size}"/>
  </worldbody>
</mujoco>""")


def _numbers(numbers: Any) -> str:
    return " ".join(f"{x:.9g}" for x in numbers)


class Camera:
    """A renderer of one scene."""

    def __init__(self, scene: dict[str, Any], size: int, parts: int, samples: int) -> None:
        self.model = model_of(scene, size, parts, samples)
        self.data = mujoco.MjData(self.model)
        mujoco.mj_forward(self.model, self.data)
        self.renderer = mujoco.Renderer(self.model, size, size)
        for flag in OFF:
            self.renderer.scene.flags[getattr(mujoco.mjtRndFlag, flag)] = False
        self.picture = self.frame()

    def frame(self) -> np.ndarray:
        self.renderer.update_scene(self.data, "drone")
        return self.renderer.render()

    def boxes_seen(self) -> np.ndarray:
        """The index of the box at each pixel."""
        self.renderer.enable_segmentation_rendering()
        geom = self.frame()[..., 0]
        self.renderer.disable_segmentation_rendering()
        return np.where(geom > 0, geom - 1, np.where(geom == 0, GROUND, -1))

    def frames_in(self, seconds: float) -> tuple[int, float, float]:
        """Frames within this processor time, with their wall-clock and processor seconds."""
        self.frame()
        out, frames = np.empty_like(self.picture), 0
        wall, cpu = time.perf_counter(), time.process_time()
        while (spent := time.process_time() - cpu) < seconds or not frames:
            self.renderer.render(out=out)
            frames += 1
        return frames, time.perf_counter() - wall, spent


def frames_per_second(scenes: list[Any], size: int, way: tuple[int, int], seconds: float) -> dict[str, float]:
    """Of all scenes, each for its part of the seconds; `same`: share of pixels that show the same box as ours."""
    spent, same = [], []
    for scene in scenes:
        camera = Camera(scene, size, *way)
        try:
            spent.append(camera.frames_in(seconds / len(scenes)))
            same.append(np.mean(camera.boxes_seen() == np.array(scene["seen"])))
        finally:
            camera.renderer.close()
    frames, wall, cpu = np.sum(spent, axis=0)
    return {"wall": frames / wall, "cpu": frames / cpu, "same": float(np.mean(same))}


def main() -> None:
    parser = argparse.ArgumentParser(description="frames a second of MuJoCo's renderer on OSMesa")
    parser.add_argument("scenes", type=Path)
    parser.add_argument("--seconds", type=float, default=10.0)
    options = parser.parse_args()
    task = json.loads(options.scenes.read_text())
    gc.disable()
    report: dict[str, Any] = {"mujoco": mujoco.__version__}
    for count, scenes in task["scenes"].items():
        report[count] = {
            name: frames_per_second(scenes, task["size"], way, options.seconds / len(WAYS))
            for name, way in WAYS.items()
        }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
