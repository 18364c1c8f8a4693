"""Simulators and clients for the tests of the link: a server in a thread, a plain socket for frames, a scripted
simulator, and the moments of an in-process row."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from pathlib import Path
from typing import Any

import msgpack
import numpy as np

from milkrun.tracking.config import TrackingConfig
from milkrun.tracking.link.client import Link, Patience
from milkrun.tracking.link.server import Limits, Server
from milkrun.tracking.moment import Moment
from milkrun.tracking.tables import KINDS
from milkrun.tracking.world import Tracking

SMALL: dict[str, Any] = {"size": 16, "ground_cell": 2.0, "max_vehicles": 4, "max_sim_steps": 40}
WAITING = {"delay": 300.0}
"""Options of clients: the first group of a kind of world may wait for the compiler."""
QUICK = Limits(greeting=30.0, frame=30.0, wait=0.05, leaving=5.0, idle=0.0)
"""Frequent signs of life; other limits are large."""
PLENTY = 60.0
"""A timeout in seconds that no test reaches."""


class Hosted:
    """A server in a thread of this process."""

    def __init__(self, limits: Limits = QUICK, **options: Any) -> None:
        self.log: list[str] = []
        self.server = Server(port=0, limits=limits, log=self.log.append, **options)
        self.port = self.server.port
        self.said: str | None = None
        self._thread = threading.Thread(target=self._serve, name="hosted")
        self._thread.start()

    def _serve(self) -> None:
        self.said = self.server.serve()

    def __enter__(self) -> Hosted:
        return self

    def __exit__(self, *_: object) -> None:
        self.server.stop()
        self.wait()

    def wait(self) -> None:
        """Waits until the server has ended by itself."""
        self._thread.join(PLENTY)
        assert not self._thread.is_alive()
        self.server.join()

    def config(self, group: str = "main", **options: Any) -> TrackingConfig:
        return TrackingConfig.build(link=f"tcp://127.0.0.1:{self.port}/{group}", **{**SMALL, **WAITING, **options})

    def link(
        self,
        row: int = 0,
        count: int = 1,
        seed: int = 7,
        group: str = "main",
        patience: Patience | None = None,
        **options: Any,
    ) -> Link:
        return Link(self.config(group, **options), seed=seed, row=row, count=count, patience=patience)

    def links(self, count: int, **options: Any) -> list[Link]:
        return [self.link(row, count, **options) for row in range(count)]


def frame(header: Any, payload: bytes = b"") -> bytes:
    """A frame, packed here so that the tests share no code with the link."""
    packed = header if isinstance(header, bytes) else msgpack.packb(header)
    return struct.pack("<4sBBHII", b"MRLK", 1, 0, 0, len(packed), len(payload)) + packed + payload


class Raw:
    """A plain socket that sends and reads frames."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        sock.settimeout(PLENTY)

    @classmethod
    def to(cls, port: int) -> Raw:
        return cls(socket.create_connection(("127.0.0.1", port), timeout=PLENTY))

    def __enter__(self) -> Raw:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    def send(self, **header: Any) -> None:
        self.sock.sendall(frame(header))

    def read(self) -> dict[str, Any] | None:
        """The next header, its payload under "payload"; None: the other side closed."""
        prefix = self._exactly(16)
        if not prefix:
            return None
        magic, version, _, _, header, payload = struct.unpack("<4sBBHII", prefix)
        assert (magic, version) == (b"MRLK", 1)
        found = msgpack.unpackb(self._exactly(header))
        return {**found, "payload": self._exactly(payload)}

    def expect(self, kind: str) -> dict[str, Any]:
        """The next header, apart from `wait`; it must have this type."""
        while (found := self.read()) is not None and found["type"] == "wait" and kind != "wait":
            pass
        assert found is not None and found["type"] == kind, found
        return found

    def refused(self) -> str:
        """The code of the error that ends the connection."""
        code = self.expect("error")["code"]
        assert self.read() is None
        return code

    def hello(self, n: int = 1, idx: int = 0, **changes: Any) -> dict[str, Any]:
        """Sends the greeting; returns the challenge."""
        challenge = self.expect("challenge")
        self.send(**{**hello(n, idx), **changes})
        return challenge

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            with contextlib.suppress(ConnectionResetError):
                some = self.sock.recv(count - len(data))
                if some:
                    data += some
                    continue
            assert not data, "the connection ended in the middle of a frame"
            return b""
        return data


def hello(n: int = 1, idx: int = 0, group: str = "raw") -> dict[str, Any]:
    return {
        "type": "hello",
        "proto": 1,
        "group": group,
        "n": n,
        "idx": idx,
        "barrier": True,
        "config": dict(SMALL),
        "mac": None,
    }


def reset(turn: int = 0, seed: int = 7, row: int = 0, episode: int = 0) -> dict[str, Any]:
    return {"type": "reset", "turn": turn, "seed": seed, "row": row, "episode": episode}


def step(turn: int, action: Any = 6) -> dict[str, Any]:
    return {"type": "step", "turn": turn, "action": action, "cmd": [0.0] * 4}


class Scripted:
    """A simulator that serves its connections sequentially, each by `play(raw)`, in a thread."""

    def __init__(self, *plays: Any, port: int = 0) -> None:
        self._listener = socket.create_server(("127.0.0.1", port))
        self.port = self._listener.getsockname()[1]
        self.failure: BaseException | None = None
        self._plays = plays
        self._thread = threading.Thread(target=self._serve, name="scripted")
        self._thread.start()

    def _serve(self) -> None:
        try:
            for play in self._plays:
                with Raw(self._listener.accept()[0]) as raw, contextlib.suppress(ConnectionError):  # the client left
                    play(raw)
        except OSError:  # the listener was closed
            pass
        except BaseException as e:
            self.failure = e

    def __enter__(self) -> Scripted:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(PLENTY)
        assert not self._thread.is_alive()
        if self.failure is not None:
            raise self.failure

    def link(self, patience: Patience | None = None, **options: Any) -> Link:
        config = TrackingConfig.build(link=f"tcp://127.0.0.1:{self.port}", **{**SMALL, **WAITING, **options})
        return Link(config, seed=7, row=0, count=1, patience=patience)


def greet(raw: Raw, image: tuple[int, ...] = (3, 16, 16), caps: tuple[str, ...] = ()) -> dict[str, Any]:
    """The simulator's part of a greeting; returns the hello."""
    raw.send(type="challenge", proto=1, nonce=bytes(16), auth=False)
    said = raw.expect("hello")
    raw.send(type="welcome", proto=1, n=said["n"], image=list(image), sim_hz=500, caps=list(caps))
    return said


def send_obs(
    raw: Raw,
    turn: int,
    sim_step: int,
    params: np.ndarray,
    image: np.ndarray | None = None,
    reason: int = 0,
    base: np.ndarray | None = None,
    **changes: Any,
) -> None:
    """Sends an `obs` of a scripted simulator."""
    image = np.zeros((3, 16, 16), np.uint8) if image is None else image
    base = np.zeros(22) if base is None else base
    header = {
        "type": "obs",
        "turn": turn,
        "sim_step": sim_step,
        "done": reason > 0,
        "truncated": reason >= 10,
        "reason": reason,
        "kind": "sedan",
        "visible": True,
        "illegal": False,
        "arrays": [["image", "u1", list(image.shape)], ["base", "f8", [22]], ["params", "f8", [60]]],
        **changes,
    }
    raw.sock.sendall(frame(header, image.tobytes() + base.tobytes() + params.tobytes()))


def world_of(config: TrackingConfig, rows: int, seed: int = 7) -> Any:
    """The in-process world whose rows a link must equal."""
    config = config.replace(link=None, auto_start=False)
    return Tracking.variant(config)(rows, config, seed=seed, autoreset="disabled")


def moment_of(world: Any, b: int, fresh: bool) -> Moment:
    """The current moment of row b of an in-process world, after `observe`."""
    c = world.config
    return Moment(
        image=(world.frames if c.frame_stack else world.image)[b].copy(),
        reward=0.0 if fresh else float(world.reward_exact[b]),
        r_c=float(world.r_c[b]),
        r_d=float(world.r_d[b]),
        terminated=bool(world.terminated[b]),
        truncated=bool(world.truncated[b]),
        reason=int(world.reason[b]),
        sim_step=int(world.sim_step[b]),
        kind=KINDS[world.target_kind[b]],
        visible=bool(world.visible[b]),
        illegal=bool(world.illegal[b]) and not fresh,
        other_state=world.other_state[b].copy() if c.other_state else None,
        params=world.reward_params[b].copy() if c.reward_params else None,
        cloud=world.cloud[b].copy() if c.cloud else None,
    )


def differing(one: Moment, other: Moment) -> list[str]:
    """The parts in which two moments differ, by type and every byte."""
    found = []
    for name in Moment.__slots__:
        a, b = getattr(one, name), getattr(other, name)
        if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
            same = a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
        else:
            same = type(a) is type(b) and repr(a) == repr(b)
        if not same:
            found.append(name)
    return found


def until(holds: Any) -> None:
    """Waits for a condition set by another thread or process."""
    end = time.monotonic() + PLENTY
    while not holds():
        assert time.monotonic() < end, "the condition did not become true"
        time.sleep(0.002)


def gone(pid: int) -> bool:
    """Whether a process has ended; a zombie has."""
    try:
        return " Z " in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True


def simulators_of(parent: int) -> list[int]:
    """The ids of the live simulators started by a process."""
    found, said = [], f"\0--parent-pid\0{parent}\0".encode()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and not gone(int(entry.name)):
            try:
                if said in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
            except OSError:  # it has ended
                pass
    return found
