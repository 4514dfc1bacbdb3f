"""Offsets of the matrices of a batch of products, in generated code."""

from __future__ import annotations

from rlx_core.codegen.product import Axes, MatrixProduct, MatrixStrides
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.simd import index, times
from rlx_cpu.native.llvm.sizes import is_known, sized
from rlx_cpu.native.products.row_tiles import RowTile


def entry_offset(b: ir.IRBuilder, product: MatrixProduct, entry: ir.LlvmValue, matrix: MatrixStrides) -> ir.LlvmValue:
    """Return the offset in bytes from the first product's part of an operand to the part of product `entry`."""
    return _walk(b, entry, matrix.batch, product.batch)


def b_offset(b: ir.IRBuilder, product: MatrixProduct, matrix: ir.LlvmValue) -> ir.LlvmValue:
    """Return the offset in bytes from the first distinct matrix of B to another one."""
    return _walk(b, matrix, product.b.batch, product.b_shape)


def row_offset(b: ir.IRBuilder, tile: RowTile, matrix: MatrixStrides, lines: Axes) -> ir.LlvmValue:
    """Bytes from the first row of A, or of C, to the first of a tile.

    Args:
        lines: The axes around its rows.
    """
    if not lines:
        return times(b, tile.row, matrix.by_row)
    assert tile.line is not None, "rows that come in lines are cut so"
    return b.add(walk(b, tile.line, lines), times(b, tile.within, matrix.by_row))


def walk(b: ir.IRBuilder, number: ir.LlvmValue, axes: Axes) -> ir.LlvmValue:
    """Bytes to the place of this number in axes that are counted as one."""
    sizes, strides = zip(*axes, strict=True)
    return _walk(b, number, strides, sizes)


def b_entry(b: ir.IRBuilder, product: MatrixProduct, entry: ir.LlvmValue) -> ir.LlvmValue:
    """Return the index of the matrix of B that product `entry` uses."""
    if not all(map(is_known, product.batch)):
        return entry if product.b_shape == product.batch else index(0)
    strides, step = [], 1
    for size in reversed(product.b_shape):
        strides.append(step if size > 1 else 0)
        step *= size
    return _walk(b, entry, tuple(reversed(strides)), product.batch)


def _walk(b: ir.IRBuilder, entry: ir.LlvmValue, strides: tuple[int, ...], shape: tuple[int, ...]) -> ir.LlvmValue:
    """The dot product of an entry's coordinates in `shape` with `strides`."""
    total: ir.LlvmValue = index(0)
    remaining = entry
    for axis, (size, stride) in reversed(list(enumerate(zip(shape, strides, strict=True)))):
        if axis == 0:
            return b.add(total, times(b, remaining, stride))
        if stride != 0:
            total = b.add(total, times(b, b.srem(remaining, sized(b, size)), stride))
        remaining = b.sdiv(remaining, sized(b, size))
    return total
