"""Plans for the TSP with drone (`plans`), the optimum of small ones (`dynamic`), a policy that follows a plan."""

from milkrun.solvers.tspd.plans import TSPDPlan, exact, partition, truck_only

__all__ = ["TSPDPlan", "exact", "partition", "truck_only"]
