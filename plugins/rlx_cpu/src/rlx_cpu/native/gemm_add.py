"""Products that are added to something, as native kernels: the scale and the sum are stages of the epilogue.

The result may lie in the bytes of what is added, because each element of it is read right before it is written, and partial
sums wait elsewhere.
"""

from __future__ import annotations

from itertools import pairwise

from rlx_core.ir.graph import Node
from rlx_core.ops.fused_matmul_add import FusedMatMulAdd
from rlx_cpu.native import ir
from rlx_cpu.native.contract import Emitted, Layout, Place
from rlx_cpu.native.epilogue import Epilogue, Operand, Spot, Stage, add, scale
from rlx_cpu.native.gemm import emit_product
from rlx_cpu.native.isa import Isa
from rlx_cpu.native.problem import Product
from rlx_cpu.native.simd import Simd, index, offset, pointer_at, times
from rlx_cpu.native.table import native

__all__ = ["matmul_add"]


@native.register(FusedMatMulAdd, dtypes="f16 bf16 f32 f64", in_place=(2,))
def matmul_add(module: ir.Module, node: Node, layout: Layout, isa: Isa, name: str) -> Emitted:
    """Register tiles over packed panels, the scaled sums added to what is there."""
    op, (a, b, residual) = node.op, layout.operands
    assert isinstance(op, FusedMatMulAdd), "registered for it alone"
    assert a is not None and b is not None and residual is not None, "all operands are required"  # noqa: PT018
    rows = Product.of(a, b, layout.results[0]).m

    def epilogue(simd: Simd, b: ir.IRBuilder, buffers: ir.Value) -> Epilogue:
        stages = Epilogue() if op.scale == 1.0 else Epilogue((scale(simd, op.scale),))
        return stages.then(added(simd, residual, pointer_at(b, buffers, 2), rows))

    return emit_product(module, layout, isa, name, epilogue, keeps_result=True)


def added(simd: Simd, residual: Place, pointer: ir.Value, rows: int) -> Stage:
    """Add the element of a tensor of the result's shape, however its rows lie in memory."""
    shape, strides = residual.type.static_shape[:-1], residual.strides[:-1]
    itemsize = residual.type.dtype.itemsize
    by_column = residual.strides[-1] if residual.type.static_shape[-1] > 1 else itemsize

    def stage(b: ir.IRBuilder, value: ir.Value, spot: Spot) -> ir.Value:
        # Batch axes may have become rows of the product; counted together, both are the result's rows in order.
        number = b.add(times(b, spot.batch, rows), spot.row)
        place = offset(b, pointer, row_offset(b, number, shape, strides))
        here = Spot(spot.batch, index(0), spot.column, spot.mask)
        return add(simd, Operand(place, by_column=by_column, dtype=residual.type.dtype))(b, value, here)

    return stage


def row_offset(b: ir.IRBuilder, number: ir.Value, shape: tuple[int, ...], strides: tuple[int, ...]) -> ir.Value:
    """Bytes to the row of this number: one product where all rows are equally far apart, a walk over the axes otherwise."""
    moving = [(d, s) for d, s in zip(shape, strides, strict=True) if d > 1]
    if all(outer == d * inner for (_, outer), (d, inner) in pairwise(moving)):
        return times(b, number, moving[-1][1] if moving else 0)
    total: ir.Value = index(0)
    for size, stride in reversed(moving):
        total = b.add(total, times(b, b.srem(number, index(size)), stride))
        number = b.sdiv(number, index(size))
    return total
