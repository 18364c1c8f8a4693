"""PPO by Stable-Baselines3, for the worlds that `reinforce` does not fit: several agents, pictures, piles, numbers.

    the world has          algorithm and network
    masks                  MaskablePPO of sb3-contrib, two hidden layers on the fields and the mask
    numbers as actions     PPO, Gaussian
    a picture of bytes     either of them with convolutions: Nature's, or a smaller net below 36 pixels

The rows run inside VecNormalize, which scales observations (not pictures) and returns. A step is one update: every row
plays `length` steps, then the network is trained on them. A run continues from weights, optimiser and scales with new
episodes, so a resumed run equals an undisturbed one in law, not to the bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from milkrun.core.engine import EngineWorld
from milkrun.core.errors import BadCheckpoint, ConfigError, TrainingError, missing_extra
from milkrun.core.fields import mask_field
from milkrun.core.layouts import layouts
from milkrun.core.sampling import chance
from milkrun.learn.checkpoint import Expected, options_from
from milkrun.learn.policy import Decoding

try:
    import stable_baselines3
    from sb3_contrib import MaskablePPO
    from sb3_contrib.common.maskable.policies import MaskableActorCriticPolicy
    from stable_baselines3 import PPO
    from stable_baselines3.common.logger import Logger
    from stable_baselines3.common.policies import ActorCriticPolicy
    from stable_baselines3.common.preprocessing import is_image_space, is_image_space_channels_first
    from stable_baselines3.common.torch_layers import BaseFeaturesExtractor, CombinedExtractor, NatureCNN
    from stable_baselines3.common.vec_env import VecNormalize
except ImportError as e:
    raise missing_extra(str(e.name), "sb3") from e

from milkrun.api._spaces import Observer, action_space
from milkrun.api.sb3 import SB3VecEnv

CLIP, EPSILON = 10.0, 1e-8  # of normalised observations, as in VecNormalize
MOST = {"steps": 2**31, "rows": 2**16, "length": 2**16, "epochs": 1024, "parts": 1024, "layers": 16, "width": 1024}
MOST_PIXELS, MOST_WEIGHTS = 2**18, 2**24  # of a picture; of the hidden layers of policy or value
NATURE = 36  # pixels, the smallest picture of Nature's network
SEED_OF_TRAINING = 10**6  # added to the seed, as in `reinforce`
ROWS, SLOW_ROWS = 256, 32
RATE, PICTURE_RATE = 7e-4, 2.5e-4
MOMENTS = ("exp_avg", "exp_avg_sq")  # of Adam
SCALES = ("mean", "var", "count")

Scales = Mapping[str, tuple[np.ndarray, np.ndarray]]
"""mean and variance of each scaled field"""


@dataclass(frozen=True)
class Options:
    """The options of a run."""

    steps: int
    """updates"""
    rows: int = ROWS
    length: int = 64
    """steps of each row in an update"""
    lr: float = RATE
    """the learning rate of the first update; it falls to 0 in a straight line"""
    epochs: int = 4
    parts: int = 4
    """minibatches of an epoch"""
    gamma: float = 0.99
    gae_lambda: float = 0.95
    entropy: float = 0.01
    layers: int = 2
    """hidden layers of policy and value; none after convolutions"""
    width: int = 128
    seed: int = 0


class Outcome(NamedTuple):
    """What an update shows."""

    returns: Tensor  # (E,) of the episodes that ended in it
    truncated: int  # of these
    gradient: None = None  # Stable-Baselines3 reports no norm


class SmallCNN(BaseFeaturesExtractor):
    """Two convolutions for pictures that are too small for Nature's three."""

    def __init__(self, observation_space: Any, features_dim: int = 256) -> None:
        super().__init__(observation_space, features_dim)
        channels, height, width = observation_space.shape
        area = ((height + 3) // 4) * ((width + 3) // 4)  # each convolution halves the sides and rounds up
        self.layers = nn.Sequential(
            nn.Conv2d(channels, 32, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(64 * area, features_dim),
            nn.ReLU(),
        )

    def forward(self, pictures: Tensor) -> Tensor:
        found: Tensor = self.layers(pictures)
        return found


# -- by the declarations of a world -------------------------------------------------------------------------------


def is_masked(world: Any) -> bool:
    """Whether actions are choices under a mask."""
    return world.action.kind != "box" and mask_field(world.fields, world.sizes) is not None


def layout_of(world: Any) -> str:
    """The observation of the network: the picture, or a dict of fields and mask."""
    return "view" if "view" in layouts(world) and is_picture(Observer(world, "view").single_space) else "dict"


def is_picture(space: Any) -> bool:
    return is_image_space(space) and is_image_space_channels_first(space)


def scaled_keys(space: Any) -> list[str]:
    """The entries of a dict that are scaled: numbers, but neither choices, which become one-hot, nor the mask."""
    return [key for key, s in space.spaces.items() if isinstance(s, spaces.Box) and key != "action_mask"]


def default_options(world: Any, steps: int, *, rows: int | None, lr: float | None, seed: int) -> Options:
    """The options that worked for worlds of this kind. Worlds with pictures or an engine have fewer rows."""
    if not world.mask_lists_all:
        raise ConfigError(f"algorithm='ppo' does not work for {world.id}: its mask does not list all actions")
    picture = layout_of(world) == "view"
    slow = picture or isinstance(world, EngineWorld)
    options = Options(
        steps,
        rows=rows or (SLOW_ROWS if slow else ROWS),
        lr=lr or (PICTURE_RATE if picture else RATE),
        seed=seed,
    )
    check_sizes(world, options)
    return options


def network_options(space: Any, options: Options) -> dict[str, Any]:
    """The keywords of a policy class for observations of this space."""
    if not is_picture(space):
        return {"features_extractor_class": CombinedExtractor, "net_arch": [options.width] * options.layers}
    small = min(space.shape[1:]) < NATURE
    return {"features_extractor_class": SmallCNN if small else NatureCNN, "net_arch": []}


def check_sizes(world: Any, options: Options) -> None:
    """Raises ConfigError for networks of more than about 100 MB, so that no description of a file takes more."""
    numbers, outputs = (
        spaces.flatdim(s) for s in (Observer(world, layout_of(world)).single_space, action_space(world))
    )
    if layout_of(world) == "view":
        if numbers > MOST_PIXELS:
            raise ConfigError(f"{world.id}: a picture of {numbers:,} bytes is too large; PPO takes {MOST_PIXELS:,}")
    elif (weights := options.width * (numbers + outputs + options.layers * options.width)) > MOST_WEIGHTS:
        raise ConfigError(f"{world.id}: a network of {weights:,} weights is too large; PPO takes {MOST_WEIGHTS:,}")


def new_network(world: Any, options: Options) -> Any:
    """An untrained network for this world."""
    space = Observer(world, layout_of(world)).single_space
    cls: Any = MaskableActorCriticPolicy if is_masked(world) else ActorCriticPolicy
    with seeded(options.seed, 0):
        return cls(space, action_space(world), lambda _: 0.0, **network_options(space, options))


@contextmanager
def seeded(seed: int, step: int) -> Iterator[None]:
    """Seeds the generators that Stable-Baselines3 draws from, torch's and numpy's global ones; both are restored."""
    before = np.random.get_state()
    numbers = np.random.SeedSequence((seed, step)).generate_state(2)
    with torch.random.fork_rng():
        try:
            torch.manual_seed(int(numbers[0]))
            np.random.seed(int(numbers[1]))
            yield
        finally:
            np.random.set_state(before)


# -- training -------------------------------------------------------------------------------------------------------


class PPORun:
    """The state of a run, its steps and its files, for the loop of `run.py`."""

    unit = "steps"

    def __init__(self, world: Any, options: Options, device: str = "cpu", step: int = 0) -> None:
        self.world, self.options, self.device, self.step = world, options, device, step
        self.layout = layout_of(world)
        self.episodes = 0
        self.per_step = options.rows * options.length
        rows = SB3VecEnv(
            type(world)(options.rows, world.config, seed=0, autoreset="same_step"), layout=self.layout, seed_rule="row"
        )
        rows.seed(options.seed + SEED_OF_TRAINING + step)  # a continued run plays new episodes
        self.rows = VecNormalize(
            rows,
            norm_obs=self.layout == "dict",
            norm_obs_keys=scaled_keys(rows.observation_space) if self.layout == "dict" else None,
            clip_obs=CLIP,
            clip_reward=CLIP,
            gamma=options.gamma,
            epsilon=EPSILON,
        )
        algorithm: Any = MaskablePPO if is_masked(world) else PPO
        self.title: str = algorithm.__name__
        with seeded(options.seed, step):
            self.model = algorithm(
                MaskableActorCriticPolicy if is_masked(world) else ActorCriticPolicy,
                self.rows,
                learning_rate=self.rate,
                n_steps=options.length,
                batch_size=max(2, self.per_step // options.parts),
                n_epochs=options.epochs,
                gamma=options.gamma,
                gae_lambda=options.gae_lambda,
                ent_coef=options.entropy,
                policy_kwargs=network_options(rows.observation_space, options),
                device=device,
            )
        self.model.set_logger(Logger(None, []))
        self._ended: list[tuple[float, bool]] = []

    def rate(self, _: float) -> float:
        """The learning rate of the running update."""
        return self.options.lr * (1 - self.step / self.options.steps)

    def train_step(self) -> Outcome:
        """Plays and updates once."""
        self._ended = []
        try:
            with seeded(self.options.seed, self.step):
                self.model.learn(self.per_step, callback=self._note_ends, reset_num_timesteps=False)
        except ValueError as e:  # of a distribution with values that are not numbers
            self._refuse_infinite(e)
            raise
        self._refuse_infinite()
        self.step += 1
        self.episodes += len(self._ended)
        return Outcome(torch.tensor([r for r, _ in self._ended]), sum(cut for _, cut in self._ended))

    def _note_ends(self, variables: dict[str, Any], _: dict[str, Any]) -> bool:
        """Stable-Baselines3 calls this after each step of the rows; False would end the training."""
        for b in np.flatnonzero(variables["dones"]):
            info = variables["infos"][b]
            self._ended.append((info["episode"]["r"], info["TimeLimit.truncated"]))
        return True

    def _refuse_infinite(self, cause: Exception | None = None) -> None:
        for name, weights in self.model.policy.named_parameters():
            if not bool(weights.isfinite().all()):
                raise TrainingError(f"step {self.step}, seed {self.options.seed}: {name} is not finite") from cause

    def policy(self) -> PPOPolicy:
        """The policy as it is now; a further step changes it."""
        return PPOPolicy(self.model.policy, self.layout, self._scales())

    def after_evaluation(self, number: int) -> None:
        """Nothing: PPO has no baseline to renew."""

    def _observed(self) -> dict[str, Any]:
        """The running mean and variance of each scaled field."""
        return dict(self.rows.obs_rms) if self.layout == "dict" else {}

    def _running(self) -> dict[str, Any]:
        """These and that of the returns, by the names in a file."""
        return {"return": self.rows.ret_rms} | {f"observation.{key}": rms for key, rms in self._observed().items()}

    def _scales(self) -> Scales:
        return {key: (rms.mean, rms.var) for key, rms in self._observed().items()}

    # -- in and out of a checkpoint -----------------------------------------------------------------------------------

    def describe(self, **more: Any) -> dict[str, Any]:
        """The description of the policy or the run."""
        return {
            "algorithm": "ppo",
            "world": self.world.id,
            "config": self.world.config.as_json(),
            "layout": self.layout,
            "options": asdict(self.options),
            "step": self.step,
            "episodes": self.episodes,
            **more,
        }

    def explain(self) -> dict[str, Any]:
        """For run.json."""
        return {
            "algorithm": f"{self.title} of Stable-Baselines3 {stable_baselines3.__version__}",
            "network": str(self.model.policy).splitlines(),
        }

    def weights(self) -> dict[str, Tensor]:
        """All that the policy is."""
        found = {f"network.{name}": p for name, p in self.model.policy.named_parameters()}
        for key, pair in self._scales().items():
            found |= {f"observation.{key}.{what}": torch.from_numpy(x) for what, x in zip(SCALES, pair)}
        return found

    def tensors(self) -> dict[str, Tensor]:
        """The weights, the moments of the optimiser, and the scales with their counts."""
        found = self.weights()
        policy = self.model.policy
        for name, p in policy.named_parameters():
            for key in MOMENTS:
                found[f"{key}.{name}"] = policy.optimizer.state.get(p, {}).get(key, torch.zeros_like(p))
        for group, scale in self._running().items():
            for key in SCALES:
                found[f"{group}.{key}"] = torch.tensor(getattr(scale, key), dtype=torch.float64)
        return found

    def load_tensors(self, found: Mapping[str, Tensor], episodes: int) -> None:
        """Continues from the `tensors` of this step."""
        policy = self.model.policy
        load_weights(policy, found)
        done = float(self.step * self.options.epochs * self.options.parts)
        for name, p in policy.named_parameters():
            moments = {key: found[f"{key}.{name}"].to(p.device) for key in MOMENTS}
            policy.optimizer.state[p] = {"step": torch.tensor(done), **moments}
        for group, scale in self._running().items():
            scale.mean, scale.var, scale.count = (found[f"{group}.{key}"].numpy() for key in SCALES)
        self.episodes = episodes


def load_weights(network: nn.Module, found: Mapping[str, Tensor]) -> None:
    with torch.no_grad():
        for name, p in network.named_parameters():
            p.copy_(found[f"network.{name}"])


# -- reading a file -------------------------------------------------------------------------------------------------


def expect(about: Mapping[str, Any], made: dict[str, Any]) -> Expected:
    """The tensors that a description promises; `made["world"]` is its world. The options are kept in `made`."""
    world = made["world"]
    options = made["options"] = options_from(about["options"], Options)
    for name, most in MOST.items():
        if not 1 <= getattr(options, name) <= most:
            raise BadCheckpoint(f"options: {name} = {getattr(options, name)} must be 1..{most}")
    if options.rows * options.length > 2**22 or not 0 <= options.gae_lambda <= 1 or not 0 <= options.gamma <= 1:
        raise BadCheckpoint("options: rows, length, gamma or gae_lambda is out of range")
    if about["layout"] != layout_of(world) or not world.mask_lists_all:
        raise BadCheckpoint(f"layout = {str(about['layout'])[:40]!r} is not that of {world.id}")
    for name, most in (("step", options.steps), ("episodes", 2**62)):
        if type(about[name]) is not int or not 0 <= about[name] <= most:
            raise BadCheckpoint(f"{name} = {str(about[name])[:40]} must be 0..{most}")
    check_sizes(world, options)
    made["network"] = new_network(world, options)
    weights = {name: (p.shape, p.dtype) for name, p in made["network"].named_parameters()}
    found = {f"network.{name}": what for name, what in weights.items()}
    space: Any = Observer(world, about["layout"]).single_space
    scaled = {f"observation.{key}": space[key].shape for key in scaled_keys(space)} if about["layout"] == "dict" else {}
    found |= {
        f"{name}.{what}": (torch.Size(shape), torch.float64) for name, shape in scaled.items() for what in SCALES[:2]
    }
    if about["kind"] == "run":
        found |= {f"{key}.{name}": what for key in MOMENTS for name, what in weights.items()}
        single = [f"return.{what}" for what in SCALES] + [f"{name}.count" for name in scaled]
        found |= {name: (torch.Size(()), torch.float64) for name in single}
    return found


def policy_of(
    tensors: Mapping[str, Tensor], made: Mapping[str, Any], decode: str | None, seed: int, device: str
) -> Any:
    """The policy in a file that `expect` has accepted."""
    network = made["network"].to(device)
    load_weights(network, tensors)
    scales = {
        name.removeprefix("observation.").removesuffix(".mean"): (mean.numpy(), tensors[f"{name[:-5]}.var"].numpy())
        for name, mean in tensors.items()
        if name.startswith("observation.") and name.endswith(".mean")
    }
    return PPOPolicy(network, layout_of(made["world"]), scales, decode, seed)


def run_of(about: Mapping[str, Any], tensors: Mapping[str, Tensor], made: Mapping[str, Any], device: str) -> PPORun:
    """The run in a file that `expect` has accepted."""
    state = PPORun(made["world"], made["options"], device, about["step"])
    state.load_tensors(tensors, about["episodes"])
    return state


class PPOPolicy:
    """A network as a policy: greedy, or drawn with decode="sample"."""

    def __init__(
        self,
        network: ActorCriticPolicy | MaskableActorCriticPolicy,
        layout: str,
        scales: Scales,
        decode: str | None = None,
        seed: int = 0,
    ) -> None:
        decoding = Decoding.parse(decode or "greedy")
        if decoding.plans:
            raise ConfigError(
                f"decode={decode!r} plans whole episodes, but a policy of PPO does not: take greedy or sample"
            )
        self.network, self.layout, self.scales = network, layout, scales
        self.draws, self.seed = bool(decoding.samples), seed
        self._world: Any = None

    def __call__(self, world: Any) -> np.ndarray:
        if self._world is not world:
            self._check(world)
        seen = self.normalise(world.observe(layout=self.layout))
        masks = {"action_masks": world.action_mask} if is_masked(world) else {}
        if self.draws:
            return self._draw(world, seen, masks)
        actions: np.ndarray = self.network.predict(seen, deterministic=True, **masks)[0]
        return actions

    def seeded(self, seed: int) -> PPOPolicy:
        """The same policy with the draws of another seed."""
        return PPOPolicy(self.network, self.layout, self.scales, "sample" if self.draws else "greedy", seed)

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
        if not masks:
            gauss = found.distribution
            u = np.stack([chance(world, self.seed, None, k) for k in range(gauss.mean.shape[1])], axis=1)
            drawn = gauss.icdf(torch.from_numpy(u).clamp(1e-7, 1 - 1e-7).to(gauss.mean))
            return np.clip(drawn.cpu().numpy(), -1, 1)
        agents = found.distributions if world.action.kind == "multi" else [found.distribution]
        chosen = []
        for k, agent in enumerate(agents):
            below = agent.probs.double().cumsum(-1).cpu().numpy()
            u = chance(world, self.seed, None, k)[:, None]
            chosen.append((below <= u * below[:, -1:] * (1 - 1e-6)).sum(1))
        return np.stack(chosen, axis=1) if world.action.kind == "multi" else chosen[0]

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
