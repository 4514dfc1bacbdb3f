"""Normalisation of the phases of eigenvectors and singular vectors, and its contribution to their derivatives.

Eigenvectors and singular vectors are unique up to a factor of modulus 1 each. We take the one whose *pivot* is real and
positive: its first element of at least nine tenths of the largest modulus. So all kernels agree, and complex vectors have
a derivative at all. (Nine tenths, because vectors with elements of equal modulus are common, and rounding must not choose.)
"""

from __future__ import annotations

from typing import Any

import numpy as np

import rlx_core as rlx
from rlx_custom_ops.ops.matrices import rows

__rlx_library__ = True

PIVOT = 0.9  # of the largest modulus


def phases(vectors: np.ndarray) -> np.ndarray:
    """For each column, the factor that makes its pivot real and positive."""
    if vectors.size == 0:
        return np.ones(vectors.shape[-1], vectors.dtype)
    modulus = np.abs(vectors)
    pivots = np.argmax(modulus >= PIVOT * modulus.max(axis=-2, keepdims=True), axis=-2)
    pivot_values = np.take_along_axis(vectors, pivots[..., None, :], axis=-2)[..., 0, :]
    return np.asarray(pivot_values.conj() / np.abs(pivot_values))


def pivot_mask(vectors: Any) -> Any:
    """1 at the pivot of each column and 0 elsewhere, in the vectors' dtype; constant under differentiation."""
    modulus = rlx.abs(vectors)
    is_candidate = modulus >= PIVOT * rlx.max(modulus, axis=-2, keepdims=True)
    is_first = rlx.cumulative_sum(rlx.astype(is_candidate, "i32"), axis=-2) == 1
    return rlx.astype(rlx.logical_and(is_candidate, is_first), vectors.dtype)


def pushed(vectors: Any, t: Any) -> Any:
    """The real rates by which each column's phase turns back, where its tangent `t` leaves the pivot's phase free."""
    mask = pivot_mask(vectors)
    return -rlx.imag(rlx.sum(mask * t, axis=-2)) / rlx.real(rlx.sum(mask * vectors, axis=-2))


def turned(vectors: Any, rates: Any) -> Any:
    """Return the tangent of `vectors` rotating at real `rates`, one per column."""
    return vectors * rows(rlx.make_complex(0, rates))


def twist(vectors: Any, g: Any) -> Any:
    """Return the sensitivity of a cotangent to the phase of each column: the transpose of `turned` in the rates."""
    return rlx.imag(rlx.sum(rlx.conjugate(vectors) * g, axis=-2))


def pulled(vectors: Any, twists: Any) -> Any:
    """Return the contribution of the twists to the cotangent of `vectors`: the transpose of `pushed`."""
    mask = pivot_mask(vectors)
    return mask * rows(rlx.make_complex(0, -twists / rlx.real(rlx.sum(mask * vectors, axis=-2))))
