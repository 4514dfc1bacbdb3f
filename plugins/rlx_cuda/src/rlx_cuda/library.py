"""Rows of the kernel table that call CUDA's libraries through CuPy: cuSOLVER and cuFFT.

Each function receives the CuPy module and CuPy arrays that view rlx's memory: operands, then results.
"""

from __future__ import annotations

from typing import Any, Final

from rlx_core.emit.table import DeviceTable
from rlx_core.ops.fourier.fourier import Fft, InverseRealFft, RealFft
from rlx_core.ops.solve import BatchedDenseSolve, DenseSolve

FEATURE: Final = "library"
"""The feature of devices whose driver calls CuPy; the stand-in does not have it."""


def library_rows(table: DeviceTable) -> None:
    """Add the rows for linear systems and Fourier transforms."""

    @table.library(DenseSolve, BatchedDenseSolve, dtypes="f32 f64", name="library_solve")
    def solve(op: Any, cupy: Any, a: Any, b: Any, into: Any) -> None:
        """LU with pivoting by cuSOLVER, of stacks by cuBLAS."""
        # The library divides by zero pivots, and its status is not read, to avoid a synchronisation: a system with a non-finite
        # solution counts as singular, and all of its unknowns become NaN.
        columns = b if b.ndim == a.ndim else b[..., None]
        x = cupy.linalg.solve(a, columns)
        is_regular = cupy.isfinite(x).all(axis=(-2, -1), keepdims=True)
        cupy.copyto(into, cupy.where(is_regular, x, cupy.nan).reshape(into.shape).astype(into.dtype, copy=False))

    @table.library(Fft, dtypes="c64 c128", name="library_fft")
    def fft(op: Any, cupy: Any, x: Any, into: Any) -> None:
        """cuFFT, in the precision of the operand."""
        cupy.copyto(into, (cupy.fft.ifftn if op.inverse else cupy.fft.fftn)(x, axes=op.axes, norm=op.norm))

    @table.library(RealFft, dtypes="f32 f64", name="library_real_fft")
    def real_fft(op: Any, cupy: Any, x: Any, into: Any) -> None:
        """cuFFT, half a spectrum."""
        cupy.copyto(into, cupy.fft.rfftn(x, axes=op.axes, norm=op.norm))

    @table.library(InverseRealFft, dtypes="c64 c128", name="library_inverse_real_fft")
    def inverse_real_fft(op: Any, cupy: Any, z: Any, into: Any) -> None:
        """cuFFT, from half a spectrum."""
        sizes = [into.shape[axis] for axis in op.axes]
        cupy.copyto(into, cupy.fft.irfftn(z, s=sizes, axes=op.axes, norm=op.norm))
