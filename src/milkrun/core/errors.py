"""All errors of this library, one family.

Each message is a sentence: what was given, where (row, field), what is allowed. All errors derive from `MilkrunError`,
and each also from the builtin that a caller expects.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Any


class MilkrunError(Exception):
    """The base class: `except MilkrunError` catches every error that this library raises on purpose."""

    def __str__(self) -> str:  # KeyError would print the repr of its argument, quotes and all
        return str(self.args[0]) if self.args else ""


class RegistryError(MilkrunError, KeyError):
    """An id that is unknown, malformed or taken."""


class UnknownWorld(RegistryError):
    """An id under which no world is registered."""


class UnknownName(MilkrunError, KeyError):
    """An agent or a key of an info that an environment does not have."""


class ConfigError(MilkrunError, ValueError):
    """An invalid configuration key, value, preset, option or mode."""


class KernelRefused(ConfigError):
    """A kernel that does not compile, or is not allowed: kernel, file, line, what to write instead."""


class MapError(ConfigError):
    """A map that was not found."""


class MissingExtra(MilkrunError, ImportError):
    """A package that is not installed; the text names the extra that brings it."""


class RenderError(MilkrunError, RuntimeError):
    """A picture that this machine cannot render; the text names what to install or to set."""


class BadInstance(MilkrunError, ValueError):
    """Instance values that break a rule: row, field, reason. The world is left as it was."""


class FormatError(BadInstance):
    """An instance file that does not parse: file, line, section."""


class BadCheckpoint(MilkrunError, ValueError):
    """A file of a trained policy or a run that is damaged, unfit or of another format: path, what is wrong, what was
    expected."""


class TrainingError(MilkrunError, RuntimeError):
    """A training run that cannot continue: a gradient that is not finite, episodes that do not end."""


class ShapeError(MilkrunError, ValueError):
    """An array, key or list of the wrong shape, dtype, device or name. The world is left as it was."""


class BadSolution(MilkrunError, ValueError):
    """A solution that breaks a rule of its problem: row, rule."""


class IllegalAction(MilkrunError, ValueError):
    """An action outside the mask under `illegal="raise"`: row, action, reason. No row has moved."""


class ResetNeeded(MilkrunError, RuntimeError):
    """A use of rows that need a reset: before the first one, after an end, after an interrupted call."""


class Closed(MilkrunError, RuntimeError):
    """Use after `close()`."""


class KernelFault(MilkrunError, RuntimeError):
    """An error of a kernel that compiled code would not detect, found by interpreting it: kernel, line, field, row,
    index."""

    def __init__(self, reason: str = "", *, place: str = "", row: int | None = None, field: str = "") -> None:
        where = place if row is None or not place else f"{place}, row {row}"
        super().__init__(f"{where}: {reason}" if where else reason)
        self.reason = reason
        self.place = place
        self.row = row
        self.field = field


class ShutMask(KernelFault):
    """A kernel leaves a live row without an allowed action, found by interpreting it."""


class WorkerError(MilkrunError, RuntimeError):
    """An environment in another process died or raised: worker, process, exit code, command."""

    def __init__(
        self,
        message: str = "",
        *,
        index: int | None = None,
        pid: int | None = None,
        exit_code: int | None = None,
        command: str | None = None,
        remote_traceback: str | None = None,
    ) -> None:
        super().__init__(message)
        self.index = index
        self.pid = pid
        self.exit_code = exit_code
        self.command = command
        self.remote_traceback = remote_traceback


class WorkerTimeout(MilkrunError, TimeoutError):
    """Environments in other processes did not answer in time: which ones, and the command."""

    def __init__(self, message: str = "", *, indices: Iterable[int] = (), command: str | None = None) -> None:
        super().__init__(message)
        self.indices = tuple(indices)
        self.command = command


class ScaleError(MilkrunError, RuntimeError):
    """Work on a cluster failed: which shard and row, why, and the last lines of the remote traceback."""

    def __init__(
        self,
        message: str = "",
        *,
        shard: int | None = None,
        row: int | None = None,
        remote_traceback: str | None = None,
    ) -> None:
        super().__init__(message)
        self.shard = shard
        self.row = row
        self.remote_traceback = remote_traceback


class LinkError(MilkrunError, ConnectionError):
    """The link to a simulator in another process failed: host, port, environment, what was expected."""


class LinkVersion(LinkError):
    """The other side uses another version of the protocol, or another protocol."""


class LinkAuth(LinkError):
    """The secret is missing or wrong."""


class LinkProtocol(LinkError):
    """The other side sent a message that the protocol does not allow."""


class LinkTimeout(LinkError, TimeoutError):
    """No answer in time; the text names the environments that did not answer."""


def shown(value: Any) -> str:
    """The repr of a value for an error message, cut to 200 characters."""
    try:
        text = repr(value)
    except Exception:  # an integer of thousands of digits; an object whose repr fails
        return f"a {type(value).__name__} that cannot be printed"
    return text if len(text) <= 200 else f"{text[:197]}..."


SIMILAR = 0.6
"""The least similarity, as difflib computes it, of a name that is suggested. One wrong letter of three gives 0.67; two
letters that a word of three shares with one of four (0.57) are chance."""


def did_you_mean(word: str, known: Iterable[str], most: int = 3, listed: bool = False) -> str:
    """The end of an error message: up to `most` similar names, or those that contain `word`, or a list of all if they
    are few and not `listed` already. `word` may have the quotes of `shown`."""
    names, word = sorted(known), word.strip("'").lower()
    # Without namespace and version, which all ids share; among equally similar names the whole name decides.
    shares = {name: (_share(_own_part(word), _own_part(name.lower())), _share(word, name.lower())) for name in names}
    near = [name for name in names if shares[name][0] >= SIMILAR]
    close = sorted(near, key=lambda name: shares[name], reverse=True)
    if close := close or [name for name in names if word in name.lower().split("_")]:
        return f"; did you mean {' or '.join(repr(c) for c in close[:most])}?"
    return f"; known: {', '.join(names)}" if 0 < len(names) <= 80 and not listed else ""


def _share(word: str, name: str) -> float:
    return difflib.SequenceMatcher(None, name, word).ratio()


def _own_part(name: str) -> str:
    """A name without the namespace and the version of an id."""
    return re.sub(r"^.*/|-v\d+$", "", name)


def no_such_field(owner: str, name: str, known: Iterable[str], place: str) -> str:
    """The message about a kernel that uses a field its world does not declare; `place` is its file:line."""
    meant = did_you_mean(name, known, most=1).replace("; ", ": ", 1)
    return f"{owner} has no field {name!r}{meant}" + (f" ({place})" if place else "")


def missing_extra(package: str, extra: str) -> MissingExtra:
    """The error for a `package` that cannot be imported, naming the `extra` that installs it. Milkrun is on no package
    index, so the command is that of a checkout."""
    return MissingExtra(
        f'this needs {package}, which is not installed: pip install -e ".[{extra}]" in your checkout of Milkrun'
    )
