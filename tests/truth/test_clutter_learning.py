"""MaskablePPO (sb3-contrib) learns to pick from clutter almost as well as the policy highest first."""

import pytest

from milkrun.clutter import Clutter
from tests.truth.clutter_tools import DEFAULT, evaluate_model, learn

pytestmark = [pytest.mark.truth, pytest.mark.usefixtures("torch_alone")]
SMALL = dict(Clutter.Config.presets["small_scene"])


@pytest.mark.slow
def test_a_small_pile_is_learned():
    """4,608 picks of six objects: a mean of 6.5 or more on the test scenes (random play 4.8, highest first 7.4)."""
    assert evaluate_model(learn(4608, seed=0, **SMALL), **SMALL).mean >= 6.5


@pytest.mark.long
def test_the_default_pile_is_learned():
    """60,000 picks of twelve objects: a mean of 8.5 or more on the test scenes (random play 4, highest first 12.9)."""
    assert evaluate_model(learn(**DEFAULT)).mean >= 8.5
