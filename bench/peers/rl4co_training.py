"""Training steps of RL4CO's attention model: POMO, or one row with a greedy baseline."""

import copy

import torch
from rl4co.models import AttentionModelPolicy
from rl4co.utils.ops import unbatchify

from ..episodes import Name
from .rl4co import make_env

RATE = 1e-4


class TrainRL4CO:
    """The update of RL4CO's AttentionModel (rollout) and POMO, on its own policy and environment."""

    def __init__(self, name: Name, num_loc: int, baseline: str, batch: int) -> None:
        self.env, self.batch = make_env(name, num_loc), batch
        self.pomo = pomo = baseline == "pomo"
        self.policy = AttentionModelPolicy(
            env_name=self.env.name, normalization="instance" if pomo else "batch", use_graph_context=not pomo
        )
        self.baseline = copy.deepcopy(self.policy).eval()
        self.optimiser = torch.optim.Adam(self.policy.parameters(), RATE)

    def train_step(self) -> None:
        td = self.env.reset(batch_size=[self.batch])
        if self.pomo:
            starts = self.env.get_num_starts(td)
            out = self.policy(td, self.env, phase="train", num_starts=starts, decode_type="multistart_sampling")
            reward, likelihood = (unbatchify(out[key], starts) for key in ("reward", "log_likelihood"))
            advantage = reward - reward.mean(1, keepdim=True)
        else:
            with torch.inference_mode():
                expected = self.baseline(td.clone(), self.env, decode_type="greedy")["reward"]
            out = self.policy(td, self.env, phase="train", decode_type="sampling")
            likelihood, advantage = out["log_likelihood"], out["reward"] - expected.clone()
        self.optimiser.zero_grad()
        (-(advantage * likelihood).mean()).backward()
        torch.nn.utils.clip_grad_norm_(self.policy.parameters(), 1.0)
        self.optimiser.step()
