"""Play through the link in one process: equality with an in-process row, barriers, groups, episodes, refusals."""

import threading

import numpy as np
import pytest

from milkrun.core.errors import Closed, ConfigError, LinkAuth, LinkError, LinkTimeout, ResetNeeded, ShapeError
from milkrun.tracking.config import TrackingConfig
from milkrun.tracking.link.client import Link
from tests.tracking.link_tools import PLENTY, SMALL, Hosted, differing, moment_of, world_of


@pytest.fixture(scope="module")
def host():
    with Hosted() as hosted:
        yield hosted


KINDS = {
    "plain": {},
    "all": {
        "other_state": True,
        "reward_params": True,
        "cloud": True,
        "lidar_points": 12,
        "channels": 1,
        "scene": ("village", "lake"),
        "weather": ("night", "snow", "foggy"),
    },
    "stacked": {"frame_stack": 3, "max_steps": 7},
    "velocity": {"action_mode": "velocity", "reward": "D-VAT", "constants": "as_published", "wind_sigma": 4.0},
    "e2e": {
        "reward": "E2E",
        "action_dim": 6,
        "end_reward": True,
        "town": "fixed",
        "init_no_done": 4,
        "no_reward_done": 4,
        "view_range": 0.1,
    },
    "ends": {"end_reward": True, "init_no_done": 4, "no_reward_done": 4, "view_range": 0.1, "town": "row"},
}


def action_of(config, rng):
    """A random action; one in eight is out of range."""
    if config.action_mode == "velocity":
        return np.full(4, np.nan) if rng.random() < 1 / 8 else rng.uniform(-1, 1, 4)
    return 99 if rng.random() < 1 / 8 else int(rng.integers(config.action_dim))


@pytest.mark.parametrize("kind", KINDS)
def test_a_link_gives_the_bytes_of_a_row_in_this_process(host, kind):
    """Three rows over three episodes and more, each restarted when it ends: every part of every moment."""
    links = host.links(3, group=kind, **KINDS[kind])
    config, rng, ended = links[0].config, np.random.default_rng(0), 0
    world = world_of(config, 3)
    try:
        due = [0, 1, 2]
        while ended < 10:
            moving = [b for b in range(3) if b not in due]
            actions = [action_of(config, rng) for _ in moving]
            for b in due:
                links[b].ask_reset()
            for b, action in zip(moving, actions):
                links[b].ask_step(action)
            if due:
                world.reset(due)
            if moving:
                kinds = np.float32 if config.action_mode == "velocity" else np.int64
                world.step(np.array(actions, kinds), moving)
            world.observe()
            for b in range(3):
                assert differing(links[b].answer(), moment_of(world, b, b in due)) == []
            due = np.flatnonzero(world.done).tolist()
            ended += len(due)
    finally:
        for link in links:
            link.close()
    assert world.stream[:, 2].min() >= 2


def test_episodes_are_counted_as_a_row_counts_them(host):
    """(7, 2, 0), (7, 2, 1); with a seed (3, 0, 0), (3, 0, 1); also in mid-episode."""
    link, world = host.link(2, 3, group="episodes"), world_of(host.config("episodes"), 3)
    fresh = []
    for seed in (None, None, 3, None):
        link.ask_reset(seed)
        fresh.append(link.answer())
        link.ask_step(1)
        link.answer()
    link.close()
    for moment, (row, seed) in zip(fresh, [(2, None), (2, None), (0, [3]), (0, None)]):
        world.reset([row], seed=seed)
        world.observe([row])
        assert differing(moment, moment_of(world, row, True)) == []


def test_moments_are_the_receivers_own(host):
    """Writing into one changes neither another one nor the last moment of a lost link."""
    link = host.link(group="own", frame_stack=2, other_state=True)
    link.ask_reset()
    first = link.answer()
    kept = first.image.copy()
    first.image[:] = 0
    first.other_state[:] = 0
    link.ask_step(6)
    second = link.answer()
    link.close()
    assert (second.image[0] == kept[1]).all() and second.other_state.any()


def test_a_barrier_waits_for_all_requests(host):
    """With barrier no answer comes before the last request, and a closed environment no longer counts."""
    links = host.links(3, group="barrier", delay=PLENTY)
    answered = []
    threads = []
    for link in links[:2]:
        link.ask_reset()
        threads.append(threading.Thread(target=lambda link=link: answered.append(link.answer().sim_step)))
        threads[-1].start()
    threads[0].join(0.3)
    assert answered == []
    links[2].close()
    for thread in threads:
        thread.join(PLENTY)
    assert answered == [0, 0]
    for link in links:
        link.close()


def test_without_barrier_each_is_answered_at_once(host):
    """One of two steps while the other sends no request."""
    links = host.links(2, group="free", barrier=False)
    links[0].ask_reset()
    links[0].answer()
    links[0].ask_step(0)
    assert links[0].answer().sim_step == 4
    for link in links:
        link.close()


def test_missing_environments_are_named(host):
    """Environments 1 and 3 of 4 send no request: the others time out and lose their connections; then all play on."""
    links = host.links(4, group="missing", delay=2.0)
    for idx in (0, 2):
        links[idx].ask_reset()
    with pytest.raises(LinkTimeout, match=r"environments 1, 3 of the group.*barrier") as caught:
        links[0].answer()
    assert "environment 0 of 4 in group 'missing'" in str(caught.value) and f":{host.port}" in str(caught.value)
    with pytest.raises(LinkTimeout, match="1, 3"):
        links[2].answer()
    for link in (links[1], links[3]):
        link.ask_reset()
    assert [link.answer().sim_step for link in (links[1], links[3])] == [0, 0]
    with pytest.raises(ResetNeeded):
        links[0].ask_step(0)
    world = world_of(links[0].config, 1)
    for link in links:
        link.ask_reset()
    world.reset()
    world.observe()
    moments = [link.answer() for link in links]
    assert differing(moments[0], moment_of(world, 0, True)) == []  # the requested episode without an answer
    for link in links:
        link.close()


def test_groups_are_independent(host):
    """The same index, other options and seeds: each group has its own world, and one at its barrier blocks no other."""
    one, other = host.links(2, group="one"), host.links(2, group="other", size=24, seed=9)
    one[0].ask_reset()
    for link in other:
        link.ask_reset()
    world = world_of(other[0].config, 2, seed=9)
    world.reset()
    world.observe()
    for b, link in enumerate(other):
        assert differing(link.answer(), moment_of(world, b, True)) == []
    one[1].ask_reset()
    assert [link.answer().image.shape for link in one] == [(3, 16, 16)] * 2
    for link in one + other:
        link.close()


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"row": 0, "count": 2}, "environment 0 of group 'taken' is connected already"),
        ({"row": 1, "count": 3}, "group 'taken' has 2 environments, not 3"),
        ({"row": 1, "count": 2, "size": 20}, "group 'taken' has size=16, not 20"),
        ({"row": 1, "count": 2, "barrier": False}, "group 'taken' has barrier=True"),
    ],
)
def test_a_member_must_match_its_group(host, changes, what):
    """The same index twice; another number, option or barrier."""
    from milkrun.tracking.link.client import Patience

    first = host.link(0, 2, group="taken")
    try:
        with pytest.raises(LinkError, match=what) as refused:
            host.link(group="taken", patience=Patience(index=0.1), **changes)
        assert f"127.0.0.1:{host.port}" in str(refused.value)
    finally:
        first.close()


def test_an_index_is_free_again_when_its_environment_has_left(host):
    """Closed, then taken by another at once."""
    for _ in range(20):
        host.link(group="again").close()
    assert not any("'again' is connected already" in line for line in host.log)


def test_a_simulator_limits_its_environments():
    """Four at most: a group of three leaves room for one."""
    with Hosted(max_envs=4) as host:
        links = host.links(3)
        with pytest.raises(LinkError, match=r"3 of 4 environments are taken.*--max-envs"):
            host.link(0, 2, group="more")
        host.link(group="one").close()
        for link in links:
            link.close()


def test_the_token_must_match(tmp_path):
    """The right one plays; a wrong one and a missing one have different errors."""
    right, wrong, short = tmp_path / "right", tmp_path / "wrong", tmp_path / "short"
    right.write_text("a swordfish, a long one\n")
    wrong.write_text("a trout, a long one")
    short.write_text(" fifteen letters\n")
    for file in (right, wrong, short):
        file.chmod(0o600)
    with Hosted(token=b"a swordfish, a long one") as host:
        link = host.link(token_file=str(right))
        link.ask_reset()
        assert link.answer().sim_step == 0
        link.close()
        with pytest.raises(LinkAuth, match=r"wrong token.*token_file"):
            host.link(token_file=str(wrong))
        with pytest.raises(LinkAuth, match="requires a token: set the option token_file"):
            host.link()
        with pytest.raises(ConfigError, match="holds 15 bytes; put a random secret of at least 16 bytes in it"):
            host.link(token_file=str(short))
        for mode in (0o640, 0o604, 0o620, 0o602):
            right.chmod(mode)
            with pytest.raises(ConfigError, match=f"has the mode {mode:04o}, so other users may read or write it"):
                host.link(token_file=str(right))
        with pytest.raises(ConfigError, match="cannot be read"):
            host.link(token_file=str(tmp_path / "absent"))


def test_scene_and_weather_of_a_simulator_are_defaults():
    """`--scene` applies to environments without a scene of their own."""
    with Hosted(defaults={"scene": "desert", "weather": None}) as host:
        link, named = host.link(scene=None), host.link(group="named", scene="lake")
        for one, scene in ((link, "desert"), (named, "lake")):
            world = world_of(TrackingConfig.build(**{**SMALL, "scene": scene}), 1)
            world.reset()
            world.observe()
            one.ask_reset()
            assert differing(one.answer(), moment_of(world, 0, True)) == []
            one.close()


def test_requests_in_the_wrong_order_are_refused(host):
    """A step before a reset, two steps at once, an answer to nothing, anything after close."""
    link = host.link(group="order", max_steps=1)
    with pytest.raises(ResetNeeded, match="environment 0 of 1 in group 'order': reset"):
        link.ask_step(0)
    with pytest.raises(ResetNeeded, match="no pending request"):
        link.answer()
    link.ask_reset()
    link.answer()
    link.ask_step(0)
    with pytest.raises(ResetNeeded, match="has a pending request"):
        link.ask_step(0)
    assert link.answer().truncated
    with pytest.raises(ResetNeeded):
        link.ask_step(0)
    link.ask_reset()
    link.ask_reset()  # discards the answer of the first
    assert link.answer().sim_step == 0
    link.close()
    link.close()
    for call in (link.ask_reset, link.answer, lambda: link.ask_step(0)):
        with pytest.raises(Closed):
            call()


@pytest.mark.parametrize("action", [1.5, [1, 2], "up", None, True, np.zeros(1, int)])
def test_what_is_no_integer_is_refused_here(host, action):
    """No request is sent, and the episode continues."""
    link = host.link(group="kinds")
    link.ask_reset()
    link.answer()
    with pytest.raises(ShapeError):
        link.ask_step(action)
    link.ask_step(np.int32(2))
    assert link.answer().sim_step == 4
    link.close()


def test_velocities_are_four_floats(host):
    """Anything else is refused here."""
    link = host.link(group="velocities", action_mode="velocity")
    link.ask_reset()
    link.answer()
    for action in ([0.0] * 3, [0, 0, 0, 0], 3, np.zeros((4, 1))):
        with pytest.raises(ShapeError):
            link.ask_step(action)
    link.ask_step([0.5, 0.0, 0.0, -1.0])
    assert not link.answer().illegal
    for none in (1.5, float("nan"), float("inf")):  # an invalid action: flown as stop
        link.ask_step([0.5, 0.0, 0.0, none])
        assert link.answer().illegal
    link.close()


@pytest.mark.parametrize("link", ["udp://a:1", "tcp://", "tcp://a:99999", "tcp://a:1/" + "x" * 129, "tcp://a:1/a\nb"])
def test_invalid_addresses_are_refused(link):
    """Before any connection."""
    with pytest.raises(ConfigError, match="link"):
        Link(TrackingConfig.build(link=link), seed=0, row=0, count=1)


def test_rows_outside_their_count_are_refused():
    """Before any connection."""
    for row, count in ((-1, 2), (2, 2), (0, 0), (0, 65_537)):
        with pytest.raises(ConfigError):
            Link(TrackingConfig.build(link="tcp"), seed=0, row=row, count=count)


def test_wrong_options_of_a_simulator_are_refused_at_its_start():
    """An unknown scene; a public address without a token; a port in use."""
    with pytest.raises(ConfigError, match=r"scene.*did you mean 'desert'"):
        Hosted(defaults={"scene": "dessert"})
    with pytest.raises(ConfigError, match=r"0\.0\.0\.0.*token"):
        Hosted(host="0.0.0.0")
    with pytest.raises(ConfigError, match=r"0\.0\.0\.0.* a token of at least 16 bytes, not 15"):
        Hosted(host="0.0.0.0", token=b"fifteen letters")
    from milkrun.tracking.link.server import Server

    with Hosted() as host, pytest.raises(LinkError, match=f"port {host.port} of 127.0.0.1 is taken"):
        Server(port=host.port)


def test_a_failure_of_the_simulator_is_reported_and_a_reset_works(host, monkeypatch):
    """The world raises in one step: the error has no internals, and the next episode is played."""
    from milkrun.tracking.world import Tracking

    link = host.link(group="fails")
    link.ask_reset()
    link.answer()
    with monkeypatch.context() as broken:
        broken.setattr(Tracking, "step", lambda *_: 1 / 0)
        link.ask_step(0)
        with pytest.raises(LinkError, match="ZeroDivisionError in the simulator"):
            link.answer()
    with pytest.raises(ResetNeeded):
        link.ask_step(0)
    link.ask_reset()
    link.answer()
    link.ask_step(0)
    assert link.answer().sim_step == 4
    link.close()
    assert any("Traceback" in line for line in host.log)
