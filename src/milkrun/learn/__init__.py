"""Training: `train` makes a policy for any world, `load` reads it back.

    run = learn.train("milkrun/CVRP-v0", num_loc=20, minutes=10, out="runs/cvrp20")
    policy = learn.load("runs/cvrp20/best.safetensors")

The inputs of the network are derived from the declared fields of the world (`milkrun.core.features`), so a new world is
trained before a network has been written for it.

| file | holds |
|---|---|
| `run.py` | `train` and `resume`: the loop, with evaluations and checkpoints |
| `budget.py`, `process.py` | before the loop: steps and references; around it: threads and interrupts |
| `reinforce.py` | the algorithm for one agent that picks an entry of a named axis |
| `network.py` | the attention model |
| `policy.py` | a trained network as a policy: greedy, sampled, planned |
| `sb3.py`, `sb3_policy.py` | PPO by Stable-Baselines3, for all other worlds; its network as a policy |
| `checkpoint.py`, `trained.py` | files: written atomically, checked when read; what they say |
| `log.py` | the line of progress, the curve |
"""

from milkrun.core.errors import missing_extra
from milkrun.core.features import Features, derive

try:
    import safetensors  # noqa: F401
    import torch  # noqa: F401
except ImportError as e:
    raise missing_extra(str(e.name), "learn") from e

from milkrun.learn.run import Run, resume, train
from milkrun.learn.trained import load

__all__ = ["Features", "Run", "derive", "load", "resume", "train"]
