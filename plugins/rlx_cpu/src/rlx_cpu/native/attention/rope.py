"""Rotary embedding as native code: every pair of features is read once, rotated in registers and written once.

A unit is one position of one sequence. Its row of the tables serves all heads; a position outside the tables is reported and
its features are not written. Rounding is as in the decomposition: two products and a sum, narrow floats in f32.
"""

from __future__ import annotations

from collections.abc import Sequence

from rlx_core.codegen.attention import HeadStrides
from rlx_core.codegen.indexing import Indexing, fault_of
from rlx_core.codegen.places import Layout, Place
from rlx_core.ir.graph import Node
from rlx_core.ops.rope import Rope, RopeBackward, Rotation
from rlx_core.system.records import frozen
from rlx_cpu.native.contract import Emitted
from rlx_cpu.native.indexing.indexed import with_index
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.build import I32, address, shuffled, starting
from rlx_cpu.native.llvm.elements import held_type, load_elements, pieces, store_elements
from rlx_cpu.native.llvm.isa import Isa
from rlx_cpu.native.llvm.simd import counting, index, offset, pointer_at, share
from rlx_cpu.native.table import native, op_of

X, COS, SIN, POSITIONS = range(4)
"""The operands."""


@frozen(eq=False)
class Turner:
    """Code that rotates the features of one head.

    Attributes:
        x, y: The operand and the result; features of the result are contiguous.
        by_feature: Bytes from a feature of the operand to the next.
        tables: cos and sin.
        sign: Sign of the sine; -1 is the inverse rotation.
    """

    builder: ir.IRBuilder
    isa: Isa
    op: Rotation
    x: Place
    y: Place
    by_feature: int
    tables: tuple[Place, Place]
    sign: int

    def head(self, source: ir.LlvmValue, to: ir.LlvmValue, rows: Sequence[ir.LlvmValue]) -> None:
        """One head of one position, with its rows of the tables."""
        pairs, lanes = self.op.pairs, self.isa.lanes(self.x.type.dtype.accumulator)
        full_pairs = pairs // lanes * lanes
        with counting(self.builder, 0, full_pairs, lanes) as pair:
            self._turn(source, to, rows, pair, lanes)
        for start, count in pieces(full_pairs, pairs, lanes):
            self._turn(source, to, rows, index(start), count)
        with counting(self.builder, 2 * pairs, self.op.head_dim) as feature:
            self._write(to, feature, self._read(self.x, source, self.by_feature, feature, 1))

    def _turn(
        self, source: ir.LlvmValue, to: ir.LlvmValue, rows: Sequence[ir.LlvmValue], pair: ir.LlvmValue, lanes: int
    ) -> None:
        b = self.builder
        cos, sin = (
            self._read(table, row, table.strides[1], pair, lanes) for table, row in zip(self.tables, rows, strict=True)
        )
        if self.sign < 0:
            sin = b.fneg(sin)
        if self.op.style == "half":
            second = b.add(pair, index(self.op.pairs))
            x1, x2 = (self._read(self.x, source, self.by_feature, first, lanes) for first in (pair, second))
        else:
            both = self._read(self.x, source, self.by_feature, b.mul(pair, index(2)), 2 * lanes)
            x1, x2 = (self._chosen(both, list(range(k, 2 * lanes, 2))) for k in (0, 1))
        y1 = b.fsub(b.fmul(x1, cos), b.fmul(x2, sin))
        y2 = b.fadd(b.fmul(x2, cos), b.fmul(x1, sin))
        if self.op.style == "half":
            self._write(to, pair, y1)
            self._write(to, second, y2)
        else:
            self._write(to, b.mul(pair, index(2)), self._interleaved(y1, y2, lanes))

    def _chosen(self, vector: ir.LlvmValue, lanes: list[int]) -> ir.LlvmValue:
        b = self.builder
        if len(lanes) == 1:
            return b.extract_element(vector, ir.LlvmConstant(I32, lanes[0]))
        return shuffled(b, vector, vector, lanes)

    def _interleaved(self, first: ir.LlvmValue, second: ir.LlvmValue, lanes: int) -> ir.LlvmValue:
        b = self.builder
        if lanes > 1:
            return shuffled(b, first, second, (k + side for k in range(lanes) for side in (0, lanes)))
        both: ir.LlvmValue = ir.LlvmConstant(ir.VectorType(first.type, 2), ir.Undefined)
        for k, value in enumerate((first, second)):
            both = b.insert_element(both, value, ir.LlvmConstant(I32, k))
        return both

    def _read(self, place: Place, start: ir.LlvmValue, stride: int, number: ir.LlvmValue, lanes: int) -> ir.LlvmValue:
        """`lanes` elements from `number` on, contiguous or strided."""
        b, dtype = self.builder, place.type.dtype
        first = offset(b, start, (number, stride))
        if stride == dtype.itemsize or lanes == 1:
            return load_elements(b, self.isa, dtype, first, lanes)
        elements: ir.LlvmValue = ir.LlvmConstant(held_type(dtype, lanes), ir.Undefined)
        for k in range(lanes):
            one = load_elements(b, self.isa, dtype, address(b, first, k * stride))
            elements = b.insert_element(elements, one, ir.LlvmConstant(I32, k))
        return elements

    def _write(self, to: ir.LlvmValue, number: ir.LlvmValue, value: ir.LlvmValue) -> None:
        dtype = self.y.type.dtype
        store_elements(self.builder, self.isa, dtype, value, offset(self.builder, to, (number, dtype.itemsize)))


def emit_rope(module: ir.Module, node: Node, layout: Layout, isa: Isa, name: str) -> Emitted:
    """Rotate pairs of features by the angle of their position, for all heads."""
    op = op_of(node, Rotation)
    x, cos, sin = layout.required(X, COS, SIN)
    positions = (*layout.operands, None)[POSITIONS]  # may be absent, or not even be an operand
    result = layout.results[0]
    shape = result.type.static_shape
    batch, seq = shape[0], shape[2 if op.layout == "bhsd" else 1]
    heads = shape[2] // op.head_dim if op.layout == "bsd" else shape[1 if op.layout == "bhsd" else 2]
    read, written = (HeadStrides.of(place, op.layout, heads) for place in (x, result))
    assert written.feature == result.type.dtype.itemsize, "a result is a buffer of its own"
    b, buffers, tid, nthreads = starting(module, name)
    problem = None
    if positions is not None:
        problem = Indexing(1, 1, cos.type.static_shape[0], batch * seq, 1, positions.type.dtype, "error")
    if not batch * seq:
        b.ret_void()
        return Emitted(name, uses_threads=False)
    turner = Turner(b, isa, op, x, result, read.feature, (cos, sin), -1 if isinstance(op, RopeBackward) else 1)
    pointers = [pointer_at(b, buffers, k) for k in (X, COS, SIN)]
    result_at = pointer_at(b, buffers, len(layout.operands))
    low, high = share(b, batch * seq, tid, nthreads)
    with counting(b, low, high) as unit:
        sequence, position = b.udiv(unit, index(seq)), b.urem(unit, index(seq))

        def turn(row: ir.LlvmValue) -> None:
            rows = [offset(b, p, (row, t.strides[0])) for p, t in zip(pointers[1:], (cos, sin), strict=True)]
            position_start = offset(b, pointers[0], (sequence, read.batch), (position, read.position))
            to = offset(b, result_at, (sequence, written.batch), (position, written.position))
            with counting(b, 0, heads) as head:
                turner.head(offset(b, position_start, (head, read.head)), offset(b, to, (head, written.head)), rows)

        if problem is None or positions is None:
            turn(position)
        else:
            by_sequence, by_position = positions.strides
            start = pointer_at(b, buffers, POSITIONS)
            where = offset(b, start, (sequence, by_sequence), (position, by_position))
            status = pointer_at(b, buffers, len(layout.operands) + 1)
            with_index(b, problem, where, index(0), status, turn)
    b.ret_void()
    fault = None if problem is None else fault_of(problem, node.op.name.rpartition(".")[2])
    return Emitted(
        name, fault=fault, uses_threads=batch * seq > 1 and result.type.static_nbytes >= isa.machine.serial_nbytes
    )


native.register(Rope, RopeBackward, in_place=(X,), name="rope")(emit_rope)
