"""What MaskablePPO of Stable-Baselines3 learns of picking from clutter: an order nearly as good as highest first."""

import pytest

from milkrun.clutter import Clutter
from tests.truth.clutter_tools import DEFAULT, judged, learn

pytestmark = [pytest.mark.truth, pytest.mark.usefixtures("torch_alone")]
SMALL = dict(Clutter.Config.presets["small_scene"])


@pytest.mark.slow
def test_a_small_pile_is_learned():
    """4,608 picks of six objects: 6.5 or more on the test scenes; random play earns 4.8 there, highest first 7.4."""
    assert judged(learn(4608, seed=0, **SMALL), **SMALL).mean >= 6.5


@pytest.mark.long
def test_the_default_pile_is_learned():
    """60,000 picks of twelve objects: 8.5 or more on the test scenes, of which random play earns 4 and highest first
    12.9."""
    assert judged(learn(**DEFAULT)).mean >= 8.5
