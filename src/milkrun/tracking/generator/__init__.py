"""How a town is made: its roads, its ground, its boxes."""
