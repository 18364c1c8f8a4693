"""Simulators in separate processes: the command, started by hand and by the option, killed, stopped, abandoned."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from milkrun.core.errors import LinkError, ResetNeeded
from milkrun.tracking.config import REASONS, TrackingConfig
from milkrun.tracking.link.client import Link, Patience
from tests.tracking.link_tools import (
    PLENTY,
    SMALL,
    Raw,
    differing,
    gone,
    hello,
    moment_of,
    reset,
    simulators_of,
    until,
    world_of,
)

READY = 120.0
"""Seconds for a process to load compiled code, also on a busy machine."""


class Child:
    """`milkrun simulate`, and the process given as its parent."""

    def __init__(self):
        self.parent = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
        command = [sys.executable, "-m", "milkrun", "simulate", "--port", "0", "--parent-pid", str(self.parent.pid)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.line = self.process.stdout.readline()
        self.port = json.loads(self.line)["port"]

    def end(self):
        for process in (self.parent, self.process):
            process.kill()
            process.wait()
        for pipe in (self.parent.stdin, self.process.stdout, self.process.stderr):
            pipe.close()


@pytest.fixture(scope="module")
def child():
    started = Child()
    yield started
    started.end()


def listens(port):
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5) as sock:
        return sock.getsockname() != sock.getpeername()
    return False


def free_port():
    """A port below the ephemeral range, so that no connection of another test uses it."""
    for port in range(21_000 + os.getpid() % 1000, 32_000, 7):
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise AssertionError("there is no free port")


def test_the_command_reports_that_it_is_ready(child):
    """One line of JSON on stdout, as on the page."""
    assert child.line == f'{{"ready":true,"port":{child.port},"proto":1}}\n'


def test_a_process_elsewhere_gives_the_bytes_of_a_row_here(child):
    """Two rows, a whole episode."""
    config = TrackingConfig.build(link=f"tcp://localhost:{child.port}", reward_params=True, **SMALL)
    links = [Link(config, seed=5, row=row, count=2) for row in range(2)]
    world = world_of(config, 2, seed=5)
    world.reset()
    for link in links:
        link.ask_reset()
    for turn in range(11):
        world.observe()
        for b, link in enumerate(links):
            assert differing(link.answer(), moment_of(world, b, turn == 0)) == []
        if turn < 10:
            world.step([turn % 7, 6])
            for link, action in zip(links, (turn % 7, 6)):
                link.ask_step(action)
    assert world.done.all()
    for link in links:
        link.close()


def test_a_simulator_that_hangs_is_noticed_and_found_again(child):
    """SIGSTOP in a step: link_lost; after SIGCONT the next reset starts the next episode."""
    config = TrackingConfig.build(link=f"tcp://127.0.0.1:{child.port}/hangs", **SMALL)
    link = Link(config, seed=5, row=0, count=1, patience=Patience(silence=3.0, index=PLENTY))
    link.ask_reset()
    link.answer()
    child.process.send_signal(signal.SIGSTOP)
    try:
        link.ask_step(0)
        lost = link.answer()
    finally:
        child.process.send_signal(signal.SIGCONT)
    assert (REASONS[lost.reason], lost.truncated, lost.reward) == ("link_lost", True, 0.0)
    link.ask_reset()
    world = world_of(config, 1, seed=5)
    for _ in range(2):
        world.reset()
    world.observe()
    assert differing(link.answer(), moment_of(world, 0, True)) == []
    link.close()


def test_a_client_that_is_killed_frees_its_index(child):
    """A process with a connection dies: the others play on, and its index is free again."""
    code = f"""
import os, socket, sys, time
from tests.tracking.link_tools import Raw, reset
raw = Raw.to({child.port})
raw.hello(2, 1)
raw.expect("welcome")
print("there", flush=True)
time.sleep(600)
"""
    with Raw.to(child.port) as other:
        other.hello(2, 0)
        other.expect("welcome")
        client = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
        try:
            assert client.stdout.readline() == b"there\n"
            other.send(**reset())
            assert other.expect("wait")["missing"] == [1]
        finally:
            client.kill()
            client.wait()
            client.stdout.close()
        assert other.expect("obs")["turn"] == 0
        with Raw.to(child.port) as again:
            again.hello(2, 1)
            again.expect("welcome")


def test_a_simulator_leaves_with_its_parent(child):
    """Its parent process dies: the simulator ends by itself, without clients, and frees its port. This is the last test
    of the shared simulator."""
    with Raw.to(child.port) as raw:
        raw.expect("challenge")
        raw.send(**hello())
        raw.expect("welcome")
        child.parent.kill()
        child.parent.wait()
        assert raw.read() is None
    out, err = child.process.communicate(timeout=PLENTY)
    assert (out, child.process.returncode) == ("", 0)
    lines = err.splitlines()
    assert lines[-1].endswith("ends: its parent has ended") and "Traceback" not in err
    assert any("environment 0 of group 'hangs'" in line and line.endswith("here") for line in lines)
    assert not listens(child.port)


def test_a_simulator_that_was_started_is_started_again_and_ends_with_its_last_user():
    """Stopped, then killed during a step: link_lost within six seconds, and the next reset starts the next episode.
    Environment 1 waits for the port that environment 0 opens. After the second death within a minute there is no
    restart: max_restarts is 1. No process is left."""
    port = free_port()
    config = TrackingConfig.build(auto_start=True, port=port, delay=READY, max_restarts=1, **SMALL)
    links = [None, None]

    def second():
        links[1] = Link(config, seed=5, row=1, count=2, patience=Patience(silence=3.0))

    waiting = threading.Thread(target=second)
    waiting.start()
    links[0] = Link(config, seed=5, row=0, count=2, patience=Patience(silence=3.0))
    waiting.join(READY)
    assert [link.address.port for link in links] == [port] * 2
    world = world_of(config, 2, seed=5)
    try:
        for kills in (False, True):
            world.reset()
            world.observe()
            for link in links:
                link.ask_reset()
            for b, link in enumerate(links):
                assert differing(link.answer(), moment_of(world, b, True)) == []
            (pid,) = simulators_of(os.getpid())
            os.kill(pid, signal.SIGSTOP)
            for link in links:
                link.ask_step(0)
            if kills:
                os.kill(pid, signal.SIGKILL)
            start = time.monotonic()
            lost = [link.answer() for link in links]
            assert time.monotonic() - start < 6
            assert [REASONS[m.reason] for m in lost] == ["link_lost"] * 2
            assert (lost[0].image == world.image[0]).all()
            with pytest.raises(ResetNeeded):
                links[0].ask_step(0)
        with pytest.raises(LinkError, match=r"ended with the exit code -9.*max_restarts"):
            links[0].ask_reset()
    finally:
        for link in links:
            link.close()
    until(lambda: gone(pid))
    assert not listens(port) and simulators_of(os.getpid()) == []


def test_a_free_port_is_shared_by_all_environments_of_a_process():
    """port 0: one simulator for both; it ends with the last one that closes."""
    config = TrackingConfig.build(auto_start=True, port=0, delay=READY, **SMALL)
    links = [Link(config, seed=5, row=row, count=2) for row in (1, 0)]
    (pid,) = simulators_of(os.getpid())
    port = links[0].address.port
    assert links[1].address.port == port != 0
    links[0].close()
    assert listens(port)
    links[1].ask_reset()
    assert links[1].answer().sim_step == 0
    links[1].close()
    assert gone(pid) and not listens(port)
    assert not [t for t in threading.enumerate() if t.name.startswith("milkrun-link")]


def test_free_ports_are_shared_by_environments_with_one_token(tmp_path):
    """Three environments, two secrets: two simulators, each with room for a group of 257."""
    links = []
    try:
        for k, name in enumerate("aba"):
            (tmp_path / name).write_text(f"a long secret of {name}")
            (tmp_path / name).chmod(0o600)
            config = TrackingConfig.build(
                auto_start=True, port=0, delay=READY, barrier=False, token_file=str(tmp_path / name), **SMALL
            )
            links.append(Link(config, seed=5, row=k, count=257))
            links[k].ask_reset()
            assert links[k].answer().sim_step == 0
        one, other, again = [link.address.port for link in links]
        assert one == again != other and len(simulators_of(os.getpid())) == 2
    finally:
        for link in links:
            link.close()
    assert simulators_of(os.getpid()) == []


def test_a_taken_port_is_an_error_of_the_client(tmp_path):
    """Another program listens there: the client's error contains the simulator's message."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(LinkError, match=rf"port {port} of 127\.0\.0\.1 is taken: another program listens there"):
            Link(TrackingConfig.build(auto_start=True, port=port, delay=READY), seed=0, row=0, count=1)
    assert simulators_of(os.getpid()) == []


@pytest.mark.long
def test_a_simulator_ends_with_the_interpreter():
    """Without a close: the process that started it exits or is killed, and the simulator ends with it."""
    code = """
import os, signal, sys
from milkrun.tracking.config import TrackingConfig
from milkrun.tracking.link.client import Link
from tests.tracking.link_tools import simulators_of
link = Link(TrackingConfig.build(auto_start=True, port=0, delay=120.0, size=16), seed=0, row=0, count=1)
print(*simulators_of(os.getpid()), flush=True)
if sys.argv[1] == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
"""
    for way in ("end", "kill"):
        done = subprocess.run([sys.executable, "-c", code, way], capture_output=True)
        assert (done.returncode, done.stderr) == (0 if way == "end" else -9, b"")
        pid = int(done.stdout)
        until(lambda pid=pid: gone(pid))
