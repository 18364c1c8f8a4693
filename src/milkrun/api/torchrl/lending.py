"""Lent: memory that is given out as tensors, and known to be free again when nobody holds it.

Whoever can read memory holds its storage: a tensor, a view of it, a numpy array, a TensorDict, autograd, another
thread. Torch counts them, and Python counts those who have the storage object itself. So memory is free when both
counts are what they were at first, and it lies where it lay (it moves when it is shared with another process). Asking
for these takes three calls a tensor, dozens a step; one compiled function reads them where they stand: count and
address are the second and third word of a storage, Python's count is the first word of an object. That is torch's and
Python's own affair, so it is tried out first with several kinds of holders; where it does not show them, the calls are
made.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from ctypes import c_int64
from functools import cache
from typing import Any

import numpy as np
import torch
from numba import njit, types

from milkrun.core.cache import compile_module
from milkrun.core.kernels import KERNEL_OPTIONS, array_at, fetch
from milkrun.core.memory import address_of
from milkrun.core.threads import Entry

BITS = 62  # tensors whose answers fit into a number
WIDTH = 7  # of a storage, its object, a tensor and its object the address; then the three words as they were


def _no_holders(_: int) -> object:
    """Where torch does not count: equal to no answer before, so no memory is ever free."""
    return object()


holders: Callable[[int], Any] = getattr(torch._C, "_storage_Use_Count", _no_holders)
"""How many hold a storage; a private name of torch, and the only one in use here."""


class Lent:
    """The memory of some tensors, `tensors`, that nobody else ever sees: each is given out as `tensor.data`."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self.tensors = [*tensors]
        self._storages: list[Any] = [None] * len(tensors)
        self._before: list[Any] = [None] * len(tensors)
        self._words = np.zeros((len(tensors), WIDTH), np.int64)
        for k, tensor in enumerate(tensors):
            self._enter(k, tensor)

    def reader(self) -> tuple[Callable[[int, int], int], int, int]:
        """A function and the two numbers that it takes: it says which memory is held, a bit each, 0 if all is free."""
        count = len(self.tensors)
        quick = holders is not _no_holders and count <= BITS and _is_readable()
        return _reader().serial if quick else self._ask, address_of(self._words), count

    def first_is_free(self) -> bool:
        """Whether the first of them seems to be free: asked of many results before one is taken."""
        return bool(holders(self._first) == self._first_holders)

    def replace(self, held: int) -> list[torch.Tensor]:
        """Leaves the memory that is held to its holders, takes other memory, and returns all tensors."""
        with torch.inference_mode(False):  # else what is given out later would be of inference mode for ever
            for k, tensor in enumerate(self.tensors):
                if held >> k & 1:
                    self._enter(k, torch.empty_like(tensor))
        return self.tensors

    def _enter(self, k: int, tensor: torch.Tensor) -> None:
        self.tensors[k], self._storages[k] = tensor, tensor.untyped_storage()
        place, object_place = self._storages[k]._cdata, id(self._storages[k])
        self._before[k] = *self._found(k, place), place
        if k == 0:
            self._first, self._first_holders = place, self._before[k][0]
        words = [c_int64.from_address(at).value for at in (place + 8, place + 16, object_place)]
        self._words[k] = place, object_place, tensor._cdata, id(tensor), *words

    def _found(self, k: int, place: int) -> tuple[Any, int, int]:
        return holders(place), sys.getrefcount(self._storages[k]), self.tensors[k].data_ptr()

    def _ask(self, _: int, count: int) -> int:
        """What the compiled function says, by asking torch and Python."""
        before = self._before
        return sum(1 << k for k in range(count) if self._found(k, before[k][3]) != before[k][:3])


@cache
def _is_readable() -> bool:
    """Whether memory reads as held as long as somebody holds it, and as free before and after."""
    kinds: list[Callable[[torch.Tensor], object]] = [
        lambda t: t,
        lambda t: t[1:],
        lambda t: t.numpy(),
        lambda t: memoryview(t.numpy()),
        lambda t: t.untyped_storage(),
    ]
    lent = Lent([torch.zeros(3), torch.zeros(5)])
    read, address, count = _reader().serial, address_of(lent._words), 2
    for hold in kinds:
        free = read(address, count) == 0
        held = hold(lent.tensors[1].data)
        if not free or read(address, count) != 2:
            return False
        del held
    lent.tensors[0].share_memory_()
    return read(address, count) == 1


@cache
def _reader() -> Entry:
    names = {"njit": njit, "OPTIONS": {**KERNEL_OPTIONS, "nogil": False}, "array_at": array_at, "fetch": fetch,
             "int64": types.int64, "WIDTH": WIDTH}  # fmt: skip
    return Entry(compile_module("lending", _TEXT, names).read_held)


# What was not used for a while is far from the processor. It is asked for all at once, the tensors too, of which
# `.data` is taken next, and looked at after: one wait instead of one for each.
_TEXT = """# Written by milkrun.api.torchrl.lending; the module's name is a hash of this.

@njit(**OPTIONS)
def read_held(address, count):
    words = array_at(address, (count, WIDTH), None, int64)
    for k in range(count):
        for j in range(4):
            there = array_at(words[k, j], (1, 32), None, int64)
            fetch(there, 0, 0)
            fetch(there, 0, 8)
        tensor = array_at(words[k, 2], (1, 32), None, int64)
        fetch(tensor, 0, 16)
        fetch(tensor, 0, 24)
    held = 0
    for k in range(count):
        storage = array_at(words[k, 0], (3,), None, int64)
        storage_object = array_at(words[k, 1], (1,), None, int64)
        same = storage[1] == words[k, 4] and storage[2] == words[k, 5] and storage_object[0] == words[k, 6]
        if not same:
            held |= int64(1) << k
    return held
"""
