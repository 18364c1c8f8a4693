"""Picking from clutter: a suction cup takes objects out of a tray, one at a time; the policy chooses the next.

Observations: `objects` (N, 26) features of each object, `cover` (N, N) shares of i under j, `globals` (12); with
    `maps` also `height` and `segmentation` (M, M).
Actions: Discrete(N): the object to take, by its number, the same through an episode. With `use_discrete_action=False`
    the class is `ClutterMotion`: Box(4), the way of the cup in a tick and its suction.
Mask: objects in play with a visible surface that is level enough; if there is none, the highest one. Objects that
    others cover stay allowed: the policy has to learn not to take them.
Ends: terminated when all are out, when nothing is left, or when the attempts are used up; truncated by `max_steps`,
    by `max_ticks` where a step is a tick, and when the physics fails.
Reward: of a pick when it ends: success, what it moved, dropped or lost, the time it took; a bonus for all.
References: MuJoCo (Todorov et al., IROS 2012); the objects of the YCB set (Calli et al., ICAR 2015).
"""

from __future__ import annotations

from typing import Any

from milkrun.clutter.generator import generate, reset
from milkrun.clutter.motion import ClutterMotion
from milkrun.clutter.observations import observe, update_views
from milkrun.clutter.options import ClutterConfig
from milkrun.clutter.physics import MuJoCoPile
from milkrun.clutter.rays import cast, mark_allowed
from milkrun.clutter.stages import idle, legal, settle, step
from milkrun.core.actions import discrete
from milkrun.core.fields import mask
from milkrun.core.kernels import kernel


@kernel
def see(w, b, x, y):
    """Casts the rays and computes the mask of a given pose."""
    cast(w, b)
    mark_allowed(w, b)
    return True


class Clutter(MuJoCoPile):
    """The policy chooses the next object; a step is a pick, or a tick of it."""

    id = "milkrun/Clutter-v0"
    action = discrete("N")
    seen = {"kernel": see}

    action_mask = mask("N", doc="True = allowed")

    @classmethod
    def variant(cls, config: ClutterConfig) -> Any:
        return cls if config.use_discrete_action else ClutterMotion

    def why_illegal(self, row: int, action: Any) -> str:
        if not 0 <= action < self.sizes["N"]:
            return f"objects are 0..{self.sizes['N'] - 1}"
        for name, word in (("grasped", "is out already"), ("lost", "has left the tray")):
            if getattr(self, name)[row, action]:
                return f"object {action} {word}"
        return f"no surface of object {action} can be gripped"


Clutter.bind(
    generate=generate,
    reset=reset,
    step=step,
    settle=settle,
    legal=legal,
    idle=idle,
    update_views=update_views,
    observe=observe,
)

__all__ = ["Clutter", "ClutterMotion"]
