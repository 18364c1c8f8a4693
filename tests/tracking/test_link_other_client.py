"""The other client of the link keeps to docs/link.md: it says and hears the page's bytes, and refuses wrong ones."""

import contextlib
import re
import socket
import struct
import threading
from pathlib import Path

import numpy as np
import pytest

msgpack = pytest.importorskip("msgpack")

from tests.tracking import other_client  # noqa: E402
from tests.tracking.other_client import (  # noqa: E402
    LinkLost,
    OtherClient,
    OutOfTime,
    ProtocolBroken,
    SimulatorError,
)

PAGE = Path(__file__).parents[2] / "docs" / "link.md"
LIMIT = 60


def page_bytes():
    """The messages of the page's conversation by their type; of `obs` only the beginning is there."""
    found, name = {}, ""
    for line in PAGE.read_text(encoding="utf-8").split("### Bytes")[1].split("```")[1].splitlines():
        if said := re.match(r"[SC] (\w+)", line):
            name = said[1]
            found[name] = b""
        elif pairs := re.match(r"  ((?:[0-9a-f]{2} ?)+)", line):
            found[name] += bytes.fromhex(pairs[1])
    return found


BYTES = page_bytes()


def frame(header, payload=b""):
    """A frame of any header, right or wrong."""
    body = header if isinstance(header, bytes) else msgpack.packb(header)
    return b"MRLK\1\0\0\0" + struct.pack("<II", len(body), len(payload)) + body + payload


def obs(turn=0, sim_step=0, arrays=None, **keys):
    """An obs in the order of the page; `arrays` adds or replaces arrays, None takes one away."""
    header = {
        "type": "obs",
        "turn": turn,
        "sim_step": sim_step,
        "done": False,
        "truncated": False,
        "reason": 0,
        "kind": "sedan",
        "visible": True,
        "illegal": False,
        **keys,
    }
    base = np.zeros(22)
    base[0], base[21] = sim_step, header["done"]
    picture = np.arange(768, dtype="u1").reshape(3, 16, 16)
    given = {"image": picture, "base": base, "params": np.ones(60), "scores": np.ones(2), **(arrays or {})}
    given = {name: array for name, array in given.items() if array is not None}
    header["arrays"] = [[name, a.dtype.str[1:], list(a.shape)] for name, a in given.items()]
    return frame(header, b"".join(a.tobytes() for a in given.values()))


class Script:
    """A simulator of one connection: says the bytes of its script, hears a message at each HEAR, does nothing at HOLD
    until the client has gone. What it heard is kept."""

    def __init__(self, *lines):
        self.lines, self.heard = lines, []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        connection, _ = self.listener.accept()
        connection.settimeout(LIMIT)
        with connection, connection.makefile("rb") as stream, contextlib.suppress(OSError, struct.error):
            for line in self.lines:
                if line is HEAR:
                    start = stream.read(16)
                    self.heard.append(start + stream.read(struct.unpack("<8xII", start)[0]))
                elif line is HOLD:
                    stream.read()
                else:
                    connection.sendall(line)

    def end(self):
        """What was heard, when all was said."""
        self.thread.join(LIMIT)
        assert not self.thread.is_alive()
        return self.heard


HEAR, HOLD = object(), object()
GREETING = (BYTES["challenge"], HEAR, BYTES["welcome"])


@pytest.fixture
def play():
    """A function that starts a script, and one that connects a client to it."""
    with contextlib.ExitStack() as stack:

        def start(*lines, **options):
            script = Script(*lines)
            stack.callback(script.listener.close)

            def connect():
                given = {"config": {"size": 16}, "token": "swordfish", **options}
                client = OtherClient("127.0.0.1", script.listener.getsockname()[1], **given)
                stack.callback(client._socket.close)
                return client

            return script, connect

        yield start


# -- the conversation -------------------------------------------------------------------------------------------------


def test_the_frames_of_the_page_have_the_lengths_that_they_say():
    """Twelve messages; the obs has a header of 0x8b bytes and a payload of 768 + 176 + 480 + 16."""
    begun = BYTES["obs"]
    assert len(BYTES) == 12 and obs().startswith(begun) and len(obs()) == 16 + 0x8B + 1440
    for name, sample in BYTES.items():
        if name != "obs":
            assert struct.unpack("<8xII", sample[:16]) == (len(sample) - 16, 0), name


@pytest.mark.parametrize("token", ["swordfish", b" swordfish\n"])
def test_the_client_says_the_bytes_of_the_page(play, token):
    """From hello with its mac to close, each message is the page's, and what comes is understood."""
    script, connect = play(
        *GREETING, HEAR, obs(), HEAR, obs(1, 4), HEAR, BYTES["pong"], HEAR, BYTES["bye"], token=token
    )
    client = connect()
    assert client.welcome["image"] == [3, 16, 16] and client.welcome["sim_hz"] == 500
    client.ask_reset(7, 0, 0)
    first = client.answer()
    assert first["kind"] == "sedan" and "arrays" not in first
    assert np.array_equal(first["image"].ravel(), np.arange(768).astype("u1"))
    client.ask_step(0, [40.0, 0.0, 0.0, 0.0])
    assert client.answer()["sim_step"] == 4
    client.ping()
    client.close()
    client.close()
    assert script.end() == [BYTES[name] for name in ("hello", "reset", "step", "ping", "close")]
    with pytest.raises(LinkLost):
        client.ping()


def test_a_wait_tells_who_is_missing_and_is_no_answer(play):
    """Before welcome it has no turn; the page's wait, of turn 1, names 2 and 5, and the client's own limit applies."""
    early = frame({"type": "wait", "turn": None, "missing": []})
    welcome = frame(msgpack.unpackb(BYTES["welcome"][16:]) | {"n": 6})
    lines = (BYTES["challenge"], early, HEAR, early, welcome, HEAR, obs(), HEAR, BYTES["wait"], HOLD)
    _, connect = play(*lines, n=6)
    client = connect()
    client.ask_reset(7, 0, 0)
    client.answer()
    client.ask_step([0, 0.5, 0, -1], np.zeros(4))
    client.timeout = 0.05
    while not client.missing:
        with pytest.raises(OutOfTime):
            client.answer()
    with pytest.raises(OutOfTime, match=r"\[2, 5\]"):
        client.answer()


def test_an_error_may_come_in_the_place_of_welcome_and_of_challenge(play):
    """The page's `auth`, with its text."""
    for lines in [(BYTES["challenge"], HEAR, BYTES["error"]), (BYTES["error"],)]:
        _, connect = play(*lines, token="perch")
        with pytest.raises(SimulatorError) as caught:
            connect()
        assert (caught.value.code, caught.value.text) == ("auth", "wrong token")


def test_without_a_token_the_mac_is_nil(play):
    """It is for the simulator to object."""
    script, connect = play(*GREETING, token=None)
    connect()
    assert msgpack.unpackb(script.end()[0][16:])["mac"] is None


def test_after_turn_the_number_is_used_again_and_after_internal_not(play):
    """Refused as turn 0, failed as turn 0, answered as turn 1; `protocol` at turn 2 is the end."""

    def error(code, **turn):
        return frame({"type": "error", "code": code, "text": "it is so", **turn})

    script, connect = play(
        *GREETING, HEAR, error("turn", turn=0), HEAR, error("internal", turn=0), HEAR, obs(1), HEAR, error("protocol")
    )
    client = connect()
    client.ask_step(0, np.zeros(4))
    with pytest.raises(SimulatorError, match="turn"):
        client.answer()
    client.ask_reset(7, 0, 0)
    with pytest.raises(SimulatorError, match="internal"):
        client.answer()
    client.ask_reset(7, 0, 0)
    assert client.answer()["turn"] == 1
    client.ask_step(0, np.zeros(4))
    with pytest.raises(SimulatorError, match="protocol"):
        client.answer()
    assert [msgpack.unpackb(data[16:])["turn"] for data in script.end()[1:]] == [0, 0, 1, 2]
    with pytest.raises(LinkLost):
        client.ask_reset(7, 0, 0)


def test_pings_go_both_ways_while_an_answer_is_open(play):
    """The simulator's ping is answered, a pong that nobody asked for is passed over, and the answer that comes before
    the client's own pong is kept."""
    lines = (HEAR, BYTES["pong"], BYTES["ping"], obs(), HEAR, obs(1, 4), HEAR, BYTES["pong"], HEAR)
    script, connect = play(*GREETING, *lines)
    client = connect()
    client.ask_reset(7, 0, 0)
    assert client.answer()["turn"] == 0
    client.ask_step(0, [40.0, 0.0, 0.0, 0.0])
    client.ping()
    assert client.answer()["turn"] == 1
    assert script.end()[2:] == [BYTES["pong"], BYTES["step"], BYTES["ping"]]


def test_one_question_at_a_time(play):
    """An answer that was not asked for, and a question before the answer, are faults of the caller."""
    _, connect = play(*GREETING, HEAR, HOLD)
    client = connect()
    with pytest.raises(RuntimeError):
        client.answer()
    client.ask_reset(7, 0, 0)
    with pytest.raises(RuntimeError):
        client.ask_reset(7, 0, 0)


@pytest.mark.parametrize(
    ("lines", "silence", "text"),
    [((HOLD,), 0.1, "silent"), ((obs()[:100], HOLD), 0.1, "silent"), ((obs()[:100],), LIMIT, "closed")],
    ids=["nothing", "half a frame", "the end"],
)
def test_silence_and_an_end_are_the_death_of_the_simulator(play, monkeypatch, lines, silence, text):
    """Nothing at all, half a frame, the end of the connection: the link is lost."""
    _, connect = play(*GREETING, HEAR, *lines)
    client = connect()
    client.ask_reset(7, 0, 0)
    monkeypatch.setattr(other_client, "SILENCE", silence)
    with pytest.raises(LinkLost, match=text):
        client.answer()


# -- what a simulator may send ----------------------------------------------------------------------------------------


def nested(levels):
    return [] if levels == 1 else [nested(levels - 1)]


HEAD = {"type": "challenge", "proto": 1, "nonce": bytes(16), "auth": False}


def test_unknown_keys_within_the_limits_are_ignored(play):
    """Eight levels with the header, 4,096 bytes, and every type that there is."""
    extra = {"a": nested(7), "b": "a" * 4096, "c": b"a" * 4096, "d": [None, 1.5, 2**64 - 1, -(2**63), {"y": True}]}
    _, connect = play(frame(HEAD | extra), HEAR, BYTES["welcome"])
    connect()


@pytest.mark.parametrize(
    "first",
    [
        b"MRLX" + BYTES["challenge"][4:],
        b"MRLK\x02" + BYTES["challenge"][5:],
        BYTES["challenge"][:7] + b"\1" + BYTES["challenge"][8:],
        b"MRLK\1\0\0\0" + struct.pack("<II", 0, 0),
        b"MRLK\1\0\0\0" + struct.pack("<II", 65_537, 0),
        b"MRLK\1\0\0\0" + struct.pack("<II", 53, 33_554_433),
        frame(msgpack.packb(HEAD) + b"\xc0"),
        frame([1]),
        frame(b"\x81\xa4type\xa1\xff"),
        frame(HEAD, b"x"),
        frame(HEAD | {"x": nested(8)}),
        frame(HEAD | {"x": "a" * 4097}),
        frame(HEAD | {"x": b"a" * 4097}),
        frame(HEAD | {"x": msgpack.ExtType(1, b"")}),
        frame(HEAD | {"x": msgpack.Timestamp(1)}),
        frame(HEAD | {5: 1}),
        frame(HEAD | {"proto": 2}),
        frame(HEAD | {"nonce": bytes(15)}),
        frame(HEAD | {"auth": 1}),
        BYTES["welcome"],
        BYTES["ping"],
        BYTES["hello"],
    ],
    ids=range(22),
)
def test_a_wrong_first_frame_is_refused(play, first):
    """Frame, limits, types and keys are the page's, and challenge is first."""
    _, connect = play(first)
    with pytest.raises(ProtocolBroken):
        connect()


@pytest.mark.parametrize(
    "change",
    [
        {"n": 2},
        {"image": [3, 16]},
        {"image": [2, 16, 16]},
        {"sim_hz": 0},
        {"sim_hz": 200},
        {"sim_hz": 500.0},
        {"caps": [1]},
    ],
    ids=str,
)
def test_a_wrong_welcome_is_refused(play, change):
    """`sim_hz` is a multiple of `control_hz`, 125 by default."""
    _, connect = play(BYTES["challenge"], HEAR, frame(msgpack.unpackb(BYTES["welcome"][16:]) | change))
    with pytest.raises(ProtocolBroken):
        connect()


@pytest.mark.parametrize(
    "wrong",
    [
        obs(1),
        obs(0, 4),
        obs(reason=1),
        obs(done=True),
        obs(done=True, reason=1),
        obs(visible=1),
        obs(kind=None),
        obs(arrays={"image": np.zeros((3, 16, 17), "u1")}),
        obs(arrays={"image": None}),
        obs(arrays={"base": np.zeros((2, 11))}),
        obs(arrays={"base": np.ones(22)}),
        obs(arrays={"base": np.zeros(22, "f4")}),
        obs(arrays={"params": np.zeros(59)}),
        obs(arrays={"scores": None}),
        obs(arrays={"more": np.zeros(2, "i2")}),
        BYTES["bye"],
        BYTES["challenge"],
        frame({"type": "wait", "turn": 1, "missing": []}),
        frame({"type": "wait", "turn": 0, "missing": [1]}),
        frame({"type": "error", "code": "turn", "text": "of which turn?"}),
    ],
    ids=range(20),
)
def test_a_wrong_answer_to_a_reset_is_refused(play, wrong):
    """An episode begins with turn 0, sim step 0 and no end, with the arrays of the table; then the link is closed."""
    _, connect = play(*GREETING, HEAR, wrong)
    client = connect()
    client.ask_reset(7, 0, 0)
    with pytest.raises(ProtocolBroken):
        client.answer()
    with pytest.raises(LinkLost):
        client.ping()


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        (obs(1, 4), True),
        (obs(1, 3), False),
        (obs(1, 5), False),
        (obs(1, 3, done=True, reason=1), True),
        (obs(1, 5, done=True, reason=1), False),
        (obs(1, 4, done=True, truncated=True, reason=11), True),
        (obs(1, 4, done=True, truncated=True, reason=1), False),
        (obs(1, 4, done=True, reason=10), False),
        (obs(1, 4, done=True, reason=8), False),
        (obs(1, 4, done=True, truncated=True, reason=12), False),
        (obs(1, 4, {"more": np.zeros((0, 3), "i8")}), True),
    ],
    ids=range(11),
)
def test_a_step_is_four_sim_steps_or_an_end(play, answer, right):
    """500 / 125; from reason 10 on an end truncates, 8 and 12 are the client's own. An unknown array is passed over."""
    _, connect = play(*GREETING, HEAR, obs(), HEAR, answer)
    client = connect()
    client.ask_reset(7, 0, 0)
    client.answer()
    client.ask_step(0, np.zeros(4))
    with contextlib.nullcontext() if right else pytest.raises(ProtocolBroken):
        assert "more" not in client.answer()


def test_a_cloud_that_was_asked_for_has_five_numbers_a_point(play):
    """Three points are 15 numbers; none, or ten, are refused."""
    for size, right in ((15, True), (10, False), (None, False)):
        cloud = None if size is None else np.zeros(size, "f4")
        _, connect = play(*GREETING, HEAR, obs(arrays={"cloud": cloud}), config={"cloud": True, "lidar_points": 3})
        client = connect()
        client.ask_reset(7, 0, 0)
        with contextlib.nullcontext() if right else pytest.raises(ProtocolBroken):
            assert client.answer()["cloud"].shape == (15,)


def test_a_number_that_is_not_finite_ends_the_episode(play):
    """With reason 8, which the client gives."""
    _, connect = play(*GREETING, HEAR, obs(arrays={"params": np.full(60, np.nan)}))
    client = connect()
    client.ask_reset(7, 0, 0)
    got = client.answer()
    assert (got["done"], got["truncated"], got["reason"]) == (True, False, 8)


@pytest.mark.parametrize(
    "arrays",
    [
        [["a", "u1", [-1]]],
        [["a", "u1", [2]]],
        [["a", "u1", [1]], ["a", "u1", [0]]],
        [["a", "u1"]],
        [["a", "u1", [2**62, 4]]],
        [["a", "u1", [1] * 9]],
        [["a", "u1", [True]]],
        [],
    ],
    ids=str,
)
def test_arrays_that_do_not_make_up_the_payload_are_refused(arrays):
    """The payload is one byte."""
    assert other_client.split_arrays([["a", "u1", [1] * 8]], b"x")["a"].shape == (1,) * 8
    with pytest.raises(ProtocolBroken):
        other_client.split_arrays(arrays, b"x")
