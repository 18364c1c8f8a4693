"""docs/link.md quotes errors: each is provoked, and must say what the page says."""

import re
import socket
import threading
from contextlib import closing, contextmanager

import pytest

pytest.importorskip("msgpack")

from milkrun.core.errors import ConfigError, LinkError
from milkrun.tracking.config import TrackingConfig
from milkrun.tracking.link.client import Link, Patience
from milkrun.tracking.link.server import Server
from tests.docs.generated import ROOT
from tests.tracking.link_tools import PLENTY, SMALL, Hosted, frame

TABLE = (ROOT / "docs" / "link.md").read_text().partition("### Errors and what to do")[2].partition("\n---\n")[0]
QUOTED = re.findall(r"^\| `(\w+)`: (.+?) \| .+ \|$", TABLE, re.MULTILINE)
PORT = "33727"


@pytest.fixture(scope="module")
def host():
    with Hosted(max_envs=4) as hosted:
        yield hosted


@contextmanager
def says(first):
    """A port that accepts connections and sends these bytes first."""
    over = threading.Event()

    def serve():
        with listener.accept()[0] as sock:
            sock.sendall(first)
            over.wait(60)

    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            over.set()
            thread.join(60)


def connect(port, row=0, count=1, silence=PLENTY, **options):
    config = TrackingConfig.build(link=f"tcp://127.0.0.1:{port}", **{**SMALL, "delay": PLENTY, **options})
    return Link(config, seed=7, row=row, count=count, patience=Patience(silence=silence, index=0.1))


def free_port():
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        return listener.getsockname()[1]


def taken(host, tmp_path):
    Server(port=host.port)


def token(secret):
    def call(host, tmp_path):
        path = tmp_path / "secret.txt"
        path.write_text(secret)
        path.chmod(0o600)
        with Hosted(token=b"swordfish") as locked:
            connect(locked.port, token_file=str(path) if secret else None)

    return call


def listens(first, silence=PLENTY):
    def call(host, tmp_path):
        with says(first) as port:
            connect(port, silence=silence)

    return call


def barrier(host, tmp_path):
    links = [connect(host.port, row, 2) for row in range(2)]
    links[1].config = links[1].config.replace(delay=2.0)
    try:
        links[1].ask_reset()
        links[1].answer()
    finally:
        for link in links:
            link.close()


def second(row, count, **options):
    """A second environment that connects after environment 0 of 2."""

    def call(host, tmp_path):
        with closing(connect(host.port, 0, 2)):
            connect(host.port, row, count, **options)

    return call


CASES = {
    "no simulator listens there. Start": lambda host, tmp_path: connect(free_port()),
    "is taken": taken,
    "requires a token": token(""),
    "wrong token": token("a trout, a long one"),
    "speaks version 2": listens(frame({"type": "challenge", "proto": 2, "nonce": bytes(16), "auth": False})),
    "SSH": listens(b"SSH-2.0-OpenSSH_9.6p1 Ubuntu-3ubuntu13.5\r\n"),
    "said nothing": listens(b"", silence=0.2),
    "waits for environments": barrier,
    "connected already": second(0, 2),
    "has scene=": second(1, 2, scene="village"),
    "no room for 8 more": lambda host, tmp_path: connect(host.port, 0, 8),
    "Environment 0 starts": lambda host, tmp_path: connect(free_port(), 1, 2, auto_start=True, delay=0.3),
    "can be reached from other machines": lambda host, tmp_path: Server("0.0.0.0", 0),
}


@pytest.mark.parametrize("kind, text", QUOTED, ids=[kind for kind, _ in QUOTED])
def test_an_error_says_what_the_page_says(kind, text, host, tmp_path):
    """Word for word, except for the port and the seconds until the timeout."""
    calls = [call for words, call in CASES.items() if words in text]
    assert len(calls) == 1
    with pytest.raises((LinkError, ConfigError)) as raised:
        calls[0](host, tmp_path)
    said = re.sub(r"(127\.0\.0\.1:|port )\d{4,5}\b", rf"\g<1>{PORT}", str(raised.value)).replace("0.2 s", "5 s")
    said = re.sub(r"(?<=--port )\d+", PORT, said)
    assert (type(raised.value).__name__, said) == (kind, text)


def test_every_case_is_on_the_page():
    """Each once."""
    assert len(QUOTED) == len(CASES)
