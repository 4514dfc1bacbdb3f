"""Fourier transforms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import rlx_core as rlx
from rlx_core import fft
from rlx_core.ir.dims import Dim
from rlx_torch.aten.table import aten


def _norm(normalization: int, forward: bool) -> Any:
    """Torch's number (nothing, 1/√n, 1/n) in NumPy's words, which name the direction that is scaled."""
    return ("backward", "ortho", "forward")[normalization if forward else 2 - normalization]


@aten("_fft_r2c")
def fft_r2c(x: Any, dim: Sequence[int], normalization: int, onesided: bool) -> Any:
    if not onesided:
        return fft_c2c(rlx.make_complex(x, rlx.zeros_like(x)), dim, normalization, True)
    result = fft.rfft(x, axis=dim[-1], norm=_norm(normalization, True))
    return fft_c2c(result, dim[:-1], normalization, True) if len(dim) > 1 else result


@aten("_fft_c2c")
def fft_c2c(x: Any, dim: Sequence[int], normalization: int, forward: bool) -> Any:
    for axis in dim:
        x = (fft.fft if forward else fft.ifft)(x, axis=axis, norm=_norm(normalization, forward))
    return x


@aten("_fft_c2r")
def fft_c2r(x: Any, dim: Sequence[int], normalization: int, last_dim_size: Dim) -> Any:
    x = fft_c2c(x, dim[:-1], normalization, False) if len(dim) > 1 else x
    return fft.irfft(x, n=last_dim_size, axis=dim[-1], norm=_norm(normalization, False))
