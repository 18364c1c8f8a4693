"""What the tests of the RL4CO environments share: a batch worked out by hand, batches in mid-episode, comparisons."""

from __future__ import annotations

import torch
from tensordict import TensorDict

from milkrun.api.rl4co import CVRPEnv, TSPEnv

ENVS = {"tsp": TSPEnv, "cvrp": CVRPEnv}
SQUARE = [[3.0, 0.0], [3.0, 4.0], [0.0, 4.0]]


def square(demand=(0.5, 0.5, 0.5), capacity=10.0, rows=1):
    """Depot (0,0), customers at the other corners of a 3 x 4 box."""
    one = {
        "locs": torch.tensor([SQUARE]),
        "depot": torch.zeros(1, 2),
        "demand": torch.tensor([demand]),
        "capacity": torch.tensor([[capacity]]),
    }
    return TensorDict({k: v.repeat(rows, *[1] * (v.ndim - 1)) for k, v in one.items()}, batch_size=[rows])


def play(env, td, *actions):
    for action in actions:
        td.set("action", torch.as_tensor(action).expand(td.batch_size).clone())
        td = env.step(td)["next"]
    return td


def started(name, rows=6, num_loc=5):
    """An environment and a batch some steps into random episodes, each row at its own place."""
    env = ENVS[name](generator_params={"num_loc": num_loc}, seed=11)
    td = env.reset(batch_size=[rows])
    for turn in range(3):
        allowed = td["action_mask"].nonzero()
        action = torch.stack(
            [nodes[(turn + b) % len(nodes), 1] for b in range(rows) for nodes in [allowed[allowed[:, 0] == b]]]
        )
        td.set("action", action)
        td = env.step(td)["next"]
    td.set("action", td["action_mask"].int().argmax(-1))
    return env, td


def leaves(td):
    return {key: value.clone() for key, value in td.items(True, True)}


def same(a, b):
    assert set(a.keys(True, True)) == set(b.keys(True, True))
    return all(torch.equal(value, b[key]) for key, value in a.items(True, True))


def shown(td, *keys):
    return [td[key].tolist() for key in keys]
