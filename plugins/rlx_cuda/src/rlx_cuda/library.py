"""The kernel table's rows that CUDA's libraries run, by CuPy: cuSOLVER, cuFFT, and cuBLAS where an option says so."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from rlx_core.codegen.places import Layout
from rlx_core.emit.emitters import Emitted, library_call
from rlx_core.emit.table import DeviceTable
from rlx_core.ir.graph import Node
from rlx_core.ops.fourier.fourier import Fft, InverseRealFft, RealFft
from rlx_core.ops.linalg import MatMul
from rlx_core.ops.solve import BatchedDenseSolve, DenseSolve

__all__ = ["FEATURE", "library_rows", "product_rows", "tf32_rows"]

FEATURE: Final = "library"
"""What a device has whose driver calls CuPy; the stand-in has not."""

LIBRARY: Final = "library"
"""The tier."""


def library_rows(table: DeviceTable) -> None:
    """Add the rows for linear systems and Fourier transforms."""

    @table.emitter(DenseSolve, BatchedDenseSolve, dtypes="f32 f64", tier=LIBRARY, name="library_solve")
    def library_solve(node: Node, layout: Layout) -> Emitted:
        """LU with pivoting by cuSOLVER, of stacks by cuBLAS."""
        return library_call("solve", layout, solution)

    @table.emitter(Fft, InverseRealFft, dtypes="c64 c128", tier=LIBRARY, name="library_fft")
    def library_fft(node: Node, layout: Layout) -> Emitted:
        """cuFFT, in the precision of the operand."""
        return library_call("fft", layout, partial(transform, node.op))

    @table.emitter(RealFft, dtypes="f32 f64", tier=LIBRARY, name="library_real_fft")
    def library_real_fft(node: Node, layout: Layout) -> Emitted:
        """cuFFT, half a spectrum."""
        return library_call("rfft", layout, partial(transform, node.op))


def product_rows(table: DeviceTable) -> None:
    """Add the row for products, in front of the generated ones; what follows a product is generated anyway."""

    @table.emitter(MatMul, dtypes="f32 f64", tier=LIBRARY, priority=1, name="library_product")
    def library_product(node: Node, layout: Layout) -> Emitted:
        """cuBLAS, without TF32."""
        return library_call("matmul", layout, product)


def tf32_rows(table: DeviceTable) -> None:
    """Add the row for products of f32 by TF32 units, in front of all others."""

    @table.emitter(MatMul, dtypes="f32", tier=LIBRARY, priority=2, name="library_product_tf32")
    def library_product_tf32(node: Node, layout: Layout) -> Emitted:
        """cuBLAS, whose units round what they multiply to ten bits of mantissa, and add in f32."""
        return library_call("matmul in TF32", layout, product_in_tf32)


# ------------------------------------------------------------------------------------------- what is called


def product(cupy: Any, a: Any, b: Any, into: Any) -> None:
    """The product of two matrices, or of stacks that broadcast."""
    cupy.matmul(a, b, out=into)


def product_in_tf32(cupy: Any, a: Any, b: Any, into: Any) -> None:
    """The same in TF32. The mode is one of this thread's handle, so no other thread's products change."""
    cublas, handle = cupy.cuda.cublas, cupy.cuda.device.get_cublas_handle()
    before = cublas.getMathMode(handle)
    cublas.setMathMode(handle, cublas.CUBLAS_TF32_TENSOR_OP_MATH)
    try:
        cupy.matmul(a, b, out=into)
    finally:
        cublas.setMathMode(handle, before)


def solution(cupy: Any, a: Any, b: Any, into: Any) -> None:
    """The solutions of systems. Where a pivot is 0 the library divides by it, and nobody waits to be told: what is not finite is
    a singular system, all of whose unknowns are NaN."""
    columns = b if b.ndim == a.ndim else b[..., None]
    x = cupy.linalg.solve(a, columns)
    is_regular = cupy.isfinite(x).all(axis=(-2, -1), keepdims=True)
    cupy.copyto(into, cupy.where(is_regular, x, cupy.nan).reshape(into.shape).astype(into.dtype, copy=False))


def transform(op: Any, cupy: Any, x: Any, into: Any) -> None:
    """The transform that an op says."""
    if isinstance(op, Fft):
        found = (cupy.fft.ifftn if op.inverse else cupy.fft.fftn)(x, axes=op.axes, norm=op.norm)
    elif isinstance(op, RealFft):
        found = cupy.fft.rfftn(x, axes=op.axes, norm=op.norm)
    else:
        sizes = [into.shape[axis] for axis in op.axes]
        found = cupy.fft.irfftn(x, s=sizes, axes=op.axes, norm=op.norm)
    cupy.copyto(into, found)
