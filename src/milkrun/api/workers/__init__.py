"""Environments in other processes: the pool under the classes of SB3, tianshou and MAPPO, independent of all of them.

`pool` is what a caller uses, `processes` starts and messages the workers, `worker` runs in each of them, `shared` holds
observations in shared memory.
"""

from milkrun.api.workers.pool import Aligned, Workers

__all__ = ["Aligned", "Workers"]
