"""`Envs` writes only the returns of finished episodes."""

import csv
import sys

import pytest

from milkrun.tracking import Envs
from tests.tracking.items import Costs, scripts

HEADER = ["turn", "env", "episode", "steps", "return"]


@pytest.fixture
def no_board(monkeypatch):
    """Simulates a missing tensorboard."""
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)


def read_log(folder):
    with open(folder / "rewards.csv", newline="") as file:
        return list(csv.reader(file))


def test_returns_of_either_sign_are_written(tmp_path, no_board):
    """Of the first two of three, at the end of an episode; an episode aborted by reset is not written."""
    with Envs(3, [Costs(-1), Costs(0), Costs(1)], logs_show=2, logs_dir=tmp_path) as envs:
        envs.reset()
        envs.step([0] * 3)
        envs.reset()
        for _ in range(2):
            envs.step([0] * 3)
        assert read_log(tmp_path) == [HEADER]
        for _ in range(5):
            envs.step([0] * 3)
    assert read_log(tmp_path) == [
        HEADER,
        ["4", "0", "1", "3", "-8.0"],
        ["4", "1", "1", "3", "0.0"],
        ["8", "0", "2", "3", "-8.0"],
        ["8", "1", "2", "3", "0.0"],
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["rewards.csv"]


def test_logs_show_true_is_one_and_continues_the_file_of_the_folder(tmp_path, no_board, monkeypatch):
    """In the current folder by default."""
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        with Envs(2, scripts("gymnasium"), True) as envs:
            envs.reset()
            for _ in range(3):
                envs.step([0, 0])
    assert read_log(tmp_path) == [HEADER, ["3", "0", "1", "3", "8.0"], ["3", "0", "1", "3", "8.0"]]


def test_without_logs_show_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with Envs(2, scripts("gymnasium")) as envs:
        envs.reset()
        for _ in range(4):
            envs.step([0, 0])
    assert list(tmp_path.iterdir()) == []


def test_tensorboard_has_the_same_returns(tmp_path):
    """Read back by TensorBoard itself: 8.0 at turns 3 and 7."""
    pytest.importorskip("torch.utils.tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with Envs(2, scripts("gymnasium"), logs_show=True, logs_dir=tmp_path) as envs:
        envs.reset()
        for _ in range(8):
            envs.step([0, 0])
    board = EventAccumulator(str(tmp_path))
    board.Reload()
    assert board.Tags()["scalars"] == ["return/env_0"]
    assert [(point.step, point.value) for point in board.Scalars("return/env_0")] == [(3, 8.0), (7, 8.0)]
    assert len(read_log(tmp_path)) == 3
