"""BenchEnv_Multi and related classes in this process: arguments, attributes, refusals, log."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from milkrun.compat.dat import GE, UAV_VAT, BenchEnv_Multi, Envs, UAV_VAT_Gymnasium, general_env, make_env
from milkrun.compat.dat import log as step_log
from milkrun.core.errors import Closed, ConfigError, MissingExtra, ResetNeeded, ShapeError
from milkrun.tracking import REASONS, TrackingConfig
from tests.compat.dat_tools import SMALL

CONFIG = TrackingConfig.from_dat(SMALL)
MOVES = [40, -40, 40, -40, -2, 2]


def bench(
    process_state=None, Action_dim=7, action_list=MOVES, arg_worker=1, process_idx=0, seed=1, config=CONFIG, **given
):
    """Takes the arguments of the original, in their order."""
    said = {"Control_Frequence": 125, "reward_type": "default", "verbose": False, "delay": 20, **given}
    return BenchEnv_Multi(
        Action_dim,
        action_list,
        process_state,
        arg_worker,
        process_idx,
        True,
        False,
        True,
        33727,
        False,
        [-20, 20],
        "village",
        "day",
        False,
        config=config,
        seed=seed,
        **said,
    )


# -- arguments ------------------------------------------------------------------------------------------------


def test_the_arguments_of_the_original_become_options():
    """They override `config`, whose other options stay."""
    env = bench(action_list=(30, -20, 10, -5, -1, 1.5), Control_Frequence=250, reward_type="E2E", delay=3)
    c = env.config
    assert (c.forward, c.backward, c.left, c.right, c.ccw, c.cw) == (30, -20, 10, -5, -1, 1.5)
    assert (c.control_hz, c.reward, c.scene, c.weather, c.delay) == (250, "E2E", "village", "day", 3)
    assert (c.other_state, c.cloud, c.reward_params, c.size) == (True, False, True, 16)
    assert bench(config=None).config.size == 84 and bench(config={"size": 20}).config.size == 20
    assert bench(Action_dim=6).action_space.n == 6


def test_yaw_actions_follow_the_list():
    """Action 4 is counter-clockwise: the yaw grows; action 5 is its mirror image."""
    env = bench()
    for action, sign in ((4, 1), (5, -1)):
        env.reset()
        before = env.SuppleInfo[0][18]
        env.step(action)
        turned = (env.SuppleInfo[0][18] - before + np.pi) % (2 * np.pi) - np.pi
        assert np.sign(turned) == sign


def test_supplements_are_the_requested_ones_in_order():
    """The drone's state, then 60 numbers and the target's kind, then the cloud; empty if none is requested."""
    env, _ = general_env("Benchmark", SMALL, 1, 0, seed=3)
    _, info = env.reset()
    assert [len(part) for part in info] == [19, 61, 80]
    assert info[1][:2] == [320.0, 240.0] and info[1][60] in ("sedan", "compact", "suv", "van", "bus", "truck")
    bare = {**SMALL, "Other_State": False, "RewardParams": False, "CloudPoint": False}
    assert general_env("Benchmark", bare, 1, 0)[0].reset()[1] == []
    some = {**bare, "CloudPoint": True}
    assert [len(part) for part in general_env("Benchmark", some, 1, 0)[0].reset()[1]] == [80]


@pytest.mark.parametrize(
    ("norm", "low", "high", "dtype"), [(0, 0, 1, np.float32), (1, -1, 1, np.float32), (None, 0, 255, np.uint8)]
)
def test_states_lie_in_their_space(norm, low, high, dtype):
    """Each way to normalise gives the same picture: v/255, (v-128)/128, v."""
    env = bench(config=CONFIG.replace(norm=norm), seed=5)
    state, _ = env.reset()
    space = env.observation_space
    assert space.contains(state) and (space.low.min(), space.high.max(), space.dtype) == (low, high, dtype)
    pixels = bench(config=CONFIG.replace(norm=None), seed=5).reset()[0].astype(np.float64)
    expected = {0: pixels / 255, 1: (pixels - 128) / 128, None: pixels}[norm]
    np.testing.assert_allclose(state, expected, rtol=1e-6)


def test_process_state_gets_rgb_pictures():
    """(H, W, 3) uint8; its result is the state and sets the shape of the space. Stacked pictures are passed one by
    one."""
    seen = []

    def process(picture):
        seen.append((picture.shape, picture.dtype, picture.flags.c_contiguous))
        return picture.mean(axis=(0, 1))

    env = bench(process, config=CONFIG.replace(norm=None), seed=5)
    state, _ = env.reset()
    plain = bench(config=CONFIG.replace(norm=None), seed=5).reset()[0]
    np.testing.assert_allclose(state, plain.mean(axis=(1, 2)))
    assert set(seen) == {((16, 16, 3), np.dtype(np.uint8), True)} and env.observation_space.shape == (3,)
    stacked = bench(process, config=CONFIG.replace(frame_stack=2))
    assert stacked.reset()[0].shape == stacked.observation_space.shape == (2, 3)


@pytest.mark.parametrize(
    ("process", "dtype", "low", "high"),
    [
        (lambda picture: picture, np.uint8, 0, 255),
        (lambda picture: picture > 128, np.bool_, False, True),
        (lambda picture: picture.astype(np.int16) - 128, np.int16, -32768, 32767),
        (lambda picture: picture / 255.0, np.float32, -np.inf, np.inf),
        (lambda picture: picture.astype(np.float16), np.float32, -np.inf, np.inf),
        (lambda picture: picture.mean(axis=(0, 1)).tolist(), np.float32, -np.inf, np.inf),
    ],
)
def test_processed_states_lie_in_their_space(process, dtype, low, high):
    """The bounds are those of the function's dtype; floats of any width become float32."""
    for stack in (0, 2):
        env = bench(process, config=CONFIG.replace(frame_stack=stack))
        space, states = env.observation_space, [env.reset()[0], env.step(0)[0]]
        assert (space.dtype, space.low.min(), space.high.max()) == (dtype, low, high)
        assert all(space.contains(state) and state.dtype == dtype for state in states)


# -- attributes -----------------------------------------------------------------------------------------------


def test_attributes_are_current():
    """Sim steps, scores and the reason: also after steps of Envs, and after a limit in agent steps."""
    envs = GE(2, {**SMALL, "RewardType": "default", "max_steps": 3}, seed=2)
    with Envs(2, envs) as all_rows:
        all_rows.reset()
        for _ in range(2):
            _, rewards, _ = all_rows.step([6, 6])
        assert [env.curr_step for env in envs] == [8, 8] and [env.r_c for env in envs] == rewards.tolist()
        assert [env.end_reason for env in envs] == ["", ""] and {env.r_d for env in envs} <= {0.0, 1.0}
        assert [env.SuppleInfo[1] for env in envs] == [info["SuppleInfo"][1] for info in all_rows.infos]
        before = [env.SuppleInfo[0].tolist() for env in envs]
        all_rows.step([0, 0])
        assert [env.end_reason for env in envs] == ["time", "time"] and envs[0].truncated
        assert [info["reason"] for info in all_rows.infos] == ["time", "time"]
        now = [env.SuppleInfo[0].tolist() for env in envs]
        assert now == [info["SuppleInfo"][0].tolist() for info in all_rows.infos] and now != before


def test_before_the_first_reset_there_is_no_supplement():
    """In process and over a link."""
    env = bench()
    assert env.SuppleInfo == [] and env.curr_step == 0


def test_reasons_are_strings():
    """A drone that flies against a house crashes; it is not truncated."""
    env = bench(config=CONFIG.replace(start_height=(2.5, 2.5), max_sim_steps=1000, init_no_done=1000), seed=3)
    env.reset()
    done = False
    while not done:
        *_, done, _ = env.step(0)
    assert env.end_reason in REASONS and env.end_reason and env.truncated == (env.end_reason == "time")


def test_render_is_the_camera():
    """uint8 (S, S, 3), equal to the state; grey is shown as RGB."""
    env = bench(config=CONFIG.replace(norm=None), seed=4)
    state, _ = env.reset()
    np.testing.assert_array_equal(env.render(), state.transpose(1, 2, 0))
    grey = bench(config=CONFIG.replace(norm=None, channels=1, frame_stack=2), seed=4)
    state, _ = grey.reset()
    np.testing.assert_array_equal(grey.render(), np.repeat(state[-1].transpose(1, 2, 0), 3, axis=2))
    with pytest.raises(ConfigError, match="rgb_array"):
        env.render("human")


def test_a_handle_renders_only_its_own_row():
    """The pictures of other rows are unchanged."""
    envs = GE(3, SMALL, seed=1)
    for env in envs:
        env.reset()
    world = envs[0].batch.world
    before = world.image.copy()
    world.image[:2] = 7
    envs[2].step(1)
    assert (world.image[:2] == 7).all() and (world.image[2] != before[2]).any()
    assert [env.row for env in envs] == [0, 1, 2] and envs[1].process_idx == 1


def test_returned_states_are_never_changed():
    """Later turns do not change returned states."""
    with Envs(2, GE(2, SMALL, seed=1)) as envs:
        first = envs.reset()
        kept = first.copy()
        for _ in range(3):
            envs.step([0, 1])
        np.testing.assert_array_equal(first, kept)


def test_a_copy_is_independent():
    """A deep copy has its own world."""
    env = bench(seed=3)
    env.reset()
    twin = copy.deepcopy(env)
    assert env.step(2)[0].tobytes() == twin.step(2)[0].tobytes()
    env.step(2)
    assert (env.curr_step, twin.curr_step) == (8, 4)


# -- refusals -------------------------------------------------------------------------------------------------


def test_reset_comes_first_and_after_ends():
    """For a separate environment and for a handle, also while other handles have not started."""
    lone, (handle, other) = bench(config=CONFIG.replace(max_sim_steps=4)), GE(2, {**SMALL, "max_sim_steps": 4})
    for env in (lone, handle):
        with pytest.raises(ResetNeeded):
            env.step(0)
        env.reset()
        assert env.step(0)[2] is True
        with pytest.raises(ResetNeeded, match="environment 0 has ended"):
            env.step(0)
        env.reset()
    with pytest.raises(ResetNeeded):
        other.step(0)


def test_a_world_closes_with_its_last_handle():
    """A closed handle is refused, the others play on."""
    first, second = GE(2, SMALL, seed=1)
    first.reset(), second.reset()
    first.close()
    with pytest.raises(Closed, match="environment 0"):
        first.step(0)
    second.step(0)
    second.close()
    with pytest.raises(Closed):
        second.batch.world.reset()


@pytest.mark.parametrize("action", [1.5, [1, 2], True, None, np.zeros((1, 1), int), "left"])
def test_an_invalid_action_is_refused(action):
    """By its shape or dtype; nothing changes."""
    env = bench()
    env.reset()
    with pytest.raises(ShapeError, match="action"):
        env.step(action)
    assert env.curr_step == 0


def test_actions_may_be_arrays_and_tensors_of_one():
    """As passed by the original's algorithms. An action out of range flies as stop and is flagged."""
    torch = pytest.importorskip("torch")
    states = []
    for action in (3, np.int64(3), np.array(3), np.array([3], np.int32), torch.tensor(3), torch.tensor([3])):
        env = UAV_VAT(1, SMALL, seed=4)
        env.reset()
        states.append(env.step(action)[0].tobytes())
    assert len(set(states)) == 1
    modern, stopped = UAV_VAT_Gymnasium(1, SMALL, seed=4), UAV_VAT_Gymnasium(1, SMALL, seed=4)
    modern.reset(), stopped.reset()
    state, *_, info = modern.step(7)
    assert info["illegal"] is True and state.tobytes() == stopped.step(6)[0].tobytes()


def test_velocity_actions():
    """Four floats, as in the space."""
    env = bench(config=CONFIG.replace(action_mode="velocity"))
    env.reset()
    assert env.action_space.shape == (4,)
    env.step(np.array([0.5, 0, 0, 0], np.float32))
    assert env.curr_step == 4
    with pytest.raises(ShapeError, match="four floats"):
        env.step(3)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"action_list": [40, -40, 40, -40, 2, 2]}, r"action_list\[4\].*ccw = 2: must be in -6..0"),
        ({"action_list": [40, -40, 40, -40, -2, -2]}, r"action_list\[5\].*cw = -2"),
        ({"action_list": [40, -40, 40, -40, -2]}, "must be six numbers"),
        ({"action_list": 40}, "must be six numbers"),
        ({"Action_dim": 5}, "Action_dim: .*must be one of 6, 7"),
        ({"Control_Frequence": 120}, "Control_Frequence: .*divisor of 500"),
        ({"reward_type": "dvat"}, "reward_type: .*did you mean"),
        ({"arg_worker": 2, "process_idx": 2}, r"process_idx=2: must be an integer in 0\.\.1"),
        ({"arg_worker": 0}, "arg_worker=0"),
        ({"process_idx": -1}, "process_idx=-1"),
        ({"process_state": 3}, "process_state is a int"),
        ({"process_state": lambda picture: "dark"}, "process_state makes <U4 .*must be numbers"),
        ({"seed": -1}, "seed -1"),
        ({"config": 3}, "config must be"),
        ({"delay": 0}, "delay = 0"),
    ],
)
def test_arguments_are_refused_by_name(given, said):
    """The message has the name, the value and the allowed values."""
    with pytest.raises(ConfigError, match=said):
        bench(**given)


def test_constructors_refuse_invalid_arguments(tmp_path):
    """Unknown ids, invalid rows, missing or broken files, with path and line."""
    for env_id in ("Benchmrk", "LunarLander-v1", None):
        with pytest.raises(ConfigError, match=r"env_id=.*Benchmark"):
            general_env(env_id, None, 1, 0)
    with pytest.raises(ConfigError, match="process_idx=1"):
        general_env("Benchmark", SMALL, 1, 1)
    for n in (0, 1.5, True, "4"):
        with pytest.raises(ConfigError, match="n="):
            GE(n, SMALL)
    with pytest.raises(ShapeError, match="3 environments, num_envs is 2"):
        Envs(num_envs=2, env_list=GE(3, SMALL))
    with pytest.raises(ConfigError, match=r"missing\.json"):
        GE(2, tmp_path / "missing.json")
    broken = tmp_path / "broken.json"
    broken.write_text('{\n  "Benchmark": {\n    "Action_dim": 7,,\n  }\n}\n')
    with pytest.raises(ConfigError, match=r"broken\.json, line 3: not JSON"):
        UAV_VAT(1, str(broken))
    with pytest.raises(ConfigError, match="frame_stack = -1"):
        UAV_VAT_Gymnasium(1, SMALL, obs_buffer_len=-1)
    with pytest.raises(ConfigError, match="reset has no option 'instance'"):
        UAV_VAT_Gymnasium(1, SMALL).reset(options={"instance": {}})


def test_make_env_refuses():
    """An invalid rank; a Monitor around the classic kind."""
    for rank in (2, -1):
        with pytest.raises(ConfigError, match="rank="):
            make_env(2, rank)
    with pytest.raises(ConfigError, match="gym=False"):
        make_env(1, 0, gym=True, monitor=True)


@pytest.mark.parametrize(("package", "extra"), [("Box2D", "lunar"), ("pygame", "lunar")])
def test_lunar_lander_names_the_extra(package, extra, monkeypatch):
    """If Box2D or pygame is missing."""
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtra, match=rf"\.\[{extra}\]"):
        general_env("LunarLander", None, 1, 0)


# -- the log --------------------------------------------------------------------------------------------------


def test_a_line_a_step(tmp_path):
    """Action, reward and reason of the end; a reset turn starts the next episode."""
    section = {**SMALL, "max_sim_steps": 8, "verbose": True, "log_dir": str(tmp_path / "logs"), "RewardType": "default"}
    with Envs(2, GE(2, section, seed=1)) as envs:
        envs.reset()
        paid = [envs.step([6, k])[1] for k in range(3)]
    lines = (tmp_path / "logs" / "Agent1.log").read_text().splitlines()
    assert [line.split()[0] for line in lines] == ["episode", "sim_step", "sim_step", "episode"]
    assert lines[1].startswith(f"sim_step 4 action 0 reward {paid[0][1]:.9g} r_c ")
    assert lines[2].startswith("sim_step 8 action 1") and lines[2].endswith(" end time")
    assert lines[3] == "episode 2"
    env = general_env("Benchmark", section, 2, 1)[0]
    env.reset()
    env.step(2)
    env.close()
    more = (tmp_path / "logs" / "Agent1.log").read_text().splitlines()
    assert more[:4] == lines and len(more) == 6


def test_logs_are_rotated(tmp_path, monkeypatch):
    """At their size limit, which the two rotated files also keep; nothing is lost before the third rotation."""
    monkeypatch.setattr(step_log, "LARGEST", 200)
    log = step_log.StepLog(tmp_path, 0)
    for k in range(20):
        log.step(k, 4 * k, 0.5, 0.25, 1.0, True, 0)
    log.close()
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == ["Agent0.log", "Agent0.log.1", "Agent0.log.2"]
    assert all(0 < file.stat().st_size <= 200 for file in files)
    actions = [int(line.split()[3]) for file in reversed(files) for line in file.read_text().splitlines()]
    assert actions == list(range(20 - len(actions), 20)) and len(actions) > 6


def test_a_hidden_target_is_logged(tmp_path):
    """In the window and not visible: a box hides it. Outside of the window it is only logged as away."""
    log = step_log.StepLog(tmp_path, 0)
    log.step(0, 4, 0.999, 0.999, 1.0, False, 0)
    log.step(0, 8, 0.0, 0.0, 0.0, False, 0)
    log.close()
    first, second = (tmp_path / "Agent0.log").read_text().splitlines()
    assert first == "sim_step 4 action 0 reward 0.999 r_c 0.999000 r_d 1 hidden" and second.endswith("r_d 0")


@pytest.mark.parametrize("act", ["close", "begin"])
def test_a_forked_child_does_not_write_the_lines_of_its_parent(tmp_path, act):
    """It closes the log, or writes and exits like an interpreter: the parent's lines occur once."""
    code = textwrap.dedent(f"""
        import os, sys
        from milkrun.compat.dat.log import StepLog
        log = StepLog({str(tmp_path)!r}, 0)
        log.begin()
        if child := os.fork():
            assert os.waitpid(child, 0)[1] == 0
            log.step(1, 4, 0.5, 0.25, 1.0, True, 0)
        else:
            log.{act}()
    """)
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
    lines = (tmp_path / "Agent0.log").read_text().splitlines()
    mine = ["episode 1", "sim_step 4 action 1 reward 0.5 r_c 0.250000 r_d 1"]
    assert lines == ([] if act == "close" else ["episode 2"]) + mine


def test_lines_are_buffered_until_the_end_of_an_episode_or_a_size(tmp_path, monkeypatch):
    """A log that is never closed writes them at garbage collection."""
    monkeypatch.setattr(step_log, "WAITING", 100)
    log = step_log.StepLog(tmp_path, 0)
    log.begin()
    assert log.path.read_text() == ""
    log.step(1, 4, 0.5, 0.25, 1.0, True, 10)
    assert len(log.path.read_text().splitlines()) == 2
    for k in range(2, 5):
        log.step(k, 4 * k, 0.5, 0.25, 1.0, True, 0)
    assert len(log.path.read_text().splitlines()) == 4
    path = log.path
    del log
    assert len(path.read_text().splitlines()) == 5


def test_a_log_that_cannot_be_written_is_reported(tmp_path):
    """A file exists in place of its folder."""
    (tmp_path / "logs").write_text("")
    env = bench(verbose=True, config=CONFIG.replace(log_dir=str(tmp_path / "logs")))
    with pytest.raises(ConfigError, match="log_dir: cannot write"):
        env.reset()


def test_without_verbose_nothing_is_written(tmp_path, monkeypatch):
    """No folder is created either; the packaged file is verbose."""
    monkeypatch.chdir(tmp_path)
    bench().reset()
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "c.json").write_text(json.dumps({"Benchmark": {**SMALL, "verbose": True}}))
    env = general_env("Benchmark", "c.json", 1, 0)[0]
    env.reset()
    env.close()
    assert (tmp_path / "milkrun_logs" / "Agent0.log").read_text() == "episode 1\n"
