"""Matrices that the laws try the ops on: random, but with singular values 1, 2, …, n, so that every derivative exists."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from rlx_core.ops import Sample
from rlx_custom_ops.ops.matrices import DTYPES

Make = Callable[[np.random.Generator], Sequence[np.ndarray]]
Matrix = Callable[[np.random.Generator, tuple[int, ...], bool], np.ndarray]


def anything(rng: np.random.Generator, shape: tuple[int, ...], is_complex: bool) -> np.ndarray:
    """Elements between -1 and 1, in both parts."""
    drawn = rng.uniform(-1, 1, shape)
    return drawn + 1j * rng.uniform(-1, 1, shape) if is_complex else drawn


def orthonormal(rng: np.random.Generator, shape: tuple[int, ...], is_complex: bool) -> np.ndarray:
    """Matrices with orthonormal columns."""
    return np.linalg.qr(anything(rng, shape, is_complex))[0]


def well_conditioned(rng: np.random.Generator, shape: tuple[int, ...], is_complex: bool) -> np.ndarray:
    """Any dims; singular values 1 … k."""
    *leading, m, n = shape
    k = min(m, n)
    u, v = (orthonormal(rng, (*leading, d, k), is_complex) for d in (m, n))
    return (u * np.arange(1.0, k + 1)) @ v.swapaxes(-1, -2).conj()


def positive_definite(rng: np.random.Generator, shape: tuple[int, ...], is_complex: bool) -> np.ndarray:
    """Square; Hermitian with eigenvalues 1 … n."""
    u = orthonormal(rng, shape, is_complex)
    return (u * np.arange(1.0, shape[-1] + 1)) @ u.swapaxes(-1, -2).conj()


def triangular(rng: np.random.Generator, shape: tuple[int, ...], is_complex: bool) -> np.ndarray:
    """Square and full: the other triangle holds numbers that must not matter. The diagonal is heavy."""
    return anything(rng, shape, is_complex) + 3 * np.eye(shape[-1])


def samples_of(matrix: Matrix, *dims: str) -> Iterator[Sample]:
    """A sample for each of `dims` ("2 3 3", or "3 3, 3 2" for two operands), the first one in every dtype."""
    for i, text in enumerate(dims):
        shapes = [tuple(map(int, part.split())) for part in text.split(",")]
        for dtype in DTYPES if i == 0 else DTYPES[1:2]:
            specs = [f"{dtype}[{', '.join(map(str, shape))}]" for shape in shapes]
            yield Sample(*specs, make=maker(matrix, shapes, dtype.is_complex))


def maker(matrix: Matrix, shapes: Sequence[tuple[int, ...]], is_complex: bool) -> Make:
    """Arrays of these shapes: such a matrix first, then anything."""
    first, *others = shapes

    def make(rng: np.random.Generator) -> list[np.ndarray]:
        return [matrix(rng, first, is_complex), *(anything(rng, shape, is_complex) for shape in others)]

    return make
