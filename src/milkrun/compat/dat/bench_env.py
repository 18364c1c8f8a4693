"""BenchEnv_Multi: one drone of the benchmark, with the arguments and the interface of the original.

It is built on moments (`milkrun.tracking.moment`) and does not know where they come from: a row of a world in this
process (`batch`) or a simulator elsewhere (`linked`).
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces

from milkrun.compat.dat.batch import Batch, RowSource, info_of_moment, supplements
from milkrun.compat.dat.frames import form_of, normalise
from milkrun.compat.dat.linked import RESET, LinkSource
from milkrun.core.arguments import check_count, check_seed
from milkrun.core.errors import ConfigError
from milkrun.tracking.config import REASONS, TrackingConfig
from milkrun.tracking.files import in_words_of
from milkrun.tracking.moment import Moment

MOVES = ("forward", "backward", "left", "right", "ccw", "cw")
"""The entries of `action_list`, in its order."""
ARGUMENTS = {
    "action_dim": "Action_dim",
    "other_state": "Other_State",
    "cloud": "CloudPoint",
    "reward_params": "RewardParams",
    "port": "port_process",
    "control_hz": "Control_Frequence",
    "reward": "reward_type",
    **{move: f"action_list[{k}]" for k, move in enumerate(MOVES)},
}
"""The option for each argument."""

ProcessState = Callable[[np.ndarray], Any]
Begun = tuple[Any, list[Any]]
Stepped = tuple[Any, float, bool, list[Any]]


class BenchEnv_Multi:
    """`state, info = reset()`; `state, reward, done, info = step(action)`. `info` is `SuppleInfo`, a list of what is
    enabled: the drone's own state (19), the RewardParams with the name of the target's kind (60 + 1), the point cloud.

    action_list: speeds forward, backward, left, right in m/s and turns counter-clockwise, clockwise in rad/s, clockwise
        positive; so the signs are +, -, +, -, -, +.
    process_state: a function from a picture uint8 (H, W, C) to the state; None: `process_frame` with the configuration.
    arg_worker, process_idx: how many environments there are in all, and which of them this is: row `process_idx` of the
        world that `seed` makes, wherever it is played.
    config: options without an argument (size of the picture, start, ends, ...): a TrackingConfig, a mapping, the path
        of a JSON file. Arguments override it.
    link, auto_start: a simulator elsewhere that runs, or that is started; without either it is in this process.

    `curr_step` (sim steps), `truncated`, `end_reason`, `r_c`, `r_d`, `SuppleInfo` and `info`, a dict, describe the last
    step, also one that `Envs` played. With a simulator elsewhere there are also `send(action)`, `send(None, seed=...)`
    for a reset, and `receive()`, which returns what `step` or `reset` would have returned.
    """

    batch: Batch
    """The world that several environments in this process share; this one is its row `row`."""
    row: int

    def __init__(
        self,
        Action_dim: int,
        action_list: Sequence[float],
        process_state: ProcessState | None,
        arg_worker: int,
        process_idx: int,
        Other_State: bool,
        CloudPoint: bool,
        RewardParams: bool,
        port_process: int,
        end_reward: bool,
        end_reward_list: Sequence[float],
        scene: Any,
        weather: Any,
        auto_start: bool,
        Control_Frequence: int = 125,
        reward_type: str = "default",
        verbose: bool = False,
        delay: float = 20,
        *,
        config: Any = None,
        seed: int | None = None,
        link: str | None = None,
    ) -> None:
        if not isinstance(action_list, (list, tuple, np.ndarray)) or len(action_list) != len(MOVES):
            raise ConfigError(f"action_list={action_list!r}: must be six numbers: {', '.join(MOVES)}")
        base = TrackingConfig.build(config=Path(config) if isinstance(config, str) else config)
        given: dict[str, Any] = {
            "action_dim": Action_dim,
            "other_state": Other_State,
            "cloud": CloudPoint,
            "reward_params": RewardParams,
            "port": port_process,
            "end_reward": end_reward,
            "end_reward_list": _plain(end_reward_list),
            "scene": _plain(scene),
            "weather": _plain(weather),
            "auto_start": auto_start,
            "control_hz": Control_Frequence,
            "reward": reward_type,
            "verbose": verbose,
            "delay": delay,
            **dict(zip(MOVES, action_list)),
        }
        if link is not None:
            given["link"] = link
        try:
            chosen = base.replace(**given)
        except ConfigError as e:
            raise in_words_of(e, "BenchEnv_Multi", ARGUMENTS) from None
        count, row = check_place(arg_worker, process_idx)
        self._stand_on(source_of(chosen, seed, row, count), chosen, process_state)

    @classmethod
    def of_batch(cls, batch: Batch) -> list[BenchEnv_Multi]:
        """An environment for each row of a batch. Each can be played alone, or all by `Envs` in one call."""
        made = []
        for row in range(batch.num_envs):
            env = cls.__new__(cls)
            env._stand_on(RowSource(batch, row), batch.config, None)
            env.batch = batch
            env.row = row
            made.append(env)
        return made

    def _stand_on(
        self, source: RowSource | LinkSource, config: TrackingConfig, process_state: ProcessState | None
    ) -> None:
        if process_state is not None and not callable(process_state):
            raise ConfigError(f"process_state is a {type(process_state).__name__}: must be a function of a picture")
        self.config = config
        self.process_state = process_state
        self._source = source
        self._form = form_of(config)
        self.observation_space: spaces.Space[Any] = self._form.space
        self._dtype: Any = None  # that states are cast to
        if process_state is not None:
            # Its result for a black picture has the shape and the type of states.
            example = self._state(np.zeros(self._form.shape, np.uint8))
            self._dtype = np.float32 if example.dtype.kind == "f" else None
            self.observation_space = space_like(example)
        if config.action_mode == "velocity":
            self.action_space: spaces.Space[Any] = spaces.Box(-1, 1, (4,), np.float32)
        else:
            self.action_space = spaces.Discrete(config.action_dim)

    # -- play -------------------------------------------------------------------------------------------------

    def reset(self, seed: int | None = None) -> Begun:
        """Begins an episode: the next one of this environment, or with a seed the first of that seed's."""
        return self._begun(self._source.reset(None if seed is None else check_seed(seed)))

    def step(self, action: Any) -> Stepped:
        """Plays an action: an integer, or in velocity mode four floats. ResetNeeded before a reset and after an end."""
        return self._stepped(self._source.step(action))

    @property
    def send(self) -> Callable[..., None]:
        """Sends a request to the simulator and does not wait. In process there is no such attribute: by that `Envs`
        recognises a link."""
        return _Sender(self._elsewhere("send"))

    @property
    def receive(self) -> Callable[[], Begun | Stepped]:
        """Waits for the reply of the simulator."""
        self._elsewhere("receive")
        return self._receive

    @property
    def check(self) -> Callable[[Any], Any]:
        """Validates an action before any request is sent; as `send`, only of a link."""
        return self._elsewhere("check").check

    def render(self, mode: str = "rgb_array") -> np.ndarray:
        """The current picture of the camera, uint8 (S, S, 3)."""
        if mode != "rgb_array":
            raise ConfigError(f"render: mode={mode!r}: must be 'rgb_array'")
        seen = self._source.picture()
        picture = (seen[-1] if self._form.stack else seen).transpose(1, 2, 0)
        return np.repeat(picture, 3, axis=2) if picture.shape[2] == 1 else np.ascontiguousarray(picture)

    def close(self) -> None:
        """Closes this environment. Idempotent."""
        self._source.close()

    def __repr__(self) -> str:
        where = self.config.link or ("a simulator of its own" if self.config.auto_start else "in process")
        return f"<BenchEnv_Multi {self.process_idx}: {where}>"

    # -- the last step ----------------------------------------------------------------------------------------

    @property
    def process_idx(self) -> int:
        source = self._source
        return source.row if isinstance(source, LinkSource) else int(source.batch.world.first_row) + source.row

    @property
    def now(self) -> Moment:
        """The moment of the last step, without its picture."""
        return self._source.now()

    @property
    def SuppleInfo(self) -> list[Any]:
        """The enabled parts of the last step; empty before the first reset."""
        return supplements(self.now)

    @property
    def info(self) -> dict[str, Any]:
        """The `info` of the last step: `SuppleInfo`, `reason`, `r_c`, `r_d`, `illegal`."""
        return info_of_moment(self.now)

    @property
    def curr_step(self) -> int:
        """Sim steps of this episode."""
        return self.now.sim_step

    @property
    def truncated(self) -> bool:
        """The episode was cut: by its time limit, or because target or simulator are gone."""
        return self.now.truncated

    @property
    def end_reason(self) -> str:
        """The reason why the episode has ended, one of `milkrun.tracking.REASONS`; empty while it lasts."""
        return REASONS[self.now.reason]

    @property
    def r_c(self) -> float:
        """How near the target was to the middle of the window, 0..1: what CR sums."""
        return self.now.r_c

    @property
    def r_d(self) -> float:
        """1 if it was in the window: what TSR sums."""
        return self.now.r_d

    # -- inside -----------------------------------------------------------------------------------------------

    def _begun(self, now: Moment) -> Begun:
        return self._state(now.image), supplements(now)

    def _stepped(self, now: Moment) -> Stepped:
        return self._state(now.image), now.reward, now.done, supplements(now)

    def _state(self, image: np.ndarray) -> Any:
        process = self.process_state
        if process is None:
            return normalise(image, self._form.norm)
        if self._form.stack:
            made: Any = np.stack([process(np.ascontiguousarray(one.transpose(1, 2, 0))) for one in image])
        else:
            made = process(np.ascontiguousarray(image.transpose(1, 2, 0)))
        return np.asarray(made, self._dtype)

    def _elsewhere(self, name: str) -> LinkSource:
        if not isinstance(self._source, LinkSource):
            raise AttributeError(f"{type(self).__name__} in process has no attribute {name!r}")
        return self._source

    def _receive(self) -> Begun | Stepped:
        now, begun = self._elsewhere("receive").answer()
        return self._begun(now) if begun else self._stepped(now)


class _Sender:
    """`send` of an environment whose simulator is elsewhere."""

    def __init__(self, source: LinkSource) -> None:
        self._source = source

    def __call__(self, action: Any, seed: int | None = None) -> None:
        self._source.ask(RESET if action is None else action, seed)


def space_like(state: np.ndarray) -> spaces.Box:
    """The space of states of this shape and type; all fractions are float32."""
    kind = state.dtype.kind
    if kind == "f":
        return spaces.Box(-np.inf, np.inf, state.shape, np.float32)
    if kind not in "iub":
        raise ConfigError(f"process_state makes {state.dtype} {state.shape}: must be numbers or booleans")
    low, high = (0, 1) if kind == "b" else (np.iinfo(state.dtype).min, np.iinfo(state.dtype).max)
    return spaces.Box(low, high, state.shape, state.dtype.type)


def source_of(config: TrackingConfig, seed: int | None, row: int, count: int) -> RowSource | LinkSource:
    """The source of moments of environment `row` of `count`."""
    seed = None if seed is None else check_seed(seed)
    if is_linked(config):
        return LinkSource(config, group_seed(seed, count), row, count)
    return RowSource(Batch(config, 1, seed, first_row=row), 0)


def is_linked(config: TrackingConfig) -> bool:
    """Whether the simulator is elsewhere."""
    return config.link is not None or config.auto_start


def group_seed(seed: int | None, count: int) -> int:
    """The seed of a group of links. All of one group must have the same, and links in different processes cannot agree
    on a random one: without a seed it is 0 for several."""
    return seed if seed is not None else secrets.randbits(63) if count == 1 else 0


def check_place(arg_worker: Any, process_idx: Any) -> tuple[int, int]:
    """The number of environments, and the index of this one."""
    count = check_count("arg_worker", arg_worker, 1)
    return count, check_count("process_idx", process_idx, 0, count - 1)


def _plain(given: Any) -> Any:
    """Converts lists and arrays to the types of options."""
    return (
        tuple(given.tolist() if isinstance(given, np.ndarray) else given)
        if isinstance(given, (list, np.ndarray))
        else given
    )
