"""Many starts of one instance: a [B, S] TensorDict made by expanding shares the instance and steps as copies do."""

from __future__ import annotations

import pytest
import torch

from milkrun.api import torchrl as api
from tests.api.torchrl_tools import SHORT, assert_same

NAMES = ("TSPEnv", "TSPkoptEnv", "CVRPEnv", "VRPPEnv", "CVRPPEnv", "WCVRPEnv", "CWCVRPEnv", "SCWCVRPEnv", "SDWCVRPEnv")


def instance_bytes(td, keys):
    """Memory behind these entries, each piece counted once."""
    pieces = {td[key].untyped_storage().data_ptr(): td[key].untyped_storage().nbytes() for key in keys}
    return sum(pieces.values())


def repeated(td, starts):
    """What RL4CO's batchify makes: every tensor once for each start, start-major."""
    return td.unsqueeze(0).expand(starts, *td.batch_size).contiguous().reshape(-1)


@pytest.mark.parametrize("name", NAMES)
def test_starts_share_their_instance(name):
    """Five actions into an episode of 4 x 3 starts every instance tensor has the memory of the reset; each start has
    gone where a copy of its own goes."""
    cls = getattr(api, name)
    env = cls(num_loc=6, seed=5, **SHORT.get(cls.fixed_id, {}))
    td = env.reset(batch_size=4)
    keys = [slot.key for slot in env._stepper.instance]
    wide = td.unsqueeze(1).expand(4, 3)
    alone = [td.clone() for _ in range(3)]
    for _ in range(5):
        action = env.sample_actions(wide)
        wide = env.step(wide.copy().set("action", action))["next"].exclude("reward")
        alone = [
            env.step(one.set("action", action[:, s].clone()))["next"].exclude("reward") for s, one in enumerate(alone)
        ]
    for key in keys:
        assert wide[key].data_ptr() == td[key].data_ptr() and wide[key].stride(1) == 0, key
    for s, one in enumerate(alone):
        assert_same(wide[:, s], one)


@pytest.mark.parametrize("name", ["CVRPEnv", "CVRPPEnv", "SCWCVRPEnv"])
def test_the_memory_of_pomo(name):
    """100 customers, 100 starts, started at 1..100: after the step the instance takes at most 5 % (it is 1 %) of what
    repeating it takes, in RL4CO's order (start-major) too."""
    env = getattr(api, name)(num_loc=100, seed=5)
    td = env.reset(batch_size=3)
    starts = env.get_num_starts(td)
    assert starts == 100
    action = env.select_start_nodes(td, starts)
    keys = [slot.key for slot in env._stepper.instance]
    shared = env.step(td.expand(starts, 3).copy().set("action", action.reshape(starts, 3)))["next"]
    copied = env.step(repeated(td, starts).set("action", action))["next"]
    assert_same(shared.reshape(-1), copied)
    assert instance_bytes(shared, keys) * 100 == instance_bytes(copied, keys)
    assert instance_bytes(shared, keys) <= 0.05 * instance_bytes(copied, keys)


def test_rl4co_repeats_what_is_shared_here():
    """RL4CO's own batchify gives the memory that the comparison above counts."""
    batchify = pytest.importorskip("rl4co.utils.ops").batchify
    env = api.CVRPEnv(num_loc=20, seed=5)
    td = env.reset(batch_size=3)
    keys = [slot.key for slot in env._stepper.instance]
    theirs = batchify(td, 10)
    assert instance_bytes(theirs, keys) == instance_bytes(repeated(td, 10), keys) == 10 * instance_bytes(td, keys)
    assert torch.equal(theirs["locs"], repeated(td, 10)["locs"])
