"""Cholesky factors of small matrices."""

from __future__ import annotations

from typing import Any

from rlx_core.kit import Node
from rlx_cpu.emitters import (
    Elimination,
    Emitted,
    Layout,
    aligned,
    counting,
    index,
    offset,
    pointer_at,
    report_lowest,
    share,
    starting,
)
from rlx_custom_ops.emitters.faults import fault_of
from rlx_custom_ops.emitters.small import Systems, is_small
from rlx_custom_ops.errors import no_minor
from rlx_custom_ops.native import native
from rlx_custom_ops.ops.cholesky import Cholesky

__all__ = ["cholesky_factor"]


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
