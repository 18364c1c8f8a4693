"""`VRPEnv` under the published import path, loaded on first access: a family imports no binding."""

from milkrun.core.lazy import lazy

__getattr__, __dir__, __all__ = lazy(__name__, {"milkrun.compat.vrp.VRP_env": "VRPEnv"})
