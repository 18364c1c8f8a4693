"""VMAS's simple_spread under random discrete actions; prints one line of JSON with environment-steps per second.

A script for the Python of a venv of its own (`pip install vmas`), since VMAS needs the retired gym and an old pyglet:

    .venv-vmas/bin/python bench/peers/vmas_steps.py [--rows 1024 4096 8192] [--clock cpu]

Its scenario never ends, so users reset all rows at once after some number of steps: here after 100, and the reset is
timed too. One torch thread. Chosen in VMAS's favour: actions are drawn beforehand, and it runs without autograd.
"""

import argparse
import gc
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
import vmas

STEPS = 100
AGENTS = 3


def make(rows: int) -> Any:
    return vmas.make_env(
        scenario="simple_spread", num_envs=rows, device="cpu", continuous_actions=False, seed=0, n_agents=AGENTS
    )


def steps_per_second(rows: int, repeats: int, clock: Callable[[], float]) -> tuple[float, float]:
    """Median over warm episodes of the rows' steps a second, and the mean reward as a plausibility check."""
    env = make(rows)
    turns = [env.get_random_actions() for _ in range(STEPS)]
    rates, rewards = [], []
    for _ in range(repeats + 1):
        gc.collect()
        gc.disable()
        before = clock()
        env.reset()
        for actions in turns:
            _, reward, _, _ = env.step(actions)
        rates.append(rows * STEPS / (clock() - before))
        gc.enable()
        rewards.append(float(reward[0].mean()))
    return statistics.median(rates[1:]), statistics.mean(rewards)


def main() -> None:
    parser = argparse.ArgumentParser(description="environment-steps per second of VMAS's simple_spread")
    parser.add_argument("--rows", type=int, nargs="+", default=[1024, 4096, 8192])
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall")
    options = parser.parse_args()
    clock = {"wall": time.perf_counter, "cpu": time.process_time}[options.clock]
    torch.set_num_threads(1)
    torch.set_num_interop_threads(1)
    report: dict[str, Any] = {"vmas": vmas.__version__, "torch": torch.__version__, "clock": options.clock}
    with torch.no_grad():
        measured = {rows: steps_per_second(rows, options.repeats, clock) for rows in options.rows}
    report["rates"] = {rows: rate for rows, (rate, _) in measured.items()}
    report["rewards"] = {rows: reward for rows, (_, reward) in measured.items()}
    print(json.dumps(report))


if __name__ == "__main__":
    main()
