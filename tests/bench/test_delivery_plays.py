"""The delivery benchmark times the same episodes in every form, and counts steps of live rows only."""

import pytest

from bench.delivery_plays import TRUCK, ListEnv, Recorded, Restarted, ScalarModel, TorchRL, rates
from bench.peers.apart import report_of


def test_turns_that_reset_a_row_count_for_nothing():
    """Episodes of three steps take four turns: of eight turns in five rows, 2 * 3 * 5 are steps."""
    played = Recorded(TRUCK, 5, 8, preset="published", num_customers=9, episode_length=3)
    assert played.row_steps == 30


class Paced:
    """Turns of half a second; in one repeat of three, of a minute."""

    steps, row_steps, starts = 40, 30, 0

    def start(self):
        self.starts += 1

    def play(self, first, last):
        return (last - first) * (60.0 if self.starts == 3 else 0.5)


def test_a_rate_is_row_steps_by_the_median_seconds_of_all_turns():
    """Forty turns of half a second hold 30 steps: 1.5 a second, whatever one repeat took."""
    assert rates(Paced(), repeats=3) == [1.5]


@pytest.mark.parametrize("form", [ScalarModel, ListEnv])
def test_one_row_in_another_form_earns_what_was_recorded(form, monkeypatch):
    """Building a form replays the recording; one that starts with the wrong episode is refused."""
    assert len(form(80).instances) > 1
    start = form.start

    def one_step_late(self):
        start(self)
        self.play(0, 1)

    monkeypatch.setattr(form, "start", one_step_late)
    with pytest.raises(AssertionError):
        form(80)


@pytest.mark.parametrize(
    ("stepping", "with_resets", "copy"),
    [
        ("functional", False, True),
        ("functional", True, True),
        ("inplace", False, True),
        ("inplace", True, True),
        ("inplace", False, False),  # views; a step with a reset overwrites its rewards
    ],
)
def test_torchrl_earns_what_was_recorded(stepping, with_resets, copy):
    """In 60 turns rows end and begin again; a recording that earned a millionth more is refused."""
    pytest.importorskip("torchrl")
    recorded = Restarted(16, 60, preset="published")
    TorchRL(recorded, stepping, with_resets, copy, preset="published")
    recorded.returned *= 1 + 1e-6
    with pytest.raises(AssertionError):
        TorchRL(recorded, stepping, with_resets, copy, preset="published")


def test_a_peer_without_its_environment_is_skipped_aloud(capsys):
    """The table is then printed without it."""
    assert report_of("nobody", "vmas_steps.py") is None
    assert "nobody skipped: .venv-nobody/bin/python is not there" in capsys.readouterr().out
