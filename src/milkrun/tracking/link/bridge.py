"""A simulator behind the link, in one file without Milkrun: copy it, or import it in a Webots supervisor.

`Bridge` speaks the protocol of docs/link.md and calls one simulator for each environment, all in one thread: that of
`Bridge(MySimulator, port=33727).serve()`, or that of a loop which calls `poll()`. Replace `FakeSimulator` by your own
class with the same four methods and two attributes. The bridge claims no caps, so the client computes the rewards from
`params` and applies the ends `lost`, `range` and `time`. `python bridge.py [port]` serves the fake simulator.

It listens on this machine only, or with a token. It reports violations of honest clients; a malicious client can block
it. Needs numpy and msgpack.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import math
import secrets
import selectors
import socket
import struct
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgpack
import numpy as np
from numpy.typing import NDArray

START = b"MRLK\x01\0\0\0"
KEYS: dict[Any, dict[str, type]] = {
    "hello": {"proto": int, "group": str, "n": int, "idx": int, "barrier": bool, "config": dict},
    "reset": {"turn": int, "seed": int, "row": int, "episode": int},
    "step": {"turn": int, "cmd": list},
    "ping": {},
    "pong": {},
    "close": {},
}
"""The messages of a client, with the types of their keys."""
OPTIONS: dict[str, Any] = {
    "control_hz": 125,
    "hfov": 0.785398,
    "half_extent": 120,
    "start_pitch": [0.6, 1.38],
    "start_height": [13, 22],
    "start_direction": [-math.pi, math.pi],
    "start_long": [2.5, 4.5],
    "start_lat": [2.5, 4.5],
    "init_no_done": 100,
    "done_height": [2, 50],
    "done_speed": 10000,
    "done_yaw_rate": 6.283,
}
"""The options of the tracking world used here, with their defaults."""


class Refused(Exception):
    """A refusal of a client: an error code of the protocol and a sentence."""


def need(holds: bool, code: str, text: str) -> None:
    """Raises Refused unless the condition holds."""
    if not holds:
        raise Refused(code, text)


@dataclass(eq=False)
class Client:
    """A connection; after the greeting an environment with its simulator."""

    sock: socket.socket
    nonce: bytes = field(default_factory=lambda: secrets.token_bytes(16))
    hello: dict[str, Any] = field(default_factory=dict)
    sim: Any = None
    turn: int = 0  # of the open request, or of the next one
    request: dict[str, Any] | None = None  # the open request
    playing: bool = False  # whether an episode goes on
    last_sent: float = 0.0  # time of the last message to it

    def send(self, kind: str, arrays: dict[str, NDArray[Any]] | None = None, /, **keys: Any) -> None:
        if arrays:
            keys["arrays"] = [[name, a.dtype.str[1:], list(a.shape)] for name, a in arrays.items()]
        header, payload = msgpack.packb({"type": kind, **keys}), b"".join(a.tobytes() for a in (arrays or {}).values())
        self.sock.sendall(START + struct.pack("<II", len(header), len(payload)) + header + payload)
        self.last_sent = time.monotonic()

    def read(self, count: int) -> bytes:
        got = b""
        while len(got) < count:
            got += (more := self.sock.recv(count - len(got)))
            if not more:
                raise ConnectionError("the client hung up")
        return got

    def receive(self) -> dict[str, Any]:
        """The next message, validated."""
        start, size, payload = struct.unpack("<8sII", self.read(16))
        need(start == START, "version", "a frame begins with MRLK, the version 1 and three zeros")
        need(size <= 65_536 and not payload, "too_large", f"header {size}, payload {payload} bytes: at most 65536, 0")
        message = msgpack.unpackb(self.read(size), max_str_len=4096, max_bin_len=4096)
        kind = message["type"]
        need(kind in KEYS, "protocol", f"a client does not send {kind!r}")
        in_time = kind == "close" or (kind == "hello") == (self.sim is None)
        need(in_time, "protocol", f"{kind} at the wrong time: hello is first, once")
        need(message.get("proto", 1) == 1, "version", "proto must be 1")
        wrong = [key for key, what in KEYS[kind].items() if type(message.get(key)) is not what]
        need(not wrong, "protocol", f"{kind} without a good {', '.join(wrong)}")
        need(all(message.get(key, 0) >= 0 for key in ("seed", "row", "episode")), "protocol", "a number is negative")
        cmd = message.get("cmd", [0] * 4)
        need(len(cmd) == 4 and all(map(math.isfinite, cmd)), "protocol", "cmd must be four finite numbers")
        return message


class Bridge:
    """Serves clients: greeting, turns and groups.

    `simulator()` makes a simulator for a new environment, or raises `Refused("busy", "no drone is left")`.
    """

    def __init__(
        self,
        simulator: Callable[[], Any],
        host: str = "127.0.0.1",
        port: int = 0,
        token: bytes | None = None,
        max_envs: int = 64,
    ) -> None:
        if host not in ("127.0.0.1", "localhost") and len(token or b"") < 16:
            raise ValueError(f"any machine that reaches {host} could fly here: that needs a token of 16 bytes or more")
        self.simulator = simulator
        self.token = token
        self.max_envs = max_envs
        self.clients: list[Client] = []
        self.listener = socket.create_server((host, port))
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.listener, selectors.EVENT_READ)
        self.port: int = self.listener.getsockname()[1]

    def serve(self) -> None:
        """Serves for ever."""
        while True:
            self.poll(0.1)

    def poll(self, seconds: float = 0.0) -> None:
        """Handles messages that arrive within these seconds, and answers; for callers with their own loop."""
        for key, _ in self.selector.select(seconds):
            self._try(key.data, self._handle, key.data) if key.data else self._accept()
        silent: dict[str, list[int]] = {}  # members without a request, by group, if it has a barrier
        for hello in [c.hello for c in self.clients if c.sim and not c.request and c.hello["barrier"]]:
            silent.setdefault(hello["group"], []).append(hello["idx"])
        for client in [c for c in self.clients if c.request]:
            missing = silent.get(client.hello["group"])
            if not missing:
                self._try(client, self._answer, client)
            elif time.monotonic() >= client.last_sent + 1:
                self._try(client, client.send, "wait", turn=client.turn, missing=missing[:1000])

    def busy(self) -> None:
        """Sends signs of life. Call it every second in a long operation: clients give up after 5 s of silence."""
        for client in [c for c in self.clients if c.request or (c.hello and not c.sim)]:
            with contextlib.suppress(OSError):
                client.send("wait", turn=client.turn if client.sim else None, missing=[])

    def close(self) -> None:
        for sock in [self.listener, *(c.sock for c in self.clients)]:
            sock.close()
        self.selector.close()

    def _try(self, client: Client, act: Callable[..., None], *args: Any, **keys: Any) -> None:
        try:
            act(*args, **keys)
        except Exception as fault:  # any failure of a client ends its connection only
            code = "too_large" if "exceeds max_" in str(fault) else "protocol"  # the former is msgpack's
            code, text = fault.args if isinstance(fault, Refused) else (code, f"not understood: {fault!r}")
            self.clients.remove(client)
            self.selector.unregister(client.sock)
            with client.sock as sock, contextlib.suppress(OSError):
                if not isinstance(fault, OSError):
                    client.send("error", code=code, text=text[:1000])
                sock.shutdown(socket.SHUT_WR)
                sock.settimeout(0.5)
                while sock.recv(65_536):  # a close with unread bytes might discard the last message
                    pass

    def _accept(self) -> None:
        client = Client(self.listener.accept()[0])
        client.sock.settimeout(3)  # limits how long a partial frame or a full buffer may block the others
        client.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.clients.append(client)
        self.selector.register(client.sock, selectors.EVENT_READ, client)
        self._try(client, client.send, "challenge", proto=1, nonce=client.nonce, auth=self.token is not None)

    def _handle(self, client: Client) -> None:
        message = client.receive()
        kind, turn = message["type"], message.get("turn")
        if kind == "hello":
            self._greet(client, message)
        elif kind == "ping":
            client.send("pong")
        elif kind == "close":
            client.send("bye")
            raise ConnectionError("the client closed")
        elif kind == "pong":
            pass
        elif client.request or turn != client.turn or (kind == "step" and not client.playing):
            text = f"the next is turn {client.turn}, after the answer to the last; a step needs an episode under way"
            client.send("error", code="turn", text=text, turn=turn)
        else:  # answered when the group is ready
            client.request = message
            client.last_sent = time.monotonic()

    def _greet(self, client: Client, hello: dict[str, Any]) -> None:
        name, n, idx = hello["group"], hello["n"], hello["idx"]
        need(1 <= len(name.encode()) <= 128 and 1 <= n <= 4096, "protocol", "group: 1 to 128 bytes, n: 1 to 4096")
        if self.token is not None:
            mac = hmac.digest(self.token, b"%s|%s|%d" % (client.nonce, name.encode(), idx), "sha256")
            need(hmac.compare_digest(mac, hello.get("mac") or b""), "auth", "the token is missing or wrong")
        greeted = [c.hello for c in self.clients if c.sim]
        group = [other for other in greeted if other["group"] == name]
        need(0 <= idx < n, "index", f"idx is {idx}, must be 0 to {n - 1}")
        need(idx not in [other["idx"] for other in group], "index", f"idx {idx} is connected already")
        hello["config"] = {**OPTIONS, **hello["config"]}
        for key in ("n", "barrier", "config"):
            need(all(hello[key] == other[key] for other in group), "config", f"{key} differs from the group's")
        need(max(n, len(greeted) + 1) <= self.max_envs, "busy", f"no more than {self.max_envs} environments are taken")
        client.hello, hz = hello, hello["config"]["control_hz"]
        sim = self.simulator()
        need(type(hz) is int and hz > 0 and sim.sim_hz % hz == 0, "config", f"control_hz must divide {sim.sim_hz}")
        client.sim = sim
        client.send("welcome", proto=1, n=n, image=list(sim.image), sim_hz=sim.sim_hz, caps=[])

    def _answer(self, client: Client) -> None:
        sim, config, request, reason = client.sim, client.hello["config"], client.request or {}, 0
        try:
            if request["type"] == "reset":
                sim.reset(request["seed"], request["row"], request["episode"], config)
            else:
                reason = int(sim.fly(request["cmd"], sim.sim_hz // config["control_hz"]))
            state = sim.state()
            base = [*state["base"], 0, reason > 0]  # 0: the client computes the reward
            arrays = {
                "image": np.asarray(sim.look(), "u1").reshape(sim.image),
                "base": np.array(base, "<f8").reshape(22),
                "params": np.array(state["params"], "<f8").reshape(60),
            }
            keys = {
                "sim_step": int(base[0]),
                "done": reason > 0,
                "truncated": reason >= 10,
                "reason": reason,
                "kind": str(state["kind"]),
                "visible": bool(state["visible"]),
                "illegal": False,
            }
        except Exception as fault:  # a failure of the simulator, from which a reset may recover
            arrays, keys = {}, {"code": "internal", "text": f"the simulator failed: {fault!r}"[:1000]}
        client.request = None
        client.turn = client.turn + 1
        client.playing = keys.get("reason") == 0
        client.send("obs" if arrays else "error", arrays, turn=client.turn - 1, **keys)


@dataclass
class Body:
    """A level moving object: place, velocity and acceleration in the world (z is up), heading and yaw rate."""

    pos: NDArray[np.float64]
    yaw: float
    vel: NDArray[np.float64] = field(default_factory=lambda: np.zeros(3))
    acc: NDArray[np.float64] = field(default_factory=lambda: np.zeros(3))
    yaw_rate: float = 0.0


def axes(yaw: float, pitch: float = 0.0) -> NDArray[np.float64]:
    """The axes forward, left and up as columns in world axes, for a heading `yaw` and a downward `pitch`."""
    c, s, cp, sp = math.cos(yaw), math.sin(yaw), math.cos(pitch), math.sin(pitch)
    return np.array([[c * cp, -s, c * sp], [s * cp, c, s * sp], [-sp, 0.0, cp]])


def base_of(drone: Body, sim_step: int) -> list[float]:
    """`base` of a level drone, without reward and done."""
    turn = [math.cos(drone.yaw / 2), 0.0, 0.0, math.sin(drone.yaw / 2)]
    return [sim_step, *drone.pos, *drone.vel, *drone.acc, 0.0, 0.0, drone.yaw_rate, *turn, 0.0, 0.0, drone.yaw]


def relative(drone: Body, target: Body, before: NDArray[np.float64] | None, dt: float) -> NDArray[np.float64]:
    """`params` 49 to 57 of a level drone: the target in its axes, and the derivatives.

    `before`: the same nine numbers one sim step of `dt` seconds ago; None at the start, where derivatives are 0.
    """
    place = (target.pos - drone.pos) @ axes(drone.yaw)
    if before is None:
        return np.concatenate([place, np.zeros(6)])
    speed = (place - before[:3]) / dt
    return np.concatenate([place, speed, (speed - before[3:6]) / dt])


def params_of(
    drone: Body,
    target: Body,
    near: NDArray[np.float64],
    image: tuple[int, int, int],
    hfov: float,
    pitch: float,
    direction: float,
    crash: bool,
    motion: int,
) -> list[float]:
    """The 60 `params` of a level drone with the camera at its place.

    `near`: the nine numbers of `relative`. `motion`: 0 the target stands, 1 straight on, 2 turns left, 3 turns right.
    """
    width, camera, there = image[2], np.eye(4), np.eye(4)
    camera[:3, :3], camera[:3, 3] = axes(drone.yaw, pitch), drone.pos
    there[:3, :3], there[:3, 3] = axes(target.yaw), target.pos
    middle = drone.pos - camera[:3, 0] * (drone.pos[2] / camera[2, 0])
    return [
        width,
        image[1],
        hfov,
        width / 2 / math.tan(hfov / 2),
        pitch,
        drone.pos[2],
        direction,
        *camera.flat,
        *there.flat,
        *middle,
        *target.pos,
        *drone.pos,
        math.remainder(target.yaw - drone.yaw, 2 * math.pi),
        *near,
        crash,
        motion,
    ]


class FakeSimulator:
    """A red square that drives straight on over a chequered plain, and a level drone that follows its commands."""

    sim_hz = 500
    """Sim steps a second."""
    image = (3, 48, 64)
    """Channels, rows and columns of its pictures."""

    def reset(self, seed: int, row: int, episode: int, config: dict[str, Any]) -> None:
        """Starts the episode of this key: the same three numbers give the same episode.

        `config`: OPTIONS, overridden and extended by those of the client.
        """
        random = np.random.default_rng([seed, row, episode])
        starts = ("start_pitch", "start_height", "start_direction", "start_long", "start_lat")
        self.pitch, height, self.direction, *off = [random.uniform(*config[name]) for name in starts]
        heading = random.uniform(-math.pi, math.pi)
        yaw, aim = heading + self.direction, axes(heading)[:, :2] @ (random.choice((-1, 1), 2) * off)
        self.drone = Body(aim - axes(yaw)[:, 0] * height / math.tan(self.pitch) + (0, 0, height), yaw)
        self.target = Body(np.zeros(3), heading, vel=axes(heading)[:, 0] * 8)  # its centre is on the ground
        self.near = relative(self.drone, self.target, None, 1 / self.sim_hz)
        self.config = config
        self.half_width = math.tan(config["hfov"] / 2)
        self.sim_step = 0
        self.reason = 0

    def fly(self, cmd: list[float], steps: int) -> int:
        """Flies forward, left, up (m/s) and turns to the left (rad/s) for `steps` sim steps, or until an end.

        Returns the reason of the end: 0 none, 1 crash, 2 height, 3 drift, 4 speed, 5 yaw_rate, 6 attitude, 11
        target_gone. After an end it stands still.
        """
        dt, drone, target = 1 / self.sim_hz, self.drone, self.target
        while steps > 0 and not self.reason:
            steps, self.sim_step = steps - 1, self.sim_step + 1
            drone.yaw = math.remainder(drone.yaw + cmd[3] * dt, 2 * math.pi)
            drone.yaw_rate = cmd[3]
            vel = axes(drone.yaw) @ cmd[:3]
            drone.acc = (vel - drone.vel) / dt
            drone.vel = vel
            drone.pos = drone.pos + vel * dt
            target.pos = target.pos + target.vel * dt
            self.near = relative(drone, target, self.near, dt)
            self.reason = self._end()
        return self.reason

    def _end(self) -> int:
        """The reason of an end. Without wind and with a level drone there is neither drift nor attitude."""
        option, height = self.config, self.drone.pos[2]
        low, high = option["done_height"]
        ends = {
            2: not low <= height <= high,
            4: math.hypot(*self.drone.vel) > option["done_speed"],
            5: abs(self.drone.yaw_rate) > option["done_yaw_rate"],
            11: max(abs(self.target.pos)) > option["half_extent"],
        }
        late = self.sim_step >= option["init_no_done"]
        return 1 if height <= 0 else next((reason for reason, met in ends.items() if met and late), 0)

    def look(self) -> NDArray[np.uint8]:
        """The picture: channels, rows from the far side on, columns from the left."""
        (_, rows, columns), place = self.image, self.drone.pos
        left = self.half_width * (1 - (2 * np.arange(columns) + 1) / columns)
        up = self.half_width * (rows - 2 * np.arange(rows) - 1) / columns
        ahead, aside, above = axes(self.drone.yaw, self.pitch).T
        rays = ahead + left[:, None] * aside + up[:, None, None] * above
        ground = (place - rays * (place[2] / rays[..., 2:]))[..., :2]
        square = abs((ground - self.target.pos[:2]) @ axes(self.target.yaw)[:2, :2]).max(-1) < 2
        odd = np.floor(ground / 5).sum(-1) % 2 == 1
        rgb = np.where(odd[..., None], (90, 140, 80), (120, 120, 120))
        return np.where(square[..., None], (220, 30, 30), rgb).astype(np.uint8).transpose(2, 0, 1)

    def state(self) -> dict[str, Any]:
        """`base` without its last two numbers, `params`, the target's `kind`, and whether it is `visible`."""
        ahead, aside, above = (self.target.pos - self.drone.pos) @ axes(self.drone.yaw, self.pitch)
        right, down = self.half_width * ahead, self.half_width * ahead * self.image[1] / self.image[2]
        params = params_of(
            self.drone,
            self.target,
            self.near,
            self.image,
            self.config["hfov"],
            self.pitch,
            self.direction,
            crash=self.reason == 1,
            motion=1,
        )
        return {
            "base": base_of(self.drone, self.sim_step),
            "params": params,
            "kind": "sedan",
            "visible": abs(aside) < right and abs(above) < down,
        }


if __name__ == "__main__":
    bridge = Bridge(FakeSimulator, port=int(sys.argv[1]) if sys.argv[1:] else 33727)
    print(json.dumps({"ready": True, "port": bridge.port, "proto": 1}, separators=(",", ":")), flush=True)
    bridge.serve()
