"""Products of integers, modulo 2^bits of the result.

i8, u8 and i16 with sums of at most 32 bits are multiplied as floats are, by register tiles over packed panels of pairs of i16,
or of quads of bytes where the processor has an instruction for them (`llvm.words`). Other integers are multiplied by tiles of a
few rows by one vector of columns: wrapping sums are the same in any order, so nothing is packed and K is not blocked; operands of
any strides are read where they lie, a vector at a time where the columns of B are neighbours.
"""

from __future__ import annotations

from functools import partial

from rlx_core.codegen.cuts import Cut, cut
from rlx_core.codegen.places import Layout
from rlx_core.codegen.product import MatrixProduct
from rlx_core.ir.dtypes import DType, i32
from rlx_core.ir.graph import Node
from rlx_core.ops.linalg import MatMul
from rlx_core.pipeline.kernels import condition
from rlx_core.system.records import frozen
from rlx_cpu.native.contract import MOST_PARTS, Emitted
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.build import I32, KERNEL, Variable, least, memory_type
from rlx_cpu.native.llvm.cuts import by_size, start_of
from rlx_cpu.native.llvm.isa import Isa
from rlx_cpu.native.llvm.simd import Simd, counting, index, offset, pointer_at, share
from rlx_cpu.native.llvm.words import PAIRED_INTEGERS
from rlx_cpu.native.products.entries import entry_offset
from rlx_cpu.native.products.gemm import emit_product
from rlx_cpu.native.products.gemm_sized import sized_product
from rlx_cpu.native.products.microkernel import nothing_follows
from rlx_cpu.native.table import native

ROWS = 4
"""Rows of a tile: what one vector of B is multiplied by."""


@condition("a result of at most 32 bits", asks_sizes=False)
def has_short_sums(node: Node) -> bool:
    return node.type.dtype.itemsize <= i32.itemsize


@native.register(
    MatMul,
    dtypes=PAIRED_INTEGERS,
    when=has_short_sums,
    writes_strides=True,
    sized=sized_product(lambda node, layout: nothing_follows),
)
def integer_matmul_pairs(module: ir.Module, node: Node, layout: Layout, isa: Isa, name: str) -> Emitted:
    """Register tiles over packed panels of pairs or quads."""
    return emit_product(module, layout, isa, name, nothing_follows)


@condition("other integers than i8, u8 and i16, or a result of 64 bits", asks_sizes=False)
def has_no_pairs(node: Node) -> bool:
    a, *_ = node.present()
    return a.dtype not in PAIRED_INTEGERS or not has_short_sums.holds(node)


@native.register(MatMul, dtypes="i8 i16 i32 i64 u8 u16 u32 u64", when=has_no_pairs)
def integer_matmul(module: ir.Module, node: Node, layout: Layout, isa: Isa, name: str) -> Emitted:
    """Tiles of rows by vectors of columns."""
    a, b = layout.required()
    product = MatrixProduct.of(a, b, layout.results[0])
    return _Integers(Simd(module, isa, product.dtype), product, a.type.dtype, name).emit()


@frozen(eq=False)
class _Integers:
    """One product while its function is emitted.

    Attributes:
        simd: Vectors of the result's dtype.
        operand: The dtype of A and B.
    """

    simd: Simd
    product: MatrixProduct
    operand: DType
    name: str

    @property
    def rows(self) -> Cut:
        return cut(self.product.m, ROWS)

    def emit(self) -> Emitted:
        p, simd = self.product, self.simd
        b = ir.new_function(simd.module, KERNEL, self.name)
        vectors, tiles = -(-p.n // simd.lanes), self.rows.pieces
        items, products = p.entries * tiles * vectors, p.m * p.n * p.k * p.entries
        if items:
            buffers, part, parts, _ = b.function.args
            a, right, c = (pointer_at(b, buffers, i) for i in range(3))
            with counting(b, *share(b, items, part, parts)) as item:
                vector, unit = b.srem(item, index(vectors)), b.sdiv(item, index(vectors))
                tile, entry = b.srem(unit, index(tiles)), b.sdiv(unit, index(tiles))
                row, column = start_of(b, self.rows, tile), b.mul(vector, index(simd.lanes))
                left = offset(b, a, entry_offset(b, p, entry, p.a), (row, p.a.by_row))
                above = offset(b, right, entry_offset(b, p, entry, p.b), (column, p.b.by_column))
                out = offset(b, c, entry_offset(b, p, entry, p.c), (row, p.c.by_row), (column, p.c.by_column))
                for rows in by_size(b, self.rows, tile):
                    columns = b.sub(index(p.n), column)
                    sums = partial(self._sums, b, rows, left, above, out)
                    if p.n % simd.lanes == 0:
                        sums(None)
                        continue
                    with b.if_else(b.icmp_signed(">=", columns, index(simd.lanes))) as (full, remainder):
                        with full:
                            sums(None)
                        with remainder:
                            sums(columns)
        b.ret_void()
        parts_of_it = max(1, min(MOST_PARTS, items, products // simd.isa.machine.products.part_products))
        return Emitted(
            self.name,
            uses_threads=products >= simd.isa.machine.serial_products,
            parts=parts_of_it,
            notes={"tile": f"{self.rows.size}x{simd.lanes}"},
        )

    def _sums(
        self,
        b: ir.IRBuilder,
        rows: int,
        left: ir.LlvmValue,
        above: ir.LlvmValue,
        out: ir.LlvmValue,
        columns: ir.LlvmValue | None,
    ) -> None:
        """The sums of a tile; `columns` are left of the result if those are fewer than a vector has."""
        p, simd = self.product, self.simd
        zero = ir.LlvmConstant(simd.vector, [ir.LlvmConstant(simd.element, 0)] * simd.lanes)
        sums = [Variable.new(b, simd.vector) for _ in range(rows)]
        for total in sums:
            total.set(b, zero)
        with counting(b, 0, p.k) as k:
            line = self._line(b, offset(b, above, (k, p.b.by_row)), columns)
            for i, total in enumerate(sums):
                place = offset(b, left, (k, p.a.by_column), i * p.a.by_row)
                element = b.load(place, typ=memory_type(self.operand), align=self.operand.itemsize)
                factor = simd.splat(b, self._extended(b, element, simd.element))
                total.set(b, b.add(total.value(b), b.mul(factor, line)))
        for i, total in enumerate(sums):
            value, place = total.value(b), offset(b, out, i * p.c.by_row)
            if columns is None and p.c.by_column == simd.itemsize:
                simd.store(b, value, place)
            else:
                simd.store_spread(b, value, place, p.c.by_column, columns)

    def _line(self, b: ir.IRBuilder, place: ir.LlvmValue, columns: ir.LlvmValue | None) -> ir.LlvmValue:
        """A vector of a row of B; columns that do not exist repeat the last."""
        simd, itemsize = self.simd, self.operand.itemsize
        by_column = self.product.b.by_column
        kind = ir.VectorType(memory_type(self.operand), simd.lanes)
        if columns is None and by_column == itemsize:
            return self._extended(b, b.load(place, typ=kind, align=itemsize), simd.vector)
        value: ir.LlvmValue = ir.LlvmConstant(kind, ir.Undefined)
        for lane in range(simd.lanes):
            nearest: ir.LlvmValue = index(lane)
            if columns is not None:
                last = b.sub(columns, index(1))
                nearest = least(b, nearest, last)
            element = b.load(offset(b, place, (nearest, by_column)), typ=kind.element, align=itemsize)
            value = b.insert_element(value, element, ir.LlvmConstant(I32, lane))
        return self._extended(b, value, simd.vector)

    def _extended(self, b: ir.IRBuilder, value: ir.LlvmValue, kind: ir.Type) -> ir.LlvmValue:
        if self.operand.itemsize == self.simd.itemsize:
            return value
        return b.sext(value, kind) if self.operand.kind == "int" else b.zext(value, kind)
