"""Gaussian elimination with partial pivoting on the rows of one small matrix.

Golub & Van Loan, "Matrix Computations", 4th edition, algorithm 3.4.1, with the rows of a matrix and of its right sides next to
each other. Each element is updated by itself, so results do not depend on the length of vectors.
"""

from __future__ import annotations

import math

from rlx_core.codegen.scalars import exponential, wide_exponential
from rlx_core.ir.dtypes import DType, f32
from rlx_core.system.records import frozen
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.build import I1, I64, constant, declare, memory_type, splat, suffix, variable
from rlx_cpu.native.llvm.elements import pieces
from rlx_cpu.native.llvm.isa import Isa
from rlx_cpu.native.llvm.simd import counting, index, offset

__all__ = ["Elimination", "SystemRows"]


@frozen
class SystemRows:
    """The layout in a workspace of the rows of a matrix, each followed by those of its right sides and by padding.

    Attributes:
        n: Rows, and columns of the matrix.
        k: Right sides.
        lanes: Elements of a vector.
    """

    dtype: DType
    n: int
    k: int
    lanes: int

    @classmethod
    def of(cls, isa: Isa, dtype: DType, n: int, k: int = 0) -> SystemRows:
        """The layout with vectors that are no longer than a row."""
        return cls(dtype, n, k, min(isa.lanes(dtype), 1 << max(0, (n + k).bit_length() - 1)))

    @property
    def width(self) -> int:
        """Elements of a row."""
        return self.n + self.k

    @property
    def stride(self) -> int:
        """Bytes from one row to the next: a vector that begins in a row ends before the next one."""
        return -(-(self.width + self.lanes - 1) // self.lanes) * self.lanes * self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        return self.n * self.stride

    @property
    def products(self) -> int:
        """Fused products of an elimination and its substitution."""
        return self.n * self.n * (self.n // 3 + self.k + 1)


@frozen(eq=False)
class Elimination:
    """Code for the rows of one matrix.

    Attributes:
        start: The address of the workspace.
        is_singular: A variable, i1: whether a pivot was exactly 0.
        swaps: A variable: how many pivots were not on the diagonal.
    """

    b: ir.IRBuilder
    rows: SystemRows
    start: ir.Value
    is_singular: ir.Value
    swaps: ir.Value

    @classmethod
    def begin(cls, b: ir.IRBuilder, rows: SystemRows, start: ir.Value) -> Elimination:
        """The code for a matrix that is not loaded yet."""
        is_singular, swaps = variable(b, I1), variable(b, I64)
        b.store(constant(I1, 0), is_singular, align=1)
        b.store(index(0), swaps, align=8)
        return cls(b, rows, start, is_singular, swaps)

    def at(self, row: ir.Value | int, column: ir.Value | int) -> ir.Value:
        """The address of an element."""
        r, c = (index(x) if isinstance(x, int) else x for x in (row, column))
        return offset(self.b, self.start, (r, self.rows.stride), (c, self.rows.dtype.itemsize))

    def load(self, place: ir.Value, lanes: int = 1) -> ir.Value:
        """Neighbours from memory."""
        return self.b.load(place, typ=memory_type(self.rows.dtype, lanes), align=self.rows.dtype.itemsize)

    def store(self, value: ir.Value, place: ir.Value) -> None:
        """Neighbours to memory."""
        self.b.store(value, place, align=self.rows.dtype.itemsize)

    def read(self, source: ir.Value, column: int, count: int) -> None:
        """Load `count` columns, from `column` on, of a dense array; the last ones are followed by zeros."""
        b, size = self.b, self.rows.dtype.itemsize
        with counting(b, 0, self.rows.n) as r:
            line = offset(b, source, (r, count * size))
            for at, lanes in self._spans(count):
                with counting(b, *at, lanes) as j:
                    self.store(self.load(offset(b, line, (j, size)), lanes), self.at(r, b.add(j, index(column))))
            if column + count == self.rows.width:
                for end, lanes in pieces(self.rows.width, self.rows.stride // size, self.rows.lanes):
                    self.store(constant(memory_type(self.rows.dtype, lanes), 0.0), self.at(r, end))

    def write(self, to: ir.Value, column: int, count: int) -> None:
        """Store `count` columns as a dense array; NaN where the matrix is singular and they are right sides."""
        b, size = self.b, self.rows.dtype.itemsize
        is_singular = b.load(self.is_singular, typ=I1, align=1)
        with counting(b, 0, self.rows.n) as r:
            line = offset(b, to, (r, count * size))
            for at, lanes in self._spans(count):
                with counting(b, *at, lanes) as j:
                    x = self.load(self.at(r, b.add(j, index(column))), lanes)
                    if column >= self.rows.n:
                        x = b.select(is_singular, constant(x.type, math.nan), x)
                    self.store(x, offset(b, line, (j, size)))

    def _spans(self, count: int) -> list[tuple[tuple[int, int], int]]:
        """Ranges of `count` neighbours, and the lanes of the vectors that each is moved by."""
        whole = count // self.rows.lanes * self.rows.lanes
        spans = [((0, whole), self.rows.lanes)] if whole else []
        return spans + [((at, at + lanes), lanes) for at, lanes in pieces(whole, count, self.rows.lanes)]

    def eliminate(self, pivots: ir.Value | None = None) -> None:
        """Replace the matrix by its factors, and apply the inverse of the lower one to the right sides.

        Args:
            pivots: Where the rows that the pivots came from are stored, as i64.
        """
        b, n = self.b, self.rows.n
        with counting(b, 0, n) as c:
            size, pivot = self._pivot(c)
            is_zero = b.fcmp_ordered("==", size, constant(size.type, 0.0))
            singular = b.or_(b.load(self.is_singular, typ=I1, align=1), is_zero)
            b.store(singular, self.is_singular, align=1)
            if pivots is not None:
                b.store(pivot, offset(b, pivots, (c, 8)), align=8)
            with b.if_then(b.icmp_signed("!=", pivot, c)):
                b.store(b.add(b.load(self.swaps, typ=I64, align=8), index(1)), self.swaps, align=8)
                with counting(b, 0, self.rows.width, self.rows.lanes) as j:
                    places = [self.at(r, j) for r in (c, pivot)]
                    upper, lower = (self.load(place, self.rows.lanes) for place in places)
                    self.store(lower, places[0])
                    self.store(upper, places[1])
            diagonal, after = self.load(self.at(c, c)), b.add(c, index(1))
            # A column of zeros has nothing to eliminate; its multipliers are 0, as LAPACK leaves them.
            divisor = b.select(is_zero, constant(diagonal.type, 1.0), diagonal)
            with counting(b, after, index(n)) as r:
                factor = b.fdiv(self.load(self.at(r, c)), divisor)
                self.store(factor, self.at(r, c))
                self._subtract(factor, c, r, after)

    def substitute(self) -> None:
        """Replace the right sides by the solutions, from the last unknown to the first."""
        b, rows = self.b, self.rows
        with counting(b, 0, rows.n) as done:
            c = b.sub(index(rows.n - 1), done)
            diagonal = splat(b, self.load(self.at(c, c)), rows.lanes)
            with counting(b, rows.n, rows.width, rows.lanes) as j:
                place = self.at(c, j)
                self.store(b.fdiv(self.load(place, rows.lanes), diagonal), place)
            with counting(b, index(0), c) as r:
                self._subtract(self.load(self.at(r, c)), c, r, index(rows.n))

    def log_modulus(self, x: ir.Value) -> ir.Value:
        """The logarithm of the modulus of an element; -inf for 0."""
        log = exponential.log if self.rows.dtype is f32 else wide_exponential.log
        return log(self.b, self.b.fabs(x))

    def _pivot(self, c: ir.Value) -> tuple[ir.Value, ir.Value]:
        """The modulus of the largest element of a column from its diagonal on, the first of equal ones, and its row.

        NaN is the largest.
        """
        b, element = self.b, memory_type(self.rows.dtype)
        size = self.rows.dtype.itemsize
        best, place = variable(b, element), variable(b, I64)
        b.store(constant(element, -1.0), best, align=size)
        b.store(c, place, align=8)
        with counting(b, c, index(self.rows.n)) as r:
            x = self.load(self.at(r, c))
            modulus = b.select(b.fcmp_unordered("uno", x, x), constant(element, math.inf), b.fabs(x))
            so_far = b.load(best, typ=element, align=size)
            is_larger = b.fcmp_ordered(">", modulus, so_far)
            b.store(b.select(is_larger, modulus, so_far), best, align=size)
            b.store(b.select(is_larger, r, b.load(place, typ=I64, align=8)), place, align=8)
        return b.load(best, typ=element, align=size), b.load(place, typ=I64, align=8)

    def _subtract(self, factor: ir.Value, source: ir.Value, row: ir.Value, first: ir.Value) -> None:
        """Subtract a multiple of one row from another, from a column on."""
        b, lanes = self.b, self.rows.lanes
        scale = splat(b, b.fneg(factor), lanes)
        name = f"llvm.fmuladd.{suffix(scale.type)}"
        multiply_add = declare(b.module, name, scale.type, [scale.type] * 3)
        with counting(b, first, index(self.rows.width), lanes) as j:
            place = self.at(row, j)
            moved = b.call(multiply_add, [scale, self.load(self.at(source, j), lanes), self.load(place, lanes)])
            self.store(moved, place)
