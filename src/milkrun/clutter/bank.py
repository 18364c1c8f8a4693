"""Settled scenes: where episodes start. Objects are dropped into a tray of high walls, come to rest, and are taken if
they then lie still in the tray as it is.

Settling is chaotic and slow, so the scenes of all presets are shipped (`banks/`, from `scripts/clutter_banks.py`): they
are the same on every machine, and nobody waits for a first reset. Others are made when first needed, and kept.
"""

from __future__ import annotations

import hashlib
import io
import math
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import resources
from typing import Any, NamedTuple

import mujoco
import numpy as np
from mujoco import batch as mjbatch

from milkrun.clutter.model import model_xml
from milkrun.clutter.options import BASE, ClutterConfig
from milkrun.clutter.rays import cast
from milkrun.clutter.warnings import quiet_warnings
from milkrun.core import disk_cache
from milkrun.core.engine import outlive_forks
from milkrun.core.errors import ConfigError
from milkrun.core.fields import bool_, constant, float64, int16, int64, named, scratch, state
from milkrun.core.kernels import kernel
from milkrun.core.launcher import build_loop
from milkrun.core.record import Layout
from milkrun.core.rng import permutation, stream, uniform
from milkrun.core.threads import Entry

LAW = "1"  # of drawing and settling; part of a bank's key
TEST_SCENES = 64
PURPOSES = {"train": 21, "test": 22}  # of the random streams
HIGH = 0.8  # m, walls while objects fall
GOLDEN = 2.399  # rad between two layers
CHECK, QUIET_CHECKS, CHECKS = 6, 4, 100  # substeps between looks; quiet ones in a row; at most
STILL, SUBSTEPS, TRIALS = 0.002, 150, 5  # m that a centre may move in so many substeps, tried so often
DEEPEST = 0.004  # m that an object may lie in another
ATTEMPTS = 50  # drops of a scene
AT_ONCE, FEW = 256, 4  # scenes that are settled together; as long as none of them has come to rest


class Scenes(NamedTuple):
    """Poses (Q, N, 7), and what each sample's ray meets first (Q, N, R)."""

    poses: np.ndarray
    hits: np.ndarray


def scenes_of(config: ClutterConfig) -> int:
    """How many scenes a world of this configuration has."""
    return TEST_SCENES if config.split == "test" else config.bank_size


def load(config: ClutterConfig) -> Scenes:
    """The scenes of a configuration: shipped, kept or made now. Worlds share them, so they are not to be written."""
    return _load(_Wanted(key_of(config), scenes_of(config), config.ray_samples, config))


def key_of(config: ClutterConfig) -> str:
    """What decides the scenes of a configuration, as one word."""
    said = (model_xml(config, cup=False), LAW, seed_of(config), config.split, config.rest_speed, config.rest_spin)
    return hashlib.sha256(repr(said).encode()).hexdigest()[:24]


def seed_of(config: ClutterConfig) -> int:
    """Scenes to be judged on are the same whatever one trained on."""
    return 0 if config.split == "test" else config.bank_seed


@dataclass(frozen=True)
class _Wanted:
    """What of a configuration its scenes depend on."""

    key: str
    count: int
    ray_samples: int
    config: ClutterConfig = field(compare=False)


@lru_cache(maxsize=8)
def _load(wanted: _Wanted) -> Scenes:
    config, count = wanted.config, wanted.count
    found = _shipped(wanted.key, config.split)
    if found is None or len(found.poses) < count:
        found = max(filter(None, (found, _kept(wanted.key))), key=lambda scenes: len(scenes.poses), default=None)
    poses = np.zeros((0, config.total_objects_per_env, 7)) if found is None else found.poses
    if found is None or len(poses) < count:
        poses = np.concatenate([poses, settled(config, range(len(poses), count))])
        found = Scenes(poses, hits(config, poses))
        _keep(wanted.key, found)
    met = found.hits[:count]
    if met.shape[2] != 3 * wanted.ray_samples**2:
        met = hits(config, poses[:count])
    scenes = Scenes(poses[:count].copy(), met.astype(np.int16))
    for array in scenes:
        array.flags.writeable = False
    return scenes


# -- files ------------------------------------------------------------------------------------------------------------


def _shipped(key: str, split: str) -> Scenes | None:
    """The bank of the package that has this key. Of other files only the key is read."""
    for file in resources.files("milkrun.clutter").joinpath("banks").iterdir():
        if file.name.endswith(".npz"):
            with file.open("rb") as opened, np.load(opened) as saved:
                if str(saved[f"{split}_key"]) == key:
                    return Scenes(saved[f"{split}_poses"], saved[f"{split}_hits"])
    return None


def _name(key: str) -> str:
    return f"clutter-{key}-{mujoco.__version__}.npz"


def _kept(key: str) -> Scenes | None:
    """A bank that was made before, from the folder of compiled code: what is not whole or not ours is made anew."""
    found = disk_cache.find(_name(key), key.encode())
    if found is None:
        return None
    with np.load(io.BytesIO(found)) as saved:
        return Scenes(saved["poses"], saved["hits"])


def _keep(key: str, scenes: Scenes) -> None:
    file = io.BytesIO()
    np.savez_compressed(file, poses=scenes.poses, hits=scenes.hits)
    disk_cache.keep(_name(key), key.encode(), file.getvalue())


# -- the law ----------------------------------------------------------------------------------------------------------


@kernel
def draw_scene(w, b, seed, purpose):
    """Where the objects of a scene begin to fall: in layers of two, one above the other, turned at random."""
    s = stream(seed, w.scene[b], w.attempt[b], purpose)
    permutation(s, w.order)
    start = 2.0 * math.pi * uniform(s, w.N)  # draws 0 .. N-1 made the order
    for rank in range(w.N):
        p, layer = 7 * w.order[rank], rank // 2
        angle = start + GOLDEN * layer + math.pi * (rank % 2)
        w.physics[b, p] = 0.4 * w.half_side * math.cos(angle)
        w.physics[b, p + 1] = 0.4 * w.half_side * math.sin(angle)
        w.physics[b, p + 2] = 0.14 + 0.10 * layer
        first = w.N + 1 + 3 * rank
        # A turn drawn evenly from three uniforms (Shoemake, "Uniform random rotations", Graphics Gems III, 1992).
        u = uniform(s, first)
        v, t = 2.0 * math.pi * uniform(s, first + 1), 2.0 * math.pi * uniform(s, first + 2)
        w.physics[b, p + 3], w.physics[b, p + 4] = math.sqrt(1.0 - u) * math.sin(v), math.sqrt(1.0 - u) * math.cos(v)
        w.physics[b, p + 5], w.physics[b, p + 6] = math.sqrt(u) * math.sin(t), math.sqrt(u) * math.cos(t)


@kernel
def cast_scene(w, b):
    cast(w, b)


def settled(config: ClutterConfig, scenes: range) -> np.ndarray:
    """(len(scenes), N, 7) poses of these scenes; scene k is the same whatever else is made."""
    starts = range(scenes.start, scenes.stop, AT_ONCE)
    return np.concatenate([_settle(config, np.arange(k, min(k + AT_ONCE, scenes.stop))) for k in starts])


def _settle(config: ClutterConfig, scenes: np.ndarray) -> np.ndarray:
    quiet_warnings()
    count, n = len(scenes), config.total_objects_per_env
    high, tray = (
        mjbatch.Batch(mujoco.MjModel.from_xml_string(model_xml(config, wall=wall, cup=False)), count, persistent=True)
        for wall in (HIGH, None)
    )
    outlive_forks(high, tray)
    poses, attempt = np.zeros((count, n, 7)), np.zeros(count, np.int64)
    pending = np.arange(count)
    while len(pending):
        # A tray too full for all of them is found out by a few.
        tried = pending[:FEW] if len(pending) == count and attempt[0] else pending
        if attempt[tried].max() >= ATTEMPTS:
            worst = int(scenes[tried[attempt[tried].argmax()]])
            raise ConfigError(f"scene {worst} does not settle: {n} objects in a tray of {config.side:.3g} m with walls "
                              f"of {config.wall:.3g} m, after {ATTEMPTS} attempts; take fewer objects or a larger tray")
        ids = tried.astype(np.int32)
        _put(high, ids, drawn(config, scenes[tried], attempt[tried]))
        _fall(config, high, ids)
        poses[tried] = high.qpos[tried].reshape(-1, n, 7)
        accepted = tried[_accept(config, tray, ids, poses)]
        attempt[tried] += 1
        pending = np.setdiff1d(pending, accepted)
    return poses


def drawn(config: ClutterConfig, scenes: np.ndarray, attempt: np.ndarray) -> np.ndarray:
    """(len(scenes), N * 7) where the objects begin to fall."""
    arrays = _run(_drawer(), config, len(scenes), {"scene": scenes, "attempt": attempt},
                  seed_of(config), PURPOSES[config.split])  # fmt: skip
    return arrays["physics"]


def _put(batch: Any, ids: np.ndarray, poses: np.ndarray) -> None:
    """Poses at rest, after a fresh reset: what the engine keeps beside its state is forgotten."""
    batch.reset(ids, stage=mujoco.mjtStage.mjSTAGE_NONE.value)
    batch.qpos[ids] = poses.reshape(len(ids), -1)


def _fall(config: ClutterConfig, batch: Any, ids: np.ndarray) -> None:
    """Until each has been quiet for some looks, or has had its time."""
    quiet = np.zeros(len(ids), np.int64)
    for _ in range(CHECKS):
        falling = quiet < QUIET_CHECKS
        if not falling.any():
            return
        with suppress(mjbatch.SimulationError):  # such a row stays where it was, and is judged there
            batch.step(ids[falling], nstep=CHECK)
        still = _slow(config, batch.qvel[ids[falling]])
        quiet[falling] = np.where(still, quiet[falling] + 1, 0)


def _accept(config: ClutterConfig, batch: Any, ids: np.ndarray, poses: np.ndarray) -> np.ndarray:
    """Which of these scenes lie still in the tray; those that move are tried again from where they came to."""
    accepted = np.zeros(len(ids), bool)
    for _ in range(TRIALS):
        left = np.flatnonzero(~accepted)
        rows = ids[left]
        if not len(rows):
            break
        before, failed = poses[rows], np.zeros(len(rows), bool)
        _put(batch, rows, before)
        try:
            batch.step(rows, nstep=SUBSTEPS)
        except mjbatch.SimulationError as e:
            failed = np.isin(rows, e.ids)
        after = batch.qpos[rows].reshape(len(rows), -1, 7)
        moved = np.linalg.norm(after[..., :3] - before[..., :3], axis=2).max(1)
        inside = (abs(before[..., :2]) < config.side / 2).all((1, 2))
        low = (before[..., 2] < BASE + config.wall + 0.04).all(1)
        fine = ~failed & (moved < STILL) & _slow(config, batch.qvel[rows]) & inside & low
        fine[fine] = [depth(batch.model, pose) < DEEPEST for pose in before[fine]]
        accepted[left[fine]] = True
        poses[rows[~fine]] = after[~fine]
    return accepted


def depth(model: Any, pose: np.ndarray) -> float:
    """How deep objects lie in each other or in the tray, m: jammed ones may lie still so."""
    data = mujoco.MjData(model)
    data.qpos[:] = pose.ravel()
    mujoco.mj_fwdPosition(model, data)
    return float(-data.contact.dist.min(initial=0.0))


def _slow(config: ClutterConfig, qvel: np.ndarray) -> np.ndarray:
    speeds = abs(qvel).reshape(len(qvel), -1, 6)
    limits = np.repeat([config.rest_speed, config.rest_spin], 3)
    return np.asarray((speeds < limits).all((1, 2)))


def hits(config: ClutterConfig, poses: np.ndarray) -> np.ndarray:
    """(Q, N, R) what the rays of each scene meet first."""
    given = {"physics": np.ascontiguousarray(poses.reshape(len(poses), -1))}
    return _run(_caster(), config, len(poses), given)["hit"]


# -- kernels without a world ------------------------------------------------------------------------------------------

FIELDS = named({
    "physics": state(float64, "S"), "hit": state(int16, "N", "R"),
    "grasped": state(bool_, "N"), "lost": state(bool_, "N"), "scene": state(int64), "attempt": state(int64),
    "frame": scratch(float64, "N", 9), "extent": scratch(float64, "N", 3),
    "point": scratch(float64, "R", 3), "order": scratch(int64, "N"),
    "half": constant(float64, "N", 3), "is_can": constant(bool_, "N"),
    "sample_at": constant(int64, "R", 3), "spread": constant(float64, "G"),
    "at_qpos": constant(int64), "half_side": constant(float64), "wall_top": constant(float64),
})  # fmt: skip
LAYOUT = Layout(FIELDS, ["N", "S", "G", "R"], "scenes")


def shapes(config: ClutterConfig) -> dict[str, np.ndarray]:
    """The tables by which rays know objects."""
    half = np.array([t.size for t in config.types]) / 2
    cans = np.array([t.shape == "cylinder" for t in config.types])
    g = config.ray_samples
    sample_at = np.indices((3, g, g)).reshape(3, -1).T
    spread = (2 * np.arange(g) + 1.0) / g - 1.0
    return {"half": half, "is_can": cans, "sample_at": sample_at, "spread": spread}


def _run(entry: Entry, config: ClutterConfig, rows: int, given: dict[str, Any], *numbers: int) -> dict[str, np.ndarray]:
    """The arrays after a kernel has gone over all rows."""
    n, g = config.total_objects_per_env, config.ray_samples
    numbers_of = {"at_qpos": 0, "half_side": config.side / 2, "wall_top": BASE + config.wall}
    sizes = {"N": n, "S": 7 * n, "G": g, "R": 3 * g * g}
    table, arrays = LAYOUT.fill(rows, sizes, {**given, **shapes(config), **numbers_of})
    entry.run((table.ctypes.data, *numbers), rows, 1)
    return arrays


@lru_cache(maxsize=1)
def _drawer() -> Entry:
    return build_loop(LAYOUT, draw_scene)


@lru_cache(maxsize=1)
def _caster() -> Entry:
    return build_loop(LAYOUT, cast_scene)
