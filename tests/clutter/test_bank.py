"""Settled scenes: at rest, independent, shipped for presets, and cached."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest

from milkrun.clutter import Clutter, bank
from milkrun.clutter.model import model_xml
from milkrun.clutter.options import BASE, ClutterConfig
from milkrun.core import disk_cache
from milkrun.core.errors import ConfigError

TYPES = ("004_sugar_box", "007_tuna_fish_can")
FEW = ClutterConfig(box_objects=TYPES, num_objects_per_type=2, bank_size=3, bank_seed=5)
SHIPPED = [(preset, split) for preset in ClutterConfig.presets for split in bank.PURPOSES]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty cache of banks; the kernels of the law are already compiled."""
    bank.hits(FEW, bank.drawn(FEW, np.arange(1), np.zeros(1, np.int64)).reshape(1, 4, 7))
    monkeypatch.setattr(disk_cache, "cache_root", lambda: str(tmp_path))
    bank._load.cache_clear()
    yield tmp_path
    bank._load.cache_clear()


@pytest.fixture
def made(monkeypatch):
    """Records which scenes are settled."""
    found, settled = [], bank.settled

    def spy(config, scenes):
        found.append(list(scenes))
        return settled(config, scenes)

    monkeypatch.setattr(bank, "settled", spy)
    return found


def check_still(config: ClutterConfig, poses: np.ndarray) -> None:
    """No centre moves 2 mm in 150 steps of a plain simulation with the cup; all objects lie in the tray without
    overlaps."""
    model = mujoco.MjModel.from_xml_string(model_xml(config))
    data = mujoco.MjData(model)
    for k, pose in enumerate(poses):
        mujoco.mj_resetData(model, data)
        data.qpos[:] = pose.ravel()
        mujoco.mj_fwdPosition(model, data)
        assert data.contact.dist.min(initial=0.0) > -0.004, f"scene {k}"
        mujoco.mj_step(model, data, 150)
        moved = np.linalg.norm(data.qpos.reshape(-1, 7)[:, :3] - pose[:, :3], axis=1)
        assert moved.max() < 0.002, f"scene {k}"
    assert (abs(poses[..., :2]) < config.side / 2).all()
    assert (poses[..., 2] < BASE + config.wall + 0.04).all() and (poses[..., 2] > BASE).all()


@pytest.mark.parametrize(("preset", "split"), SHIPPED)
def test_every_preset_is_shipped(preset, split):
    """256 train scenes and 64 test scenes under the current key; no scene has to be settled."""
    config = ClutterConfig.build(preset, split=split)
    poses, hits = bank._shipped(bank.key_of(config), split)
    count = 256 if split == "train" else 64
    assert poses.shape == (count, config.total_objects_per_env, 7) and poses.dtype == np.float64
    assert hits.shape == (count, config.total_objects_per_env, 27)


@pytest.mark.parametrize(("preset", "split"), SHIPPED)
def test_shipped_scenes_lie_still(preset, split):
    """The first scenes of each file; `test_all_shipped_scenes_lie_still` checks all."""
    config = ClutterConfig.build(preset, split=split)
    check_still(config, bank.load(config).poses[:6])


@pytest.mark.long
@pytest.mark.parametrize(("preset", "split"), SHIPPED)
def test_all_shipped_scenes_lie_still(preset, split):
    """Every scene of the package."""
    config = ClutterConfig.build(preset, split=split)
    check_still(config, bank.load(config).poses)


def test_shipped_rays_are_those_of_the_poses():
    """The stored hits equal those of rays cast now."""
    config = ClutterConfig.build("small_scene")
    scenes = bank.load(config)
    assert scenes.hits.dtype == np.int16
    np.testing.assert_array_equal(scenes.hits[:8], bank.hits(config, scenes.poses[:8]))


def test_scenes_do_not_depend_on_their_number():
    """Scenes 0 and 1, and scenes 1 to 3: scene 1 has the same bits in both, and scenes differ."""
    first, later = bank.settled(FEW, range(2)), bank.settled(FEW, range(1, 4))
    np.testing.assert_array_equal(first[1], later[0])
    assert len(np.unique(np.concatenate([first, later[1:]])[:, 0, 0])) == 4
    check_still(FEW, later)


def test_a_bank_is_made_once(folder, made):
    """The second process finds the file with the same bits."""
    first = bank.load(FEW)
    bank._load.cache_clear()
    second = bank.load(FEW)
    assert made == [[0, 1, 2]] and len(list(folder.iterdir())) == 1
    np.testing.assert_array_equal(first.poses, second.poses)
    np.testing.assert_array_equal(first.hits, second.hits)


def test_a_larger_bank_adds_to_a_smaller_one(folder, made):
    """For five scenes after three only two are settled; the first three are the same."""
    small = bank.load(FEW)
    large = bank.load(FEW.replace(bank_size=5))
    assert made == [[0, 1, 2], [3, 4]]
    np.testing.assert_array_equal(large.poses[:3], small.poses)
    bank._load.cache_clear()
    np.testing.assert_array_equal(bank.load(FEW).poses, small.poses)
    assert len(made) == 2


def test_a_bank_larger_than_the_shipped_one_is_kept(folder, made):
    """One scene more than the file has is settled once."""
    config = ClutterConfig.build("small_scene", bank_size=257)
    shipped = bank.load(config.replace(bank_size=256))
    for _ in range(2):
        bank._load.cache_clear()
        found = bank.load(config)
    assert made == [[256]] and len(found.poses) == 257
    np.testing.assert_array_equal(found.poses[:256], shipped.poses)


@pytest.mark.parametrize("damage", ["cut", "flipped", "foreign"])
def test_a_damaged_file_is_replaced(folder, made, damage):
    """A truncated file, one with a wrong bit and another kind of file are not read; the scenes are the same."""
    before = bank.load(FEW)
    (file,) = folder.iterdir()
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes({"cut": content[:-1], "flipped": content, "foreign": b"no bank"}[damage])
    bank._load.cache_clear()
    after = bank.load(FEW)
    assert made == [[0, 1, 2]] * 2
    np.testing.assert_array_equal(before.poses, after.poses)
    bank._load.cache_clear()
    bank.load(FEW)
    assert len(made) == 2


def test_a_tray_too_full_is_refused(monkeypatch):
    """Four bottles do not lie below 61 mm on 0.2 x 0.2 m; a few scenes detect it for all six."""
    config = ClutterConfig(box_objects=("006_mustard_bottle",), tray_side=0.2, tray_wall=0.001, bank_size=6)
    drops, drawn = [], bank.drawn

    def spy(config, scenes, attempt):
        drops.append(len(scenes))
        return drawn(config, scenes, attempt)

    monkeypatch.setattr(bank, "drawn", spy)
    monkeypatch.setattr(bank, "ATTEMPTS", 2)
    with pytest.raises(ConfigError, match=r"scene 0 does not settle: 4 objects in a tray of 0.2 m.*2 attempts"):
        bank.settled(config, range(6))
    assert drops == [6, 4]


def test_scenes_depend_on_physics_and_seed():
    """They do not depend on rewards, the cup and rays. Test scenes are the same for every seed."""
    config = ClutterConfig()
    key = bank.key_of(config)
    for change in ({"bank_seed": 1}, {"timestep": 0.005}, {"tray_side": 0.4}, {"split": "test"}, {"rest_spin": 0.2}):
        assert bank.key_of(config.replace(**change)) != key, change
    for change in ({"rewards": "published"}, {"suction_force": 20.0}, {"ray_samples": 9}, {"bank_size": 7}):
        assert bank.key_of(config.replace(**change)) == key, change
    test_split = config.replace(split="test")
    assert bank.key_of(test_split.replace(bank_seed=1)) == bank.key_of(test_split)


def test_finer_rays_are_cast_for_the_same_scenes():
    """A bank stores hits of 3 x 3 rays a face; 4 x 4 are cast when it is loaded."""
    config = ClutterConfig.build("small_scene", bank_size=4, ray_samples=4)
    scenes = bank.load(config)
    assert scenes.hits.shape == (4, 6, 48)
    np.testing.assert_array_equal(scenes.poses, bank.load(config.replace(ray_samples=3)).poses)


def test_a_row_settles_only_its_own_scene(folder, made, caplog):
    """Of 256 scenes one row settles one, and four rows settle that one and three others, with the same bits. The log
    has one message. Another process, and a scene selected by its number, find the cached scenes."""
    config = FEW.replace(bank_size=256)
    alone, four = (Clutter(rows, config, seed=4) for rows in (1, 4))
    assert made == []
    alone.reset()
    assert made == [alone.scene_id.tolist()]
    four.reset()
    drawn = four.scene_id.tolist()
    assert drawn[0] == alone.scene_id[0] and sorted(made[1]) == sorted(set(drawn[1:]) - {drawn[0]})
    for field in ("init_pose", "hit", "exposed"):
        assert (getattr(four, field)[0] == getattr(alone, field)[0]).all()
    (said,) = [record.getMessage() for record in caplog.records if record.name == "milkrun"]
    assert said.startswith("this tray is not shipped: 1 of its 256 scenes are settled now")
    bank._load.cache_clear()
    later = Clutter(4, config, seed=4)
    later.reset()
    later.reset(instance={"scene_id": np.array(drawn)})
    assert len(made) == 2 and later.scene_id.tolist() == drawn
    whole = bank.load(config)
    np.testing.assert_array_equal(whole.poses[drawn], later.bank[drawn])
    assert bank.is_made(whole.poses).all() and len(made) == 3
