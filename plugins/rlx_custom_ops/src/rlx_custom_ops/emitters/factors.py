"""Cholesky, LU and QR factors of small matrices, and determinants."""

from __future__ import annotations

import math
from math import prod
from typing import Any

from rlx_core import i32, i64
from rlx_core.kit import Node
from rlx_core.pipeline.kernels import condition
from rlx_cpu.emitters import (
    WORTH_THREADS,
    Elimination,
    Emitted,
    Layout,
    SystemRows,
    aligned,
    constant,
    counting,
    index,
    intrinsic,
    memory_type,
    offset,
    pointer_at,
    report_lowest,
    share,
    splat,
    starting,
    variable,
)
from rlx_custom_ops.emitters.small import MAX_SMALL, Systems, fault_of, is_small
from rlx_custom_ops.errors import no_minor
from rlx_custom_ops.native import native
from rlx_custom_ops.ops.cholesky import Cholesky
from rlx_custom_ops.ops.determinant import Slogdet
from rlx_custom_ops.ops.lu import Lu
from rlx_custom_ops.ops.qr import Qr


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


# -------------------------------------------------------------------------------------------- Cholesky


@native.register(Cholesky, dtypes="f32 f64", when=is_small, accepts_strides=False, priority=1)
def cholesky_factor(module: Any, node: Node, layout: Layout, isa: Any, name: str) -> Emitted:
    """Cholesky by outer products (Golub & Van Loan, algorithm 4.2.2), a thread per matrix."""
    systems = Systems.of(isa, layout.results[0].type)
    rows, n = systems.rows, systems.rows.n
    b, buffers, tid, nthreads = starting(module, name)
    if not systems.stack * n:
        b.ret_void()
        return Emitted(name, uses_threads=False)
    source, lower, scratch, status = (pointer_at(b, buffers, k) for k in range(4))
    start = offset(b, scratch, (tid, aligned(rows.nbytes)))
    with counting(b, *share(b, systems.stack, tid, nthreads)) as s:
        matrix = Elimination.begin(b, rows, start)
        is_finite = matrix.read_symmetric(offset(b, source, (s, systems.nbytes)))
        order = matrix.factorise()
        matrix.write_transposed(offset(b, lower, (s, systems.nbytes)), is_finite)
        with b.if_then(b.and_(is_finite, b.icmp_signed("!=", order, index(0))), likely=False):
            report_lowest(b, status, b.add(b.mul(s, index(n + 1)), order))
    b.ret_void()
    fault = fault_of(no_minor("cholesky", n), systems.leading, n + 1)
    return Emitted(name, workspace=rows.nbytes, fault=fault, uses_threads=systems.uses_threads)


# -------------------------------------------------------------------------------------------------- QR


@condition(f"{MAX_SMALL} or fewer rows and columns")
def is_small_matrix(node: Node) -> bool:
    (a,) = (v.type for v in node.present())
    return a.is_static and max(a.static_shape[-2:]) <= MAX_SMALL


@native.register(Qr, dtypes="f32 f64", when=is_small_matrix, accepts_strides=False, priority=1)
def reflections(module: Any, node: Node, layout: Layout, isa: Any, name: str) -> Emitted:
    """Householder reflections (Golub & Van Loan, algorithms 5.1.1 and 5.2.1), a thread per matrix.

    They are applied to the columns of an identity too, which becomes the transpose of Q.
    """
    (a,) = (v.type for v in node.present())
    *leading, m, n = a.static_shape
    stack, size, least = prod(leading), a.dtype.itemsize, min(m, n)
    b, buffers, tid, nthreads = starting(module, name)
    if not stack * least:
        b.ret_void()
        return Emitted(name, uses_threads=False)
    # After the rows there is one more, row m for `at`: the multiple that is subtracted from the others.
    rows = SystemRows.of(isa, a.dtype, m, n)
    nbytes = rows.nbytes + rows.stride
    source, q, r, scratch = (pointer_at(b, buffers, k) for k in range(4))
    start = offset(b, scratch, (tid, aligned(nbytes)))
    element = memory_type(a.dtype)
    zero, nan = (constant(element, x) for x in (0.0, math.nan))
    with counting(b, *share(b, stack, tid, nthreads)) as s:
        matrix = Elimination.begin(b, rows, start)
        matrix.read(offset(b, source, (s, m * n * size)), 0, n)
        is_finite = matrix.is_finite(n)
        matrix.write_identity(n)
        with counting(b, 0, least) as c:
            _reflect(matrix, c)
        q_at, r_at = offset(b, q, (s, m * least * size)), offset(b, r, (s, least * n * size))
        with counting(b, 0, m) as i, counting(b, 0, least) as j:
            x = matrix.load(matrix.at(j, b.add(i, index(n))))
            matrix.store(b.select(is_finite, x, nan), offset(b, q_at, (i, least * size), (j, size)))
        with counting(b, 0, least) as i, counting(b, 0, n) as j:
            x = b.select(b.icmp_signed("<", j, i), zero, matrix.load(matrix.at(i, j)))
            matrix.store(b.select(is_finite, x, nan), offset(b, r_at, (i, n * size), (j, size)))
    b.ret_void()
    products = 2 * m * least * rows.width
    return Emitted(name, workspace=nbytes, uses_threads=stack > 1 and stack * products * size >= WORTH_THREADS)


def _reflect(matrix: Elimination, c: Any) -> None:
    """Reflect a column onto its diagonal, which becomes its length, and the columns after it likewise.

    The elements below the diagonal are the reflector afterwards.
    """
    b, rows = matrix.b, matrix.rows
    size, element, lanes = rows.dtype.itemsize, memory_type(rows.dtype), rows.lanes
    after, end = b.add(c, index(1)), index(rows.n)
    zero, one, two = (constant(element, x) for x in (0.0, 1.0, 2.0))
    largest, sigma = variable(b, element), variable(b, element)
    b.store(zero, largest, align=size)
    b.store(zero, sigma, align=size)
    with counting(b, c, end) as r:
        x, so_far = b.fabs(matrix.load(matrix.at(r, c))), b.load(largest, typ=element, align=size)
        b.store(b.select(b.fcmp_ordered(">", x, so_far), x, so_far), largest, align=size)
    scale = b.load(largest, typ=element, align=size)
    with b.if_then(b.fcmp_ordered(">", scale, zero)):
        with counting(b, after, end) as r:  # scaled, so that no square overflows
            x = b.fdiv(matrix.load(matrix.at(r, c)), scale)
            b.store(b.fadd(b.load(sigma, typ=element, align=size), b.fmul(x, x)), sigma, align=size)
        x, squares = b.fdiv(matrix.load(matrix.at(c, c)), scale), b.load(sigma, typ=element, align=size)
        length = intrinsic(b, "llvm.sqrt", b.fadd(b.fmul(x, x), squares))
        is_single = b.fcmp_ordered("==", squares, zero)
        is_positive = b.fcmp_ordered(">", x, zero)
        # Without cancellation: x - |x| e₁ for a positive x₁ is -σ / (x₁ + |x|).
        above = b.select(is_positive, b.fdiv(b.fneg(squares), b.fadd(x, length)), b.fsub(x, length))
        square = b.fmul(above, above)
        beta = b.fdiv(b.fmul(two, square), b.fadd(squares, square))
        beta = b.select(is_single, b.select(is_positive, zero, two), beta)
        divisor = b.select(is_single, one, b.fmul(above, scale))
        matrix.store(one, matrix.at(c, c))
        with counting(b, after, end) as r:
            matrix.store(b.fdiv(matrix.load(matrix.at(r, c)), divisor), matrix.at(r, c))
        total = variable(b, memory_type(rows.dtype, lanes))
        with counting(b, after, index(rows.width), lanes) as j:
            b.store(constant(memory_type(rows.dtype, lanes), 0.0), total, align=size)
            with counting(b, c, end) as r:
                factor = splat(b, matrix.load(matrix.at(r, c)), lanes)
                product = b.fmul(factor, matrix.load(matrix.at(r, j), lanes))
                b.store(b.fadd(b.load(total, typ=product.type, align=size), product), total, align=size)
            dot = b.load(total, typ=memory_type(rows.dtype, lanes), align=size)
            matrix.store(b.fmul(splat(b, beta, lanes), dot), matrix.at(end, j))
        with counting(b, c, end) as r:
            matrix.subtract(matrix.load(matrix.at(r, c)), end, r, after)
        matrix.store(b.fmul(length, scale), matrix.at(c, c))
