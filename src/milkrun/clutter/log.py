"""The events of an episode: one record per attempt."""

from __future__ import annotations

from typing import Any

from milkrun.clutter.stages import RESULTS


def events(world: Any, row: int) -> list[dict[str, Any]]:
    """The attempts of a row's episode: target, result, whether the target was blocked, displacement of each object (m),
    objects lost, ticks, largest load."""
    return [
        {
            "attempt": n,
            "target": int(world.log_target[row, n]),
            "result": RESULTS[int(world.log_result[row, n])],
            "blocked": bool(world.log_blocked[row, n]),
            "displacement": world.log_shift[row, n].tolist(),
            "lost": int(world.log_lost[row, n]),
            "ticks": int(world.log_ticks[row, n]),
            "load": float(world.log_load[row, n]),
        }
        for n in range(int(world.records[row]))
    ]
