"""PPO by Stable-Baselines3, for the worlds that `reinforce` does not fit: several agents, pictures, piles, numbers.

Worlds with masks take MaskablePPO of sb3-contrib; where actions are numbers, PPO takes a Gaussian. The rows run inside
VecNormalize, which scales observations (not pictures) and returns. A step is one update: every row plays `length`
steps, then the network is trained on them. A run continues from weights, optimiser and scales with new episodes, so a
resumed run equals an undisturbed one in law, not to the bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from milkrun.core.engine import EngineWorld
from milkrun.core.errors import BadCheckpoint, ConfigError, TrainingError, missing_extra
from milkrun.learn import checkpoint
from milkrun.learn.checkpoint import Expected, part
from milkrun.learn.reinforce import SEED_OF_TRAINING, Outcome

try:
    import stable_baselines3
    from sb3_contrib import MaskablePPO
    from stable_baselines3 import PPO
    from stable_baselines3.common.logger import Logger
    from stable_baselines3.common.running_mean_std import RunningMeanStd
    from stable_baselines3.common.vec_env import VecNormalize
except ImportError as e:
    raise missing_extra(str(e.name), "sb3") from e

from milkrun.api.sb3 import SB3VecEnv
from milkrun.learn import sb3_policy
from milkrun.learn.sb3_policy import CLIP, EPSILON, PPOPolicy

MOST = {"steps": 2**31, "rows": 2**16, "length": 2**16, "epochs": 1024, "parts": 1024, "layers": 4, "width": 256}
MOST_PLAYED = 2**22  # rows * length
ROWS, SLOW_ROWS = 256, 32
RATE, PICTURE_RATE = 7e-4, 2.5e-4
SCALE = ("mean", "var", "count")  # of a running mean


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

    @property
    def hidden(self) -> list[int]:
        """The widths of the hidden layers."""
        return [self.width] * self.layers


def default_options(world: Any, steps: int, *, rows: int | None, lr: float | None, seed: int) -> Options:
    """The options that worked for worlds of this kind. Worlds with pictures or an engine have fewer rows."""
    if not world.mask_lists_all:
        raise ConfigError(f"algorithm='ppo' does not work for {world.id}: its mask does not list all actions")
    sb3_policy.check_inputs(world)
    picture = sb3_policy.layout_of(world) == "view"
    slow = picture or isinstance(world, EngineWorld)
    return Options(
        steps,
        rows=rows or (SLOW_ROWS if slow else ROWS),
        lr=lr or (PICTURE_RATE if picture else RATE),
        seed=seed,
    )


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
        self.world, self.options, self.step = world, options, step
        self.episodes = 0
        self.per_step = options.rows * options.length
        played = type(world)(options.rows, world.config, seed=0, autoreset="same_step")
        rows = SB3VecEnv(played, layout=sb3_policy.layout_of(world), seed_rule="row")
        rows.seed(options.seed + SEED_OF_TRAINING + step)  # a continued run plays new episodes
        self.scaled = sb3_policy.scaled_keys(rows.observation_space)
        self.rows = VecNormalize(
            rows,
            norm_obs=bool(self.scaled),
            norm_obs_keys=self.scaled or None,
            clip_obs=CLIP,
            gamma=options.gamma,
            epsilon=EPSILON,
        )
        algorithm: Any = MaskablePPO if sb3_policy.is_masked(world) else PPO
        self.title: str = algorithm.__name__
        with seeded(options.seed, step):
            self.model = algorithm(
                sb3_policy.policy_class(world),
                self.rows,
                learning_rate=self.rate,
                n_steps=options.length,
                batch_size=max(2, self.per_step // options.parts),
                n_epochs=options.epochs,
                gamma=options.gamma,
                gae_lambda=options.gae_lambda,
                ent_coef=options.entropy,
                policy_kwargs=sb3_policy.network_options(rows.observation_space, options.hidden),
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
        return Outcome(torch.tensor([r for r, _ in self._ended]), sum(cut for _, cut in self._ended), None)

    def _note_ends(self, variables: dict[str, Any], _: dict[str, Any]) -> bool:
        """Stable-Baselines3 calls this after each step of the rows; False would end the training."""
        for b in np.flatnonzero(variables["dones"]):
            info = variables["infos"][b]
            self._ended.append((info["episode"]["r"], info["TimeLimit.truncated"]))
        return True

    def _refuse_infinite(self, cause: Exception | None = None) -> None:
        if name := checkpoint.name_of_infinite(self.model.policy):
            raise TrainingError(f"step {self.step}, seed {self.options.seed}: {name} is not finite") from cause

    def policy(self) -> PPOPolicy:
        """The policy as it is now; a further step changes it."""
        scales = {key: (self.rows.obs_rms[key].mean, self.rows.obs_rms[key].var) for key in self.scaled}
        return PPOPolicy(self.model.policy, scales)

    def after_evaluation(self, number: int) -> None:
        """Nothing: PPO has no baseline to renew."""

    # -- in and out of a checkpoint -----------------------------------------------------------------------------------

    def describe(self, **more: Any) -> dict[str, Any]:
        """The description of the policy or the run."""
        return {
            "algorithm": "ppo",
            "world": self.world.id,
            "config": self.world.config.as_json(),
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

    def _running(self) -> dict[str, RunningMeanStd]:
        """Mean, variance and count of the returns and of each scaled field, by their names in a file."""
        return {"return": self.rows.ret_rms} | {f"observation.{key}": self.rows.obs_rms[key] for key in self.scaled}

    def weights(self) -> dict[str, Tensor]:
        """All that the policy is, and the scale of the returns."""
        found = {f"network.{name}": p for name, p in self.model.policy.named_parameters()}
        for group, running in self._running().items():
            for name in SCALE:
                found[f"{group}.{name}"] = torch.tensor(getattr(running, name), dtype=torch.float64)
        return found

    def tensors(self) -> dict[str, Tensor]:
        """These and the moments of the optimiser."""
        return self.weights() | checkpoint.moments_of(self.model.policy, self.model.policy.optimizer)

    def load_tensors(self, found: Mapping[str, Tensor], episodes: int) -> None:
        """Continues from the `tensors` of this step."""
        policy, updates = self.model.policy, self.step * self.options.epochs * self.options.parts
        sb3_policy.load_weights(policy, part(found, "network."))
        checkpoint.load_moments(policy, policy.optimizer, found, updates)
        for group, running in self._running().items():
            running.mean, running.var, running.count = (found[f"{group}.{name}"].numpy() for name in SCALE)
        self.episodes = episodes


# -- reading a file -------------------------------------------------------------------------------------------------


def expect(about: Mapping[str, Any], made: dict[str, Any]) -> Expected:
    """The tensors that a description promises; `made["world"]` is its world. Adds options and network to `made`."""
    world = made["world"]
    options = made["options"] = checkpoint.options_from(about["options"], Options)
    for name, most in MOST.items():
        if not 1 <= getattr(options, name) <= most:
            raise BadCheckpoint(f"options: {name} = {getattr(options, name)} must be 1..{most}")
    if options.rows * options.length > MOST_PLAYED or max(options.gae_lambda, options.gamma) > 1:
        raise BadCheckpoint("options: rows, length, gamma or gae_lambda is out of range")
    for name, most in (("step", options.steps), ("episodes", 2**62)):
        if type(about[name]) is not int or not 0 <= about[name] <= most:
            raise BadCheckpoint(f"{name} = {str(about[name])[:40]} must be 0..{most}")
    if not world.mask_lists_all:
        raise BadCheckpoint(f"the mask of {world.id} does not list all actions")
    network = made["network"] = sb3_policy.empty_network(world, options.hidden)
    found = {f"network.{name}": (p.shape, p.dtype) for name, p in network.named_parameters()}
    space = network.observation_space
    scaled = {f"observation.{key}": space[key].shape for key in sb3_policy.scaled_keys(space)}
    for group, shape in {"return": (), **scaled}.items():
        for name in SCALE:
            found[f"{group}.{name}"] = (torch.Size(() if name == "count" else shape), torch.float64)
    return found if about["kind"] == "policy" else found | checkpoint.expected_moments(network)


def policy_of(
    tensors: Mapping[str, Tensor], made: Mapping[str, Any], decode: str | None, seed: int, device: str
) -> Any:
    """The policy in a file that `expect` has accepted."""
    network = made["network"].to(device)
    sb3_policy.load_weights(network, part(tensors, "network."))
    scaled = sb3_policy.scaled_keys(network.observation_space)
    scales = {
        key: (tensors[f"observation.{key}.mean"].numpy(), tensors[f"observation.{key}.var"].numpy()) for key in scaled
    }
    return PPOPolicy(network, scales, decode, seed)


def run_of(about: Mapping[str, Any], tensors: Mapping[str, Tensor], made: Mapping[str, Any], device: str) -> PPORun:
    """The run in a file that `expect` has accepted."""
    state = PPORun(made["world"], made["options"], device, about["step"])
    state.load_tensors(tensors, about["episodes"])
    return state
