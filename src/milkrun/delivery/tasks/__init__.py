"""The independent checkers of delivery: costs and broken rules of finished plans. They call no kernel."""

from milkrun.delivery.truckdrone.task import check_episode, truckdrone_return
from milkrun.delivery.tspd.task import Prices, TSPDProblem, check_operations, price_operations, tspd_cost

__all__ = [
    "Prices",
    "TSPDProblem",
    "check_episode",
    "check_operations",
    "price_operations",
    "truckdrone_return",
    "tspd_cost",
]
