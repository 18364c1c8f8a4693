"""Small episodes made by hand, for tests of pages: every part of the format in a few steps, and a pile of boxes."""

from __future__ import annotations

from typing import Any

import numpy as np

from milkrun.replay.columns import pack, ragged
from milkrun.replay.episode import Episode

PLACES = np.array([[0.1, 0.1], [0.9, 0.2], [0.8, 0.9], [0.2, 0.8]])
ROUTE = [[0], [0, 1], [0, 1, 2], [0, 1, 2, 3], [0, 1, 2, 3, 0]]


def tiny(policy: str = "by hand", *, word: str = "", reward: float = -1.0, **more: Any) -> Episode:
    """A tour of four places in four steps by two agents; `word` is in every text of the episode."""
    steps, frames = 4, 4
    mask = np.ones((steps + 1, 6), bool)
    mask[1:, 1] = False
    why = np.where(mask, 0, 1)
    data = {
        "format": "milkrun-episode",
        "version": 1,
        "milkrun": "0",
        "world": "milkrun/Tiny-v0",
        "title": f"Tiny{word}",
        "policy": policy,
        "config": {},
        "seed": 0,
        "row": 0,
        "episode": 0,
        "instance": "0" * 16,
        "steps": steps,
        "frames": frames,
        "fps": None,
        "end": "terminated",
        "objective": steps * reward,
        "action": pack(np.array([[1, 0], [2, 0], [3, 1], [0, 0]])),
        "reward": pack(np.full(steps, reward)),
        "illegal": pack(np.array([0, 0, 1, 0], np.uint8)),
        "illegal_reasons": [[2, 1, f"no{word}"]],
        "agents": [f"truck{word}", f"drone{word}"],
        "names": [[f"place {k}{word}" for k in range(4)], [f"stay{word}", f"fly{word}"]],
        "mask": pack(mask, delta=True),
        "why": {"texts": ["", f"visited{word}"], "index": pack(why)},
        "window": [0.0, 0.0, 1.0, 1.0],
        "legend": [[f"a place{word}", 0, "disc"]],
        "marks": [
            {
                "name": f"places{word}",
                "kind": "points",
                "xy": {"const": pack(PLACES)},
                "shape": ["square", "disc", "disc", "disc"],
                "text": [f"place {k}{word}" for k in range(4)],
                "label": [f"{k}{word}" for k in range(4)],
                "action": {"const": pack(np.array([[0, 1, 2, 3], [-1, 5, 5, 5]]))},
            },
            {
                "name": f"tour{word}",
                "kind": "route",
                "on": f"places{word}",
                "stops": ragged(ROUTE),
                "cut": 0,
                "closed": False,
                "paint": True,
            },
            {
                "name": f"truck{word}",
                "kind": "vehicle",
                "shape": "truck",
                "colour": 4,
                "trail": False,
                "shown": True,
                "label": f"truck{word}",
                "xy": {"time": True, **pack(PLACES[[s[-1] for s in ROUTE]])},
            },
        ],
        "series": {
            "return": pack(reward * np.arange(steps + 1.0)),
            f"driven{word}": pack(np.array([0, 1, 2, np.nan, 4])),
        },
        "gauges": {f"load{word}": pack(np.array([[k, 4.0] for k in range(steps + 1)]))},
        "chart": {
            "lanes": [f"truck{word}"],
            "unit": "step",
            "kinds": {"drive": {"words": f"drives{word}", "colour": 4, "hatched": False}},
            "bars": [[0, "drive", 0, 4, f"far{word}", None]],
            "marks": [],
            "windows": [[f"place 1{word}", 0, 2, 3, f"truck{word}"]],
        },
        **more,
    }
    return Episode(data)


def pile(policy: str, seed: int) -> Episode:
    """Twelve boxes that lie on one another and are lifted in turn, five frames each; the first is never lifted. A
    yellow line lies before them until the end."""
    rng = np.random.default_rng(seed)
    boxes, per, steps = 12, 5, 11
    frames = per * steps
    size = np.tile([0.16, 0.1, 0.08], (boxes, 1))
    lie = np.concatenate([rng.uniform(-0.08, 0.08, (boxes, 2)), 0.05 + 0.05 * np.arange(boxes)[:, None]], axis=1)
    pos = np.repeat(lie[None], frames + 1, axis=0)
    target = np.full(frames + 1, -1)
    order = np.arange(boxes - 1, 0, -1)
    for step, box in enumerate(order):
        for k in range(per):
            pos[step * per + k + 1 :, box, 2] += 0.2
            target[step * per + k] = box
    turn = rng.uniform(0, np.pi, boxes)
    quat = np.stack([np.cos(turn / 2), 0 * turn, 0 * turn, np.sin(turn / 2)], axis=1)
    mask = np.ones((steps + 1, boxes), bool)
    for step, box in enumerate(order):
        mask[step + 1 :, box] = False
    data = tiny(policy).data | {
        "world": "milkrun/Pile-v0",
        "title": "A pile",
        "steps": steps,
        "frames": frames,
        "fps": 25.0,
        "objective": float(seed),
        "ends": pack(per * np.arange(1, steps + 1)),
        "action": pack(order),
        "reward": pack(np.ones(steps)),
        "illegal": pack(np.zeros(steps, np.uint8)),
        "illegal_reasons": [],
        "agents": ["agent"],
        "names": [[f"box {k}" for k in range(boxes)]],
        "mask": pack(mask, delta=True),
        "window": [-0.3, -0.3, 0.0, 0.3, 0.3, 0.7],
        "legend": [["box", 16, "square"]],
        "marks": [
            {
                "name": "boxes",
                "kind": "bodies",
                "shape": "box",
                "size": {"const": pack(size)},
                "pos": {"time": True, **pack(pos, True, 1e-4)},
                "quat": {"const": pack(quat)},
                "colour": {"const": pack(16 + np.arange(boxes) % 10)},
                "text": [f"box {k}" for k in range(boxes)],
                "action": {"const": pack(np.arange(boxes))},
                "target": {"time": True, **pack(target)},
            },
            {
                "name": "before",
                "kind": "line",
                "start": {"const": pack(np.array([-0.28, -0.28]))},
                "end": {"const": pack(np.array([0.28, -0.28]))},
                "colour": 1,
                "shown": {"time": True, **pack(np.arange(frames + 1) < frames)},
            },
        ],
        "series": {"return": pack(np.arange(steps + 1.0))},
        "gauges": {},
    }
    return Episode({key: value for key, value in data.items() if key not in ("chart", "why")})
