"""Checks the plans of external solvers: played under the mask, then priced by the checker of the world.

The solvers of the library call the checker themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from milkrun.core.errors import BadSolution, MilkrunError
from milkrun.core.instances import as_array, instances_of, read_instances
from milkrun.core.references import refer
from milkrun.core.registry import WorldSpec
from milkrun.routing.base import Places
from milkrun.routing.instances import Instance
from milkrun.solvers.given import read_given

SLACK = 1e-5
"""Absolute and relative tolerance between two costs of a plan: rewards are summed in single precision."""
CheckedPlans = tuple[NDArray[Any], NDArray[np.float64], NDArray[np.bool_]]


class PlanChecker:
    """Checks what one method of a world returns for some instances."""

    def __init__(self, spec: WorldSpec, method: str, instances: Any, config: Mapping[str, Any]) -> None:
        self.cls = spec.load()
        self.spec = spec
        self.method = method
        self.instances = instances
        self.config = dict(config)

    def check(self, solution: Any) -> CheckedPlans:
        """Actions, cost by the checker, optimal; BadSolution names the first instance whose plan or price is wrong."""
        actions, claimed, optimal = self._read(solution)
        if not (self._has_fields() or hasattr(self.cls, "from_instances")):
            return actions, self._price(self.cls.Config.build(**self.config), self.instances, actions, claimed), optimal
        world, arrays = self.begin(len(actions))
        if self.cls.plans_are_actions:
            self._play(world, actions)
        if self.cls.task or not self.cls.plans_are_actions:
            return actions, self._price(world.config, arrays, actions, claimed), optimal
        over = world.terminated
        if not over.all():
            self._refuse(int(over.argmin()), "the plan leaves the episode unfinished")
        self._compare(claimed, -world.objective, "the world's is")
        return actions, claimed, optimal

    def check_policy(self, policy: Callable[[Any], NDArray[Any]]) -> CheckedPlans:
        """Plays a policy from the start of the instances and checks its actions."""
        world, _ = self.begin()
        while len(live := np.flatnonzero(~(world.terminated | world.truncated))):
            world.step(policy(world)[live], rows=live)
        if not world.terminated.all():
            self._refuse(int(world.terminated.argmin()), f"max_steps = {world.max_steps} cuts the episode off")
        return self.check((world.solution(), -world.objective, np.zeros(world.num_envs, bool)))

    def begin(self, plans: int | None = None) -> tuple[Any, dict[str, NDArray[Any]]]:
        """A reset world with a row for each instance, and the instances as its fields.

        `plans` is the number of plans; it must be that of the instances.
        """
        if self._has_fields():
            world, arrays = self._world(plans)
            world.reset(instance=arrays)
            return world, arrays
        # Objects that the world reads itself: DARPInstance, TSPDInstance.
        given = list(self.instances) if isinstance(self.instances, Sequence) else [self.instances]
        self._count(plans, len(given))
        world = self.cls.from_instances(given, autoreset="disabled", **self.config)
        return world, instances_of(world)

    def _has_fields(self) -> bool:
        return isinstance(self.instances, Instance) or hasattr(self.instances, "keys")

    def _read(self, solution: Any) -> CheckedPlans:
        if not isinstance(solution, tuple) or len(solution) != 3:
            self._refuse(None, f"a solver returns a Solution (actions, cost, optimal), not a {type(solution).__name__}")
        try:
            actions, claimed, optimal = (
                np.asarray(solution[0]),
                np.asarray(solution[1], float),
                np.asarray(solution[2], bool),
            )
        except (TypeError, ValueError) as error:
            self._refuse(None, f"its Solution does not hold arrays: {error}")
        kinds = "f" if self.cls.action.kind == "box" else "iu"
        if actions.ndim < 2 or actions.dtype.kind not in kinds:
            self._refuse(None, f"actions are (B, L), whole numbers, not {actions.dtype} of shape {actions.shape}")
        for name, array in {"cost": claimed, "optimal": optimal}.items():
            if array.shape != (len(actions),):
                self._refuse(None, f"{name} has the shape {array.shape}, but there are {len(actions)} plans")
        return actions, claimed, optimal

    def _world(self, plans: int | None) -> tuple[Any, dict[str, NDArray[Any]]]:
        """A world with a row for each instance, and the instances as its fields."""
        rows = plans or 1
        if issubclass(self.cls, Places):
            world, arrays = read_given(self.spec, self.instances, dict(self.config))
            config = world.config
        else:
            config = self.cls.Config.build(**self.config)
            given = {str(name): as_array(str(name), self.instances[name]) for name in list(self.instances.keys())}
            first = given["instance_row"] if "instance_row" in given else next(iter(given.values()), np.empty(rows))
            arrays, owner = read_instances(self.cls.variant(config)(1, config), given, len(np.atleast_1d(first)))
            if owner is not None:
                arrays = {name: array[owner] for name, array in arrays.items()}
        rows = len(next(iter(arrays.values()), range(rows)))
        self._count(plans, rows)
        return self.cls.variant(config)(rows, config, seed=0, autoreset="disabled"), arrays

    def _count(self, plans: int | None, instances: int) -> None:
        if plans is not None and plans != instances:
            self._refuse(None, f"it gives {plans} plans for {instances} instances")

    def _play(self, world: Any, actions: NDArray[Any]) -> None:
        """Plays the plans; an action that the mask forbids is refused.

        Forbidden zeros at the end are padding. One more zero ends episodes that end by staying at the depot.
        """
        actions = np.concatenate([actions, np.zeros_like(actions, shape=(len(actions), 1, *actions.shape[2:]))], axis=1)
        any_given = actions.any(axis=tuple(range(2, actions.ndim)))
        length = (any_given * np.arange(1, actions.shape[1] + 1)).max(axis=1)
        for t in range(actions.shape[1]):
            live = np.flatnonzero(~(world.terminated | world.truncated))
            if not len(live):
                return
            world.step(actions[live, t], rows=live)
            wrong = live[world.illegal[live] & (t < length[live])]
            if len(wrong):
                row = int(wrong[0])
                action = actions[row, t].tolist()
                self._refuse(row, f"action {t} of the plan, {action}, is not allowed: {world.why_illegal(row, action)}")

    def _price(self, config: Any, instances: Any, actions: NDArray[Any], claimed: NDArray[Any]) -> NDArray[np.float64]:
        """The cost by the task of the world, which must name one."""
        if not self.cls.task:
            what = f"a {type(self.instances).__name__}" if self.cls.plans_are_actions else "them"
            self._refuse(None, f"its plans cannot be checked: {self.spec.id} has no task, and cannot play {what}")
        weights = self.cls.task_weights(config)
        priced = () if weights is None else (weights,)
        options = self.cls.task_options(config)
        task = refer(self.cls, "task")
        try:
            cost = task.get_costs(instances, actions, *priced, on_violation="inf", **options)[0]
            cost = np.asarray(cost, np.float64)
            # Raised again for the sentence that names the row and the rule.
            if cost.shape == claimed.shape and not np.isfinite(cost).all():
                task.get_costs(instances, actions, *priced, on_violation="raise", **options)
        except (MilkrunError, ValueError) as error:
            raise BadSolution(f"{self._method_and_row()}: the checker refuses the plans: {error}") from error
        if cost.shape != claimed.shape:
            self._refuse(None, f"the task gives costs of shape {cost.shape}, not {claimed.shape}")
        if not np.isfinite(cost).all():
            self._refuse(int(np.isfinite(cost).argmin()), "the checker refuses the plan")
        self._compare(claimed, cost, "the checker's is")
        return cost

    def _compare(self, claimed: NDArray[Any], truth: NDArray[Any], whose: str) -> None:
        wrong = ~np.isclose(claimed, truth, rtol=SLACK, atol=SLACK)
        if wrong.any():
            row = int(wrong.argmax())
            self._refuse(row, f"the solver states a cost of {claimed[row]:.10g}, {whose} {truth[row]:.10g}")

    def _method_and_row(self, row: int | None = None) -> str:
        return f"{self.spec.name} by {self.method!r}" + ("" if row is None else f", instance {row}")

    def _refuse(self, row: int | None, what: str) -> NoReturn:
        raise BadSolution(f"{self._method_and_row(row)}: {what}")
