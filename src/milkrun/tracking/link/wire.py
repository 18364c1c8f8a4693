"""What both sides of the link share: frames (a prefix, a msgpack map, arrays), options and secrets of a `hello`.

Received bytes are not trusted: every length, type and nesting level is validated before use, and nothing is executed.
A violation raises `Fault` with its error code in the protocol (docs/link.md).
"""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
import math
import os
import shlex
import stat
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from milkrun.core.errors import ConfigError, missing_extra
from milkrun.tracking.config import TrackingConfig

try:
    import msgpack
except ImportError as e:
    raise missing_extra("msgpack", "link") from e

PROTO = 1
PORT = 33727
MAGIC = b"MRLK"
VERSION = 1
PREFIX = struct.Struct("<4sBBHII")
"""Magic, frame version, two reserved fields (0), header length and payload length in bytes."""
MAX_HEADER = 65_536
MAX_PAYLOAD = 33_554_432
MAX_TEXT = 4_096
"""Bytes of a string or a binary."""
SAFE_CHARACTERS = MAX_TEXT // 4
"""A string of at most this many characters never exceeds MAX_TEXT bytes in UTF-8."""
MAX_LEVELS = 8
MAX_AXES = 8
MAX_ENVS = 4_096
"""Environments of a group."""
MAX_MISSING = 1_000
"""Environments listed in a `wait`."""
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
"""Sizes of the float64 arrays of an `obs`."""
REWARD, DONE = 20, 21
"""Indices in `base`; index 0 is the sim step, 1..19 are the drone's own motion."""
LOOPBACK = ("127.0.0.1", "::1", "localhost")
MIN_TOKEN = 16
"""Bytes of a secret: 128 bits if they are random."""
CLIENT_OPTIONS = (
    "norm",
    "need_render",
    "verbose",
    "log_dir",
    "link",
    "port",
    "auto_start",
    "delay",
    "barrier",
    "token_file",
    "max_restarts",
    "other_state",
    "reward_params",
    "critic",
    "frame_stack",
)
"""Options without effect on the computations of a simulator."""

Header = dict[str, Any]
Frame = tuple[Header, memoryview]
"""A header and its payload, a view that is valid until the next receive."""


class Fault(Exception):
    """A protocol violation: the error code and a sentence for the user. Never leaves the link."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


# -- encode ----------------------------------------------------------------------------------------------------------

_pack = msgpack.Packer(use_bin_type=True, autoreset=True).pack


def encode(header: Header, payload: int = 0) -> bytes:
    """The bytes of a frame up to its payload. `payload`: length of the payload in bytes."""
    packed = _pack(header)
    return PREFIX.pack(MAGIC, VERSION, 0, 0, len(packed), payload) + packed


def mac_of(token: bytes, nonce: bytes, group: str, idx: int) -> bytes:
    """The HMAC by which a client proves that it has the token."""
    return hmac.new(token, b"|".join((nonce, group.encode(), str(idx).encode())), hashlib.sha256).digest()


# -- decode ----------------------------------------------------------------------------------------------------------


class FrameReader:
    """Receive buffer of one connection, which decodes frames from it. `max_payload` limits the accepted payload.

    Receive into `space()`, call `advance` with the number of received bytes, then call `frame()` until it returns
    None. The buffer is reused; it grows to the announced length of a frame, within the limits.
    """

    __slots__ = ("_data", "_end", "_max_payload", "_need", "_start", "_view")

    def __init__(self, max_payload: int = MAX_PAYLOAD, size: int = 4096) -> None:
        self._max_payload = max_payload
        self._start = self._end = 0
        self._need = PREFIX.size
        self._data = bytearray(size)
        self._view = memoryview(self._data)

    @property
    def partial(self) -> bool:
        """Whether the buffer holds the beginning of an incomplete frame."""
        return self._end > self._start

    def space(self) -> memoryview:
        """Free space for the next bytes. Invalidates the payloads that `frame` has returned."""
        if self._start == self._end:
            self._start = self._end = 0
        # Unread bytes move to the front only if the frame would not fit. Via a copy, since the two places may overlap.
        if self._start and (self._end == len(self._data) or self._start + self._need > len(self._data)):
            rest = bytes(self._view[self._start : self._end])
            self._start = 0
            self._end = len(rest)
            self._view[: self._end] = rest
        if self._need > len(self._data):
            self._allocate(self._need)
        return self._view[self._end :]

    def advance(self, count: int) -> None:
        """Counts bytes that were received into `space()`."""
        self._end += count

    def frame(self) -> Frame | None:
        """The next complete frame, or None. Raises Fault as soon as the received bytes cannot be a frame."""
        start, have = self._start, self._end - self._start
        if have < PREFIX.size:
            # Another program may never send a whole prefix, so its first bytes are compared already.
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
        if not 1 <= header <= MAX_HEADER:
            raise Fault("too_large" if header else "protocol", f"a header has 1 to {MAX_HEADER} bytes, not {header}")
        if payload > self._max_payload:
            raise Fault("too_large", f"a payload has at most {self._max_payload} bytes here, not {payload}")
        body = start + PREFIX.size
        stop = body + header + payload
        if stop > self._end:
            self._need = stop - start
            return None
        self._start = stop
        self._need = PREFIX.size
        return read_header(self._view[body : body + header]), self._view[body + header : stop]

    def _allocate(self, size: int) -> None:
        """Replaces the buffer by one of `size` bytes and keeps the unread bytes."""
        data = bytearray(size)
        rest = self._end - self._start
        if rest:
            data[:rest] = self._view[self._start : self._end]
        self._start = 0
        self._end = rest
        self._data = data
        self._view = memoryview(data)


def _foreign(begins: bytes) -> str:
    return f"a frame begins with {MAGIC!r}, not with {begins[:24]!r}"


def _no_extension(code: int, data: bytes) -> Any:
    raise ValueError("extension types are not allowed")


def read_header(data: memoryview | bytes) -> Header:
    """Decodes a header and validates its limits."""
    try:
        # The checks below refuse large values; these limits prevent their allocation. max_ext_len also refuses
        # timestamps, which the decoder creates without a call of the hook.
        header = msgpack.unpackb(
            data,
            raw=False,
            use_list=True,
            strict_map_key=True,
            ext_hook=_no_extension,
            max_ext_len=0,
            max_str_len=MAX_HEADER,
            max_bin_len=MAX_HEADER,
            max_array_len=MAX_HEADER,
            max_map_len=MAX_HEADER,
        )
    except msgpack.StackError:
        raise Fault("too_large", f"a header has at most {MAX_LEVELS} levels") from None
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
    """Refuses excessive nesting or length, and keys other than strings, in a map or an array."""
    if level > MAX_LEVELS:
        raise Fault("too_large", f"a header has at most {MAX_LEVELS} levels")
    if type(value) is dict:
        for key in value:
            if type(key) is not str:
                raise Fault("protocol", "keys are strings")
            if len(key) > SAFE_CHARACTERS:
                _check_text(key)
        value = value.values()
    for item in value:
        kind = type(item)
        if kind is str or kind is bytes:
            if len(item) > SAFE_CHARACTERS:
                _check_text(item)
        elif kind is list or kind is dict:
            _check_levels(item, level + 1)


def _check_text(text: str | bytes) -> None:
    if len(text.encode() if isinstance(text, str) else text) > MAX_TEXT:
        raise Fault("too_large", f"strings and binaries have at most {MAX_TEXT} bytes")


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
        if type(shape) is not list or len(shape) > MAX_AXES:
            raise Fault("protocol", f"the shape of an array is a list of at most {MAX_AXES} sizes")
        count = 1
        for size in shape:
            if type(size) is not int or not 0 <= size <= MAX_PAYLOAD:
                raise Fault("protocol", f"a size of an array is an integer in 0 .. {MAX_PAYLOAD}")
            count *= size
        stop = at + count * dtype.itemsize
        if stop > len(payload):
            raise Fault("protocol", "the arrays have more bytes than the payload")
        array = np.frombuffer(payload, dtype, count, at) if count else np.empty(0, dtype)
        try:
            arrays[name] = array if len(shape) == 1 else array.reshape(shape)
        except ValueError:  # numpy multiplies the sizes other than 0 even if the array is empty
            raise Fault("protocol", "the shape of an array is larger than any array") from None
        at = stop
    if at != len(payload):
        raise Fault("protocol", f"the arrays have {at} bytes, the payload {len(payload)}")
    return arrays


# -- values of a header -----------------------------------------------------------------------------------------------


def integer(header: Header, key: str, low: int, high: int = 2**63 - 1) -> int:
    """The integer at `key`, validated."""
    value = header.get(key)
    # type() instead of isinstance, here and below: True is an instance of int.
    if type(value) is not int or not low <= value <= high:
        raise Fault("protocol", f"`{key}` of `{header['type']}` is an integer in {low} .. {high}")
    return value


def boolean(header: Header, key: str) -> bool:
    """The boolean at `key`, validated."""
    value = header.get(key)
    if type(value) is not bool:
        raise Fault("protocol", f"`{key}` of `{header['type']}` is a boolean")
    return value


def string(header: Header, key: str, high: int = MAX_TEXT, low: int = 0) -> str:
    """The string at `key`, of `low` to `high` bytes, validated."""
    value = header.get(key)
    if type(value) is not str or not low <= len(value.encode()) <= high:
        raise Fault("protocol", f"`{key}` of `{header['type']}` is a string of {low} to {high} bytes")
    return value


def floats(value: Any, what: str, count: int) -> list[float]:
    """`count` finite numbers, validated."""
    if type(value) is not list or len(value) != count or not all(type(x) in (int, float) for x in value):
        raise Fault("protocol", f"{what}: {count} numbers")
    if not all(map(math.isfinite, value)):
        raise Fault("protocol", f"{what}: {count} finite numbers, not NaN or infinity")
    return value


def integers(header: Header, key: str, high: int) -> Sequence[int]:
    """The list at `key`, of at most `high` integers of 0 or more, validated."""
    value = header.get(key)
    if type(value) is not list or len(value) > high or not all(type(x) is int and x >= 0 for x in value):
        raise Fault("protocol", f"`{key}` of `{header['type']}` is a list of at most {high} integers")
    return value


# -- options and secrets of a `hello` ----------------------------------------------------------------------------------


def options_of(config: TrackingConfig) -> dict[str, Any]:
    """The options in a `hello`: those that affect a simulator and differ from their default.

    `scene` and `weather` are always included unless they are None, since a simulator may have its own defaults.
    """
    options = {}
    # Every other option that may be None has None as its default.
    for f in dataclasses.fields(config):
        value = getattr(config, f.name)
        if f.name in CLIENT_OPTIONS or value is None or (value == f.default and f.name not in ("scene", "weather")):
            continue
        options[f.name] = list(value) if isinstance(value, tuple) else value
    return options


def read_options(given: Mapping[str, Any], defaults: Mapping[str, Any] | None = None) -> TrackingConfig:
    """The configuration of a group from the options in a `hello`, completed by `defaults`. Raises ConfigError."""
    try:
        config = TrackingConfig.build(config={**(defaults or {}), **given})
    except (TypeError, ValueError, ArithmeticError) as e:  # ConfigError is a ValueError
        raise e if isinstance(e, ConfigError) else ConfigError(f"the options cannot be read: {e}") from None
    unchanged = {f.name: f.default for f in dataclasses.fields(TrackingConfig) if f.name in CLIENT_OPTIONS}
    return config.replace(**unchanged)


def read_token(path: str | None) -> bytes | None:
    """The secret in a file, stripped of white space; None without a path.

    As ssh does with its keys, it refuses a file that other users may read or write.
    """
    if path is None:
        return None
    try:
        with Path(path).open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            token = file.read().strip()
    except (OSError, ValueError) as e:
        raise ConfigError(f"token_file {path!r}: cannot be read: {getattr(e, 'strerror', None) or e}") from None
    if mode & 0o077:
        raise ConfigError(
            f"token_file {path!r}: has the mode {mode:04o}, so other users may read or write it; "
            f"set it to 0600: chmod 600 {shlex.quote(str(path))}"
        )
    if len(token) < MIN_TOKEN:
        raise ConfigError(
            f"token_file {path!r}: holds {len(token)} bytes; put a random secret of at least {MIN_TOKEN} "
            "bytes in it, for example by: openssl rand -hex 32"
        )
    return token
