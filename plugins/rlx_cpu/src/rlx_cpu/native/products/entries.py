"""Where the products of a batch find their matrices, in generated code."""

from __future__ import annotations

from rlx_core.codegen.product import Matrix, Product
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.simd import index, times

__all__ = ["b_entry", "b_offset", "entry_offset"]


def entry_offset(b: ir.IRBuilder, product: Product, entry: ir.Value, matrix: Matrix) -> ir.Value:
    """Bytes from the first product's part of an operand to that of product `entry`."""
    return _walk(b, entry, matrix.batch, product.batch)


def b_offset(b: ir.IRBuilder, product: Product, matrix: ir.Value) -> ir.Value:
    """Bytes from B's first own matrix to another one."""
    return _walk(b, matrix, product.b.batch, product.b_shape)


def b_entry(b: ir.IRBuilder, product: Product, entry: ir.Value) -> ir.Value:
    """Which of B's own matrices product `entry` takes."""
    strides, step = [], 1
    for size in reversed(product.b_shape):
        strides.append(step if size > 1 else 0)
        step *= size
    return _walk(b, entry, tuple(reversed(strides)), product.batch)


def _walk(b: ir.IRBuilder, entry: ir.Value, strides: tuple[int, ...], shape: tuple[int, ...]) -> ir.Value:
    """The dot product of an entry's coordinates in `shape` with `strides`."""
    total: ir.Value = index(0)
    rest = entry
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if stride:
            total = b.add(total, times(b, b.srem(rest, index(size)), stride))
        rest = b.sdiv(rest, index(size))
    return total
