"""Evaluation, solving and generation of datasets in shards, on a Ray cluster.

    result = scale.evaluate("milkrun/CVRP-v0", "nearest", episodes=1_000_000, seed=7, keep="runs/nearest")

Ray does scheduling, transport, retries and placement. This package divides a job into shards whose bounds do not depend
on the cluster, so the result has the same bits for one worker or a thousand. Importing it does not load Ray.

| file | holds |
|---|---|
| `shards.py` | the rows and episodes of each shard |
| `policies.py` | policies by name: functions are not sent to workers |
| `work.py` | the tasks of the workers |
| `cluster.py` | starts and stops a local Ray, or joins a cluster |
| `driver.py` | submits shards to Ray, takes their results, stops at an error or Ctrl-C; the progress bar |
| `shard_store.py`, `lock.py` | finished shards in a folder, which one call at a time may use |
| `evaluate.py`, `solve.py`, `generate.py`, `plan.py` | the calls |
"""

from milkrun.scale.evaluate import evaluate
from milkrun.scale.generate import generate, instances
from milkrun.scale.plan import ShardPlan, plan
from milkrun.scale.solve import solve

__all__ = ["ShardPlan", "evaluate", "generate", "instances", "plan", "solve"]
