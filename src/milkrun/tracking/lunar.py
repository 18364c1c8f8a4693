"""The options of the second environment of the benchmark DAT, Gymnasium's LunarLander as pictures, by DAT's names."""

from __future__ import annotations

from dataclasses import dataclass

from milkrun.core.config import Config, option
from milkrun.tracking.files import LUNAR_LANDER, Source, read_section


@dataclass(frozen=True, kw_only=True)
class LunarLanderConfig(Config):
    """The section "LunarLander" of DAT's file."""

    Need_render: int = option(1, "1: states are pictures of the landing", choices=(0, 1))
    Action_dim: int = option(4, "actions: LunarLander has 4", choices=(4,))
    State_size: int = option(84, "pixels a side of a picture", low=16, high=512)
    State_channel: int = option(3, "3: RGB; 1: grey", choices=(1, 3))
    Norm_Type: int | None = option(0, "0: /255; 1: (v-128)/128; None: uint8", choices=(0, 1))

    @classmethod
    def from_dat(cls, source: Source = None) -> LunarLanderConfig:
        """Of a file of the benchmark DAT: its path, its contents, or the section; None is the packaged one."""
        return read_section(cls, source, LUNAR_LANDER)
