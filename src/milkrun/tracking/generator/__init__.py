"""The generator of towns: roads, ground, boxes."""
