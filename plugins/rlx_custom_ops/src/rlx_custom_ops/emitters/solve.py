"""Small systems whose matrix must not be singular."""

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
    is_lowest,
    numerical_rank,
    offset,
    pointer_at,
    report_lowest,
    share,
    starting,
)
from rlx_custom_ops.emitters.faults import fault_of
from rlx_custom_ops.emitters.small import Systems, is_small_system
from rlx_custom_ops.errors import no_pivot
from rlx_custom_ops.native import native
from rlx_custom_ops.ops.solve import Solve

__all__ = ["system"]


@native.register(Solve, dtypes="f32 f64", when=is_small_system, accepts_strides=False, priority=1)
def system(module: Any, node: Node, layout: Layout, isa: Any, name: str) -> Emitted:
    """LU with partial pivoting (Golub & Van Loan, algorithm 3.4.1) and a substitution, a thread per matrix."""
    matrix_type, sides = (v.type for v in node.present())
    systems = Systems.of(isa, matrix_type, sides)
    rows, n = systems.rows, systems.rows.n
    b, buffers, tid, nthreads = starting(module, name)
    if not systems.stack * n:
        b.ret_void()
        return Emitted(name, uses_threads=False)
    a, right, x, scratch, status = (pointer_at(b, buffers, k) for k in range(5))
    start = offset(b, scratch, (tid, aligned(rows.nbytes)))
    with counting(b, *share(b, systems.stack, tid, nthreads)) as s:
        matrix = offset(b, a, (s, systems.nbytes))
        elimination = Elimination.begin(b, rows, start)
        elimination.read(matrix, 0, n)
        elimination.read(offset(b, right, (s, systems.sides_nbytes)), n, rows.k)
        is_finite = elimination.is_finite(n)
        elimination.eliminate()
        elimination.substitute()
        is_singular = b.and_(elimination.has_zero_pivot(), is_finite)
        elimination.refuse(b.not_(is_finite))
        elimination.write(offset(b, x, (s, systems.sides_nbytes)), n, rows.k)
        first = b.mul(s, index(n + 1))
        # The rank takes longer than the solution: not for a matrix that comes after one that is reported, or for the same again.
        is_news = is_lowest(b, status, b.add(first, index(n)))
        with b.if_then(b.and_(is_singular, is_news), likely=False):
            elimination.read(matrix, 0, n)
            report_lowest(b, status, b.add(first, numerical_rank(elimination)))
    b.ret_void()
    fault = fault_of(no_pivot("solve", n), systems.leading, n + 1)
    return Emitted(name, workspace=rows.nbytes, fault=fault, uses_threads=systems.uses_threads)
