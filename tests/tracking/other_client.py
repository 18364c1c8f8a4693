"""A client of the link, written from docs/link.md alone without knowledge of the code: sockets, msgpack, numpy.

It shares no code with Milkrun's client and is strict on purpose: it checks every rule of the page that a client can
check.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import math
import operator
import socket
import struct
import time
from typing import Any

import msgpack
import numpy as np

MAX_HEADER, MAX_PAYLOAD, MAX_TEXT, MAX_DEPTH, MAX_AXES, MAX_MISSING = 65_536, 33_554_432, 4_096, 8, 8, 1_000
SILENCE = 5.0  # seconds without a byte, while waiting, after which the simulator is dead
DTYPES = {"u1": "|u1", "i4": "<i4", "i8": "<i8", "f4": "<f4", "f8": "<f8"}
NAN, CUTS = 8, (10, 11)  # reasons: one that only a client sets (12 is the other), and those that truncate
KEYS: dict[str, dict[str, Any]] = {  # what a simulator may send, and the keys that it must have
    "challenge": {"proto": int, "nonce": bytes, "auth": bool},
    "welcome": {"proto": int, "n": int, "image": list, "sim_hz": int, "caps": list},
    "obs": {
        "turn": int,
        "sim_step": int,
        "done": bool,
        "truncated": bool,
        "reason": int,
        "kind": str,
        "visible": bool,
        "illegal": bool,
        "arrays": list,
    },
    "wait": {"missing": list},
    "error": {"code": str, "text": str},
    "ping": {},
    "pong": {},
    "bye": {},
}


class SimulatorError(Exception):
    """The simulator sent `error`: its code, for programs, and its text, for users."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(f"{code}: {text}")
        self.code, self.text = code, text


class ProtocolBroken(Exception):
    """The simulator violated the protocol; the connection is closed."""


class LinkLost(Exception):
    """The connection ended, or was silent for too long: the simulator is dead."""


class OutOfTime(Exception):
    """The simulator lives (it sends `wait`) but the answer is late; `answer` may be called again."""


def need(condition: bool, text: str) -> None:
    """Raise ProtocolBroken unless the condition holds: one line for each rule of the page."""
    if not condition:
        raise ProtocolBroken(text)


def is_a(value: Any, types: Any) -> bool:
    """Check the type as in msgpack: a boolean is no integer, unlike in Python."""
    return isinstance(value, types) and (types is bool or not isinstance(value, bool))


def check_value(value: Any, depth: int = 1) -> None:
    """Check types, keys and depth of a header, which is itself the first level."""
    if isinstance(value, (dict, list)):
        need(depth <= MAX_DEPTH, f"header deeper than {MAX_DEPTH} levels")
        need(all(isinstance(key, str) for key in value) or isinstance(value, list), "a key of a map is not a string")
        for inner in value.values() if isinstance(value, dict) else value:
            check_value(inner, depth + 1)
    else:
        need(value is None or isinstance(value, (bool, int, float, str, bytes)), f"{value!r} in a header")


def decode_header(body: bytes) -> dict[str, Any]:
    """Decode a header within the limits of the page and check the keys that its type must have."""
    try:
        header: dict[str, Any] = msgpack.unpackb(body, max_str_len=MAX_TEXT, max_bin_len=MAX_TEXT, max_ext_len=0)
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise ProtocolBroken(f"header is not msgpack within the limits: {error!r}") from error
    need(isinstance(header, dict) and isinstance(header.get("type"), str), "header is not a map with a type")
    check_value(header)
    kind = header["type"]
    need(kind in KEYS, f"a simulator does not send {kind!r}")
    for key, types in KEYS[kind].items():
        need(is_a(header.get(key), types), f"{kind}: {key} is {header.get(key)!r}")
    return header


def split_arrays(specs: list[Any], payload: bytes) -> dict[str, np.ndarray]:
    """Cut a payload into its arrays; their bytes must add up to the payload."""
    arrays: dict[str, np.ndarray] = {}
    at = 0
    for spec in specs:
        need(isinstance(spec, list) and len(spec) == 3, f"array {spec!r}")
        name, dtype, shape = spec
        need(isinstance(name, str) and name not in arrays, f"name of an array {name!r}")
        need(isinstance(dtype, str) and dtype in DTYPES, f"{name}: dtype {dtype!r}")
        need(isinstance(shape, list) and len(shape) <= MAX_AXES, f"{name}: shape {shape!r}")
        need(all(is_a(size, int) and 0 <= size <= MAX_PAYLOAD for size in shape), f"{name}: shape {shape!r}")
        end = at + math.prod(shape) * int(dtype[1])
        need(end <= len(payload), f"{name} goes beyond the payload")
        arrays[name] = np.frombuffer(payload[at:end], DTYPES[dtype]).reshape(shape)
        at = end
    need(at == len(payload), f"arrays have {at} bytes, the payload {len(payload)}")
    return arrays


class OtherClient:
    """One environment on a simulator: request by `ask_reset` or `ask_step`, then receive the `answer`.

    Request and answer are separate calls because with a barrier all environments of a group must send their request
    before one may wait. `timeout` bounds each wait as a whole, in addition to the 5 seconds of silence.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        group: str = "main",
        n: int = 1,
        idx: int = 0,
        barrier: bool = True,
        config: dict[str, Any] | None = None,
        token: str | bytes | None = None,
        timeout: float = 20.0,
    ) -> None:
        self.n, self.config, self.timeout, self.turn = n, config or {}, timeout, 0
        self.missing: list[int] = []  # of the last `wait`
        self.welcome: dict[str, Any] = {}
        self._open: str | None = None  # the type of the question without an answer yet
        self._early: dict[str, Any] | None = None  # the answer, if it arrived before a pong
        self._sim_step, self._stride = 0, 0  # sim steps of the episode, and of a step
        try:
            self._socket = socket.create_connection((host, port), timeout)
        except OSError as error:
            raise LinkLost(f"no connection to {host}:{port}: {error}") from error
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._greet(group, idx, barrier, token)
        except BaseException:
            self._socket.close()
            raise

    def _greet(self, group: str, idx: int, barrier: bool, token: str | bytes | None) -> None:
        """Exchange challenge, hello, welcome; without a token the mac is nil, which the simulator may refuse."""
        challenge = self._next("challenge", "wait")
        need(challenge["proto"] == 1, f"proto {challenge['proto']}")
        need(16 <= len(challenge["nonce"]) <= 64, f"nonce of {len(challenge['nonce'])} bytes")
        mac = None
        if challenge["auth"] and token is not None:
            secret = (token.encode() if isinstance(token, str) else token).strip()
            text = b"|".join((challenge["nonce"], group.encode(), str(idx).encode()))
            mac = hmac.new(secret, text, hashlib.sha256).digest()
        self._send(
            {
                "type": "hello",
                "proto": 1,
                "group": group,
                "n": self.n,
                "idx": idx,
                "barrier": barrier,
                "config": self.config,
                "mac": mac,
            }
        )
        welcome = self._next("welcome", "wait")
        image = welcome["image"]
        need(welcome["proto"] == 1 and welcome["n"] == self.n, f"welcome is for another: {welcome}")
        need(len(image) == 3 and all(is_a(s, int) and s > 0 for s in image) and image[0] in (1, 3), f"image {image}")
        sim_hz, control_hz = welcome["sim_hz"], self.config.get("control_hz", 125)
        need(sim_hz > 0 and sim_hz % control_hz == 0, f"sim_hz {sim_hz} for a control_hz of {control_hz}")
        need(all(isinstance(cap, str) for cap in welcome["caps"]), f"caps {welcome['caps']}")
        self.welcome, self._stride = welcome, sim_hz // control_hz

    def ask_reset(self, seed: int, row: int, episode: int) -> None:
        """Request the first picture of the episode of that key."""
        self._ask({"type": "reset", "turn": self.turn, "seed": int(seed), "row": int(row), "episode": int(episode)})

    def ask_step(self, action: Any, cmd: Any) -> None:
        """Request a step: the agent's action (an integer or four floats) and its four speeds.

        A step before a reset or after an end is also sent: the simulator must refuse it (error `turn`).
        """
        plain = int(operator.index(action)) if np.ndim(action) == 0 else [float(a) for a in action]
        self._ask({"type": "step", "turn": self.turn, "action": plain, "cmd": [float(c) for c in cmd]})

    def answer(self) -> dict[str, Any]:
        """Wait for the answer of the open question: the keys of `obs`, and its arrays by name in place of `arrays`."""
        if self._open is None:
            raise RuntimeError("there is no open request")
        obs = self._early or self._next("obs", "wait")
        self._open, self._early, self.turn = None, None, self.turn + 1
        return obs

    def ping(self) -> float:
        """Send a ping and wait for its pong; return the seconds. An answer that arrives first is kept for `answer`."""
        start = time.monotonic()
        self._send({"type": "ping"})
        while (message := self._next("pong", "obs", "wait"))["type"] != "pong":
            self._early = message
        return time.monotonic() - start

    def close(self) -> None:
        """Send close, receive bye, wait for the end of the connection. No-op on a closed or broken connection."""
        if self._socket.fileno() < 0:
            return
        try:
            self._send({"type": "close"})
            while self._next("bye", "obs", "wait", "pong")["type"] != "bye":  # messages under way may arrive before
                pass
            self._socket.settimeout(SILENCE)
            try:
                need(self._socket.recv(1) == b"", "bytes after bye")
            except OSError as error:
                raise ProtocolBroken(f"no end of the connection after bye: {error}") from error
        finally:
            self._socket.close()

    def _ask(self, question: dict[str, Any]) -> None:
        """Send a question, if no other is open."""
        if self._open is not None:
            raise RuntimeError("the answer of the question before has not been taken")
        self._send(question)
        self._open, self.missing = question["type"], []

    def _send(self, header: dict[str, Any]) -> None:
        """Send a frame. A failure is reported when the answer is read, since an `error` with the reason may precede
        it."""
        if self._socket.fileno() < 0:
            raise LinkLost("the connection is closed")
        body = msgpack.packb(header)
        self._socket.settimeout(SILENCE)
        with contextlib.suppress(OSError):
            self._socket.sendall(struct.pack("<4sBBHII", b"MRLK", 1, 0, 0, len(body), 0) + body)

    def _next(self, *wanted: str) -> dict[str, Any]:
        """Read to the next message of a wanted type; replies to ping, stores wait, raises on error."""
        deadline = time.monotonic() + self.timeout
        try:
            while True:
                header, payload = self._frame(deadline)
                kind = header["type"]
                if kind == "error":
                    self._refused(header)
                greeted = kind in ("ping", "pong") and bool(self.welcome)
                need(kind in wanted or greeted, f"{kind} where {wanted} may come")
                if kind == "obs":
                    return self._check_obs(header, payload)
                need("arrays" not in header and not payload, f"{kind} has arrays or a payload")
                if kind == "ping":
                    self._send({"type": "pong"})
                elif kind == "wait":
                    self._note_wait(header)
                elif kind in wanted:
                    return header
        except (ProtocolBroken, LinkLost):
            self._open = None
            self._socket.close()
            raise

    def _frame(self, deadline: float) -> tuple[dict[str, Any], bytes]:
        """Read a frame. Before its first byte the deadline raises OutOfTime; after it the connection is lost."""
        first = self._exact(1, deadline)
        if first is None:
            raise OutOfTime(f"no answer within {self.timeout} s, missing {self.missing}")
        start = self._rest(15, deadline)
        magic, version, *zeros, head, load = struct.unpack("<4s4B2I", first + start)
        need(magic == b"MRLK" and version == 1, f"magic {magic!r}, version of the frame {version}")
        need(not any(zeros), "bytes 5 to 7 are not 0")
        need(1 <= head <= MAX_HEADER and load <= MAX_PAYLOAD, f"header of {head} bytes, payload of {load}")
        return decode_header(self._rest(head, deadline)), self._rest(load, deadline)

    def _rest(self, count: int, deadline: float) -> bytes:
        """Read bytes of a frame that has begun."""
        data = self._exact(count, max(deadline, time.monotonic() + SILENCE))
        if data is None:
            raise LinkLost("a frame was not complete in time")
        return data

    def _exact(self, count: int, deadline: float) -> bytes | None:
        """Read exactly that many bytes; None at the deadline. Each silence counts from the last byte on."""
        data = bytearray()
        while len(data) < count:
            left = deadline - time.monotonic()
            try:
                self._socket.settimeout(max(min(left, SILENCE), 1e-3))
                part = self._socket.recv(min(count - len(data), 1 << 20))
            except TimeoutError as error:
                if left <= SILENCE:
                    return None
                raise LinkLost(f"silent for {SILENCE} s") from error
            except OSError as error:
                raise LinkLost(f"the connection broke: {error}") from error
            if not part:
                raise LinkLost("the simulator closed the connection")
            data += part
        return bytes(data)

    def _refused(self, error: dict[str, Any]) -> None:
        """Raise an error of the simulator; only after `turn` and `internal` the connection stays.

        A question refused by `turn` does not count, so its number is used again; one answered by `internal` counts. If
        the refused question is not the open one, the open one is still answered.
        """
        code, turn = error["code"], error.get("turn")
        if code in ("turn", "internal"):
            need(is_a(turn, int), f"error {code} does not say of which turn")
            need(code == "turn" or (self._open is not None and turn == self.turn), f"internal of turn {turn}")
        else:
            self._socket.close()
        if self._socket.fileno() < 0 or turn == self.turn:
            self._open = None
        self.turn += code == "internal"
        raise SimulatorError(code, error["text"])

    def _note_wait(self, header: dict[str, Any]) -> None:
        """Check a wait and keep its `missing`; before welcome it has no turn."""
        missing, turn = header["missing"], header.get("turn")
        need(len(missing) <= MAX_MISSING, f"{len(missing)} are missing")
        need(all(is_a(i, int) and 0 <= i < self.n for i in missing), f"missing {missing}")
        if self.welcome:
            need(self._open is not None and is_a(turn, int) and turn == self.turn, f"wait of turn {turn}")
        else:
            need(turn is None, f"wait of turn {turn} before welcome")
        self.missing = missing

    def _check_obs(self, header: dict[str, Any], payload: bytes) -> dict[str, Any]:
        """Check an obs against the question, the tables and welcome; end the episode if a number is not finite."""
        need(self._open is not None and self._early is None, "obs without an open request")
        need(header["turn"] == self.turn, f"obs of turn {header['turn']}, not {self.turn}")
        arrays, caps = split_arrays(header.pop("arrays"), payload), self.welcome["caps"]
        shapes = {"image": ("|u1", tuple(self.welcome["image"])), "base": ("<f8", (22,)), "params": ("<f8", (60,))}
        if "rewards" in caps:
            shapes["scores"] = ("<f8", (2,))
        if "cloud" in caps and self.config.get("cloud", False):
            shapes["cloud"] = ("<f4", (5 * self.config.get("lidar_points", 400),))
        for name, wanted in shapes.items():
            need(name in arrays, f"obs without {name}")
            got = (arrays[name].dtype.str, arrays[name].shape)
            need(got == wanted, f"{name} is {got}, not {wanted}")
        known = {name: arrays[name] for name in shapes}
        step, done, cut, reason = (header[key] for key in ("sim_step", "done", "truncated", "reason"))
        need(0 <= reason <= max(CUTS) and reason != NAN, f"reason {reason} is not the simulator's to give")
        need(done == (reason > 0) and cut == (reason in CUTS), f"done {done}, truncated {cut}, reason {reason}")
        if self._open == "reset":
            need(step == 0 and not done, f"sim_step {step}, done {done} after a reset")
        else:
            flown = step - self._sim_step
            need(flown == self._stride or (done and 0 < flown < self._stride), f"sim_step {step}, {flown} further")
        for at, value in ((0, step), (21, done)):
            need(known["base"][at] == value, f"base[{at}] is {known['base'][at]}, the header says {value}")
        self._sim_step = step
        if not done and not all(np.isfinite(array).all() for array in known.values()):
            header.update(done=True, truncated=False, reason=NAN)
        return {**header, **known}
