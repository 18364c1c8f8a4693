"""Steps of mutated TensorDicts, one process of them: `python -m tests.truth.fuzz_tensordicts SEED CASES ID[@CASE] ...`.

A case takes live rows, changes one to three entries and steps. The declared fields alone decide the expected result. A
missing field, a tensor of another type, shape or device, and a value outside its bounds must be refused by name. Values
that changed unseen by torch and that no kernel uses as an index may lead to wrong numbers, and to nothing worse. A
changed instance may break a rule that names another of its fields, or leave a live row without an action; the latter is
tested only for instances that the environment did not validate.

An accepted step must equal a step of fresh copies, leave its input and all other rows unchanged, and keep indices
within their bounds. A line is printed before each case and identifies the case in which a process died.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import random
import sys
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from tensordict import TensorDict, TensorDictBase

import milkrun
from milkrun.core.errors import MilkrunError
from milkrun.core.fields import Role

ROWS = 4
BLOCK = 100  # cases of one reset
UNFIT = "on this instance"
"""The end of the message for a state that contradicts its changed instance."""
HANGS = 120.0  # seconds for twenty lines, each of which takes milliseconds

INTS = (10**8, -1, -(2**31), 2**31 - 1, -(2**63), 2**63 - 1)
FLOATS = (float("nan"), float("inf"), -float("inf"), 1e30, -1e30, -1.0, 0.0)
OTHER_DTYPES = (
    torch.bool,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.float32,
    torch.float64,
    torch.complex64,
)

Key = tuple[str, ...]


class Entry(NamedTuple):
    """One entry of the TensorDicts of a world, as returned by a reset."""

    key: Key
    dtype: torch.dtype
    shape: torch.Size
    declared: bool  # a field that a step reads
    low: float | None
    high: float | None
    limit: bool  # +inf is a value
    watched: bool  # validated in every step, however it was written

    @property
    def name(self) -> str:
        return self.key[-1]


def entries_of(env: Any, td: TensorDictBase) -> dict[Key, Entry]:
    """All entries that are read: no groups of a team, no synonyms of a field."""
    world, found = env.template, {}
    for key in td.keys(include_nested=True, leaves_only=True):
        path = key if isinstance(key, tuple) else (key,)
        field = world.fields.get(path[-1]) if path[0] not in world.groups else None
        reads = field is not None and (field.role in (Role.INSTANCE, Role.STATE, Role.MASK) or field.name == "stream")
        low, high = field.bounds(world.sizes) if reads else (None, None)
        value = td.get(key)
        bounded = reads and field.dtype.kind in "iu" and high is not None
        watched = bounded and (field.role is not Role.INSTANCE or not field.dims)
        found[path] = Entry(path, value.dtype, value.shape, reads, low, high, reads and field.limit, watched)
    return found


# -- faults -------------------------------------------------------------------------------------------------------


def fault(entry: Entry, value: Any) -> str | None:
    """Why an entry must be refused by its declaration alone; None if it is valid."""
    if entry.name == "action":
        shapes = entry.shape, (*entry.shape, 1)  # dial-a-ride takes both
        good = isinstance(value, torch.Tensor) and value.shape in shapes and value.device.type == "cpu"
        return None if good and value.dtype in (torch.int16, torch.int32, torch.int64) else "no action"
    if not entry.declared:
        return None
    if not isinstance(value, torch.Tensor):
        return "missing" if value is None else "no tensor"
    if value.layout is not torch.strided or value.device.type != "cpu":
        return f"{value.layout} on {value.device}"
    if value.dtype is not entry.dtype or value.shape != entry.shape:
        return f"{value.dtype} {tuple(value.shape)}"
    plain = value.detach()
    bad = torch.zeros(plain.shape, dtype=torch.bool)
    if entry.low is not None:
        bad |= ~(plain >= entry.low)
    if entry.high is not None:
        above = ~(plain <= entry.high)
        bad |= above & (plain != float("inf")) if entry.limit else above
    return f"{plain[bad][0].item()} outside {entry.low}..{entry.high}" if bad.any() else None


def faults_of(td: TensorDictBase, known: dict[Key, Entry]) -> dict[str, str]:
    """Entries that must be refused, with the reason."""
    return {entry.name: why for entry in known.values() if (why := fault(entry, look_up(td, entry.key)))}


# -- mutations ----------------------------------------------------------------------------------------------------


class Mutation(NamedTuple):
    entry: Entry
    kind: str
    rows: frozenset[int] | None  # rows with changed values; None: not only values changed
    blind: bool = False  # written through numpy, unseen by torch, in values that no kernel uses as an index


def look_up(td: TensorDictBase, key: Key) -> Any:
    part: Any = td
    for name in key:
        part = part.get(name, None) if isinstance(part, TensorDictBase) else None
    return part


def put(td: TensorDictBase, key: Key, value: Any) -> None:
    td.get(key[0]).set(key[1], value) if len(key) == 2 else td.set(key[0], value)


def new_values(entry: Entry, draw: random.Random) -> Any:
    """A number of this dtype, mostly an invalid one."""
    if entry.dtype is torch.bool:
        return draw.choice([True, False])
    if entry.dtype.is_floating_point:
        return draw.choice([*FLOATS, *(x for x in (entry.low, entry.high) if x is not None)])
    info = torch.iinfo(entry.dtype)
    edges = [x + step for x in (entry.low, entry.high) if x is not None for step in (-1, 0, 1, 7)]
    return draw.choice([x for x in (*INTS, info.min, info.max, *edges, *edges) if info.min <= x <= info.max])


def change_values(td: TensorDictBase, entry: Entry, draw: random.Random) -> Mutation:
    """Changes values of one row or of all: by a new tensor, in place, or through numpy, unseen by torch."""
    value = look_up(td, entry.key)
    way = draw.choice(["set", "set", "in place", "numpy"])
    target = value.clone() if way == "set" else value
    rows = range(ROWS) if draw.random() < 0.3 else [draw.randrange(ROWS)]
    number = new_values(entry, draw)
    if target.dtype is torch.bool and draw.random() < 0.5:
        number = torch.tensor([[draw.random() < 0.5 for _ in range(target[0].numel())] for _ in rows])
        number = number.reshape(len(rows), *target.shape[1:])
    where: tuple[Any, ...] = (list(rows),)
    if not isinstance(number, torch.Tensor) and target.ndim > 1 and draw.random() < 0.6:
        where += tuple(draw.randrange(size) for size in target.shape[1:])
    if way == "numpy":
        target.numpy()[where] = number.numpy() if isinstance(number, torch.Tensor) else number
    else:
        target[where] = number
    if way == "set":
        put(td, entry.key, target)
    said = "random flags" if isinstance(number, torch.Tensor) else number
    return Mutation(entry, f"{way}: {said} in {where}", frozenset(rows), way == "numpy" and not entry.watched)


def change_tensor(td: TensorDictBase, entry: Entry, draw: random.Random) -> Mutation:
    """Another tensor, or the same one changed in place."""
    value, inside = look_up(td, entry.key), td if len(entry.key) == 1 else td.get(entry.key[0])
    kind = draw.choice(
        [
            "dtype",
            "dtype",
            "meta",
            "deleted",
            "parent deleted",
            "tail",
            "expanded",
            "strided",
            "sparse",
            "grad",
            "no tensor",
            "transposed",
            "transposed in place",
            "resized in place",
            "resized in place",
        ]
    )
    if kind == "dtype":
        other = draw.choice([dtype for dtype in OTHER_DTYPES if dtype is not value.dtype])
        kind = f"dtype {other}"
        put(td, entry.key, value.to(other))
    elif kind == "meta":
        put(td, entry.key, value.to("meta"))
    elif kind == "deleted":
        inside.del_(entry.key[-1])
    elif kind == "parent deleted" and inside is not td:
        td.del_(entry.key[0])
    elif kind == "tail":
        bent = [value.unsqueeze(-1), torch.stack([value, value], -1)]
        if value.ndim > len(inside.batch_size):
            bent += [torch.cat([value, value], -1), value[..., :-1]]
        put(td, entry.key, draw.choice(bent))
    elif kind == "expanded":
        put(td, entry.key, value[draw.randrange(ROWS)].clone().expand(value.shape))
    elif kind == "strided":
        put(td, entry.key, torch.stack([value, value], -1)[..., 0])
    elif kind == "sparse":
        put(td, entry.key, value.to_sparse())
    elif kind == "grad" and value.dtype.is_floating_point:
        put(td, entry.key, value.clone().requires_grad_())
    elif kind == "no tensor":
        put(td, entry.key, draw.choice(["a word", TensorDict({"value": value}, batch_size=inside.batch_size)]))
    elif kind == "transposed" and value.ndim > 1 + len(inside.batch_size):
        put(td, entry.key, value.transpose(-1, -2))
    elif kind == "transposed in place" and value.ndim > 1:
        value.transpose_(*draw.sample(range(value.ndim), 2))
    elif value.untyped_storage().resizable():  # not possible once numpy shares its memory
        kind = "resized in place"
        factor = draw.choice([2, 3])
        if draw.random() < 0.5 and value.shape[-1] >= factor:
            value.resize_(*value.shape[:-1], value.shape[-1] // factor)
        else:
            value.resize_(*value.shape[:-1], value.shape[-1] * factor)
    return Mutation(entry, kind, None)


def mutate(td: TensorDictBase, known: dict[Key, Entry], draw: random.Random) -> list[Mutation]:
    """Changes one to three entries, mostly entries that a step reads."""
    read = [entry for entry in known.values() if entry.declared]
    done: dict[Key, Mutation] = {}
    for _ in range(draw.choice([1, 1, 2, 3])):
        entry = draw.choice(read if draw.random() < 0.85 else list(known.values()))
        if entry.key in done or look_up(td, entry.key) is None:
            continue
        bend = change_values if draw.random() < 0.6 and entry.name != "action" else change_tensor
        with contextlib.suppress(RuntimeError, IndexError):  # two names of one tensor: already changed
            done[entry.key] = bend(td, entry, draw)
    return list(done.values())


# -- cases --------------------------------------------------------------------------------------------------------


def bits(td: TensorDictBase, known: dict[Key, Entry]) -> dict[Key, bytes]:
    """The bytes of every tensor entry, row after row."""
    found = {}
    for key in known:
        value = look_up(td, key)
        if isinstance(value, torch.Tensor) and value.layout is torch.strided and value.device.type == "cpu":
            found[key] = value.detach().numpy().tobytes()
    return found


def row_of(whole: bytes, row: int) -> bytes:
    return whole[row * len(whole) // ROWS : (row + 1) * len(whole) // ROWS]


def copied(td: TensorDictBase) -> TensorDict:
    """A copy with contiguous tensors of its own."""
    source = {
        key: copied(value) if isinstance(value, TensorDictBase) else value.detach().clone().contiguous()
        for key, value in td.items()
        if key != "next"
    }
    return TensorDict(source, batch_size=td.batch_size)


def with_actions(env: Any, td: TensorDictBase) -> TensorDictBase:
    acts = env.sample_actions(td)
    return td.update(acts) if isinstance(acts, TensorDictBase) else td.set("action", acts)


def later(env: Any, td: TensorDictBase, known: dict[Key, Entry]) -> dict[Key, bytes]:
    """The bytes of the rows one action later."""
    return bits(env.step(td).get("next"), known)


def check_step(
    env: Any, td: TensorDictBase, known: dict[Key, Entry], changed: list[Mutation], unchanged: TensorDictBase
) -> list[str]:
    """Steps and returns all faults found. `unchanged`: the same rows before the mutation."""
    faults = faults_of(td, known)
    names = {*faults, *(mutation.entry.name for mutation in changed)}
    names |= {env.template.synonyms[name] for name in names if name in env.template.synonyms}  # one tensor
    instances = {f.name for f in env.template.fields.values() if f.role is Role.INSTANCE}
    if names & instances:
        names |= instances
    before = bits(td, known)
    copy = None
    if not faults:
        with contextlib.suppress(Exception):  # entries that are never read may hold anything
            copy = copied(td)
    try:
        after = env.step(td).get("next")
    except MilkrunError as error:
        said = str(error)
        right = any(name in said for name in names) or said.endswith(UNFIT)
        wrong = [] if right else [f"names none of {sorted(names)}: {said}"]
        return wrong + (["a refused step wrote to its TensorDict"] if bits(td, known) != before else [])
    except Exception as error:
        return [f"raw {type(error).__name__}: {error}"]
    if any(mutation.blind for mutation in changed):  # may be stepped, as long as nothing raises
        return []
    if faults:
        return [f"stepped in silence: {name} {why}" for name, why in faults.items()]
    wrong = ["a step wrote to its TensorDict"] if bits(td, known) != before else []
    for entry in known.values():
        if entry.low is not None and entry.high is not None and not entry.dtype.is_floating_point:
            if why := fault(entry, look_up(after, entry.key)):
                wrong.append(f"a step made {entry.name} {why}")
    made = bits(after, known)
    try:
        if copy is not None and later(env, copy, known) != made:
            wrong.append("a step of fresh copies gives something else")
    except MilkrunError as error:  # `fault` validates tensors that torch reports as changed, so also copies
        blind = any(mutation.kind.startswith("numpy") for mutation in changed)
        if not blind and not str(error).endswith(UNFIT):
            wrong.append(f"stepped, though fresh copies are refused: {error}")
    touched = [mutation.rows for mutation in changed]
    if all(rows is not None for rows in touched):
        same = [row for row in range(ROWS) if not any(row in rows for rows in touched)]
        want = later(env, unchanged, known)
        if any(row_of(made[key], row) != row_of(parts, row) for key, parts in want.items() for row in same):
            wrong.append("rows that were not changed played otherwise")
    return wrong


def cases(world_id: str, seed: int, first: int, last: int) -> Iterator[dict[str, Any]]:
    """Yields a line before every case and a line for every fault."""
    env = milkrun.make(world_id, ROWS, api="torchrl", seed=seed)
    base = known = None
    for case in range(first - first % BLOCK, last):
        env.set_seed(zlib.crc32(f"{world_id} {seed} {case}".encode()))
        if case % BLOCK == 0:
            base = env.reset()
        base = with_actions(env, base)
        if known is None:
            known = entries_of(env, base)
            env.step(copied(base))  # compiles before the time limit of the first case starts
        if case >= first:
            yield from one_case(env, base, known, world_id, seed, case)
        base = env.step_and_maybe_reset(base)[1]


def one_case(
    env: Any, base: TensorDictBase, known: dict[Key, Entry], world_id: str, seed: int, case: int
) -> Iterator[dict[str, Any]]:
    draw = random.Random(f"{world_id} {seed} {case}")
    td = unchanged = copied(base)
    if draw.random() < 0.5:  # rows made by the environment's own last step, which it may recognise
        unchanged = with_actions(env, copied(env.step(copied(base)).get("next")))
        td = env.step(td).get("next").clear_device_()
        for key in known:
            if key[-1] == "action":
                put(td, key, look_up(unchanged, key).clone())
    else:
        td = copied(td)
    changed = mutate(td, known, draw)
    what = "; ".join(f"{'.'.join(mutation.entry.key)} {mutation.kind}" for mutation in changed)
    yield {"world": world_id, "case": case, "what": what}
    if own := faults_of(unchanged, known):
        yield {"world": world_id, "case": case, "what": "nothing changed", "wrong": f"impossible by itself: {own}"}
    for wrong in check_step(env, td, known, changed, unchanged):
        yield {"world": world_id, "case": case, "what": what, "wrong": wrong}


def main(seed: int, count: int, worlds: list[str]) -> None:
    torch.set_num_threads(1)
    for spec in worlds:
        world_id, _, first = spec.partition("@")
        for said, line in enumerate(cases(world_id, seed, int(first or 0), count)):
            print(json.dumps(line), flush=True)
            if said % 20 == 0:
                faulthandler.dump_traceback_later(HANGS, exit=True)
        faulthandler.cancel_dump_traceback_later()
        print(json.dumps({"world": world_id, "done": count}), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
