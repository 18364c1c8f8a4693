"""A simulator behind the link, in one file: copy it, or import it in a Webots supervisor.

`Bridge` speaks the protocol of docs/link.md and calls one simulator for each environment, all in the thread that calls
`serve` or `poll`. Put yours in the place of `FakeSimulator`, whose four methods are all that is asked of it:
`Bridge(MySimulator, port=33727).serve()`. No caps are claimed, so the client computes the rewards from `params` and
applies the ends `lost`, `range` and `time`. Needs numpy and msgpack.
"""

from __future__ import annotations

import argparse
import hmac
import json
import math
import secrets
import selectors
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
from numpy.typing import NDArray

Message = dict[str, Any]
FRAME = struct.Struct("<4sBBHII")
START = b"MRLK\x01"
HELLO = {"group": str, "n": int, "idx": int, "barrier": bool, "config": dict}
CRASH, HEIGHT, SPEED, YAW_RATE, TARGET_GONE = 1, 2, 4, 5, 11


class Refused(Exception):
    """What a client sent is refused: a code of the protocol and a sentence."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


def pack(message: Message, arrays: dict[str, NDArray[Any]] | None = None) -> bytes:
    """The bytes of a frame."""
    if arrays:
        message = {**message, "arrays": [[name, a.dtype.str[1:], list(a.shape)] for name, a in arrays.items()]}
    header, payload = msgpack.packb(message), b"".join(a.tobytes() for a in (arrays or {}).values())
    return FRAME.pack(START[:4], START[4], 0, 0, len(header), len(payload)) + header + payload


def take(buffer: bytearray) -> Message | None:
    """The first message of the buffer, which is removed from it; None while it is not complete."""
    if not START.startswith(buffer[:5]):
        raise Refused("version", "a frame begins with MRLK and the version 1")
    if len(buffer) < FRAME.size:
        return None
    *_, zero, zeros, size, payload = FRAME.unpack_from(buffer)
    if size > 65_536 or payload:
        raise Refused("too_large", f"a header of {size} bytes, a payload of {payload}: at most 65536, and none")
    if len(buffer) < FRAME.size + size:
        return None
    try:
        message = msgpack.unpackb(buffer[16 : 16 + size], max_str_len=4096, max_bin_len=4096)
    except ValueError as fault:
        raise Refused("protocol", f"the header cannot be read: {fault}") from None
    del buffer[: 16 + size]
    if zero or zeros or not isinstance(message, dict) or not isinstance(message.get("type"), str) or deep(message, 1):
        raise Refused("protocol", "a header is a map with `type`, its keys are strings, at most 8 levels deep")
    return message


def deep(value: Any, level: int) -> bool:
    """Whether a value has more than 8 levels, or anything else that a header may not hold."""
    if isinstance(value, dict):
        return level > 8 or any(not isinstance(k, str) or deep(v, level + 1) for k, v in value.items())
    if isinstance(value, list):
        return level > 8 or any(deep(v, level + 1) for v in value)
    return not (value is None or isinstance(value, (bool, int, float, str, bytes)))


@dataclass(eq=False)
class Client:
    """A connection; once it is greeted (`sim`), an environment."""

    sock: socket.socket
    deadline: float  # of the greeting, of a frame that was begun, of leaving
    nonce: bytes = field(default_factory=lambda: secrets.token_bytes(16))
    buffer: bytearray = field(default_factory=bytearray)
    hello: Message = field(default_factory=dict)
    sim: Any = None
    turn: int = 0  # of the next question
    question: Message | None = None  # that is not answered yet
    told: float = 0.0  # when it last heard of us
    playing: bool = False
    leaving: bool = False

    def send(self, kind: str, arrays: dict[str, NDArray[Any]] | None = None, /, **keys: Any) -> None:
        self.told = time.monotonic()
        try:
            self.sock.sendall(pack({"type": kind, **keys}, arrays))
        except OSError:
            self.deadline = 0.0  # it is gone, or does not read


class Bridge:
    """Listens, greets, keeps turns and groups. `simulator()` makes a simulator for an environment that connects."""

    def __init__(
        self, simulator: Callable[[], Any], host: str = "127.0.0.1", port: int = 0, token: bytes | None = None,
        max_envs: int = 64,
    ) -> None:  # fmt: skip
        if host not in ("127.0.0.1", "localhost") and not token:
            raise ValueError(f"whoever reaches {host} could fly here: beyond this machine a token is needed")
        self.simulator, self.token, self.max_envs = simulator, token, max_envs
        self.listener, self.selector = socket.create_server((host, port)), selectors.DefaultSelector()
        self.selector.register(self.listener, selectors.EVENT_READ)
        self.port: int = self.listener.getsockname()[1]
        self.clients: list[Client] = []

    def serve(self) -> None:
        """Answer for ever."""
        while True:
            self.poll(0.1)

    def poll(self, seconds: float = 0.0) -> None:
        """Hear what has come, or comes within these seconds, and answer: for those who have a loop of their own."""
        for key, _ in self.selector.select(seconds):
            if key.data is None:
                self._accept()
            else:
                self._hear(key.data)
        for client in [c for c in self.clients if time.monotonic() > c.deadline]:
            self._drop(client)
        for name in {c.hello["group"] for c in self._greeted()}:
            self._answer([c for c in self._greeted() if c.hello["group"] == name])

    def busy(self) -> None:
        """For a simulator that takes long: call it every second, since clients give up after 5 s of silence."""
        for client in self.clients:
            if client.question or (client.hello and not client.sim and not client.leaving):
                client.send("wait", turn=max(client.turn - 1, 0), missing=[])

    def close(self) -> None:
        for sock in [self.listener, *(c.sock for c in self.clients)]:
            sock.close()
        self.selector.close()

    def _greeted(self) -> list[Client]:
        return [c for c in self.clients if c.sim and not c.leaving]

    def _accept(self) -> None:
        sock, _ = self.listener.accept()
        sock.settimeout(2.0)  # so long may a client that does not read hold up the others
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client = Client(sock, deadline=time.monotonic() + 10)
        self.clients.append(client)
        self.selector.register(sock, selectors.EVENT_READ, client)
        client.send("challenge", proto=1, nonce=client.nonce, auth=self.token is not None)

    def _drop(self, client: Client) -> None:
        self.clients.remove(client)
        self.selector.unregister(client.sock)
        client.sock.close()

    def _leave(self, client: Client) -> None:
        """Say no more, but read for another second: if TCP closes with bytes unread, the last message may be lost."""
        client.leaving, client.deadline = True, time.monotonic() + 1
        try:
            client.sock.shutdown(socket.SHUT_WR)
        except OSError:
            client.deadline = 0.0

    def _hear(self, client: Client) -> None:
        try:
            got = client.sock.recv(65_536)
        except OSError:
            got = b""
        if not got:
            return self._drop(client)
        begins = not client.buffer
        client.buffer += got
        while not client.leaving:
            try:
                message = take(client.buffer)
                if message is None:
                    break
                begins = True
                self._obey(client, message)
            except Refused as refused:
                client.send("error", code=refused.code, text=str(refused))
                if refused.code != "turn":
                    self._leave(client)
        if client.sim and begins and not client.leaving:
            client.deadline = time.monotonic() + 5 if client.buffer else math.inf

    def _obey(self, client: Client, message: Message) -> None:
        kind = message["type"]
        if not client.sim and kind == "hello":
            self._greet(client, message)
        elif client.sim and kind in ("reset", "step"):
            self._ask(client, message)
        elif client.sim and kind == "ping":
            client.send("pong")
        elif client.sim and kind == "close":
            client.send("bye")
            self._leave(client)
        elif not client.sim or kind != "pong":
            raise Refused("protocol", f"{kind!r} is not for a client to send, or not now")

    def _greet(self, client: Client, hello: Message) -> None:
        if hello.get("proto") != 1:
            raise Refused("version", f"proto is {hello.get('proto')!r}, not 1")
        wrong = [key for key, kind in HELLO.items() if type(hello.get(key)) is not kind]
        if wrong or not 1 <= len(hello["group"].encode()) <= 128 or not 1 <= hello["n"] <= 65_536:
            raise Refused("protocol", f"hello has no good {', '.join(wrong) or 'group or n'}")
        group, n, idx, config = hello["group"], hello["n"], hello["idx"], hello["config"]
        if self.token is not None:
            mac, said = hello.get("mac"), b"%s|%s|%d" % (client.nonce, group.encode(), idx)
            if type(mac) is not bytes or not hmac.compare_digest(mac, hmac.digest(self.token, said, "sha256")):
                raise Refused("auth", "the token is missing or wrong")
        members = [c.hello for c in self._greeted() if c.hello["group"] == group]
        if not 0 <= idx < n or idx in [m["idx"] for m in members]:
            raise Refused("index", f"idx {idx} is connected already, or not in 0 .. {n - 1}")
        if members and any(hello[key] != members[0][key] for key in ("n", "barrier", "config")):
            raise Refused("config", f"n, barrier or config is another than in the rest of the group {group!r}")
        if len(self._greeted()) >= self.max_envs:
            raise Refused("busy", f"no more than {self.max_envs} environments are taken")
        client.hello, hz = hello, config.get("control_hz", 125)
        try:
            sim = self.simulator()
        except Exception as fault:
            raise Refused("internal", f"the simulator did not start: {fault!r}"[:1000]) from fault
        if type(hz) is not int or hz < 1 or sim.sim_hz % hz:
            raise Refused("config", f"control_hz is {hz!r}: must be a divisor of {sim.sim_hz}")
        client.sim = sim
        client.send("welcome", proto=1, n=n, image=list(sim.image), sim_hz=sim.sim_hz, caps=[])

    def _ask(self, client: Client, question: Message) -> None:
        """Note a question, to be answered when its group is ready."""
        step, cmd = question["type"] == "step", question.get("cmd")
        for key in ("turn",) if step else ("turn", "seed", "row", "episode"):
            if type(question.get(key)) is not int or not 0 <= question[key] < 2**63:
                raise Refused("protocol", f"{key} must be an integer from 0 to 2**63 - 1")
        if step and (type(cmd) is not list or [type(x) for x in cmd] != [float] * 4 or not np.isfinite(cmd).all()):
            raise Refused("protocol", "cmd must be four floats")
        if client.question or question["turn"] != client.turn or (step and not client.playing):
            now = "under way" if client.playing else "that waits for a reset"
            raise Refused("turn", f"the next turn is {client.turn}, after the last answer, of an episode {now}")
        client.question, client.told, client.turn = question, time.monotonic(), client.turn + 1

    def _answer(self, group: list[Client]) -> None:
        """Play the questions of a group: with a barrier all together, or none."""
        missing = [c.hello["idx"] for c in group if not c.question]
        for client in group:
            if client.question and not (missing and client.hello["barrier"]):
                try:
                    self._play(client, client.question)
                except Exception as fault:  # whatever it is, it is the simulator's, and a reset may mend it
                    client.playing = False
                    client.send("error", code="internal", text=f"the simulator failed: {fault!r}"[:1000])
                client.question = None
            elif client.question and time.monotonic() >= client.told + 1:
                client.send("wait", turn=client.turn - 1, missing=missing)

    def _play(self, client: Client, question: Message) -> None:
        sim, config, reason = client.sim, client.hello["config"], 0
        if question["type"] == "reset":
            sim.reset(question["seed"], question["row"], question["episode"], config)
        else:
            reason = int(sim.fly(question["cmd"], sim.sim_hz // config.get("control_hz", 125)))
        state = sim.state()
        arrays = {
            "image": np.asarray(sim.look(), "u1").reshape(sim.image),
            "base": np.array([*state["base"], 0, reason > 0], "<f8").reshape(22),  # 0: the client computes the reward
            "params": np.asarray(state["params"], "<f8").reshape(60),
        }
        client.playing = reason == 0
        client.send("obs", arrays, turn=question["turn"], sim_step=int(state["base"][0]), done=reason > 0,
                    truncated=reason >= 10, reason=reason, kind=state["kind"], visible=bool(state["visible"]),
                    illegal=False)  # fmt: skip


# -- what a simulator has to tell -------------------------------------------------------------------------------------


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
    """The target in the axes of a level drone, and how this changes: its first and second difference quotients over a
    sim step. `before`: the same nine numbers one sim step ago; None: at the start, where nothing has changed yet."""
    place = (target.pos - drone.pos) @ axes(drone.yaw)
    if before is None:
        return np.concatenate([place, np.zeros(6)])
    speed = (place - before[:3]) / dt
    return np.concatenate([place, speed, (speed - before[3:6]) / dt])


def params_of(drone: Body, target: Body, near: NDArray[np.float64], image: tuple[int, int, int], hfov: float,
              pitch: float, direction: float, crash: bool, motion: int) -> list[float]:  # fmt: skip
    """The 60 `params` of a level drone with the camera at its place. `near`: the nine numbers of `relative`; `motion`
    of the target: 0 stands, 1 straight on, 2 turns left, 3 turns right."""
    width, camera, there = image[2], np.eye(4), np.eye(4)
    camera[:3, :3], camera[:3, 3] = axes(drone.yaw, pitch), drone.pos
    there[:3, :3], there[:3, 3] = axes(target.yaw), target.pos
    middle = drone.pos - camera[:3, 0] * (drone.pos[2] / camera[2, 0])
    return [
        width, image[1], hfov, width / 2 / math.tan(hfov / 2), pitch, drone.pos[2], direction,
        *camera.flat, *there.flat, *middle, *target.pos, *drone.pos,
        math.remainder(target.yaw - drone.yaw, 2 * math.pi), *near, crash, motion,
    ]  # fmt: skip


class FakeSimulator:
    """A red square that drives straight on over a chequered plain, and a level drone that flies as it is told.

    A simulator of yours has these four methods and two numbers; it stops to run when `fly` returns.
    """

    sim_hz = 500
    """Sim steps a second."""
    image = (3, 48, 64)
    """Channels, rows and columns of its pictures."""

    def reset(self, seed: int, row: int, episode: int, config: dict[str, Any]) -> None:
        """Start the episode of this name: the same three numbers, the same episode. `config` holds the options of the
        tracking world that are not at their defaults."""
        random = np.random.default_rng([seed, row, episode])
        pick = {"start_pitch": (0.6, 1.38), "start_height": (13, 22), "start_direction": (-math.pi, math.pi),
                "start_long": (2.5, 4.5), "start_lat": (2.5, 4.5)}  # fmt: skip
        self.pitch, height, self.direction, *off = [random.uniform(*config.get(k, pick[k])) for k in pick]
        heading = random.uniform(-math.pi, math.pi)
        yaw, aim = heading + self.direction, axes(heading)[:, :2] @ (random.choice((-1, 1), 2) * off)
        back = axes(yaw)[:, 0] * height / math.tan(self.pitch)
        self.drone = Body(aim - back + (0, 0, height), yaw)
        self.target = Body(np.zeros(3), heading, vel=axes(heading)[:, 0] * 8)  # its centre on the ground
        self.near = relative(self.drone, self.target, None, 1 / self.sim_hz)
        self.config, self.hfov, self.sim_step, self.reason = config, config.get("hfov", 0.785398), 0, 0

    def fly(self, cmd: list[float], steps: int) -> int:
        """Fly forward, left, up (m/s) and turn to the left (rad/s) for so many sim steps, or until an end; its reason:
        0 none, 1 crash, 2 height, 3 drift, 4 speed, 5 yaw_rate, 6 attitude, 11 target_gone."""
        dt, drone, target = 1 / self.sim_hz, self.drone, self.target
        for _ in range(steps):
            self.sim_step += 1
            drone.yaw, drone.yaw_rate = math.remainder(drone.yaw + cmd[3] * dt, 2 * math.pi), cmd[3]
            vel = axes(drone.yaw) @ cmd[:3]
            drone.acc, drone.vel, drone.pos = (vel - drone.vel) / dt, vel, drone.pos + vel * dt
            target.pos = target.pos + target.vel * dt
            self.near = relative(drone, target, self.near, dt)
            self.reason = self._end()
            if self.reason:
                break
        return self.reason

    def _end(self) -> int:
        """There is no wind here, and the drone is level: neither drift nor attitude."""
        option, height = self.config.get, self.drone.pos[2]
        low, high = option("done_height", (2, 50))
        early = self.sim_step <= option("init_no_done", 100)
        ends = {
            CRASH: height <= 0,
            HEIGHT: not early and not low <= height <= high,
            SPEED: not early and math.hypot(*self.drone.vel) > option("done_speed", 10000),
            YAW_RATE: not early and abs(self.drone.yaw_rate) > option("done_yaw_rate", 6.283),
            TARGET_GONE: not early and max(abs(self.target.pos)) > option("half_extent", 120),
        }
        return next((reason for reason, met in ends.items() if met), 0)

    def look(self) -> NDArray[np.uint8]:
        """The picture: channels, rows from the far side on, columns from the left."""
        place, sizes = self.drone.pos, self.image[:0:-1]
        left, up = (half * (1 - (2 * np.arange(n) + 1) / n) for half, n in zip(self._half_view(), sizes))
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
        right, down = self._half_view()
        params = params_of(self.drone, self.target, self.near, self.image, self.hfov, self.pitch, self.direction,
                           crash=self.reason == CRASH, motion=1)  # fmt: skip
        return {"base": base_of(self.drone, self.sim_step), "params": params, "kind": "sedan",
                "visible": abs(aside) < right * ahead and abs(above) < down * ahead}  # fmt: skip

    def _half_view(self) -> tuple[float, float]:
        """Half the width and half the height of the picture at distance 1."""
        right = math.tan(self.hfov / 2)
        return right, right * self.image[1] / self.image[2]


def main() -> None:
    parser = argparse.ArgumentParser(description="A fake simulator behind the link.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=33727, help="0: a free one")
    parser.add_argument("--token-file", type=Path, help="the secret of both sides")
    given = parser.parse_args()
    token = given.token_file.read_bytes().strip() if given.token_file else None
    bridge = Bridge(FakeSimulator, given.host, given.port, token)
    print(json.dumps({"ready": True, "port": bridge.port, "proto": 1}, separators=(",", ":")), flush=True)
    bridge.serve()


if __name__ == "__main__":
    main()
