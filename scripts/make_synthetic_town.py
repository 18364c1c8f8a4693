"""Draws the bundled map `synthetic-town`: a fictitious town, the same on every machine.

    python scripts/make_synthetic_town.py [folder]

50 sites of three bins each (paper, plastic, glass): a dense centre on a street grid, three suburbs, two main roads, a
few hamlets at the edges; the depot is on an industrial estate. No site is in the river.
"""

from __future__ import annotations

import json
import math
import random
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "src" / "milkrun" / "routing" / "maps" / "data"
NAME = "synthetic-town"
SEED = 4003

LAT0, LON0 = 40.0, -0.05  # the south-west corner
WIDTH_KM, HEIGHT_KM = 8.5, 6.6
KM_PER_LAT = 111.195
KM_PER_LON = KM_PER_LAT * math.cos(math.radians(40.03))

CENTRE = (4.3, 3.5)
SUBURBS = ((1.7, 4.9), (6.7, 4.7), (5.6, 1.3))
HAMLETS = ((0.12, 1.1), (8.42, 6.3), (0.6, 6.55), (8.1, 0.1))
DEPOT = (7.35, 2.15)
STREAMS = {"paper": 0.110, "plastic": 0.140, "glass": 0.055}  # mean daily fill in a quiet street, share of a bin
APART_KM = 0.14


def sites(rng: random.Random) -> list[tuple[float, float]]:
    """50 places in km, no two closer than APART_KM."""
    plans = [(CENTRE, 0.75, 0.12)] * 20 + [(suburb, 0.5, 0.2) for suburb in SUBURBS for _ in range(6)]
    found: list[tuple[float, float]] = list(HAMLETS)
    for (x, y), spread, block in plans:
        found.append(_first_free(found, lambda x=x, y=y, s=spread, b=block: _on_a_street(rng, x, y, s, b)))
    for k in range(8):
        found.append(_first_free(found, lambda k=k: _on_a_main_road(rng, k)))
    return sorted(found)


def _first_free(found, draw):
    while True:
        x, y = draw()
        inside = 0.1 < x < WIDTH_KM - 0.1 and 0.1 < y < HEIGHT_KM - 0.1
        if inside and not _in_the_river(x, y) and all(math.dist((x, y), other) >= APART_KM for other in found):
            return x, y


def _on_a_street(rng, x, y, spread, block):
    """Near (x, y), on a line of a grid of blocks; rng.random alone is the same in every version of Python."""
    radius = spread * math.sqrt(-2.0 * math.log(1.0 - rng.random()))
    angle = 2.0 * math.pi * rng.random()
    east, north = x + radius * math.cos(angle), y + radius * math.sin(angle)
    if rng.random() < 0.5:
        return block * round(east / block), north
    return east, block * round(north / block)


def _on_a_main_road(rng, k):
    """One runs from west to east through the centre, one from south to north."""
    along = rng.random()
    if k % 2:
        return WIDTH_KM * along, CENTRE[1] + 0.25 * math.sin(2.0 * math.pi * along)
    return CENTRE[0] + 0.3 * math.sin(2.0 * math.pi * along), HEIGHT_KM * along


def _in_the_river(x, y):
    return abs(y - (2.3 + 0.25 * math.sin(0.8 * x))) < 0.12


def rows(rng: random.Random) -> list[str]:
    """The lines of the CSV file."""
    lines = ["id,kind,lat,lon,stream,volume_m3,fill_mean,fill_std", f"depot,depot,{_degrees(*DEPOT)},,,,"]
    for k, (x, y) in enumerate(sites(rng), start=1):
        busy = (0.65 + 0.95 * math.exp(-math.dist((x, y), CENTRE) / 1.6)) * (0.75 + 0.5 * rng.random())
        for place, (stream, quiet) in enumerate(STREAMS.items()):
            mean = min(0.30, max(0.03, busy * quiet * (0.85 + 0.3 * rng.random())))
            std = mean * (0.5 + 0.4 * rng.random())
            where = _degrees(x + 0.003 * place, y)  # three bins in a row, 3 m apart
            lines.append(f"site{k:02d}-{stream},bin,{where},{stream},2.5,{mean:.4f},{std:.4f}")
    return lines


def _degrees(x, y):
    return f"{LAT0 + y / KM_PER_LAT:.6f},{LON0 + x / KM_PER_LON:.6f}"


def files() -> dict[str, str]:
    """The texts by file name."""
    metadata = {
        "title": "A synthetic town of 50 sites with bins for paper, plastic and glass",
        "synthetic": True,
        "source": "scripts/make_synthetic_town.py of Milkrun",
        "licence": "Apache-2.0",
    }
    table = "".join(f"{line}\n" for line in rows(random.Random(SEED)))
    return {f"{NAME}.csv": table, f"{NAME}.json": json.dumps(metadata, indent=2) + "\n"}


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files().items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
