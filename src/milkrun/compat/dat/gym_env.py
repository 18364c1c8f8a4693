"""UAV_VAT: the benchmark with the interface of the old package gym, whose `step` has four results.

It is a `gym.Env` with gym's spaces where that package can be imported, and a plain class with Gymnasium's spaces where
it cannot.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
from gymnasium import spaces as gymnasium_spaces

from milkrun.compat.dat.bench_env import check_place
from milkrun.compat.dat.configured import bench_env, read_config
from milkrun.core.arguments import check_seed

spaces: Any = gymnasium_spaces
try:
    Base: Any = import_module("gym").Env
    spaces = import_module("gym.spaces")
except Exception:  # gym is not maintained: after any failure the class works without it
    Base = object


class UAV_VAT(Base):
    """`state = reset()`; `state, reward, done, info = step(action)`, where `info["TimeLimit.truncated"]` says whether
    the episode was cut, by its time limit or because target or simulator are gone.

    arg_worker, process_idx: the number of environments, and the index of this one.
    conf_path: the path of a config.json, its contents or its section; None is the packaged file.
    env_conf_path: the simulator's env_config.json, which overrides it; unknown keys are in `config.ignored`.
    obs_buffer_len: K > 0: states are the last K pictures, (K, C, S, S), oldest first.
    seed: of all environments; this one plays row `process_idx`.
    """

    metadata: dict[str, Any] = {"render.modes": ["rgb_array"], "render_modes": ["rgb_array"], "render_fps": 125}
    reward_range = (-float("inf"), float("inf"))
    spec: Any = None

    def __init__(
        self,
        arg_worker: int = 1,
        conf_path: Any = None,
        env_conf_path: Any = None,
        process_idx: int = 0,
        *,
        obs_buffer_len: int = 0,
        seed: int | None = None,
    ) -> None:
        place = check_place(arg_worker, process_idx)
        self.config = read_config(conf_path, env_conf_path, obs_buffer_len)
        self.metadata = {**self.metadata, "render_fps": self.config.control_hz}
        self.env = bench_env(self.config, *place, seed)
        self.observation_space = own_space(self.env.observation_space)
        self.action_space = own_space(self.env.action_space)
        self._next_seed: int | None = None

    def reset(self) -> Any:
        """Begins an episode. Returns the state."""
        seed, self._next_seed = self._next_seed, None
        return self.env.reset(seed)[0]

    def step(self, action: Any) -> tuple[Any, float, int, dict[str, Any]]:
        """Plays an action: an int, or an array or tensor of one."""
        state, reward, done, _ = self.env.step(action)
        info = self.env.info
        info["TimeLimit.truncated"] = self.env.truncated
        return state, reward, int(done), info

    def seed(self, seed: int | None = None) -> list[int]:
        """Sets the seed whose first episode the next reset begins; None: no-op."""
        self._next_seed = None if seed is None else check_seed(seed)
        return [] if seed is None else [check_seed(seed)]

    def render(self, mode: str = "rgb_array") -> np.ndarray:
        """The picture of the camera, uint8 (S, S, 3)."""
        picture: np.ndarray = self.env.render(mode)
        return picture

    def close(self) -> None:
        self.env.close()


def own_space(space: gymnasium_spaces.Space[Any]) -> Any:
    """Converts a space to the package of the class: gym's `make` takes no other."""
    if isinstance(space, gymnasium_spaces.Discrete):
        return spaces.Discrete(int(space.n))
    assert isinstance(space, gymnasium_spaces.Box)
    return spaces.Box(space.low, space.high, dtype=space.low.dtype.type)
