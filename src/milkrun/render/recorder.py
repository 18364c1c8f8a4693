"""Recording what rows of a world go through: each is looked at before and after every step that it plays.

An `EpisodeRecorder` is stepped instead of the world and changes nothing in it: arrays, streams and results are those of
an unwatched run. What it keeps is a `Recording` an episode, the same under all three autoreset modes; files and pages
are made of them elsewhere.
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
from milkrun.core.watch import Watched
from milkrun.core.world import World
from milkrun.render.scene import Chart, Part, Scene, ask_words, equal, texts_of_actions

MOST_REASONS = 200_000  # frames times actions up to which every masked action has its reason
OVER = "the episode is over"
REASONS = ("auto", "all", "asked", "none")


@dataclass(eq=False)
class Recording:
    """One episode of one row: T steps, seen at F + 1 frames, the first before the first step.

    Of a step: `actions`, `rewards`, `illegal`, `scores` (T,). Of the moments between steps (T + 1): `objectives`,
    `masks`, `whys`. Of a frame (F + 1): `scenes`, and `columns` of the fields asked for. `ends` (T,) is the frame at
    which each step was done.
    """

    watched: int  # the row of the world that was watched
    number: int  # of this row's episodes, counted from 0
    who: dict[str, Any]
    """world, title, policy, config, seed, row, episode, instance, fps, is_cost, agents, names"""
    actions: list[Any] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    illegal: list[bool] = field(default_factory=list)
    illegal_reasons: list[tuple[int, int, str]] = field(default_factory=list)
    scores: list[np.ndarray] = field(default_factory=list)
    objectives: list[float] = field(default_factory=list)
    masks: list[np.ndarray] = field(default_factory=list)
    whys: list[list[str]] | None = None
    scenes: list[Scene] = field(default_factory=list)
    columns: dict[str, list[Any]] = field(default_factory=dict)
    ends: list[int] = field(default_factory=list)
    end: str = ""
    chart: Chart | None = None
    place: Any = None  # where the last step left the row; None: the episode has ended

    @property
    def steps(self) -> int:
        return len(self.actions)

    @property
    def frames(self) -> int:
        return self.ends[-1] if self.ends else 0

    def fields(self, names: Iterable[str]) -> dict[str, np.ndarray]:
        """What `World.chart` is given: fields by name, frame first, and `action`, step first."""
        return {**{name: np.array(self.columns[name]) for name in names}, "action": np.array(self.actions)}


@dataclass(eq=False)
class _Turn:
    """A step of a watched row that is under way."""

    recording: Recording
    action: Any
    reasons: list[tuple[int, str]]
    scores: np.ndarray | None
    start: dict[str, np.ndarray]  # the state of the row before it, under SAME_STEP
    frames: list[Any] = field(default_factory=list)


class EpisodeRecorder(Watched):
    """A world whose rows are recorded: step it instead of the world; all else is the world's.

    A step that does not begin where the last one of its row ended begins an episode. `fields` are kept beside those
    that the chart of the world wants; without `scenes` nothing else is. `reasons`: why actions are masked, "auto" (of
    all, while frames times actions are at most 200,000, then of those asked for illegally), "all", "asked" or "none".
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
            raise ConfigError(f"what is recorded is a world, as milkrun.make gives it, not a {type(world).__name__}")
        super().__init__(world)
        if reasons not in REASONS:
            raise ConfigError(f"reasons={reasons!r}: must be one of {', '.join(REASONS)}")
        self.rows = read_rows(rows, world.num_envs)
        if scenes:
            world.refuse_unready(self.rows)
        self.policy, self.reasons, self._scenes = policy, reasons, scenes
        self._fields = tuple(dict.fromkeys((*fields, *(world.chart_fields if scenes else ()))))
        for name in self._fields:
            if name not in world.fields:
                where = "fields" if name in fields else f"{name_of(world)}: chart_fields"
                raise ConfigError(f"{where} names {name!r}, which is no field{did_you_mean(name, world.fields)}")
        self._recordings: dict[int, list[Recording]] = {row: [] for row in sorted(self.rows.tolist())}
        self._turns: dict[int, _Turn] = {}
        self._scores: np.ndarray | None = None
        self._stage: Any = None
        self._offsets = np.cumsum([0, *world.action.nvec(world.sizes)])
        self._mask_size = int(self._offsets[-1]) if world._mask is not None else 0

    def episodes(self) -> list[Recording]:
        """What was recorded, by row and in the order of time; one that still goes on as far as it has come."""
        for row, recordings in self._recordings.items():
            if recordings and recordings[-1].steps and not recordings[-1].end:
                self._ask_chart(recordings[-1], self.world, row)
        return [recording for recordings in self._recordings.values() for recording in recordings if recording.steps]

    def note_scores(self, scores: Any) -> None:
        """What the policy makes of each action in the step that comes, (B, A)."""
        given = as_array("scores", scores)
        expected = (self.world.num_envs, int(self._offsets[-1]))
        if given.dtype.kind not in "fiu" or given.shape != expected:
            raise ShapeError(f"scores must be numbers of shape {expected}, not {given.dtype} {given.shape}")
        self._scores = given.astype(np.float32)

    # -- a step -----------------------------------------------------------------------------------------------

    def step(self, actions: Any, rows: Rows = None) -> None:
        """As the world's own."""
        for _ in self.step_frames(actions, rows):
            pass

    def step_frames(self, actions: Any, rows: Rows = None) -> Iterator[Any]:
        self.before(actions, rows)
        for shown in self.world.step_frames(actions, rows):
            if shown is not None:
                for row in set(shown.tolist()) & set(self._turns):
                    turn = self._turns[row]
                    turn.frames.append(self._look(self.world, row, turn.recording))
            yield shown
        for row, turn in self._turns.items():
            world, at = self._where(row, turn)
            turn.frames.append(self._look(world, at, turn.recording))
            self._finish(turn, world, at)
            turn.recording.place = None if turn.recording.end else self._standing(row)
        self._turns = {}

    def before(self, actions: Any, rows: Rows) -> None:
        world = self.world
        self._turns, scores, self._scores = {}, self._scores, None
        stepped = np.arange(world.num_envs) if rows is None else read_rows(rows, world.num_envs)
        given = action_array("actions", actions)
        if given.shape != (len(stepped), *world._action_shape[1:]):
            return  # the world refuses it
        plays = np.isin(stepped, self.rows)
        again = world.autoreset == "same_step"  # there the flags are of the episode before, and every row plays on
        if not again:
            plays &= ~(world.terminated | world.truncated)[stepped]
        for row, action in zip(stepped[plays].tolist(), given[plays], strict=True):
            recordings = self._recordings[row]
            if not recordings or recordings[-1].place != self._standing(row):
                self._begin(row, recordings)
            said = None if scores is None else scores[row].copy()
            start = world.state_dict([row]) if again else {}
            self._turns[row] = _Turn(recordings[-1], action.copy(), self._refusals(row, action), said, start)

    def _standing(self, row: int) -> Any:
        world = self.world
        # Whoever resets or steps the row past the recorder changes one of these numbers; a load mostly does.
        return (*world.stream[row].tolist(), int(world.i[row]), float(world.objective[row]))

    def _where(self, row: int, turn: _Turn) -> tuple[Any, int]:
        """Where the end of a row's step is seen: SAME_STEP has begun the next episode of a row that ended, so the step
        is played again where rows wait."""
        world = self.world
        if not turn.start or not (world.terminated[row] or world.truncated[row]):
            return world, row
        if self._stage is None:
            how = {"threads": world.threads, "debug": world.debug}
            self._stage = type(_inner(world))(1, world.config, seed=0, autoreset="disabled", **how)
        for flag in ("terminated", "truncated", "done"):
            turn.start[flag][:] = False
        self._stage.load_state_dict(turn.start)
        self._stage.step(turn.action[None])
        return self._stage, 0

    def _begin(self, row: int, recordings: list[Recording]) -> None:
        world = self.world
        if recordings and not recordings[-1].steps:  # a refused step begins no episode
            recordings.pop()
        recording = Recording(row, len(recordings), {**_identity(world, row), "policy": self.policy})
        recording.columns = {name: [] for name in self._fields}
        if self._scenes and self._mask_size and self.reasons in ("auto", "all"):
            recording.whys = []
        self._keep(recording, self._look(world, row, recording))
        self._moment(recording, world, row)
        if self._scenes:
            recording.who |= {"agents": agent_names(world), "names": self._action_names(recording)}
        recording.place = self._standing(row)
        recordings.append(recording)

    def _finish(self, turn: _Turn, world: Any, at: int) -> None:
        """Writes down a step that has been played, whose end stands in row `at` of `world`."""
        recording = turn.recording
        for frame in turn.frames:
            self._keep(recording, frame)
        recording.actions.append(turn.action)
        if turn.scores is not None:
            recording.scores.append(turn.scores)
        recording.rewards.append(float(world.reward[at]))
        recording.illegal.append(bool(world.illegal[at]))
        if recording.illegal[-1]:
            recording.illegal_reasons += [(recording.steps - 1, agent, text) for agent, text in turn.reasons]
        recording.ends.append(recording.frames + len(turn.frames))
        self._moment(recording, world, at)
        if world.terminated[at] or world.truncated[at]:
            recording.end = "terminated" if world.terminated[at] else "truncated"
            self._ask_chart(recording, world, at)

    # -- what is looked at ------------------------------------------------------------------------------------

    def _look(self, world: Any, row: int, recording: Recording) -> tuple[Scene | None, list[Any]]:
        """A frame: the scene, and the fields asked for."""
        values = [_value(world, name, row) for name in self._fields]
        if not self._scenes:
            return None, values
        try:
            scene = world.scene(row)
            self._check_actions(scene)
            if recording.scenes:
                _share(scene, recording.scenes[-1])
            else:
                ask_words(scene)
        except ConfigError as error:
            raise ConfigError(f"{name_of(world)}, scene of step {recording.steps}: {error}") from None
        return scene, values

    def _keep(self, recording: Recording, frame: tuple[Scene | None, list[Any]]) -> None:
        scene, values = frame
        if scene is not None:
            recording.scenes.append(scene)
        for kept, value in zip(recording.columns.values(), values, strict=True):
            kept.append(value)

    def _moment(self, recording: Recording, world: Any, row: int) -> None:
        """Between two steps: the return so far, what is allowed now, and why the rest is not."""
        recording.objectives.append(float(world.objective[row]))
        if not self._mask_size or not self._scenes:
            return
        mask = world.action_mask[row].copy()
        recording.masks.append(mask)
        if self.reasons == "auto" and len(recording.masks) * self._mask_size > MOST_REASONS:
            recording.whys = None
        if recording.whys is not None:
            texts = [""] * self._mask_size
            over = bool(recording.steps and (world.terminated[row] or world.truncated[row]))
            for index in np.flatnonzero(~mask).tolist():
                texts[index] = OVER if over else world.why_masked(row, index)
            recording.whys.append(texts)

    def _refusals(self, row: int, action: np.ndarray) -> list[tuple[int, str]]:
        """What would be said against this action, by agent: asked before the step, since after it all is different."""
        world = self.world
        if self.reasons == "none" or not self._scenes or world.action.kind == "box":
            return []
        if not self._mask_size or not world.mask_lists_all:
            return [(0, world.why_illegal(row, action.tolist()))]
        said = []
        for agent, a in enumerate(np.atleast_1d(action).tolist()):
            low, high = self._offsets[agent : agent + 2].tolist()
            if not 0 <= a < high - low:
                said.append((agent, f"{a} is not one of its {high - low} actions"))
            elif not world.action_mask[row, low + a]:
                said.append((agent, world.why_masked(row, low + a)))
        return said

    def _ask_chart(self, recording: Recording, world: Any, row: int) -> None:
        if not self._scenes:
            return
        try:
            recording.chart = world.chart(row, recording.fields(world.chart_fields))
            if not isinstance(recording.chart, Chart | None):
                raise ConfigError(f"it is a {type(recording.chart).__name__}: it must be a Chart or None")
        except ConfigError as error:
            raise ConfigError(f"{name_of(world)}, chart of step {recording.steps}: {error}") from None

    def _action_names(self, recording: Recording) -> list[list[str]]:
        world, texts = self.world, texts_of_actions(recording.scenes[0])
        named = type(_inner(world)).action_name is not World.action_name  # which would make a scene for each action
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
    """Agents as people call them: truck, drone 0, drone 1."""
    groups = [(group, len(names)) for group, names in world.groups.items()]
    return [group if n == 1 else f"{group} {k}" for group, n in groups for k in range(n)] or ["agent"]


def _inner(world: Any) -> Any:
    while isinstance(world, Watched):
        world = world.world
    return world


def _value(world: Any, name: str, row: int) -> Any:
    f = world.fields[name]
    value = getattr(world, name)[world.instance_row[row] if f.role is Role.INSTANCE else row]
    return value.copy()


def _identity(world: Any, row: int) -> dict[str, Any]:
    """Who plays what: `instance` are the first digits of the SHA-256 of the instance that the row plays."""
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


def _share(scene: Scene, last: Scene) -> None:
    """A later frame keeps only what differs from the one before, so a long episode takes little memory; what may not
    differ is refused."""
    for what, now, then in (
        ("mark", scene.marks, last.marks),
        ("figure", scene.figures, last.figures),
        ("gauge", scene.gauges, last.gauges),
        ("image", scene.images, last.images),
    ):
        if set(now) != set(then):
            name = sorted(set(now) ^ set(then))[0]
            found = "new" if name in now else "missing"
            raise ConfigError(f"{what} {name!r} is {found}: a scene has the same at every step")
    for name, part in scene.marks.items():
        before = last.marks[name]
        if part.kind != before.kind:
            raise ConfigError(f"mark {name!r} is {part.kind}, before it was {before.kind}")
        _share_part(name, part, before)


def _share_part(name: str, part: Part, before: Part) -> None:
    for key, now in part.attributes.items():
        then: Any = before.attributes.get(key)
        if callable(now) and then is None:
            raise ConfigError(f"mark {name!r} has {key} only now: a scene has the same at every step")
        if isinstance(now, np.ndarray) and key != "stops" and now.shape != np.shape(then):
            raise ConfigError(f"mark {name!r}, {key}: the shape {now.shape}, before it was {np.shape(then)}")
        if callable(now) or equal(now, then):
            part.attributes[key] = then
    if missing := set(before.attributes) - set(part.attributes):
        raise ConfigError(f"mark {name!r} has no {sorted(missing)[0]} any more: a scene has the same at every step")
