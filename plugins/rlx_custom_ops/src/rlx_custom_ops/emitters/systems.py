"""Small systems: general ones, whose matrix must not be singular, and triangular ones."""

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
from rlx_custom_ops.emitters.small import Systems, fault_of, is_small_system
from rlx_custom_ops.errors import no_divisor, no_pivot
from rlx_custom_ops.native import native
from rlx_custom_ops.ops.solve import Solve
from rlx_custom_ops.ops.triangular import TriangularSolve


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


# ---------------------------------------------------------------------------------- triangular systems


@native.register(TriangularSolve, dtypes="f32 f64", when=is_small_system, accepts_strides=False, priority=1)
def substitution(module: Any, node: Node, layout: Layout, isa: Any, name: str) -> Emitted:
    """Substitution, forwards or backwards (Golub & Van Loan, algorithms 3.1.3 and 3.1.4), a thread per matrix."""
    op: Any = node.op
    matrix_type, sides = (v.type for v in node.present())
    systems = Systems.of(isa, matrix_type, sides)
    rows, n = systems.rows, systems.rows.n
    b, buffers, tid, nthreads = starting(module, name)
    if not systems.stack * n:
        b.ret_void()
        return Emitted(name, uses_threads=False)
    a, right, x, scratch = (pointer_at(b, buffers, k) for k in range(4))
    start = offset(b, scratch, (tid, aligned(rows.nbytes)))
    with counting(b, *share(b, systems.stack, tid, nthreads)) as s:
        system = Elimination.begin(b, rows, start)
        system.read(offset(b, a, (s, systems.nbytes)), 0, n)
        system.read(offset(b, right, (s, systems.sides_nbytes)), n, rows.k)
        if not op.unit_diagonal:
            row = system.first_zero()
            with b.if_then(b.icmp_signed("!=", row, index(n)), likely=False):
                report_lowest(b, pointer_at(b, buffers, 4), b.add(b.mul(s, index(n)), row))
        system.substitute(is_lower=op.lower, is_transposed=op.operation != "none", is_unit=op.unit_diagonal)
        system.write(offset(b, x, (s, systems.sides_nbytes)), n, rows.k)
    b.ret_void()
    fault = None if op.unit_diagonal else fault_of(no_divisor("triangular_solve", n), systems.leading, n)
    return Emitted(name, workspace=rows.nbytes, fault=fault, uses_threads=systems.uses_threads)
