"""The rows of a tile of attention forward: scores into weights with an online softmax, and sums over totals into the result."""

from __future__ import annotations

from math import inf

from rlx_core.ops import activation
from rlx_cpu.native import functions, ir
from rlx_cpu.native.attention_parts import Logits, number, register
from rlx_cpu.native.attention_plan import Q
from rlx_cpu.native.build import I32
from rlx_cpu.native.cuts import by_size, start_of
from rlx_cpu.native.forward_plan import ForwardPlan, Tile
from rlx_cpu.native.simd import counting, index, offset, times

__all__ = ["clear_rows", "deliver_rows", "weigh_row"]


def clear_rows(b: ir.IRBuilder, plan: ForwardPlan, tile: Tile) -> None:
    """Rows that have seen no key yet: no maximum, no total, sums of 0."""
    simd = plan.simd
    with counting(b, 0, tile.rows) as row:
        b.store(number(simd, -inf), offset(b, tile.maxima, (row, simd.itemsize)), align=simd.itemsize)
        b.store(number(simd, 0.0), offset(b, tile.totals, (row, simd.itemsize)), align=simd.itemsize)
        with counting(b, 0, plan.problem.output_columns, simd.lanes) as column:
            simd.store(b, simd.zero, _sum(b, plan, tile, row, column), align=simd.nbytes)


def weigh_row(
    b: ir.IRBuilder, plan: ForwardPlan, tile: Tile, logits: Logits, row: ir.Value, first_key: ir.Value, count: ir.Value
) -> None:
    """Scores of one row and block into weights; the row's maximum, total and sums so far are rescaled to match."""
    p, simd = plan.problem, plan.simd
    line = offset(b, tile.scores, (row, plan.score_nbytes))
    largest = register(b, simd, simd.constant(-inf))
    with counting(b, 0, count, simd.lanes) as column:
        place = offset(b, line, (column, simd.itemsize))
        product = simd.load(b, place, align=simd.nbytes)
        score, _ = logits.at(b, tile.at, row, b.add(first_key, column), product)
        simd.store(b, score, place, align=simd.nbytes)
        so_far = b.load(largest, typ=simd.vector, align=simd.itemsize)
        b.store(simd.maximum(b, score, so_far), largest, align=simd.itemsize)
    maximum_place, total_place = (offset(b, x, (row, simd.itemsize)) for x in (tile.maxima, tile.totals))
    before = simd.load_scalar(b, maximum_place)
    found = simd.reduce(b, b.load(largest, typ=simd.vector, align=simd.itemsize), "max")
    now = b.select(b.fcmp_ordered(">", found, before), found, before)
    # A row that has seen no key yet has no maximum to subtract.
    pivot = simd.splat(b, b.select(b.fcmp_ordered("==", now, number(simd, -inf)), number(simd, 0.0), now))
    total = register(b, simd, simd.zero)
    with counting(b, 0, count, simd.lanes) as column:
        place = offset(b, line, (column, simd.itemsize))
        weight = _exp(b, plan, b.fsub(simd.load(b, place, align=simd.nbytes), pivot))
        simd.store(b, weight, place, align=simd.nbytes)
        b.store(b.fadd(b.load(total, typ=simd.vector, align=simd.itemsize), weight), total, align=simd.itemsize)
    added = simd.reduce(b, b.load(total, typ=simd.vector, align=simd.itemsize), "add")
    if p.blocks == 1:
        b.store(added, total_place, align=simd.itemsize)
        return
    shrink = _exp(b, plan, b.fsub(simd.splat(b, before), pivot))
    factor = b.extract_element(shrink, ir.Constant(I32, 0))
    b.store(b.fadd(b.fmul(simd.load_scalar(b, total_place), factor), added), total_place, align=simd.itemsize)
    b.store(now, maximum_place, align=simd.itemsize)
    with counting(b, 0, p.output_columns, simd.lanes) as column:
        place = _sum(b, plan, tile, row, column)
        simd.store(b, b.fmul(simd.load(b, place, align=simd.nbytes), shrink), place, align=simd.nbytes)


def deliver_rows(b: ir.IRBuilder, plan: ForwardPlan, tile: Tile, logits: Logits) -> None:
    """Sums over totals, to where the result lies."""
    p, simd, op, at = plan.problem, plan.simd, plan.op, plan.result(Q)
    with counting(b, 0, tile.rows) as row:
        total = simd.load_scalar(b, offset(b, tile.totals, (row, simd.itemsize)))
        inverse = b.fdiv(number(simd, 1.0), total)
        if p.keys == 0 or (op.empty_row != "nan" and logits.may_hide):
            is_empty = b.fcmp_ordered("==", total, number(simd, 0.0))
            is_uniform = op.empty_row == "uniform" and p.keys > 0
            if is_uniform:
                with b.if_then(is_empty, likely=False):
                    _add_values(b, plan, tile, row)
            inverse = b.select(is_empty, number(simd, 1.0 / p.keys if is_uniform else 0.0), inverse)
        factor = simd.splat(b, inverse)
        with counting(b, 0, p.output_columns, simd.lanes) as column:
            value = b.fmul(simd.load(b, _sum(b, plan, tile, row, column), align=simd.nbytes), factor)
            place = offset(b, tile.out, (row, at.position), (column, at.feature))
            plan.stored.store_row(b, value, place, at.feature, column, p.width)


def _add_values(b: ir.IRBuilder, plan: ForwardPlan, tile: Tile, row: ir.Value) -> None:
    """The sum of all values, as the sum of a row that sees none of them."""
    p, simd, values = plan.problem, plan.simd, plan.values
    with counting(b, 0, p.output_columns, simd.lanes) as column:
        simd.store(b, simd.zero, _sum(b, plan, tile, row, column), align=simd.nbytes)
    with counting(b, 0, p.keys) as key, counting(b, 0, p.outputs.pieces) as panel:
        start = start_of(b, p.outputs, panel)
        for vectors in by_size(b, p.outputs, panel):
            line = values.panel(b, tile.values, start, key, vectors)
            for j in range(vectors):
                column = times(b, b.add(start, index(j)), simd.lanes)
                mask = simd.below(b, column, p.width) if values.is_partial else None
                place = _sum(b, plan, tile, row, column)
                value = values.vector(b, line, j, mask)
                simd.store(b, b.fadd(simd.load(b, place, align=simd.nbytes), value), place, align=simd.nbytes)


def _sum(b: ir.IRBuilder, plan: ForwardPlan, tile: Tile, row: ir.Value, column: ir.Value) -> ir.Value:
    """Where the sums of a row are, from `column` on."""
    return offset(b, tile.sums, (row, plan.sum_nbytes), (column, plan.simd.itemsize))


def _exp(b: ir.IRBuilder, plan: ForwardPlan, x: ir.Value) -> ir.Value:
    return functions.call(b, activation.exp.op, plan.problem.dtype, (x,))
