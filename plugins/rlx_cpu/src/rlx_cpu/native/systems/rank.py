"""The numerical rank of one small matrix, which errors of singular systems name."""

from __future__ import annotations

from typing import Final

import numpy as np

from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.build import I64, Variable, memory_type
from rlx_cpu.native.llvm.ir.assembler import intrinsic
from rlx_cpu.native.llvm.ir.numbers import constant
from rlx_cpu.native.llvm.simd import counting, index
from rlx_cpu.native.systems.elimination import Elimination

SWEEPS: Final = 12
"""Rotations of all pairs: about the bit length of the maximum number of rows, 32, after which convergence is quadratic."""


def numerical_rank(matrix: Elimination) -> ir.LlvmValue:
    """Return how many singular values of the loaded matrix are larger than n ε times the largest (see
    `numpy.linalg.matrix_rank`).

    Rows are rotated in pairs until they are orthogonal; their lengths are then the singular values. The matrix, which is finite,
    is overwritten.

    Source:
        Golub & Van Loan, "Matrix Computations", 4th edition, section 8.6.3.
    """
    b, rows = matrix.b, matrix.rows
    n, element = rows.n, memory_type(rows.dtype)
    zero = constant(element, 0.0)
    largest, count = Variable.new(b, element), Variable.new(b, I64)

    def raise_largest(x: ir.LlvmValue) -> None:
        so_far = largest.value(b)
        largest.set(b, b.select(b.fcmp_ordered(">", x, so_far), x, so_far))

    largest.set(b, zero)
    count.set(b, index(0))
    with counting(b, 0, n) as i, counting(b, 0, n) as j:
        raise_largest(b.fabs(matrix.load(matrix.at(i, j))))
    scale = largest.value(b)
    with b.if_then(b.fcmp_ordered(">", scale, zero)):
        with counting(b, 0, n) as i, counting(b, 0, n) as j:  # no square overflows then
            matrix.store(b.fdiv(matrix.load(matrix.at(i, j)), scale), matrix.at(i, j))
        with counting(b, 0, SWEEPS), counting(b, 0, n) as p, counting(b, b.add(p, index(1)), index(n)) as q:
            _rotate(matrix, p, q)
        largest.set(b, zero)
        with counting(b, 0, n) as i:
            raise_largest(_dot(matrix, i, i))
        # The squares are compared: the limit is squared too.
        share = (n * float(np.finfo(rows.dtype.numpy).eps)) ** 2
        limit = b.fmul(largest.value(b), constant(element, share))
        with counting(b, 0, n) as i, b.if_then(b.fcmp_ordered(">", _dot(matrix, i, i), limit)):
            count.set(b, b.add(count.value(b), index(1)))
    return count.value(b)


def _rotate(matrix: Elimination, p: ir.LlvmValue, q: ir.LlvmValue) -> None:
    """Make two rows orthogonal."""
    b = matrix.b
    product = _dot(matrix, p, q)
    zero, one, two = (constant(product.type, x) for x in (0.0, 1.0, 2.0))
    with b.if_then(b.fcmp_ordered("!=", product, zero)):
        zeta = b.fdiv(b.fsub(_dot(matrix, q, q), _dot(matrix, p, p)), b.fmul(two, product))
        root = intrinsic(b, "llvm.sqrt", b.fadd(one, b.fmul(zeta, zeta)))
        tangent = b.fdiv(b.copysign(one, zeta), b.fadd(b.fabs(zeta), root))
        cosine = b.fdiv(one, intrinsic(b, "llvm.sqrt", b.fadd(one, b.fmul(tangent, tangent))))
        sine = b.fmul(cosine, tangent)
        with counting(b, 0, matrix.rows.n) as j:
            places = [matrix.at(r, j) for r in (p, q)]
            x, y = (matrix.load(place) for place in places)
            matrix.store(b.fsub(b.fmul(cosine, x), b.fmul(sine, y)), places[0])
            matrix.store(b.fadd(b.fmul(sine, x), b.fmul(cosine, y)), places[1])


def _dot(matrix: Elimination, p: ir.LlvmValue, q: ir.LlvmValue) -> ir.LlvmValue:
    """The inner product of two rows."""
    b, rows = matrix.b, matrix.rows
    total = Variable.of(b, constant(memory_type(rows.dtype), 0.0))
    with counting(b, 0, rows.n) as j:
        product = b.fmul(matrix.load(matrix.at(p, j)), matrix.load(matrix.at(q, j)))
        total.set(b, b.fadd(total.value(b), product))
    return total.value(b)
