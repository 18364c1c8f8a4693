"""The options of the travelling salesperson with a drone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from milkrun.core.config import Config, option
from milkrun.core.errors import ConfigError
from milkrun.delivery.instances.tspd import LARGEST
from milkrun.delivery.tspd.generator import LAWS


@dataclass(frozen=True, kw_only=True)
class TSPDConfig(Config):
    """Options of the TSP with a drone."""

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {f"alpha{a}": {"alpha": float(a)} for a in (1, 2, 3)}

    num_nodes: int = option(11, "nodes, the depot included", low=2, high=1000)
    law: str = option("uniform", "law of the places", choices=LAWS)
    alpha: float = option(2.0, "the drone pays 1/alpha for a unit of distance, the truck 1", low=1e-3, high=1e3)
    max_fly: float = option(math.inf, "largest cost of both legs of a flight together, in drone cost", low=0)
    max_steps: int | str | None = option(
        None, "steps until a row is truncated; auto = 3 num_nodes; None = no limit", low=1, high=2**62, words=("auto",)
    )

    def validate(self) -> None:
        if LARGEST < self.max_fly < math.inf:
            raise ConfigError(f"TSPDConfig.max_fly = {self.max_fly}: must be <= {LARGEST:g}, or inf for no limit")
