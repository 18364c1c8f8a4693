"""A world agent by agent: observations, masks and actions of each agent, as views of the world's memory.

A group of agents observes the view `<group>_obs` of its world, and a critic the view `state`. A world of one agent is a
team of one, `agent_0`, that observes the flat layout, or the picture where that is the default layout; its state is the
flat layout. A `Team` is a batch of rows, for MAPPO; a `TeamRow` is a single row, with dicts by agent as in PettingZoo
and RLlib.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from milkrun.api._binding import (
    begin_with,
    end_info,
    offset_seeds,
    one_instance,
    read_options,
    step_info,
    value_of,
    world_behind,
)
from milkrun.api._spaces import Arrays, Follower, Observer, action_space
from milkrun.core.actions import action_array
from milkrun.core.errors import ConfigError, ShapeError, did_you_mean
from milkrun.core.layouts import Observed, layouts
from milkrun.core.world import World

BY_AGENT = "illegal_agents"
"""The view (B, agents) of worlds with an `illegal` for each agent; in others all agents share one."""


class Group(NamedTuple):
    """Agents with the same choices, and their slices of the joint action and the joint mask."""

    name: str
    members: list[str]
    agents: slice
    choices: int
    mask: slice


class Parts(NamedTuple):
    """The observation of a team: by group (rows, agents, ...) and masks (rows, agents, choices); the state (rows,
    S)."""

    seen: list[np.ndarray]
    masks: list[np.ndarray]  # int8; empty where actions are numbers
    state: np.ndarray


class Team(Follower):
    """The agents of all rows. Like an Observer: `bind` after a reset, `refresh` before `now` is read. `aside` has the
    fields that neither the agents nor their critic observe."""

    now: Parts
    aside: Arrays
    _found = ("now", "aside")

    def __init__(self, world: World) -> None:
        self.world = world
        self.groups = groups_of(world)
        self.names = [name for group in self.groups for name in group.members]
        if world.groups:
            self._observer = Observer(world, "dict")
        else:
            self._observer = Observer(world, "view" if "view" in layouts(world) else "flat")
        shown = self._observer.live
        if isinstance(shown, dict) and (blind := [group.name for group in self.groups if group.name not in shown]):
            raise ConfigError(f"{type(world).__name__} has no observed view {blind[0]}_obs for its agents to see")
        self._has_state = isinstance(shown, dict) and "state" in shown
        self._observers = [self._observer]
        if not self._has_state and self._observer.layout != "flat":
            self._observers.append(Observer(world, "flat"))
        self._flat = self._observers[-1]
        self.bind()

    def _bind(self) -> None:
        """Finds the arrays again."""
        for observer in self._observers:
            observer.bind()
        live, aside = self._observer.live, self._observer.aside
        self.now = self._parts(live, self._flat.live, aside.get("action_mask"))
        known = {"action_mask", "state", *(group.name for group in self.groups)}
        rest = live if isinstance(live, dict) else aside
        self.aside = {key: array for key, array in rest.items() if key not in known}

    def refresh(self) -> None:
        """Updates the arrays that are not the world's own memory."""
        if self.moved:
            self.bind()
        for observer in self._observers:
            if not observer.steady:
                observer.refresh()

    def parts_of(self, arrays: Mapping[str, np.ndarray], count: int) -> Parts:
        """The observation of rows outside the world, by field name (`world.final`)."""
        live = self._observer.of(arrays, count)
        flat = live if self._flat is self._observer else self._flat.of(arrays, count)
        return self._parts(live, flat, self._observer.aside_of(arrays).get("action_mask"))

    def _parts(self, live: Observed, flat: Observed, mask: np.ndarray | None) -> Parts:
        if isinstance(live, dict):
            seen, mask = [live[group.name] for group in self.groups], live["action_mask"]
        else:
            seen = [live[:, None]]
        masks = [] if mask is None else [mask[:, g.mask].reshape(len(mask), -1, g.choices) for g in self.groups]
        state = live["state"] if isinstance(live, dict) and self._has_state else flat
        assert isinstance(state, np.ndarray)
        return Parts(seen, masks, state)

    def observation_boxes(self) -> list[spaces.Box]:
        """The observation space of each agent."""
        space: Any = self._observer.single_space
        if not self.world.groups:
            return [space]
        boxes: list[spaces.Box] = []
        for group in self.groups:
            many = space[group.name]
            boxes += [spaces.Box(low, high, dtype=many.dtype.type) for low, high in zip(many.low, many.high)]
        return boxes

    def state_box(self) -> spaces.Box:
        """The state for a critic, float32."""
        space: Any = self._flat.single_space
        if self._has_state:
            space = space["state"]
        return spaces.Box(space.low.astype(np.float32), space.high.astype(np.float32))

    def action_spaces(self) -> list[spaces.Space[Any]]:
        """The action space of each agent."""
        if not self.world.groups:
            return [action_space(self.world)]
        return [spaces.Discrete(group.choices) for group in self.groups for _ in group.members]


class TeamRow(Follower):
    """One row of a world, agent by agent; the caller resets it."""

    _found = ("_slots", "_take", "_aside")

    def __init__(self, env: Any, world_id: str | None, world: World | None, settings: dict[str, Any]) -> None:
        self.world = world_behind(env, world_id, world, 1, "disabled", settings)
        if settings.get("seed") is not None:
            begin_with(self.world, settings["seed"])
        self.team = Team(self.world)
        self.names = self.team.names
        self._places = {name: place for place, name in enumerate(self.names)}
        self._joint = np.zeros((1, *self.world.action.shape(self.world.sizes)), self.world.action.dtype)
        self._numbers = self.world.action.kind == "box"
        self._end_info = {key: getattr(self.world, name) for key, name in end_info(self.world).items()}
        self._by_agent: np.ndarray | None = getattr(self.world, BY_AGENT, None)
        self._shared = [(name, getattr(self.world, name)) for name in shared_info(self.world)]
        self.bind()

    def begin(self, seed: int | None, options: Mapping[str, Any] | None) -> None:
        """Begins the episode of key (seed, 0, 0), without a seed the next one of this row. Of the options `instance` is
        read, a mapping of instance fields without a row axis; others are ignored, as PettingZoo's checker requires."""
        seeds = None if seed is None else offset_seeds(self.world, seed, [0])
        instance = one_instance(read_options(options).get("instance"))
        self._restart(seed=seeds, instance=instance)

    def play(self, actions: Mapping[str, Any]) -> None:
        """One step; the default action of an agent is number 0, idle."""
        if not isinstance(actions, Mapping):
            raise ShapeError(f"the actions must be a dict with those of {', '.join(self.names)}, not {actions!r}")
        self._joint[...] = 0
        for name, action in actions.items():
            place = self._places.get(name)
            if place is None:
                raise ShapeError(f"there is no agent {name!r}{did_you_mean(str(name), self.names)}")
            if action is None:
                continue
            if type(action) is not int or self._numbers:
                action = self._checked(name, action)
            try:
                self._slots[place][...] = action
            except OverflowError:
                raise ShapeError(f"{name}: {action} is no 64-bit integer") from None
        self.world.step(self._joint)

    def observations(self) -> list[tuple[str, np.ndarray, np.ndarray | None, dict[str, Any]]]:
        """(name, observation, mask, other fields) of each agent, all copies."""
        if self.moved:
            self.bind()
        self.team.refresh()
        return [
            (name, see(), None if may is None else may(), {key: take() for key, take in self._aside})
            for name, see, may in self._take
        ]

    def outcome(self) -> tuple[float, bool, bool]:
        """The common reward, terminated, truncated."""
        world = self.world
        return world.reward.item(0), world.terminated.item(0), world.truncated.item(0)

    def add_info(self, info: dict[str, Any], place: int, ended: bool) -> None:
        """Adds to an agent's info the fields of a step, and those of an end."""
        info["illegal"] = self.world.illegal.item(0) if self._by_agent is None else self._by_agent.item(place)
        for name, array in self._shared:
            info[name] = value_of(array, 0)
        if ended:
            for key, array in self._end_info.items():
                info[key] = value_of(array, 0)

    def state(self) -> np.ndarray:
        """The state for a critic, float32."""
        self.team.refresh()
        return self.team.now.state[0].astype(np.float32)

    def _bind(self) -> None:
        self.team.bind()
        now, each = self.team.now, self._joint.reshape(-1)
        # 0-d views of single numbers, which write into the joint action.
        self._slots = [each] if self._numbers else [each[k : k + 1].reshape(()) for k in range(len(each))]
        self._take: list[tuple[str, Callable[[], Any], Callable[[], Any] | None]] = []
        for at, group in enumerate(self.team.groups):
            for k, name in enumerate(group.members):
                self._take.append((name, now.seen[at][0, k].copy, now.masks[at][0, k].copy if now.masks else None))
        self._aside = [(key, array[0].copy) for key, array in self.team.aside.items()]

    def _checked(self, name: str, action: Any) -> np.ndarray:
        given, shape = action_array(name, action), self._slots[0].shape
        if given.shape != shape or given.dtype.kind not in ("f" if self._numbers else "iu"):
            kind = "floats" if self._numbers else "an integer"
            raise ShapeError(f"{name}: the action must be {kind} of shape {shape}, not {given.dtype} {given.shape}")
        with np.errstate(over="ignore"):  # a float64 beyond float32 becomes inf, which is out of bounds
            return given.astype(self._joint.dtype)


def shared_info(world: World) -> list[str]:
    """The fields in the info of every step that all agents share, so without `illegal`."""
    return [name for name in step_info(world) if name not in ("illegal", BY_AGENT)]


def groups_of(world: World) -> list[Group]:
    """The groups of a world in its order; a world of one agent is a group of one."""
    choices, agent, place = world.action.nvec(world.sizes) or [0], 0, 0
    groups: list[Group] = []
    for name, members in (world.groups or {"agent": ["agent_0"]}).items():
        n, count = choices[agent], len(members)
        groups.append(Group(name, members, slice(agent, agent + count), n, slice(place, place + n * count)))
        agent, place = agent + count, place + n * count
    return groups
