"""The bridge, a simulator in one file, tested with plain sockets and msgpack by the protocol of docs/link.md."""

import hashlib
import hmac
import json
import math
import shutil
import socket
import struct
import subprocess
import sys

import numpy as np
import pytest

msgpack = pytest.importorskip("msgpack")

from milkrun.tracking import rewards  # noqa: E402
from milkrun.tracking.link import bridge as bridge_file  # noqa: E402
from milkrun.tracking.link.bridge import Body, Bridge, FakeSimulator, Refused, params_of, relative  # noqa: E402
from tests.tracking import flights  # noqa: E402
from tests.tracking.bridge_tools import LIMIT, serving  # noqa: E402

CENTRED = {"start_long": [0.0, 0.0], "start_lat": [0.0, 0.0]}
STOP, FORWARD = [0.0, 0.0, 0.0, 0.0], [40.0, 0.0, 0.0, 0.0]
HFOV = 0.785398


class Peer:
    """A client of the protocol that only checks that frames are well formed."""

    def __init__(self, port):
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=LIMIT)
        self.challenge = self.hear("challenge")

    def send(self, kind, **keys):
        header = msgpack.packb({"type": kind, **keys})
        self.sock.sendall(b"MRLK\x01\0\0\0" + struct.pack("<II", len(header), 0) + header)

    def exactly(self, count):
        got = b""
        while len(got) < count:
            more = self.sock.recv(count - len(got))
            assert more, "the simulator hung up"
            got += more
        return got

    def hear(self, kind):
        """The next message, which must be of this kind; arrays are merged into its keys. Additional `wait` messages, as
        on a slow machine, are skipped."""
        frame = self.exactly(16)
        assert frame[:8] == b"MRLK\x01\0\0\0"
        size, payload = struct.unpack("<II", frame[8:])
        message = msgpack.unpackb(self.exactly(size))
        if message["type"] == "wait" and kind != "wait":
            return self.hear(kind)
        rest = self.exactly(payload)
        for name, dtype, shape in message.get("arrays", []):
            count = math.prod(shape) * int(dtype[1])
            message[name], rest = np.frombuffer(rest[:count], "<" + dtype).reshape(shape), rest[count:]
        assert rest == b"" and message["type"] == kind, message
        return message

    def refused(self, code):
        """The error, which must have this code."""
        error = self.hear("error")
        assert error["code"] == code and " " in error["text"], error
        return error

    def hung_up(self):
        with self.sock as sock:
            return sock.recv(1) == b""

    def leave(self):
        self.send("close")
        self.hear("bye")
        assert self.hung_up()

    def hello(self, **keys):
        said = {"proto": 1, "group": "main", "n": 1, "idx": 0, "barrier": True, "config": {}, "mac": None}
        self.send("hello", **{**said, **keys})

    def join(self, **keys):
        self.hello(**keys)
        self.welcome, self.turn = self.hear("welcome"), -1
        return self

    def ask(self, kind, **keys):
        self.turn += 1
        episode = {"seed": 7, "row": 0, "episode": 0}
        self.send(kind, turn=self.turn, **({**episode, **keys} if kind == "reset" else {"action": 0, **keys}))

    def play(self, kind, **keys):
        self.ask(kind, **keys)
        return self.hear("obs")


@pytest.fixture(scope="module")
def port():
    with serving() as bridge:
        yield bridge.port


@pytest.fixture
def peer(port):
    peer = Peer(port)
    yield peer
    peer.sock.close()


def test_a_whole_conversation(peer):
    """Greeting, reset, fifty steps of four sim steps with their turns in order, ping, close and bye."""
    assert peer.challenge["proto"] == 1 and peer.challenge["auth"] is False
    assert len(peer.challenge["nonce"]) >= 16
    peer.join(group="talk")
    said = {"type": "welcome", "proto": 1, "n": 1, "image": [3, 48, 64], "sim_hz": 500, "caps": []}
    assert peer.welcome == said
    obs = peer.play("reset")
    header = {k: obs[k] for k in ("turn", "sim_step", "done", "truncated", "reason", "kind", "visible", "illegal")}
    assert header == {
        "turn": 0,
        "sim_step": 0,
        "done": False,
        "truncated": False,
        "reason": 0,
        "kind": "sedan",
        "visible": True,
        "illegal": False,
    }
    assert [a[:2] for a in obs["arrays"]] == [["image", "u1"], ["base", "f8"], ["params", "f8"]]
    for turn in range(1, 51):
        obs = peer.play("step", cmd=STOP)
        assert (obs["turn"], obs["sim_step"], obs["base"][0]) == (turn, 4 * turn, 4 * turn)
    peer.send("ping")
    peer.hear("pong")
    peer.leave()


def test_commands_are_flown_in_the_drones_axes(peer):
    """0.4 s forward, left and up at 10, 5, 2 m/s, along the first yaw, end at 4 m, 2 m and 0.8 m. A left turn by 2
    rad/s for 0.4 s is 0.8 rad, as yaw and as quaternion. In the drone's frame the target, which drives at 8 m/s, moves
    by the difference of both."""
    start = peer.join(group="cmd", config={"control_hz": 5}).play("reset")["base"]
    yaw = start[19]
    obs = [peer.play("step", cmd=[10.0, 5.0, 2.0, 0.0]) for _ in range(2)][-1]
    assert obs["sim_step"] == 200
    c, s = math.cos(yaw), math.sin(yaw)
    assert np.allclose(obs["base"][1:4] - start[1:4], [4 * c - 2 * s, 4 * s + 2 * c, 0.8], atol=1e-9)
    assert np.allclose(obs["base"][4:7], [10 * c - 5 * s, 10 * s + 5 * c, 2], atol=1e-9)
    towards = obs["params"][48]
    seen = [8 * math.cos(towards) - 10, 8 * math.sin(towards) - 5, -2, 0, 0, 0]
    assert np.allclose(obs["params"][52:58], seen, atol=1e-5)  # differences magnify rounding
    turned = [peer.play("step", cmd=[0.0, 0.0, 0.0, 2.0]) for _ in range(2)][-1]["base"]
    assert math.isclose(math.remainder(turned[19] - yaw - 0.8, 2 * math.pi), 0, abs_tol=1e-9)
    assert turned[12] == 2.0
    w, z = turned[[13, 16]]
    assert np.allclose([w * w - z * z, 2 * w * z], [math.cos(yaw + 0.8), math.sin(yaw + 0.8)])


def test_an_episode_is_named_by_three_numbers(peer):
    """The same seed, row and episode give the same first picture and numbers, another row gives others."""
    peer.join(group="names")
    first, other, again = (peer.play("reset", seed=2**63 - 1, row=row, episode=3) for row in (0, 1, 0))
    assert np.array_equal(first["image"], again["image"]) and np.array_equal(first["params"], again["params"])
    assert not np.array_equal(first["params"], other["params"])


# -- rewards and picture ----------------------------------------------------------------------------------------------


def test_a_target_in_the_middle_is_paid_tanh_4(peer):
    """Without an offset at the start: r_c = tanh 4 = 0.999329, r_d = 1, and the middle of the picture is the red
    square. The target's centre is at the ground point in the middle."""
    obs = peer.join(group="middle", config=CENTRED).play("reset")
    r_c, r_d = rewards.scores(obs["params"])
    assert abs(r_c - 0.999329) < 1e-6 and r_d == 1
    assert abs(rewards.view(obs["params"]) - 0.999329) < 1e-6 and abs(rewards.distance(obs["params"]) - 1) < 1e-6
    assert np.allclose(obs["params"][39:41], obs["params"][42:44], atol=1e-9)
    assert obs["image"][:, 24, 32].tolist() == [220, 30, 30]
    assert obs["visible"] and obs["image"][:, 0, 0].tolist() != [220, 30, 30]


def test_the_reward_falls_as_the_drone_flies_past(peer):
    """At 22 m height and pitch pi/4 the target is in the window. After 0.5 s at 40 m/s forward it is behind the window:
    r_c = r_d = 0, and it is not in the picture."""
    config = {**CENTRED, "start_pitch": [math.pi / 4] * 2, "start_height": [22.0, 22.0], "start_direction": [0.0, 0.0]}
    peer.join(group="past", config={**config, "control_hz": 2})
    before = peer.play("reset")
    assert math.isclose(before["params"][49], 22) and rewards.scores(before["params"])[1] == 1
    after = peer.play("step", cmd=FORWARD)
    # The target drives ahead at 8 m/s: 22 + 4 - 20 = 6 m ahead. The near edge of the picture is 22 tan(pi/4 - 0.286).
    assert (
        math.isclose(after["params"][49], 6) and 22 * math.tan(math.pi / 4 - math.atan(math.tan(HFOV / 2) * 0.75)) > 6
    )
    assert rewards.scores(after["params"]) == (0, 0) and not after["visible"]
    assert not (after["image"][0] == 220).any()
    assert after["base"][20] == 0 and after["done"] is False


def test_params_at_a_pose_worked_out_by_hand():
    """A drone 20 m up, headed along y, looks down by 45 degrees; the target, headed along -x, is 20 m ahead of it, and
    was 0.01 m to the right a sim step ago: 5 m/s to the left. Half way to the window's edge r_c = tanh(4 / 8)."""
    drone = Body(np.array([1.0, 2.0, 20.0]), math.pi / 2)
    target = Body(np.array([1.01, 22.0, 0.0]), math.pi)
    near = relative(drone, target, None, 0.002)
    assert np.allclose(near, [20, -0.01, -20, 0, 0, 0, 0, 0, 0])
    target.pos = np.array([1.0, 22.0, 0.0])
    near = relative(drone, target, near, 0.002)
    p = np.array(params_of(drone, target, near, (3, 48, 64), HFOV, math.pi / 4, 0.25, False, 1))
    r = math.sqrt(0.5)
    assert np.allclose(p[:7], [64, 48, HFOV, 32 / math.tan(HFOV / 2), math.pi / 4, 20, 0.25])
    assert np.allclose(p[7:23], [0, -1, 0, 1, r, 0, r, 2, -r, 0, r, 20, 0, 0, 0, 1])
    assert np.allclose(p[23:39], [-1, 0, 0, 1, 0, -1, 0, 22, 0, 0, 1, 0, 0, 0, 0, 1])
    assert np.allclose(p[39:48], [1, 22, 0, 1, 22, 0, 1, 2, 20])
    assert np.allclose(p[48:60], [math.pi / 2, 20, 0, -20, 0, 5, 0, 0, 2500, 0, 0, 1])
    # At the middle, 20 sqrt 2 m from the camera, half the window's width is 0.7 tan(hfov / 2) times that distance.
    p[42] = 1 + 20 * math.sqrt(2) * 0.7 * math.tan(HFOV / 2) / 2
    assert math.isclose(rewards.gauge(p), 0.5, rel_tol=1e-9)
    assert abs(rewards.scores(p)[0] - 0.462117) < 1e-6


def test_params_and_base_are_those_of_the_world():
    """Milkrun's drone flies and turns behind a car, sampled at each sim step. From the positions of both, the bridge
    computes the same 60 numbers, and the same motion of the drone."""
    world = flights.straight(control_hz=500, reward_params=True, other_state=True)
    near = None
    for action in [None] + [flights.FORWARD] * 30 + [flights.TURN_LEFT] * 30:
        if action is not None:
            world.step(np.array([action]))
        x, y, heading = world.veh_pose[0, 0]
        drone = Body(world.pos[0].copy(), world.yaw[0], world.vel[0], world.acc[0], world.yaw_rate[0])
        target = Body(np.array([x, y, 0.0]), heading)
        near = relative(drone, target, near, 1 / 500)
    world.observe()
    expected = world.reward_params[0]
    made = params_of(drone, target, near, (3, 240, 320), HFOV, world.pitch[0], expected[6], False, 1)
    assert np.abs(near[3:5]).min() > 1 and drone.yaw_rate > 1
    assert np.allclose(made, expected, rtol=1e-9, atol=1e-5)  # a second difference magnifies rounding 250,000 times
    assert np.allclose(bridge_file.base_of(drone, 60)[1:], world.other_state[0], rtol=1e-12)


# -- ends -------------------------------------------------------------------------------------------------------------


def test_a_crash_ends_an_episode_and_a_reset_starts_the_next(peer):
    """Down at 100 m/s from 13 m: on the ground after 65 sim steps (13.0 m, or 66 by rounding), reason 1, not truncated;
    the next step is refused and a reset, with the same turn, is played."""
    config = {"control_hz": 5, "start_height": [13.0, 13.0]}
    peer.join(group="crash", config=config).play("reset")
    obs = peer.play("step", cmd=[0.0, 0.0, -100.0, 0.0])
    assert (obs["done"], obs["truncated"], obs["reason"], obs["base"][21]) == (True, False, 1, 1)
    assert obs["sim_step"] in (65, 66) and obs["params"][58] == 1 and rewards.view(obs["params"]) == 0
    peer.ask("step", cmd=STOP)
    assert peer.refused("turn")["turn"] == 2
    peer.turn -= 1
    obs = peer.play("reset", episode=1)
    assert (obs["turn"], obs["sim_step"], obs["done"], obs["params"][58]) == (2, 0, False, 0)


@pytest.mark.parametrize(
    ("config", "cmd", "reason", "truncated"),
    [
        ({"done_height": [2.0, 30.0]}, [0.0, 0.0, 50.0, 0.0], 2, False),
        ({"done_speed": 39.0}, FORWARD, 4, False),
        ({}, [0.0, 0.0, 0.0, 7.0], 5, False),
        ({"half_extent": 3.0}, STOP, 11, True),
    ],
)
def test_physical_ends(peer, config, cmd, reason, truncated):
    """Height, speed and yaw rate beyond their options terminate, a target that leaves the map truncates."""
    peer.join(group="ends", config={"control_hz": 1, "init_no_done": 0, **config}).play("reset")
    obs = peer.play("step", cmd=cmd)
    assert (obs["done"], obs["reason"], obs["truncated"]) == (True, reason, truncated)
    assert 0 < obs["sim_step"] < 500


def test_ends_count_from_init_no_done_on(peer):
    """Too low from the start, init_no_done 8: sim step 7 is still free, sim step 8 ends, as in the tracking world."""
    config = {"control_hz": 125, "init_no_done": 8, "done_height": [40.0, 50.0]}
    peer.join(group="settled", config=config).play("reset")
    assert [peer.play("step", cmd=STOP)["reason"] for _ in range(2)] == [0, 2]


# -- refusals ---------------------------------------------------------------------------------------------------------


def test_the_mac_of_the_page_is_the_mac_of_the_token():
    """The page's bytes: token swordfish, nonce 00..0f, group main, idx 0."""
    with serving(token=b"swordfish") as bridge:
        peer = Peer(bridge.port)
        assert peer.challenge["auth"] is True
        said = b"%s|main|0" % bytes(range(16))
        page = "d4f1aac1a00d74bf5a3f2b08b1e3467b058e6aae8d792cce02587dc5c1dbfaa2"
        assert hmac.new(b"swordfish", said, hashlib.sha256).hexdigest() == page
        peer.join(mac=hmac.new(b"swordfish", peer.challenge["nonce"] + b"|main|0", hashlib.sha256).digest())
        old = hmac.new(b"swordfish", peer.challenge["nonce"] + b"|main|1", hashlib.sha256).digest()
        for mac in (None, bytes(32), old):
            other = Peer(bridge.port)
            assert other.challenge["nonce"] != peer.challenge["nonce"]
            other.hello(n=2, idx=1, mac=mac)
            other.refused("auth")
            assert other.hung_up()
        assert peer.play("reset")["turn"] == 0


def test_no_other_address_without_a_token():
    """A bridge that other machines can reach listens only with a token."""
    for token in (None, b"fifteen letters"):
        with pytest.raises(ValueError, match="a token of 16 bytes or more"):
            Bridge(FakeSimulator, host="0.0.0.0", token=token)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"proto": 2, "config": None}, "version"),
        ({"idx": 2}, "index"),
        ({"idx": -1}, "index"),
        ({"group": ""}, "protocol"),
        ({"n": 4097}, "protocol"),
        ({"barrier": 1}, "protocol"),
        ({"config": {"control_hz": 3}}, "config"),
        ({"config": {"scene": "x" * 4097}}, "too_large"),
        ({"n": 65}, "busy"),
    ],
)
def test_a_wrong_hello_is_refused(peer, change, code):
    """Each with the code of its cause, and the connection is closed."""
    peer.hello(**{"group": "bad", "n": 2, **change})
    peer.refused(code)
    assert peer.hung_up()


def test_only_close_goes_before_hello(peer, port):
    """It is answered by bye; a reset without a greeting is a fault of the protocol."""
    Peer(port).leave()
    peer.turn = -1
    peer.ask("reset")
    peer.refused("protocol")
    assert peer.hung_up()


def frame(header, start=b"MRLK\x01\0\0\0", size=None, payload=b""):
    return start + struct.pack("<II", len(header) if size is None else size, len(payload)) + header + payload


PING = msgpack.packb({"type": "ping"})


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (frame(PING, start=b"MRLK\x02\0\0\0"), "version"),
        (b"GET / HTTP/1.1\r\n\r\n", "version"),
        (frame(b"", size=65_537), "too_large"),
        (frame(PING, payload=bytes(8_000_000)), "too_large"),
        (frame(PING[:-1]), "protocol"),
        (frame(PING + b"\xc0"), "protocol"),
        (frame(msgpack.packb(["ping"])), "protocol"),
        (frame(msgpack.packb({"turn": 0})), "protocol"),
        (frame(msgpack.packb({"type": "welcome"})), "protocol"),
        (frame(msgpack.packb({"type": "reset", "turn": 0, "seed": -1, "row": 0, "episode": 0})), "protocol"),
        (frame(msgpack.packb({"type": "step", "turn": 0, "action": 0, "cmd": [0.0] * 3})), "protocol"),
        (frame(msgpack.packb({"type": "step", "turn": 0, "action": 0, "cmd": [0.0, 0.0, 0.0, math.nan]})), "protocol"),
    ],
    ids=lambda value: value if isinstance(value, str) else "frame",
)
def test_invalid_frames_and_headers_are_refused(peer, sent, code):
    """The error always arrives, and the connection is closed."""
    peer.join(group="frames")
    peer.sock.sendall(sent)
    peer.refused(code)
    assert peer.hung_up()


def test_unknown_keys_integers_for_floats_and_single_bytes_are_allowed(peer):
    """A ping with an unknown key, its bytes sent one by one, is answered; `cmd` may be integers."""
    peer.join(group="free").play("reset")
    for byte in frame(msgpack.packb({"type": "ping", "x": [None, {"y": 2**64 - 1}]})):
        peer.sock.sendall(bytes([byte]))
    peer.hear("pong")
    assert peer.play("step", cmd=[0, 0, 1, 0])["base"][6] == 1


def test_a_turn_out_of_order_plays_nothing_and_the_connection_stays(peer):
    """A step before the first reset, a wrong number, a used number: each is refused without effect on the next valid
    one."""
    peer.join(group="turns")
    peer.send("step", turn=0, action=0, cmd=STOP)
    assert peer.refused("turn")["turn"] == 0
    peer.send("reset", turn=1, seed=7, row=0, episode=0)
    assert peer.refused("turn")["turn"] == 1
    peer.play("reset")
    peer.send("step", turn=0, action=0, cmd=STOP)
    peer.refused("turn")
    assert peer.play("step", cmd=STOP)["sim_step"] == 4


def test_a_failure_of_the_simulator_is_reported_and_the_next_reset_works():
    """`internal`, with the reason in its text, counts as an answer: the next turn is a reset, a step is refused."""

    class Frail(FakeSimulator):
        def fly(self, cmd, steps):
            raise RuntimeError("the propeller fell off")

    with serving(Frail) as bridge:
        peer = Peer(bridge.port).join()
        peer.play("reset")
        peer.ask("step", cmd=STOP)
        error = peer.refused("internal")
        assert error["turn"] == 1 and "propeller" in error["text"]
        peer.send("step", turn=2, action=0, cmd=STOP)
        peer.refused("turn")
        assert peer.play("reset")["turn"] == 2
        peer.leave()


def test_the_number_of_environments_is_limited():
    """The second gets `busy`, until the first has left. The simulator's factory may also refuse."""
    left = ["the only drone"]

    def maker():
        if not left:
            raise Refused("busy", "no drone is left")
        left.clear()
        return FakeSimulator()

    with serving(maker, max_envs=1) as bridge:
        first, second = Peer(bridge.port).join(), Peer(bridge.port)
        second.hello(group="other")
        assert "1 environments" in second.refused("busy")["text"] and second.hung_up()
        first.leave()
        third = Peer(bridge.port)
        third.hello(group="other")
        assert "no drone" in third.refused("busy")["text"] and third.hung_up()


# -- several environments ---------------------------------------------------------------------------------------------


def test_with_a_barrier_the_group_moves_together(port):
    """After a second a single request gets a `wait` that names the missing environment. After the second request both
    are answered. A question before the answer is refused."""
    one, two = (Peer(port).join(group="pair", n=2, idx=idx) for idx in (0, 1))
    one.ask("reset")
    assert one.hear("wait") == {"type": "wait", "turn": 0, "missing": [1]}
    one.send("ping")
    one.hear("pong")
    two.ask("reset")
    assert one.hear("obs")["turn"] == two.hear("obs")["turn"] == 0
    for turn in range(1, 4):
        one.ask("step", cmd=FORWARD)
        one.send("step", turn=turn + 1, action=0, cmd=FORWARD)
        assert one.refused("turn")["turn"] == turn + 1
        two.ask("reset" if turn == 2 else "step", **({} if turn == 2 else {"cmd": FORWARD}))
        assert one.hear("obs")["sim_step"] == 4 * turn
        assert two.hear("obs")["sim_step"] == (4, 0, 4)[turn - 1]
    one.ask("step", cmd=STOP)
    two.sock.close()
    obs = one.hear("obs")
    assert obs["sim_step"] == 16
    two = Peer(port).join(group="pair", n=2, idx=1)
    one.ask("step", cmd=STOP)
    assert two.play("reset")["turn"] == 0 and one.hear("obs")["sim_step"] == 20
    one.leave()
    two.leave()


def test_without_a_barrier_each_is_answered_at_once(port):
    """The second environment is connected and silent, the first plays."""
    one, two = (Peer(port).join(group="alone", n=2, idx=idx, barrier=False) for idx in (0, 1))
    one.play("reset")
    assert one.play("step", cmd=STOP)["sim_step"] == 4
    one.leave()
    two.leave()


def test_members_of_a_group_agree(port):
    """Another n, barrier or config, or a used index, is refused; another group would accept it. Missing keys of a
    config have their defaults."""
    said = {"n": 2, "idx": 1, "barrier": False}
    one = Peer(port).join(**said, group="agree")
    for change, code in [
        ({"idx": 1}, "index"),
        ({"idx": 0, "n": 3}, "config"),
        ({"idx": 0, "barrier": True}, "config"),
        ({"idx": 0, "config": {"size": 16}}, "config"),
    ]:
        two = Peer(port)
        two.hello(**{**said, "group": "agree", **change})
        two.refused(code)
        assert two.hung_up()
        Peer(port).join(**{**said, "group": "agree as well", **change}).leave()
    Peer(port).join(group="agree", n=2, idx=0, barrier=False, config={"control_hz": 125}).leave()
    one.leave()


def test_a_slow_simulator_can_send_wait():
    """`busy` during the creation of a simulator or an episode sends `wait` with an empty `missing` before the answer;
    before `welcome` it has no turn."""
    made = []

    class Slow(FakeSimulator):
        def __init__(self):
            made[0].busy()

        def reset(self, *args):
            made[0].busy()
            super().reset(*args)

    with serving(Slow) as bridge:
        made.append(bridge)
        peer = Peer(bridge.port)
        peer.hello()
        assert peer.hear("wait") == {"type": "wait", "turn": None, "missing": []}
        peer.hear("welcome")
        peer.send("reset", turn=0, seed=7, row=0, episode=0)
        assert peer.hear("wait") == {"type": "wait", "turn": 0, "missing": []}
        assert peer.hear("obs")["turn"] == 0
        peer.leave()


def test_a_copy_of_the_file_runs_alone(tmp_path):
    """Copied to another directory and started without Milkrun, it prints its port and sends the challenge there."""
    copy = shutil.copy(bridge_file.__file__, tmp_path / "copied.py")
    start = f"import runpy, sys; sys.modules['milkrun'] = None; runpy.run_path({str(copy)!r}, run_name='__main__')"
    with subprocess.Popen([sys.executable, "-c", start, "0"], stdout=subprocess.PIPE, text=True) as process:
        try:
            line = process.stdout.readline()
            ready = json.loads(line)
            assert line == f'{{"ready":true,"port":{ready["port"]},"proto":1}}\n'
            peer = Peer(ready["port"]).join()
            assert peer.play("reset")["sim_step"] == 0
            peer.leave()
        finally:
            process.kill()
