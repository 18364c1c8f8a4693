"""The same call on a cluster: evaluation, solving and data in shards, on Ray.

    result = scale.evaluate("milkrun/CVRP-v0", "nearest", episodes=1_000_000, seed=7, keep="runs/nearest")

Scheduling, transport, retries and placement are Ray's. What is here is the law: work is cut into shards whose bounds
depend on the work alone, so the answer has the same bits for one worker or a thousand. Importing this loads no Ray.

| file | holds |
|---|---|
| `shards.py` | which rows and episodes a shard plays |
| `policies.py` | policies by reference: what a worker is told instead of a function |
| `work.py` | what a worker does with a shard |
| `cluster.py` | the Ray that a call starts and stops, or joins |
| `driver.py` | a call: hands shards to Ray, takes their results, stops at an error or Ctrl-C |
| `keep.py`, `lock.py` | finished shards in a folder, which belongs to one caller at a time |
| `progress.py` | the bar |
| `evaluate.py`, `solve.py`, `generate.py`, `plan.py` | the calls |
"""

from milkrun.scale.evaluate import evaluate
from milkrun.scale.generate import generate, instances
from milkrun.scale.plan import Plan, plan
from milkrun.scale.solve import solve

__all__ = ["Plan", "evaluate", "generate", "instances", "plan", "solve"]
