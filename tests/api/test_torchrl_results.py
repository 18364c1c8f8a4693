"""Functional steps write to new tensors: results are ordinary tensors that keep their values."""

from __future__ import annotations

import threading
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torchrl")

import milkrun  # noqa: E402
from milkrun.core.errors import BadInstance  # noqa: E402

STEPS = 12
KEYS = ("action_mask", "visited", "current_node", "tour_length", "reward", "done")


def env_of(rows: int = 5) -> Any:
    return milkrun.make("milkrun/CVRP-v0", rows, api="torchrl", num_loc=8, seed=3)


def onward(env: Any, td: Any) -> tuple[Any, Any]:
    """(what the step showed, the TensorDict to act on next), with the first allowed action everywhere."""
    td.set("action", td["action_mask"].to(torch.int8).argmax(-1))
    stepped, following = env.step_and_maybe_reset(td)
    return stepped["next"], following


def test_results_keep_their_values() -> None:
    """Each step's tensors stand in memory of their own, whatever the caller does with them."""
    env, held, copies = env_of(), [], []
    td = env.reset()
    for _ in range(STEPS):
        shown, td = onward(env, td)
        held.append(shown["visited"])
        copies.append(shown["visited"].clone())
        shown["reward"].add_(1)
    assert len({tensor.data_ptr() for tensor in held}) == STEPS
    assert all(torch.equal(a, b) for a, b in zip(held, copies, strict=True))


def test_steps_of_inference_mode_leave_no_tensors_of_it() -> None:
    """Results of a step outside inference mode can be trained with, though memory was first taken inside."""
    env = env_of()
    with torch.inference_mode():
        td = env.reset()
        for _ in range(STEPS):
            td = onward(env, td)[1]
    td = env.reset()
    for _ in range(STEPS):
        shown, td = onward(env, td)
        assert not any(shown[key].is_inference() for key in KEYS)
    weight = torch.ones(5, requires_grad=True)
    (weight * shown["tour_length"]).sum().backward()
    assert torch.equal(weight.grad, shown["tour_length"])


def test_threads_that_hold_results_of_one_environment() -> None:
    """Several threads step one environment, each keeping some results: all have the bits of a single thread."""
    env, rounds = env_of(), 40
    start = env.reset()
    td, expected = start.clone(), []
    for _ in range(rounds):
        td.set("action", td["action_mask"].to(torch.int8).argmax(-1))
        td = env.step(td)["next"]
        expected.append(td["action_mask"].clone())
    faults: list[str] = []

    def play(every: int) -> None:
        td, held = start.clone(), {}
        for k in range(rounds):
            td.set("action", td["action_mask"].to(torch.int8).argmax(-1))
            td = env.step(td)["next"]
            if k % every == 0:
                held[k] = td["action_mask"]
        faults.extend(f"{every}: {k}" for k, mask in held.items() if not torch.equal(mask, expected[k]))

    threads = [threading.Thread(target=play, args=(every,)) for every in (1, 2, 3, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults


@pytest.mark.parametrize("kind", ["memmap", "parameter"])
def test_instances_of_other_classes_are_stepped_and_checked(kind: str) -> None:
    """A data set on disk, or parameters: changes in place are found by the next step."""
    source = env_of().reset()
    if kind == "memmap":
        td = source.memmap_().copy()
    else:
        td = source.copy()
        td["locs"] = torch.nn.Parameter(td["locs"], requires_grad=False)
    env = env_of()
    for _ in range(STEPS):
        td.set("action", td["action_mask"].to(torch.int8).argmax(-1))
        td = env.step(td)["next"]
    td["locs"][0, 0] = float("nan")
    td.set("action", td["action_mask"].to(torch.int8).argmax(-1))
    with pytest.raises(BadInstance, match="finite"):
        env.step(td)


def test_rows_that_do_not_move_keep_their_mask() -> None:
    """A step recomputes the mask; after an illegal action and on an ended row it stays the same."""
    env = env_of(3)
    td = env.reset()
    td.set("action", torch.tensor([1, 2, 3]))
    td = env.step(td)["next"].clone()
    td["terminated"][1] = True
    given = td["action_mask"].clone()
    for _ in range(STEPS):
        td.set("action", torch.tensor([1, 4, 4 if given[2, 4] else 5]))
        after = env.step(td)["next"]
        assert torch.equal(after["action_mask"][:2], given[:2]) and not torch.equal(after["action_mask"][2], given[2])
        after["action_mask"].logical_not_()
        td = td.exclude("next")
