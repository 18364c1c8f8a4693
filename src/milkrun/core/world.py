"""World: a batch of independent rows, each an episode of one problem.

All data of a world are fields, arrays whose first axis is the row. A world class declares them and its actions,
names a configuration, and binds its kernels: `bind(generate=..., reset=..., step=...)` and what else `hooks` lists.
Everything else is here (stepping, observing, illegal actions), in `saving` (states in and out), in `episodes` (resets,
autoreset, interrupts), in `memory` (allocation) and in `launcher` (one step of one row).
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, overload

import numpy as np

from milkrun.core.actions import Agents, action_array
from milkrun.core.arguments import (
    MODES,
    Rows,
    autoreset_name,
    check_count,
    check_seed,
    is_list,
    name_rows,
    read_debug,
    read_keys,
)
from milkrun.core.errors import ConfigError, IllegalAction, ResetNeeded, ShapeError, shown
from milkrun.core.fields import (
    bool_,
    constant,
    float32,
    float64,
    int32,
    int64,
    key,
    mask_field,
    observed_fields,
    state,
    view,
)
from milkrun.core.launcher import DUE_ONE, NO_LIMIT
from milkrun.core.layouts import check_layout, lay_out, split_entries
from milkrun.core.memory import address_of
from milkrun.core.references import References
from milkrun.core.sampling import chance, sample
from milkrun.core.saving import Saving

if TYPE_CHECKING:
    from milkrun.render.canvas import Canvas
    from milkrun.render.scene import Chart, Scene

_copyto = np.copyto

FieldOf = Callable[[str], np.ndarray]
ChanceOf = Callable[[int], np.ndarray]


class World(Saving, References):
    """A batch of `num_envs` rows. `reset` and `step` write their results into the world's arrays, which stay in
    place."""

    id: ClassVar[str] = ""
    synonyms: ClassVar[Mapping[str, str]] = {}  # further names of fields in TensorDicts
    demo_rows: ClassVar[int] = 1024  # rows of `milkrun demo`
    _threads_copy: ClassVar[bool] = True  # in a parallel step each thread copies the actions of its rows
    mask_lists_all: bool = True  # False: an action is more than the mask lists; see complete_actions
    chart_fields: ClassVar[tuple[str, ...]] = ()  # fields that `chart` reads in every frame
    fps: ClassVar[float | None] = None  # frames a second of `step_frames`; None: a step has no duration
    is_cost: ClassVar[bool] = False  # the return is minus a cost >= 0, so gaps are relative to it
    render_fps: ClassVar[float] = 10  # frames a second of a video with one frame a step

    max_steps = constant(int64, doc="steps until a row is truncated")
    reward_at_end = constant(int64, doc="1: the whole return is paid on the last step")
    reward = view(float32, doc="of the last step")
    illegal = view(bool_, doc="the last action was not allowed")
    done = view(bool_, doc="terminated or truncated")
    terminated = state(bool_, observed=False, doc="the episode has ended by its own rules")
    truncated = state(bool_, observed=False, doc="the episode was cut off by the step limit")
    i = state(int64, low=0, column=True, doc="steps counted, illegal ones too")
    objective = state(float64, tally=True, doc="sum of the rewards so far")
    instance_row = key(int32, doc="the instance this row plays")
    stream = key(int64, 3, doc="seed, row, episode: the key of the row's random streams")
    given = key(bool_, doc="the instance was given, so it stays through resets")

    def __init__(
        self,
        num_envs: int = 1,
        config: Any = None,
        *,
        seed: int | None = None,
        first_row: int = 0,
        autoreset: Any = "next_step",
        illegal: str = "noop",
        threads: int | None = None,
        debug: bool | str | None = None,
    ) -> None:
        self.num_envs = check_count("num_envs", num_envs, 1, 2**31 - 1)  # `instance_row` has 32 bits
        self.config = self.Config() if config is None else config
        if not isinstance(self.config, self.Config):
            raise ConfigError(
                f"{type(self).__name__}(config=...) must be of type {self.Config.__name__}, not {type(config).__name__}"
            )
        self.autoreset = autoreset_name(autoreset)
        if not isinstance(illegal, str) or illegal not in ("noop", "raise"):
            raise ConfigError(f"illegal={shown(illegal)}: must be 'noop' or 'raise'")
        self.illegal_rule = illegal
        self._raises = illegal == "raise"
        self.threads = None if threads is None else check_count("threads", threads, 1)
        self.debug = read_debug(debug)
        self.seed = secrets.randbits(63) if seed is None else check_seed(seed)
        self.first_row = check_count("first_row", first_row, 0, 2**63 - self.num_envs)
        self.sizes = self.size_of(self.config)
        self.groups = self.action.names(self.sizes) if isinstance(self.action, Agents) else {}
        self.observed = observed_fields(self.fields, self.sizes)
        self._mask = mask_field(self.fields, self.sizes)
        self.final: dict[str, np.ndarray] = {}
        self.final_rows = np.zeros(0, np.int64)
        self._allocate()
        self._action_shape = self._actions.shape
        self._action_kinds = "f" if self.action.kind == "box" else "iu"
        self._action_dtype = self._actions.dtype
        checked_first = self._raises or self.debug  # actions are read before the step, so they are copied before it
        self._copied_late = self._threads_copy and not checked_first and self._may_spread()
        self._quick_kinds = self._action_kinds.replace("f", "")  # floats may overflow, which `_take` handles
        self.stream[:] = [self.seed, 0, -1]
        self.stream[:, 1] = self.first_row + self._all
        self._mode = MODES[self.autoreset]
        self._some_ended = False  # a row may have ended; False saves the test of each row
        self._playable = np.zeros(self.num_envs, bool)
        self._ready = self._interrupted = self._closed = False
        self._changing = None
        self._all_stale = True
        self._stale = np.zeros(self.num_envs, bool)

    # -- hooks of world classes -------------------------------------------------------------------------------

    @classmethod
    def task_options(cls, config: Any) -> dict[str, Any]:
        """The rules of this configuration, as keywords of the task's `check` and `get_costs`."""
        return {}

    @classmethod
    def task_weights(cls, config: Any) -> dict[str, float] | None:
        """The weights of this configuration for the amounts of the task; None: the task's own weights."""
        return None

    def why_illegal(self, row: int, action: Any) -> str:
        """The reason for IllegalAction, in the terms of the problem."""
        return "not in the action mask"

    def scene(self, row: int) -> Scene:
        """What a row looks like now, for recorders after every reset and step; by default drawn from the fields."""
        from milkrun.render.default_scene import scene_of_fields, scene_of_picture

        self.check_row(row)
        return scene_of_fields(self, row) if type(self).draw is World.draw else scene_of_picture(self, row)

    def chart(self, row: int, frames: Mapping[str, np.ndarray]) -> Chart | None:
        """The time chart of an episode of a row, at its end: `frames` has the `chart_fields`, frame first, and
        `action`, step first."""
        return None

    def action_name(self, agent: int, action: int) -> str:
        """An action in words; by default the name of the point or body of row 0 that it leads to."""
        from milkrun.render.default_scene import name_by_scene

        return name_by_scene(self, agent, action)

    def why_masked(self, row: int, index: int) -> str:
        """Why an action is not allowed, by its index in the flat mask."""
        from milkrun.render.default_scene import why_masked

        return why_masked(self, row, index)

    def step_frames(self, actions: Any, rows: Rows = None) -> Iterator[np.ndarray | None]:
        """Plays one step, bit for bit as `step`, and yields at each frame of it, last at its end: the rows with a
        frame, None for all."""
        self.step(actions, rows)
        yield None

    def draw(self, row: int, canvas: Canvas) -> None:
        """The picture of a row: its scene."""
        from milkrun.render.painter import paint

        scene = self.scene(row)
        name = type(self).__name__ if scene.marks else f"{type(self).__name__}  row {row}"
        paint(canvas, scene, f"{name}  step {int(self.i[row])}")

    def figures(self, last: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Figures of merit of ended episodes, by name: `last` has their last `figure_fields`, steps and objectives."""
        return {}

    @property
    def num_actions(self) -> int:
        """The number of actions of a single agent; more than the mask lists where `mask_lists_all` is False."""
        return self.action.nvec(self.sizes)[0]

    def complete_actions(self, drawn: np.ndarray, field: FieldOf, chance: ChanceOf) -> np.ndarray:
        """Complete legal actions from draws of the mask, one a row, where `mask_lists_all` is False; `field(name)` is
        an instance or state field of these rows, `chance(k)` the k-th further draw of each in [0, 1)."""
        return drawn

    # -- the contract -----------------------------------------------------------------------------------------

    def reset(self, rows: Rows = None, *, seed: Any = None, instance: Mapping[str, Any] | None = None) -> None:
        """Begins a new episode of the named rows (all of them without `rows`); other rows are not touched.

        `seed`: an int gives row i the key (seed, first_row + i, 0), a list one seed a row; without it the episode
        number goes up by one. `instance`: fields to play instead of drawn ones; they stay through later resets
        of these rows, until a full reset without any.
        """
        chosen = self._rows(rows)
        keys = read_keys(self.stream, chosen, self.first_row, seed)
        self._begin_episodes(chosen, keys, instance, whole=rows is None)
        if rows is None and seed is not None and not is_list(seed):
            self.seed = int(seed)

    def step(self, actions: Any, rows: Rows = None) -> None:
        """Plays one action in each named row (all without `rows`): one native call."""
        if rows is None:
            chosen, order, n = self._all, self._all_address, self.num_envs
        else:
            chosen = self._rows(rows)
            order, n = address_of(chosen), len(chosen)
        if self._changing is not None or not self._ready:
            self._get_ready(chosen)
        if (
            type(actions) is np.ndarray
            and actions.shape == (self._action_shape if rows is None else (n, *self._action_shape[1:]))
            and actions.dtype.kind in self._quick_kinds
        ):
            # Threads copy bytes, so the actions must have the buffer's dtype and be contiguous.
            if rows is None and self._copied_late and actions.dtype == self._action_dtype and actions.flags.carray:
                given = address_of(actions)
            else:
                _copyto(self._actions if rows is None else self._actions[:n], actions, "unsafe")
                given = self._actions_address
        else:
            self._take(actions, n)
            given = self._actions_address
        if self._some_ended and self._mode == 0:
            self._refuse_finished(chosen)
        if self._raises:
            self._refuse_illegal(chosen)
        if rows is None:
            self._all_stale = True
        else:
            self._outdate(chosen)
        self._changing = chosen
        ended = self._play(chosen, order, n, given)
        if self._mode == 2:
            if ended:
                self._begin_ended(self.done.nonzero()[0] if rows is None else chosen[self.done[chosen]])
            elif len(self.final_rows):
                self.final = {}
                self.final_rows = self.final_rows[:0]
        elif ended:
            self._some_ended = True
            if ended >= DUE_ONE:
                self._begin_due(chosen)
        self._changing = None

    def play_out(self, choose: Any, x: int = 0) -> int:
        """Plays every live row to its end by a compiled policy, in one native call; returns the steps of all rows.

        `choose(w, b, x, i)` is a @kernel that returns the action of row b at its i-th step; of several agents it writes
        theirs into the view `advice` (agents,). A row that is given an illegal action stops there.
        """
        self._refuse_play_out()
        self._all_stale = self._some_ended = True
        return self._run(self._player(choose), self._all, int(x))

    def _refuse_play_out(self) -> None:
        self.refuse_unready()
        if self.autoreset == "same_step" or self.action.kind == "box":
            raise ConfigError("play_out is for worlds of discrete actions whose ended rows wait (not 'same_step')")
        if self.max_steps == NO_LIMIT:
            raise ConfigError("play_out needs a max_steps: without one a row might never end")

    def draw_instances(self, episode: int = 0) -> None:
        """Draws the instances of an episode of every row, without beginning it; generators are made of this."""
        self.stream[:, 2] = episode
        self._draw_rows(self._all)

    @overload
    def observe(self, rows: Rows = None) -> dict[str, np.ndarray]: ...

    @overload
    def observe(self, rows: Rows = None, *, layout: str) -> Any: ...

    def observe(self, rows: Rows = None, *, layout: str | None = None) -> Any:
        """The observed fields and the mask, as the world's own arrays. Views on demand are computed in the named rows
        (all without `rows`) where they are outdated.

        With a `layout` ("flat", "dict", in some worlds "view"), the observation of all rows that an environment of
        Gymnasium or SB3 with this layout returns; a flat one is an array (num_envs, numbers), a copy.
        """
        chosen = self._rows(rows)
        self._refuse_interrupted(chosen)
        if self._launcher.observe is not None:
            self._update_views(chosen)
        if layout is not None:
            seen, _ = split_entries(self, check_layout(self, layout))
            return lay_out(
                self, layout, seen, {f.name: self._field_of_rows(f.name) for f in seen.values()}, self.num_envs
            )
        seen = {f.name: getattr(self, f.name) for f in self.observed}
        if self._mask is not None:
            seen["action_mask"] = self.action_mask
        return seen

    def sample_actions(self, seed: int = 0, turn: int | None = None) -> np.ndarray:
        """One allowed action a row, uniformly. A draw depends on `seed` and on the row's seed, number, episode and
        step, so a loop of `step(sample_actions())` plays a random policy and a second loop repeats it. A given `turn`
        replaces the step. Compiled; reads only the masks."""
        self._refuse_interrupted()
        seed = check_seed(seed)
        if turn is not None:
            turn = check_count("turn", turn, 0)
        drawn = sample(self, seed, turn)
        if self.mask_lists_all:
            return drawn
        return self.complete_actions(drawn, self._field_of_rows, partial(chance, self, seed, turn))

    def render(self, row: int = 0) -> np.ndarray:
        """The picture of a row, uint8 (512, 512, 3)."""
        from milkrun.render.canvas import Canvas

        self.check_row(row)
        canvas = Canvas()
        self.draw(int(row), canvas)
        return canvas.pixels

    def check_row(self, row: int) -> None:
        """Raises unless this is the number of a row that has been reset."""
        self.refuse_unready(self._rows([row]))

    def close(self) -> None:
        """Closes the world; idempotent."""
        self._closed = True
        self._ready = False

    def __repr__(self) -> str:
        return f"<{self.id or type(self).__name__}: {self.num_envs} rows, seed {self.seed}, {self.autoreset}>"

    # -- inside -----------------------------------------------------------------------------------------------

    def _get_ready(self, rows: np.ndarray) -> None:
        """Raises unless these rows have an episode. Compiles the step: an error of the compiler changes no row."""
        self.refuse_unready(rows)
        self._launcher.prepare_step()
        self._ready = bool(self._playable.all())

    def _play(self, chosen: np.ndarray, order: int, n: int, given: int) -> int:
        """One step of n rows, whose numbers are at the address `order` and their actions at `given`. Returns how many
        ended, plus DUE_ONE for each row whose next episode is due."""
        step = self._launcher.step
        if (n < self.parallel_from and self.threads is None) or (chunks := self._chunks(n)) == 1:
            return step.serial(self._table_address, order, self._actions_address, self._mode, given, 0, n, 0)
        return step.run((self._table_address, order, self._actions_address, self._mode, given), n, chunks)

    def _take(self, actions: Any, n: int) -> None:
        """Copies the actions into the world's own buffer, which has a fixed dtype, order and address."""
        actions = action_array("actions", actions)
        expected = (n, *self._action_shape[1:])
        if actions.dtype.kind not in self._action_kinds or actions.shape != expected:
            kind = "floats" if self._action_kinds == "f" else "integers"
            raise ShapeError(f"actions must be {kind} of shape {expected}, not {actions.dtype} {actions.shape}")
        with np.errstate(over="ignore"):  # a float64 beyond float32 becomes inf, which is out of bounds
            _copyto(self._actions[:n], actions, "unsafe")

    def _refuse_finished(self, chosen: np.ndarray) -> None:
        done = self.terminated | self.truncated
        self._some_ended = bool(done.any())
        if done[chosen].any():
            raise ResetNeeded(f"{name_rows(chosen[done[chosen]])} ended: reset before the next step")

    def _refuse_illegal(self, chosen: np.ndarray) -> None:
        args = (self._table_address, address_of(chosen), self._actions_address, self._mode)
        first = self._launcher.first_illegal(args, len(chosen))
        if first is None:
            return
        row, action = int(chosen[first]), self._actions[first]
        said = action.item() if action.ndim == 0 else action.tolist()
        raise IllegalAction(f"row {row}: action {said}: {self.why_illegal(row, said)}")
