"""The cotangent of a bias: cotangents of logits, summed over the axes along which it was broadcast.

Each element is added up by one thread, batch entry after batch entry, head after head, query after query, and a row of keys in
a fixed tree, so that the number of threads changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from rlx_core.codegen.attention import ScoresStrides
from rlx_core.ir.dims import Dim
from rlx_core.ops.attention_masks import aligned_shape
from rlx_cpu.native.attention.backward_plan import DBIAS, BackwardPlan
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.build import Variable
from rlx_cpu.native.llvm.simd import counting, offset, pointer_at, share
from rlx_cpu.native.llvm.sizes import sized
from rlx_cpu.native.llvm.stored import Stored


def sum_bias(b: ir.IRBuilder, plan: BackwardPlan, arguments: tuple[ir.FunctionArgument, ...]) -> None:
    """A part's share of the rows of dbias."""
    buffers, part, parts, _ = arguments
    p, simd, operands = plan.problem, plan.simd, len(plan.layout.operands)
    batches, heads, queries, keys = _shape(plan)
    place = plan.layout.results[DBIAS]
    strides, stored = ScoresStrides.of(place, is_mask=False), Stored(simd, place.type.dtype)
    shared = pointer_at(b, buffers, operands + len(plan.layout.results))
    logits, out = offset(b, shared, plan.segment_sums), pointer_at(b, buffers, operands + DBIAS)
    steps = (p.heads * plan.logits_nbytes, plan.logits_nbytes, plan.row_nbytes)
    sizes = zip((p.batch, p.heads, p.queries), (batches, heads, queries), steps, strict=True)
    summed = [(size, step) for size, extent, step in sizes if extent != size]
    with counting(b, *share(b, batches * heads * queries, part, parts)) as unit:
        query, remaining = b.srem(unit, sized(b, queries)), b.sdiv(unit, sized(b, queries))
        head, batch = b.srem(remaining, sized(b, heads)), b.sdiv(remaining, sized(b, heads))
        line = offset(b, logits, *zip((batch, head, query), steps, strict=True))
        destination = offset(b, out, (batch, strides.batch), (head, strides.head), (query, strides.query))
        if keys != p.keys:
            by_vector = [(plan.cut.key_columns // simd.lanes, simd.nbytes)]
            total = simd.reduce(b, _sum(b, plan, line, [*summed, *by_vector]), "add")
            stored.store_scalar(b, total, destination)
        else:
            with counting(b, 0, p.keys, simd.lanes) as key:
                value = _sum(b, plan, offset(b, line, (key, simd.itemsize)), summed)
                stored.store_row(b, value, offset(b, destination, (key, strides.key)), strides.key, key, p.keys)


def clear_bias(b: ir.IRBuilder, plan: BackwardPlan, buffers: ir.LlvmValue) -> None:
    """Set the bias's cotangent to 0: the result does not depend on the bias."""
    place = plan.layout.results[DBIAS]
    strides, stored = ScoresStrides.of(place, is_mask=False), Stored(plan.simd, place.type.dtype)
    start = pointer_at(b, buffers, len(plan.layout.operands) + DBIAS)
    batches, heads, queries, keys = _shape(plan)
    with (
        counting(b, 0, batches) as batch,
        counting(b, 0, heads) as head,
        counting(b, 0, queries) as query,
        counting(b, 0, keys) as key,
    ):
        destination = offset(
            b, start, (batch, strides.batch), (head, strides.head), (query, strides.query), (key, strides.key)
        )
        stored.store_scalar(b, ir.LlvmConstant(plan.simd.element, 0.0), destination)


def _shape(plan: BackwardPlan) -> tuple[Dim, Dim, Dim, Dim]:
    """The bias's dims: batch, heads, queries, keys, 1 where it is broadcast."""
    batch, heads, queries, keys = aligned_shape(plan.layout.results[DBIAS].type)
    return batch, heads, queries, keys


def _sum(b: ir.IRBuilder, plan: BackwardPlan, first: ir.LlvmValue, axes: Sequence[tuple[Dim, Dim]]) -> ir.LlvmValue:
    """The sum of vectors over axes, each with its size and the bytes of a step; the last runs fastest."""
    simd = plan.simd
    total = Variable.of(b, simd.zero)
    total.set(b, simd.zero)
    with ExitStack() as loops:
        place = first
        for size, step in axes:
            place = offset(b, place, (loops.enter_context(counting(b, 0, size)), step))
        total.set(b, b.fadd(total.value(b), simd.load(b, place, align=simd.nbytes)))
    return total.value(b)
