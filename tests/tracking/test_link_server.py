"""The simulator's side, tested with a plain socket: every rule and error of the protocol, limits, random frames."""

import contextlib
import resource
import socket
import struct
import threading
import time

import numpy as np
import pytest

from milkrun.tracking.link.server import SPARE, Limits
from tests.tracking.link_tools import PLENTY, QUICK, Hosted, Raw, frame, hello, reset, step, until
from tests.tracking.test_link_wire import mutated


@pytest.fixture(scope="module")
def host():
    with Hosted() as hosted:
        yield hosted


@pytest.fixture
def raw(host):
    with Raw.to(host.port) as connection:
        yield connection


def test_a_conversation_by_the_page(raw):
    """Greeting, a reset, a step, ping, close: keys, dtypes and sizes of the tables."""
    challenge = raw.hello()
    assert challenge["proto"] == 1 and challenge["auth"] is False and len(challenge["nonce"]) == 16
    welcome = raw.expect("welcome")
    assert {k: welcome[k] for k in ("proto", "n", "image", "sim_hz")} == {
        "proto": 1,
        "n": 1,
        "image": [3, 16, 16],
        "sim_hz": 500,
    }
    assert set(welcome["caps"]) == {"ends", "rewards", "cloud"}
    raw.send(**reset())
    obs = raw.expect("obs")
    assert obs["arrays"] == [
        ["image", "u1", [3, 16, 16]],
        ["base", "f8", [22]],
        ["params", "f8", [60]],
        ["scores", "f8", [2]],
    ]
    assert len(obs["payload"]) == 768 + 176 + 480 + 16
    header = {k: obs[k] for k in ("turn", "sim_step", "done", "truncated", "reason", "illegal")}
    assert header == {"turn": 0, "sim_step": 0, "done": False, "truncated": False, "reason": 0, "illegal": False}
    raw.send(type="ping")
    assert raw.read()["type"] == "pong"
    raw.send(**step(1, 99), surprise=[{"what": None}])
    obs = raw.expect("obs")
    base = np.frombuffer(obs["payload"], np.float64, 22, 768)
    assert (obs["turn"], obs["sim_step"], obs["illegal"], base[0], base[21]) == (1, 4, True, 4.0, 0.0)
    raw.send(type="close")
    assert raw.expect("bye") and raw.read() is None


def test_every_nonce_is_new(host):
    """Two connections, two nonces."""
    with Raw.to(host.port) as one, Raw.to(host.port) as other:
        assert one.expect("challenge")["nonce"] != other.expect("challenge")["nonce"]


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"proto": 2}, "version"),
        ({"proto": None}, "version"),
        ({"n": 0}, "protocol"),
        ({"n": 65_537}, "protocol"),
        ({"n": True}, "protocol"),
        ({"n": 257}, "busy"),
        ({"idx": 1}, "index"),
        ({"idx": -1}, "index"),
        ({"idx": "0"}, "protocol"),
        ({"idx": None}, "protocol"),
        ({"group": ""}, "protocol"),
        ({"group": 5}, "protocol"),
        ({"group": "é" * 65}, "protocol"),
        ({"barrier": 1}, "protocol"),
        ({"config": []}, "protocol"),
        ({"config": {"sizes": 16}}, "config"),
        ({"config": {"size": 15}}, "config"),
        ({"config": {"size": "16"}}, "config"),
        ({"config": {"scene": ["lake", ["x"]]}}, "config"),
        ({"config": {"camera_px": [1e300, {}]}}, "config"),
        ({"config": {"scene": {}}}, "config"),
        ({"config": {"start_pitch": [float("nan"), 1]}}, "config"),
        ({"config": {"max_steps": 2**64 - 1}}, "config"),
        ({"config": {"town_seed": b"\x00"}}, "config"),
        ({"type": "hallo"}, "protocol"),
        ({"type": "reset"}, "protocol"),
        ({"type": "ping"}, "protocol"),
        ({"arrays": [["a", "u1", [0]]]}, "protocol"),
    ],
)
def test_a_wrong_hello_is_refused_by_its_code(raw, changes, code):
    """The connection is closed."""
    raw.hello(**changes)
    assert raw.refused() == code


@pytest.mark.parametrize(
    ("header", "code"),
    [
        ({"type": "dance"}, "protocol"),
        ({"type": "hello"}, "protocol"),
        ({**reset(), "turn": -1}, "protocol"),
        ({**reset(), "turn": "0"}, "protocol"),
        ({**reset(), "seed": -1}, "protocol"),
        ({**reset(), "seed": 2**63}, "protocol"),
        ({**reset(), "row": None}, "protocol"),
        ({**reset(), "episode": 1.0}, "protocol"),
        ({"type": "reset", "turn": 0}, "protocol"),
        ({**step(0), "action": 1.5}, "protocol"),
        ({**step(0), "action": [0.0] * 4}, "protocol"),
        ({**step(0), "action": True}, "protocol"),
        ({**step(0), "cmd": [0.0] * 3}, "protocol"),
        ({**step(0), "cmd": [0.0, 0.0, 0.0, "0"]}, "protocol"),
        ({"type": "ping", "x": "y" * 5000}, "too_large"),
        ({**step(0), "cmd": [0.0, 0.0, 0.0, float("nan")]}, "protocol"),
        ({**step(0), "cmd": [0.0, 0.0, float("-inf"), 0.0]}, "protocol"),
    ],
)
def test_a_wrong_request_is_refused_by_its_code(raw, header, code):
    """After a greeting; the connection is closed."""
    raw.hello()
    raw.expect("welcome")
    raw.send(**header)
    assert raw.refused() == code


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "version"),
        (b"\x16\x03\x01", "version"),
        (frame({"type": "ping"}, b"x"), "too_large"),
        (b"MRLK\x01\0\0\0\xff\xff\xff\xff\0\0\0\0", "too_large"),
        (frame(b"\xc1"), "protocol"),
    ],
)
def test_an_invalid_frame_is_refused_by_its_code(raw, data, code):
    """A browser, TLS, a payload, a huge header, random bytes."""
    raw.expect("challenge")
    raw.sock.sendall(data)
    assert raw.refused() == code


def test_turns_out_of_order_are_refused_and_nothing_is_played(raw):
    """The connection stays; the expected number is unchanged."""
    raw.hello()
    raw.expect("welcome")

    def refused(**header):
        raw.send(**header)
        error = raw.expect("error")
        assert error["code"] == "turn", error

    refused(**step(0))
    refused(**reset(1))
    raw.send(**reset(0))
    assert raw.expect("obs")["turn"] == 0
    refused(**step(0))
    refused(**step(2))
    raw.send(**step(1))
    assert raw.expect("obs")["sim_step"] == 4
    for turn in range(2, 11):
        raw.send(**step(turn))
        obs = raw.expect("obs")
    assert (obs["done"], obs["truncated"], obs["reason"], obs["sim_step"]) == (True, True, 10, 40)
    refused(**step(11))
    raw.send(**reset(11, episode=1))
    assert raw.expect("obs")["sim_step"] == 0


def test_a_request_before_the_answer_is_refused(host):
    """At a barrier: the first request is still answered after the other one."""
    with Raw.to(host.port) as one, Raw.to(host.port) as other:
        for idx, connection in enumerate((one, other)):
            connection.hello(2, idx)
            connection.expect("welcome")
        one.send(**reset())
        one.send(**reset(1))
        assert one.expect("error")["code"] == "turn"
        wait = one.expect("wait")
        assert (wait["turn"], wait["missing"]) == (0, [1])
        other.send(**reset())
        assert one.expect("obs")["turn"] == other.expect("obs")["turn"] == 0


def test_a_dropped_environment_no_longer_counts_and_may_reconnect(host):
    """Its connection breaks: the other is answered. With the same index it starts at turn 0, with a reset."""
    with Raw.to(host.port) as one, Raw.to(host.port) as other:
        for idx, connection in enumerate((one, other)):
            connection.hello(2, idx)
            connection.expect("welcome")
        one.send(**reset())
        other.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        other.sock.close()
        one.expect("obs")
        with Raw.to(host.port) as again:
            again.hello(2, 1)
            again.expect("welcome")
            again.send(**step(0))
            assert again.expect("error")["code"] == "turn"
            one.send(**step(1))
            again.send(**reset(0, row=1))
            assert (one.expect("obs")["sim_step"], again.expect("obs")["sim_step"]) == (4, 0)


def test_a_new_member_waits_only_briefly_for_old_ones():
    """At a barrier 0 has its answer before 1 and 2 connect. These wait for each other, then only briefly for 0, which
    may not step before their answers. From then on all step together."""
    with Hosted(Limits(wait=0.05, newcomer=0.2, idle=0)) as host:
        links = [Raw.to(host.port) for _ in range(3)]
        for idx in (0, 1, 2):
            links[idx].hello(3, idx)
            links[idx].expect("welcome")
            if idx == 0:
                links[0].send(**reset())
                links[0].expect("obs")
        links[1].send(**reset(row=1))
        for _ in range(8):  # more than 0.2 s: 2 is also new, so 1 waits for it
            assert links[1].expect("wait")["missing"] == [0, 2]
        links[2].send(**reset(row=2))
        assert [link.expect("obs")["turn"] for link in links[1:]] == [0, 0]
        for link in links[1:]:
            link.send(**step(1))
        for _ in range(8):
            assert links[1].expect("wait")["missing"] == [0]
        links[0].send(**step(1))
        assert [link.expect("obs")["sim_step"] for link in links] == [4, 4, 4]
        for link in links:
            link.sock.close()


def test_a_client_that_waits_for_a_world_gets_signs_of_life(monkeypatch):
    """The creation is slow: `wait` with an empty list until the welcome; a request is too early."""
    from milkrun.tracking.link import server

    go, make = threading.Event(), server.make_world
    monkeypatch.setattr(server, "make_world", lambda *args: (go.wait(60), make(*args))[1])
    with Hosted() as host, Raw.to(host.port) as one, Raw.to(host.port) as other, Raw.to(host.port) as early:
        one.hello(3, 0)
        other.hello(3, 1)
        early.hello(3, 2)
        assert one.read()["missing"] == other.read()["missing"] == []
        early.send(**reset())
        assert early.refused() == "protocol"
        go.set()
        for connection in (one, other):
            connection.expect("welcome")
            connection.send(**reset())
        assert one.expect("obs") and other.expect("obs")


def test_a_world_that_cannot_be_made_is_an_internal_error(monkeypatch):
    """For example without memory: the error is `internal`, and the simulator lives."""
    from milkrun.tracking.link import server

    make = server.make_world
    with Hosted() as host:
        with monkeypatch.context() as broken, Raw.to(host.port) as raw:
            broken.setattr(server, "make_world", lambda *args: (_ for _ in ()).throw(MemoryError()))
            raw.hello()
            assert raw.refused() == "internal"
        assert server.make_world is make
        with Raw.to(host.port) as raw:
            raw.hello()
            raw.expect("welcome")


def test_a_large_group_is_played_in_chunks_with_signs_of_life_between(host, monkeypatch):
    """Rows that take a second each: every environment gets `wait` with an empty list before its picture, which is
    unchanged."""
    from milkrun.tracking.link import server

    make = server.make_world
    monkeypatch.setattr(server, "make_world", lambda *args: (make(*args)[0], 1.0))
    with Hosted(Limits(wait=0.0001, idle=0)) as slow:
        found = []
        for served in (host, slow):
            links = [Raw.to(served.port) for _ in range(3)]
            for idx, link in enumerate(links):
                link.hello(3, idx, group="pieces")
                link.expect("welcome")
            for idx, link in enumerate(links):
                link.send(**reset(row=idx))
            found.append([link.expect("obs")["payload"] for link in links])
            for link in links:
                link.sock.close()
    assert found[0] == found[1]


def test_hello_has_a_time_limit():
    """A connection with an incomplete hello is dropped."""
    with Hosted(Limits(greeting=0.05, frame=30, wait=30, idle=0)) as host, Raw.to(host.port) as raw:
        raw.expect("challenge")
        raw.sock.sendall(frame(hello())[:20])
        assert raw.refused() == "protocol"


def test_a_frame_has_a_time_limit():
    """After the greeting a client may be silent, but not in the middle of a frame."""
    with Hosted(Limits(greeting=30, frame=0.05, wait=30, idle=0)) as host, Raw.to(host.port) as raw:
        raw.hello()
        raw.expect("welcome")
        time.sleep(0.2)
        raw.sock.sendall(frame(reset())[:20])
        assert raw.refused() == "protocol"


def ping_until_blocked(raw):
    """Sends pings without reading until the server stops reading; returns the number of whole pings, and the rest of
    the last one."""
    ping = frame({"type": "ping"})
    block, sent = 1000 * ping, 0
    raw.sock.settimeout(1.0)
    with contextlib.suppress(TimeoutError):
        while sent < 1 << 26:
            sent += raw.sock.send(block[sent % len(ping) :])
    raw.sock.settimeout(PLENTY)
    assert sent < 1 << 26, "the server keeps reading"
    whole, cut = divmod(sent, len(ping))
    return whole, ping[cut:] if cut else b""


def test_a_client_that_does_not_read_is_not_served(host):
    """At a barrier a client requests a reset, then pings and reads nothing: the server stops reading from it.

    Others are served. The answer to the reset follows the backlog of pongs, none of which is missing or cut.
    """
    with Raw.to(host.port) as greedy, Raw.to(host.port) as other:
        for idx, connection in enumerate((greedy, other)):
            connection.hello(2, idx, group="backlog")
            connection.expect("welcome")
        greedy.send(**reset())
        pings, rest = ping_until_blocked(greedy)
        other.send(**reset(row=1))
        other.expect("obs")
        found = []
        sender = threading.Thread(target=greedy.sock.sendall, args=(rest + frame({"type": "close"}),))
        sender.start()  # it blocks until the server reads again
        while (one := greedy.read()) is not None:
            found.append((one["type"], len(one["payload"])))
        sender.join(PLENTY)
        assert found.count(("pong", 0)) == pings + bool(rest)
        assert found.count(("obs", 1440)) == 1 and found[-1] == ("bye", 0)


def test_connections_are_limited():
    """One environment and the spare connections: the next one is refused as busy, until another one ends."""
    with Hosted(max_envs=1) as host:
        knocking = [Raw.to(host.port) for _ in range(SPARE + 1)]
        for raw in knocking:
            raw.expect("challenge")
        with Raw.to(host.port) as raw:
            assert raw.expect("error")["code"] == "busy"
        knocking.pop().sock.close()

        def accepted():
            with Raw.to(host.port) as raw:
                return raw.read()["type"] == "challenge"

        until(accepted)
        for raw in knocking:
            raw.sock.close()


def test_a_simulator_without_environments_ends():
    """After the idle time since the last one left."""
    with Hosted(Limits(wait=0.05, idle=0.3)) as host:
        with Raw.to(host.port) as raw:
            raw.hello()
            raw.expect("welcome")
            time.sleep(0.6)
            raw.send(**reset())
            raw.expect("obs")
        host.wait()
        assert host.said == "no environment for 0.3 s"


def test_the_log_has_a_line_for_each_connection_and_end(host):
    """One line each, with the environment, its group and its address."""
    with Raw.to(host.port) as raw:
        raw.hello(group="logged")
        raw.expect("welcome")
        raw.send(type="close")
        raw.expect("bye")
    lines = [line for line in host.log if "'logged'" in line]
    assert [line.rsplit(": ", 1)[1] for line in lines] == ["here", "closed"]
    assert lines[0].startswith("environment 0 of group 'logged' (127.0.0.1:")


# -- random frames ----------------------------------------------------------------------------------------------------


class Attack:
    """Random and mutated frames, many on each connection, at every stage of a conversation. Closed connections are
    reset by this side, so that their port is free immediately."""

    def __init__(self, port, seed):
        self.port, self.rng, self.sock, self.sent = port, np.random.default_rng(seed), None, 0
        self.models = [
            frame(hello(group="fuzz")),
            frame(reset()),
            frame(step(1)),
            frame({"type": "ping"}),
            frame({"type": "close"}),
            frame({"type": "pong"}),
        ]

    def connect(self, stage):
        """Stage 0: before the hello; 1: after it; 2: after a reset."""
        self.sock = socket.create_connection(("127.0.0.1", self.port))
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if stage:
            said = hello(group=f"fuzz {self.sent}")
            self.sock.sendall(frame(said))
            raw = Raw(self.sock)
            raw.expect("challenge")
            raw.expect("welcome")
            if stage == 2:
                raw.send(**reset())
                raw.expect("obs")
        self.sock.setblocking(False)

    def data(self):
        rng = self.rng
        match rng.integers(4):
            case 0:
                return rng.bytes(int(rng.integers(1, 200)))
            case 1:
                return frame(rng.bytes(int(rng.integers(1, 60))), rng.bytes(int(rng.integers(2))))
            case _:
                return mutated(rng, self.models[rng.integers(len(self.models))])

    def play(self, count):
        goal = self.sent + count
        while self.sent < goal:
            if self.sock is None:
                self.connect(int(self.rng.choice(3, p=[0.9, 0.05, 0.05])))
            try:
                for _ in range(10):
                    self.sock.send(self.data())
                    self.sent += 1
                while self.sock.recv(1 << 16):
                    pass
            except BlockingIOError:
                continue
            except OSError:
                pass
            self.close()

    def close(self):
        if self.sock is not None:
            self.sock.close()
            self.sock = None


def storm(host, seed, count):
    """Growth of the server's memory in bytes; asserts that it still plays and has dropped all connections."""
    attack = Attack(host.port, seed)
    attack.play(count // 10)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    attack.play(count)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    attack.close()
    with Raw.to(host.port) as raw:
        raw.hello(group="after the storm")
        raw.expect("welcome")
        raw.send(**reset())
        raw.expect("obs")
    until(lambda: not host.server._groups and not host.server._connections)
    return grown * 1024


def test_random_frames_do_no_harm():
    """10,000 of them, at every stage of a conversation: the server lives, drops them, and grows by < 50 MB."""
    with Hosted(QUICK) as host:
        assert storm(host, 0, 10_000) < 50e6
    assert not any("Traceback" in line for line in host.log)


@pytest.mark.long
def test_a_million_random_frames_do_no_harm():
    """The same, longer."""
    with Hosted(QUICK) as host:
        assert storm(host, 1, 1_000_000) < 50e6
    assert not any("Traceback" in line for line in host.log)
