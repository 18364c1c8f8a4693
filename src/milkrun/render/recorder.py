"""Records the episodes of rows: `EpisodeRecorder` captures each row before and after every step.

An `EpisodeRecorder` is stepped in place of the world and does not change it: arrays, streams and results equal those of
an unrecorded run. Each episode becomes a `Recording`, the same under all three autoreset modes. `milkrun.replay` makes
files and pages of recordings.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from milkrun.core.actions import action_array
from milkrun.core.arguments import Rows, read_rows
from milkrun.core.errors import ConfigError, ShapeError, did_you_mean
from milkrun.core.fields import Role
from milkrun.core.instances import as_array, instances_of
from milkrun.core.world import World
from milkrun.render.hooks import StepHooks
from milkrun.render.scene import Chart, Part, Scene, equal, resolve_texts, texts_of_actions

MOST_REASONS = 200_000  # frames times actions, above which reasons="auto" drops those of masked actions
OVER = "the episode is over"
REASONS = ("auto", "all", "requested", "none")


@dataclass(eq=False)
class Recording:
    """One episode of one row: T steps, captured at F + 1 frames, the first before the first step.

    One entry per step (T,): `actions`, `rewards`, `illegal`, `scores`. One per state between steps (T + 1):
    `objectives`, `masks`, `mask_reasons`. One per frame (F + 1): `scenes`, and `columns` of the requested fields.
    `ends` (T,) is the frame at which each step ended.
    """

    world_row: int  # the row of the world
    number: int  # of this row's episodes, counted from 0
    header: dict[str, Any]
    """world, title, policy, config, seed, row, episode, instance, fps, is_cost, agents, names"""
    actions: list[Any] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    illegal: list[bool] = field(default_factory=list)
    illegal_reasons: list[tuple[int, int, str]] = field(default_factory=list)
    scores: list[np.ndarray] = field(default_factory=list)
    objectives: list[float] = field(default_factory=list)
    masks: list[np.ndarray] = field(default_factory=list)
    mask_reasons: list[list[str]] | None = None
    scenes: list[Scene] = field(default_factory=list)
    columns: dict[str, list[Any]] = field(default_factory=dict)
    ends: list[int] = field(default_factory=list)
    end: str = ""
    chart: Chart | None = None
    expected_state: Any = None  # key of the state after the last step; None: the episode has ended

    @property
    def steps(self) -> int:
        return len(self.actions)

    @property
    def frames(self) -> int:
        return self.ends[-1] if self.ends else 0

    def fields(self, names: Iterable[str]) -> dict[str, np.ndarray]:
        """The argument of `World.chart`: fields by name, frame first, and `action`, step first."""
        return {**{name: np.array(self.columns[name]) for name in names}, "action": np.array(self.actions)}


@dataclass(eq=False)
class _PendingStep:
    """A step of a recorded row that has begun."""

    recording: Recording
    action: Any
    reasons: list[tuple[int, str]]
    scores: np.ndarray | None
    start: dict[str, np.ndarray]  # the state of the row before the step, under SAME_STEP
    frames: list[Any] = field(default_factory=list)


class EpisodeRecorder(StepHooks):
    """Wrapper that records rows of a world: step it in place of the world; all other attributes are the world's.

    An episode begins with the first step, and with each step that does not continue the state after the last one.
    `fields` are recorded in addition to those that the chart of the world needs; `scenes=False` records only them.

    `reasons` selects for which actions to record why they are masked: "all", "requested" (illegal actions that were
    played), "none", or "auto": all of them while frames times actions are at most 200,000, then as "requested".
    """

    def __init__(
        self,
        world: Any,
        rows: Rows = (0,),
        *,
        policy: str = "",
        fields: tuple[str, ...] = (),
        scenes: bool = True,
        reasons: str = "auto",
    ) -> None:
        if not hasattr(world, "num_envs"):
            raise ConfigError(
                f"an EpisodeRecorder records a world as milkrun.make returns it, not a {type(world).__name__}"
            )
        super().__init__(world)
        if reasons not in REASONS:
            raise ConfigError(f"reasons={reasons!r}: must be one of {', '.join(REASONS)}")
        self.rows = read_rows(rows, world.num_envs)
        if scenes:
            world.refuse_unready(self.rows)
        self.policy = policy
        self.reasons = reasons
        self._scenes = scenes
        self._fields = tuple(dict.fromkeys((*fields, *(world.chart_fields if scenes else ()))))
        for name in self._fields:
            if name not in world.fields:
                where = "fields" if name in fields else f"{name_of(world)}: chart_fields"
                raise ConfigError(f"{where} names {name!r}, which is no field{did_you_mean(name, world.fields)}")
        self._recordings: dict[int, list[Recording]] = {row: [] for row in sorted(self.rows.tolist())}
        self._pending: dict[int, _PendingStep] = {}
        self._scores: np.ndarray | None = None
        self._replay_world: Any = None
        self._offsets = np.cumsum([0, *world.action.nvec(world.sizes)])
        self._mask_size = int(self._offsets[-1]) if world._mask is not None else 0

    def episodes(self) -> list[Recording]:
        """The recordings by row, in the order of time; an unfinished episode up to its last step."""
        for row, recordings in self._recordings.items():
            if recordings and recordings[-1].steps and not recordings[-1].end:
                self._store_chart(recordings[-1], self.world, row)
        return [recording for recordings in self._recordings.values() for recording in recordings if recording.steps]

    def note_scores(self, scores: Any) -> None:
        """Store the policy's scores of each action for the next step, (B, A)."""
        given = as_array("scores", scores)
        expected = (self.world.num_envs, int(self._offsets[-1]))
        if given.dtype.kind not in "fiu" or given.shape != expected:
            raise ShapeError(f"scores must be numbers of shape {expected}, not {given.dtype} {given.shape}")
        self._scores = given.astype(np.float32)

    # -- a step -----------------------------------------------------------------------------------------------

    def step(self, actions: Any, rows: Rows = None) -> None:
        """Same as `World.step`."""
        for _ in self.step_frames(actions, rows):
            pass

    def step_frames(self, actions: Any, rows: Rows = None) -> Iterator[Any]:
        self.before_step(actions, rows)
        for shown in self.world.step_frames(actions, rows):
            if shown is not None:
                for row in set(shown.tolist()) & set(self._pending):
                    pending = self._pending[row]
                    pending.frames.append(self._capture_frame(self.world, row, pending.recording))
            yield shown
        for row, pending in self._pending.items():
            world, end_row = self._find_end(row, pending)
            pending.frames.append(self._capture_frame(world, end_row, pending.recording))
            self._finish(pending, world, end_row)
            pending.recording.expected_state = None if pending.recording.end else self._state_key(row)
        self._pending = {}

    def before_step(self, actions: Any, rows: Rows) -> None:
        world = self.world
        self._pending = {}
        scores = self._scores
        self._scores = None
        stepped = np.arange(world.num_envs) if rows is None else read_rows(rows, world.num_envs)
        given = action_array("actions", actions)
        if given.shape != (len(stepped), *world._action_shape[1:]):
            return  # World.step raises the error
        plays = np.isin(stepped, self.rows)
        same_step = world.autoreset == "same_step"  # there flags are those of the episode before, and no row is done
        if not same_step:
            plays &= ~(world.terminated | world.truncated)[stepped]
        for row, action in zip(stepped[plays].tolist(), given[plays], strict=True):
            recordings = self._recordings[row]
            if not recordings or recordings[-1].expected_state != self._state_key(row):
                self._begin(row, recordings)
            row_scores = None if scores is None else scores[row].copy()
            start = world.state_dict([row]) if same_step else {}
            reasons = self._illegal_reasons(row, action)
            self._pending[row] = _PendingStep(recordings[-1], action.copy(), reasons, row_scores, start)

    def _state_key(self, row: int) -> Any:
        world = self.world
        # A reset or step that bypasses the recorder changes one of these numbers; a load mostly does.
        return (*world.stream[row].tolist(), int(world.i[row]), float(world.objective[row]))

    def _find_end(self, row: int, pending: _PendingStep) -> tuple[Any, int]:
        """A world and its row that hold the state after a step.

        Under SAME_STEP a row that ended has begun its next episode: the step is repeated in a world without autoreset.
        """
        world = self.world
        if not pending.start or not (world.terminated[row] or world.truncated[row]):
            return world, row
        if self._replay_world is None:
            options = {"threads": world.threads, "debug": world.debug}
            self._replay_world = type(_inner(world))(1, world.config, seed=0, autoreset="disabled", **options)
        for flag in ("terminated", "truncated", "done"):
            pending.start[flag][:] = False
        self._replay_world.load_state_dict(pending.start)
        self._replay_world.step(pending.action[None])
        return self._replay_world, 0

    def _begin(self, row: int, recordings: list[Recording]) -> None:
        world = self.world
        if recordings and not recordings[-1].steps:  # a step that raised begins no episode
            recordings.pop()
        recording = Recording(row, len(recordings), {**_header(world, row), "policy": self.policy})
        recording.columns = {name: [] for name in self._fields}
        if self._scenes and self._mask_size and self.reasons in ("auto", "all"):
            recording.mask_reasons = []
        self._append_frame(recording, self._capture_frame(world, row, recording))
        self._append_state(recording, world, row)
        if self._scenes:
            recording.header |= {"agents": agent_names(world), "names": self._action_names(recording)}
        recording.expected_state = self._state_key(row)
        recordings.append(recording)

    def _finish(self, pending: _PendingStep, world: Any, at: int) -> None:
        """Append a finished step; row `at` of `world` holds the state after it."""
        recording = pending.recording
        for frame in pending.frames:
            self._append_frame(recording, frame)
        recording.actions.append(pending.action)
        if pending.scores is not None:
            recording.scores.append(pending.scores)
        recording.rewards.append(float(world.reward[at]))
        recording.illegal.append(bool(world.illegal[at]))
        if recording.illegal[-1]:
            recording.illegal_reasons += [(recording.steps - 1, agent, text) for agent, text in pending.reasons]
        recording.ends.append(recording.frames + len(pending.frames))
        self._append_state(recording, world, at)
        if world.terminated[at] or world.truncated[at]:
            recording.end = "terminated" if world.terminated[at] else "truncated"
            self._store_chart(recording, world, at)

    # -- capture --------------------------------------------------------------------------------------------

    def _capture_frame(self, world: Any, row: int, recording: Recording) -> tuple[Scene | None, list[Any]]:
        """A frame: the scene, and the requested fields."""
        values = [_value(world, name, row) for name in self._fields]
        if not self._scenes:
            return None, values
        try:
            scene = world.scene(row)
            self._check_actions(scene)
            if recording.scenes:
                _share_unchanged(scene, recording.scenes[-1])
            else:
                resolve_texts(scene)
        except ConfigError as error:
            raise ConfigError(f"{name_of(world)}, scene of step {recording.steps}: {error}") from None
        return scene, values

    def _append_frame(self, recording: Recording, frame: tuple[Scene | None, list[Any]]) -> None:
        scene, values = frame
        if scene is not None:
            recording.scenes.append(scene)
        for kept, value in zip(recording.columns.values(), values, strict=True):
            kept.append(value)

    def _append_state(self, recording: Recording, world: Any, row: int) -> None:
        """Append the return so far, the action mask, and why each masked action is masked."""
        recording.objectives.append(float(world.objective[row]))
        if not self._mask_size or not self._scenes:
            return
        mask = world.action_mask[row].copy()
        recording.masks.append(mask)
        if self.reasons == "auto" and len(recording.masks) * self._mask_size > MOST_REASONS:
            recording.mask_reasons = None
        if recording.mask_reasons is not None:
            texts = [""] * self._mask_size
            over = bool(recording.steps and (world.terminated[row] or world.truncated[row]))
            for index in np.flatnonzero(~mask).tolist():
                texts[index] = OVER if over else world.why_masked(row, index)
            recording.mask_reasons.append(texts)

    def _illegal_reasons(self, row: int, action: np.ndarray) -> list[tuple[int, str]]:
        """Why this action is illegal, by agent. Computed before the step, which changes the state."""
        world = self.world
        if self.reasons == "none" or not self._scenes or world.action.kind == "box":
            return []
        if not self._mask_size or not world.mask_lists_all:
            return [(0, world.why_illegal(row, action.tolist()))]
        reasons = []
        for agent, a in enumerate(np.atleast_1d(action).tolist()):
            low, high = self._offsets[agent : agent + 2].tolist()
            if not 0 <= a < high - low:
                reasons.append((agent, f"{a} is not one of its {high - low} actions"))
            elif not world.action_mask[row, low + a]:
                reasons.append((agent, world.why_masked(row, low + a)))
        return reasons

    def _store_chart(self, recording: Recording, world: Any, row: int) -> None:
        if not self._scenes:
            return
        try:
            recording.chart = world.chart(row, recording.fields(world.chart_fields))
            if not isinstance(recording.chart, Chart | None):
                raise ConfigError(f"it must be a Chart or None, not a {type(recording.chart).__name__}")
        except ConfigError as error:
            raise ConfigError(f"{name_of(world)}, chart of step {recording.steps}: {error}") from None

    def _action_names(self, recording: Recording) -> list[list[str]]:
        world, texts = self.world, texts_of_actions(recording.scenes[0])
        named = type(_inner(world)).action_name is not World.action_name  # the default makes a scene for each action
        return [
            [world.action_name(agent, a) if named else texts.get(low + a, f"action {a}") for a in range(high - low)]
            for agent, (low, high) in enumerate(pairwise(self._offsets.tolist()))
        ]

    def _check_actions(self, scene: Scene) -> None:
        for name, part in scene.marks.items():
            action = part.attributes.get("action")
            if action is not None and action.size and not (-1 <= action.min() and action.max() < self._mask_size):
                raise ConfigError(
                    f"mark {name!r}, action: {action.min()}..{action.max()} is not within -1..{self._mask_size - 1}"
                )


def name_of(world: Any) -> str:
    return world.id or type(_inner(world)).__name__


def agent_names(world: Any) -> list[str]:
    """Display names of agents: truck, drone 0, drone 1."""
    groups = [(group, len(names)) for group, names in world.groups.items()]
    return [group if n == 1 else f"{group} {k}" for group, n in groups for k in range(n)] or ["agent"]


def _inner(world: Any) -> Any:
    while isinstance(world, StepHooks):
        world = world.world
    return world


def _value(world: Any, name: str, row: int) -> Any:
    f = world.fields[name]
    value = getattr(world, name)[world.instance_row[row] if f.role is Role.INSTANCE else row]
    return value.copy()


def _header(world: Any, row: int) -> dict[str, Any]:
    """The header of a recording; `instance` is the first 16 digits of the SHA-256 of the row's instance."""
    seed, number, episode = world.stream[row].tolist()
    instance = b"".join(array.tobytes() for array in instances_of(world, [row]).values())
    spec = getattr(world, "spec", None)
    return {
        "world": name_of(world),
        "title": spec.title if spec is not None else type(_inner(world)).__name__,
        "config": world.config.as_json(),
        "seed": seed,
        "row": number,
        "episode": episode,
        "instance": hashlib.sha256(instance).hexdigest()[:16],
        "fps": world.fps,
        "is_cost": world.is_cost,
    }


def _share_unchanged(scene: Scene, last: Scene) -> None:
    """Replace unchanged attributes by those of the frame before, to save memory.

    Raises ConfigError where the scene changes what must be the same at every step.
    """
    for kind, now, then in (
        ("mark", scene.marks, last.marks),
        ("figure", scene.figures, last.figures),
        ("gauge", scene.gauges, last.gauges),
        ("image", scene.images, last.images),
    ):
        if set(now) != set(then):
            name = sorted(set(now) ^ set(then))[0]
            found = "new" if name in now else "missing"
            raise ConfigError(f"{kind} {name!r} is {found}: a scene has the same at every step")
    for name, part in scene.marks.items():
        before = last.marks[name]
        if part.kind != before.kind:
            raise ConfigError(f"mark {name!r} is {part.kind}, before it was {before.kind}")
        _share_attributes(name, part, before)


def _share_attributes(name: str, part: Part, before: Part) -> None:
    for key, now in part.attributes.items():
        then: Any = before.attributes.get(key)
        if callable(now) and then is None:
            raise ConfigError(f"mark {name!r} has {key} for the first time: a scene has the same at every step")
        if isinstance(now, np.ndarray) and key != "stops" and now.shape != np.shape(then):
            raise ConfigError(f"mark {name!r}, {key}: the shape {now.shape}, before it was {np.shape(then)}")
        if callable(now) or equal(now, then):
            part.attributes[key] = then
    if missing := set(before.attributes) - set(part.attributes):
        raise ConfigError(f"mark {name!r} has no {sorted(missing)[0]} any more: a scene has the same at every step")
