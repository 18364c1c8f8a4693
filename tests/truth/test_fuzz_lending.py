"""Functional steps reuse tensors of a pool. Results are held, changed and dropped at random without any visible effect.

Every step is compared with the same step of a second environment that only gets copies. Held tensors are compared with
copies made immediately after the step.
"""

from __future__ import annotations

import copy
import gc
import pickle
import random
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torchrl")

from milkrun.api.torchrl import env_class  # noqa: E402

WORLDS = ("CVRP", "TSP", "DARP", "TSPD", "TruckDrone", "VRPP")
BATCHES = ([], [5], [2, 3], [2500])  # many rows are recognised by weak references
KEPT = 60  # results held at the same time

WEIGHT = torch.ones((), requires_grad=True)

HOLD: list[Callable[[Any], Any]] = [
    lambda t: t,
    lambda t: t.reshape(-1)[:1] if t.numel() else t,
    lambda t: t.detach(),
    lambda t: t.data,
    lambda t: t.numpy(),
    lambda t: torch.from_numpy(t.numpy()),
    lambda t: t.expand(2, *t.shape),
    lambda t: torch._lazy_clone(t),
    lambda t: copy.copy(t),
    lambda t: torch.nn.Parameter(t, requires_grad=False),
    lambda t: torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(t)) if t.dtype is not torch.bool else [t][0],
]

LOOK: list[Callable[[Any], Any]] = [  # use, then drop
    lambda t: (t * WEIGHT).sum().backward(),
    lambda t: t.untyped_storage(),
    lambda t: pickle.dumps(t),
    lambda t: weakref.ref(t),
    lambda t: repr(t),
    lambda t: copy.deepcopy(t),
    lambda t: torch.func.vmap(lambda row: row.to(torch.float32) + 1)(t) if t.dim() and t.shape[0] else t,
]

CHANGE: list[Callable[[Any], Any]] = [
    lambda t: t.zero_(),
    lambda t: t.unsqueeze_(0),
    lambda t: t.resize_(0),
    lambda t: t.set_(torch.ones_like(t)),
    lambda t: t.share_memory_(),
    lambda t: setattr(t, "data", t.data.clone().unsqueeze(0)),
    lambda t: setattr(t, "anything", 1),
    lambda t: setattr(t, "__class__", torch.nn.Parameter),
    lambda t: t.requires_grad_() if t.is_floating_point() else t.logical_not_(),
    lambda t: torch.utils.swap_tensors(t, torch.ones(3)),
    lambda t: t.as_strided_(t.shape, t.stride()),
    lambda t: t.untyped_storage().resize_(0),
]


def leaves(td: Any) -> dict[Any, Any]:
    return dict(td.items(True, True))


def copied(td: Any) -> Any:
    return td.apply(torch.clone)  # a TensorDict's own clone does not keep the sign of every zero


def bits(held: Any) -> bytes:
    if isinstance(held, torch.Tensor):
        held = held.detach().clone(memory_format=torch.contiguous_format).numpy()
    return bytes(held.tobytes())


class Play:
    """One world, stepped while its results are held, changed and dropped."""

    def __init__(self, name: str, batch: list[int], seed: int) -> None:
        self.chance = random.Random(seed)
        self.env, self.twin = (env_class(f"milkrun/{name}-v0")(batch_size=batch, seed=seed) for _ in "ab")
        self.held: list[tuple[Any, bytes]] = []
        self.td, self.other = self.env.reset(), copied(self.twin.reset())

    def turn(self) -> None:
        """Steps both environments and compares them; then does something to a result."""
        drawn = self.env.sample_actions(self.td)
        for td in (self.td, self.other):
            td.update(drawn) if hasattr(drawn, "keys") else td.set("action", drawn)
        given = {id(tensor) for tensor in leaves(self.td).values()}
        mode = torch.inference_mode() if self.chance.random() < 0.05 else torch.no_grad()
        with mode if self.chance.random() < 0.3 else torch.enable_grad():
            shown = self.env.step(self.td)["next"]
        following = copied(self.twin.step(copied(self.other))["next"])
        found, expected = leaves(shown), leaves(following)
        assert found.keys() == expected.keys()
        for key, tensor in found.items():
            fresh = type(tensor) is torch.Tensor and not tensor.requires_grad and not hasattr(tensor, "anything")
            assert fresh and tensor.shape == expected[key].shape, key
            assert bits(tensor) == bits(expected[key]), key
        made = [tensor for tensor in found.values() if id(tensor) not in given]  # without the instance
        self.td, self.other, ended = shown, following, bool(following["done"].all())
        self._happen(shown, self.chance.choice(made))
        if ended or self.chance.random() < 0.02:
            self.td = self.env.reset()
            self.other = copied(self.td)

    def _happen(self, shown: Any, tensor: Any) -> None:
        what = self.chance.random()
        if what < 0.4:
            hold = self.chance.choice(HOLD)(tensor)
            self.held.append((hold, bits(hold)))
        elif what < 0.55:
            self.chance.choice(LOOK)(tensor)
        elif what < 0.75:  # the play continues from a copy
            self.td = copied(shown)
            with suppress(RuntimeError):  # a tensor shared with numpy cannot be enlarged
                self.chance.choice(CHANGE)(tensor)
        elif what < 0.8:
            self.held.append((shown["done"], bits(shown["done"])))
            gc.collect()
        while len(self.held) > KEPT:
            del self.held[self.chance.randrange(len(self.held))]

    def check(self) -> None:
        """Held tensors are unchanged."""
        for held, before in self.held:
            assert bits(held) == before


def play(name: str, batch: list[int], turns: int, seed: int) -> None:
    game = Play(name, batch, seed)
    for k in range(turns):
        game.turn()
        if k % 25 == 0:
            game.check()
    game.check()


@pytest.mark.parametrize("name", WORLDS)
def test_tensor_reuse_has_no_visible_effect(name: str) -> None:
    for k, batch in enumerate(BATCHES[:3]):
        play(name, batch, 150, k)


@pytest.mark.long
@pytest.mark.parametrize("batch", BATCHES, ids=str)
@pytest.mark.parametrize("name", WORLDS)
def test_tensor_reuse_has_no_visible_effect_in_a_long_play(name: str, batch: list[int]) -> None:
    play(name, batch, 200 if batch == [2500] else 3000, 7)


def test_several_threads_hold_and_change_reused_tensors() -> None:
    faults: list[BaseException] = []

    def run(seed: int) -> None:
        try:
            play("CVRP", [5], 60, seed)
        except BaseException as fault:
            faults.append(fault)

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults, faults
