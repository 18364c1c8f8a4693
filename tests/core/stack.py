"""Stack: a small world whose step has no guard; only its kernel `fault` keeps a loaded state from making it write
beyond its record."""

from __future__ import annotations

from milkrun.core.actions import discrete
from milkrun.core.fields import instance, int32, mask, scratch, state, view
from milkrun.core.kernels import kernel
from milkrun.core.world import World

TOO_FULL, NO_STACK = 1, 2


class Stack(World):
    """Crates 1..3 are put on a stack of at most `room` places, until it is full."""

    action = discrete(3)
    room = instance(int32, low=1, high="N", doc="places")
    crate = state(int32, "N", low=0, high=3, doc="from the ground up; 0: none")
    height = state(int32, low=0, high="N", doc="crates on the stack; the index of the next one, which may be beyond")
    seen = state(int32, "N", tally=True, low=0, doc="for reports")
    top = view(int32, doc="the last crate")
    work = scratch(int32, 2)
    action_mask = mask(3)
    faults = {TOO_FULL: ("height", "over the room {room}, or full and not terminated"), NO_STACK: ("crate", "has gaps")}

    @classmethod
    def size_of(cls, config):
        return {"N": 4}


@kernel
def generate(w, b):
    w.room[w.instance_row[b]] = 2 + w.stream[b, 1] % 3


@kernel
def reset(w, b):
    w.height[b] = 0
    w.top[b] = 0
    for k in range(w.N):
        w.crate[b, k] = 0
    w.action_mask[b, :] = True


@kernel
def step(w, b, action):
    w.crate[b, w.height[b]] = action + 1  # without a guard: `fault` lets in no live row whose stack is full
    w.height[b] += 1
    w.top[b] = action + 1
    w.reward[b] = 1
    w.terminated[b] = w.height[b] >= w.room[w.instance_row[b]]


@kernel
def fault(w, b):
    room = w.room[w.instance_row[b]]
    if w.height[b] > room or (w.height[b] == room and not (w.terminated[b] or w.truncated[b])):
        return TOO_FULL
    w.work[0] = 0
    for k in range(w.N):
        w.work[0] += (w.crate[b, k] > 0) != (k < w.height[b])
    return NO_STACK if w.work[0] else 0


Stack.bind(generate=generate, reset=reset, step=step, fault=fault)
