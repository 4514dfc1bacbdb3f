"""Positions and weights with which the cells of a resized axis are read, by the convention of coordinates.

Cell i of m is at this position on the axis of n cells:

    half-pixel      (i + 1/2)·n/m - 1/2     cells are areas, and the whole areas coincide
    align-corners   i·(n - 1)/(m - 1)       cells are points, and the first and last coincide; 0 if there is one
    asymmetric      i·n/m                   cells are points, and the first ones coincide
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np

Coordinates = Literal["half-pixel", "align-corners", "asymmetric"]
Method = Literal["nearest", "linear", "cubic"]

COORDINATES: tuple[str, ...] = get_args(Coordinates)
METHODS: tuple[str, ...] = get_args(Method)


def nearest(n: int, m: int, coordinates: Coordinates) -> np.ndarray:
    """Return the cell of n that each of m reads, computed in integers.

    An area reads the cell that contains its centre; with points, "asymmetric" reads the cell at or before them, and
    "align-corners" the nearest, at a tie the later.
    """
    i = np.arange(m)
    if coordinates == "half-pixel":
        return (2 * i + 1) * n // (2 * m)
    if coordinates == "asymmetric":
        return i * n // m
    last = max(m - 1, 1)
    return (2 * i * (n - 1) + last) // (2 * last)


def places(n: int, m: int, coordinates: Coordinates) -> np.ndarray:
    """Return the positions of m cells on an axis of n."""
    i = np.arange(m, dtype=np.float64)
    if coordinates == "half-pixel":
        return (i + 0.5) * n / m - 0.5
    if coordinates == "asymmetric":
        return i * n / m
    return i * (n - 1) / max(m - 1, 1)


def taps(n: int, m: int, method: Method, coordinates: Coordinates, sharpness: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the cells that each of m is read from and their weights, both `[taps, m]`; cells outside are clamped to the ends."""
    positions = places(n, m, coordinates)
    if method == "linear":
        positions = np.clip(positions, 0, n - 1)
    first = np.floor(positions).astype(np.int64)
    part = positions - first
    if method == "linear":
        cells, weights = np.stack([first, first + 1]), np.stack([1 - part, part])
    else:
        cells = np.stack([first + k for k in (-1, 0, 1, 2)])
        weights = np.stack(
            [_cubic(part + 1, sharpness), _cubic(part, sharpness)] + [_cubic(k - part, sharpness) for k in (1, 2)]
        )
    return np.clip(cells, 0, n - 1), weights


def shares(n: int, m: int, method: Method, coordinates: Coordinates, sharpness: float) -> np.ndarray:
    """Return the weight of each of n cells in each of m, `[n, m]`: the kernel has the width of the larger cells, and sum 1."""
    scale = max(n / m, 1.0)
    distance = (np.arange(n)[:, None] - places(n, m, coordinates)) / scale
    weights = np.maximum(1 - np.abs(distance), 0.0) if method == "linear" else _cubic(distance, sharpness)
    return np.asarray(weights / weights.sum(0))


def _cubic(distance: np.ndarray, a: float) -> np.ndarray:
    """Return Keys' kernel: 1 at 0, 0 at every other integer, with slope `a` at 1."""
    d = np.abs(distance)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    outer = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, outer, 0.0))
