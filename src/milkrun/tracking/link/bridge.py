"""A simulator behind the link, in one file: copy it, or import it in a Webots supervisor.

`Bridge` speaks the protocol of docs/link.md and calls one simulator for each environment, all in one thread: that of
`Bridge(MySimulator, port=33727).serve()`, or that of a loop which calls `poll()`. Put yours in the place of
`FakeSimulator`: its four methods and two numbers are all that is asked. No caps are claimed, so the client
computes the rewards from `params` and applies the ends `lost`, `range` and `time`. `python bridge.py [port]` serves the
fake one.

It listens on this machine only, or with a token, and is made for honest clients: it tells them what they did wrong, but
one who means harm can hold it up. Needs numpy and msgpack.
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
"""What a client sends."""
OPTIONS: dict[str, Any] = {
    "control_hz": 125, "hfov": 0.785398, "half_extent": 120, "start_pitch": [0.6, 1.38], "start_height": [13, 22],
    "start_direction": [-math.pi, math.pi], "start_long": [2.5, 4.5], "start_lat": [2.5, 4.5], "init_no_done": 100,
    "done_height": [2, 50], "done_speed": 10000, "done_yaw_rate": 6.283,
}  # fmt: skip
"""The options of the tracking world that are used here, with their defaults."""


class Refused(Exception):
    """What a client sent is refused: a code of the protocol and a sentence."""


def need(holds: bool, code: str, text: str) -> None:
    if not holds:
        raise Refused(code, text)


@dataclass(eq=False)
class Client:
    """A connection; once it is greeted and has its simulator, an environment."""

    sock: socket.socket
    nonce: bytes = field(default_factory=lambda: secrets.token_bytes(16))
    hello: dict[str, Any] = field(default_factory=dict)
    sim: Any = None
    turn: int = 0  # of the open question, or of the next
    question: dict[str, Any] | None = None  # that is not answered yet
    playing: bool = False  # an episode is under way
    last_sent: float = 0.0  # when it last heard of us

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

    def hear(self) -> dict[str, Any]:
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
    """Listens, greets, keeps turns and groups. `simulator()` makes a simulator for an environment that connects, or
    raises `Refused("busy", "no drone is left")`."""

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
        self.simulator, self.token, self.max_envs = simulator, token, max_envs
        self.clients: list[Client] = []
        self.listener, self.selector = socket.create_server((host, port)), selectors.DefaultSelector()
        self.selector.register(self.listener, selectors.EVENT_READ)
        self.port: int = self.listener.getsockname()[1]

    def serve(self) -> None:
        """Answer for ever."""
        while True:
            self.poll(0.1)

    def poll(self, seconds: float = 0.0) -> None:
        """Hear what has come, or comes within these seconds, and answer: for those who have a loop of their own."""
        for key, _ in self.selector.select(seconds):
            self._try(key.data, self._hear, key.data) if key.data else self._accept()
        silent: dict[str, list[int]] = {}  # whom a group with a barrier waits for
        for hello in [c.hello for c in self.clients if c.sim and not c.question and c.hello["barrier"]]:
            silent.setdefault(hello["group"], []).append(hello["idx"])
        for client in [c for c in self.clients if c.question]:
            missing = silent.get(client.hello["group"])
            if not missing:
                self._try(client, self._answer, client)
            elif time.monotonic() >= client.last_sent + 1:
                self._try(client, client.send, "wait", turn=client.turn, missing=missing[:1000])

    def busy(self) -> None:
        """For a simulator that takes long: call it every second, since clients give up after 5 s of silence."""
        for client in [c for c in self.clients if c.question or (c.hello and not c.sim)]:
            with contextlib.suppress(OSError):
                client.send("wait", turn=client.turn if client.sim else None, missing=[])

    def close(self) -> None:
        for sock in [self.listener, *(c.sock for c in self.clients)]:
            sock.close()
        self.selector.close()

    def _try(self, client: Client, act: Callable[..., None], *args: Any, **keys: Any) -> None:
        try:
            act(*args, **keys)
        except Exception as fault:  # whatever goes wrong with a client ends its connection, and nothing else
            code = "too_large" if "exceeds max_" in str(fault) else "protocol"  # of msgpack, of whatever else
            code, text = fault.args if isinstance(fault, Refused) else (code, f"not understood: {fault!r}")
            self.clients.remove(client)
            self.selector.unregister(client.sock)
            with client.sock as sock, contextlib.suppress(OSError):
                if not isinstance(fault, OSError):
                    client.send("error", code=code, text=text[:1000])
                sock.shutdown(socket.SHUT_WR)
                sock.settimeout(0.5)
                while sock.recv(65_536):  # if TCP closed with bytes unread, the last message might be lost
                    pass

    def _accept(self) -> None:
        client = Client(self.listener.accept()[0])
        client.sock.settimeout(3)  # so long may a client hold up the others by half a frame, or by not reading
        client.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.clients.append(client)
        self.selector.register(client.sock, selectors.EVENT_READ, client)
        self._try(client, client.send, "challenge", proto=1, nonce=client.nonce, auth=self.token is not None)

    def _hear(self, client: Client) -> None:
        message = client.hear()
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
        elif client.question or turn != client.turn or (kind == "step" and not client.playing):
            text = f"the next is turn {client.turn}, after the answer to the last; a step needs an episode under way"
            client.send("error", code="turn", text=text, turn=turn)
        else:  # to be answered when the group is ready
            client.question, client.last_sent = message, time.monotonic()

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
        sim, config, question, reason = client.sim, client.hello["config"], client.question or {}, 0
        try:
            if question["type"] == "reset":
                sim.reset(question["seed"], question["row"], question["episode"], config)
            else:
                reason = int(sim.fly(question["cmd"], sim.sim_hz // config["control_hz"]))
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
        except Exception as fault:  # whatever it is, it is the simulator's, and a reset may mend it
            arrays, keys = {}, {"code": "internal", "text": f"the simulator failed: {fault!r}"[:1000]}
        client.question, client.turn, client.playing = None, client.turn + 1, keys.get("reason") == 0
        client.send("obs" if arrays else "error", arrays, turn=client.turn - 1, **keys)


@dataclass
class Body:
    """Something level that moves: place, velocity and acceleration in the world (z is up), heading and turn."""

    pos: NDArray[np.float64]
    yaw: float
    vel: NDArray[np.float64] = field(default_factory=lambda: np.zeros(3))
    acc: NDArray[np.float64] = field(default_factory=lambda: np.zeros(3))
    yaw_rate: float = 0.0


def axes(yaw: float, pitch: float = 0.0) -> NDArray[np.float64]:
    """The axes forward, left and up in the world, as columns, of what is headed `yaw` and looks down by `pitch`."""
    c, s, cp, sp = math.cos(yaw), math.sin(yaw), math.cos(pitch), math.sin(pitch)
    return np.array([[c * cp, -s, c * sp], [s * cp, c, s * sp], [-sp, 0.0, cp]])


def base_of(drone: Body, sim_step: int) -> list[float]:
    """`base` of a level drone, without reward and done."""
    turn = [math.cos(drone.yaw / 2), 0.0, 0.0, math.sin(drone.yaw / 2)]
    return [sim_step, *drone.pos, *drone.vel, *drone.acc, 0.0, 0.0, drone.yaw_rate, *turn, 0.0, 0.0, drone.yaw]


def relative(drone: Body, target: Body, before: NDArray[np.float64] | None, dt: float) -> NDArray[np.float64]:
    """`params` 49 to 57 of a level drone: the target in its axes, and how this changes. `before`: the same nine numbers
    one sim step of `dt` seconds ago; None: at the start, where nothing has changed yet."""
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
    """The 60 `params` of a level drone with the camera at its place. `near`: the nine numbers of `relative`; `motion`
    of the target: 0 stands, 1 straight on, 2 turns left, 3 turns right."""
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
    """A red square that drives straight on over a chequered plain, and a level drone that flies as it is told."""

    sim_hz = 500
    """Sim steps a second."""
    image = (3, 48, 64)
    """Channels, rows and columns of its pictures."""

    def reset(self, seed: int, row: int, episode: int, config: dict[str, Any]) -> None:
        """Start the episode of this name: the same three numbers, the same episode. `config`: OPTIONS, and whatever
        else the client gave."""
        random = np.random.default_rng([seed, row, episode])
        starts = ("start_pitch", "start_height", "start_direction", "start_long", "start_lat")
        self.pitch, height, self.direction, *off = [random.uniform(*config[name]) for name in starts]
        heading = random.uniform(-math.pi, math.pi)
        yaw, aim = heading + self.direction, axes(heading)[:, :2] @ (random.choice((-1, 1), 2) * off)
        self.drone = Body(aim - axes(yaw)[:, 0] * height / math.tan(self.pitch) + (0, 0, height), yaw)
        self.target = Body(np.zeros(3), heading, vel=axes(heading)[:, 0] * 8)  # its centre on the ground
        self.near = relative(self.drone, self.target, None, 1 / self.sim_hz)
        self.config, self.half_width, self.sim_step, self.reason = config, math.tan(config["hfov"] / 2), 0, 0

    def fly(self, cmd: list[float], steps: int) -> int:
        """Fly forward, left, up (m/s) and turn to the left (rad/s) for so many sim steps, or until an end; its reason:
        0 none, 1 crash, 2 height, 3 drift, 4 speed, 5 yaw_rate, 6 attitude, 11 target_gone. Then stand still."""
        dt, drone, target = 1 / self.sim_hz, self.drone, self.target
        while steps > 0 and not self.reason:
            steps, self.sim_step = steps - 1, self.sim_step + 1
            drone.yaw, drone.yaw_rate = math.remainder(drone.yaw + cmd[3] * dt, 2 * math.pi), cmd[3]
            vel = axes(drone.yaw) @ cmd[:3]
            drone.acc, drone.vel, drone.pos = (vel - drone.vel) / dt, vel, drone.pos + vel * dt
            target.pos = target.pos + target.vel * dt
            self.near, self.reason = relative(drone, target, self.near, dt), self._end()
        return self.reason

    def _end(self) -> int:
        """The reason of an end. There is no wind here, and the drone is level: neither drift nor attitude."""
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
        """`base` without its last two numbers, `params`, the target's `kind`, whether it is `visible`."""
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
