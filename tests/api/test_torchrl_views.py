"""stepping="inplace" with copy=False: results are views of the world's memory, with the values that copies have."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torchrl")

import milkrun  # noqa: E402
from milkrun.core.errors import ConfigError  # noqa: E402

IDS = ["milkrun/CVRP-v0", "milkrun/DARP-v0", "milkrun/TruckDrone-v0"]


def env_of(id: str, copy: bool, **options):
    return milkrun.make(id, 3, api="torchrl", seed=5, stepping="inplace", copy=copy, **options)


@pytest.mark.parametrize("id", IDS)
def test_views_show_what_copies_show(id):
    """Every entry of every step and of partial resets, over more than an episode."""
    copies, views = env_of(id, True, max_steps=20), env_of(id, False, max_steps=20)
    kept, seen = copies.reset(), views.reset()
    for _ in range(30):
        if copies.group_map:
            drawn = copies.sample_actions(kept)
            kept.update(drawn)
            seen.update(drawn)
        else:
            kept.set("action", copies.sample_actions(kept))
            seen.set("action", kept["action"])
        (shown, kept), (viewed, seen) = copies.step_and_maybe_reset(kept), views.step_and_maybe_reset(seen)
        assert (kept == seen.select(*kept.keys(True, True))).all()
        assert (shown["next"] == viewed["next"]).all()  # also of rows that ended, which have begun another episode


@pytest.mark.parametrize("id", IDS[:2])
def test_a_loop_of_views_sees_every_end(id):
    """A TensorDict with "next" takes TorchRL's own way through a step; flags and rewards equal those of copies."""
    ends = []
    for copy in (True, False):
        env = env_of(id, copy, max_steps=12)
        td = env.reset()
        seen = []
        for _ in range(40):
            td.set("action", env.sample_actions(td))
            td.set("next", env.step(td.clone(recurse=False))["next"].empty())
            stepped, td = env.step_and_maybe_reset(td)
            seen.append((stepped["next", "done"].tolist(), stepped["next", "reward"].tolist()))
        ends.append(seen)
    assert ends[0] == ends[1]
    assert any([True] in done for done, _ in ends[0])


def test_views_are_the_memory_of_the_world():
    """The next step overwrites them; nothing is allocated for the state."""
    env = env_of("milkrun/CVRP-v0", False, num_loc=5)
    td = env.reset()
    before = td["visited"]
    after = env.step(td.set("action", torch.tensor([1, 2, 3])))["next"]
    assert after["visited"].data_ptr() == before.data_ptr()
    assert before[0].tolist() == [False, True, False, False, False, False]


def test_reallocated_instances_get_new_views():
    """Given instances may be shared by rows; a later full reset draws one for each row."""
    env = env_of("milkrun/TSP-v0", False, num_loc=4)
    given = milkrun.make("milkrun/TSP-v0", 3, api="torchrl", seed=9, num_loc=4).reset()
    assert torch.equal(env.reset(given.select("locs"))["locs"], given["locs"])
    drawn = env.reset()
    assert not torch.equal(drawn["locs"], given["locs"])
    assert torch.equal(drawn["locs"], torch.from_numpy(env._owner.world.locs))


def test_functional_steps_have_no_views():
    """They write to new tensors."""
    with pytest.raises(ConfigError, match="copy=False is for stepping='inplace'"):
        milkrun.make("milkrun/CVRP-v0", 3, api="torchrl", copy=False)
