"""The network and the policy of PPO: which network of Stable-Baselines3 fits the declarations of a world, and how a
trained one plays without Stable-Baselines3's environments.

    the world has          network
    fields and a mask      two hidden layers on all of them
    a picture of bytes     Nature's convolutions; below 36 pixels, where these do not fit, two hidden layers
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from sb3_contrib.common.maskable.policies import MaskableActorCriticPolicy
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.preprocessing import is_image_space, is_image_space_channels_first
from stable_baselines3.common.torch_layers import CombinedExtractor, FlattenExtractor, NatureCNN
from torch import nn

from milkrun.api._spaces import Observer, action_space
from milkrun.core.errors import ConfigError
from milkrun.core.fields import mask_field
from milkrun.core.layouts import layouts
from milkrun.core.sampling import chance
from milkrun.learn.policy import Decoding
from milkrun.learn.reinforce import sample_entry

CLIP, EPSILON = 10.0, 1e-8  # of scaled observations, as in VecNormalize
NATURE = 36  # pixels, the smallest picture of Nature's network
MOST_INPUTS = 2**18  # numbers of an observation, and actions

Scales = Mapping[str, tuple[np.ndarray, np.ndarray]]
"""mean and variance of each scaled field"""


def is_masked(world: Any) -> bool:
    """Whether actions are choices under a mask."""
    return world.action.kind != "box" and mask_field(world.fields, world.sizes) is not None


def layout_of(world: Any) -> str:
    """The observation of the network: the picture, or a dict of fields and mask."""
    if "view" not in layouts(world):
        return "dict"
    space: Any = Observer(world, "view").single_space
    return "view" if is_image_space(space) and is_image_space_channels_first(space) else "dict"


def scaled_keys(space: Any) -> list[str]:
    """The entries that are scaled: the numbers of a dict, but neither choices, which become one-hot, nor the mask."""
    entries = space.spaces.items() if isinstance(space, spaces.Dict) else ()
    return [key for key, one in entries if isinstance(one, spaces.Box) and key != "action_mask"]


def policy_class(world: Any) -> Any:
    """Stable-Baselines3's class of networks."""
    return MaskableActorCriticPolicy if is_masked(world) else ActorCriticPolicy


def network_options(space: Any, hidden: list[int]) -> dict[str, Any]:
    """The keywords of that class for observations of this space; `hidden` are the widths of hidden layers."""
    if isinstance(space, spaces.Dict):
        return {"features_extractor_class": CombinedExtractor, "net_arch": hidden}
    if min(space.shape[1:]) < NATURE:
        return {"features_extractor_class": FlattenExtractor, "net_arch": hidden}
    return {"features_extractor_class": NatureCNN, "net_arch": []}


def check_inputs(world: Any) -> None:
    """Raises ConfigError for a world whose network would take hundreds of megabytes."""
    inputs = spaces.flatdim(Observer(world, layout_of(world)).single_space) + spaces.flatdim(action_space(world))
    if inputs > MOST_INPUTS:
        raise ConfigError(
            f"{world.id}: observation and actions have {inputs:,} entries; PPO takes at most {MOST_INPUTS:,}"
        )


def empty_network(world: Any, hidden: list[int]) -> Any:
    """A network whose weights are to be read from a file."""
    check_inputs(world)
    space = Observer(world, layout_of(world)).single_space
    with torch.random.fork_rng(devices=[]):  # torch's modules draw from the global generator
        return policy_class(world)(
            space, action_space(world), lambda _: 0.0, ortho_init=False, **network_options(space, hidden)
        )


def load_weights(network: nn.Module, found: Mapping[str, torch.Tensor]) -> None:
    """Copies weights by their names. `load_state_dict` would ask for a shared feature extractor three times."""
    with torch.no_grad():
        for name, p in network.named_parameters():
            p.copy_(found[name])


class PPOPolicy:
    """A network as a policy: greedy, or drawn with decode="sample"."""

    def __init__(self, network: Any, scales: Scales, decode: str | None = None, seed: int = 0) -> None:
        decoding = Decoding.parse(decode or "greedy")
        if decoding.plans:
            raise ConfigError(
                f"decode={decode!r} plans whole episodes, but a policy of PPO does not: take greedy or sample"
            )
        self.network, self.scales = network, scales
        self.decode, self.seed = decode, seed
        self.layout = "dict" if isinstance(network.observation_space, spaces.Dict) else "view"
        self._draws = bool(decoding.samples)
        self._world: Any = None

    def seeded(self, seed: int) -> PPOPolicy:
        """The same policy with another seed of its draws."""
        return PPOPolicy(self.network, self.scales, self.decode, seed)

    def __call__(self, world: Any) -> np.ndarray:
        if self._world is not world:
            self._check(world)
        seen = self.normalise(world.observe(layout=self.layout))
        masks = {"action_masks": world.action_mask} if is_masked(world) else {}
        if self._draws:
            return self._draw(world, seen, masks)
        actions: np.ndarray = self.network.predict(seen, deterministic=True, **masks)[0]
        return actions

    def normalise(self, seen: Any) -> Any:
        """As VecNormalize; pictures, choices and masks are not changed."""
        if not self.scales:
            return seen
        return seen | {
            key: np.clip((seen[key] - mean) / np.sqrt(var + EPSILON), -CLIP, CLIP).astype(np.float32)
            for key, (mean, var) in self.scales.items()
        }

    @torch.no_grad()
    def _draw(self, world: Any, seen: Any, masks: Mapping[str, np.ndarray]) -> np.ndarray:
        """Actions by the draws of each row's seed, episode and step, as a random policy's; no masked one."""
        self.network.set_training_mode(False)
        found: Any = self.network.get_distribution(self.network.obs_to_tensor(seen)[0], **masks)

        def numbers(k: int) -> torch.Tensor:
            return torch.from_numpy(chance(world, self.seed, None, k)).to(self.network.device)

        if world.action.kind == "box":
            gauss = found.distribution
            u = torch.stack([numbers(k) for k in range(gauss.mean.shape[1])], 1)
            drawn = gauss.icdf(u.clamp(1e-7, 1 - 1e-7).to(gauss.mean)).clamp(-1, 1)
        elif world.action.kind == "multi":
            agents = enumerate(found.distributions)
            drawn = torch.stack([sample_entry(agent.probs.double(), numbers(k)) for k, agent in agents], 1)
        else:
            drawn = sample_entry(found.distribution.probs.double(), numbers(0))
        actions: np.ndarray = drawn.cpu().numpy()
        return actions

    def _check(self, world: Any) -> None:
        """Raises ConfigError unless the network fits this world."""
        expected = shapes(self.network.observation_space), self.network.action_space
        found = shapes(Observer(world, self.layout).single_space), action_space(world)
        if expected != found:
            raise ConfigError(
                f"the policy reads {expected[0]} and plays {expected[1]}, but {type(world).__name__} has {found[0]} "
                f"and {found[1]}"
            )
        self._world = world


def shapes(space: Any) -> Any:
    """The shape of an observation, or of each entry of a dict."""
    return {key: one.shape for key, one in space.items()} if isinstance(space, spaces.Dict) else space.shape
