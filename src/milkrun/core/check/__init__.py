"""check_world(): finds what is broken in a new world (`checker`), by rules that stand in `rules` and `replays`."""

from milkrun.core.check.checker import Finding, check_world

__all__ = ["Finding", "check_world"]
