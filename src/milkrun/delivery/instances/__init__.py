"""Truck-and-drone instances and plans of the literature: read and write files.

instance = load_tspd("uniform-1-n5.txt")
solution = load_tspd_solution("uniform-1-n5-DP.txt", nodes=instance.num_nodes)
"""

from milkrun.delivery.instances.tspd import EPS, Operation, Solution, TSPDInstance
from milkrun.delivery.instances.tspd_text import load_tspd, load_tspd_solution, write_tspd, write_tspd_solution

__all__ = [
    "EPS",
    "Operation",
    "Solution",
    "TSPDInstance",
    "load_tspd",
    "load_tspd_solution",
    "write_tspd",
    "write_tspd_solution",
]
