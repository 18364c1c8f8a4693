"""The same worlds in the words of other libraries: `milkrun.make(id, api="torchrl")`. This file lists the bindings.

`announce` is called once by `import milkrun`; a binding is imported on first use.
"""

from __future__ import annotations

from typing import NamedTuple

from milkrun.core.config import RESERVED
from milkrun.core.registry import WorldSpec, bindings, on_register


class Binding(NamedTuple):
    """How a library's environments are made."""

    make: str
    """"module:name" of the function that `milkrun.make` hands its arguments to"""
    keywords: str
    """what it takes besides: words that no configuration may use for an option"""


BINDINGS = {
    "gymnasium": Binding(
        "milkrun.api.gymnasium:make",
        "world world_id autoreset_mode layout render_mode copy seed_rule max_episode_steps",
    ),
    "torchrl": Binding(
        "milkrun.api.torchrl:make", "generator generator_params device batch_size stepping copy features"
    ),
    "rl4co": Binding(
        "milkrun.api.rl4co:make",
        "data_dir train_file val_file test_file val_dataloader_names test_dataloader_names dataset_cls",
    ),
    "pettingzoo": Binding("milkrun.api.pettingzoo:make", "render_mode"),
    "sb3": Binding("milkrun.api.sb3:make", "layout infos monitor seed_rule render_mode"),
    "tianshou": Binding("milkrun.api.tianshou:make", "layout seed_rule"),
    "mappo": Binding("milkrun.api.mappo:make", "pad_actions"),
    "rllib": Binding("milkrun.api.rllib:make", "world render_mode"),
}


BENCHMARK_ID = "UAVVAT-v0"


def announce() -> None:
    """Makes the bindings known to `make`, and new worlds known to Gymnasium."""
    for name, binding in BINDINGS.items():
        bindings[name] = binding.make
        RESERVED.update(binding.keywords.split())
    on_register["gymnasium"] = register_with_gymnasium
    register_benchmark()


def register_benchmark() -> None:
    """The tracking benchmark under the id that its own documents register; a later registration overrides it."""
    import gymnasium

    if BENCHMARK_ID not in gymnasium.registry:
        gymnasium.register(id=BENCHMARK_ID, entry_point="milkrun.compat.dat:UAV_VAT_Gymnasium")


def register_with_gymnasium(spec: WorldSpec, force: bool) -> None:
    """So that `gymnasium.make(id)` works."""
    import gymnasium

    if spec.id in gymnasium.registry:
        if not force:
            return
        del gymnasium.registry[spec.id]
    gymnasium.register(
        id=spec.id,
        entry_point="milkrun.api.gymnasium:MilkrunEnv",
        vector_entry_point="milkrun.api.gymnasium:MilkrunVectorEnv",
        kwargs={"world_id": spec.id},
        max_episode_steps=None,
        nondeterministic=spec.nondeterministic,
        order_enforce=True,
        disable_env_checker=False,
    )
