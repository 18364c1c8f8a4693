"""Environments in other processes: the pool under the classes of SB3, tianshou and MAPPO, without any of their words.

`Workers` sends one command to each process it is asked for and waits for the answers. `Aligned` stands on it and keeps
steps and resets on one beat: on the turn after an end an environment is reset instead of stepped.
"""

from milkrun.api.workers.aligned import Aligned
from milkrun.api.workers.pool import Workers

__all__ = ["Aligned", "Workers"]
