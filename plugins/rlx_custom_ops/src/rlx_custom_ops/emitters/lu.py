"""LU factors of small matrices, and their determinants."""

from __future__ import annotations

from typing import Any

from rlx_core import i32, i64
from rlx_core.kit import Node
from rlx_cpu.emitters import (
    Elimination,
    Emitted,
    Layout,
    aligned,
    constant,
    counting,
    index,
    memory_type,
    offset,
    pointer_at,
    share,
    starting,
)
from rlx_custom_ops.emitters.small import Systems, is_small
from rlx_custom_ops.native import native
from rlx_custom_ops.ops.determinant import Slogdet
from rlx_custom_ops.ops.lu import Lu

__all__ = ["determinant", "factors"]


@native.register(Lu, dtypes="f32 f64", when=is_small, accepts_strides=False, priority=1)
def factors(module: Any, node: Node, layout: Layout, isa: Any, name: str) -> Emitted:
    """LU with partial pivoting (Golub & Van Loan, algorithm 3.4.1), a thread per matrix."""
    a = layout.results[0].type
    systems, size = Systems.of(isa, a), a.dtype.itemsize
    stack, rows, n = systems.stack, systems.rows, systems.rows.n
    b, buffers, tid, nthreads = starting(module, name)
    if not stack * n:
        b.ret_void()
        return Emitted(name, uses_threads=False)
    source, packed, pivots, permutation, scratch = (pointer_at(b, buffers, k) for k in range(5))
    number, place, thread_nbytes = memory_type(i32), memory_type(i64), aligned(rows.nbytes + 8 * n)
    start = offset(b, scratch, (tid, thread_nbytes))
    chosen = offset(b, start, rows.nbytes)
    with counting(b, *share(b, stack, tid, nthreads)) as s:
        matrix = Elimination.begin(b, rows, start)
        matrix.read(offset(b, source, (s, n * n * size)), 0, n)
        matrix.eliminate(chosen)
        matrix.write(offset(b, packed, (s, n * n * size)), 0, n)
        exchanged, order = (offset(b, x, (s, 4 * n)) for x in (pivots, permutation))
        with counting(b, 0, n) as i:
            b.store(b.trunc(i, number), offset(b, order, (i, 4)), align=4)
        with counting(b, 0, n) as i:
            pivot = b.load(offset(b, chosen, (i, 8)), typ=place, align=8)
            b.store(b.trunc(pivot, number), offset(b, exchanged, (i, 4)), align=4)
            ends = [offset(b, order, (r, 4)) for r in (i, pivot)]
            upper, lower = (b.load(end, typ=number, align=4) for end in ends)
            b.store(lower, ends[0], align=4)
            b.store(upper, ends[1], align=4)
    b.ret_void()
    return Emitted(name, workspace=thread_nbytes, uses_threads=systems.uses_threads)


@native.register(Slogdet, dtypes="f32 f64", when=is_small, accepts_strides=False, priority=1)
def determinant(module: Any, node: Node, layout: Layout, isa: Any, name: str) -> Emitted:
    """The diagonal of LU with partial pivoting, a thread per matrix."""
    (a,) = (v.type for v in node.present())
    systems, size = Systems.of(isa, a), a.dtype.itemsize
    stack, rows, n = systems.stack, systems.rows, systems.rows.n
    b, buffers, tid, nthreads = starting(module, name)
    if not stack:
        b.ret_void()
        return Emitted(name, uses_threads=False)
    source, signs, logarithms, scratch = (pointer_at(b, buffers, k) for k in range(4))
    start = offset(b, scratch, (tid, aligned(rows.nbytes)))
    element = memory_type(a.dtype)
    zero, one = (constant(element, number) for number in (0.0, 1.0))
    with counting(b, *share(b, stack, tid, nthreads)) as s:
        matrix = Elimination.begin(b, rows, start)
        matrix.read(offset(b, source, (s, n * n * size)), 0, n)
        matrix.eliminate()
        sign_at, log_at = (offset(b, x, (s, size)) for x in (signs, logarithms))
        is_odd = b.icmp_signed("!=", b.and_(b.load(matrix.swaps, typ=memory_type(i64), align=8), index(1)), index(0))
        b.store(b.select(is_odd, b.fneg(one), one), sign_at, align=size)
        b.store(zero, log_at, align=size)
        with counting(b, 0, n) as i:
            x = matrix.load(matrix.at(i, i))
            direction = b.select(b.fcmp_ordered("==", x, zero), zero, b.copysign(one, x))
            direction = b.select(b.fcmp_unordered("uno", x, x), x, direction)
            for accumulator, value, combine in ((sign_at, direction, b.fmul), (log_at, matrix.log_modulus(x), b.fadd)):
                b.store(combine(b.load(accumulator, typ=element, align=size), value), accumulator, align=size)
    b.ret_void()
    return Emitted(name, workspace=max(1, rows.nbytes), uses_threads=systems.uses_threads)
