"""The independent checker of dial-a-ride routes. It calls no kernel."""

from milkrun.routing.darp.task.checker import DARPProblem, DARPReport

__all__ = ["DARPProblem", "DARPReport"]
