"""Lent: tensors that are given out again and again, each time when nobody else holds them or what they are made of.

A step makes a dozen tensors, and making and freeing one takes half a microsecond. Whoever can read the memory of a
tensor holds the tensor, torch's part of it, or its storage: a view, a numpy array, a TensorDict, autograd, another
thread. So a tensor that nobody but the lender holds, and that is word for word what it was (`snapshot.py`), cannot be
told from a new one. (But for one flag: memory that numpy has seen cannot be made larger any more.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from milkrun.api.torchrl.snapshot import Compiled, Snapshot
from milkrun.core.memory import address_of


class Lent:
    """The tensors of these dtypes and shapes that are given out. `holders`: how often the lender itself holds each
    when it gives them out. Until `note` has said yes they may not be given out a second time, and `changed` may not be
    asked about them."""

    def __init__(
        self, wanted: Sequence[tuple[torch.dtype, torch.Size]], holders: Sequence[int], functions: Compiled
    ) -> None:
        strides = [torch.empty(shape, dtype=dtype, device="meta").stride() for dtype, shape in wanted]
        self._wanted = [(*each, stride) for each, stride in zip(wanted, strides, strict=True)]
        self._functions, self._snapshot = functions, Snapshot(len(wanted))
        self.address, self.count = self._snapshot.address, self._snapshot.count
        self._holders = np.array(holders, np.int64) + 1  # and `_tensors`
        self._expected = address_of(self._holders)
        self._tensors: tuple[torch.Tensor, ...] = ()

    def make(self) -> tuple[torch.Tensor, ...]:
        """New tensors, in new memory."""
        return self._renewed((1 << self.count) - 1, (1 << self.count) - 1)

    def replace(self, changed: int) -> tuple[torch.Tensor, ...]:
        """All tensors, those with a bit in `changed` made anew, in the same memory where nobody holds it."""
        return self._renewed(changed, self._functions.held(self.address, self.count))

    def _renewed(self, changed: int, held: int) -> tuple[torch.Tensor, ...]:
        if torch.is_inference_mode_enabled():  # what is given out later would be of inference mode for ever
            with torch.inference_mode(False):
                return self._renewed(changed, held)
        tensors: list[Any] = [*self._tensors] or [None] * self.count
        k = 0
        while changed >> k:
            if changed >> k & 1:
                tensors[k] = self._new(tensors[k], *self._wanted[k], bool(held >> k & 1))
            k += 1
        self._tensors = tuple(tensors)
        return self._tensors

    @staticmethod
    def _new(old: Any, dtype: torch.dtype, shape: torch.Size, strides: tuple[int, ...], held: bool) -> torch.Tensor:
        usual = type(old) is torch.Tensor and old.is_cpu and old.dtype is dtype and old.shape == shape
        if not usual or old.stride() != strides:
            return torch.empty(shape, dtype=dtype, device="cpu")
        # `data` is another tensor on the same memory, with a version of its own that begins at 0.
        return torch.empty_like(old) if held else old.data  # the first takes half the time of `empty`

    def note(self) -> bool:
        """Notes the tensors as they are, to be free whenever they are that again. False if anybody holds them beside
        the lender: then they are not to be given out again."""
        self._functions.take(self.address, self.count, id(self._tensors))
        return bool(self._functions.alone(self.address, self.count, self._expected))
