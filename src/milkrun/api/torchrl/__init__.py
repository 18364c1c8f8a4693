"""Milkrun's worlds in TorchRL's words: functional TensorDict environments, and a base for worlds in torch alone."""

from __future__ import annotations

from milkrun.core.errors import missing_extra

try:
    import tensordict  # noqa: F401
    import torch  # noqa: F401
    import torchrl  # noqa: F401
except ImportError as e:
    raise missing_extra(str(e.name), "torch") from e

from milkrun.api.torchrl.base import RL4COEnvBase
from milkrun.api.torchrl.env import CVRPEnv, TorchRLEnv, TSPEnv, env_class, make
from milkrun.api.torchrl.mixins import BatchMixin, OpsMixin

__all__ = ["BatchMixin", "CVRPEnv", "OpsMixin", "RL4COEnvBase", "TSPEnv", "TorchRLEnv", "env_class", "make"]
