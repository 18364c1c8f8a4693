"""Snapshot: the inner words of some tensors, kept to see later, by one compiled call, whether they are as they were and
whether anybody else holds them.

Asking a tensor for its address, shape, version, gradient, attributes and holders takes a dozen calls, and a step has
twenty tensors. All of it stands in four places in memory: Python's object, torch's tensor behind it (its body), what
counts that tensor's changes in place, its storage. So their words are compared with what they were. No meaning is read
into a word but for the addresses that lead from one place to the next and the counts of holders.

How these places look is torch's and Python's own affair. So this is done with versions of both that all the tests
were run with, and with no other: a holder kept somewhere else would be overlooked in silence. With these it is still
found by trying, when first needed, where the words stand, and then every way to hold or to change a tensor that we know
of has to show. Otherwise `compiled` gives None and callers do without, more slowly. Only tensors that the caller holds
may be compared, and each place is read only after the address that leads there was found to be the same: what is read
is always there.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterator
from ctypes import c_int64
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from numba import njit, types

from milkrun.core.cache import compile_module
from milkrun.core.kernels import KERNEL_OPTIONS, array_at, fetch
from milkrun.core.memory import address_of
from milkrun.core.threads import Entry

PYTHON, TORCH = {(3, 11), (3, 12), (3, 13)}, {(2, 13)}  # the versions that were tried, each with each
BITS = 62  # tensors whose answers fit into a number
ITEMS = 3  # the word of a tuple where its objects begin
ATTRIBUTES_BEFORE = 1 << 4  # the flag of types whose objects have their attributes in words before them,
BEFORE = (-4, -3)  # these; -2 and -1 are the garbage collector's
BODY = 26  # words that torch's tensor has at most: they end with the set of its dispatch keys
INLINE = 5  # dimensions whose sizes and strides stand in the body itself
COUNTER = 4  # of a counter of changes; the version is one of them
STORAGE = 10  # of a storage that are looked at
MEMORY = 3  # of these the ones that say where its memory lies and whose it is
UNSEEN, SEEN = 1, 2  # what `same` says of tensors that are: numpy has not seen their memory, or it has
PLACES = 4  # words of a line: where the four places are; what stands there follows


class Compiled(NamedTuple):
    """The compiled functions. All take the address of a snapshot's words, and how many tensors it has."""

    take: Callable[[int, int, int], int]  # and the address of a tuple of tensors: notes them
    same: Callable[[int, int, int, int], int]  # of two snapshots: 0, or if all are as they were, whoever holds them,
    # UNSEEN or SEEN: in the first by numpy at any time (memory may be given out again), in the second since it was
    # taken
    held: Callable[[int, int], int]  # which are not held by as many as then, or moved: a bit each
    changed: Callable[[int, int], int]  # which are either
    alone: Callable[[int, int, int], int]  # and where numbers stand: whether so many held the object of each, and
    # nobody else its body and its storage, when they were noted


class Word(NamedTuple):
    """A word that is compared."""

    place: str  # o: object, b: body, c: counter, s: storage
    number: int
    kind: str  # "count" of holders, "address" of a place or of the memory, "flag" of numpy, "other"


class Layout(NamedTuple):
    """The words of a tensor, those of each place together and in order; where its places are in them; what the counts
    of a body and of a storage are with one holder; the bit of the flags of a storage that says whether numpy has seen
    its memory, and what it is where numpy has not."""

    words: tuple[Word, ...]
    body: int
    counter: int
    storage: int
    single_body: int
    single_storage: int
    seen: int
    unseen: int

    @property
    def width(self) -> int:
        """Numbers in a line, which is a tensor."""
        return PLACES + len(self.words)

    @property
    def body_size(self) -> int:
        """Words of a body."""
        return sum(word.place == "b" for word in self.words)


class Snapshot:
    """The words of so many tensors, once they were taken."""

    def __init__(self, count: int) -> None:
        layout = None if compiled() is None else _layout()
        self._words = np.zeros((count, 0 if layout is None else layout.width), np.int64)
        self.address, self.count = address_of(self._words), count

    def take(self, tensors: tuple[torch.Tensor, ...]) -> None:
        """Notes what these are now. Only where `compiled` gives something; only `are_plain` tensors."""
        functions = compiled()
        assert functions is not None and self._words.size
        functions.take(self.address, self.count, id(tensors))


def are_plain(tensors: tuple[Any, ...]) -> bool:
    """Whether these can be noted: dense tensors of torch's own class, with all that they are in their bodies."""
    return all(type(t) is torch.Tensor and t.layout is torch.strided and t.dim() <= INLINE for t in tensors)


def compiled() -> Compiled | None:
    """The functions, if all that they must see was seen in a trial."""
    try:
        return _compiled()
    except Exception:  # something could not be tried: no shared memory, inside `torch.func.vmap`, ...
        return None


def are_tried(python: tuple[int, int], torch_version: str) -> bool:
    """Whether these versions, of the usual Python with its lock, are among those tried."""
    locked = getattr(sys, "_is_gil_enabled", lambda: True)()
    release = tuple(int(part) for part in torch_version.split(".")[:2] if part.isdigit())
    return sys.implementation.name == "cpython" and locked and python in PYTHON and release in TORCH


@cache
def _compiled() -> Compiled | None:
    layout = _layout()
    if layout is None:
        return None
    # Python's lock is not released: nobody can take hold of a tensor, or let go of one, while its words are read.
    names = {
        "njit": njit,
        "OPTIONS": {**KERNEL_OPTIONS, "nogil": False},
        "array_at": array_at,
        "fetch": fetch,
        "int64": types.int64,
    }
    module = compile_module("snapshot", _text(layout), names)
    entries = [Entry(getattr(module, name)) for name in Compiled._fields]
    sound = _tried(Compiled(*(entry.serial for entry in entries)), layout)
    return Compiled(*(entry.serial for entry in entries)) if sound else None


# -- where the words stand --------------------------------------------------------------------------------------------


@cache
def _layout() -> Layout | None:
    """Found by looking for addresses that are known; None where one of them is not found, or more than once."""
    if not are_tried(sys.version_info[:2], torch.__version__) or sys.maxsize < 2**32:
        return None
    with torch.inference_mode(False):
        try:
            return _found(_zeros(3), _zeros(3))
        except LookupError:
            return None


def _found(tensor: torch.Tensor, untouched: torch.Tensor) -> Layout:
    """The layout as seen in the first; the other shows what the counts are of a tensor that nobody ever held."""
    items, size = (tensor,), torch.Tensor.__basicsize__ // 8
    before = BEFORE if torch.Tensor.__flags__ & ATTRIBUTES_BEFORE else ()
    body = _only(k for k in range(1, size) if _word(id(tensor), k) == tensor._cdata)
    if _word(id(items), ITEMS) != id(tensor):
        raise LookupError("a tuple does not begin where it was thought to")
    keys = torch._C._dispatch_keys(tensor).raw_repr()
    end = next((k + 1 for k in range(BODY) if _word(tensor._cdata, k) == keys), 0)
    alias, other = tensor.detach(), tensor.data  # the first counts its changes with the tensor, the second for itself
    words, of_alias, of_other = (_words(t._cdata, end) for t in (tensor, alias, other))
    counter = _only(k for k in range(end) if words[k] == of_alias[k] != of_other[k] and _is_address(words[k]))
    # A version that no other word of the counter has by chance.
    for _ in range(77):
        tensor.add_(1)
    version = _only(k for k in range(1, COUNTER) if _word(words[counter], k) & 0xFFFFFFFF == 77)
    at = tensor.untyped_storage()._cdata
    storage = _only(k for k in range(end) if words[k] == at)
    data = min((k for k in range(STORAGE - MEMORY + 1) if _word(at, k) == tensor.data_ptr()), default=-1)
    stored = _words(at, STORAGE)
    view = tensor[1:]  # holds the body and the storage
    body_count = _only(k for k in range(end) if _word(tensor._cdata, k) != words[k])
    storage_count = _only(k for k in range(STORAGE) if _word(at, k) != stored[k])
    del view
    if data <= storage_count:
        raise LookupError("a storage does not look as it was thought to")
    stored = _words(at, STORAGE)
    tensor.numpy()  # after that its memory cannot be made larger any more, and torch notes it
    flags = _only(k for k in range(STORAGE) if _word(at, k) != stored[k])
    seen = _word(at, flags) ^ stored[flags]
    compared = [
        *(Word("o", k, "count" if k == 0 else "address" if k == body else "other") for k in (*before, *range(size))),
        *(
            Word("b", k, "count" if k == body_count else "address" if k in (counter, storage) else "other")
            for k in range(end)
        ),
        Word("c", version, "other"),
        Word("s", storage_count, "count"),
        *(Word("s", k, "address") for k in range(data, data + MEMORY)),
        Word("s", flags, "flag"),
    ]
    single = _word(untouched._cdata, body_count), _word(_word(untouched._cdata, storage), storage_count)
    return Layout(tuple(compared), body, counter, storage, *single, seen, stored[flags] & seen)


def _word(address: int, k: int) -> int:
    return c_int64.from_address(address + 8 * k).value


def _words(address: int, count: int) -> list[int]:
    return [_word(address, k) for k in range(count)]


def _only(found: Iterator[int]) -> int:
    numbers = [*found]
    if len(numbers) != 1:
        raise LookupError("a word was not found, or more than once")
    return numbers[0]


def _zeros(*shape: int) -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.float32, device="cpu")


def _is_address(word: int) -> bool:
    return word % 8 == 0 and 2**16 < word < 2**47


# -- the trial --------------------------------------------------------------------------------------------------------


def _assign(name: str, value: Callable[[], Any]) -> Callable[[torch.Tensor], None]:
    return lambda tensor: setattr(tensor, name, value())


Deed = Callable[[torch.Tensor], object]

HOLDERS: list[Deed] = [
    lambda t: t,
    lambda t: t[1:],
    lambda t: t.detach(),
    lambda t: t.data,
    lambda t: t.numpy(),
    lambda t: memoryview(t.numpy()),
    lambda t: torch.utils.dlpack.to_dlpack(t),
    lambda t: t * _zeros(4, 1).requires_grad_(),
]

FOR_GOOD: list[Deed] = [lambda t: t.untyped_storage()]  # seen to be held also when they are gone
if hasattr(torch, "_lazy_clone"):
    FOR_GOOD.append(torch._lazy_clone)

SEERS: list[Deed] = [weakref.ref]  # they do not hold a tensor, but know it again

CHANGES: list[Deed] = [
    lambda t: t.add_(1),
    lambda t: t.t_(),
    lambda t: t.unsqueeze_(0),
    lambda t: t.resize_(2, 1),
    lambda t: t.resize_(400, 1),
    lambda t: t.set_(_zeros(4, 1)),
    lambda t: t.requires_grad_(),
    lambda t: t.share_memory_(),
    lambda t: t.untyped_storage().resize_(64),
    lambda t: torch.utils.swap_tensors(t, _zeros(4, 1)),
    lambda t: torch._C._set_neg(t, True),  # a dispatch key, and nothing else
    _assign("data", lambda: _zeros(4, 1)),
    _assign("grad", lambda: _zeros(4, 1)),
    _assign("__class__", lambda: torch.nn.Parameter),
    _assign("note", lambda: 1),
]


def _tried(functions: Compiled, layout: Layout) -> bool:
    """Whether each holder and each change is seen, and holders only as long as they are there."""
    words = np.zeros((2, layout.width), np.int64)
    at = address_of(words)

    def seen() -> tuple[bool, int, int]:
        return bool(functions.same(at, 2, at, 2)), functions.held(at, 2), functions.changed(at, 2)

    def fresh(*shape: int) -> tuple[torch.Tensor, torch.Tensor]:
        tensors = _zeros(*shape), _zeros(*shape)
        functions.take(at, 2, id(tensors))
        return tensors

    with torch.inference_mode(False), torch.enable_grad():
        for hold in (*HOLDERS, *FOR_GOOD, *SEERS):
            tensors = fresh(4, 1)
            before, held = seen(), hold(tensors[1])
            during = seen()
            del held
            after = during if hold in FOR_GOOD else before
            if before != (True, 0, 0) or during[1:] != (0 if hold in SEERS else 2, 2) or seen() != after:
                return False
        tensors, right, wrong = fresh(4, 1), np.array([1, 1]), np.array([1, 2])
        if not functions.alone(at, 2, address_of(right)) or functions.alone(at, 2, address_of(wrong)):
            return False
        tensors = fresh(4, 1)
        tensors[1].numpy()  # and lets go
        if functions.same(at, 2, at, 2) != SEEN or seen()[1:] != (0, 0):
            return False
        for change in CHANGES:
            tensors = fresh(4, 1)
            change(tensors[1])
            # `same` and `changed`. Some changes leave all holders as they were, so `held` may say anything.
            if seen()[::2] != (False, 2):
                return False
        tensors = fresh(*range(1, 1 + INLINE))
        tensors[1].data = tensors[1].data.transpose(INLINE - 2, INLINE - 1)
        return seen()[::2] == (False, 2)


# -- what is compiled -------------------------------------------------------------------------------------------------


def _text(layout: Layout) -> str:
    """The functions for one layout. Each place has its array: o begins with the first word that is compared."""
    start = layout.words[0].number
    end = max(word.number for word in layout.words if word.place == "o") + 1

    def shown(word: Word) -> str:
        return f"{word.place}[{word.number - start if word.place == 'o' else word.number}]"

    def comparison(name: str, kinds: str) -> str:
        differ = {
            place: " | ".join(
                f"({shown(word)} ^ w[k, {PLACES + k}])"
                for k, word in enumerate(layout.words)
                if word.place == place and word.kind in kinds
            )
            or "int64(0)"
            for place in "obcs"
        }
        return _COMPARISON.format(
            name=name,
            start=8 * start,
            size=end - start,
            body=layout.body_size,
            counter=COUNTER,
            storage=STORAGE,
            **differ,
        )

    flags = next(word for word in layout.words if word.kind == "flag")
    counts = [PLACES + k for k, word in enumerate(layout.words) if word.kind == "count"]
    noted = [f"w[k, {PLACES + k}] = {shown(word)}" for k, word in enumerate(layout.words)]
    comparisons = (("as_given", "address other"), ("as_held", "address count"), ("as_was", "address count other"))
    return _TEXT.format(
        comparisons="".join(comparison(*each) for each in comparisons),
        width=layout.width,
        items=8 * ITEMS,
        start=8 * start,
        size=end - start,
        at_body=layout.body - start,
        at_counter=layout.counter,
        at_storage=layout.storage,
        body=layout.body_size,
        counter=COUNTER,
        storage=STORAGE,
        noted="\n        ".join(noted),
        o_count=counts[0],
        b_count=counts[1],
        s_count=counts[2],
        single_body=layout.single_body,
        single_storage=layout.single_storage,
        seen=layout.seen,
        unseen=layout.unseen,
        flags=flags.number,
        noted_flags=PLACES + layout.words.index(flags),
    )


_COMPARISON = """

@njit(**OPTIONS)
def {name}(w, k):
    o = array_at(w[k, 0] + {start}, ({size},), None, int64)
    if {o}:
        return False
    b = array_at(w[k, 1], ({body},), None, int64)
    if {b}:
        return False
    c = array_at(w[k, 2], ({counter},), None, int64)
    s = array_at(w[k, 3], ({storage},), None, int64)
    return ({c} | {s}) == 0
"""

# What was not used for a while is far from the processor. It is asked for all at once and looked at after: one wait
# instead of one for each.
_TEXT = """# Written by milkrun.api.torchrl.snapshot; the module's name is a hash of this.
{comparisons}

@njit(**OPTIONS)
def ask_for(w, count):
    for k in range(count):
        for j in range(4):
            there = array_at(w[k, j], (1, 32), None, int64)
            fetch(there, 0, 0)
            fetch(there, 0, 8)
        there = array_at(w[k, 1], (1, 32), None, int64)
        fetch(there, 0, 16)


@njit(**OPTIONS)
def flags_of(w, k):
    return array_at(w[k, 3], ({storage},), None, int64)[{flags}]


@njit(**OPTIONS)
def take(words, count, tensors):
    w = array_at(words, (count, {width}), None, int64)
    items = array_at(tensors + {items}, (count,), None, int64)
    for k in range(count):
        w[k, 0] = items[k]
        o = array_at(w[k, 0] + {start}, ({size},), None, int64)
        w[k, 1] = o[{at_body}]
        b = array_at(w[k, 1], ({body},), None, int64)
        w[k, 2] = b[{at_counter}] or w[k, 1]  # a tensor of inference mode has no counter: any words that stay will do
        w[k, 3] = b[{at_storage}] or w[k, 1]
        c = array_at(w[k, 2], ({counter},), None, int64)
        s = array_at(w[k, 3], ({storage},), None, int64)
        {noted}
    return 0


@njit(**OPTIONS)
def same(words, count, more_words, more):
    w = array_at(words, (count, {width}), None, int64)
    v = array_at(more_words, (more, {width}), None, int64)
    ask_for(w, count)
    ask_for(v, more)
    seen = 0
    for k in range(count):
        if not as_given(w, k):
            return 0
        seen |= flags_of(w, k) ^ int64({unseen})
    for k in range(more):
        if not as_given(v, k):
            return 0
        seen |= flags_of(v, k) ^ v[k, {noted_flags}]
    return 2 if seen & {seen} else 1


@njit(**OPTIONS)
def held(words, count):
    w = array_at(words, (count, {width}), None, int64)
    found = 0
    for k in range(count):
        if not as_held(w, k):
            found |= int64(1) << k
    return found


@njit(**OPTIONS)
def changed(words, count):
    w = array_at(words, (count, {width}), None, int64)
    ask_for(w, count)
    found = 0
    for k in range(count):
        if not as_was(w, k):
            found |= int64(1) << k
    return found


@njit(**OPTIONS)
def alone(words, count, holders):
    w = array_at(words, (count, {width}), None, int64)
    expected = array_at(holders, (count,), None, int64)
    for k in range(count):
        objects = w[k, {o_count}] & int64(0xFFFFFFFF)  # above it Python may have flags
        if objects != expected[k] or w[k, {b_count}] != {single_body} or w[k, {s_count}] != {single_storage}:
            return 0
    return 1
"""
