"""Functional steps write again to memory that nobody holds: what anybody holds, in whatever way, keeps its bits."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torchrl")

import milkrun  # noqa: E402
from milkrun.api.torchrl import memory, snapshot  # noqa: E402
from milkrun.api.torchrl.memory import FAR, FAR_BYTES, NEAR, PATIENCE  # noqa: E402
from milkrun.core.errors import BadInstance  # noqa: E402

lent = pytest.mark.skipif(
    not snapshot.are_tried(sys.version_info[:2], torch.__version__),
    reason="tensors are not lent with versions that were not tried",
)
STEPS = 3 * NEAR
KEYS = ("action_mask", "visited", "current_node", "tour_length", "reward", "done")


def env_of(rows: int = 5) -> Any:
    return milkrun.make("milkrun/CVRP-v0", rows, api="torchrl", num_loc=8, seed=3)


def onward(env: Any, td: Any) -> tuple[Any, Any]:
    """(what the step showed, the TensorDict to act on next), with the first allowed action everywhere."""
    td.set("action", td["action_mask"].to(torch.int8).argmax(-1))
    stepped, following = env.step_and_maybe_reset(td)
    return stepped["next"], following


def played(env: Any, steps: int) -> list[dict[str, bytes]]:
    """The bits of every step, copied at once."""
    td, found = env.reset(), []
    for _ in range(steps):
        shown, td = onward(env, td)
        found.append({key: shown[key].numpy().tobytes() for key in KEYS})
    return found


HOLDERS: dict[str, Callable[[Any, str], Any]] = {
    "tensor": lambda td, key: td[key],
    "view": lambda td, key: td[key][1:],
    "row": lambda td, key: td[key].unbind(0)[2],
    "detached": lambda td, key: td[key].detach(),
    "data": lambda td, key: td[key].data,
    "numpy": lambda td, key: td[key].numpy(),
    "part of numpy": lambda td, key: td[key].numpy()[2:],
    "memoryview": lambda td, key: memoryview(td[key].numpy()).cast("B"),
    "dlpack": lambda td, key: torch.utils.dlpack.to_dlpack(td[key]),
    "storage": lambda td, key: td[key].untyped_storage(),
    "TensorDict": lambda td, key: td,
    "shallow copy": lambda td, key: td.copy(),
    "rows of a TensorDict": lambda td, key: td[1:3],
    "flat keys": lambda td, key: td.flatten_keys("."),
    "dictionary": lambda td, key: td.to_dict(retain_none=True),
    "state": lambda td, key: td.state_dict(),
    "stack": lambda td, key: type(td).lazy_stack([td, td]),
}


def bits_of(held: Any, key: str) -> bytes:
    if isinstance(held, dict) or hasattr(held, "batch_size"):
        return bits_of(held[key], key)
    if type(held).__name__ == "PyCapsule":
        raise AssertionError("a capsule is read once, at the end")
    if isinstance(held, torch.UntypedStorage):
        return bytes(held.tolist())
    return held.numpy().tobytes() if isinstance(held, torch.Tensor) else bytes(np.asarray(held).tobytes())


@pytest.mark.parametrize("how", HOLDERS)
@pytest.mark.parametrize("key", ["action_mask", "tour_length"])
def test_what_is_held_keeps_its_bits(how: str, key: str) -> None:
    """Whatever way the result of a step is held, later steps do not write there."""
    env, held, before = env_of(), [], []
    td = env.reset()
    for _ in range(STEPS):
        shown, td = onward(env, td)
        hold = HOLDERS[how](shown, key)
        before.append(shown[key].clone() if how == "dlpack" else bits_of(hold, key))
        held.append(hold)
        del shown, hold
    if how == "dlpack":
        assert all(torch.equal(torch.utils.dlpack.from_dlpack(a), b) for a, b in zip(held, before, strict=True))
    else:
        assert [bits_of(hold, key) for hold in held] == before
    assert len({str(b) for b in before}) > 2, "steps that all show the same would prove nothing"


def test_autograd_holds_what_it_saved() -> None:
    """A loss over several steps has the gradients that it has with copies of what the steps gave."""
    env, grads = env_of(), []
    for copies in (False, True):
        env.set_seed(3)
        td, weight, loss = env.reset(), torch.ones(9, requires_grad=True), torch.zeros(())
        for _ in range(STEPS):
            shown, td = onward(env, td)
            mask, length = shown["action_mask"], shown["tour_length"]
            mask, length = (mask.clone(), length.clone()) if copies else (mask, length)
            loss = loss + (torch.where(mask, weight, 0.0).exp().sum(-1) * length).sum()
        loss.backward()
        grads.append(weight.grad)
    assert torch.equal(*grads) and grads[0].abs().sum() > 0


@lent
def test_memory_that_nobody_holds_is_written_again() -> None:
    """A plain loop lives in the memory of a few results; where all are held, every result has its own."""
    env = env_of()
    td, places = env.reset(), set()
    for _ in range(STEPS):
        td.set("action", td["action_mask"].to(torch.int8).argmax(-1))
        td = env.step(td)["next"]
        places.add(td["action_mask"].data_ptr())
    assert len(places) <= NEAR < STEPS
    results = [onward(env, td)[0] for _ in range(STEPS)]
    assert len({shown["action_mask"].data_ptr() for shown in results}) == STEPS


def kept(env: Any, steps: int) -> list[Any]:
    """All results of an episode."""
    td, results = env.reset(), []
    for _ in range(steps):
        shown, td = onward(env, td)
        results.append(shown)
    return results


@lent
def test_an_episode_that_was_kept_and_dropped_gives_its_memory_back() -> None:
    """Whoever keeps an episode and then drops it plays the next one in the same memory, and no result has another's."""
    env, seen = env_of(), []
    for _ in range(3):
        results = kept(env, 40)
        seen.append({shown["visited"].data_ptr() for shown in results})
        assert len(seen[-1]) == 40
        del results
    assert seen[1] == seen[2]


@lent
@pytest.mark.parametrize("rows", [5, 20_000])
def test_memory_for_later_steps_is_bounded(rows: int) -> None:
    """However much was kept, what waits to be used again is limited in number and in bytes."""
    env = env_of(rows)
    kept(env, NEAR + FAR + 40 if rows == 5 else NEAR + 40)
    (outputs,) = env._stepper._spaces.own.outputs.values()
    assert len(outputs._near) <= NEAR and len(outputs._far) == min(FAR, FAR_BYTES // outputs._plan.bytes)


@lent
def test_rewards_alone_can_be_kept() -> None:
    """Keeping one tensor of every step keeps that tensor: the others are written again."""
    env = env_of()
    td, rewards, places = env.reset(), [], set()
    for _ in range(4 * PATIENCE):
        shown, td = onward(env, td)
        rewards.append(shown["reward"])
        places.add(shown["visited"].data_ptr())
        del shown
    assert len({reward.data_ptr() for reward in rewards}) == len(rewards)
    assert len(places) < len(rewards) / 2


class Strange(torch.Tensor):
    """A tensor of a user's own class."""


def test_nothing_of_a_dropped_tensor_comes_back() -> None:
    """Attributes, gradients asked for and changes in place of a result end with it."""
    env = env_of()
    td = env.reset()
    for _ in range(STEPS):
        shown, td = onward(env, td)
        for key in (*KEYS, "load", "trip_length", "i", "truncated", "terminated"):
            assert not hasattr(shown[key], "note") and not shown[key].requires_grad and shown[key]._version == 0
            assert type(shown[key]) is torch.Tensor and shown[key].is_cpu and shown[key].shape[:1] == (5,)
            assert shown[key].stride() == shown[key].clone(memory_format=torch.contiguous_format).stride()
        td = td.clone()
        shown["action_mask"].note = 1
        shown["tour_length"].requires_grad_()
        shown["reward"].add_(1)
        shown["load"].__class__ = Strange
        torch.utils.swap_tensors(shown["trip_length"], torch.empty(5, device="meta"))
        shown["current_node"].t_()
        shown["terminated"].as_strided_((5, 1), (1, 9))
        shown["visited"].resize_(1, 9)
        shown["i"].data = torch.zeros(5, 1, dtype=torch.int64)
        torch.utils.swap_tensors(shown["done"], torch.ones(5, 1))
        shown["truncated"] = shown["truncated"].share_memory_()
        del shown
    assert td["current_node"].shape == (5, 1)


def test_memory_shared_with_another_process_is_left_alone() -> None:
    """What was moved to shared memory is not written, though nobody in this process holds it any more."""
    env = env_of()
    td, seen = env.reset(), []
    for _ in range(STEPS):
        shown, td = onward(env, td)
        td = td.clone()
        storage = shown["visited"].share_memory_().untyped_storage()
        descriptor, size = storage._share_fd_cpu_()
        theirs = torch.UntypedStorage._new_shared_fd_cpu(descriptor, size)  # as the other process maps it
        seen.append((theirs, theirs.tolist()))
        del shown, storage
    assert all(theirs.tolist() == before for theirs, before in seen)


def test_memory_that_was_given_back_is_not_written() -> None:
    """A result whose memory was emptied or made larger does no harm to later steps."""
    expected, env, found = played(env_of(), STEPS), env_of(), []
    td = env.reset()
    for k in range(STEPS):
        shown, td = onward(env, td)
        found.append({key: shown[key].clone().numpy().tobytes() for key in KEYS})  # numpy's memory cannot be resized
        td = td.clone()
        if k % 3 == 0:
            shown["current_node"].untyped_storage().resize_(0 if k % 2 else 4096)
        del shown
    assert found == expected


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


def test_where_words_cannot_be_read_every_step_makes_its_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    """How tensors look inside is torch's own affair: where the trial fails nothing is lent, and the same is played."""
    before = played(env_of(), STEPS)
    for module in (memory, snapshot):
        monkeypatch.setattr(module, "compiled", lambda: None)
    assert played(env_of(), STEPS) == before
    env = env_of()
    td, results = env.reset(), []
    for _ in range(STEPS):
        td.set("action", td["action_mask"].to(torch.int8).argmax(-1))
        td = env.step(td)["next"]
        results.append(td["action_mask"])
    (outputs,) = env._stepper._spaces.own.outputs.values()
    assert not outputs._near and not outputs._far
    assert len({mask.data_ptr() for mask in results}) == STEPS


class Angry(torch.Tensor):
    """A class that wants nothing to be done with its tensors."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise RuntimeError("not with me")


def test_a_dropped_tensor_of_a_class_of_its_own_is_left_alone() -> None:
    """Nothing is asked of it, and the next result has a plain tensor in its place, with the right rewards."""
    expected, env = played(env_of(), STEPS), env_of()
    td = env.reset()
    for step in expected:
        shown, td = onward(env, td)
        assert type(shown["reward"]) is torch.Tensor and shown["reward"].numpy().tobytes() == step["reward"]
        td = td.clone()
        shown["reward"].__class__ = Angry
        del shown


def test_batches_of_many_dimensions_are_made_anew() -> None:
    """Sizes of more than five dimensions stand where no snapshot looks."""
    env = env_of()
    td = env.reset(batch_size=[1, 3, 1, 1, 1])
    for _ in range(STEPS):
        shown, td = onward(env, td)
        assert shown["reward"].shape == (1, 3, 1, 1, 1, 1)
        td = td.clone()
        shown["reward"].data = shown["reward"].data.transpose(0, 1)
        del shown


@pytest.mark.parametrize("kind", ["memmap", "parameter"])
def test_instances_of_other_classes_are_stepped_and_looked_at(kind: str) -> None:
    """A data set on disk, or parameters: their words are never compared, changes are found by calls."""
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


def test_interrupts_leave_an_environment_that_steps() -> None:
    """KeyboardInterrupt at each line of a step in turn: the next steps are right, and what is held keeps its bits."""
    env, held, copies = env_of(), [], []
    td = env.reset()
    twin = env_of()
    other = twin.reset()

    def stop_at(line: int) -> Any:
        seen = 0

        def trace(frame: Any, event: str, value: Any) -> Any:
            nonlocal seen
            ours = "torchrl" in frame.f_code.co_filename or frame.f_code.co_filename == "<string>"
            if ours and event == "line":
                seen += 1
                if seen == line:
                    raise KeyboardInterrupt
            return trace

        return trace

    for line in range(1, 120):
        td.set("action", td["action_mask"].to(torch.int8).argmax(-1))
        other.set("action", td["action"].clone())
        sys.settrace(stop_at(line))
        try:
            env.step(td.copy())
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(None)
        td = env.step(td.copy())["next"]
        other = twin.step(other.clone())["next"].clone()
        assert all(torch.equal(td[key], other[key]) for key in KEYS)
        held.append(td["visited"])
        copies.append(td["visited"].clone())
        if line % 10 == 0:
            td = env.reset()
            other = td.clone()
            held, copies = held[-3:], copies[-3:]
        assert all(torch.equal(a, b) for a, b in zip(held, copies, strict=True))


def test_what_inference_mode_holds_is_not_of_it() -> None:
    """Whether a result was lent or made anew cannot be told."""
    env, held = env_of(), []
    with torch.inference_mode():
        td = env.reset()
        for _ in range(NEAR + FAR + 40):
            shown, td = onward(env, td)
            held.append(shown["visited"])
    assert not any(tensor.is_inference() for tensor in held)


def test_a_weak_reference_sees_a_result_go() -> None:
    """A tensor that was lent again would keep the weak references to what it was before."""
    env = env_of()
    td, gone = env.reset(), []
    for _ in range(STEPS):
        td.set("action", td["action_mask"].to(torch.int8).argmax(-1))
        td = env.step(td)["next"]
        assert not weakref.getweakrefs(td["visited"])
        reference = weakref.ref(td["visited"])
        gone.append(reference)
    assert sum(reference() is None for reference in gone) > STEPS - NEAR - 1


def test_results_of_a_traced_loop_are_their_holders_own() -> None:
    """A debugger that looks at the variables of every frame holds tensors for a while: what is held beside it keeps its
    bits."""
    env, held, copies = env_of(), [], []

    def look(frame: Any, event: str, value: Any) -> Any:
        if "milkrun" in frame.f_code.co_filename or frame.f_code.co_filename == "<string>":
            dict(frame.f_locals)
        return look

    td = env.reset()
    for k in range(4 * STEPS):
        sys.settrace(look if k % 3 == 0 else None)
        try:
            shown, td = onward(env, td)
        finally:
            sys.settrace(None)
        if k % 2:
            held.append(shown["visited"])
            copies.append(shown["visited"].clone())
        del shown
    assert all(torch.equal(a, b) for a, b in zip(held, copies, strict=True))


def test_a_step_inside_a_step_takes_other_memory() -> None:
    """A finalizer that steps the same environment while a step gives out its tensors."""
    env, copies, inner = env_of(), [], []
    td = env.reset()
    start = td.clone()
    start.set("action", start["action_mask"].to(torch.int8).argmax(-1))

    class Last:
        def __init__(self) -> None:
            self.self = self  # only the collector frees it

        def __del__(self) -> None:
            shown = env.step(start.copy())["next"]
            inner.append((shown["visited"], shown["visited"].clone()))

    outer = []
    before = gc.get_threshold()
    gc.set_threshold(3)
    try:
        for _ in range(8 * STEPS):
            Last()
            shown, td = onward(env, td)
            outer.append(shown["visited"])
            copies.append(shown["visited"].clone())
            del shown
    finally:
        gc.set_threshold(*before)
    assert len(inner) > STEPS
    assert all(torch.equal(a, b) for a, b in (*zip(outer, copies, strict=True), *inner))
    assert len({t.data_ptr() for t in (*outer, *(a for a, _ in inner))}) == len(outer) + len(inner)


def test_rows_that_do_not_move_keep_their_mask() -> None:
    """A step makes the mask anew; after an illegal action, and on an ended row, it is the one before."""
    env = env_of(3)
    td = env.reset()
    td.set("action", torch.tensor([1, 2, 3]))
    td = env.step(td)["next"].clone()
    td["terminated"][1] = True
    given = td["action_mask"].clone()
    for _ in range(2 * NEAR):  # memory that held other masks before
        td.set("action", torch.tensor([1, 4, 4 if given[2, 4] else 5]))
        after = env.step(td)["next"]
        assert torch.equal(after["action_mask"][:2], given[:2]) and not torch.equal(after["action_mask"][2], given[2])
        after["action_mask"].logical_not_()
        td = td.exclude("next")
