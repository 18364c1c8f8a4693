"""Rays of the clutter world compared with MuJoCo's, and exposure compared with images of many rays."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest

from milkrun.clutter import model_xml
from tests.clutter.trays import CANS, SOUP, TUNA, tray

pytestmark = pytest.mark.truth
DOWN = np.array([0.0, 0.0, -1.0])


class Sky:
    """MuJoCo's rays down onto a row: the first object hit (-1: none) and its height."""

    def __init__(self, world, b: int) -> None:
        self.model = mujoco.MjModel.from_xml_string(model_xml(world.config))
        self.data, n = mujoco.MjData(self.model), world.sizes["N"]
        self.first = self.model.ngeom - n
        self.data.qpos[:] = world.obj_pose[b].ravel()
        mujoco.mj_kinematics(self.model, self.data)

    def meets(self, x: float, y: float) -> tuple[int, float]:
        geom = np.zeros(1, np.int32)
        far = mujoco.mj_ray(self.model, self.data, np.array([x, y, 1.0]), DOWN, None, 1, -1, geom)
        return max(int(geom[0]) - self.first, -1), 1.0 - far


@pytest.mark.parametrize(
    "types", [{}, CANS, {"box_objects": (SOUP, TUNA, "002_master_chef_can")}], ids=["boxes", "both", "cans"]
)
def test_pixels_meet_what_mujoco_meets(types):
    """Every pixel of the height and segmentation images."""
    world = tray(4, num_objects_per_type=2, maps=True, map_size=48, bank_size=8, **types)
    seen, side, wrong = world.observe(), 2 * world.half_side, 0
    for b in range(4):
        sky = Sky(world, b)
        for r in range(48):
            for c in range(48):
                body, z = sky.meets((c + 0.5) / 48 * side - side / 2, side / 2 - (r + 0.5) / 48 * side)
                same = seen["segmentation"][b, r, c] == body and abs(seen["height"][b, r, c] * 0.3 - z) < 1e-6
                wrong += not same
    assert wrong == 0


@pytest.mark.parametrize("types", [{}, CANS], ids=["boxes", "both"])
def test_samples_meet_what_mujoco_meets(types):
    """The first object above every sample of a horizontal surface, walls included; poses are MuJoCo's."""
    world = tray(8, num_objects_per_type=2, bank_size=8, ray_samples=4, **types)
    from tests.reference.clutter_rays import Solid, faces

    compared = 0
    for b in range(8):
        sky = Sky(world, b)
        for i in range(6):
            geom = sky.first + i
            turn = sky.data.geom_xmat[geom].reshape(3, 3)
            shape = "cylinder" if world.is_can[i] else "box"
            solid = Solid(shape, tuple(sky.data.geom_xpos[geom]), tuple(map(tuple, turn)), tuple(world.half[i]))
            for f, face in enumerate(faces(solid, 4)):
                for s, sample in enumerate(face.samples):
                    if sample.nz > 0.02:  # on a vertical face a ray runs along the surface
                        body, _ = sky.meets(*(np.array(solid.centre) + sample.offset)[:2])
                        assert world.hit[b, i, 16 * f + s] == body
                        compared += 1
    assert compared > 1000


def test_exposure_is_that_of_an_image():
    """With 81 samples a face, the exposure differs from visible pixels / silhouette by less than .05 on average."""
    world = tray(32, num_objects_per_type=2, bank_size=32, ray_samples=9, maps=True, map_size=128, augment=False)
    world.reset(instance={"scene_id": np.arange(32)})
    seen, pixel = world.observe()["segmentation"], (2 * world.half_side / 128) ** 2
    off = []
    for b in range(32):
        for i in range(6):
            silhouette = world.exposed_area[b, i] / world.exposed[b, i] if world.exposed[b, i] else None
            if silhouette:
                off.append(abs(world.exposed[b, i] - (seen[b] == i).sum() * pixel / silhouette))
    assert np.mean(off) < 0.05
