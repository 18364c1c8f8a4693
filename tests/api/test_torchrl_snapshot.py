"""Snapshots of tensors: whoever holds one, and whatever changes one, is seen by comparing words in memory."""

from __future__ import annotations

import copy
import sys
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torchrl")

from milkrun.api.torchrl import snapshot  # noqa: E402
from milkrun.api.torchrl.lending import Lent  # noqa: E402
from milkrun.api.torchrl.snapshot import Compiled, Snapshot, are_plain, are_tried, compiled  # noqa: E402

HERE = sys.version_info[:2], torch.__version__
pytestmark = pytest.mark.skipif(not are_tried(*HERE), reason="tensors are not lent with versions that were not tried")


def functions() -> Compiled:
    found = compiled()
    assert found is not None, "with versions that were tried the trial must succeed"
    return found


def three() -> tuple[Any, Any, Any]:
    return torch.zeros(4, 1), torch.zeros(4, 1), torch.zeros(4, 1)


class Seen:
    """What a snapshot of three tensors says of them."""

    def __init__(self, tensors: tuple[Any, ...]) -> None:
        self.tensors, self.snapshot = tensors, Snapshot(len(tensors))
        self.snapshot.take(tensors)

    @property
    def now(self) -> tuple[bool, int, int]:
        ask, at, count = functions(), self.snapshot.address, self.snapshot.count
        return bool(ask.same(at, count, at, count)), ask.held(at, count), ask.changed(at, count)


HOLDERS: dict[str, Callable[[Any], Any]] = {
    "a name": lambda t: t,
    "a list of lists": lambda t: [[t]],
    "a transposed view": lambda t: t.t(),
    "an expanded view": lambda t: t.expand(4, 7),
    "a view of another dtype": lambda t: t.view(torch.int32),
    "an array in numpy": lambda t: np.asarray(t)[1:],
    "a tensor from that array": lambda t: torch.from_numpy(t.numpy()),
    "bytes in numpy": lambda t: memoryview(t.numpy().view(np.uint8)),
    "a bound method": lambda t: t.sum,
    "an iterator": iter,
    "a graph": lambda t: (t * torch.ones(4, 1, requires_grad=True)).grad_fn,
    "a capsule": torch.utils.dlpack.to_dlpack,
    "a parameter": lambda t: torch.nn.Parameter(t, requires_grad=False),
    "a dictionary": lambda t: {"x": t},
}


@pytest.mark.parametrize("how", HOLDERS)
def test_holders_are_seen_as_long_as_they_are_there(how: str) -> None:
    seen = Seen(three())
    assert seen.now == (True, 0, 0)
    held = HOLDERS[how](seen.tensors[1])
    same, holders, changed = seen.now
    assert (same, holders, changed) == (True, 0b010, 0b010)
    del held
    assert seen.now == (True, 0, 0)


LASTING: dict[str, Callable[[Any], Any]] = {
    "its storage": lambda t: t.untyped_storage(),
    "a shallow copy, made by way of its storage": copy.copy,
    "a lazy clone": torch._lazy_clone,
}


@pytest.mark.parametrize("how", LASTING)
def test_what_cannot_be_seen_to_end_counts_as_held(how: str) -> None:
    seen = Seen(three())
    held = LASTING[how](seen.tensors[2])
    assert seen.now[1:] == (0b100, 0b100)
    del held
    assert seen.now[1:] == (0b100, 0b100)


CHANGES: dict[str, Callable[[Any], Any]] = {
    "values": lambda t: t.fill_(3),
    "one value": lambda t: t.__setitem__(2, 5.0),
    "a view's values": lambda t: t[1:].mul_(2),
    "by an out argument": lambda t: torch.add(t, 1, out=t),
    "transposed": lambda t: t.t_(),
    "squeezed": lambda t: t.squeeze_(),
    "strides": lambda t: t.as_strided_((2, 1), (2, 1)),
    "smaller": lambda t: t.resize_(1, 1),
    "larger": lambda t: t.resize_(999, 1),
    "another memory": lambda t: t.set_(torch.ones(4, 1)),
    "another tensor's data": lambda t: setattr(t, "data", torch.ones(4, 1)),
    "swapped": lambda t: torch.utils.swap_tensors(t, torch.ones(4, 1)),
    "shared with processes": lambda t: t.share_memory_(),
    "gradient asked for": lambda t: t.requires_grad_(),
    "a gradient": lambda t: setattr(t, "grad", torch.ones(4, 1)),
    "an attribute": lambda t: setattr(t, "anything", 1),
    "a hook": lambda t: t.requires_grad_().register_hook(lambda g: g),
    "class": lambda t: setattr(t, "__class__", torch.nn.Parameter),
    "dispatch keys": lambda t: torch._C._set_neg(t, True),
    "counter": lambda t: torch._C._autograd._unsafe_set_version_counter((t,), (9,)),
}


@pytest.mark.parametrize("how", CHANGES)
def test_changes_are_seen(how: str) -> None:
    seen = Seen(three())
    CHANGES[how](seen.tensors[0])
    same, _, changed = seen.now
    assert not same and changed == 0b001


def test_a_weak_reference_is_seen_though_it_holds_nothing() -> None:
    seen = Seen(three())
    reference = weakref.ref(seen.tensors[1])
    assert seen.now == (False, 0, 0b010)
    del reference
    assert seen.now == (True, 0, 0)


def test_what_numpy_has_seen_since_is_known() -> None:
    """It may write there at any time, and nobody counts it; in the second snapshot, that of instances, what came from
    numpy is taken as it came."""
    seen = Seen(three())
    at, count = seen.snapshot.address, seen.snapshot.count
    assert functions().same(at, count, at, count) == snapshot.UNSEEN
    np.asarray(seen.tensors[2])
    assert functions().same(at, count, at, count) == snapshot.SEEN and seen.now == (True, 0, 0)
    own, given = Seen(three()), Seen(tuple(torch.from_numpy(np.zeros((4, 1))) for _ in range(3)))
    first, second = own.snapshot.address, given.snapshot.address
    assert functions().same(first, count, second, count) == snapshot.UNSEEN
    assert functions().same(second, count, first, count) == snapshot.SEEN


def test_reading_and_computing_leave_no_trace() -> None:
    """What a policy does with a result, when it is over, does not keep the result from being lent again."""
    seen = Seen(three())
    t = seen.tensors[1]
    weight = torch.ones(4, 1, requires_grad=True)
    (weight * t).sum().backward()
    _ = t + 1, t.shape, t.tolist(), t.numpy().sum(), t.argmax(), t.grad, t.requires_grad, t.is_leaf, repr(t), t._base
    torch.nn.functional.linear(t.t(), torch.ones(2, 4)), torch.stack([t, t]), t.to(torch.float64), t.clone()
    del t, _
    assert seen.now == (True, 0, 0)


def test_tensors_of_inference_mode_are_read_without_their_counter() -> None:
    with torch.inference_mode():
        seen = Seen(three())
        assert seen.now == (True, 0, 0)
        held = seen.tensors[0][1:]
        assert seen.now[1:] == (1, 1) and held.shape == (3, 1)
        seen.tensors[1].t_()
        assert not seen.now[0]


def test_only_plain_tensors_can_be_noted() -> None:
    assert are_plain(three())
    assert not are_plain((torch.nn.Parameter(torch.zeros(2)),))
    assert not are_plain((torch.zeros(2), torch.zeros(2).to_sparse()))
    assert not are_plain((np.zeros(2),))


def test_lent_tensors_are_replaced_one_by_one() -> None:
    """Those that are held get other memory, those that were only changed become new tensors in theirs."""
    wanted = [(torch.float32, torch.Size((4, k))) for k in (1, 2, 3)]
    lent = Lent(wanted, [1, 1, 1], functions())
    tensors = lent.make()
    names = [*tensors]
    del tensors
    assert lent.note()
    places = [tensor.data_ptr() for tensor in names]
    held = names[0][1:]
    names[2].add_(1)
    changed = functions().changed(lent.address, lent.count)
    assert changed == 0b101
    names = [*lent.replace(changed)]
    assert [tensor.data_ptr() for tensor in names][1:] == places[1:] and names[0].data_ptr() != places[0]
    assert all(tensor._version == 0 and tensor.shape == shape for tensor, (_, shape) in zip(names, wanted, strict=True))
    assert lent.note() and held.shape == (3, 1)


def test_what_somebody_holds_already_is_not_noted() -> None:
    """Were it noted, it would count as free while it is held."""
    lent = Lent([(torch.float32, torch.Size((4, 1)))] * 2, [1, 1], functions())
    names = [*lent.make()]
    for hold in (lambda t: t, lambda t: t[1:], lambda t: t.data, lambda t: t.numpy()):
        held = hold(names[1])
        assert not lent.note()
        del held
        assert lent.note()


@pytest.mark.parametrize("part", ["HOLDERS", "CHANGES", "SEERS", "FOR_GOOD"])
def test_a_trial_that_misses_something_ends_the_quick_way(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Something that should be seen and leaves no trace: then nothing is compared."""
    functions()
    monkeypatch.setattr(snapshot, part, [lambda t: None])
    assert snapshot._compiled.__wrapped__() is None


def test_another_layout_than_expected_ends_the_quick_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "_is_address", lambda word: False)
    assert snapshot._layout.__wrapped__() is None
    monkeypatch.setattr(snapshot, "_layout", lambda: None)
    assert snapshot._compiled.__wrapped__() is None


def test_versions_that_were_not_tried_end_the_quick_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """A build that passes the trial may still keep a holder where no snapshot looks."""
    python, tried = HERE
    assert are_tried(python, tried) and are_tried(python, tried.split("+")[0] + "+cu130")
    assert not any(are_tried(python, other) for other in ("2.0.1", "2.130.0", "3.13.0", "unknown"))
    assert not are_tried((3, 99), tried)
    monkeypatch.setattr(torch, "__version__", "2.99.0")
    assert snapshot._layout.__wrapped__() is None


def test_a_trial_that_cannot_be_made_ends_the_quick_way_for_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """No shared memory, for one: no error, and the next that asks tries again."""

    def fail(tensor: Any) -> None:
        raise OSError("no shared memory")

    monkeypatch.setattr(snapshot, "_compiled", snapshot._compiled.__wrapped__)
    monkeypatch.setattr(snapshot, "CHANGES", [fail])
    assert compiled() is None
    monkeypatch.undo()
    assert compiled() is not None


def test_more_dimensions_than_a_body_holds_are_not_noted() -> None:
    assert are_plain((torch.zeros(1, 2, 1, 2, 1),)) and not are_plain((torch.zeros(1, 2, 1, 2, 1, 2),))
