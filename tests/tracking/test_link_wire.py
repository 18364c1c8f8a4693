"""Frames of the link: the bytes of the protocol's page, every limit, and random bytes in the decoder."""

import re
import subprocess
import sys
from pathlib import Path

import msgpack
import numpy as np
import pytest

from milkrun.tracking.link import wire
from milkrun.tracking.link.wire import Fault, FrameReader
from tests.tracking.link_tools import frame

PAGE = Path(__file__).parents[2] / "docs" / "link.md"


def page_frames():
    """The frames of the page, by their captions, without the obs, which the page shortens."""
    block = PAGE.read_text().split("### Bytes")[1].split("```text\n")[1].split("```")[0]
    found = {}
    for part in re.split(r"\n(?=[SC] )", "\n" + block):
        lines = part.strip().splitlines()
        digits = " ".join(line.strip() for line in lines if re.match(r"\s+[0-9a-f]{2} ", line))
        if "..." not in digits and digits:
            found[lines[0].split()[1]] = bytes.fromhex(digits)
    return found


HEADERS = {
    "challenge": {"type": "challenge", "proto": 1, "nonce": bytes(range(16)), "auth": True},
    "hello": {
        "type": "hello",
        "proto": 1,
        "group": "main",
        "n": 1,
        "idx": 0,
        "barrier": True,
        "config": {"size": 16},
        "mac": wire.mac_of(b"swordfish", bytes(range(16)), "main", 0),
    },
    "welcome": {
        "type": "welcome",
        "proto": 1,
        "n": 1,
        "image": [3, 16, 16],
        "sim_hz": 500,
        "caps": ["ends", "rewards", "cloud"],
    },
    "reset": {"type": "reset", "turn": 0, "seed": 7, "row": 0, "episode": 0},
    "step": {"type": "step", "turn": 1, "action": 0, "cmd": [40.0, 0.0, 0.0, 0.0]},
    "wait": {"type": "wait", "turn": 1, "missing": [2, 5]},
    "ping": {"type": "ping"},
    "pong": {"type": "pong"},
    "close": {"type": "close"},
    "bye": {"type": "bye"},
    "error": {"type": "error", "code": "auth", "text": "wrong token"},
}


def decoded(data, **options):
    """All frames in some bytes, their payloads as bytes."""
    reader = FrameReader(**options)
    found, at = [], 0
    while at < len(data):
        room = reader.space()
        count = min(len(room), len(data) - at)
        room[:count] = data[at : at + count]
        reader.advance(count)
        at += count
        while (one := reader.frame()) is not None:
            found.append((one[0], bytes(one[1])))
    return found


def fault(data, **options):
    """The error code of refused bytes."""
    with pytest.raises(Fault) as refused:
        decoded(data, **options)
    return refused.value.code


@pytest.mark.parametrize("kind", HEADERS)
def test_frames_are_the_bytes_of_the_page(kind):
    """Written and read: each complete frame of the page."""
    shown = page_frames()
    assert shown.keys() == HEADERS.keys()
    assert wire.encode(HEADERS[kind]) == shown[kind]
    assert decoded(shown[kind]) == [(HEADERS[kind], b"")]


def test_the_mac_of_the_page_is_hmac_sha256():
    """Of the token "swordfish" over nonce|main|0, from the page's hello."""
    assert wire.mac_of(b"swordfish", bytes(range(16)), "main", 0).hex().startswith("d4f1aac1a00d74bf5a3f2b08b1e3467b")


def test_frames_are_complete_for_any_split_of_the_bytes():
    """A conversation in pieces of one byte, of seven, and in one piece."""
    headers = list(HEADERS.values())
    data = b"".join(frame(header, b"x" * k) for k, header in enumerate(headers))
    expected = [(header, b"x" * k) for k, header in enumerate(headers)]
    for piece in (1, 7, len(data)):
        reader, found = FrameReader(size=16), []
        for at in range(0, len(data), piece):
            some = data[at : at + piece]
            while some:
                room = reader.space()
                count = min(len(room), len(some))
                room[:count], some = some[:count], some[count:]
                reader.advance(count)
                while (one := reader.frame()) is not None:
                    found.append((one[0], bytes(one[1])))
        assert found == expected and not reader.partial


def nested(levels):
    """A header with `levels` levels."""
    value = []
    for _ in range(levels - 2):
        value = [value]
    return {"type": "ping", "x": value}


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "version"),
        (b"G", "version"),
        (b"MRLK\x02" + frame({"type": "ping"})[5:], "version"),
        (b"MRLK\x01\x01" + frame({"type": "ping"})[6:], "protocol"),
        (b"MRLK\x01\x00\x00\x01" + frame({"type": "ping"})[8:], "protocol"),
        (frame(b""), "protocol"),
        (b"MRLK\x01\0\0\0" + (65_537).to_bytes(4, "little") + bytes(4), "too_large"),
        (b"MRLK\x01\0\0\0\x01\0\0\0" + (33_554_433).to_bytes(4, "little"), "too_large"),
        (frame([1, 2]), "protocol"),
        (frame({"kind": "ping"}), "protocol"),
        (frame({"type": 3}), "protocol"),
        (frame({"type": b"ping"}), "protocol"),
        (frame(msgpack.packb({"type": "ping", 3: 4})), "protocol"),
        (frame(msgpack.packb({"type": "ping", b"x": 4})), "protocol"),
        (frame({"type": "ping", "x": {"y": {b"z": 1}}}), "protocol"),
        (frame(msgpack.packb({"type": "ping"}) + b"\xc0"), "protocol"),
        (frame(msgpack.packb({"type": "ping"})[:-1]), "protocol"),
        (frame({"type": "ping", "x": msgpack.ExtType(5, b"abc")}), "protocol"),
        (frame({"type": "ping", "x": msgpack.ExtType(5, b"")}), "protocol"),
        (frame({"type": "ping", "x": msgpack.Timestamp(1)}), "protocol"),
        (frame(b"\x82\xa4type\xa4ping\xa1x\xc1"), "protocol"),
        (frame(b"\x82\xa4type\xa4ping\xa1x\xa1\xff"), "protocol"),
        (frame(b"\x82\xa4type\xa4ping\xa1x\xdd\xff\xff\xff\xff"), "protocol"),
        (frame({"type": "ping", "x": "a" * 4097}), "too_large"),
        (frame({"type": "ping", "x": "é" * 2049}), "too_large"),
        (frame({"type": "ping", "x": b"a" * 4097}), "too_large"),
        (frame({"type": "ping", "a" * 4097: 1}), "too_large"),
        (frame(nested(9)), "too_large"),
        (frame(b"\x82\xa4type\xa4ping\xa1x" + b"\x91" * 60_000 + b"\xc0"), "too_large"),
    ],
)
def test_an_invalid_frame_is_refused_by_its_code(data, code):
    """One case for each rule of the page."""
    assert fault(data) == code


@pytest.mark.parametrize(
    "header",
    [
        {"type": "ping", "x": "a" * 4096},
        {"type": "ping", "x": "é" * 2048},
        {"type": "ping", "x": b"a" * 4096},
        {"type": "ping", "x": [2**64 - 1, -(2**63), None, True, 1e308]},
        nested(8),
    ],
)
def test_the_limits_themselves_are_allowed(header):
    """4,096 bytes, eight levels, integers of 64 bits."""
    assert decoded(frame(header)) == [(header, b"")]


def test_a_wrong_prefix_is_refused_before_its_body():
    """After sixteen bytes, or after the first wrong one."""
    assert fault(frame({"type": "ping"}, b"1")[:16], max_payload=0) == "too_large"
    assert fault(b"MRLX") == "version"


def test_arrays_are_read_in_their_order():
    """Two arrays of six bytes and two numbers, misaligned."""
    payload = bytes(range(6)) + np.array([1.5, -2.0]).tobytes()
    header = {"type": "obs", "arrays": [["a", "u1", [2, 3]], ["b", "f8", [2]], ["c", "i4", [0]]]}
    arrays = wire.read_arrays(header, memoryview(payload))
    assert arrays["a"].tolist() == [[0, 1, 2], [3, 4, 5]] and arrays["b"].tolist() == [1.5, -2.0]
    assert arrays["c"].shape == (0,) and arrays["b"].dtype == np.float64


@pytest.mark.parametrize(
    "arrays",
    [
        "image",
        [["a", "u1"]],
        [["a", "u1", [8], 0]],
        [["a", "O", [8]]],
        [["a", "u2", [4]]],
        [["a", ["u1"], [8]]],
        [[1, "u1", [8]]],
        [["a", "u1", [-8]]],
        [["a", "u1", [8.0]]],
        [["a", "u1", [True, 8]]],
        [["a", "u1", 8]],
        [["a", "u1", [7]]],
        [["a", "u1", [9]]],
        [["a", "u1", [4]], ["a", "u1", [4]]],
        [["a", "u1", [2**62, 2**62]]],
        [["a", "u1", [1] * 9 + [8]]],
        [["a", "u1", [8]], ["b", "u1", [0, 2**63]]],
        [],
        [["a", "u1", [8]], ["b", "f8", [0, 2**25, 2**25, 2**25, 2**25]]],
    ],
)
def test_arrays_that_do_not_fit_their_payload_are_refused(arrays):
    """The payload has eight bytes."""
    with pytest.raises(Fault) as refused:
        wire.read_arrays({"type": "obs", "arrays": arrays}, memoryview(bytes(8)))
    assert refused.value.code == "protocol"


def mutated(rng, data):
    """Some bytes flipped, removed, duplicated or inserted."""
    data = bytearray(data)
    for _ in range(rng.integers(1, 4)):
        at = int(rng.integers(len(data) + 1))
        match rng.integers(4):
            case 0 if at < len(data):
                data[at] = rng.integers(256)
            case 1:
                del data[at : at + int(rng.integers(1, 5))]
            case 2:
                data[at:at] = data[at : at + int(rng.integers(1, 20))]
            case _:
                data[at:at] = rng.bytes(int(rng.integers(1, 5)))
    return bytes(data)


def fuzz(seed, count):
    """Random and mutated frames in the client's decoder; returns how many were refused."""
    rng, refused = np.random.default_rng(seed), 0
    obs = frame({**HEADERS["ping"], "type": "obs", "arrays": [["a", "u1", [2, 3]], ["b", "f8", [2]]]}, bytes(22))
    models = [*(frame(header) for header in HEADERS.values()), obs]
    for _ in range(count):
        match rng.integers(3):
            case 0:
                data = rng.bytes(int(rng.integers(1, 64)))
            case 1:
                data = frame(rng.bytes(int(rng.integers(1, 40))), rng.bytes(int(rng.integers(0, 9))))
            case _:
                data = mutated(rng, models[rng.integers(len(models))])
        try:
            for header, payload in decoded(data):
                wire.read_arrays(header, memoryview(payload))
        except Fault:
            refused += 1
    return refused


def test_random_frames_raise_only_fault():
    """10,000 of them: no other exception occurs, and most are refused."""
    assert 5_000 < fuzz(0, 10_000) < 10_000


@pytest.mark.long
def test_a_million_random_frames_raise_only_fault():
    """The same, longer."""
    assert fuzz(1, 1_000_000) > 500_000


def test_the_tracking_world_needs_no_msgpack():
    """Importing the package of the link imports no library; without msgpack its modules name the extra."""
    code = """
import sys
sys.modules["msgpack"] = None
import milkrun.tracking.link, milkrun.tracking.world
assert "milkrun.tracking.link.wire" not in sys.modules
try:
    import milkrun.tracking.link.client
except ImportError as e:
    print(type(e).__name__, e)
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    command = 'pip install -e ".[link]" in your checkout of Milkrun'
    assert said == f"MissingExtra this needs msgpack, which is not installed: {command}\n"


def test_a_client_loads_no_compiler():
    """A client of a running simulator imports neither the world nor numba."""
    code = """
import sys
import milkrun.tracking.link.client
assert not {"numba", "milkrun.tracking.world"} & sys.modules.keys()
"""
    subprocess.run([sys.executable, "-c", code], check=True)
