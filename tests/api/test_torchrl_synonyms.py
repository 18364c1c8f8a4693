"""Other names of a field: the same tensor wherever a TensorDict is shown, in the specs, and never read back."""

from __future__ import annotations

import pytest
import torch
from tensordict import TensorDict

from milkrun.api import torchrl as api
from milkrun.api.torchrl.generators import get_generator
from milkrun.core.errors import ShapeError
from tests.api.torchrl_tools import assert_same, random_policy, started

WASTE = {
    "demand": "waste",
    "current_waste": "waste",
    "vehicle_cap": "capacity",
    "current_load": "load",
    "collected_waste": "collected",
}
EXPECTED = {**WASTE, "demand": "expected_waste", "current_waste": "expected_waste"}
SYNONYMS = {
    "TSPEnv": {},
    "CVRPEnv": {},
    "TSPkoptEnv": {"solution": "tour", "best_solution": "best_tour"},
    "VRPPEnv": {"demand": "prize", "collected_profit": "collected"},
    "CVRPPEnv": {"demand": "prize", "collected_profit": "collected", "current_load": "load"},
    "WCVRPEnv": WASTE,
    "CWCVRPEnv": WASTE,
    "SCWCVRPEnv": EXPECTED,
    "SDWCVRPEnv": EXPECTED,
}
SOME = [name for name, pairs in SYNONYMS.items() if pairs]


def assert_linked(td, pairs):
    for alias, name in pairs.items():
        assert td[alias].data_ptr() == td[name].data_ptr() and td[alias].shape == td[name].shape, alias


@pytest.mark.parametrize("name", SYNONYMS)
def test_the_names_of_each_world(name):
    """Exactly the synonyms of the contract stand in a reset and in the observation spec, none in the state spec."""
    env = getattr(api, name)(num_loc=5, seed=1, batch_size=[2])
    fields = {slot.name for slot in (*env._stepper.instance, *env._stepper.carried) if slot.root}
    pairs = SYNONYMS[name]
    assert set(env.reset().keys()) - fields - {"hidden", "done"} == pairs.keys()
    for alias, field in pairs.items():
        assert env.observation_spec[alias] == env.observation_spec[field]
        assert alias not in env.state_spec


@pytest.mark.parametrize("stepping", ["functional", "inplace"])
@pytest.mark.parametrize("name", SOME)
def test_synonyms_share_memory(name, stepping):
    """In resets, steps, partial resets and steps, continued states and results of step_and_maybe_reset."""
    pairs = SYNONYMS[name]
    env = getattr(api, name)(num_loc=5, seed=1, batch_size=[3], stepping=stepping, max_steps=4)
    td = env.reset()
    assert_linked(td, pairs)
    for _ in range(6):
        stepped, td = env.step_and_maybe_reset(td.set("action", env.sample_actions(td)))
        assert_linked(stepped["next"], pairs)
        assert_linked(td, pairs)
    td["_reset"] = torch.tensor([[True], [False], [True]])
    td = env.reset(td)
    assert_linked(td, pairs)
    td.set("action", env.sample_actions(td)).set("_step", torch.tensor([True, False, True]))
    td = env.step(td)["next"].exclude("reward")
    assert_linked(td, pairs)
    assert_linked(env.reset(td, set_state=True), pairs)
    assert_linked(env.reset(td), pairs)
    assert_linked(env.reset(TensorDict({"_reset": torch.tensor([True, False, True])}, [3])), pairs)


def test_instances_of_an_external_generator_are_linked_too():
    """Rows of an external generator, in full and partial resets."""
    made = get_generator("cvrpp", num_loc=5)
    env = api.CVRPPEnv(lambda n: made.generate(n), num_loc=5, batch_size=[3], seed=1)
    td = env.reset()
    assert_linked(td, SYNONYMS["CVRPPEnv"])
    td["_reset"] = torch.tensor([[True], [False], [True]])
    assert_linked(env.reset(td), SYNONYMS["CVRPPEnv"])


@pytest.mark.parametrize("name", SOME)
def test_synonyms_are_not_read_back(name):
    """What stands under another name, or is missing there, changes nothing in a step."""
    env = getattr(api, name)(num_loc=5, seed=1)
    td = started(env, 1, batch=3)
    expected = env.step(td.copy())["next"]
    spoilt = td.clone()
    for alias in SYNONYMS[name]:
        spoilt[alias] = torch.zeros_like(td[alias])
    assert_same(env.step(spoilt)["next"], expected)
    assert_same(env.step(td.exclude(*SYNONYMS[name]))["next"], expected)


@pytest.mark.parametrize("name", SOME)
def test_rollouts_show_them_everywhere(name):
    """A rollout over ends has each synonym equal to its field at every step, at the root and under next."""
    env = getattr(api, name)(num_loc=4, seed=1, batch_size=[2], max_steps=6)
    rolled = env.rollout(20, policy=random_policy(env), break_when_any_done=False)
    for alias, field in SYNONYMS[name].items():
        assert torch.equal(rolled[alias], rolled[field]) and torch.equal(rolled["next", alias], rolled["next", field])


def test_instances_under_other_names():
    """demand, vehicle_cap (B, 1), current_waste and expected_waste give the instance; the keys go where they belong."""
    gen = get_generator("cwcvrp", num_loc=4)
    data = gen.generate(3, seed=2)
    usual = api.CWCVRPEnv(num_loc=4, seed=2).reset(data)
    for key in ("demand", "current_waste"):
        other = data.select("locs", "depot", "must_go").set(key, data["waste"])
        other["vehicle_cap"] = data["capacity"][:, None]
        assert_same(api.CWCVRPEnv(num_loc=4, seed=2).reset(other), usual)
    heavy = data.exclude("capacity").set("vehicle_cap", torch.full((3, 1), 1.5))
    assert api.CWCVRPEnv(num_loc=4, seed=2).reset(heavy)["capacity"].tolist() == [[1.5]] * 3
    prizes = get_generator("vrpp", num_loc=4).generate(3, seed=2)
    usual = api.VRPPEnv(num_loc=4, seed=2).reset(prizes)
    assert "capacity" not in usual
    assert_same(api.VRPPEnv(num_loc=4, seed=2).reset(prizes.exclude("prize")), usual)
    with pytest.raises(ShapeError, match=r"lacks .*'daily_fill'"):
        api.SDWCVRPEnv(num_loc=4).reset(api.SDWCVRPEnv(num_loc=4).reset(batch_size=2).exclude("hidden"))


def test_windows_in_two_arrays():
    """start_time and end_time (B, n) are the two sides of time_windows; the depot then never closes."""
    gen = get_generator("vrpp", num_loc=4, time_windows=True)
    data = gen.generate(3, seed=2)
    apart = data.exclude("time_windows")
    customers = data["time_windows"][:, -4:]
    apart["start_time"], apart["end_time"] = customers[..., 0].clone(), customers[..., 1].clone()
    td = api.VRPPEnv(num_loc=4, time_windows=True, seed=2).reset(apart)
    assert torch.equal(td["time_windows"][:, 1:], customers) and (td["time_windows"][:, 0, 1] > 1e30).all()
    assert {"start_time", "end_time", "depot"}.isdisjoint(td.keys())


@pytest.mark.parametrize("cut", [{}, {"cut": True}])
def test_expected_waste_is_instance_or_state(cut):
    """SCWCVRP: a generator's expected_waste is the start; in a TensorDict some steps on it is state, and a reset
    plays the instance as it began."""
    env = api.SCWCVRPEnv(num_loc=6, seed=3, sigma=0.9)
    begun = env.reset(batch_size=4)
    later = begun
    for _ in range(5):
        later = env.step(later.copy().set("action", env.sample_actions(later)))["next"]
    assert not torch.equal(later["expected_waste"], begun["expected_waste"])
    again = env.reset(
        later.select("locs", "hidden", "n_nodes", "must_go", "max_length", "max_waste", "capacity") if cut else later
    )
    assert torch.equal(again["expected_waste"], begun["expected_waste"])
    assert torch.equal(again["hidden", "real_waste"], begun["hidden", "real_waste"])
