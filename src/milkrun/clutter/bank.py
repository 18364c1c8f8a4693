"""The bank of settled scenes with which episodes start.

Objects are dropped into a tray with high walls and come to rest. A scene is accepted if they then lie still in the real
tray. Settling is chaotic and slow, so the scenes of all presets are shipped (`banks/`, by `scripts/clutter_banks.py`):
they are the same on every machine, and the first reset is fast. Other scenes are settled on first use and cached.
"""

from __future__ import annotations

import hashlib
import io
import logging
import math
from collections.abc import Sequence
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
from milkrun.core import disk_cache
from milkrun.core.engine import outlive_forks
from milkrun.core.errors import ConfigError
from milkrun.core.fields import bool_, constant, float64, int16, int64, named, scratch, state
from milkrun.core.kernels import kernel
from milkrun.core.launcher import build_loop
from milkrun.core.record import RecordLayout
from milkrun.core.rng import permutation, stream, uniform
from milkrun.core.threads import Entry

LAW = "1"  # version of drawing and settling; part of a bank's key
TEST_SCENES = 64
PURPOSES = {"train": 21, "test": 22}  # of the random streams
HIGH = 0.8  # m, height of walls while objects fall
GOLDEN = 2.399  # rad between two layers
CHECK, QUIET_CHECKS, CHECKS = 6, 4, 100  # substeps between checks; quiet checks in a row that end the fall; most checks
STILL, SUBSTEPS, TRIALS = 0.002, 150, 5  # m, most motion of a centre in this many substeps; attempts
DEEPEST = 0.004  # m, deepest overlap of two objects
ATTEMPTS = 50  # drops of a scene
AT_ONCE, FEW = 256, 4  # scenes settled together; the same while all first attempts have failed


class Scenes(NamedTuple):
    """Poses (Q, N, 7), and the object that each sample's ray hits first (Q, N, R)."""

    poses: np.ndarray
    hits: np.ndarray


def scenes_of(config: ClutterConfig) -> int:
    """Number of scenes of a configuration."""
    return TEST_SCENES if config.split == "test" else config.bank_size


def load(config: ClutterConfig) -> Scenes:
    """A copy of all scenes of a configuration; those that are neither shipped nor cached are settled now."""
    return scenes(config, np.arange(scenes_of(config)))


def made(config: ClutterConfig) -> Scenes:
    """A copy of the scenes settled so far; zeros for the others."""
    bank = _bank_of(config)
    return Scenes(bank.poses.copy(), bank.hits.copy())


def scenes(config: ClutterConfig, ids: np.ndarray) -> Scenes:
    """These scenes. Each is settled on first use, so that a few rows do not wait for the whole bank."""
    bank = _bank_of(config)
    due = np.unique(ids[~is_made(bank.poses[ids])])
    if len(due):
        if not bank.warned:
            logging.getLogger("milkrun").warning(
                "this tray is not shipped: %d of its %d scenes are settled now, others when rows begin them; about "
                "0.1 s each, and they are kept",
                len(due),
                len(bank.poses),
            )
            bank.warned = True
        poses = settled(config, due.tolist())
        bank.hits[due] = hits(config, poses)
        bank.poses[due] = poses  # last, since a pose marks a scene as settled
        _keep(key_of(config), bank.poses)
    return Scenes(bank.poses[ids], bank.hits[ids])


def is_made(poses: np.ndarray) -> np.ndarray:
    """(Q,) whether each of these scenes is settled: its quaternions are not 0."""
    return np.asarray(poses[:, 0, 3:].any(1))


def key_of(config: ClutterConfig) -> str:
    """A hash of all that the scenes of a configuration depend on."""
    key = (model_xml(config, cup=False), LAW, seed_of(config), config.split, config.rest_speed, config.rest_spin)
    return hashlib.sha256(repr(key).encode()).hexdigest()[:24]


def seed_of(config: ClutterConfig) -> int:
    """The seed of the scenes; test scenes have the same seed for all configurations."""
    return 0 if config.split == "test" else config.bank_seed


@dataclass(frozen=True)
class _Wanted:
    """The cache key of a bank."""

    key: str
    count: int
    ray_samples: int
    config: ClutterConfig = field(compare=False)


@dataclass
class _Bank:
    """The scenes of this process; zeros where one is not settled yet."""

    poses: np.ndarray
    hits: np.ndarray
    warned: bool = False  # whether settling was logged


def _bank_of(config: ClutterConfig) -> _Bank:
    return _load(_Wanted(key_of(config), scenes_of(config), config.ray_samples, config))


@lru_cache(maxsize=8)
def _load(wanted: _Wanted) -> _Bank:
    """The shipped scenes, and the cached ones of the rest."""
    config, count, rays = wanted.config, wanted.count, 3 * wanted.ray_samples**2
    n = config.total_objects_per_env
    bank = _Bank(np.zeros((count, n, 7)), np.zeros((count, n, rays), np.int16))
    shipped = _shipped(wanted.key, config.split)
    if shipped is not None:
        bank.poses[: len(shipped.poses)] = shipped.poses[:count]
        if shipped.hits.shape[2] == rays:
            bank.hits[: len(shipped.hits)] = shipped.hits[:count]
        else:
            bank.hits[: len(shipped.hits)] = hits(config, shipped.poses[:count])
    missing = ~is_made(bank.poses)
    kept = _kept(wanted.key) if missing.any() else None
    if kept is not None:
        found = np.flatnonzero(missing[: len(kept)] & is_made(kept[:count]))
        if len(found):
            bank.poses[found] = kept[found]
            bank.hits[found] = hits(config, kept[found])
    return bank


# -- files ------------------------------------------------------------------------------------------------------------


def _shipped(key: str, split: str) -> Scenes | None:
    """The shipped bank with this key, if any. Of other files only the key is read."""
    for file in resources.files("milkrun.clutter").joinpath("banks").iterdir():
        if file.name.endswith(".npz"):
            with file.open("rb") as opened, np.load(opened) as saved:
                if str(saved[f"{split}_key"]) == key:
                    return Scenes(saved[f"{split}_poses"], saved[f"{split}_hits"])
    return None


def _name(key: str) -> str:
    return f"clutter-poses-{key}-{mujoco.__version__}.npz"


def _kept(key: str) -> np.ndarray | None:
    """Cached poses, zeros for missing ones; None if there is no trusted, complete file."""
    found = disk_cache.find(_name(key), key.encode())
    if found is None:
        return None
    with np.load(io.BytesIO(found)) as saved:
        poses: np.ndarray = saved["poses"]
    return poses


def _keep(key: str, poses: np.ndarray) -> None:
    """Cache these scenes, merged with those that other processes have cached."""
    before = _kept(key)
    if before is not None:
        whole = np.zeros((max(len(before), len(poses)), *poses.shape[1:]))
        whole[: len(before)] = before
        whole[: len(poses)][is_made(poses)] = poses[is_made(poses)]
        poses = whole
    file = io.BytesIO()
    np.savez_compressed(file, poses=poses)
    disk_cache.keep(_name(key), key.encode(), file.getvalue())


# -- drawing and settling ---------------------------------------------------------------------------------------------


@kernel
def draw_scene(w, b, seed, purpose):
    """Start poses of the fall: layers of two objects, one above the other, with random rotations."""
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
        # A uniform random rotation from three uniforms (Shoemake, Graphics Gems III, 1992).
        u = uniform(s, first)
        v, t = 2.0 * math.pi * uniform(s, first + 1), 2.0 * math.pi * uniform(s, first + 2)
        w.physics[b, p + 3], w.physics[b, p + 4] = math.sqrt(1.0 - u) * math.sin(v), math.sqrt(1.0 - u) * math.cos(v)
        w.physics[b, p + 5], w.physics[b, p + 6] = math.sqrt(u) * math.sin(t), math.sqrt(u) * math.cos(t)


@kernel
def cast_scene(w, b):
    cast(w, b)


def settled(config: ClutterConfig, scenes: Sequence[int]) -> np.ndarray:
    """(len(scenes), N, 7) poses of these scenes; scene k does not depend on the others."""
    starts = range(0, len(scenes), AT_ONCE)
    return np.concatenate([_settle(config, np.array(scenes[k : k + AT_ONCE])) for k in starts])


def _settle(config: ClutterConfig, scenes: np.ndarray) -> np.ndarray:
    log_warnings()
    count, n = len(scenes), config.total_objects_per_env
    high, tray = (
        mjbatch.Batch(mujoco.MjModel.from_xml_string(model_xml(config, wall=wall, cup=False)), count, persistent=True)
        for wall in (HIGH, None)
    )
    outlive_forks(high, tray)
    poses, attempt = np.zeros((count, n, 7)), np.zeros(count, np.int64)
    pending = np.arange(count)
    while len(pending):
        # A few scenes suffice to detect a tray that is too full.
        tried = pending[:FEW] if len(pending) == count and attempt[0] else pending
        if attempt[tried].max() >= ATTEMPTS:
            worst = int(scenes[tried[attempt[tried].argmax()]])
            raise ConfigError(
                f"scene {worst} does not settle: {n} objects in a tray of {config.side:.3g} m with walls "
                f"of {config.wall:.3g} m, after {ATTEMPTS} attempts; take fewer objects or a larger tray"
            )
        ids = tried.astype(np.int32)
        _put(high, ids, drawn(config, scenes[tried], attempt[tried]))
        _fall(config, high, ids)
        poses[tried] = high.qpos[tried].reshape(-1, n, 7)
        accepted = tried[_accept(config, tray, ids, poses)]
        attempt[tried] += 1
        pending = np.setdiff1d(pending, accepted)
    return poses


def drawn(config: ClutterConfig, scenes: np.ndarray, attempt: np.ndarray) -> np.ndarray:
    """(len(scenes), N * 7) start poses of the fall."""
    arrays = _run(
        _drawer(), config, len(scenes), {"scene": scenes, "attempt": attempt}, seed_of(config), PURPOSES[config.split]
    )
    return arrays["physics"]


def _put(batch: Any, ids: np.ndarray, poses: np.ndarray) -> None:
    """Set poses at rest, after a reset that clears the engine's data outside of its state."""
    batch.reset(ids, stage=mujoco.mjtStage.mjSTAGE_NONE.value)
    batch.qpos[ids] = poses.reshape(len(ids), -1)


def _fall(config: ClutterConfig, batch: Any, ids: np.ndarray) -> None:
    """Step until each row was quiet for some checks, or to the limit of checks."""
    quiet = np.zeros(len(ids), np.int64)
    for _ in range(CHECKS):
        falling = quiet < QUIET_CHECKS
        if not falling.any():
            return
        with suppress(mjbatch.SimulationError):  # such a row keeps its pose, which `_accept` checks
            batch.step(ids[falling], nstep=CHECK)
        still = _slow(config, batch.qvel[ids[falling]])
        quiet[falling] = np.where(still, quiet[falling] + 1, 0)


def _accept(config: ClutterConfig, batch: Any, ids: np.ndarray, poses: np.ndarray) -> np.ndarray:
    """Whether each of these scenes lies still in the tray; moving ones are tried again from their new poses."""
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
    """Deepest overlap of objects with each other or the tray in m; jammed objects may lie still in overlap."""
    data = mujoco.MjData(model)
    data.qpos[:] = pose.ravel()
    mujoco.mj_fwdPosition(model, data)
    return float(-data.contact.dist.min(initial=0.0))


def _slow(config: ClutterConfig, qvel: np.ndarray) -> np.ndarray:
    speeds = abs(qvel).reshape(len(qvel), -1, 6)
    limits = np.repeat([config.rest_speed, config.rest_spin], 3)
    return np.asarray((speeds < limits).all((1, 2)))


def hits(config: ClutterConfig, poses: np.ndarray) -> np.ndarray:
    """(Q, N, R) the objects that the rays of each scene hit first."""
    given = {"physics": np.ascontiguousarray(poses.reshape(len(poses), -1))}
    return _run(_caster(), config, len(poses), given)["hit"]


# -- kernels without a world ------------------------------------------------------------------------------------------

FIELDS = named(
    {
        "physics": state(float64, "S"),
        "hit": state(int16, "N", "R"),
        "grasped": state(bool_, "N"),
        "lost": state(bool_, "N"),
        "scene": state(int64),
        "attempt": state(int64),
        "frame": scratch(float64, "N", 9),
        "extent": scratch(float64, "N", 3),
        "point": scratch(float64, "R", 3),
        "order": scratch(int64, "N"),
        "half": constant(float64, "N", 3),
        "is_can": constant(bool_, "N"),
        "sample_at": constant(int64, "R", 3),
        "spread": constant(float64, "G"),
        "at_qpos": constant(int64),
        "half_side": constant(float64),
        "wall_top": constant(float64),
    }
)
LAYOUT = RecordLayout(FIELDS, ["N", "S", "G", "R"], "scenes")


def shapes(config: ClutterConfig) -> dict[str, np.ndarray]:
    """Tables of objects for casting rays."""
    half = np.array([t.size for t in config.types]) / 2
    cans = np.array([t.shape == "cylinder" for t in config.types])
    g = config.ray_samples
    sample_at = np.indices((3, g, g)).reshape(3, -1).T
    spread = (2 * np.arange(g) + 1.0) / g - 1.0
    return {"half": half, "is_can": cans, "sample_at": sample_at, "spread": spread}


def _run(entry: Entry, config: ClutterConfig, rows: int, given: dict[str, Any], *numbers: int) -> dict[str, np.ndarray]:
    """Run a kernel over all rows and return the arrays."""
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


def log_warnings() -> None:
    """Send MuJoCo's warnings to the logger `milkrun`, unless a handler is set already.

    By default MuJoCo prints them and writes a file into the user's folder. The handler belongs to the process, and
    threads of the engine call it too.
    """
    if mujoco.get_mju_user_warning() is None:
        mujoco.set_mju_user_warning(_log)


def _log(text: str) -> None:
    logging.getLogger("milkrun").info("MuJoCo: %s", text)
