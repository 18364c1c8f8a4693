"""The import path of the published truck-and-drones environment; the code is in `milkrun.compat.vrp`."""
