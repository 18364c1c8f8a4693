"""The process with which a simulator ends."""

from __future__ import annotations

import os


class Parent:
    """A process that is watched: readable `file` when it has died, or asked for on every beat."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.file: int | None = None
        self._gone = False
        try:
            self.file = os.pidfd_open(pid)
        except ProcessLookupError:
            self._gone = True
        except (AttributeError, OSError):  # an old kernel
            pass

    def gone(self) -> bool:
        """Whether it has died; where there is a `file`, that tells it."""
        if self._gone or self.file is not None:
            return self._gone
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            pass
        return False

    def close(self) -> None:
        if self.file is not None:
            os.close(self.file)
