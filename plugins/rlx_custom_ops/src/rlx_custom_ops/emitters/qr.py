"""QR factors of small matrices."""

from __future__ import annotations

import math
from math import prod
from typing import Any

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
    share,
    splat,
    starting,
    variable,
)
from rlx_custom_ops.emitters.small import MAX_SMALL
from rlx_custom_ops.native import native
from rlx_custom_ops.ops.qr import Qr

__all__ = ["reflections"]


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
