"""Maps: real or synthetic places of bins, read from CSV or GeoJSON files, in place of drawn ones.

town = load_map("synthetic-town").filter(stream="glass")
town.locs, town.km_per_unit
"""

from milkrun.routing.maps.files import available_maps, load_map
from milkrun.routing.maps.map import BIN_M3, EUR_PER_KG, EUR_PER_KM, KG_PER_M3, Map

__all__ = ["BIN_M3", "EUR_PER_KG", "EUR_PER_KM", "KG_PER_M3", "Map", "available_maps", "load_map"]
