"""Strange inputs for an environment. Each must raise a MilkrunError and change nothing, or be a valid call."""

import copy
from collections import deque
from fractions import Fraction

import numpy as np
import torch

from milkrun.core.errors import MilkrunError

SCALARS = [
    True,
    False,
    np.True_,
    np.False_,
    None,
    0.5,
    1.0,
    -0.0,
    float("nan"),
    float("inf"),
    1j,
    0j,
    np.complex64(1),
    np.float32(1),
    np.float64(2),
    "1",
    "",
    b"1",
    Fraction(1, 1),
    object(),
    {},
    {1},
    (),
    [],
    [[]],
    print,
    int,
    Ellipsis,
    NotImplemented,
    np.nan,
    np.datetime64("2020-01-01"),
    np.timedelta64(1),
    2**64,
    -(2**63) - 1,
    10**30,
    slice(1),
    range(2),
    iter([1]),
    np.zeros(0),
    np.array(None),
    np.array("x"),
    torch.tensor(True),
    torch.tensor(1.0),
    torch.tensor(1 + 1j),
    type("Odd", (), {"__array__": lambda self, *a, **k: 1 / 0})(),
]
"""Neither an action of any agent nor a seed."""
KINDS = ["bool", "c8", "c16", "f2", "f4", "f8", "O", "U3", "S3", "m8[s]", "M8[s]", [("a", "i8")]]
INTEGERS = ["i1", "u1", "i4", "u8", ">i8", "<i2"]
NUMBERS = [-1, -(2**31), 10**6, 2**40, 2**62, -(2**63), 2**63 - 1]


def pick(rng, things):
    return things[int(rng.integers(len(things)))]


def strange_scalar(rng):
    return copy.copy(thing) if isinstance(thing := pick(rng, SCALARS), (list, dict, set)) else thing


def strange_action(rng, valid):
    """Something in place of an array of valid actions, mostly almost valid."""
    ways = [_cast, _one_wrong, _one_wrong, _reshaped, _ragged, _other, _number, _tensor, _integers]
    return pick(rng, ways)(rng, valid)


def _cast(rng, valid):
    kind = pick(rng, KINDS)
    return np.zeros(valid.shape, kind) if kind in ("m8[s]", "M8[s]") or isinstance(kind, list) else valid.astype(kind)


def _nested(valid):
    return valid.tolist() if valid.ndim else [valid.item()]


def _place(rng, nested):
    """An innermost list of the nested lists, and one of its indices."""
    while isinstance(nested[0], list):
        nested = pick(rng, nested)
    return nested, int(rng.integers(len(nested)))


def _one_wrong(rng, valid):
    if not valid.ndim:
        return strange_scalar(rng)
    nested = _nested(valid)
    entries, k = _place(rng, nested)
    entries[k] = strange_scalar(rng)
    return nested


def _reshaped(rng, valid):
    forms = [valid[None], valid[..., None], np.stack([valid] * 2), np.broadcast_to(valid, (3, 2, *valid.shape))]
    if valid.ndim:
        forms += [valid[:-1], valid[:0], np.concatenate([valid, valid]), valid[0], valid[..., :0]]
    return pick(rng, forms)


def _ragged(rng, valid):
    nested = [_nested(valid), _nested(valid)] if valid.ndim < 2 else valid.tolist()
    entries, k = _place(rng, nested)
    del entries[k]
    return nested


def _other(rng, valid):
    return strange_scalar(rng)


def _number(rng, valid):
    changed = valid.copy().reshape(-1)
    changed[int(rng.integers(len(changed)))] = pick(rng, NUMBERS)
    changed = changed.reshape(valid.shape)
    return changed if rng.random() < 0.5 else changed.tolist()


def _tensor(rng, valid):
    kind = pick(rng, [torch.int64, torch.int32, torch.uint8, torch.bool, torch.float32, torch.complex64])
    made = torch.from_numpy(np.array(valid)).to(kind)
    return made.requires_grad_() if kind is torch.float32 else made


def _integers(rng, valid):
    made = valid.astype(pick(rng, INTEGERS))
    forms = [made, np.asfortranarray(made), np.stack([made] * 2, -1)[..., 0], made.tolist(), np.ma.masked_array(made)]
    if made.ndim:
        forms += [deque(made.tolist()), tuple(made.tolist()), list(made)]
    return pick(rng, forms)


def strange_seed(rng, rows):
    """A seed or a list of them."""
    one = pick(rng, [strange_scalar(rng), pick(rng, [-1, 2**63, 2**70, 5, np.int8(3), np.uint64(2**64 - 1)])])
    return pick(
        rng,
        [
            one,
            [one] * rows,
            [1, one, 2],
            np.array([1.5] * rows),
            [[1], [2, 3]],
            [1] * (rows + 1),
            (),
            "seed",
            np.arange(rows) - 1,
        ],
    )


def strange_options(rng):
    """Options of a reset."""
    one = strange_scalar(rng)
    return pick(
        rng,
        [
            one,
            {"instance": one},
            {"instance": {"locs": one}},
            {"reset_mask": one},
            {"level": 3},
            {1: 2},
            3,
            [one],
            {"instance": {}},
            {"reset_mask": [True, [False]]},
        ],
    )


def is_whole_numbers(given):
    """Whether every entry is an integer and no bool, in any container."""
    if isinstance(given, np.ndarray):
        return given.dtype.kind in "iu"
    if isinstance(given, torch.Tensor):
        return not given.dtype.is_floating_point and not given.dtype.is_complex and given.dtype != torch.bool
    if isinstance(given, (list, tuple, deque, range)):
        return all(map(is_whole_numbers, given))
    return isinstance(given, (int, np.integer)) and not isinstance(given, (bool, np.bool_))


def is_fine(given, shape, one_hot, pairs):
    """Whether these are valid actions: integers of this shape, or with one more axis of length one. `pairs` and
    `one_hot` also allow pairs, and a one-hot vector for each agent (the last axis)."""
    if one_hot and shape and hasattr(given, "__len__"):
        return len(given) == shape[0] and all(is_fine(one, shape[1:], one_hot, pairs) for one in given)
    if one_hot and np.ndim(given) == 1 and np.size(given) > 1:
        numbers = [complex(one) for one in given]
        return sorted(numbers, key=abs)[-1] == 1 and numbers.count(0) == len(numbers) - 1
    return is_whole_numbers(given) and np.shape(given) in (shape, (*shape, 1), *([(*shape, 2)] if pairs else []))


def frozen(world):
    """The whole state, as bytes."""
    return {name: array.tobytes() for name, array in world.state_dict().items()}


def error_of(call, *given):
    """The MilkrunError that a call raises, or None. Any other exception is a fault."""
    try:
        call(*given)
    except MilkrunError as e:
        assert str(e).strip() and not str(e).startswith("Traceback"), repr(e)
        return e
    return None
