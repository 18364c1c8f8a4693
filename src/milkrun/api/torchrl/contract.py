"""Runs a world in torch alone: its author defines three methods, everything else is here.

The author's methods get rows with one batch dimension, whatever the caller's batch is. Around them: the action mask
with one meaning, the count of steps, the tour, ends, rewards, illegal actions that change nothing, finished rows that
stay as they are.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import torch
from tensordict import TensorDict, TensorDictBase

from milkrun.core.errors import ConfigError, ShapeError


class Author(Protocol):
    """The methods of a world in torch; the base has defaults of all but the first three."""

    mask_true_means: str
    dense_reward: bool
    records_tour: bool
    max_steps: int | None

    @property
    def device(self) -> torch.device | None: ...

    def _reset_instance(self, td: TensorDict) -> TensorDict: ...
    def _get_action_mask(self, td: TensorDict) -> torch.Tensor: ...
    def _get_reward(self, td: TensorDict, actions: torch.Tensor) -> torch.Tensor: ...
    def _step_instance(self, td: TensorDict) -> TensorDict: ...
    def _check_done(self, td: TensorDict) -> torch.Tensor: ...


def flat(td: TensorDictBase) -> TensorDict:
    """The same rows with one batch dimension."""
    return td.reshape(td.batch_size.numel())  # -1 is ambiguous for empty batches


def rows_named(signal: torch.Tensor, batch: torch.Size) -> torch.Tensor:
    """The flat numbers of the rows that an entry `_reset` or `_step`, (*batch) or (*batch, 1), names."""
    if signal.dtype is not torch.bool or signal.shape not in (batch, (*batch, 1)):
        raise ShapeError(f"rows are named by bool of shape {(*batch, 1)}, not {signal.dtype} {tuple(signal.shape)}")
    return torch.from_numpy(np.flatnonzero((signal if signal.is_cpu else signal.cpu()).numpy()))


def allowed(env: Author, td: TensorDict) -> torch.Tensor:
    """The author's mask, (B, n), True = allowed."""
    if env.mask_true_means not in ("allowed", "forbidden"):
        raise ConfigError(f"mask_true_means = {env.mask_true_means!r}: must be 'allowed' or 'forbidden'")
    mask = env._get_action_mask(td)
    if mask.dtype is not torch.bool or mask.ndim != 2 or len(mask) != len(td):
        raise ShapeError(f"_get_action_mask must give bool ({len(td)}, n), not {mask.dtype} {tuple(mask.shape)}")
    return mask if env.mask_true_means == "allowed" else ~mask


def begin(env: Author, instance: TensorDict) -> TensorDict:
    """New episodes of these instances, (B,)."""
    td = env._reset_instance(instance.copy())
    rows, device = len(td), env.device
    no = torch.zeros((rows, 1), dtype=torch.bool, device=device)
    # Three tensors: in a shared one, an in-place change of one flag would change all.
    td.update({"done": no, "terminated": no.clone(), "truncated": no.clone()})
    td.set("i", torch.zeros((rows, 1), dtype=torch.int64, device=device))
    mask = td.set("action_mask", allowed(env, td))["action_mask"]
    _refuse_closed(mask, ~no[:, 0])
    if env.records_tour:
        td.set("tour", torch.full((rows, limit(env, mask)), -1, dtype=torch.int64, device=device))
    return td


def limit(env: Author, mask: torch.Tensor) -> int:
    """Steps until a row is truncated."""
    return env.max_steps or 2 * mask.shape[1] + 2


def advance(env: Author, td: TensorDict, action: torch.Tensor | None, dynamic: list[str]) -> TensorDict:
    """The rows (B,) one action later. Rows that have ended, and rows whose action is not allowed, keep their state."""
    before = {key: td[key] for key in dynamic}
    live = ~(td["terminated"] | td["truncated"])[:, 0]
    moves, action = _legal(td["action_mask"], _checked(action, len(td)), live)
    after = td.copy()
    for key in dynamic:
        after.set(key, before[key].clone())  # the author's step may write in place, but not into the caller's tensors
    after.set("action", action)
    after = env._step_instance(after)
    for key in dynamic:
        after.set(key, torch.where(_like(moves, before[key]), after[key], before[key]))
    # The count, the tour, the flags and the mask overwrite those of the author's step.
    after.set("i", before["i"] + live[:, None])
    if env.records_tour:
        after.set("tour", _recorded(before["tour"], action, moves))
    ended = env._check_done(after).reshape(-1) & live
    # A row that ends with its last allowed step is terminated, not truncated.
    late = (after["i"][:, 0] >= limit(env, td["action_mask"])) & live & ~ended
    after.set("terminated", before["terminated"] | ended[:, None])
    after.set("truncated", before["truncated"] | late[:, None])
    done = after["terminated"] | after["truncated"]
    mask = closed(allowed(env, after), done)
    _refuse_closed(mask, ~done[:, 0])
    after.update({"done": done, "action_mask": mask})
    return after.set("reward", _reward(env, after, action, moves, ended | late))


def closed(mask: torch.Tensor, done: torch.Tensor) -> torch.Tensor:
    """Rows that have ended allow their first action only."""
    first = torch.zeros_like(mask)
    first[:, 0] = True
    return torch.where(done, first, mask)


def drive(td: TensorDict) -> TensorDict:
    """The default step: to the node of the action, by `dist_matrix` or `dm` if there is one, else straight."""
    here, there = td["current_node"].reshape(-1), td["action"]
    rows = torch.arange(len(td), device=there.device)
    matrix = td.get("dist_matrix", td.get("dm", None))
    if matrix is not None:
        leg = matrix[rows, here, there]
    else:
        leg = (td["locs"][rows, here] - td["locs"][rows, there]).norm(dim=-1)
    visited = td["visited"].clone()
    visited[rows, there] = True
    length = td["tour_length"]
    td.update({"visited": visited, "current_node": there[:, None]})
    return td.set("tour_length", length + leg.reshape(length.shape))


def _checked(action: torch.Tensor | None, rows: int) -> torch.Tensor:
    if action is None:
        raise ShapeError("the TensorDict lacks 'action'")
    if action.numel() != rows or action.dtype == torch.bool or action.is_floating_point():
        raise ShapeError(f"'action' must be integers, one a row, not {action.dtype} of shape {tuple(action.shape)}")
    return action.reshape(rows).to(torch.int64)


def _legal(mask: torch.Tensor, action: torch.Tensor, live: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Which rows move, and actions within the mask: an illegal one is replaced, and its result is dropped."""
    inside = (action >= 0) & (action < mask.shape[1])
    fine = inside & mask.gather(1, action.clamp(0, mask.shape[1] - 1)[:, None])[:, 0]
    # argmax returns the first maximum, here the first allowed action. It does not support bool.
    return fine & live, torch.where(fine, action, mask.to(torch.int8).argmax(1))


def _recorded(tour: torch.Tensor, action: torch.Tensor, moves: torch.Tensor) -> torch.Tensor:
    # A live row has fewer steps than the tour has places. A row that has ended may be full; its index must be valid
    # too, though the result is dropped.
    taken = (tour >= 0).sum(1, keepdim=True).clamp(max=tour.shape[1] - 1)
    return torch.where(moves[:, None], tour.scatter(1, taken, action[:, None]), tour)


def _reward(
    env: Author, td: TensorDict, action: torch.Tensor, moves: torch.Tensor, ended: torch.Tensor
) -> torch.Tensor:
    reward = torch.zeros((len(td), 1), dtype=torch.float32, device=env.device)
    rows = moves if env.dense_reward else ended
    if bool(rows.any()):
        paid = env._get_reward(td, action) if env.dense_reward else env._get_reward(td[rows], td["tour"][rows])
        paid = paid.to(torch.float32).reshape(-1, 1)
        reward[rows] = paid[rows] if env.dense_reward else paid
    return reward


def _refuse_closed(mask: torch.Tensor, live: torch.Tensor) -> None:
    stuck = live & ~mask.any(1)
    if bool(stuck.any()):
        raise ShapeError(f"row {int(stuck.nonzero()[0])}: the action mask of a live row allows nothing")


def _like(rows: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Rows (B,) as a condition over a tensor (B, ...)."""
    return rows.reshape(-1, *([1] * (value.ndim - 1)))
