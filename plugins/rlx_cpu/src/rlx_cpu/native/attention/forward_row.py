"""The rows of a tile of attention forward: scores into weights with an online softmax, and sums over totals into the result."""

from __future__ import annotations

from math import inf
from typing import Self

from rlx_core.ops import activation
from rlx_core.system.records import frozen
from rlx_cpu.native.attention.forward_plan import AttentionTile, ForwardPlan
from rlx_cpu.native.attention.parts import Logits, number
from rlx_cpu.native.attention.plan import KEY_SCALES, VALUE_SCALES, Q
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.build import I32, Variable
from rlx_cpu.native.llvm.cuts import by_size, start_of
from rlx_cpu.native.llvm.simd import counting, index, offset, times
from rlx_cpu.native.llvm.sizes import Unsized, is_known
from rlx_cpu.native.scalars.table import NATIVE

INTERLEAVED = 8
"""Rows whose weights are made in turns: an exponential is a long chain, and so are a maximum and a sum over lanes."""


def clear_rows(b: ir.IRBuilder, plan: ForwardPlan, tile: AttentionTile) -> None:
    """Rows that have seen no key yet: no maximum, no total, sums of 0."""
    simd = plan.simd
    with counting(b, 0, tile.rows) as row:
        b.store(number(simd, -inf), offset(b, tile.maxima, (row, simd.itemsize)), align=simd.itemsize)
        b.store(number(simd, 0.0), offset(b, tile.totals, (row, simd.itemsize)), align=simd.itemsize)
        with counting(b, 0, plan.cut.output_columns, simd.lanes) as column:
            simd.store(b, simd.zero, _sum(b, plan, tile, row, column), align=simd.nbytes)


def weigh_rows(
    b: ir.IRBuilder,
    plan: ForwardPlan,
    tile: AttentionTile,
    logits: Logits,
    first_key: ir.LlvmValue,
    count: ir.LlvmValue,
) -> None:
    """Scores of a tile and a block of keys into weights; rows' maxima, totals and sums so far are rescaled to match."""
    simd = plan.simd
    # Some rows side by side: each step waits for the one before it in its row, and for nothing in the others.
    for first in range(0, tile.rows, INTERLEAVED):
        rows = [index(row) for row in range(first, min(first + INTERLEAVED, tile.rows))]
        lines = [offset(b, tile.scores, (row, plan.score_nbytes)) for row in rows]
        largest = [Variable.of(b, simd.constant(-inf)) for _ in rows]
        with counting(b, 0, count, simd.lanes) as column:
            scale = _scales(b, plan, tile, logits, KEY_SCALES, b.add(first_key, column)) if plan.has_scales else None
            for row, line, maximum in zip(rows, lines, largest, strict=True):
                place = offset(b, line, (column, simd.itemsize))
                product = simd.load(b, place, align=simd.nbytes)
                product = product if scale is None else b.fmul(product, scale)
                score, _ = logits.at(b, tile.score_rows, row, b.add(first_key, column), product)
                simd.store(b, score, place, align=simd.nbytes)
                maximum.set(b, simd.maximum(b, score, maximum.value(b)))
        pivots = [_Pivot.of(b, plan, tile, row, maximum) for row, maximum in zip(rows, largest, strict=True)]
        totals = [Variable.of(b, simd.zero) for _ in rows]
        with counting(b, 0, count, simd.lanes) as column:
            scale = _scales(b, plan, tile, logits, VALUE_SCALES, b.add(first_key, column)) if plan.has_scales else None
            for line, pivot, total in zip(lines, pivots, totals, strict=True):
                place = offset(b, line, (column, simd.itemsize))
                weight = _exp(b, plan, b.fsub(simd.load(b, place, align=simd.nbytes), pivot.value))
                simd.store(b, weight if scale is None else b.fmul(weight, scale), place, align=simd.nbytes)
                total.set(b, b.fadd(total.value(b), weight))
        for row, pivot, total in zip(rows, pivots, totals, strict=True):
            added = simd.reduce(b, total.value(b), "add")
            total_place = offset(b, tile.totals, (row, simd.itemsize))
            if plan.cut.blocks == 1:
                b.store(added, total_place, align=simd.itemsize)
                continue
            shrink = _exp(b, plan, b.fsub(simd.splat(b, pivot.before), pivot.value))
            factor = b.extract_element(shrink, ir.LlvmConstant(I32, 0))
            b.store(b.fadd(b.fmul(simd.load_scalar(b, total_place), factor), added), total_place, align=simd.itemsize)
            b.store(pivot.now, offset(b, tile.maxima, (row, simd.itemsize)), align=simd.itemsize)
            with counting(b, 0, plan.cut.output_columns, simd.lanes) as column:
                place = _sum(b, plan, tile, row, column)
                simd.store(b, b.fmul(simd.load(b, place, align=simd.nbytes), shrink), place, align=simd.nbytes)


@frozen(eq=False)
class _Pivot:
    """A row's maximum before and after this block of keys, and the value subtracted from its scores, in all lanes."""

    before: ir.LlvmValue
    now: ir.LlvmValue
    value: ir.LlvmValue

    @classmethod
    def of(cls, b: ir.IRBuilder, plan: ForwardPlan, tile: AttentionTile, row: ir.LlvmValue, largest: Variable) -> Self:
        simd = plan.simd
        before = simd.load_scalar(b, offset(b, tile.maxima, (row, simd.itemsize)))
        maximum = simd.reduce(b, largest.value(b), "max")
        now = b.select(b.fcmp_ordered(">", maximum, before), maximum, before)
        # A row that has seen no key yet has no maximum to subtract.
        pivot = b.select(b.fcmp_ordered("==", now, number(simd, -inf)), number(simd, 0.0), now)
        return cls(before, now, simd.splat(b, pivot))


def deliver_rows(b: ir.IRBuilder, plan: ForwardPlan, tile: AttentionTile, logits: Logits) -> None:
    """Sums over totals, to where the result lies."""
    p, simd, op, strides = plan.problem, plan.simd, plan.op, plan.result(Q)
    with counting(b, 0, tile.rows) as row:
        total = simd.load_scalar(b, offset(b, tile.totals, (row, simd.itemsize)))
        inverse = b.fdiv(number(simd, 1.0), total)
        if p.keys == 0 or (op.empty_row != "nan" and logits.problem.may_hide):
            is_empty = b.fcmp_ordered("==", total, number(simd, 0.0))
            if op.empty_row == "uniform" and not is_known(p.keys):
                raise Unsized("the number of keys, whose mean is taken")
            is_uniform = op.empty_row == "uniform" and p.keys > 0
            if is_uniform:
                with b.if_then(is_empty, likely=False):
                    _add_values(b, plan, tile, row)
            inverse = b.select(is_empty, number(simd, 1.0 / p.keys if is_uniform else 0.0), inverse)
        factor = simd.splat(b, inverse)
        for column in map(index, range(0, plan.cut.output_columns, simd.lanes)):
            value = b.fmul(simd.load(b, _sum(b, plan, tile, row, column), align=simd.nbytes), factor)
            place = offset(b, tile.out, (row, strides.position), (column, strides.feature))
            plan.stored.store_row(b, value, place, strides.feature, column, p.width)


def _add_values(b: ir.IRBuilder, plan: ForwardPlan, tile: AttentionTile, row: ir.LlvmValue) -> None:
    """The sum of all values, as the sum of a row that sees none of them."""
    p, simd, values = plan.problem, plan.simd, plan.values
    with counting(b, 0, plan.cut.output_columns, simd.lanes) as column:
        simd.store(b, simd.zero, _sum(b, plan, tile, row, column), align=simd.nbytes)
    with counting(b, 0, p.keys) as key, counting(b, 0, plan.cut.outputs.pieces) as panel:
        start = start_of(b, plan.cut.outputs, panel)
        for vectors in by_size(b, plan.cut.outputs, panel):
            line = values.panel(b, tile.values, start, key, vectors)
            for j in range(vectors):
                column = times(b, b.add(start, index(j)), simd.lanes)
                mask = simd.below(b, column, p.width) if values.is_partial else None
                place = _sum(b, plan, tile, row, column)
                value = values.vector(b, line, j, mask)
                simd.store(b, b.fadd(simd.load(b, place, align=simd.nbytes), value), place, align=simd.nbytes)


def _scales(
    b: ir.IRBuilder, plan: ForwardPlan, tile: AttentionTile, logits: Logits, number: int, key: ir.LlvmValue
) -> ir.LlvmValue:
    """The scales of keys or values from `key` on, one a lane; those beyond the last are of no key that is seen."""
    p, rows = plan.problem, tile.score_rows
    kv_head = b.sdiv(rows.head, index(p.heads // p.kv_heads))
    return logits.by_key(b, number, plan.scale_strides(number), (rows.batch, kv_head), key)


def _sum(
    b: ir.IRBuilder, plan: ForwardPlan, tile: AttentionTile, row: ir.LlvmValue, column: ir.LlvmValue
) -> ir.LlvmValue:
    """Return the address of the sums of a row, from `column` on."""
    return offset(b, tile.sums, (row, plan.sum_nbytes), (column, plan.simd.itemsize))


def _exp(b: ir.IRBuilder, plan: ForwardPlan, x: ir.LlvmValue) -> ir.LlvmValue:
    return NATIVE.call(b, activation.exp.op, plan.problem.dtype, (x,))
