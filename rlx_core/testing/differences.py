"""Derivatives by differences, and the pairing in which a derivative and its transpose must agree.

All of it is float64. The pairing of real tensors is Σ u·v and of complex ones 2·Re Σ conj(u)·v, because the cotangent of a
complex z is ∂L/∂z̄ for a real L: then the pairing of a cotangent with a direction is the derivative of L along it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

Arrays = Sequence[np.ndarray]

STEP = 1e-4
"""Central differences at `STEP` and `STEP / 2` are extrapolated, so the error is about STEP⁴·f⁽⁵⁾ + 1e-16·|f| / STEP."""


def directional(
    function: Callable[[Arrays], Arrays], point: Arrays, along: Arrays, step: float = STEP
) -> list[np.ndarray]:
    """The derivative of `function` at `point` along a direction, by extrapolated central differences."""

    def central(h: float) -> list[np.ndarray]:
        after = function([x + h * u for x, u in zip(point, along, strict=True)])
        before = function([x - h * u for x, u in zip(point, along, strict=True)])
        return [(a - b) / (2 * h) for a, b in zip(after, before, strict=True)]

    coarse, fine = central(step), central(step / 2)
    return [(4 * f - c) / 3 for c, f in zip(coarse, fine, strict=True)]


def pairing(u: Arrays, v: Arrays) -> float:
    """The pairing of two lists of tensors."""
    total = 0.0
    for a, b in zip(u, v, strict=True):
        product = np.sum(np.conjugate(a) * b)
        total += 2 * float(product.real) if np.iscomplexobj(a) or np.iscomplexobj(b) else float(product)
    return total


def random_like(rng: np.random.Generator, array: np.ndarray) -> np.ndarray:
    """A direction of the same shape and kind, with elements between -1 and 1."""
    real = rng.uniform(-1, 1, array.shape)
    return real + 1j * rng.uniform(-1, 1, array.shape) if np.iscomplexobj(array) else real
