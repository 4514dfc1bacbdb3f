"""What attention forward and backward are built from: the logits of a row, and operands read by position.

Both passes compute their scores through `Logits`, so they cannot disagree about a scale, a cap, a bias or a mask.
"""

from __future__ import annotations

from math import inf

from attrs import frozen
from llvmlite import ir

from rlx_core.ir.dtypes import bool_
from rlx_core.ir.graph import Node
from rlx_core.ops import activation
from rlx_core.ops.attention_scores import AttentionOp
from rlx_core.pipeline.kernels import condition
from rlx_cpu.native import functions
from rlx_cpu.native.attention_problem import AttentionProblem, HeadStrides, ScoresStrides
from rlx_cpu.native.build import I8, I32, variable
from rlx_cpu.native.contract import ALIGNMENT, Layout, Place
from rlx_cpu.native.cuts import by_size, start_of
from rlx_cpu.native.gemm_tiles import Cut
from rlx_cpu.native.packing import copy_row, pack_panel
from rlx_cpu.native.simd import Simd, counting, index, offset, pointer_at, times
from rlx_cpu.native.stored import Stored
from rlx_cpu.native.words import Words

__all__ = [
    "SERIAL_PRODUCTS",
    "ByPosition",
    "Logits",
    "Rows",
    "aligned",
    "copy_rows",
    "fitting_dtypes",
    "least",
    "most",
    "number",
    "pack_head",
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


@frozen(eq=False)
class ByPosition:
    """A head's `[positions, features]` as the right side of a product: in place if features are contiguous, else packed.

    Attributes:
        words: The elements in memory and in registers.
        panels: Its features in vectors.
    """

    words: Words
    strides: HeadStrides
    positions: int
    features: int
    panels: Cut

    @property
    def simd(self) -> Simd:
        return self.words.simd

    @property
    def is_direct(self) -> bool:
        return self.strides.feature == self.words.stored.itemsize

    @property
    def makes_words(self) -> bool:
        """Whether elements are widened when a product reads them."""
        return self.is_direct and not self.words.stored.is_same

    def vector(self, b: ir.IRBuilder, line: ir.Value, j: int, mask: ir.Value | None) -> ir.Value:
        """Vector `j` of a panel's row."""
        if self.is_direct:
            return self.words.stored.load(b, offset(b, line, j * self.words.stored.nbytes), mask)
        return self.simd.load(b, offset(b, line, j * self.simd.nbytes), mask)

    @property
    def nbytes(self) -> int:
        """Bytes of the packed head; none where it is read in place."""
        return 0 if self.is_direct else aligned(self.columns * self.positions * self.simd.itemsize)

    @property
    def columns(self) -> int:
        """Features, whole vectors."""
        return self.panels.start(self.panels.pieces) * self.simd.lanes

    @property
    def is_partial(self) -> bool:
        """Whether the last vector reaches beyond the features where they lie."""
        return self.is_direct and self.features % self.simd.lanes != 0

    def stride(self, vectors: int) -> int:
        """Bytes from a position to the next in a panel of so many vectors."""
        return self.strides.position if self.is_direct else vectors * self.simd.nbytes

    @property
    def align(self) -> int:
        return self.words.stored.itemsize if self.is_direct else self.simd.nbytes

    def ready(self, b: ir.IRBuilder, head: ir.Value, memory: ir.Value) -> ir.Value:
        """The head where products read it; packed into `memory` if need be."""
        if self.is_direct:
            return head
        by = (self.strides.position, self.strides.feature)
        pack_head(b, self.words, head, by, memory, self.panels, self.positions, self.features)
        return memory

    def panel(self, b: ir.IRBuilder, head: ir.Value, start: ir.Value, position: ir.Value, vectors: int) -> ir.Value:
        """Where the panel that begins with vector `start` has its row `position`."""
        if self.is_direct:
            column = times(b, start, self.simd.lanes)
            return offset(b, head, (column, self.strides.feature), (position, self.strides.position))
        return offset(b, head, (start, self.simd.nbytes * self.positions), (position, vectors * self.simd.nbytes))


def pack_head(
    b: ir.IRBuilder,
    words: Words,
    source: ir.Value,
    strides: tuple[int, int],
    packed: ir.Value,
    panels: Cut,
    depth: int,
    columns: int,
) -> None:
    """A matrix `[depth, columns]` with any strides as panels."""
    with counting(b, 0, panels.pieces) as panel:
        first = start_of(b, panels, panel)
        column = times(b, first, words.simd.lanes)
        place = offset(b, packed, (first, words.nbytes * depth))
        for vectors in by_size(b, panels, panel):
            pack_panel(
                b, words, offset(b, source, (column, strides[1])), place,
                depth=depth, vectors=vectors, strides=strides, column=column, columns=columns,
            )  # fmt: skip


def copy_rows(
    b: ir.IRBuilder,
    words: Words,
    source: ir.Value,
    at: HeadStrides,
    place: ir.Value,
    rows: int | ir.Value,
    features: int,
) -> None:
    """Rows of a head as dense rows of words."""
    with counting(b, 0, rows) as row:
        left, line = offset(b, source, (row, at.position)), offset(b, place, (row, features * words.itemsize))
        copy_row(b, words, left, line, index(0), index(features), by_k=at.feature)


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


def aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
