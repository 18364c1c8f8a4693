"""The client with scripted simulators: valid ones, broken ones, and other programs."""

import math
import signal
import socket
import threading
import time

import numpy as np
import pytest

from milkrun.core.errors import LinkError, LinkProtocol, LinkTimeout, LinkVersion, ResetNeeded
from milkrun.tracking.config import REASONS, TrackingConfig
from milkrun.tracking.link.client import Link, Patience
from milkrun.tracking.link.scoring import Scorer
from milkrun.tracking.moment import resize
from tests.tracking.link_tools import PLENTY, Scripted, frame, greet, send_obs, world_of

SHORT = Patience(silence=0.3, frame=0.3, index=0.1)
IN_VIEW = (14.0, 1.0)
"""A target that a camera at (0, 0, 20), pitch 1, yaw 0 sees with r_c 0.982046127."""


def params_of(target=IN_VIEW, crash=0.0):
    """RewardParams of a camera at (0, 0, 20), pitch 1, yaw 0, and a target."""
    p = np.zeros(60)
    c, s = math.cos(1.0), math.sin(1.0)
    p[:6] = 320, 240, 0.785398, 386.2743, 1.0, 20.0
    p[7:23] = np.array([[c, 0, s, 0], [0, 1, 0, 0], [-s, 0, c, 20], [0, 0, 0, 1]]).ravel()
    p[39:42] = 20 / math.tan(1.0), 0, 0
    p[42:45] = *target, 0
    p[45:48] = 0, 0, 20
    p[49:52] = *target, -20
    p[58] = crash
    return p


def plays(*scenes, **greeting):
    """A simulator that answers each request by `send_obs` with these arguments."""

    def play(raw):
        play.hello = greet(raw, **greeting)
        play.questions = []
        for turn, scene in enumerate(scenes):
            play.questions.append(raw.expect("reset" if turn == 0 or scene.get("fresh") else "step"))
            send_obs(raw, **{"turn": turn, **{k: v for k, v in scene.items() if k != "fresh"}})
        raw.read()

    return play


def flown(link, steps, action=6):
    """The moments of a reset and of `steps` steps."""
    link.ask_reset()
    moments = [link.answer()]
    for _ in range(steps):
        link.ask_step(action)
        moments.append(link.answer())
    return moments


def scenes_at(*steps, **more):
    """Arguments of `send_obs` for these sim steps."""
    return [{"sim_step": n, "params": params_of(), **more} for n in steps]


# -- computations of the client ---------------------------------------------------------------------------------------


def test_rewards_are_computed_if_the_simulator_does_not():
    """The known value of the window reward: r_c 0.982046127; the reset has no reward."""
    with Scripted(plays(*scenes_at(0, 4))) as simulator:
        link = simulator.link()
        begun, stepped = flown(link, 1)
        link.close()
    assert (begun.reward, stepped.r_d) == (0.0, 1.0)
    assert begun.r_c == stepped.r_c == stepped.reward == pytest.approx(0.982046127, abs=1e-9)


def test_rewards_of_the_simulator_are_used_unchanged():
    """With the cap `rewards`, base[20] and the scores are used."""
    base, scores = np.zeros(22), np.array([0.25, 1.0])
    base[20] = 0.75

    def play(raw):
        greet(raw, caps=("rewards",))
        for turn, kind in enumerate(("reset", "step")):
            raw.expect(kind)
            header = {
                "type": "obs",
                "turn": turn,
                "sim_step": 4 * turn,
                "done": False,
                "truncated": False,
                "reason": 0,
                "kind": "van",
                "visible": False,
                "illegal": True,
                "arrays": [
                    ["scores", "f8", [2]],
                    ["more", "i8", [1]],
                    ["image", "u1", [3, 16, 16]],
                    ["base", "f8", [22]],
                    ["params", "f8", [60]],
                ],
            }
            body = scores.tobytes() + bytes(8) + bytes(768) + base.tobytes() + params_of().tobytes()
            raw.sock.sendall(frame(header, body))
        raw.read()

    with Scripted(play) as simulator:
        link = simulator.link()
        begun, stepped = flown(link, 1)
        link.close()
    assert (begun.reward, begun.r_c) == (0.0, 0.25)
    assert (stepped.reward, stepped.r_c, stepped.r_d, stepped.kind, stepped.illegal) == (0.75, 0.25, 1.0, "van", True)


def test_the_client_ends_an_episode_whose_target_is_lost():
    """Out of the window from sim step 4 on, no_reward_done 8, init_no_done 0: lost at sim step 12, with an additional
    -20."""
    away = [{"sim_step": n, "params": params_of((100.0, 0.0))} for n in (4, 8, 12)]
    with Scripted(plays(*scenes_at(0), *away)) as simulator:
        link = simulator.link(init_no_done=0, no_reward_done=8, end_reward=True)
        moments = flown(link, 3)
        assert [REASONS[m.reason] for m in moments] == ["", "", "", "lost"]
        assert (moments[3].terminated, moments[3].truncated, moments[3].reward) == (True, False, -20.0)
        with pytest.raises(ResetNeeded):
            link.ask_step(6)
        link.close()


def test_the_client_ends_an_episode_by_time():
    """max_sim_steps 8, and the target in view: truncated at sim step 8 with an additional 20; by max_steps at the
    first."""
    for options, steps in (({"max_sim_steps": 8}, 2), ({"max_steps": 1}, 1)):
        with Scripted(plays(*scenes_at(0, 4, 8)[: steps + 1])) as simulator:
            link = simulator.link(end_reward=True, **options)
            last = flown(link, steps)[-1]
            link.close()
        assert (REASONS[last.reason], last.truncated, last.terminated) == ("time", True, False)
        assert last.reward == pytest.approx(20.982046127, abs=1e-9)


def test_the_client_ends_an_episode_out_of_range():
    """D-VAT as published: the target beyond six times the first distance along the axis."""
    scenes = [*scenes_at(0, 4), {"sim_step": 8, "params": params_of((300.0, 0.0))}]
    with Scripted(plays(*scenes)) as simulator:
        link = simulator.link(reward="D-VAT", constants="as_published", init_no_done=0)
        moments = flown(link, 2)
        link.close()
    assert (REASONS[moments[2].reason], moments[2].terminated, moments[2].reward) == ("range", True, -10.0)


def test_the_lowest_reason_wins():
    """The simulator sends target_gone (11) at the time limit (10), and crash (1) while the target is lost (7)."""
    for options, said, params, reason in (
        ({"max_sim_steps": 4}, 11, params_of(), "time"),
        ({"init_no_done": 0, "no_reward_done": 0}, 1, params_of((100.0, 0.0), crash=1.0), "crash"),
    ):
        with Scripted(plays(*scenes_at(0), {"sim_step": 4, "params": params, "reason": said})) as simulator:
            link = simulator.link(**options)
            assert REASONS[flown(link, 1)[1].reason] == reason
            link.close()


@pytest.mark.parametrize(("reason", "paid"), [(11, 20.5), (1, 20.5), (0, 0.5)])
def test_the_reward_of_an_end_is_paid_once(reason, paid):
    """The simulator computes rewards, and the time is up: its reward at its own end includes the 20, otherwise the
    client adds them."""
    scorer = Scorer(TrackingConfig(end_reward=True, max_sim_steps=4), frozenset({"rewards"}))
    scores = np.array([0.5, 1.0])
    scorer.reset(params_of(), True, scores)
    found = scorer.step(4, params_of(), True, [0.0] * 4, reason, paid, scores)
    assert (found.reward, REASONS[found.reason]) == (20.5, "crash" if reason == 1 else "time")


@pytest.mark.parametrize(
    "options",
    [
        {"end_reward": True, "init_no_done": 8, "no_reward_done": 4, "view_range": 0.2},
        {"reward": "E2E", "max_steps": 9},
        {"reward": "D-VAT", "reward_scale": 2.0},
        {"reward": "D-VAT", "constants": "as_published", "init_no_done": 8},
        {"reward_kind": "distance", "occlusion": "zero"},
    ],
)
def test_the_client_scores_as_the_world_does(options):
    """Fourteen rows over one episode: a scorer with only params and the physical ends has the same rewards and ends."""
    config = TrackingConfig.build(
        size=16, ground_cell=10.0, max_vehicles=4, max_sim_steps=48, reward_params=True, **options
    )
    world, rng = world_of(config, 14, seed=3), np.random.default_rng(0)
    world.reset()
    scorers = [Scorer(config, frozenset()) for _ in range(14)]
    for b, scorer in enumerate(scorers):
        assert scorer.reset(world.reward_params[b], bool(world.visible[b]), None).r_c == pytest.approx(world.r_c[b])
    while not world.done.all():
        live = np.flatnonzero(~world.done)
        world.step(rng.integers(7, size=len(live)), live)
        for b in live:
            reason = int(world.reason[b]) if world.reason[b] in (1, 2, 3, 4, 5, 6, 11) else 0
            found = scorers[b].step(
                int(world.sim_step[b]), world.reward_params[b], bool(world.visible[b]), world.cmd[b], reason, 0.0, None
            )
            expected = (world.reward_exact[b], world.r_c[b], world.r_d[b], world.reason[b])
            assert found == pytest.approx(tuple(map(float, expected)), abs=1e-9)


def test_commands_match_the_actions():
    """Forward at 30 m/s, turn left at 2 rad/s, none: stop; options that are not the default are in the hello."""
    play = plays(*scenes_at(0, 4, 8, 12))
    with Scripted(play) as simulator:
        link = simulator.link(forward=30.0, scene="lake", norm=1, frame_stack=2)
        link.ask_reset()
        link.answer()
        for action in (0, 4, 77):
            link.ask_step(action)
            link.answer()
        link.close()
    assert [(q["action"], q["cmd"]) for q in play.questions[1:]] == [
        (0, [30.0, 0.0, 0.0, 0.0]),
        (4, [0.0, 0.0, 0.0, 2.0]),
        (-1, [0.0] * 4),
    ]
    assert all(type(x) is float for q in play.questions[1:] for x in q["cmd"])
    assert play.hello["config"] == {
        "forward": 30.0,
        "scene": "lake",
        "weather": "day",
        "size": 16,
        "ground_cell": 2.0,
        "max_vehicles": 4,
        "max_sim_steps": 40,
    }
    assert (play.questions[0]["seed"], play.questions[0]["row"], play.questions[0]["episode"]) == (7, 0, 0)


def test_pictures_of_another_size_are_resized_by_area():
    """A 4 x 6 RGB picture of a dark and a bright half as 16 x 16 grey; 32 x 32 blocks of 2 x 2 to their means."""
    image = np.zeros((3, 4, 6), np.uint8)
    image[:, :, 3:] = np.array([200, 100, 50])[:, None, None]
    with Scripted(plays({"sim_step": 0, "params": params_of(), "image": image}, image=(3, 4, 6))) as simulator:
        link = simulator.link(channels=1)
        found = flown(link, 0)[0].image
        link.close()
    assert found.shape == (1, 16, 16) and found.dtype == np.uint8
    assert (found[0, :, :8] == 0).all() and (found[0, :, 8:] == 124).all()  # 0.299*200 + 0.587*100 + 0.114*50 = 124.2
    fine = np.arange(3 * 32 * 32, dtype=np.uint32).reshape(3, 32, 32) % 251
    means = fine.reshape(3, 16, 2, 16, 2).mean((2, 4))
    fitted = resize(fine.astype(np.uint8), 3, 16)
    assert (fitted == np.floor(means + 0.5)).all()
    assert (resize(np.array([[[1, 2], [3, 4]]], np.uint8), 3, 2) == [[[1, 2], [3, 4]]] * 3).all()
    thirds = resize(np.array([[[0, 90, 180]] * 3], np.uint8), 1, 2)
    assert thirds[0].tolist() == [[30, 150]] * 2  # (0 + 90/2) / 1.5, (90/2 + 180) / 1.5


def test_a_missing_cloud_is_empty():
    """The option is on, but the simulator has no lidar: no point is a hit."""
    with Scripted(plays(*scenes_at(0))) as simulator:
        link = simulator.link(cloud=True, lidar_points=7)
        cloud = flown(link, 0)[0].cloud
        link.close()
    assert cloud.dtype == np.float32 and cloud.tolist() == [0.0] * 35


@pytest.mark.parametrize("where", ["base", "params"])
def test_a_number_that_is_not_finite_ends_the_episode(where):
    """Terminated, reason nan, reward 0, and no such number reaches the receiver; the next reset works."""
    bad = params_of()
    base = np.ones(22)
    (base if where == "base" else bad)[3] = np.inf if where == "base" else np.nan
    scenes = [*scenes_at(0), {"sim_step": 4, "params": bad, "base": base}, {**scenes_at(0)[0], "fresh": True}]
    with Scripted(plays(*scenes)) as simulator:
        link = simulator.link(other_state=True, reward_params=True)
        last = flown(link, 1)[1]
        assert (REASONS[last.reason], last.terminated, last.truncated, last.reward) == ("nan", True, False, 0.0)
        assert np.isfinite(last.other_state).all() and np.isfinite(last.params).all()
        link.ask_reset()
        assert link.answer().reason == 0
        link.close()


# -- failures ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {"turn": 7},
        {"turn": "0"},
        {"sim_step": -1},
        {"done": True},
        {"reason": 1},
        {"reason": 13},
        {"truncated": True},
        {"kind": "x" * 65},
        {"kind": 3},
        {"visible": 1},
        {"illegal": None},
        {"type": "observation"},
        {"arrays": []},
        {"arrays": [["image", "u1", [3, 16, 16]], ["base", "f8", [22]], ["params", "f8", [60, 1]]]},
        {"arrays": [["image", "u1", [16, 16, 3]], ["base", "f8", [22]], ["params", "f8", [60]]]},
        {"arrays": [["image", "u1", [3, 16, 16]], ["base", "i8", [22]], ["params", "f8", [60]]]},
        {"params": np.full(60, np.nan)},
        {"type": "error", "code": "turn", "text": "no"},
    ],
)
def test_an_answer_that_breaks_the_protocol_is_refused(changes):
    """The error names host, port and environment."""
    with Scripted(plays({**scenes_at(0)[0], **changes})) as simulator:
        link = simulator.link()
        link.ask_reset()
        name = rf"127\.0\.0\.1:{simulator.port} \(environment 0 of 1 in group 'main'\)"
        with pytest.raises(LinkProtocol, match=name):
            link.answer()
        link.close()


def challenge(**changes):
    return {"type": "challenge", "proto": 1, "nonce": bytes(16), "auth": False, **changes}


def welcome(**changes):
    said = {"type": "welcome", "proto": 1, "n": 1, "image": [3, 16, 16], "sim_hz": 500, "caps": [], **changes}

    def play(raw):
        raw.send(**challenge())
        raw.expect("hello")
        raw.send(**said)
        raw.read()

    return play


def says(data):
    def play(raw):
        raw.sock.sendall(data)
        raw.read()

    return play


@pytest.mark.parametrize(
    ("play", "kind", "what"),
    [
        (says(b"HTTP/1.1 400 Bad Request\r\n\r\n"), LinkVersion, "not with b'HTTP.*Another program may listen"),
        (says(b"SSH-2.0-OpenSSH_9.2\r\n"), LinkVersion, "Another program"),
        (says(b"MRLK\x02" + bytes(11)), LinkVersion, "version 2, not 1"),
        (says(frame(challenge(proto=2))), LinkVersion, "speaks version 2, not 1"),
        (says(frame(challenge(nonce=bytes(15)))), LinkProtocol, "nonce"),
        (says(frame(challenge(nonce="0" * 16))), LinkProtocol, "nonce"),
        (says(frame(challenge(auth=1))), LinkProtocol, "auth"),
        (says(frame({"type": "welcome"})), LinkProtocol, "'welcome' where `challenge` was expected"),
        (says(frame({"type": "error", "code": "busy", "text": "full\x1b[31m"})), LinkError, r"full \[31m \(busy\)"),
        (says(frame({"type": "error", "code": "version", "text": "old"})), LinkVersion, "old"),
        (says(frame({"type": "error", "code": 5, "text": "old"})), LinkProtocol, "code"),
        (says(b"MRLK\x01\0\0\0\xff\xff\xff\xff\0\0\0\0"), LinkProtocol, "65536"),
        (welcome(proto=3), LinkVersion, "version 3"),
        (welcome(n=2), LinkProtocol, "`n` of `welcome` is 2, not 1"),
        (welcome(image=[16, 16, 3]), LinkProtocol, "channels"),
        (welcome(image=[3, 0, 16]), LinkProtocol, "pixels"),
        (welcome(image="big"), LinkProtocol, "image"),
        (welcome(sim_hz=0), LinkProtocol, "sim_hz"),
        (welcome(caps="ends"), LinkProtocol, "caps"),
        (lambda raw: None, LinkError, "it closed the connection|ECONNRESET"),
    ],
)
def test_errors_identify_other_programs_and_versions(play, kind, what):
    """Another program, another version, a broken greeting."""
    with Scripted(play) as simulator:
        with pytest.raises(kind, match=what) as caught:
            simulator.link(patience=SHORT)
        assert f"127.0.0.1:{simulator.port}" in str(caught.value)
        assert type(caught.value).__module__ == "milkrun.core.errors"


def test_a_port_without_a_listener():
    """The message explains how to start one."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(LinkError, match=rf"127\.0\.0\.1:{port} .*milkrun simulate --port {port}.*auto_start"):
        Link(TrackingConfig.build(link="tcp", port=port), seed=0, row=0, count=1)
    with pytest.raises(LinkError, match=r"nowhere\.invalid:1 .*cannot be reached"):
        Link(TrackingConfig.build(link="tcp://nowhere.invalid:1"), seed=0, row=0, count=1)


def test_a_silent_listener_times_out():
    """It accepts and is silent, like a web server."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(LinkTimeout, match=r"said nothing for 0\.3 s.*another program"):
            Link(TrackingConfig.build(link=f"tcp://127.0.0.1:{port}"), seed=0, row=0, count=1, patience=SHORT)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # a port without an earlier failure
        port = silent.getsockname()[1]
        with pytest.raises(LinkTimeout, match="said nothing within the option delay"):
            Link(TrackingConfig.build(link=f"tcp://127.0.0.1:{port}", delay=0.2), seed=0, row=0, count=1)


def dies(raw):
    """It closes the connection."""


def hangs(raw):
    """It stays silent."""
    raw.read()


def stutters(raw):
    """An endless frame, a byte at a time."""
    for byte in frame({"type": "obs", "x": "y" * 2000}):
        raw.sock.sendall(bytes([byte]))
        time.sleep(0.02)


@pytest.mark.parametrize("way", [dies, hangs, stutters])
def test_a_simulator_that_dies_in_a_step_ends_the_episode(way):
    """The last picture, reward 0, truncated, link_lost; the next reset connects again, for the next episode."""
    image = np.arange(768).astype(np.uint8).reshape(3, 16, 16)

    def first(raw):
        greet(raw)
        raw.expect("reset")
        send_obs(raw, 0, image=image, **scenes_at(0)[0])
        raw.expect("step")
        way(raw)

    again = plays(*scenes_at(0))
    with Scripted(first, again) as simulator:
        link = simulator.link(patience=SHORT, other_state=True)
        moments = flown(link, 1)
        last = moments[1]
        assert (REASONS[last.reason], last.reward, last.r_c, last.terminated, last.truncated) == (
            "link_lost",
            0.0,
            0.0,
            False,
            True,
        )
        assert (last.image == image).all() and last.sim_step == 0 and last.kind == "sedan"
        with pytest.raises(ResetNeeded):
            link.ask_step(0)
        link.ask_reset()
        assert link.answer().sim_step == 0
        link.close()
    assert again.questions[0]["episode"] == 1 and again.questions[0]["turn"] == 0


def test_a_simulator_that_died_between_two_turns_is_noticed_by_the_next_step():
    """Also if the system still accepts the request."""
    gone = threading.Event()

    def first(raw):
        greet(raw)
        raw.expect("reset")
        send_obs(raw, 0, **scenes_at(0)[0])
        raw.sock.close()
        gone.set()

    with Scripted(first) as simulator:
        link = simulator.link()
        flown(link, 0)
        gone.wait(PLENTY)
        link.ask_step(0)
        assert REASONS[link.answer().reason] == "link_lost"
        link.close()


def test_an_episode_that_never_came_is_requested_again():
    """The simulator dies at the reset: the client connects once more, for the same episode; then it gives up."""

    def first(raw):
        greet(raw)
        raw.expect("reset")

    again = plays(*scenes_at(0))
    with Scripted(first, again, first, first) as simulator:
        link = simulator.link()
        link.ask_reset()
        assert link.answer().sim_step == 0
        assert again.questions[0]["episode"] == 0
        link.ask_reset()
        with pytest.raises(LinkError, match="no connection with a simulator"):
            link.answer()
        link.close()


def test_a_reset_without_a_simulator_is_an_error():
    """After its death the error is immediate, and the episode number is not used up."""

    def first(raw):
        greet(raw)
        raw.expect("reset")
        send_obs(raw, 0, **scenes_at(0)[0])
        raw.expect("step")

    with Scripted(first) as simulator:
        link = simulator.link()
        moments = flown(link, 1)
        assert REASONS[moments[1].reason] == "link_lost"
    for _ in range(2):
        with pytest.raises(LinkError, match="no simulator listens there"):
            link.ask_reset()
    again = plays(*scenes_at(0))
    with Scripted(again, port=simulator.port):
        flown(link, 0)
        link.close()
    assert again.questions[0]["episode"] == 1


def test_pings_are_answered_and_waits_accepted():
    """While the client waits for an answer."""

    def play(raw):
        greet(raw)
        raw.expect("reset")
        for _ in range(3):
            raw.send(type="wait", turn=0, missing=[])
        raw.send(type="ping")
        assert raw.expect("pong")
        send_obs(raw, 0, **scenes_at(0)[0])
        raw.read()

    with Scripted(play) as simulator:
        link = simulator.link()
        assert flown(link, 0)[0].sim_step == 0
        link.close()


def test_a_busy_simulator_times_out_after_delay():
    """It sends `wait` forever: after `delay` the client gives up despite these signs of life."""

    def play(raw):
        greet(raw)
        raw.expect("reset")
        while True:
            raw.send(type="wait", turn=0, missing=[])
            time.sleep(0.01)

    with Scripted(play) as simulator:
        link = simulator.link(delay=0.3)
        link.ask_reset()
        with pytest.raises(LinkTimeout, match="alive but busy"):
            link.answer()
        link.close()


@pytest.fixture
def interrupt():
    """A signal that interrupts the main thread as Ctrl-C does; SIGINT itself may be ignored in a background job."""
    before = signal.signal(signal.SIGUSR1, signal.default_int_handler)
    yield lambda: signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, before)


def test_an_interrupt_while_waiting_leaves_no_half_frame(interrupt):
    """Ctrl-C in the middle of an answer: the connection is closed, and the next reset opens a new one."""

    def half(raw):
        greet(raw)
        raw.expect("reset")
        raw.sock.sendall(frame({"type": "pong", "x": "y" * 100})[:50])
        interrupt()
        raw.read()

    with Scripted(half, plays(*scenes_at(0))) as simulator:
        link = simulator.link()
        with pytest.raises(KeyboardInterrupt):
            link.ask_reset()
            link.answer()
        link.ask_reset()
        assert link.answer().sim_step == 0
        link.close()


def test_garbage_collection_of_a_link_closes_its_connection():
    """Without close(): the simulator receives `close`."""
    heard = []

    def play(raw):
        greet(raw)
        heard.append(raw.read()["type"])

    with Scripted(play) as simulator:
        link = simulator.link()
        del link
    assert heard == ["close"]
