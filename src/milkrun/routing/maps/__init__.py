"""Maps: real or synthetic places of bins, from CSV or GeoJSON files, for worlds that are not drawn from a law.

town = load_map("synthetic-town").filter(stream="glass")
town.locs, town.km_per_unit
"""

from milkrun.routing.maps.map import Map
from milkrun.routing.maps.search import available_maps, load_map
from milkrun.routing.maps.units import BIN_M3, EUR_PER_KG, EUR_PER_KM, KG_PER_M3

__all__ = ["BIN_M3", "EUR_PER_KG", "EUR_PER_KM", "KG_PER_M3", "Map", "available_maps", "load_map"]
