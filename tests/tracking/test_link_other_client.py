"""The bytes of docs/link.md, sent and received by a client that was written from that page alone."""

import contextlib
import re
import socket
import struct
import threading
from pathlib import Path

import numpy as np
import pytest

msgpack = pytest.importorskip("msgpack")

from tests.tracking.other_client import OtherClient  # noqa: E402

PAGE = Path(__file__).parents[2] / "docs" / "link.md"
LIMIT = 60


def page_bytes():
    """The messages of the page's example by type; of `obs` only the beginning."""
    found, name = {}, ""
    for line in PAGE.read_text(encoding="utf-8").split("### Bytes")[1].split("```")[1].splitlines():
        if said := re.match(r"[SC] (\w+)", line):
            name = said[1]
            found[name] = b""
        elif pairs := re.match(r"  ((?:[0-9a-f]{2} ?)+)", line):
            found[name] += bytes.fromhex(pairs[1])
    return found


BYTES = page_bytes()


def obs(turn=0, sim_step=0):
    """An obs in the order of the page."""
    base = np.zeros(22)
    base[0] = sim_step
    arrays = {
        "image": np.arange(768, dtype="u1").reshape(3, 16, 16),
        "base": base,
        "params": np.ones(60),
        "scores": np.ones(2),
    }
    header = msgpack.packb(
        {
            "type": "obs",
            "turn": turn,
            "sim_step": sim_step,
            "done": False,
            "truncated": False,
            "reason": 0,
            "kind": "sedan",
            "visible": True,
            "illegal": False,
            "arrays": [[name, a.dtype.str[1:], list(a.shape)] for name, a in arrays.items()],
        }
    )
    payload = b"".join(a.tobytes() for a in arrays.values())
    return b"MRLK\1\0\0\0" + struct.pack("<II", len(header), len(payload)) + header + payload


@contextlib.contextmanager
def simulator(*replies):
    """A simulator of one connection, which sends a reply after each frame; yields its port and the received frames."""
    heard = []

    def run():
        with listener.accept()[0] as connection, connection.makefile("rb") as stream:
            connection.settimeout(LIMIT)
            for reply in replies[:-1]:
                connection.sendall(reply)
                start = stream.read(16)
                heard.append(start + stream.read(struct.unpack("<8xII", start)[0]))
            connection.sendall(replies[-1])

    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as listener:
        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield listener.getsockname()[1], heard
        finally:
            thread.join(LIMIT)
            assert not thread.is_alive()


def test_the_frames_of_the_page_have_their_stated_lengths():
    """Twelve messages; the obs has a header of 0x8b bytes and a payload of 768 + 176 + 480 + 16."""
    begun = BYTES["obs"]
    assert len(BYTES) == 12 and obs().startswith(begun) and len(obs()) == 16 + 0x8B + 1440
    for name, sample in BYTES.items():
        if name != "obs":
            assert struct.unpack("<8xII", sample[:16]) == (len(sample) - 16, 0), name


@pytest.mark.parametrize("token", ["swordfish", b" swordfish\n"])
def test_the_client_sends_the_bytes_of_the_page(token):
    """From hello with its mac to close, each message equals the page's, and each reply is accepted."""
    replies = (BYTES["challenge"], BYTES["welcome"], obs(), obs(1, 4), BYTES["pong"], BYTES["bye"])
    with simulator(*replies) as (port, heard):
        client = OtherClient("127.0.0.1", port, config={"size": 16}, token=token)
        assert client.welcome["image"] == [3, 16, 16] and client.welcome["sim_hz"] == 500
        client.ask_reset(7, 0, 0)
        first = client.answer()
        assert first["kind"] == "sedan" and "arrays" not in first
        assert np.array_equal(first["image"].ravel(), np.arange(768).astype("u1"))
        client.ask_step(0, [40.0, 0.0, 0.0, 0.0])
        assert client.answer()["sim_step"] == 4
        client.ping()
        client.close()
    assert heard == [BYTES[name] for name in ("hello", "reset", "step", "ping", "close")]
