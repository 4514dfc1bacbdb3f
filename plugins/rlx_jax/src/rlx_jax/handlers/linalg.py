"""Factorisations and Fourier transforms, by rlx's linear algebra (package rlx-custom-ops) and `rlx.fft`."""

from __future__ import annotations

from typing import Any

import rlx_core as rlx
from rlx_core.errors import unsupported
from rlx_jax.walk import Equation, handles


@handles("cholesky")
def cholesky(equation: Equation, a: Any) -> Any:
    return rlx.linalg.cholesky(a)


@handles("eigh")
def eigh(equation: Equation, a: Any) -> list[Any]:
    """Vectors, then values, as JAX has them."""
    values, vectors = rlx.linalg.eigh(a)
    return [vectors, values]


@handles("svd")
def svd(equation: Equation, a: Any) -> list[Any]:
    if not equation["compute_uv"]:
        return [rlx.linalg.svdvals(a)]
    u, s, vh = rlx.linalg.svd(a, full_matrices=equation["full_matrices"])
    return [s, u, vh]


@handles("fft")
def fft(equation: Equation, x: Any) -> Any:
    kind, lengths = equation["fft_type"], [equation.sizes.size(each) for each in equation["fft_lengths"]]
    names = {"FFT": "fftn", "IFFT": "ifftn", "RFFT": "rfftn", "IRFFT": "irfftn"}
    name = getattr(kind, "name", str(kind))
    if name not in names:
        raise unsupported("from_jax", {f"fft of kind {kind}": ["an equation"]})
    axes = tuple(range(-len(lengths), 0))
    return rlx.astype(getattr(rlx.fft, names[name])(x, s=lengths, axes=axes), equation.results[0].dtype, copy=False)
