"""What attention forward and backward are built from: the logits of a row, and small words for loops over rows.

Both passes compute their scores through `Logits`, so they cannot disagree about a scale, a cap, a bias or a mask.
"""

from __future__ import annotations

from math import inf

from attrs import frozen

from rlx_core.ir.dtypes import bool_
from rlx_core.ir.graph import Node
from rlx_core.ops import activation
from rlx_core.ops.attention_scores import AttentionOp
from rlx_core.pipeline.kernels import condition
from rlx_cpu.native import functions, ir
from rlx_cpu.native.attention_problem import AttentionProblem, ScoresStrides
from rlx_cpu.native.build import I8, I32, variable
from rlx_cpu.native.contract import Layout, Place
from rlx_cpu.native.simd import Simd, index, offset, pointer_at
from rlx_cpu.native.stored import Stored

__all__ = [
    "SERIAL_PRODUCTS",
    "Logits",
    "Rows",
    "fitting_dtypes",
    "least",
    "most",
    "number",
    "register",
]

SERIAL_PRODUCTS = 1 << 15
"""Below so many fused products (a few µs) waking another thread costs more than it saves."""


@condition("a mask and a bias of bool, or of a dtype that is computed with as the operands' is")
def fitting_dtypes(node: Node) -> bool:
    q = node.operands[0]
    assert q is not None, "queries are required"
    return all(v.dtype is bool_ or v.dtype.accumulator is q.dtype.accumulator for v in node.present())


@frozen(eq=False)
class Rows:
    """Which rows of scores: of a batch entry and a head, from query `first` on."""

    batch: ir.Value
    head: ir.Value
    first: ir.Value


@frozen(eq=False)
class Logits:
    """How products of queries and keys become what the softmax sees.

    Attributes:
        mask: Which operand is the mask; its place may be absent.
        buffers: The kernel's argument.
    """

    op: AttentionOp
    problem: AttentionProblem
    layout: Layout
    simd: Simd
    mask: int
    buffers: ir.Value

    @property
    def may_hide(self) -> bool:
        """Whether a row can be left without a visible key."""
        return self.op.mask_kind != "none" or any(x is not None for x in self.layout.operands[self.mask :])

    def visible(self, b: ir.IRBuilder, first: ir.Value, rows: ir.Value | int) -> tuple[ir.Value, ir.Value]:
        """The keys that one of `rows` queries from `first` on may see, by position alone."""
        p = self.problem
        if self.op.mask_kind not in ("causal", "sliding_window"):
            return index(0), index(p.keys)
        shift = p.keys - p.queries
        behind = b.add(first, index(rows) if isinstance(rows, int) else rows)
        high = least(b, b.add(behind, index(shift)), index(p.keys))
        if self.op.window is None:
            return index(0), high
        return b.add(first, index(shift - self.op.window)), high

    def at(
        self, b: ir.IRBuilder, rows: Rows, row: ir.Value, key: ir.Value, u: ir.Value
    ) -> tuple[ir.Value, ir.Value | None]:
        """Products with keys from `key` on as logits, -inf where the key is hidden; and the slope of the cap."""
        op, p, simd = self.op, self.problem, self.simd
        z = b.fmul(u, simd.constant(op.scale))
        slope = None
        if op.attn_logit_softcap is not None:
            cap = simd.constant(op.attn_logit_softcap)
            capped = functions.call(b, activation.tanh.op, p.dtype, (b.fdiv(z, cap),))
            z, slope = b.fmul(capped, cap), b.fsub(simd.constant(1.0), b.fmul(capped, capped))
        query = b.add(rows.first, row)
        mask, bias = (self._place(i) for i in (self.mask, self.mask + 1))
        inside = simd.below(b, key, p.keys) if p.keys % simd.lanes else None
        if bias is not None:
            at = ScoresStrides.of(bias, is_mask=False)
            z = b.fadd(z, self._load(b, rows, self.mask + 1, at, (query, key), Stored(simd, bias.type.dtype)))
        shown = [] if inside is None else [inside]
        if op.mask_kind in ("causal", "sliding_window"):
            shown += self._positions_shown(b, query, key)
        if mask is not None:
            at = ScoresStrides.of(mask, is_mask=True)
            if mask.type.dtype is bool_:
                found = self._load(b, rows, self.mask, at, (query, key), None)
                shown.append(b.icmp_unsigned("!=", found, ir.Constant(found.type, [0] * simd.lanes)))
            else:
                found = self._load(b, rows, self.mask, at, (query, key), Stored(simd, mask.type.dtype))
                shown.append(b.fcmp_ordered(">=", found, simd.constant(0.5)))
        for visible in shown:
            z = b.select(visible, z, simd.constant(-inf))
        return z, slope

    def _place(self, operand: int) -> Place | None:
        return self.layout.operands[operand] if operand < len(self.layout.operands) else None

    def _positions_shown(self, b: ir.IRBuilder, query: ir.Value, key: ir.Value) -> list[ir.Value]:
        p, simd = self.problem, self.simd
        last = b.trunc(b.add(query, index(p.keys - p.queries)), I32)
        lanes = ir.Constant(ir.VectorType(I32, simd.lanes), list(range(simd.lanes)))
        keys = b.add(simd.splat(b, b.trunc(key, I32)), lanes)
        shown = [b.icmp_signed("<=", keys, simd.splat(b, last))]
        if self.op.window is not None:
            first = b.sub(last, ir.Constant(I32, self.op.window))
            shown.append(b.icmp_signed(">=", keys, simd.splat(b, first)))
        return shown

    def _load(
        self,
        b: ir.IRBuilder,
        rows: Rows,
        operand: int,
        at: ScoresStrides,
        place: tuple[ir.Value, ir.Value],
        stored: Stored | None,
    ) -> ir.Value:
        """A vector of a mask or bias, of bytes if it is not `stored` floats; keys beyond the last repeat the last."""
        p, simd = self.problem, self.simd
        itemsize = 1 if stored is None else stored.itemsize

        def one(at: ir.Value) -> ir.Value:
            return b.load(at, typ=I8, align=1) if stored is None else stored.load_scalar(b, at)

        query, key = place
        start = offset(
            b, pointer_at(b, self.buffers, operand), (rows.batch, at.batch), (rows.head, at.head), (query, at.query)
        )
        if at.key == 0:
            return simd.splat(b, one(start))
        if at.key == itemsize and p.keys % simd.lanes == 0:
            place_of_key = offset(b, start, (key, at.key))
            if stored is not None:
                return stored.load(b, place_of_key)
            return b.load(place_of_key, typ=ir.VectorType(I8, simd.lanes), align=1)
        value: ir.Value = ir.Constant(ir.VectorType(I8 if stored is None else simd.element, simd.lanes), ir.Undefined)
        for lane in range(simd.lanes):
            nearest = least(b, b.add(key, index(lane)), index(p.keys - 1))
            value = b.insert_element(value, one(offset(b, start, (nearest, at.key))), ir.Constant(I32, lane))
        return value


def number(simd: Simd, value: float) -> ir.Constant:
    return ir.Constant(simd.element, value)


def least(b: ir.IRBuilder, x: ir.Value, y: ir.Value) -> ir.Value:
    return b.select(b.icmp_signed("<", x, y), x, y)


def most(b: ir.IRBuilder, x: ir.Value, y: ir.Value) -> ir.Value:
    return b.select(b.icmp_signed(">", x, y), x, y)


def register(b: ir.IRBuilder, simd: Simd, value: ir.Value) -> ir.Value:
    """A vector that a loop updates: memory until LLVM makes it a register."""
    place = variable(b, simd.vector)
    b.store(value, place, align=simd.itemsize)
    return place
