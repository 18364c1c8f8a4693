"""Drawing: what a row of a world looks like (`scene`), and how it becomes pixels without a picture library.

`World.scene`, `World.render` and the recorder load it when first called; a world that is only stepped never does.
"""
