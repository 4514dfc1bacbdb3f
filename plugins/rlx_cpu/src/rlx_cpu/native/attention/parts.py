"""Shared code of attention forward and backward: the logits of a row, and helpers for loops over rows.

Both passes compute their scores through `Logits`, so they agree on scale, cap, bias and mask; `codegen.attention_scores`
defines the effect of these on a score, for every target.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

from rlx_core.codegen.attention_scores import BATCH, HEAD, KEY, QUERY, PlacedAttention, length_stride
from rlx_core.codegen.loops import Apply, Bound, Const, Index, Load, Scalar
from rlx_core.ir.dtypes import bool_, i64
from rlx_core.ir.graph import Node
from rlx_core.ops.attention_scores import AttentionOp
from rlx_core.pipeline.kernels import condition
from rlx_core.system.records import frozen
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.build import I32, I64, least, most, register_type
from rlx_cpu.native.llvm.ir.numbers import constant
from rlx_cpu.native.llvm.simd import Simd, index, offset, pointer_at
from rlx_cpu.native.llvm.sizes import is_known, sized
from rlx_cpu.native.llvm.stored import Stored
from rlx_cpu.native.scalars.table import NATIVE


@condition("a mask and a bias of bool, or of a dtype that is computed with as the operands' is", asks_sizes=False)
def fitting_dtypes(node: Node) -> bool:
    q = node.operands[0]
    assert q is not None, "queries are required"
    return all(v.dtype in (bool_, i64) or v.dtype.accumulator is q.dtype.accumulator for v in node.present())


@condition("no mean of all values for a query that sees no key", asks_sizes=False)
def fitting_codes(node: Node) -> bool:
    return isinstance(node.op, AttentionOp) and node.op.empty_row != "uniform"


@frozen(eq=False)
class ScoreRows:
    """A range of rows of scores: batch entry, head, and first query; and the number of valid keys, if that is an operand."""

    batch: ir.LlvmValue
    head: ir.LlvmValue
    first: ir.LlvmValue
    valid: ir.LlvmValue | None = None


@frozen(eq=False)
class Logits:
    """Compute the softmax's input from products of queries and keys: the problem's `Scores`, for vectors of keys.

    Attributes:
        buffers: The kernel's argument.
    """

    problem: PlacedAttention
    simd: Simd
    buffers: ir.LlvmValue

    def valid(self, b: ir.IRBuilder, batch: ir.LlvmValue) -> ir.LlvmValue | None:
        """The number of valid keys of an entry of the batch, at most all; `None` if it is no operand."""
        number = self.problem.lengths
        if number is None:
            return None
        place = offset(b, pointer_at(b, self.buffers, number), (batch, length_stride(self.problem.place(number))))
        length = b.load(place, typ=I64, align=8)
        return most(b, least(b, length, sized(b, self.problem.sizes[KEY])), index(0))

    def visible(
        self, b: ir.IRBuilder, first: ir.LlvmValue, rows: ir.LlvmValue | int, valid: ir.LlvmValue | None = None
    ) -> tuple[ir.LlvmValue, ir.LlvmValue]:
        """The keys that one of `rows` queries from `first` on may see, by position and the number of valid keys alone."""
        keys, shift, window = self.problem.sizes[KEY], self.problem.offset, self.problem.op.window
        if valid is not None:
            if not self.problem.is_positional:
                return index(0), valid
            last = b.add(first, b.sub(valid, sized(b, self.problem.sizes[QUERY])))
            high = least(b, b.add(last, index(rows) if isinstance(rows, int) else rows), valid)
            return index(0) if window is None else b.sub(last, index(window)), high
        if shift is None:
            return index(0), sized(b, keys)
        behind = b.add(first, index(rows) if isinstance(rows, int) else rows)
        high = least(b, b.add(behind, sized(b, shift)), sized(b, keys))
        return index(0) if window is None else b.add(first, sized(b, shift - window)), high

    def at(
        self, b: ir.IRBuilder, rows: ScoreRows, row: ir.LlvmValue, key: ir.LlvmValue, u: ir.LlvmValue
    ) -> tuple[ir.LlvmValue, ir.LlvmValue | None]:
        """Products with keys from `key` on as logits, -inf where the key is hidden; and the slope of the cap."""
        scores, simd, keys = self.problem.scores, self.simd, self.problem.sizes[KEY]
        terms, known = scores.kernel.values, {scores.element: u}
        indices = {BATCH: rows.batch, HEAD: rows.head, QUERY: b.add(rows.first, row), KEY: key}
        for number, term in enumerate(terms):
            if isinstance(term, Bound):
                assert rows.valid is not None, "only the number of valid keys is clamped"
                known[number] = self._in_every_lane(b, rows.valid)
            elif isinstance(term, Load) and term.buffer == self.problem.lengths:
                continue  # it is in the rows, clamped
            elif isinstance(term, Apply):
                args = [known[a] for a in term.args]
                known[number] = NATIVE.apply(b, term.op, [terms[a].dtype for a in term.args], args)
            elif number != scores.element:
                known[number] = self._leaf(b, term, indices)
        z = known[scores.score]
        if keys % simd.lanes:
            z = b.select(simd.below(b, key, sized(b, keys)), z, simd.constant(-inf))
        return z, None if scores.slope is None else known[scores.slope]

    def _leaf(self, b: ir.IRBuilder, term: Scalar, indices: Mapping[int, ir.LlvmValue]) -> ir.LlvmValue:
        """A number, a position or an element, one a key."""
        if isinstance(term, Const):
            return constant(register_type(term.dtype, self.simd.lanes), term.number)
        if isinstance(term, Index):
            return self._position(b, term, indices[term.axis])
        assert isinstance(term, Load), "scores are made of numbers, positions, elements and ops on them"
        return self._load(b, term, indices)

    @property
    def _integer(self) -> ir.IntType:
        """The integer type of positions in scores: half as wide as addresses, except for a window beyond all bounds."""
        sizes, terms = self.problem.sizes, self.problem.scores.kernel.values
        if not all(map(is_known, sizes)):
            return I32  # the binding checks the range
        largest = max((sizes[t.axis] + abs(t.offset) for t in terms if isinstance(t, Index)), default=0)
        return I32 if largest < 1 << 31 else I64

    def _position(self, b: ir.IRBuilder, term: Index, here: ir.LlvmValue) -> ir.LlvmValue:
        """The position of a query in every lane, or of a key a lane."""
        position = self._in_every_lane(b, b.add(here, sized(b, term.offset)))
        if term.axis != KEY:
            return position
        lanes = ir.VectorType(self._integer, self.simd.lanes)
        return b.add(position, ir.LlvmConstant(lanes, list(range(self.simd.lanes))))

    def _in_every_lane(self, b: ir.IRBuilder, position: ir.LlvmValue) -> ir.LlvmValue:
        return self.simd.splat(b, b.trunc(position, I32) if self._integer is I32 else position)

    def by_key(
        self,
        b: ir.IRBuilder,
        number: int,
        strides: tuple[int, int, int, int],
        which: tuple[ir.LlvmValue, ir.LlvmValue],
        key: ir.LlvmValue,
    ) -> ir.LlvmValue:
        """A vector of an operand that has a number for each key of a batch entry and a head: `which` of both.

        Args:
            strides: Along batch entries, heads, queries and keys, in bytes.
        """
        term = Load(number, self.problem.place(number).type.dtype, strides)
        return self._load(b, term, {BATCH: which[0], HEAD: which[1], QUERY: index(0), KEY: key})

    def _load(self, b: ir.IRBuilder, term: Load, indices: Mapping[int, ir.LlvmValue]) -> ir.LlvmValue:
        """A vector of a mask or bias; keys beyond the last repeat the last."""
        simd, keys = self.simd, self.problem.sizes[KEY]
        stored, step = Stored(simd, term.dtype), term.strides[KEY]
        outer = [(indices[axis], term.strides[axis]) for axis in (BATCH, HEAD, QUERY)]
        start = offset(b, pointer_at(b, self.buffers, term.buffer), *outer)
        if step == 0:
            return simd.splat(b, stored.load_scalar(b, start))
        if step == stored.itemsize and keys % simd.lanes == 0:
            return stored.load(b, offset(b, start, (indices[KEY], step)))
        if step == stored.itemsize and not is_known(keys):
            return stored.load(b, offset(b, start, (indices[KEY], step)), simd.below(b, indices[KEY], sized(b, keys)))
        value: ir.LlvmValue = ir.LlvmConstant(register_type(term.dtype, simd.lanes), ir.Undefined)
        for lane in range(simd.lanes):
            nearest = least(b, b.add(indices[KEY], index(lane)), sized(b, keys - 1))
            one = stored.load_scalar(b, offset(b, start, (nearest, step)))
            value = b.insert_element(value, one, ir.LlvmConstant(I32, lane))
        return value


def number(simd: Simd, value: float) -> ir.LlvmConstant:
    return ir.LlvmConstant(simd.element, value)
