"""The rules of the contract that show when two worlds make the same calls.

One world is played once (`checker.play`). Its calls are repeated in worlds that may differ in batch size, threads,
history, saving or calls of `observe`, but in no bit of their rows. Each rule is a function as in `rules`; its argument
is the bench that makes the worlds and holds the calls.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from milkrun.core.check.bench import Bench, Fault, apply, choose, differences, numbers_differ, replayed
from milkrun.core.check.interpreted import ends_guarded, interpreted_alike
from milkrun.core.check.rules import OUTCOME, Transition, finite, in_bounds
from milkrun.core.errors import BadInstance, ConfigError
from milkrun.core.fields import Field, Role
from milkrun.core.launcher import NO_LIMIT
from milkrun.core.world import World
from milkrun.render.recorder import EpisodeRecorder

SHOWN = 32  # steps of an episode that are recorded
PATIENCE = 5_000  # turns in which some row of a world without a step limit must have ended


def writes_inside(bench: Bench) -> Iterator[Fault]:
    """Kernels write only into their own arrays."""
    for name in bench.overrun():
        yield None, name, f"a kernel writes beyond the ends of {name}"


def ends(bench: Bench) -> Iterator[Fault]:
    """Random play terminates in a world without a step limit."""
    world, rng = bench.make(), np.random.default_rng(bench.seed)
    if bench.some_ended or world.max_steps != NO_LIMIT:
        return
    world.reset()
    for _ in range(PATIENCE):
        world.step(choose(world, rng))
        if (world.terminated | world.truncated).any():
            return
    yield None, "terminated", f"no row of {bench.rows} ended within {PATIENCE} random steps, and max_steps is None"


def reproducible(bench: Bench) -> Iterator[Fault]:
    """The same calls on the same seed give the same bits."""
    yield from replayed(bench, bench.make(), bench.make(), "when the same calls are made again")


def reads_inside(bench: Bench) -> Iterator[Fault]:
    """Kernels read only from their own arrays: the bytes beyond them change nothing."""
    how = "when other bytes lie beyond the ends of the arrays"
    yield from replayed(bench, bench.make(), bench.make(guard=0x01), how)


def rows_alone(bench: Bench) -> Iterator[Fault]:
    """A row is the same in any batch: a slice of a big one, made alone with `first_row`, has the same bits."""
    n = bench.rows
    cuts = sorted({0, 1, 3, n // 2, n // 2 + 1, n - 1, n})
    whole = bench.make()
    parts = [bench.make(b - a, first_row=a) for a, b in pairwise(cuts)]
    for call in bench.script:
        apply(whole, call)
        for part in parts:
            apply(part, call)
            how = f"in a world of {part.num_envs} row{'s' * (part.num_envs > 1)} that begins at row {part.first_row}"
            if found := list(differences(whole, part, how, instances=call.actions is None)):
                yield from found
                return


def reset_forgets(bench: Bench) -> Iterator[Fault]:
    """The start of an episode does not depend on earlier episodes: reset writes every field."""
    played, fresh = bench.make(), bench.make()
    for call in bench.script:
        apply(played, call)
    for world in (played, fresh):
        world.reset(seed=bench.seed ^ 1)
        world.observe()
    # a record is as long as its counter, so later elements may stay
    records = [f.name for f in bench.cls.fields.values() if f.tally and f.dims]
    yield from differences(played, fresh, "after the same reset of a world never played", skip=records, on_demand=True)


def looking_changes_nothing(bench: Bench) -> Iterator[Fault]:
    """`observe` and `render` write nothing but views, and a view does not depend on how often it was computed."""
    blind, seen = bench.make(), bench.make()
    for number, call in enumerate(bench.script):
        apply(blind, call)
        apply(seen, call)
        seen.observe()
        if number % 32 == 0:
            seen.render(0)
        if found := list(differences(blind, seen, "when observe() or render() was called")):
            yield from found
            return
    blind.observe()
    yield from differences(blind, seen, "when observe() was called before", on_demand=True)


def episodes_shown(bench: Bench) -> Iterator[Fault]:
    """An episode can be recorded: its scenes have the same marks at every step, and its chart names existing fields,
    lanes and kinds."""
    if bench.cls.scene is World.scene and bench.cls.chart is World.chart and not bench.cls.chart_fields:
        return
    world, rng = bench.make(1), np.random.default_rng(bench.seed)
    world.reset()
    try:
        recorder = EpisodeRecorder(world, reasons="none")
        for _ in range(SHOWN):
            recorder.step(choose(world, rng))
            if world.terminated[0] or world.truncated[0]:
                break
        recorder.episodes()
    except ConfigError as e:
        yield None, "", str(e)


def views_in_bounds(bench: Bench) -> Iterator[Fault]:
    """Views on demand keep the bounds of their fields, too."""
    world = bench.make()
    made = [f.name for f in world.fields.values() if f.on_demand and 0 not in f.shape(world.sizes)]
    for call in bench.script if made else ():
        apply(world, call)
        world.observe()
        transition = Transition(world, call, {}, {name: getattr(world, name) for name in made})
        if found := [*in_bounds(transition), *finite(transition)]:
            yield from found
            return


def views_not_read(bench: Bench) -> Iterator[Fault]:
    """The dynamics read no view and no tally: functional stepping does not carry them."""
    for f in bench.cls.fields.values():
        if 0 in f.shape(bench.cls.size_of(bench.config)) or f.name in ("objective", *OUTCOME):
            continue
        if f.role is Role.VIEW or (f.role is Role.STATE and f.tally):
            yield from _read_back(bench, f)


def remade_not_read(bench: Bench) -> Iterator[Fault]:
    """A step writes every element of a mask declared `remade`: functional stepping does not copy it."""
    for f in bench.cls.fields.values():
        if f.remade and f.role is Role.MASK and bench.cls.action.kind == "discrete":
            yield from _carried_over(bench, f)
        elif f.remade:
            yield None, f.name, "remade is for the mask of a world with one discrete action"


def saves_all(bench: Bench) -> Iterator[Fault]:
    """`state_dict` holds the whole state of a row: a world that loads it continues bit for bit."""
    first, half = bench.make(), len(bench.script) // 2
    for call in bench.script[:half]:
        apply(first, call)
    second = bench.make(seed=bench.seed ^ 1)
    second.load_state_dict(first.state_dict())
    yield from replayed(bench, first, second, "in a world that loaded its state_dict", start=half)


def autoreset_as_by_hand(bench: Bench) -> Iterator[Fault]:
    """NEXT_STEP and SAME_STEP play the same episodes as calls of `reset(rows=...)`."""
    hand, auto = bench.make(), bench.make(autoreset="next_step")
    hand.reset()
    auto.reset()
    for actions in _moves(bench, hand):
        ended = hand.terminated | hand.truncated
        auto.step(actions)
        hand.step(actions[~ended], rows=~ended)
        hand.reset(rows=ended)
        if found := list(differences(hand, auto, "under autoreset='next_step'")):
            yield from found
            return
    hand, auto = bench.make(), bench.make(autoreset="same_step")
    hand.reset()
    auto.reset()
    for actions in _moves(bench, hand):
        auto.step(actions)
        hand.step(actions)
        how = "under autoreset='same_step'"
        found = [*differences(hand, auto, how, only=OUTCOME)]
        hand.reset(rows=hand.terminated | hand.truncated)
        if found := found + list(differences(hand, auto, how, skip=OUTCOME)):
            yield from found
            return


def takes_own_instances(bench: Bench) -> Iterator[Fault]:
    """`reset(instance=...)` accepts every instance that the generator draws."""
    try:
        bench.make().reset(instance=_drawn(bench))
    except BadInstance as refusal:
        yield None, "", f"an instance that was drawn is refused when given: {refusal}"


def instances_shared(bench: Bench) -> Iterator[Fault]:
    """A row plays the instance that `instance_row` names, in any order."""
    drawn = _drawn(bench)
    if not drawn:
        return
    order = np.arange(bench.rows)[::-1]
    own, shared = bench.make(autoreset="next_step"), bench.make(autoreset="next_step")
    own.reset(instance={name: array[order] for name, array in drawn.items()})
    shared.reset(instance={**drawn, "instance_row": order})
    for actions in _moves(bench, own):
        own.step(actions)
        shared.step(actions)
        if found := list(differences(own, shared, "when the instance stands in another row")):
            yield from found
            return


def terminal_is_dense(bench: Bench) -> Iterator[Fault]:
    """reward='terminal' pays the sum of the 'dense' rewards on the last step, and changes nothing else."""
    option = next((f for f in dataclasses.fields(bench.config) if f.name == "reward"), None)
    if option is None or not {"dense", "terminal"} <= set(option.metadata.get("choices", ())):
        return
    try:
        dense, late = (bench.make(config=bench.config.replace(reward=word)) for word in ("dense", "terminal"))
    except ConfigError:  # a configuration with one way of paying
        return
    for call in bench.script:
        apply(dense, call)
        apply(late, call)
        due = np.where(late.terminated | late.truncated, dense.objective, 0)[call.rows].astype(late.reward.dtype)
        found = list(differences(dense, late, "under reward='terminal'", skip=("reward", "reward_exact")))
        for k in np.flatnonzero(late.reward[call.rows] != due)[:1].tolist():
            b = int(call.rows[k])
            found.append((b, "reward", f"reward = {late.reward[b]} under reward='terminal': must be {due[k]}"))
        if found:
            yield from found
            return


def threads_agree(bench: Bench) -> Iterator[Fault]:
    """No bit depends on the number of threads."""
    yield from replayed(bench, bench.make(), bench.make(threads=2), "on 2 threads")


REPLAY_RULES = (
    ends,
    reproducible,
    interpreted_alike,
    reads_inside,
    rows_alone,
    reset_forgets,
    looking_changes_nothing,
    episodes_shown,
    views_in_bounds,
    views_not_read,
    remade_not_read,
    takes_own_instances,
    saves_all,
    autoreset_as_by_hand,
    instances_shared,
    terminal_is_dense,
    threads_agree,
    ends_guarded,
)
"""In the order of cause and effect: a world that breaks one is likely to break those after it."""


def _moves(bench: Bench, world: World) -> Iterator[np.ndarray]:
    """Random actions by the masks of `world`, for as many turns as the script has calls."""
    rng = np.random.default_rng(bench.seed)
    for _ in bench.script:
        yield choose(world, rng, closed=0.1)


def _read_back(bench: Bench, f: Field) -> Iterator[Fault]:
    """Plays with `f` exchanged between rows before every step: all fields but other tallies must stay equal, and a view
    must be computed again."""
    one, two = bench.make(), bench.make()
    spared = (f.name, *(g.name for g in bench.cls.fields.values() if g.tally and g.name != "objective"))
    for call in bench.script:
        if call.actions is not None:
            getattr(two, f.name)[:] = np.roll(getattr(two, f.name), 1, axis=0)
        apply(one, call)
        apply(two, call)
        if next(differences(one, two, "", skip=spared), None):
            yield None, f.name, f"the dynamics read {f.name}, a {f.role.value}{' for reports' * f.tally}"
            return
        if f.role is Role.VIEW and not f.on_demand and call.actions is not None:
            stepped = call.rows[~one.illegal[call.rows]]
            if numbers_differ(getattr(one, f.name)[stepped], getattr(two, f.name)[stepped]).any():
                yield None, f.name, f"a step does not compute {f.name}, but a view is not carried from step to step"
                return


def _carried_over(bench: Bench, f: Field) -> Iterator[Fault]:
    """Plays with the mask inverted before every step, except for the action that is taken."""
    one, two = bench.make(), bench.make()
    for call in bench.script:
        if call.actions is not None:
            live = call.rows[~one.done[call.rows]]
            mask, taken = getattr(one, f.name), call.actions[~one.done[call.rows]]
            inside = (taken >= 0) & (taken < mask.shape[1])
            live, taken = live[inside], taken[inside]
            live, taken = live[mask[live, taken]], taken[mask[live, taken]]
            getattr(two, f.name)[live] = ~mask[live]
            getattr(two, f.name)[live, taken] = True
        apply(one, call)
        apply(two, call)
        if next(differences(one, two, ""), None):
            yield None, f.name, f"a step reads {f.name} or does not write all of it, but it is declared remade"
            return


def _drawn(bench: Bench) -> dict[str, np.ndarray]:
    world = bench.make()
    world.reset()
    fields = (f for f in world.fields.values() if f.role is Role.INSTANCE and 0 not in f.shape(world.sizes))
    return {f.name: getattr(world, f.name).copy() for f in fields}
