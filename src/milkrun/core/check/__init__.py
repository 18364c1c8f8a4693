"""check_world() finds what is broken in a new world (`checker`) by rules (`rules`, `interpreted`, `replays`)."""

from milkrun.core.check.checker import Finding, check_world

__all__ = ["Finding", "check_world"]
