"""What reports on a map count in: the weight and the worth of what bins hold, and what driving costs."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

BIN_M3 = 2.5
"""volume of a bin, m³, where a map states none"""

KG_PER_M3: Mapping[str, float] = MappingProxyType({"paper": 21.0, "plastic": 19.0, "glass": 190.0})
"""density in the bin by stream"""

EUR_PER_KG: Mapping[str, float] = MappingProxyType({"paper": 0.1625, "plastic": 0.5837, "glass": 0.0756})
"""what a kilogram brings by stream"""

EUR_PER_KM = 1.0
"""what a kilometre costs"""
