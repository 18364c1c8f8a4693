"""Checkpoints: one safetensors file whose metadata is one JSON text. Written atomically; checked when read.

Nothing in a file is trusted. No pickle is read and no name in it is imported. The header is compared with what the JSON
promises before any tensor is read, so a damaged or hostile file raises BadCheckpoint and takes no memory.
"""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from milkrun._version import __version__
from milkrun.core.errors import BadCheckpoint, MilkrunError, missing_extra
from milkrun.core.files import name_of, replace_file

try:
    from safetensors import SafetensorError
    from safetensors import torch as safetensors
except ImportError as e:
    raise missing_extra("safetensors", "learn") from e

FORMAT = 1
SUFFIX = ".safetensors"
KEY = "milkrun"  # the entry of the metadata
KINDS = ("policy", "run")
MOMENTS = ("exp_avg", "exp_avg_sq")  # of Adam
LONGEST_JSON = 2**20
LONGEST_HEADER = 2**22
DTYPES = {torch.float32: "F32", torch.float64: "F64", torch.int64: "I64"}
BYTES = {"F32": 4, "F64": 8, "I64": 8}

T = TypeVar("T")
Expected = Mapping[str, tuple[torch.Size, torch.dtype]]


def expected_of(module: torch.nn.Module, prefix: str = "") -> dict[str, tuple[torch.Size, torch.dtype]]:
    """The names, shapes and types of a module's tensors."""
    return {prefix + name: (tensor.shape, tensor.dtype) for name, tensor in module.state_dict().items()}


def name_of_infinite(module: torch.nn.Module) -> str:
    """The first parameter with values that are not finite; empty if there is none."""
    return next((name for name, p in module.named_parameters() if not bool(p.isfinite().all())), "")


def expected_moments(module: torch.nn.Module) -> dict[str, tuple[torch.Size, torch.dtype]]:
    """The names, shapes and types of `moments_of` a module."""
    return {f"{key}.{name}": (p.shape, p.dtype) for key in MOMENTS for name, p in module.named_parameters()}


def moments_of(module: torch.nn.Module, optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The moments of Adam for the parameters of a module, which are 0 before its first step."""
    return {
        f"{key}.{name}": optimiser.state.get(p, {}).get(key, torch.zeros_like(p))
        for key in MOMENTS
        for name, p in module.named_parameters()
    }


def load_moments(
    module: torch.nn.Module, optimiser: torch.optim.Optimizer, found: Mapping[str, Tensor], steps: int
) -> None:
    """Puts an Adam of all parameters of a module behind this number of its steps."""
    state = {
        k: {"step": torch.tensor(float(steps)), **{key: found[f"{key}.{name}"].clone() for key in MOMENTS}}
        for k, (name, _) in enumerate(module.named_parameters())
    }
    optimiser.load_state_dict({**optimiser.state_dict(), "state": state})


def part(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors whose names begin with a prefix, without it."""
    return {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}


def options_from(found: Mapping[str, Any], cls: type[T]) -> T:
    """The options in a description: all fields of the dataclass, each of the type of its default."""
    declared = fields(cls)  # type: ignore[arg-type]
    if set(found) != {f.name for f in declared}:
        raise BadCheckpoint("options: unknown or missing entries")
    for f in declared:
        kind = int if f.default is MISSING else type(f.default)
        value = found[f.name]
        if type(value) is not kind and not (kind is float and type(value) is int):
            raise BadCheckpoint(f"options: {f.name} = {str(value)[:40]} must be of type {kind.__name__}")
        if kind in (int, float) and not 0 <= value <= 2**62:
            raise BadCheckpoint(f"options: {f.name} = {str(value)[:40]} is out of range")
    return cls(**found)


def write(path: Path, about: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Replaces the file atomically: after a kill or a full disk the old or the new one is there, whole."""
    text = json.dumps({"format": FORMAT, "milkrun": __version__, "torch": torch.__version__, **about})
    if len(text) > LONGEST_JSON:
        raise BadCheckpoint(f"{path}: the description has {len(text):,} characters, more than {LONGEST_JSON:,}")
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    check_values(str(path), plain)
    write_file(path, safetensors.save(plain, {KEY: text}))


def write_file(path: Path, raw: bytes) -> None:
    """A file of a run, written atomically."""
    try:
        replace_file(path, raw)
    except OSError as e:
        raise BadCheckpoint(f"{path}: cannot be written: {e.strerror}") from None


def read(
    path: str | os.PathLike[str], expect: Callable[[dict[str, Any]], Expected]
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The description and the tensors of a file. `expect` makes the tensors that the description promises; whatever it
    raises for a description that makes no sense becomes BadCheckpoint."""
    name = name_of(path)
    try:
        raw, about = _open(name, expect)
        tensors = safetensors.load(raw)
    except BadCheckpoint:
        raise
    except OSError as e:
        raise BadCheckpoint(f"{name}: cannot be read: {e.strerror}") from None
    except SafetensorError as e:
        raise BadCheckpoint(f"{name}: is no whole safetensors file: {e}") from None
    check_values(name, tensors)
    return about, tensors


def check_values(name: str, tensors: Mapping[str, Tensor]) -> None:
    """Refuses values that no run can continue from."""
    for tensor, values in tensors.items():
        if values.is_floating_point() and not bool(values.isfinite().all()):
            raise BadCheckpoint(f"{name}: {tensor} has values that are not finite")
        if tensor.endswith(("var", ".count")) and bool((values < 0).any()):
            raise BadCheckpoint(f"{name}: {tensor} has a negative variance or count")


def _open(name: str, expect: Callable[[dict[str, Any]], Expected]) -> tuple[bytes, dict[str, Any]]:
    """The bytes of a file whose header is valid, and its description."""
    with open(os.open(name, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise BadCheckpoint(f"{name}: is no regular file")
        first = file.read(8)
        length = int.from_bytes(first, "little")
        if len(first) < 8 or length > min(LONGEST_HEADER, found.st_size - 8):
            raise BadCheckpoint(f"{name}: is no safetensors file: its header has no possible length")
        header = _json(name, file.read(length), "header")
        metadata = header.pop("__metadata__", None)
        if not isinstance(metadata, dict) or not isinstance(metadata.get(KEY), str):
            raise BadCheckpoint(f"{name}: is no checkpoint of Milkrun: its metadata has no {KEY!r}")
        about = _json(name, metadata[KEY].encode(), "description")
        if about.get("format") != FORMAT:
            raise BadCheckpoint(f"{name}: has the format {about.get('format')!r}; this version reads {FORMAT}")
        if about.get("kind") not in KINDS:
            raise BadCheckpoint(f"{name}: is of the kind {about.get('kind')!r}, not one of {', '.join(KINDS)}")
        size = _check_header(name, header, _expected(name, about, expect))
        if found.st_size != 8 + length + size:
            raise BadCheckpoint(f"{name}: has {found.st_size:,} bytes, not {8 + length + size:,}")
        file.seek(0)
        return file.read(8 + length + size), about


def _expected(name: str, about: dict[str, Any], expect: Callable[[dict[str, Any]], Expected]) -> Expected:
    try:
        return expect(about)
    except BadCheckpoint as e:
        raise BadCheckpoint(f"{name}: {e}") from None
    except MilkrunError:
        raise  # a world that is not registered, an option that it does not have: these say more
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RuntimeError) as e:
        raise BadCheckpoint(f"{name}: its description is not valid ({type(e).__name__}: {e})") from None


def _json(name: str, raw: bytes, part: str) -> dict[str, Any]:
    if len(raw) > LONGEST_HEADER:
        raise BadCheckpoint(f"{name}: its {part} is longer than {LONGEST_HEADER:,} bytes")
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError):
        raise BadCheckpoint(f"{name}: its {part} is no JSON") from None
    if not isinstance(found, dict):
        raise BadCheckpoint(f"{name}: its {part} is no JSON object")
    return found


def _check_header(name: str, header: dict[str, Any], expected: Expected) -> int:
    """Compares the tensors of a header with the expected ones; returns their bytes."""
    if missing := [tensor for tensor in expected if tensor not in header]:
        raise BadCheckpoint(f"{name}: lacks the tensor {missing[0]!r}")
    if strange := [tensor for tensor in header if tensor not in expected]:
        raise BadCheckpoint(f"{name}: has a tensor {strange[0][:80]!r} that its network does not have")
    total = 0
    for tensor, (shape, dtype) in expected.items():
        found = header[tensor] if isinstance(header[tensor], dict) else {}
        if found.get("shape") != list(shape) or found.get("dtype") != DTYPES[dtype]:
            raise BadCheckpoint(
                f"{name}: {tensor} is {str(found.get('dtype'))[:20]} {str(found.get('shape'))[:80]}, "
                f"expected {DTYPES[dtype]} {list(shape)}"
            )
        total += math.prod(shape) * BYTES[DTYPES[dtype]]
    return total
