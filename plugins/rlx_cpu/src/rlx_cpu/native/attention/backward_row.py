"""One row of attention backward: products of a query with keys into weights, those of its cotangent with values into du."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from rlx_core.ops import activation
from rlx_cpu.native.attention.backward_plan import BackwardPlan, Head
from rlx_cpu.native.attention.parts import ScoreRows, number
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.build import Variable
from rlx_cpu.native.llvm.simd import counting, index, offset, times
from rlx_cpu.native.scalars.table import NATIVE


def differentiate_row(
    b: ir.IRBuilder, plan: BackwardPlan, head: Head, rows: ScoreRows, row: ir.LlvmValue, end: ir.LlvmValue
) -> None:
    """u into p, dp into du, and dw where a bias wants it; all 0 from `end` on."""
    simd, op, logits, problem = plan.simd, plan.op, head.logits, plan.problem
    weights, du, slopes = (offset(b, head.memory[name], (row, plan.row_nbytes)) for name in ("weights", "du", "slopes"))
    dw = None if head.dw is None else offset(b, head.dw, (b.add(rows.first, row), plan.row_nbytes))

    def over(body: Callable[[ir.LlvmValue, ir.LlvmValue], None]) -> None:
        with counting(b, 0, end, simd.lanes) as key:
            body(key, times(b, key, simd.itemsize))

    def load(line: ir.LlvmValue, position: ir.LlvmValue) -> ir.LlvmValue:
        return simd.load(b, offset(b, line, position), align=simd.nbytes)

    def store(value: ir.LlvmValue, line: ir.LlvmValue, position: ir.LlvmValue) -> None:
        simd.store(b, value, offset(b, line, position), align=simd.nbytes)

    largest = Variable.of(b, simd.constant(-inf))

    def find_largest(key: ir.LlvmValue, position: ir.LlvmValue) -> None:
        z, slope = logits.at(b, rows, row, key, load(weights, position))
        store(z, weights, position)
        if slope is not None:
            store(slope, slopes, position)
        largest.set(b, simd.maximum(b, z, largest.value(b)))

    over(find_largest)
    maximum = simd.reduce(b, largest.value(b), "max")
    is_hidden = b.fcmp_ordered("==", maximum, number(simd, -inf))
    pivot = simd.splat(b, b.select(is_hidden, number(simd, 0.0), maximum))
    total, mixed = Variable.of(b, simd.zero), Variable.of(b, simd.zero)
    all_hidden = simd.splat(b, is_hidden)

    def exponentials(key: ir.LlvmValue, position: ir.LlvmValue) -> None:
        z = load(weights, position)
        if plan.is_uniform(logits):
            # All keys that there are get weight 1, which nothing depends on.
            is_key = simd.below(b, key, problem.keys)
            z = b.select(b.and_(all_hidden, is_key), simd.zero, z)
        e = NATIVE.call(b, activation.exp.op, problem.dtype, (b.fsub(z, pivot),))
        store(e, weights, position)
        total.set(b, b.fadd(total.value(b), e))

    over(exponentials)
    denominator = simd.reduce(b, total.value(b), "add")
    inverse = b.fdiv(number(simd, 1.0), denominator)
    if op.empty_row == "zero" and logits.problem.may_hide:
        is_empty = b.fcmp_ordered("==", denominator, number(simd, 0.0))
        inverse = b.select(is_empty, number(simd, 0.0), inverse)
    factor = simd.splat(b, inverse)

    def normalise(key: ir.LlvmValue, position: ir.LlvmValue) -> None:
        share_of_key = b.fmul(load(weights, position), factor)
        store(share_of_key, weights, position)
        mixed.set(b, simd.multiply_add(b, share_of_key, load(du, position), mixed.value(b)))

    over(normalise)
    mean = simd.splat(b, simd.reduce(b, mixed.value(b), "add"))

    def differentiate(key: ir.LlvmValue, position: ir.LlvmValue) -> None:
        change = b.fmul(load(weights, position), b.fsub(load(du, position), mean))
        if plan.is_uniform(logits):
            change = b.select(all_hidden, simd.zero, change)
        if dw is not None:
            store(change, dw, position)
        if op.attn_logit_softcap is not None:
            change = b.fmul(change, load(slopes, position))
        store(b.fmul(change, simd.constant(op.scale)), du, position)

    over(differentiate)
    done = b.and_(b.add(end, index(simd.lanes - 1)), index(-simd.lanes))
    with counting(b, done, plan.cut.key_columns, simd.lanes) as key:
        for line in (weights, du, *(() if dw is None else (dw,))):
            store(simd.zero, line, times(b, key, simd.itemsize))
