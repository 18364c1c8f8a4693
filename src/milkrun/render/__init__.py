"""Drawing: scenes of rows (`scene`), their rasterisation without a picture library, and the recorder of episodes.

Imported lazily by `World.scene`, `World.render` and recorders; stepping a world does not load it.
"""
