"""Where the products of a batch find their matrices, in generated code."""

from __future__ import annotations

from rlx_core.codegen.product import Axes, Matrix, Product
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.simd import index, times
from rlx_cpu.native.llvm.sizes import is_known, sized
from rlx_cpu.native.products.row_tiles import RowTile

__all__ = ["b_entry", "b_offset", "entry_offset", "row_offset", "walk"]


def entry_offset(b: ir.IRBuilder, product: Product, entry: ir.Value, matrix: Matrix) -> ir.Value:
    """Bytes from the first product's part of an operand to that of product `entry`."""
    return _walk(b, entry, matrix.batch, product.batch)


def b_offset(b: ir.IRBuilder, product: Product, matrix: ir.Value) -> ir.Value:
    """Bytes from B's first own matrix to another one."""
    return _walk(b, matrix, product.b.batch, product.b_shape)


def row_offset(b: ir.IRBuilder, tile: RowTile, matrix: Matrix, lines: Axes) -> ir.Value:
    """Bytes from the first row of A, or of C, to the first of a tile.

    Args:
        lines: The axes around its rows.
    """
    if not lines:
        return times(b, tile.row, matrix.by_row)
    assert tile.line is not None, "rows that come in lines are cut so"
    return b.add(walk(b, tile.line, lines), times(b, tile.within, matrix.by_row))


def walk(b: ir.IRBuilder, number: ir.Value, axes: Axes) -> ir.Value:
    """Bytes to the place of this number in axes that are counted as one."""
    sizes, strides = zip(*axes, strict=True)
    return _walk(b, number, strides, sizes)


def b_entry(b: ir.IRBuilder, product: Product, entry: ir.Value) -> ir.Value:
    """Which of B's own matrices product `entry` takes."""
    if not all(map(is_known, product.batch)):
        return entry if product.b_shape == product.batch else index(0)
    strides, step = [], 1
    for size in reversed(product.b_shape):
        strides.append(step if size > 1 else 0)
        step *= size
    return _walk(b, entry, tuple(reversed(strides)), product.batch)


def _walk(b: ir.IRBuilder, entry: ir.Value, strides: tuple[int, ...], shape: tuple[int, ...]) -> ir.Value:
    """The dot product of an entry's coordinates in `shape` with `strides`."""
    total: ir.Value = index(0)
    rest = entry
    for axis, (size, stride) in reversed(list(enumerate(zip(shape, strides, strict=True)))):
        if axis == 0:
            return b.add(total, times(b, rest, stride))
        if stride != 0:
            total = b.add(total, times(b, b.srem(rest, sized(b, size)), stride))
        rest = b.sdiv(rest, sized(b, size))
    return total
