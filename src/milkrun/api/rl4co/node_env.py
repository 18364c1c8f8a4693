"""NodeEnv: any world whose action is a node, as an RL4CO environment.

Milkrun's functional TorchRL environment of the world, `env.torchrl`, steps the rows; TensorDicts have its keys. This
file adds RL4CO's calls: its generator, its step, the return of whole solutions, and the start nodes of POMO.
"""

from __future__ import annotations

import os
import secrets
from typing import Any

import torch
from rl4co.envs.common.base import RL4COEnvBase
from rl4co.envs.common.utils import Generator
from tensordict import TensorDict

from milkrun.api._td import entries, put
from milkrun.api.rl4co.envs import THEIR_KEYWORDS
from milkrun.api.torchrl.classes import env_class
from milkrun.api.torchrl.env import TorchRLEnv
from milkrun.core.arguments import check_seed
from milkrun.core.errors import BadSolution, ConfigError, ShapeError
from milkrun.core.features import entries_apart, fits
from milkrun.core.registry import make as make_world
from milkrun.core.registry import world_spec


class WorldGenerator(Generator):
    """Draws instances by the law of a world: `generator([64])` is a TensorDict of all instance fields and of `stream`,
    the keys of the rows' random streams.

    Batch k of seed s has the instances of the k-th reset of the TorchRL environment with that seed; batch 0 those of a
    `World` with that seed.
    """

    def __init__(self, torchrl: TorchRLEnv) -> None:
        self.torchrl = torchrl
        self.num_loc = torchrl.template.num_actions - entries_apart(torchrl.template)

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of an instance."""
        return (*self.torchrl.reader.names, "stream")

    def _generate(self, batch_size: Any, **_: Any) -> TensorDict:
        td = self.torchrl.reset(batch_size=list(batch_size))
        drawn = {name: self.torchrl.reader.find(td, name) for name in self.keys}
        return TensorDict(drawn, batch_size=td.batch_size, device=td.device)


class NodeEnv(RL4COEnvBase):
    """The world of an id, for RL4CO's policies and trainers. Its embeddings: `milkrun.api.rl4co.embeddings(env)`.

    Keywords are those of RL4CO's environments and the options of the world.

    check_solution: `get_reward` raises BadSolution for an action that is not allowed and for a solution that does not
    end its episode. Off by default, since RL4CO's decoders follow the mask.
    """

    def __init__(
        self,
        world_id: str,
        *,
        seed: int | None = None,
        preset: str | None = None,
        config: Any = None,
        first_row: int = 0,
        illegal: str = "noop",
        threads: int | None = None,
        check_solution: bool = False,
        **keywords: Any,
    ) -> None:
        theirs = {key: keywords.pop(key) for key in THEIR_KEYWORDS & keywords.keys()}
        spec, seed = world_spec(world_id), secrets.randbits(63) if seed is None else check_seed(seed)
        world = make_world(spec.id, 1, preset=preset, config=config, illegal=illegal, threads=threads, **keywords)
        if why := fits(world):
            raise ConfigError(f"{spec.id} has no RL4CO environment, because {why}")
        torchrl = env_class(spec.id)(
            seed=seed,
            preset=preset,
            config=config,
            first_row=first_row,
            illegal=illegal,
            threads=threads,
            features=any(field.feature for field in world.observed),
            **keywords,
        )
        super().__init__(seed=seed, check_solution=check_solution, **theirs)
        self.name = torchrl.name
        self.torchrl = torchrl.to(self.device)
        self.generator = WorldGenerator(torchrl)
        self._make_spec()

    def reset(self, td: TensorDict | None = None, batch_size: Any = None) -> TensorDict:
        """Begins episodes: of new instances, or of those in `td`, whose other keys are kept. With its key `stream`, as
        from the generator or an earlier reset, `td` determines the whole episode."""
        return self._reset(td, batch_size)

    def _reset(self, td: TensorDict | None = None, batch_size: Any = None) -> TensorDict:
        if td is None or td.is_empty():
            td = self.generator(self.batch_size if batch_size is None else batch_size)
        self.to(td.device)
        reader = self.torchrl.reader
        begun = self.torchrl.reset(td) if reader.find(td, "stream") is None else self.torchrl.rewind(td)
        kept = td.exclude("hidden", *self.generator.keys, *reader.layout(td))
        return kept.update(begun)

    def _step(self, td: TensorDict) -> TensorDict:
        """The next rows, with the other keys of `td`. RL4CO's own environments change `td`; this one does not, so a
        baseline may play it again."""
        following, kept = self.torchrl.step(td.copy())["next"], td.copy()
        for key, value in entries(following).items():
            put(kept, key, value)
        return kept

    def _get_reward(self, td: TensorDict, actions: torch.Tensor) -> torch.Tensor:
        return self._play(td, actions, strict=False)

    def check_solution_validity(self, td: TensorDict, actions: torch.Tensor) -> None:
        """Raises BadSolution with the row whose actions are not allowed or do not end the episode."""
        self._play(td, actions, strict=True)

    def _play(self, td: TensorDict, actions: torch.Tensor, strict: bool) -> torch.Tensor:
        """The returns (*batch) of the actions (*batch, T), played from the beginning of the episodes in `td`."""
        if actions.shape[:-1] != td.batch_size:
            raise ShapeError(f"actions must have the shape {(*td.batch_size, 'T')}, not {tuple(actions.shape)}")
        td = self.torchrl.rewind(td)
        returns = torch.zeros(td.batch_size, dtype=torch.float64, device=td.device)
        for k, action in enumerate(actions.unbind(-1)):
            if strict:
                nodes = torch.arange(td["action_mask"].shape[-1], device=td.device)
                legal = (td["action_mask"] & (nodes == action.unsqueeze(-1))).any(-1)
                _refuse(~legal, f"step {k}: its action is not allowed")
            td = self.torchrl.step(td.set("action", action))["next"]
            returns += td["reward"].squeeze(-1)
        if strict:
            _refuse(~td["done"].squeeze(-1), f"its episode has not ended after {actions.shape[-1]} actions")
        return returns.float()

    # -- start nodes of POMO ------------------------------------------------------------------------------------

    def get_num_starts(self, td: TensorDict) -> int:
        """The number of first actions allowed in the row that allows most, without depots (or a door)."""
        return max(1, int(self._starts(td).sum(-1).max()))

    def select_start_nodes(self, td: TensorDict, num_starts: int) -> torch.Tensor:
        """The first action of every copy, start-major: that of start s of row b is at s * B + b. Rows that allow fewer
        repeat theirs; a row that allows depots alone begins there, as one that chooses between several."""
        starts = self._starts(td)
        nodes = starts.to(torch.uint8).argsort(dim=-1, descending=True, stable=True)  # the allowed ones first
        count = starts.sum(-1, keepdim=True).clamp(min=1)
        return nodes.gather(-1, torch.arange(num_starts, device=nodes.device) % count).T.reshape(-1)

    def _starts(self, td: TensorDict) -> torch.Tensor:
        mask = td["action_mask"]
        customers = mask.clone()
        customers[..., : entries_apart(self.torchrl.template)] = False
        return torch.where(customers.any(-1, keepdim=True), customers, mask)

    # -- calls of trainers --------------------------------------------------------------------------------------

    @staticmethod
    def get_action_mask(td: TensorDict) -> torch.Tensor:
        """True = allowed."""
        return td["action_mask"]

    def load_data(self, fpath: str | os.PathLike[str], batch_size: Any = ()) -> TensorDict:
        """The instances in a file, for `reset` to take; see `TorchRLEnv.load_data`. `batch_size` has no effect, as in
        RL4CO."""
        return self.torchrl.load_data(fpath)

    def to(self, device: Any) -> NodeEnv:
        """This environment, with its TensorDicts on another device."""
        if device is not None:
            self.torchrl.to(device)
        super().to(device)
        return self

    def _make_spec(self, td_params: Any = None) -> None:
        self.torchrl.batch_size = self.batch_size
        self.observation_spec = self.torchrl.observation_spec.clone()
        self.state_spec = self.torchrl.state_spec.clone()
        self.action_spec = self.torchrl.action_spec.clone()
        self.reward_spec = self.torchrl.reward_spec.clone()
        self.done_spec = self.torchrl.done_spec.clone()

    def _set_seed(self, seed: int | None) -> None:
        """Seeds the instances. Torch's global random state, which RL4CO's generators use, does not change."""
        if hasattr(self, "torchrl"):  # RL4CO's constructor seeds before there is one
            self.torchrl.set_seed(secrets.randbits(63) if seed is None else check_seed(seed))

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__.copy()  # RL4CO's own version copies torch's random generator

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)


def _refuse(rows: torch.Tensor, rule: str) -> None:
    if rows.any():
        raise BadSolution(f"row {int(rows.reshape(-1).nonzero()[0])}: {rule}")
