"""Instances of the rule `classic`: fields, padding, tightened windows, and checks."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from milkrun.core.errors import ConfigError, ShapeError, did_you_mean
from milkrun.core.fields import constant, float64, instance, int32, int64
from milkrun.core.instances import as_array, padded, refuse
from milkrun.routing.darp.base import DARPBase
from milkrun.routing.darp.config import STYLES, DARPConfig
from milkrun.routing.darp.generator import GAVE_UP
from milkrun.routing.darp.states import check_count, check_riders, check_schedule
from milkrun.routing.darp.windows import FAULTS, faults_alone, tightened
from milkrun.routing.instances.darp import MOST, DARPInstance


class DARPInstances(DARPBase):
    """The instance fields of the rule `classic`, and their checks."""

    side = constant(float64)
    window_width = constant(float64)
    open_end = constant(float64)
    duration = constant(float64)
    ride_limit = constant(float64)
    service_law = constant(float64, doc="time of a stop; below 0: one unit a rider")
    largest_group = constant(int64)

    time_windows = instance(float64, "N", limit=True, doc="latest start of service; of the depot: the end of the day")
    window_open = instance(float64, "N", doc="earliest start of service; of the depot: the start of the day")
    service_time = instance(float64, "N", low=0, doc="how long a stop takes; 0 at the depot")
    max_ride_time = instance(float64, "R", low=0, limit=True, doc="from the end of the pickup to the dropoff's start")
    max_route_duration = instance(float64, low=0, limit=True, column=True, doc="from leaving the depot to being back")
    dist = instance(float64, "M", "M", low=0, doc="distance row -> column; only with metric='matrix'")
    tight_open = instance(float64, "N", limit=True, doc="`window_open` narrowed to what a schedule can use")
    tight_close = instance(float64, "N", limit=True, doc="`time_windows` narrowed to what a schedule can use")
    n_nodes = instance(int32, low=3, high="N", doc="true node count; higher indices are padding")

    @classmethod
    def size_of(cls, config: DARPConfig) -> dict[str, int]:
        sizes = cls.fleet(config)
        most = config.max_onboard or 8
        requests = sizes["N"] // 2
        # Levels of summaries: the row's own route is at level 0 or 1 and the tried node one above; up to P dropoffs and
        # the return follow. So the highest is 1 + 1 + P + 1.
        return {
            **sizes,
            "R": requests,
            "last request": requests - 1,
            "P": most,
            "L": most + 4,
            "M": sizes["N"] if config.metric == "matrix" else 0,
        }

    def constants(self) -> dict[str, Any]:
        config = self.config
        style = STYLES[config.style or "a"]
        if config.service is not None:
            service = config.service
        else:
            service = 3.0 if config.style == "a" else -1.0
        return {
            "ride_limit": style["ride"] if config.max_ride is None else config.max_ride,
            "service_law": service,
            "largest_group": 1 if config.style == "a" else 6,
        }

    @classmethod
    def from_instances(cls, instances: Sequence[DARPInstance | Mapping[str, Any]], repeat: int = 1, **make: Any) -> Any:
        """A reset world that plays these instances of any sizes and fleets, each in `repeat` rows without a copy."""
        from milkrun.core.registry import make as make_world

        if make.get("rule", "classic") != "classic" or make.get("preset") == "published":
            raise ConfigError("from_instances plays instances under the rule 'classic'")
        if not instances:
            raise ShapeError("from_instances needs at least one instance")
        given = [_instance(k, one) for k, one in enumerate(instances)]
        if len({one.dist is None for one in given}) > 1:
            raise ShapeError("'dist' is given in some instances and not in others")
        if "num_loc" not in make:
            make.setdefault("num_requests", max(one.num_requests for one in given))
        make.setdefault("num_agents", max(one.num_agents for one in given))
        make.setdefault("max_duration", 60.0)  # for the law, which draws nothing here
        if given[0].dist is not None:
            make.setdefault("metric", "matrix")
        world = make_world(cls.id, num_envs=len(given) * repeat, **make)
        rows = [{name: array[0] for name, array in one.fields().items()} for one in given]
        batch = {name: np.stack([_padded(one[name], name, world) for one in rows]) for name in rows[0]}
        batch["n_nodes"] = np.array([len(one.demand) for one in given], np.int32)
        world._padding = True
        world.reset(instance={**batch, "instance_row": np.arange(len(given) * repeat) // repeat})
        world._padding = False
        return world

    _padding = False  # accepts vehicles without seats

    def at_depot(self) -> dict[str, float]:
        return {"demand": 0, "time_windows": self.duration, "window_open": 0.0, "service_time": 0.0}

    def arrange_instances(self, values: dict[str, Any]) -> dict[str, Any]:
        """Derives the tightened windows, and refuses vehicles without seats.

        `check_instances` accepts such vehicles, since rows of `from_instances` with smaller fleets have them. Missing
        or misshapen fields are refused later.
        """
        values = super().arrange_instances(values)
        rows = len(next(iter(values.values()), ()))
        seats = values.get("capacity")
        if not self._padding and seats is not None and self._fits("capacity", seats, rows) and (seats == 0).any():
            refuse("capacity", seats, seats == 0, "must be at least 1")
        nodes = self.sizes["N"]
        values.setdefault("n_nodes", np.full(rows, nodes, np.int32))
        needed = (
            "window_open",
            "time_windows",
            "service_time",
            "max_ride_time",
            "n_nodes",
            "dist" if self.sizes["M"] else "locs",
        )
        if all(name in values and self._fits(name, values[name], rows) for name in needed):
            with np.errstate(invalid="ignore", over="ignore"):
                values["tight_open"], values["tight_close"] = self._tightened(values)
        else:
            values["tight_open"] = values["tight_close"] = np.zeros((rows, nodes))
        return values

    def _fits(self, name: str, array: np.ndarray, rows: int) -> bool:
        return array.dtype.kind in "fiu" and array.shape == (rows, *self.fields[name].shape(self.sizes))

    def check_instances(self, arrays: dict[str, np.ndarray]) -> None:
        super().check_instances(arrays)
        self._check_limits(arrays)
        self._refuse_unservable(arrays)

    def check_states(self, arrays: dict[str, np.ndarray]) -> None:
        super().check_states(arrays)
        true, opens, closes = self.true_nodes(arrays), arrays["tight_open"], arrays["tight_close"]
        if (wrong := (opens < arrays["window_open"]) & true).any():
            refuse("tight_open", opens, wrong, "must not be before window_open")
        if (wrong := (closes > np.minimum(arrays["time_windows"], arrays["time_windows"][:, :1])) & true).any():
            refuse("tight_close", closes, wrong, "must not be after time_windows, nor after the end of the day")
        check_schedule(arrays, check_riders(arrays, true))
        check_count(arrays, true)

    def _check_limits(self, arrays: dict[str, np.ndarray]) -> None:
        """Checks windows, times and distances."""
        true, node = self.true_nodes(arrays), np.arange(self.sizes["N"])
        if (even := arrays["n_nodes"] % 2 == 0).any():
            refuse("n_nodes", arrays["n_nodes"], even, "must be odd: two for each request and the depot")
        opens, closes = arrays["window_open"], arrays["time_windows"]
        if (wrong := (node == 0) & ~np.isfinite(closes)).any():
            refuse("time_windows", closes, wrong, "the depot's must be finite")
        if (wrong := (node == 0) & (closes > MOST)).any():
            refuse("time_windows", closes, wrong, f"the depot's must be <= {MOST:g}")
        if (wrong := np.abs(opens) > MOST).any():
            refuse("window_open", opens, wrong, f"must be within -{MOST:g}..{MOST:g}")
        if (wrong := (opens > closes) & true).any():
            refuse("time_windows", closes, wrong, "the window closes before it opens")
        service = arrays["service_time"]
        if (wrong := (node == 0) & (service != 0)).any():
            refuse("service_time", service, wrong, "the depot has none")
        if (wrong := service > MOST).any():
            refuse("service_time", service, wrong, f"must be <= {MOST:g}")
        rides, requests = arrays["max_ride_time"], true[:, 1::2]
        if (wrong := (rides <= 0) & requests).any():
            refuse("max_ride_time", rides, wrong, "must be above 0")
        if (wrong := arrays["max_route_duration"] <= 0).any():
            refuse("max_route_duration", arrays["max_route_duration"], wrong, "must be above 0")
        if "dist" in arrays and (diagonal := np.einsum("bii->bi", arrays["dist"])).any():
            refuse("dist", diagonal, diagonal != 0, "the diagonal of a distance matrix is 0")
        if "dist" in arrays and (wrong := arrays["dist"] > MOST).any():
            refuse("dist", arrays["dist"], wrong, f"must be <= {MOST:g}")

    def true_nodes(self, arrays: dict[str, np.ndarray]) -> np.ndarray:
        true: np.ndarray = np.arange(self.sizes["N"]) < arrays["n_nodes"][:, None]
        return true

    def _refuse_unservable(self, arrays: dict[str, np.ndarray]) -> None:
        """Refuses requests that no vehicle could serve even alone."""
        service, opens, closes = arrays["service_time"], arrays["tight_open"], arrays["tight_close"]
        wrong = faults_alone(
            (opens[:, 1::2], closes[:, 1::2], opens[:, 2::2], closes[:, 2::2]),
            arrays["demand"][:, 1::2],
            arrays["capacity"].max(axis=1)[:, None],
            service[:, 1::2],
            service[:, 2::2],
            arrays["max_ride_time"],
            *self._legs(arrays),
            arrays["max_route_duration"][:, None],
        )
        requests = self.true_nodes(arrays)[:, 1::2]
        for kind, found in zip(FAULTS, wrong, strict=True):
            if (found := found & requests).any():
                r = int(np.argwhere(found)[0][1])
                refuse(
                    "demand",
                    arrays["demand"][:, 1::2],
                    found,
                    f"request {r} (nodes {2 * r + 1} and {2 * r + 2}) cannot be served even alone: {kind}",
                )

    def _legs(self, values: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(Q, R) travel times from the depot to each pickup, on to its dropoff, and back."""
        p = np.arange(1, self.sizes["N"], 2)
        if self.sizes["M"]:
            d = values["dist"]
            return d[:, 0, p] / self.speed, d[:, p, p + 1] / self.speed, d[:, p + 1, 0] / self.speed
        # Float32 places and float64 differences, as in the kernels, so that both agree on servable requests.
        xy = values["locs"].astype(np.float32).astype(np.float64)

        def way(a: Any, b: Any) -> np.ndarray:
            leg = xy[:, a] - xy[:, b]
            return np.asarray(np.sqrt(leg[..., 0] * leg[..., 0] + leg[..., 1] * leg[..., 1]) / self.speed)

        return way([0], p), way(p, p + 1), way(p + 1, [0])

    def _tightened(self, values: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Windows without the parts that no schedule can use; the depot and padding keep theirs."""
        opens, closes, s = (values[name].astype(np.float64) for name in ("window_open", "time_windows", "service_time"))
        tight_open, tight_close = opens.copy(), closes.copy()
        tight_open[:, 1::2], tight_close[:, 1::2], tight_open[:, 2::2], tight_close[:, 2::2] = tightened(
            opens[:, 1::2],
            closes[:, 1::2],
            opens[:, 2::2],
            closes[:, 2::2],
            opens[:, :1],
            closes[:, :1],
            s[:, 1::2],
            s[:, 2::2],
            values["max_ride_time"].astype(np.float64),
            *self._legs(values),
        )
        padding = np.arange(self.sizes["N"]) >= values["n_nodes"][:, None]
        tight_open[padding], tight_close[padding] = opens[padding], closes[padding]
        return tight_open, tight_close

    draws_may_fail = True

    def _draw_rows(self, rows: np.ndarray) -> None:
        """Draws instances; raises ConfigError if the law gives up."""
        super()._draw_rows(rows)
        if (self.max_route_duration[self.instance_row[rows]] == GAVE_UP).any():
            raise ConfigError(
                "the law found no request that can be served alone in 1,000 draws: its duration, ride or "
                "capacity is too tight"
            )


def _instance(k: int, one: Any) -> DARPInstance:
    """A DARPInstance from a mapping of its fields, validated."""
    if isinstance(one, DARPInstance):
        return one
    known = [f.name for f in dataclasses.fields(DARPInstance) if f.name != "name"]
    if not isinstance(one, Mapping):
        raise ShapeError(f"instance {k} is a {type(one).__name__}, not a DARPInstance or a mapping of its fields")
    for name in one:
        if name not in known:
            raise ShapeError(f"instance {k}: DARP has no field {name!r}{did_you_mean(str(name), known)}")
    if missing := [name for name in known if name not in one and name != "dist"]:
        raise ShapeError(f"instance {k} lacks {', '.join(map(repr, missing))}")
    values = {name: as_array(name, value) for name, value in one.items()}
    if values["max_route_duration"].shape == (1,):
        values["max_route_duration"] = values["max_route_duration"][0]
    return DARPInstance(name=f"instance {k}", **values)  # type: ignore[arg-type]


def _padded(array: np.ndarray, name: str, world: Any) -> np.ndarray:
    """A field padded to the size of the world: extra nodes at the depot, extra vehicles without seats."""
    return padded(world, name, array, array[0] if name == "locs" else np.inf if name == "max_ride_time" else 0)
