"""The discrete Fourier transform as matrix products of real numbers, for any target that has a product.

A length n = n₁·n₂ is n₁-point transforms, a product with the twiddle factors, and n₂-point transforms (Cooley and Tukey 1965);
the n₁-point transforms are one matrix product, as n₁ is at most `DIRECT`. A prime above that is a convolution with a chirp,
which is computed by transforms of a power of two (Bluestein 1970). Every factor is computed in float64 and rounded once.

Complex values are pairs of real ones here. In float32 the error is at most 4e-7·log₂(n) of the largest element of the result's
norm (`tests/ops/fourier/test_cooley_tukey.py`), compared with about 1e-7·log₂(n) in pocketfft.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from rlx_core.ir.dims import Dim
from rlx_core.ir.dtypes import f64
from rlx_core.ir.graph import Value
from rlx_core.ops.conversion import as_dtype, cast
from rlx_core.ops.creation import dim_value, iota
from rlx_core.ops.linalg import mat_mul, swap_last
from rlx_core.ops.movement import concat, narrow, pad_axis
from rlx_core.ops.structural import reshape
from rlx_core.ops.trigonometry import cos, sin

DIRECT: Final = 64
"""The longest transform that is one matrix product: its 128 × 128 matrix still takes a small part of a cache."""

Parts = tuple[Value, Value | None]
"""The real and the imaginary part; `None` for one that is 0."""


def dft(re: Value, im: Value | None, sign: int) -> tuple[Value, Value]:
    """Return y_k = Σ_j x_j exp(sign·2πi·jk/n) over the last axis, unscaled; x is real if `im` is `None`."""
    n = re.shape[-1]
    if not isinstance(n, int):
        return _product((re, im), *_matrix_of_unknown_size(re, n, sign))
    if n <= DIRECT:
        roots = _roots(np.outer(np.arange(n), np.arange(n)), n, sign)
        return _product((re, im), *_constants(roots, re))
    first = max((d for d in range(2, DIRECT + 1) if n % d == 0), default=1)
    return _bluestein((re, im), n, sign) if first == 1 else _split((re, im), first, n // first, sign)


def _split(x: Parts, n1: int, n2: int, sign: int) -> tuple[Value, Value]:
    """Decompose with j = j₁n₂ + j₂ and k = k₁ + n₁k₂: n₁-point transforms over j₁, twiddle factors, n₂-point transforms."""
    outer = x[0].shape[:-1]
    table = _parts_of(x, lambda v: reshape(v, (*outer, n1, n2)))
    roots = _roots(np.outer(np.arange(n1), np.arange(n1)), n1, sign)
    columns = _product(_parts_of(table, swap_last), *_constants(roots, x[0]))
    # The first axis of these factors is j₂: the columns are transposed.
    twiddles = _constants(_roots(np.outer(np.arange(n2), np.arange(n1)), n1 * n2, sign), x[0])
    re, im = (swap_last(v) for v in _times(columns, *twiddles))
    re, im = (reshape(swap_last(v), (*outer, n1 * n2)) for v in dft(re, im, sign))
    return re, im


def _bluestein(x: Parts, n: int, sign: int) -> tuple[Value, Value]:
    """Transform with jk = (j² + k² - (k - j)²)/2: a convolution with exp(-sign·πi·j²/n), cyclic in m ≥ 2n-1."""
    m = 1 << (2 * n - 2).bit_length()
    chirp = _roots(np.arange(n) ** 2, 2 * n, sign)
    wrapped = np.zeros(m, np.complex128)
    wrapped[:n] = chirp.conj()
    wrapped[m - n + 1 :] = chirp[:0:-1].conj()
    factors = _constants(chirp, x[0])
    re, im = (pad_axis(v, v.ndim - 1, 0, m - n) for v in _times(x, *factors))
    re, im = _times(dft(re, im, -1), *_constants(np.fft.fft(wrapped) / m, x[0]))
    re, im = (narrow(v, axis=v.ndim - 1, start=0, length=n) for v in dft(re, im, 1))
    return _times((re, im), *factors)


def _parts_of(x: Parts, change: Any) -> Parts:
    return change(x[0]), None if x[1] is None else change(x[1])


def _times(x: Parts, re: Any, im: Any) -> tuple[Value, Value]:
    """Return the product with complex factors, element by element."""
    if x[1] is None:
        return x[0] * re, x[0] * im
    return x[0] * re - x[1] * im, x[0] * im + x[1] * re


def _product(x: Parts, re: Any, im: Any) -> tuple[Value, Value]:
    """Return rows times a symmetric complex matrix, as one real product: [re im] · [[a, b], [-b, a]]."""
    n = x[0].shape[-1]
    matrix = concat([re, im], axis=1)
    rows = x[0]
    if x[1] is not None:
        matrix = concat([matrix, concat([-im, re], axis=1)], axis=0)
        rows = concat([x[0], x[1]], axis=-1)
    if rows.ndim == 1:
        both = reshape(mat_mul(reshape(rows, (1, rows.shape[0])), matrix), (2 * n,))
    else:
        both = mat_mul(rows, matrix)
    axis = both.ndim - 1
    return narrow(both, axis=axis, start=0, length=n), narrow(both, axis=axis, start=n, length=n)


def _roots(numerators: np.ndarray, n: int, sign: int) -> np.ndarray:
    """Return exp(sign·2πi·numerator/n) in float64: exact where it is ±1 or ±i, because quarters are reduced in integers."""
    quarters, remainder = np.divmod(4 * (numerators % n), n)
    roots: np.ndarray = np.exp(0.5j * np.pi * remainder / n) * np.array([1, 1j, -1, -1j])[quarters]
    return roots if sign > 0 else roots.conj()


def _constants(factors: np.ndarray, like: Value) -> tuple[np.ndarray, np.ndarray]:
    """Return the parts of known factors, in the dtype of `like`."""
    dtype = like.dtype.numpy
    return factors.real.astype(dtype), factors.imag.astype(dtype)


def _matrix_of_unknown_size(like: Value, n: Dim, sign: int) -> tuple[Any, Any]:
    """Return the matrix of a transform whose length is known only at run time."""
    size = dim_value(size=n)
    turns = (iota(axis=0, shape=(n, n)) * iota(axis=1, shape=(n, n))) % size
    angle = cast(turns, to=f64) * (2 * np.pi / cast(size, to=f64))
    return as_dtype(cos(angle), like.dtype), as_dtype(sign * sin(angle), like.dtype)
