"""Worlds as TorchRL environments: functional TensorDict environments, and a base for worlds in torch alone."""

from __future__ import annotations

from milkrun.core.errors import missing_extra

try:
    import tensordict  # noqa: F401
    import torch  # noqa: F401
    import torchrl  # noqa: F401
except ImportError as e:
    raise missing_extra(str(e.name), "torch") from e

from milkrun.api.torchrl.base import RL4COEnvBase
from milkrun.api.torchrl.classes import (
    CVRPEnv,
    CVRPPEnv,
    CWCVRPEnv,
    PCTSPEnv,
    PDPEnv,
    SCWCVRPEnv,
    SDWCVRPEnv,
    TSPEnv,
    VRPEnv,
    VRPPEnv,
    WCVRPEnv,
    env_class,
    make,
)
from milkrun.api.torchrl.darp import DARPEnv
from milkrun.api.torchrl.env import TorchRLEnv
from milkrun.api.torchrl.improvement import ImprovementEnvBase
from milkrun.api.torchrl.kopt import TSPkoptEnv
from milkrun.api.torchrl.mixins import BatchMixin, OpsMixin

__all__ = [
    "BatchMixin",
    "CVRPEnv",
    "CVRPPEnv",
    "CWCVRPEnv",
    "DARPEnv",
    "ImprovementEnvBase",
    "OpsMixin",
    "PCTSPEnv",
    "PDPEnv",
    "RL4COEnvBase",
    "SCWCVRPEnv",
    "SDWCVRPEnv",
    "TSPEnv",
    "TSPkoptEnv",
    "TorchRLEnv",
    "VRPEnv",
    "VRPPEnv",
    "WCVRPEnv",
    "env_class",
    "make",
]
