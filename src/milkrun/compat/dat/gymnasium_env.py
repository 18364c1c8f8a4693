"""UAV_VAT_Gymnasium: the benchmark with Gymnasium's interface."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from milkrun.api._binding import check_render_mode, may_render, read_options
from milkrun.compat.dat.bench_env import check_place
from milkrun.compat.dat.configured import bench_env, read_config
from milkrun.core.arguments import check_seed


class UAV_VAT_Gymnasium(gymnasium.Env[Any, Any]):
    """`state, {} = reset(seed=...)`; `state, reward, terminated, truncated, info = step(action)`. `info` has
    `SuppleInfo`, `reason`, `r_c`, `r_d` and `illegal`.

    The arguments are those of UAV_VAT. A reset with a seed begins the first episode of that seed.
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 125}

    def __init__(
        self,
        arg_worker: int = 1,
        conf_path: Any = None,
        env_conf_path: Any = None,
        process_idx: int = 0,
        *,
        obs_buffer_len: int = 0,
        seed: int | None = None,
        render_mode: str | None = None,
    ) -> None:
        place = check_place(arg_worker, process_idx)
        self.render_mode = check_render_mode(render_mode)
        self.config = read_config(conf_path, env_conf_path, obs_buffer_len)
        self.metadata = {**self.metadata, "render_fps": self.config.control_hz}
        self.env = bench_env(self.config, *place, seed)
        self.observation_space = self.env.observation_space
        self.action_space = self.env.action_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begins an episode. There are no options."""
        read_options(options, ())
        seed = None if seed is None else check_seed(seed)
        super().reset(seed=seed)
        return self.env.reset(seed)[0], {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Plays an action: an int, or an array or tensor of one."""
        state, reward, done, _ = self.env.step(action)
        truncated = self.env.truncated
        return state, reward, done and not truncated, truncated, self.env.info

    def render(self) -> np.ndarray | None:  # type: ignore[override]
        """The picture of the camera, uint8 (S, S, 3), with render_mode="rgb_array"."""
        return self.env.render() if may_render(self.render_mode) else None

    def close(self) -> None:
        self.env.close()
