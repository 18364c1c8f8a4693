"""A common interface to all bindings, so that a test can compare each of them with the bare World.

A player has the rows (seed, 0), (seed, 1), ... of a world. `begin()` starts an episode in every row. `turn(actions)`
plays a step and starts the next episode of each row that ended, in the way of its library. `look` is the current
observation of all rows, as the library returned it; `masks` are their masks, one for each place that returns a mask.
"""

from typing import Any, NamedTuple

import numpy as np
import torch

import milkrun
from milkrun.api.gymnasium import MilkrunEnv, MilkrunVectorEnv
from milkrun.api.mappo import MAPPOVecEnv
from milkrun.api.pettingzoo import MilkrunParallelEnv
from milkrun.api.rllib import MilkrunMultiAgentEnv
from milkrun.api.sb3 import SB3VecEnv
from milkrun.api.tianshou import TianshouVectorEnv
from tests.api.tianshou_tools import plain


class Turn(NamedTuple):
    """Result of a step: rewards and ends of all rows. `last` and `last_masks` are the final observations and masks of
    the rows that ended."""

    reward: np.ndarray
    done: np.ndarray
    ends: tuple[np.ndarray, np.ndarray]
    last: list[Any]
    last_masks: list[np.ndarray]
    handed: Any


class Player:
    """`kind` says how it shows a row: "dict", "flat", "agents" (a vector an agent) or "fields" (a TensorDict)."""

    kind = "dict"
    one_row = False

    def __init__(self, id: str, rows: int, seed: int, options: dict[str, Any]) -> None:
        self.rows, self.seed = rows, seed
        self.look: Any = None
        self.masks: list[np.ndarray] = []
        self.open(id, options)

    @property
    def world(self) -> Any:
        """The World inside; None where rows are in TensorDicts."""
        return None if self.kind == "fields" else self.env.world


def row_of(obs: Any, b: int) -> Any:
    return {key: array[b] for key, array in obs.items()} if isinstance(obs, dict) else obs[b]


class Gymnasium(Player):
    """MilkrunVectorEnv, its rows reset in the step."""

    mode = "same_step"

    def open(self, id, options):
        self.env = MilkrunVectorEnv(
            self.rows, id, layout=self.kind, autoreset_mode=self.mode, seed_rule="row", **options
        )

    def begin(self):
        return self._show(self.env.reset(seed=self.seed))

    def turn(self, actions):
        handed = obs, reward, terminated, truncated, infos = self.env.step(actions)
        done = terminated | truncated
        self._show((obs, infos))
        last, last_masks = [], []
        if done.any() and self.mode == "disabled":
            last, last_masks = [row_of(obs, b) for b in np.flatnonzero(done)], [mask[done] for mask in self.masks]
            again = self.env.reset(options={"reset_mask": done})
            self._show(again)
            handed = (handed, again)
        elif done.any():
            last, last_masks = list(infos["final_obs"][done]), [infos["final_info"]["action_mask"][done]]
            if self.kind == "dict":
                last_masks.append(np.stack([final["action_mask"] for final in last]))
        return Turn(reward, done, (terminated, truncated), last, last_masks, handed)

    def _show(self, shown):
        self.look, infos = shown
        self.masks = [self.env.action_masks(), infos["action_mask"]]
        if self.kind == "dict":
            self.masks.append(self.look["action_mask"])
        return shown


class GymnasiumByHand(Gymnasium):
    """The same, but the caller resets the rows."""

    mode = "disabled"


class GymnasiumFlat(Gymnasium):
    kind = "flat"


class GymnasiumEnv(Player):
    """MilkrunEnv: one row, (seed, 0)."""

    one_row = True

    def open(self, id, options):
        self.env = MilkrunEnv(id, layout=self.kind, **options)

    def begin(self):
        return self._show(*self.env.reset(seed=self.seed))

    def turn(self, actions):
        handed = obs, reward, *flags, infos = self.env.step(actions[0])
        last, last_masks = [], []
        self._show(obs, infos)
        if any(flags):
            last, last_masks = [obs], self.masks
            handed = handed, self._show(*self.env.reset())
        ends = tuple(np.array(flags)[:, None])
        return Turn(np.array([reward]), ends[0] | ends[1], ends, last, last_masks, handed)

    def _show(self, obs, infos):
        self.look = {key: np.asarray(value)[None] for key, value in obs.items()}
        self.masks = [mask[None] for mask in (self.env.action_masks(), obs["action_mask"], infos["action_mask"])]
        return obs, infos


class SB3(Player):
    def open(self, id, options):
        self.env = SB3VecEnv(id, self.rows, layout=self.kind, seed_rule="row", **options)

    def begin(self):
        self.env.seed(self.seed)
        self.look = self.env.reset()
        self._mask()
        return self.look, self.env.reset_infos

    def turn(self, actions):
        self.look, reward, done, infos = handed = self.env.step(actions)
        ended = [infos[b] for b in np.flatnonzero(done)]
        cut = np.array([info["TimeLimit.truncated"] for info in infos])
        self._mask()
        last = [info["terminal_observation"] for info in ended]
        last_masks = [np.stack([final["action_mask"] for final in last])] if ended else []
        return Turn(reward, done, (done & ~cut, cut), last, last_masks, (handed, self.env.reset_infos))

    def _mask(self):
        self.masks = [np.stack(self.env.env_method("action_masks")), self.look["action_mask"]]


class Tianshou(Player):
    def open(self, id, options):
        self.env = TianshouVectorEnv(id, self.rows, layout=self.kind, seed_rule="row", **options)

    def begin(self):
        handed = obs, _ = self.env.reset(seed=self.seed)
        self.look, self.masks = plain(obs.obs), [obs.mask]
        return plain(handed)

    def turn(self, actions):
        obs, reward, terminated, truncated, _ = handed = self.env.step(actions)
        done = terminated | truncated
        self.look, self.masks, ended = plain(obs.obs), [obs.mask], np.flatnonzero(done)
        last, last_masks = [row_of(self.look, b) for b in ended], []
        if len(ended):
            again = self.env.reset(ended)
            last_masks = [obs.mask[ended]]
            self.look, self.masks = {key: array.copy() for key, array in self.look.items()}, [obs.mask.copy()]
            self.masks[0][ended] = again[0].mask
            for key, fresh in plain(again[0].obs).items():
                self.look[key][ended] = fresh
            handed = (handed, again)
        return Turn(reward, done, (terminated, truncated), last, last_masks, plain(handed))


class MAPPO(Player):
    kind = "agents"

    def open(self, id, options):
        self.env = MAPPOVecEnv(id, self.rows, **options)

    def begin(self):
        self.env.seed(self.seed)
        handed = self.env.reset()
        self.look, self.masks = handed[:2], [self._joint(handed[2])]
        return handed

    def turn(self, actions):
        obs, share_obs, reward, dones, infos, available = self.env.step(actions.reshape(self.rows, -1))
        self.look, self.masks = (obs, share_obs), [self._joint(available)]
        done, last = dones[:, 0], []
        assert (dones == done[:, None]).all() and (reward == reward[:, :1]).all()
        for b in np.flatnonzero(done):
            names = ("terminal_obs", "terminal_share_obs", "terminal_available_actions")
            last.append(tuple(np.stack([info[name] for info in infos[b]]) for name in names))
        last_masks = [self._joint(np.stack([look[2] for look in last]))] if last else []
        cut = np.array([row[0]["bad_transition"] for row in infos])
        handed = obs, share_obs, reward, dones, available, list(infos)
        return Turn(reward[:, 0, 0], done, (done & ~cut, cut), [look[:2] for look in last], last_masks, handed)

    def _joint(self, available):
        """The agents' masks concatenated, without padding."""
        if self.env.n_agents == 1:
            return available[:, 0]
        choices = [space.n for space in self.env.action_space]
        assert not any(available[:, a, n:].any() for a, n in enumerate(choices))
        return np.concatenate([available[:, a, :n] for a, n in enumerate(choices)], 1)


class TorchRL(Player):
    kind, stepping = "fields", "functional"

    def open(self, id, options):
        self.env = milkrun.make(id, self.rows, api="torchrl", seed=self.seed, stepping=self.stepping, **options)
        self.slots = [*self.env._stepper.instance, *self.env._stepper.carried, self.env._stepper.stream]

    def begin(self):
        self.env.set_seed(self.seed)
        self.td = self.env.reset()
        self._show()
        return self.td

    def turn(self, actions):
        given, first = torch.from_numpy(np.ascontiguousarray(actions)), 0
        for group, names in self.env.group_map.items():
            self.td[group, "action"] = given[:, first : first + len(names)]
            first += len(names)
        if not self.env.group_map:
            self.td["action"] = given
        stepped, self.td = self.env.step_and_maybe_reset(self.td)
        following = stepped["next"]
        done = following["done"][:, 0].numpy()
        last = [row_of(self._fields(following), b) for b in np.flatnonzero(done)]
        last_masks = [mask[done] for mask in self._masks(following)]
        self._show()
        rewards = [following[group, "reward"] for group in self.env.group_map] or [following["reward"][:, None]]
        joint = torch.cat(rewards, 1)[..., 0]
        assert (joint == joint[:, :1]).all()
        ends = following["terminated"][:, 0].numpy(), following["truncated"][:, 0].numpy()
        return Turn(joint[:, 0].numpy(), done, ends, last, last_masks, stepped)

    def _fields(self, td):
        return {slot.name: td[slot.key].numpy() for slot in self.slots}

    def _masks(self, td):
        if not self.env.group_map:
            return [td["action_mask"].numpy(), self.env.get_action_mask(td).numpy()]
        parts = [td[group, "action_mask"].flatten(1) for group in self.env.group_map]
        return [torch.cat(parts, 1).numpy(), td["hidden", "action_mask"].numpy()]

    def _show(self):
        self.look, self.masks = self._fields(self.td), self._masks(self.td)


class TorchRLInPlace(TorchRL):
    stepping = "inplace"


class PettingZoo(Player):
    """One row, (seed, 0)."""

    kind, one_row, word = "agents", True, "observation"

    def open(self, id, options):
        self.env = MilkrunParallelEnv(id, **options)

    def begin(self):
        return self._show(*self.env.reset(seed=self.seed))

    def turn(self, actions):
        given = dict(zip(self.env.possible_agents, np.ravel(actions).tolist()))
        handed = obs, rewards, terminated, truncated, infos = self.env.step(given)
        assert len(set(rewards.values())) == 1
        self._show(obs, infos)
        ends = tuple(np.array([flags[self.env.possible_agents[0]]]) for flags in (terminated, truncated))
        done, last, last_masks = ends[0] | ends[1], [], []
        if done[0]:
            last, last_masks = [row_of(self.look[0], 0)], self.masks
            handed = (handed, self._show(*self.env.reset()))
        return Turn(np.array([next(iter(rewards.values()))]), done, ends, last, last_masks, handed)

    def _show(self, obs, infos):
        self.look = [[obs[a][self.word] for a in obs]], None
        self.masks = [np.concatenate([part["action_mask"] for part in each.values()])[None] for each in (obs, infos)]
        return obs, infos


class RLlib(PettingZoo):
    word = "observations"

    def open(self, id, options):
        self.env = MilkrunMultiAgentEnv({"world": id, **options})


PLAYERS = (
    Gymnasium,
    GymnasiumByHand,
    GymnasiumFlat,
    GymnasiumEnv,
    SB3,
    Tianshou,
    MAPPO,
    TorchRL,
    TorchRLInPlace,
    PettingZoo,
    RLlib,
)
