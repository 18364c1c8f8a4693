"""The environment class of every world, by its id: one that its class names, else one made here after its name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from milkrun.api.torchrl.env import TorchRLEnv
from milkrun.core.arguments import autoreset_name
from milkrun.core.errors import ConfigError
from milkrun.core.references import refer
from milkrun.core.registry import world_spec


class WorldEnv(TorchRLEnv):
    """The environment of one world; `env_class` makes its subclasses."""

    fixed_id: str

    def __init__(
        self,
        generator: Any = None,
        generator_params: Mapping[str, Any] | None = None,
        device: Any = "cpu",
        batch_size: int | Iterable[int] | None = None,
        **keywords: Any,
    ) -> None:
        super().__init__(self.fixed_id, generator, generator_params, device, batch_size, **keywords)

    def __reduce__(self) -> tuple[Any, ...]:
        # pickle finds a class by its name in its module, which lacks most of the classes made here; the id finds them.
        if type(self) is not _classes.get(self.world_id):
            return super().__reduce__()
        return _unfilled, (self.world_id,), self.__getstate__()


_classes: dict[str, type[WorldEnv]] = {}


def env_class(world_id: str) -> type[WorldEnv]:
    """The class of a world, named after its problem: env_class("milkrun/CVRP-v0") is CVRPEnv."""
    spec = world_spec(world_id)
    if spec.id not in _classes:
        world = spec.load()
        own = refer(world, "environments", "torchrl") if "torchrl" in world.environments else WorldEnv
        name = f"{spec.name}Env"
        about = {"fixed_id": spec.id, "__module__": __name__, "__qualname__": name, "__doc__": spec.title or spec.id}
        made = getattr(own, "fixed_id", None) == spec.id  # otherwise it was made for a base class of this world
        _classes[spec.id] = own if made else type(name, (own,), about)
    return _classes[spec.id]


def _unfilled(world_id: str) -> WorldEnv:
    """An empty environment of a class that was made here, for pickle to fill."""
    cls = env_class(world_id)
    return cls.__new__(cls)


def make(world_id: str, num_envs: int | None = None, *, autoreset: Any = "next_step", **keywords: Any) -> WorldEnv:
    """`milkrun.make(..., api="torchrl")`. TorchRL's calls determine when rows are reset, so `autoreset` has no
    effect."""
    if autoreset_name(autoreset) == "same_step":
        raise ConfigError("autoreset='same_step': under TorchRL, step_and_maybe_reset begins the next episode")
    if num_envs is not None:
        if "batch_size" in keywords:
            raise ConfigError(f"num_envs={num_envs} and batch_size={keywords['batch_size']}: give one of them")
        keywords["batch_size"] = [num_envs]
    return env_class(world_id)(**keywords)


TSPEnv = env_class("milkrun/TSP-v0")
CVRPEnv = env_class("milkrun/CVRP-v0")
PCTSPEnv = env_class("milkrun/PCTSP-v0")
PDPEnv = env_class("milkrun/PDP-v0")
VRPEnv = env_class("milkrun/VRP-v0")
VRPPEnv = env_class("milkrun/VRPP-v0")
CVRPPEnv = env_class("milkrun/CVRPP-v0")
WCVRPEnv = env_class("milkrun/WCVRP-v0")
CWCVRPEnv = env_class("milkrun/CWCVRP-v0")
SCWCVRPEnv = env_class("milkrun/SCWCVRP-v0")
SDWCVRPEnv = env_class("milkrun/SDWCVRP-v0")
