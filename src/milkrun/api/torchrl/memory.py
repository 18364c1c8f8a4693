"""Workspace: what a thread keeps between calls: memory that kernels write beside tensors, memory of results that nobody
holds any more, and the last result, to know it again.

Kernels release the GIL, so memory that two calls share would be written by both at once. Each Python thread has its
own.
"""

from __future__ import annotations

import threading
import weakref
from array import array
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from milkrun.api.torchrl.plan import Layout, Maker, Plan, State
from milkrun.api.torchrl.snapshot import BITS, UNSEEN, Snapshot, are_plain, compiled
from milkrun.core.fields import Field, Role
from milkrun.core.memory import address_of
from milkrun.core.world import World

REMEMBERED = 2048  # rows up to which the last result is kept at hand: there checks cost as much as the kernel

NEAR = 4  # results of one shape whose memory is asked for first; a loop that keeps the step before needs three
LARGE = 2**23  # bytes of a result from which on one is enough
FAR = 256  # further ones, for whoever keeps an episode and then drops it all,
FAR_BYTES = 2**24  # and what they may take together
SHAPES = 8  # shapes of batches for which that is done
PATIENCE = 4096  # steps that find no memory free before other memory is taken
ASKED = 8  # of so many such steps one asks again
LOOKS = 4  # far ones that a step asks

is_inference_mode_enabled = torch.is_inference_mode_enabled
version_of = torch.Tensor._version.__get__  # how often a tensor has been changed in place


Result = tuple[Plan, State, tuple[Any, ...] | list[Any], tuple[int, ...], tuple[int, ...]]
"""What the last step gave: the plan, the state, the tensors that were handed on (in a list: weak references, so that
nothing large is kept alive), their addresses, how often each had been changed in place (nothing where that is not
counted)."""

Known = tuple[tuple[Any, ...], tuple[int, ...], tuple[int, ...], "array[int]", int, bool]


class Workspaces(threading.local):
    """The workspace of the thread that asks, as `own`."""

    def __init__(self, world: World, layout: Layout, dropped: list[Field]) -> None:
        self.own = Workspace(world, layout, dropped)


class Workspace:
    """A table of addresses to copy, with memory of this thread behind all that no tensor of a call will hold."""

    def __init__(self, world: World, layout: Layout, dropped: list[Field]) -> None:
        self._world, self._dropped = world, dropped
        functions = compiled()
        self._same: Any = None if functions is None else functions.same
        self._made, self._shared = Snapshot(len(layout.state)), Snapshot(len(layout.instance) + 1)
        self._shared_is_noted = False
        self._scratch = [f for f in world.fields.values() if f.role is Role.SCRATCH]
        self._memory: dict[str, np.ndarray] = {}
        self.outputs: dict[Plan, Outputs] = {}
        self.rows = self.slots = 0
        self.table = array("q", world._table.tolist())
        self.last: Result | None = None
        self.instances: tuple[tuple[Any, ...], tuple[int, ...]] | None = None
        """Those last found to be fine: weak references, how often each had been changed in place."""

    def make_room(self, rows: int, slots: int) -> None:
        """Memory for so many rows, and scratch for so many pieces of a batch."""
        self.last = None  # its table has the addresses of memory that goes now
        if rows > self.rows:
            self.rows = max(rows, 64, 2 * self.rows)
            for f in self._dropped:
                self._put(f, self.rows)
        if slots > self.slots:
            self.slots = slots
            for f in self._scratch:
                self._put(f, slots)

    def _put(self, f: Field, count: int) -> None:
        layout = self._world._launcher_layout
        self._memory[f.name] = memory = np.zeros((count, *f.shape(self._world.sizes)), f.dtype)
        self.table[layout.slots[f.name]] = address_of(memory)
        if f.role is Role.SCRATCH:
            self.table[layout.slots[f.name] + 1] = memory.strides[0]

    def make_outputs(self, plan: Plan) -> Outputs:
        """The memory of the results of a plan that is new."""
        if len(self.outputs) >= SHAPES:
            self.outputs.clear()
        made = self.outputs[plan] = Outputs(plan)
        return made

    def remember(
        self,
        plan: Plan,
        state: State,
        shared: tuple[Any, ...],
        addresses: tuple[int, ...],
        versions: tuple[int, ...],
        known: bool = False,
    ) -> None:
        """Keeps the result of a step, to know it again. `known`: it hands on what the result before handed on."""
        self.last = None  # an interrupt leaves nothing behind that would be compared with the words of something else
        if not known or state[4] is None or not self._shared_is_noted:
            state = self._noted(plan, state, shared, known)
        if is_inference_mode_enabled():
            versions = ()
        handed = shared if plan.rows < REMEMBERED else [*map(weakref.ref, shared)]
        self.last = plan, state, handed, addresses, versions

    def _noted(self, plan: Plan, state: State, shared: tuple[Any, ...], known: bool) -> State:
        """The state after all was noted that is not yet, if it can be. What was not lent is not kept alive if it is
        large; what was lent is kept for later steps anyway."""
        tensors, places, table, at, noted = state
        if not known:
            self._shared_is_noted = self._same is not None and are_plain(shared)
            if self._shared_is_noted:
                self._shared.take(shared)
        if noted is None and self._shared_is_noted and are_plain(tensors):
            self._made.take(tensors)
            noted = self._made
        large = state[4] is None and plan.rows >= REMEMBERED
        kept = [*map(weakref.ref, tensors)] if large else tensors
        return kept, places, table, at, noted if self._shared_is_noted else None

    def known(self, plan: Plan, root: Any, hidden: Any) -> Known | None:
        """What the last result handed on (its tensors, their addresses and versions), its table and where that is, if
        it is what is given now. Where changes are counted there were none: all was checked. At last whether it is
        surely ours as it was made: numpy, which changes numbers without torch's counting it, has not seen it."""
        last = self.last
        if last is None or last[0] is not plan:
            return None
        _, (state, places, table, at, noted), shared, addresses, versions = last
        if isinstance(shared, list):
            shared = tuple([ref() for ref in shared])
        if isinstance(state, list):
            state = tuple([ref() for ref in state])
        # First of all: `same` reads at the noted addresses, which is safe only for tensors that the caller holds.
        if not plan.are_those(root, hidden, state, shared):
            return None
        same = 0 if noted is None else self._same(noted.address, len(state), self._shared.address, len(shared))
        if same == 0 and not _unchanged(plan, state, places, shared, addresses, versions):
            return None
        return shared, addresses, versions, table, at, same == UNSEEN

    def knows(self, shared: tuple[Any, ...]) -> bool:
        """Whether these instances were the last ones that were checked, and have not been changed since."""
        if self.instances is None:
            return False
        refs, versions = self.instances
        try:
            return (
                all(tensor is ref() for tensor, ref in zip(shared, refs, strict=True))
                and tuple(map(version_of, shared)) == versions
            )
        except RuntimeError:  # made in inference mode, where changes are not counted
            return False

    def learn(self, shared: tuple[Any, ...]) -> None:
        """These instances have been checked."""
        try:
            self.instances = tuple(map(weakref.ref, shared)), tuple(map(version_of, shared))
        except RuntimeError:
            self.instances = None


def _unchanged(
    plan: Plan,
    state: tuple[Any, ...],
    places: tuple[int, ...],
    shared: tuple[Any, ...],
    addresses: tuple[int, ...],
    versions: tuple[int, ...],
) -> bool:
    """Whether these tensors are as and where they were: whatever changes the values of a tensor in place counts up its
    version. A state that a kernel made has the version 0. In inference mode nothing is counted: without versions the
    caller has to check the values."""
    both = (*state, *shared)
    try:
        if tuple([tensor.data_ptr() for tensor in both]) != (*places, *addresses):
            return False
        if versions and (any(map(version_of, state)) or tuple(map(version_of, shared)) != versions):
            return False
        return (
            tuple([tensor.shape for tensor in both]) == plan.shapes
            and all(t.is_contiguous() for t in both)
            and tuple([tensor.dtype for tensor in both]) == plan.dtypes
        )
    except RuntimeError:  # one has no memory, or no version
        return False


class Outputs:
    """The memory of some results of one shape, to be written again once nobody holds it.

    A loop that drops its results lives in the near ones, which stay in the processor's cache. Whoever keeps an episode
    and then drops it goes round the far ones, the oldest first: it was given out first, so it is free first; of the
    near ones it asks for one a step only. What is held for longer is passed, LOOKS at a step. Who keeps still more
    finds no memory free: after some steps it is asked for every ASKED-th step only.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan, self._misses, self._passed = plan, 0, 0
        self._compiled = compiled() if len(plan.outputs) <= BITS and plan.is_flat else None
        self._near: list[tuple[Maker, Callable[[], bool]]] = []
        self._far: deque[tuple[Maker, Callable[[], bool]]] = deque()

    def free(self) -> Maker:
        """What gives out memory that is free, be it new; where all is held, what makes all anew."""
        if self._compiled is None:
            return self._plan.make
        # So many steps have looked at each of the far ones once.
        if self._misses > FAR // LOOKS and self._misses % ASKED:
            self._misses += 1
            return self._plan.make
        near, passed = self._near, self._passed
        for give, seems_free in near if passed == 0 or not near else (near[passed % len(near)],):
            if seems_free():
                self._misses = self._passed = 0
                return give
        self._passed = passed + 1
        far, size = self._far, self._plan.bytes
        for _ in range(min(LOOKS, len(far))):
            # Brings the oldest to the end, where it counts as the newest from now on, be it free or not.
            far.rotate(-1)
            give, seems_free = far[-1]
            if seems_free():
                self._misses = 0
                return give
        if len(near) < (NEAR if size < LARGE else 1):
            near.append(self._new())
            self._passed = 0
            return near[-1][0]
        if len(far) < FAR and (len(far) + 1) * size <= FAR_BYTES:
            far.append(self._new())
            return far[-1][0]
        self._misses += 1
        if self._misses >= PATIENCE:
            self._misses = self._passed = 0
            near.clear()
            far.clear()
        return self._plan.make

    def _new(self) -> tuple[Maker, Callable[[], bool]]:
        assert self._compiled is not None
        return self._plan.lend(self._compiled)
