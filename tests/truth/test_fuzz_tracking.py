"""Mutated towns, states, TensorDicts, options and actions of the tracking world: a named refusal or a legal step.

An accepted row plays on: all numbers stay finite and within their declared bounds. Interpreted kernels make no access
out of bounds and give the same bits as compiled ones, pictures included. Each case has its own seed, which the failure
prints. Every run tries a few thousand cases, the tests marked `long` a million.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import milkrun
from milkrun.core.check.bench import TOLERANCE, first_difference
from milkrun.core.errors import BadInstance, ConfigError, MilkrunError
from milkrun.core.fields import Role
from milkrun.tracking.config import TrackingConfig
from milkrun.tracking.instances import DERIVED
from milkrun.tracking.rendering import render
from milkrun.tracking.tables import WEATHERS
from milkrun.tracking.world import Tracking
from tests.truth.fuzz_tracking import (
    FLOATS,
    INTS,
    KINDS,
    SMALL,
    STATES,
    TOWN,
    actions_of,
    bits,
    made,
    play,
    restore_refused_rows,
    spoil,
    unsound,
)

ROWS = 16
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def copied(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: array.copy() for name, array in arrays.items()}


def moments(world: Any, count: int = 5) -> list[dict[str, np.ndarray]]:
    """Sound initial states: the start, and some steps later."""
    rng, found = np.random.default_rng(1), []
    for _ in range(count):
        found.append(world.state_dict())
        for _ in range(2):
            world.step(actions_of(world, rng, world.num_envs, 0.0))
            if world.done.any():
                world.reset(np.flatnonzero(world.done))
    return found


def tried(cases: range, one: Any, kind: str = "") -> tuple[int, int]:
    """Runs cases of a kind, each of which returns (tried, refused); returns the sums."""
    total = refused = 0
    for case in cases:
        try:
            more, fewer = one(np.random.default_rng([*kind.encode(), case]))
        except Exception as error:
            raise AssertionError(f"case {case}: {type(error).__name__}: {error}") from error
        total, refused = total + more, refused + fewer
    return total, refused


# -- states ---------------------------------------------------------------------------------------------------------


def states(kind: str, cases: range) -> tuple[int, int]:
    """Sixteen rows a case, one to three fields of each changed, loaded and played for three steps."""
    world = made(ROWS, kind)
    begun = moments(world)

    def one(rng: np.random.Generator) -> tuple[int, int]:
        sound = begun[rng.integers(len(begun))]
        arrays = copied(sound)
        for b in range(ROWS):
            spoil(rng, world, arrays, STATES if rng.random() < 0.9 else TOWN, b)
        refused = restore_refused_rows(world.load_state_dict, arrays, sound)
        play(world, rng, 3)
        return ROWS, len(refused)

    return tried(cases, one, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_some_mutated_states_are_refused_or_played(kind):
    """240 of each kind of world."""
    total, refused = states(kind, range(15))
    assert total == 240 and 50 < refused < 190


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", KINDS)
def test_many_mutated_states_are_refused_or_played(kind):
    """40,000 of each kind of world: 160,000."""
    assert states(kind, range(1000, 3500))[0] == 40_000


# -- towns ----------------------------------------------------------------------------------------------------------


def towns(kind: str, cases: range) -> tuple[int, int]:
    """Sixteen towns a case, complete or without derived fields, loaded and played."""
    world = made(ROWS, kind)
    drawn = [{name: getattr(world, name).copy() for name in TOWN}]
    for _ in range(3):
        world.reset()
        drawn.append({name: getattr(world, name).copy() for name in TOWN})
    sources = [name for name in TOWN if name not in DERIVED]

    def one(rng: np.random.Generator) -> tuple[int, int]:
        names = TOWN if rng.random() < 0.5 else sources
        chosen = drawn[rng.integers(len(drawn))]
        sound = {name: chosen[name] for name in names}
        arrays = copied(sound)
        for b in range(ROWS):
            spoil(rng, world, arrays, names, b)
        refused = restore_refused_rows(lambda given: world.reset(instance=given), arrays, sound)
        play(world, rng, 3)
        world.load_state_dict(world.state_dict())  # it would take itself in
        return ROWS, len(refused)

    return tried(cases, one, kind)


@pytest.mark.parametrize("kind", ["plain", "e2e"])
def test_some_mutated_towns_are_refused_or_played(kind):
    """160 of each kind of world."""
    total, refused = towns(kind, range(10))
    assert total == 160 and 30 < refused < 150


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", KINDS)
def test_many_mutated_towns_are_refused_or_played(kind):
    """16,000 of each kind of world: 64,000."""
    assert towns(kind, range(1000, 2000))[0] == 16_000


# -- TensorDicts ----------------------------------------------------------------------------------------------------


def tensordicts(kind: str, cases: range) -> tuple[int, int]:
    """Sixteen rows of a TensorDict a case, values changed, stepped functionally."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("torchrl")
    options = {**SMALL, **KINDS[kind]}
    env = milkrun.make("milkrun/Tracking-v0", ROWS, api="torchrl", seed=3, **options)
    world = env.template
    base = env.reset()
    begun = [base]
    for _ in range(4):
        base = base.set("action", env.sample_actions(base))
        base = env.step_and_maybe_reset(base)[1]
        begun.append(base)
    where = {key[-1]: key for key in (k if isinstance(k, tuple) else (k,) for k in base.keys(True, True))}
    names = [name for name in (*STATES, *TOWN) if name in where and base[where[name]].numel()]

    def one(rng: np.random.Generator) -> tuple[int, int]:
        source = begun[rng.integers(len(begun))].clone()
        source["action"] = torch.from_numpy(actions_of(world, rng, ROWS))
        sound = {name: source[where[name]].numpy().copy() for name in names}
        arrays = copied(sound)
        for b in range(ROWS):
            spoil(rng, world, arrays, names, b)

        def step(given: dict[str, np.ndarray]) -> None:
            nonlocal after
            td = source.clone()
            for name in names:
                td[where[name]] = torch.from_numpy(given[name].copy()).reshape(td[where[name]].shape)
            after = env.step(td)["next"]

        after: Any = None
        refused = restore_refused_rows(step, arrays, sound)
        for key in after.keys(True, True):
            value = after[key]
            assert not value.dtype.is_floating_point or bool(torch.isfinite(value).all()), key
        return ROWS, len(refused)

    return tried(cases, one, kind)


@pytest.mark.parametrize("kind", ["plain", "velocity"])
def test_some_mutated_tensordicts_are_refused_or_stepped(kind):
    """160 of each of two kinds of world."""
    total, refused = tensordicts(kind, range(10))
    assert total == 160 and 20 < refused < 150


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", KINDS)
def test_many_mutated_tensordicts_are_refused_or_stepped(kind):
    """16,000 of each kind of world: 64,000."""
    assert tensordicts(kind, range(1000, 2000))[0] == 16_000


# -- options --------------------------------------------------------------------------------------------------------

COSTLY = {"size": (16, 17, 31, 48), "lidar_points": (1, 7, 33), "frame_stack": (0, 1, 3, 16), "max_boxes": (1, 2, 90),
          "ground_cell": (0.99, 2.0, 3.3, 10.0), "half_extent": (120.0, 120.5, 400.0), "max_vehicles": (1, 2, 16, 64),
          "supersample": (1, 2)}  # fmt: skip
"""Sizes; accepted ones stay small."""
WORDS = (
    "D-VAT",
    "as_published",
    "velocity",
    "straight",
    "lake",
    ("day", "snow"),
    ("bus",),
    "",
    "citystreet",
    None,
    True,
    False,
    [],
    (),
    {},
    object(),
    b"day",
    "1",
    1j,
    np.float32(3),
    np.int8(2),
    10**400,
)
NAMES = [name for name in TrackingConfig.__dataclass_fields__ if name not in ("verbose", "need_render", "norm")]


def any_option(rng: np.random.Generator, name: str) -> Any:
    """A value for an option: at or beyond its bounds, one of its choices, a pair, or something strange."""
    facts = TrackingConfig.__dataclass_fields__[name].metadata
    ends = [x for x in (facts.get("low"), facts.get("high")) if x is not None]
    if name in COSTLY and rng.random() < 0.9:
        return COSTLY[name][rng.integers(len(COSTLY[name]))]
    how = rng.random()
    if facts.get("choices") and how < 0.7:
        return facts["choices"][rng.integers(len(facts["choices"]))]
    default = getattr(TrackingConfig(), name)
    if isinstance(default, tuple) and how < 0.4:
        return tuple(sorted(x * rng.uniform(0.8, 1.2) for x in default))
    if isinstance(default, tuple) and how < 0.8:
        return tuple(any_number(rng, ends) for _ in range(rng.choice([2, 2, 2, 2, 1, 3])))
    if how < 0.85:
        return any_number(rng, ends)
    return WORDS[rng.integers(len(WORDS))]


def any_number(rng: np.random.Generator, ends: list[Any]) -> Any:
    how = rng.random()
    if how < 0.25 and ends:
        return ends[rng.integers(len(ends))]
    if how < 0.4 and len(ends) == 2:
        return type(ends[1])(min(ends[1], ends[0] + (ends[1] - ends[0]) * 10.0 ** -rng.uniform(0, 320)))
    if how < 0.5:
        return float(rng.uniform(0, 2)) if how < 0.45 else float(rng.integers(-3, 30))
    return int(rng.choice(INTS[:9])) if how < 0.65 else FLOATS[rng.integers(len(FLOATS))]


def options(cases: range) -> tuple[int, int]:
    """One configuration a case; the world of it plays two steps."""

    def one(rng: np.random.Generator) -> tuple[int, int]:
        given = {name: any_option(rng, name) for name in rng.choice(NAMES, rng.integers(1, 4), replace=False).tolist()}
        try:
            config = TrackingConfig.build(config={**SMALL, **given})
        except MilkrunError:
            return 1, 1
        if config.link is not None or config.auto_start:  # for environments whose simulator is elsewhere
            with pytest.raises(ConfigError, match=r"milkrun\.compat\.dat"):
                Tracking.variant(config)(2, config)
            return 1, 1
        try:
            world = Tracking.variant(config)(2, config, seed=int(rng.integers(100)), autoreset="disabled", threads=1)
            world.reset()
            play(world, rng, 2)
            world.load_state_dict(world.state_dict())
        except Exception as error:
            raise AssertionError(f"{given}: {type(error).__name__}: {error}") from error
        return 1, 0

    return tried(cases, one)


def test_some_mutated_options_are_refused_or_played():
    """300 configurations."""
    total, refused = options(range(300))
    assert total == 300 and 60 < refused < 240


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_many_mutated_options_are_refused_or_played():
    """12,000 configurations."""
    assert options(range(1000, 13_000))[0] == 12_000


# -- actions --------------------------------------------------------------------------------------------------------

STRANGE: tuple[Any, ...] = (
    None,
    "stop",
    [1, 2],
    np.zeros(3),
    np.zeros((ROWS, 2), int),
    np.zeros(ROWS, bool),
    3,
    {},
    [[]],
    np.zeros((ROWS, 4, 1)),
    np.full(ROWS, "6"),
    np.zeros(ROWS, complex),
    [None] * ROWS,
    np.zeros((0, 4)),
    np.array([object()] * ROWS),
)


def wild_actions(kind: str, rows: int, turns: int) -> int:
    """Any numbers as actions, half of them invalid. These are flagged and fly like the stop of a twin world."""
    world, twin = (made(rows, kind, seed=8) for _ in range(2))
    rng, stop = np.random.default_rng(5), 0.0 if world.action.kind == "box" else 6
    for turn in range(turns):
        acts = actions_of(world, rng, rows, wild=0.5)
        fine = (abs(acts) <= 1).all(1) if world.action.kind == "box" else (acts >= 0) & (acts < 7)
        world.step(acts)
        twin.step(np.where(fine.reshape(-1, *[1] * (acts.ndim - 1)), acts, acts.dtype.type(stop)))
        assert (world.illegal == ~fine).all() and not twin.illegal.any()
        one, other = bits(world), bits(twin)
        assert [name for name in one if one[name] != other[name] and name != "illegal"] == [], f"turn {turn}"
        wrong = unsound(world)
        assert not wrong, wrong
        for each in (world, twin):
            if each.done.any():
                each.reset(np.flatnonzero(each.done))
    return rows * turns


@pytest.mark.parametrize("kind", ["plain", "velocity"])
def test_some_wild_actions_fly_as_stop(kind):
    """5,120 of each kind of action."""
    assert wild_actions(kind, 256, 20) == 5_120


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", ["plain", "velocity"])
def test_many_wild_actions_fly_as_stop(kind):
    """350,000 of each kind of action: 700,000."""
    assert wild_actions(kind, 500, 700) == 350_000


@pytest.mark.parametrize("kind", ["plain", "velocity"])
@pytest.mark.parametrize("strange", range(len(STRANGE)))
def test_what_is_no_array_of_actions_is_refused(kind, strange):
    """And nothing changes."""
    world = made(ROWS, kind)
    before = bits(world)
    with pytest.raises(MilkrunError):
        world.step(STRANGE[strange])
    assert bits(world) == before


# -- pictures -------------------------------------------------------------------------------------------------------


def pictures(cases: range) -> tuple[int, int]:
    """One picture a case, of any boxes from any place in any light: complete, with finite depths."""

    def number(rng: np.random.Generator) -> float:
        return FLOATS[rng.integers(len(FLOATS))] if rng.random() < 0.05 else rng.normal() * 10.0 ** rng.integers(-3, 3)

    def one(rng: np.random.Generator) -> tuple[int, int]:
        n = int(rng.integers(1, 5))
        pos, half, eye = ([[number(rng) for _ in range(3)] for _ in range(n)] for _ in range(3))
        half = np.abs(half) if rng.random() < 0.9 else half
        light = {"light": np.abs([number(rng) for _ in range(8)])} if rng.random() < 0.2 else WEATHERS[rng.integers(4)]
        angles = [number(rng) for _ in range(3)]
        try:
            place, boxes, noise = (*eye[0][:2], abs(eye[0][2])), {"pos": pos, "half": half}, bool(rng.random() < 0.5)
            image, ids, depth = render(place, *angles, boxes, None, light, 16, noise=noise)
        except BadInstance:
            return 1, 1
        assert image.dtype == np.uint8 and image.shape == (3, 16, 16)
        assert (
            (depth >= 0).all() and (ids >= -2).all() and (ids < 8 * n).all() and (np.isinf(depth) == (ids == -1)).all()
        )
        return 1, 0

    return tried(cases, one)


def test_some_strange_pictures_are_refused_or_made():
    """100 of them."""
    total, refused = pictures(range(100))
    assert total == 100 and 20 < refused < 90


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_many_strange_pictures_are_refused_or_made():
    """10,000 of them."""
    assert pictures(range(1000, 11_000))[0] == 10_000


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"pos": (0, 0, 1e300)}, r"pos = 1e\+300: must be within \+-1e\+08"),
        (
            {"boxes": {"pos": [(0, 0, 0), (1e9, 0, 0)], "half": np.ones((2, 3))}},
            r"row 1: boxes\['pos'\] = 1000000000.0: ",
        ),
        (
            {"light": {"light": [1, 0.5, 0, 0, 1, 0, 2, 1e12]}},
            r"light\['light'\]\[7\] = 1000000000000.0: must be in 0..1",
        ),
    ],
)
def test_numbers_that_no_picture_has_are_refused(given, sentence):
    """A place beyond all maps; more flakes than pixels, which would be drawn one by one."""
    with pytest.raises(BadInstance, match=sentence):
        render(
            **{"pos": (0, 0, 20), "yaw": 0, "pitch": 1, "roll": 0, "boxes": None, "ground": None, "size": 16} | given
        )


# -- interpreted ----------------------------------------------------------------------------------------------------


def interpreted(kind: str, cases: range) -> int:
    """Accepted rows, played by compiled kernels and by interpreted ones, which raise on an access out of bounds."""
    world, checked = made(ROWS, kind), made(2, kind, debug=True)
    begun, played = moments(world), 0

    def one(rng: np.random.Generator) -> tuple[int, int]:
        nonlocal played
        sound = begun[rng.integers(len(begun))]
        arrays = copied(sound)
        for b in range(ROWS):
            spoil(rng, world, arrays, STATES if rng.random() < 0.7 else TOWN, b)
        refused = restore_refused_rows(world.load_state_dict, arrays, sound)
        live = [b for b in range(ROWS) if b not in refused and not (world.terminated[b] or world.truncated[b])][:2]
        if len(live) < 2:
            return ROWS, len(refused)
        checked.load_state_dict(world.state_dict(live))
        acts = actions_of(world, rng, 2)
        world.step(acts, rows=live)
        checked.step(acts)
        world.observe(rows=live)
        checked.observe()
        for f in world.fields.values():
            if f.role in (Role.STATE, Role.VIEW, Role.MASK):
                one, other = getattr(world, f.name)[live], getattr(checked, f.name)
                assert first_difference(f.name, one, other, TOLERANCE) is None
        played += 2
        return ROWS, len(refused)

    tried(cases, one, kind)
    return played


@pytest.mark.parametrize("kind", KINDS)
def test_some_mutants_are_the_same_when_interpreted(kind):
    """Some of each kind of world: no access error, and the same bits as compiled."""
    assert interpreted(kind, range(2)) >= 2


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", KINDS)
def test_many_mutants_are_the_same_when_interpreted(kind):
    """Hundreds of each kind of world."""
    assert interpreted(kind, range(1000, 1300)) >= 400
