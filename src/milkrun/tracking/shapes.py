"""Convex polygons in a thread's work space: rectangles, the hull that one sweeps, and the span of a line through one.

The ground, the shadows and the camera's picture are all filled with spans, line by line.
"""

from __future__ import annotations

import math

from milkrun.core.kernels import kernel


@kernel(inline=True)
def span(px, py, n, y):
    """The interval of x where the horizontal at y lies inside a convex polygon of n corners; lo > hi if nowhere."""
    lo, hi = 1e30, -1e30
    x0, y0 = px[n - 1], py[n - 1]
    for k in range(n):
        x1, y1 = px[k], py[k]
        # A corner on the line counts as below it, so the line cuts two sides or none, and never a level one, which
        # would divide by 0.
        if (y0 <= y) != (y1 <= y):
            x = x0 + (y - y0) * (x1 - x0) / (y1 - y0)
            lo = min(lo, x)
            hi = max(hi, x)
        x0, y0 = x1, y1
    return lo, hi


@kernel
def put_rectangle(w, x, y, yaw, hx, hy):
    """The corners of a rectangle, counter-clockwise, into poly_x and poly_y; returns their number, 4."""
    return put_turned(w, x, y, math.cos(yaw), math.sin(yaw), hx, hy)


@kernel
def put_turned(w, x, y, c, s, hx, hy):
    """`put_rectangle` by the cosine and sine of the yaw: exact along the axes, where cos(pi/2) is not 0."""
    for k in range(4):
        ahead = hx if k == 0 or k == 3 else -hx
        aside = hy if k < 2 else -hy
        w.poly_x[k] = x + c * ahead - s * aside
        w.poly_y[k] = y + s * ahead + c * aside
    return 4


@kernel
def sweep(w, n, dx0, dy0, dx1, dy1):
    """The hull of the polygon poly_* (n corners, counter-clockwise) moved by d0 and by d1, into hull_*; its corners.

    Corners between two sides that face d1 - d0 move by d1, between two that do not by d0, between one of each by both.
    So the hull has n + 2 corners, or n where the two moves are equal.
    """
    ex, ey = dx1 - dx0, dy1 - dy0
    m = 0
    x0, y0 = w.poly_x[n - 1], w.poly_y[n - 1]
    x1, y1 = w.poly_x[0], w.poly_y[0]
    faces = (y1 - y0) * ex > (x1 - x0) * ey
    for k in range(n):
        after = k + 1 if k + 1 < n else 0
        x0, y0, faced = x1, y1, faces
        x1, y1 = w.poly_x[after], w.poly_y[after]
        faces = (y1 - y0) * ex > (x1 - x0) * ey
        w.hull_x[m] = x0 + (dx1 if faced else dx0)
        w.hull_y[m] = y0 + (dy1 if faced else dy0)
        m += 1
        if faced != faces:
            w.hull_x[m] = x0 + (dx1 if faces else dx0)
            w.hull_y[m] = y0 + (dy1 if faces else dy0)
            m += 1
    return m
