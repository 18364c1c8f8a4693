"""Frames of the link: sixteen bytes, a msgpack map, and arrays behind it.

What arrives comes from somebody else, so nothing of it is trusted: every length, type and level is looked at before it
is used, nothing is executed, and whatever does not hold is a `Fault` with the code that the protocol has for it.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from milkrun.core.errors import missing_extra

try:
    import msgpack
except ImportError as e:
    raise missing_extra("msgpack", "link") from e

PROTO = 1
PORT = 33727
MAGIC = b"MRLK"
VERSION = 1
PREFIX = struct.Struct("<4sBBHII")
"""Magic, version of the frame, 0, 0, bytes of the header, bytes of the payload."""
MOST_HEADER = 65_536
MOST_PAYLOAD = 33_554_432
MOST_TEXT = 4_096
"""Bytes of a string or a binary."""
SHORT = MOST_TEXT // 4
"""Characters that never have more bytes than that."""
MOST_LEVELS = 8
MOST_AXES = 8
MOST_ENVS = 4_096
"""Environments of a group."""
MOST_NAMED = 1_000
"""Environments that a `wait` names."""
DTYPES: dict[str, np.dtype[Any]] = {
    "u1": np.dtype("<u1"),
    "i4": np.dtype("<i4"),
    "i8": np.dtype("<i8"),
    "f4": np.dtype("<f4"),
    "f8": np.dtype("<f8"),
}
SPEEDS = 4
"""Numbers of a command: forward, left, up, turn."""
BASE, PARAMS, SCORES = 22, 60, 2
"""Numbers in the arrays of an `obs`."""
REWARD, DONE = 20, 21
"""Where `base` has them; 0 is the sim step, 1..19 the drone's own motion."""

Header = dict[str, Any]
Frame = tuple[Header, memoryview]
"""A header and its payload. The payload is only there until more is received."""


class Fault(Exception):
    """What the protocol does not allow: the code of the error, and a sentence for a person. It stays in the link."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code, self.text = code, text


# -- what is sent -----------------------------------------------------------------------------------------------------

_pack = msgpack.Packer(use_bin_type=True, autoreset=True).pack


def head(header: Header, payload: int = 0) -> bytes:
    """The frame of a header up to its payload, which has so many bytes."""
    packed = _pack(header)
    return PREFIX.pack(MAGIC, VERSION, 0, 0, len(packed), payload) + packed


def mac_of(token: bytes, nonce: bytes, group: str, idx: int) -> bytes:
    """The proof that a client has the token."""
    return hmac.new(token, b"|".join((nonce, group.encode(), str(idx).encode())), hashlib.sha256).digest()


# -- what arrives -----------------------------------------------------------------------------------------------------


class Inbox:
    """Bytes of one connection as they come, and the frames in them. `most_payload` is what this side accepts.

    Receive into `room()`, say by `took` how many bytes came, then ask for `frame()` until there is none. The memory
    grows with what a frame announces, within the limits, and is used again.
    """

    __slots__ = ("_data", "_end", "_most_payload", "_need", "_start", "_view")

    def __init__(self, most_payload: int = MOST_PAYLOAD, size: int = 4096) -> None:
        self._most_payload = most_payload
        self._start = self._end = 0
        self._need = PREFIX.size
        self._data = bytearray(size)
        self._view = memoryview(self._data)

    @property
    def begun(self) -> bool:
        """Whether a frame has begun and is not complete."""
        return self._end > self._start

    def room(self) -> memoryview:
        """Where the next bytes belong. What `frame` has handed out is no longer valid."""
        if self._start == self._end:
            self._start = self._end = 0
        # Moved to the front only if they are in the way of what is to come. By a copy, since the two places may
        # overlap.
        if self._start and (self._end == len(self._data) or self._start + self._need > len(self._data)):
            rest = bytes(self._view[self._start : self._end])
            self._start, self._end = 0, len(rest)
            self._view[: self._end] = rest
        if self._need > len(self._data):
            self._allot(self._need)
        return self._view[self._end :]

    def took(self, count: int) -> None:
        self._end += count

    def frame(self) -> Frame | None:
        """The next complete frame; None: more must come. Raises Fault as soon as what is there cannot be a frame."""
        start, have = self._start, self._end - self._start
        if have < PREFIX.size:
            # Another program may never send a whole prefix: it is recognised by its first bytes.
            if have and not MAGIC.startswith(bytes(self._view[start : start + min(have, 4)])):
                raise Fault("version", _foreign(bytes(self._view[start : self._end])))
            return None
        magic, version, zero, zeros, header, payload = PREFIX.unpack_from(self._data, start)
        if magic != MAGIC:
            raise Fault("version", _foreign(bytes(self._view[start : min(self._end, start + 40)])))
        if version != VERSION:
            raise Fault("version", f"the frame is of version {version}, not {VERSION}")
        if zero or zeros:
            raise Fault("protocol", "bytes 5 to 7 of a frame must be 0")
        if not 1 <= header <= MOST_HEADER:
            raise Fault("too_large" if header else "protocol", f"a header has 1 to {MOST_HEADER} bytes, not {header}")
        if payload > self._most_payload:
            raise Fault("too_large", f"a payload has at most {self._most_payload} bytes here, not {payload}")
        body = start + PREFIX.size
        stop = body + header + payload
        if stop > self._end:
            self._need = stop - start
            return None
        self._start, self._need = stop, PREFIX.size
        return read_header(self._view[body : body + header]), self._view[body + header : stop]

    def _allot(self, size: int) -> None:
        """Other memory, of at least so many bytes, with what is there at its start."""
        data = bytearray(size)
        rest = self._end - self._start
        if rest:
            data[:rest] = self._view[self._start : self._end]
        self._start, self._end = 0, rest
        self._data, self._view = data, memoryview(data)


def _foreign(begins: bytes) -> str:
    return f"a frame begins with {MAGIC!r}, not with {begins[:24]!r}"


def _no_extension(code: int, data: bytes) -> Any:
    raise ValueError("extension types are not allowed")


def read_header(data: memoryview | bytes) -> Header:
    """The map of a header, within its limits."""
    try:
        # The checks below find whatever is too large; these limits keep the decoder from making it first. max_ext_len
        # refuses timestamps too, which the decoder makes without asking the hook.
        header = msgpack.unpackb(
            data,
            raw=False,
            use_list=True,
            strict_map_key=True,
            ext_hook=_no_extension,
            max_ext_len=0,
            max_str_len=MOST_HEADER,
            max_bin_len=MOST_HEADER,
            max_array_len=MOST_HEADER,
            max_map_len=MOST_HEADER,
        )
    except msgpack.StackError:
        raise Fault("too_large", f"a header has at most {MOST_LEVELS} levels") from None
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as e:
        raise Fault("protocol", f"the header is no msgpack map of plain values: {_brief(e)}") from None
    if type(header) is not dict:
        raise Fault("protocol", f"a header is a map, not a {type(header).__name__}")
    _check_levels(header, 1)
    if type(header.get("type")) is not str:
        raise Fault("protocol", "a header has a `type`, a string")
    return header


def _brief(error: Exception) -> str:
    return f"{type(error).__name__} {str(error)[:80]}".strip()


def _check_levels(value: Any, level: int) -> None:
    """Refuses what is too deep or too long, and keys that are no strings, in a map or an array."""
    if level > MOST_LEVELS:
        raise Fault("too_large", f"a header has at most {MOST_LEVELS} levels")
    if type(value) is dict:
        for key in value:
            if type(key) is not str:
                raise Fault("protocol", "keys are strings")
            if len(key) > SHORT:
                _check_text(key)
        value = value.values()
    for item in value:
        kind = type(item)
        if kind is str or kind is bytes:
            if len(item) > SHORT:
                _check_text(item)
        elif kind is list or kind is dict:
            _check_levels(item, level + 1)


def _check_text(text: str | bytes) -> None:
    if len(text.encode() if isinstance(text, str) else text) > MOST_TEXT:
        raise Fault("too_large", f"strings and binaries have at most {MOST_TEXT} bytes")


def read_arrays(header: Header, payload: memoryview) -> dict[str, np.ndarray]:
    """The arrays of a frame by name: views of the payload."""
    listed = header.get("arrays", [])
    if type(listed) is not list:
        raise Fault("protocol", "`arrays` is a list")
    arrays: dict[str, np.ndarray] = {}
    at = 0
    for entry in listed:
        if type(entry) is not list or len(entry) != 3:
            raise Fault("protocol", "an entry of `arrays` is [name, dtype, shape]")
        name, code, shape = entry
        if type(name) is not str or name in arrays:
            raise Fault("protocol", "the name of an array is a string of its own")
        dtype = DTYPES.get(code) if type(code) is str else None
        if dtype is None:
            raise Fault("protocol", f"the dtype of an array is one of {' '.join(DTYPES)}")
        if type(shape) is not list or len(shape) > MOST_AXES:
            raise Fault("protocol", f"the shape of an array is a list of at most {MOST_AXES} sizes")
        count = 1
        for size in shape:
            if type(size) is not int or not 0 <= size <= MOST_PAYLOAD:
                raise Fault("protocol", f"a size of an array is an integer in 0 .. {MOST_PAYLOAD}")
            count *= size
        stop = at + count * dtype.itemsize
        if stop > len(payload):
            raise Fault("protocol", "the arrays have more bytes than the payload")
        array = np.frombuffer(payload, dtype, count, at) if count else np.empty(0, dtype)
        try:
            arrays[name] = array if len(shape) == 1 else array.reshape(shape)
        except ValueError:  # an array without elements too has a size that numpy can count, its zeros left out
            raise Fault("protocol", "the shape of an array is larger than any array") from None
        at = stop
    if at != len(payload):
        raise Fault("protocol", f"the arrays have {at} bytes, the payload {len(payload)}")
    return arrays


# -- what a header may hold -------------------------------------------------------------------------------------------


def whole(header: Header, key: str, low: int, high: int = 2**63 - 1) -> int:
    """An integer of a header."""
    value = header.get(key)
    # Not isinstance, here and below: True is an int too.
    if type(value) is not int or not low <= value <= high:
        raise Fault("protocol", f"`{key}` of `{header['type']}` is an integer in {low} .. {high}")
    return value


def flag(header: Header, key: str) -> bool:
    value = header.get(key)
    if type(value) is not bool:
        raise Fault("protocol", f"`{key}` of `{header['type']}` is a boolean")
    return value


def text(header: Header, key: str, most: int = MOST_TEXT, least: int = 0) -> str:
    """A string of a header, of so many bytes."""
    value = header.get(key)
    if type(value) is not str or not least <= len(value.encode()) <= most:
        raise Fault("protocol", f"`{key}` of `{header['type']}` is a string of {least} to {most} bytes")
    return value


def numbers(value: Any, what: str, count: int) -> list[float]:
    """So many numbers, all of them finite."""
    if type(value) is not list or len(value) != count or not all(type(x) in (int, float) for x in value):
        raise Fault("protocol", f"{what}: {count} numbers")
    if not all(map(math.isfinite, value)):
        raise Fault("protocol", f"{what}: {count} finite numbers, not NaN or infinity")
    return value


def wholes(header: Header, key: str, most: int) -> Sequence[int]:
    """A list of integers that are not negative."""
    value = header.get(key)
    if type(value) is not list or len(value) > most or not all(type(x) is int and x >= 0 for x in value):
        raise Fault("protocol", f"`{key}` of `{header['type']}` is a list of at most {most} integers")
    return value
