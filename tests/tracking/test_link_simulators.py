"""The second client of the link plays each simulator of this repository; the only common source is docs/link.md."""

import math
import time
from contextlib import ExitStack, contextmanager

import numpy as np
import pytest

pytest.importorskip("msgpack")

from tests.tracking.bridge_tools import LIMIT, serving
from tests.tracking.link_tools import Hosted
from tests.tracking.other_client import OtherClient, OutOfTime, SimulatorError

FORWARD = (0, [40.0, 0.0, 0.0, 0.0])
"""An action and its meaning, with the default speeds."""


@contextmanager
def bridge(**options):
    with serving(**options) as served:
        yield served.port


@contextmanager
def milkrun(**options):
    with Hosted(**options) as hosted:
        yield hosted.port


SIMULATORS = [bridge, milkrun]
"""Every simulator of this repository: a context manager with `token` and `max_envs` that returns a port."""


@pytest.fixture(scope="module", params=SIMULATORS, ids=lambda start: start.__name__)
def simulator(request):
    return request.param


@pytest.fixture(scope="module")
def port(simulator):
    """The port of a simulator shared by all tests, each with its own groups."""
    with simulator() as port:
        yield port


@pytest.fixture
def connect(port, request):
    """A function that connects a client to the group of this test."""
    with ExitStack() as stack:

        def start(**options):
            given = {"group": request.node.originalname, "config": {"size": 16}, "timeout": LIMIT, **options}
            client = OtherClient("127.0.0.1", given.pop("port", port), **given)
            stack.callback(client.close)
            return client

        yield start


def reset(client, seed=7, row=0, episode=0):
    client.ask_reset(seed, row, episode)
    return client.answer()


def step(client):
    client.ask_step(*FORWARD)
    return client.answer()


def refusal(code, act, *args, **keys):
    """The text of the error raised by `act`, which must have this code."""
    with pytest.raises(SimulatorError) as caught:
        act(*args, **keys)
    assert caught.value.code == code, caught.value
    return caught.value.text


def test_an_episode_is_played_and_played_again(connect):
    """Turns and sim steps are checked by the client; the same three numbers give the same pictures and numbers,
    another episode does not. Ping and close work in between and at the end."""
    client = connect()

    def episode(number):
        seen = [reset(client, episode=number)] + [step(client) for _ in range(5)]
        client.ping()
        return seen

    first, other, again = (episode(number) for number in (0, 1, 0))
    assert [obs["sim_step"] for obs in first] == [0, 4, 8, 12, 16, 20]
    for name in ("image", "base", "params"):
        assert all(np.array_equal(one[name], two[name]) for one, two in zip(first, again))
    assert not np.array_equal(first[0]["params"], other[0]["params"])
    client.close()


def test_forward_is_where_the_drone_is_headed(connect):
    """0.2 s at up to 40 m/s: at most 8 m along the first yaw, and almost nothing across it or up."""
    client = connect()
    start = reset(client)["base"]
    end = [step(client) for _ in range(25)][-1]["base"]
    ahead, left = math.cos(start[19]), math.sin(start[19])
    moved = end[1:4] - start[1:4]
    assert 1 < moved[0] * ahead + moved[1] * left <= 8 + 1e-9
    assert abs(moved[1] * ahead - moved[0] * left) < 0.5 and abs(moved[2]) < 0.5


def test_the_numbers_of_an_obs_agree(connect):
    """Drone, camera and target occur in `base` and several times in `params`; the page defines their relations."""
    client = connect()
    reset(client)
    obs = [step(client) for _ in range(5)][-1]
    base, p = obs["base"], obs["params"]
    camera, target, yaw = p[7:23].reshape(4, 4), p[23:39].reshape(4, 4), base[19]
    assert math.isclose(p[3], p[0] / 2 / math.tan(p[2] / 2))
    assert math.isclose(p[5], base[3]) and np.allclose(p[45:48], camera[:3, 3])
    # The camera is tilted down by its pitch, and its forward axis hits the ground in the middle of the picture.
    assert math.isclose(math.asin(-camera[2, 0]), p[4], abs_tol=1e-9)
    far = -camera[2, 3] / camera[2, 0]
    assert np.allclose(p[39:42], camera[:3, 3] + far * camera[:3, 0], atol=1e-6)
    assert np.allclose(p[42:44], target[:2, 3]) and p[44] == 0
    heading = math.atan2(target[1, 0], target[0, 0])
    assert abs(math.remainder(heading - yaw - p[48], 2 * math.pi)) < 1e-6
    c, s = math.cos(yaw), math.sin(yaw)
    x, y = p[42:44] - base[1:3]
    assert np.allclose(p[49:51], [c * x + s * y, c * y - s * x], atol=1e-6)
    w, _, _, z = base[13:17]
    assert np.allclose([w * w - z * z, 2 * w * z], [c, s], atol=1e-9)


def test_with_a_barrier_two_move_together(connect):
    """The first gets `wait` with the second as missing. A question before the answer is refused and the open one is
    still answered. After the second has left, the first plays on alone."""
    one, two = (connect(n=2, idx=idx) for idx in (0, 1))
    one.ask_reset(7, 0, 0)
    one._send({"type": "step", "turn": 1, "action": 0, "cmd": FORWARD[1]})
    refusal("turn", one.answer)
    one.timeout = 0.1
    while not one.missing:
        with pytest.raises(OutOfTime):
            one.answer()
    assert one.missing == [1]
    one.timeout = LIMIT
    reset(two, row=1)
    assert one.answer()["turn"] == 0
    for _ in range(3):
        one.ask_step(*FORWARD)
        step(two)
        one.answer()
    one.ask_step(*FORWARD)
    two.close()
    assert one.answer()["sim_step"] == 16


def test_a_lost_client_reconnects_with_its_index(connect):
    """Before the server detects the loss the answer is `index`; then the client starts with turn 0, a reset."""
    connect()._socket.close()
    late = time.monotonic() + LIMIT
    while True:
        try:
            client = connect()
            break
        except SimulatorError as error:
            assert error.code == "index" and time.monotonic() < late
    assert reset(client)["turn"] == 0


def test_a_turn_that_is_refused_does_not_count(connect):
    """A step before the first reset; then the reset has turn 0."""
    client = connect()
    client.ask_step(*FORWARD)
    refusal("turn", client.answer)
    assert reset(client)["turn"] == 0


def test_members_of_a_group_agree(connect):
    """An index twice or beyond n, another n, barrier or config is refused; one that only names a default is not."""
    connect(n=2, barrier=False)
    refusal("index", connect, n=2, barrier=False)
    refusal("index", connect, n=2, idx=2, barrier=False)
    refusal("config", connect, n=3, idx=1, barrier=False)
    refusal("config", connect, n=2, idx=1)
    refusal("config", connect, n=2, idx=1, barrier=False, config={"size": 16, "control_hz": 100})
    connect(n=2, idx=1, barrier=False, config={"control_hz": 125, "size": 16})


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (b"MRLK\2\0\0\0\1\0\0\0\0\0\0\0\x80", "version"),
        (b"MRLK\1\0\0\0\x0b\0\0\0\0\0\0\0\x81\xa4type\xa4shot", "protocol"),
        (b"MRLK\1\0\0\0\1\0\1\0\0\0\0\0", "too_large"),
        (b"MRLK\1\0\0\0\x0b\0\0\0\1\0\0\0\x81\xa4type\xa4pong_", "too_large"),
    ],
)
def test_an_invalid_message_is_refused_by_its_code(connect, sent, code):
    """Another version, an unknown message, a header of 65,537 bytes, a payload."""
    client = connect()
    client._socket.sendall(sent)
    refusal(code, client._next, "pong")


def test_a_missing_token_and_one_too_many_are_refused(simulator, connect):
    """`auth` without the token or with another, `busy` beyond `max_envs`."""
    with simulator(token=b"swordfish", max_envs=1) as port:
        refusal("auth", connect, port=port)
        refusal("auth", connect, port=port, token="perch")
        client = connect(port=port, token="swordfish")
        refusal("busy", connect, port=port, token="swordfish", group="another")
        assert reset(client)["turn"] == 0
        client.close()
