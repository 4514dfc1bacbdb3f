"""Gaussian elimination with partial pivoting on the rows of one small matrix, the Cholesky factor, and substitutions.

Golub & Van Loan, "Matrix Computations", 4th edition, algorithms 3.1.3, 3.1.4, 3.4.1 and 4.2.2, with the rows of a matrix and of
its right sides next to each other. Each element is updated by itself, so results do not depend on the length of vectors.
"""

from __future__ import annotations

import math

from rlx_core.codegen.scalars import exponential, wide_exponential
from rlx_core.ir.dtypes import DType, f32
from rlx_core.system.records import frozen
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.build import I1, I64, Variable, memory_type, splat, variable
from rlx_cpu.native.llvm.elements import pieces
from rlx_cpu.native.llvm.ir.assembler import intrinsic
from rlx_cpu.native.llvm.ir.numbers import constant
from rlx_cpu.native.llvm.isa import Isa
from rlx_cpu.native.llvm.simd import counting, index, offset


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
    start: ir.LlvmValue
    is_singular: ir.LlvmValue
    swaps: ir.LlvmValue

    @classmethod
    def begin(cls, b: ir.IRBuilder, rows: SystemRows, start: ir.LlvmValue) -> Elimination:
        """The code for a matrix that is not loaded yet."""
        is_singular, swaps = variable(b, I1), variable(b, I64)
        b.store(constant(I1, 0), is_singular, align=1)
        b.store(index(0), swaps, align=8)
        return cls(b, rows, start, is_singular, swaps)

    def has_zero_pivot(self) -> ir.LlvmValue:
        """i1: `is_singular` as it is here."""
        return self.b.load(self.is_singular, typ=I1, align=1)

    def is_finite(self, count: int) -> ir.LlvmValue:
        """i1: whether the elements of the first columns are finite."""
        b, accumulated = self.b, Variable.of(self.b, index(0))
        with counting(b, 0, self.rows.n) as r:
            for span, lanes in self._spans(count):
                with counting(b, *span, lanes) as j:
                    x = b.fabs(self.load(self.at(r, j), lanes))
                    is_not = b.fcmp_unordered("==", x, constant(x.type, math.inf))
                    bits = b.zext(is_not if lanes == 1 else b.bitcast(is_not, ir.IntType(lanes)), I64)
                    accumulated.set(b, b.or_(accumulated.value(b), bits))
        return b.icmp_signed("==", accumulated.value(b), index(0))

    def refuse(self, condition: ir.LlvmValue) -> None:
        """Have solutions be NaN where it holds, as for a matrix with a pivot of 0."""
        self.b.store(self.b.or_(self.has_zero_pivot(), condition), self.is_singular, align=1)

    def at(self, row: ir.LlvmValue | int, column: ir.LlvmValue | int) -> ir.LlvmValue:
        """The address of an element."""
        r, c = (index(x) if isinstance(x, int) else x for x in (row, column))
        return offset(self.b, self.start, (r, self.rows.stride), (c, self.rows.dtype.itemsize))

    def load(self, place: ir.LlvmValue, lanes: int = 1) -> ir.LlvmValue:
        """Neighbours from memory."""
        return self.b.load(place, typ=memory_type(self.rows.dtype, lanes), align=self.rows.dtype.itemsize)

    def store(self, value: ir.LlvmValue, place: ir.LlvmValue) -> None:
        """Neighbours to memory."""
        self.b.store(value, place, align=self.rows.dtype.itemsize)

    def read(self, source: ir.LlvmValue, column: int, count: int) -> None:
        """Load `count` columns, from `column` on, of a dense array; the last ones are followed by zeros."""
        b, size = self.b, self.rows.dtype.itemsize
        with counting(b, 0, self.rows.n) as r:
            line = offset(b, source, (r, count * size))
            for span, lanes in self._spans(count):
                with counting(b, *span, lanes) as j:
                    self.store(self.load(offset(b, line, (j, size)), lanes), self.at(r, b.add(j, index(column))))
            if column + count == self.rows.width:
                self._pad(r)

    def read_symmetric(self, source: ir.LlvmValue) -> ir.LlvmValue:
        """Load the upper triangle of half the sum of a dense matrix and its transpose; i1: whether all of it is finite."""
        b, size, n = self.b, self.rows.dtype.itemsize, self.rows.n
        element = memory_type(self.rows.dtype)
        is_finite = Variable.of(b, constant(I1, 1))
        half, infinity = constant(element, 0.5), constant(element, math.inf)
        with counting(b, 0, n) as r:
            with counting(b, r, index(n)) as c:
                # Halved before they are added, so that no finite matrix overflows.
                parts = (self.load(offset(b, source, (i, n * size), (j, size))) for i, j in ((r, c), (c, r)))
                x = b.fadd(*(b.fmul(part, half) for part in parts))
                self.store(x, self.at(r, c))
                is_finite.set(b, b.and_(is_finite.value(b), b.fcmp_ordered("<", b.fabs(x), infinity)))
            self._pad(r)
        return is_finite.value(b)

    def write_identity(self, column: int) -> None:
        """Have the columns from `column` on be those of an identity."""
        b, rows = self.b, self.rows
        zero, one = (constant(memory_type(rows.dtype), x) for x in (0.0, 1.0))
        with counting(b, 0, rows.n) as r:
            with counting(b, column, rows.width) as j:
                self.store(b.select(b.icmp_signed("==", b.sub(j, index(column)), r), one, zero), self.at(r, j))
            self._pad(r)

    def write(self, to: ir.LlvmValue, column: int, count: int) -> None:
        """Store `count` columns as a dense array; NaN where the matrix is singular and they are right sides."""
        b, size = self.b, self.rows.dtype.itemsize
        is_singular = self.has_zero_pivot()
        with counting(b, 0, self.rows.n) as r:
            line = offset(b, to, (r, count * size))
            for span, lanes in self._spans(count):
                with counting(b, *span, lanes) as j:
                    x = self.load(self.at(r, b.add(j, index(column))), lanes)
                    if column >= self.rows.n:
                        x = b.select(is_singular, constant(x.type, math.nan), x)
                    self.store(x, offset(b, line, (j, size)))

    def write_transposed(self, to: ir.LlvmValue, is_known: ir.LlvmValue) -> None:
        """Store the transpose of the upper triangle as a dense lower one with zeros above it; NaN where it is not known."""
        b, size, n = self.b, self.rows.dtype.itemsize, self.rows.n
        element = memory_type(self.rows.dtype)
        zero, nan = (constant(element, x) for x in (0.0, math.nan))
        with counting(b, 0, n) as r, counting(b, 0, n) as c:
            is_lower = b.icmp_signed("<=", c, r)
            x = b.select(is_lower, self.load(self.at(b.select(is_lower, c, r), r)), zero)
            self.store(b.select(is_known, x, nan), offset(b, to, (r, n * size), (c, size)))

    def _pad(self, row: ir.LlvmValue) -> None:
        """Zeros behind a row."""
        rows = self.rows
        for end, lanes in pieces(rows.width, rows.stride // rows.dtype.itemsize, rows.lanes):
            self.store(constant(memory_type(rows.dtype, lanes), 0.0), self.at(row, end))

    def _spans(self, count: int) -> list[tuple[tuple[int, int], int]]:
        """Ranges of `count` neighbours, and the lanes of the vectors that each is moved by."""
        full_columns = count // self.rows.lanes * self.rows.lanes
        spans = [((0, full_columns), self.rows.lanes)] if full_columns else []
        return spans + [
            ((start, start + lanes), lanes) for start, lanes in pieces(full_columns, count, self.rows.lanes)
        ]

    def eliminate(self, pivots: ir.LlvmValue | None = None) -> None:
        """Replace the matrix by its factors, and apply the inverse of the lower one to the right sides.

        Args:
            pivots: Address of the rows from which the pivots came, as i64.
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
                self.subtract(factor, c, r, after)

    def substitute(self, *, is_lower: bool = False, is_transposed: bool = False, is_unit: bool = False) -> None:
        """Replace the right sides by the solutions for a triangle of the matrix, starting with the equation of one unknown.

        Args:
            is_lower: Whether the lower triangle is used.
            is_transposed: Whether the transposed system is solved.
            is_unit: Whether the diagonal is taken as ones, regardless of its stored values.
        """
        b, rows = self.b, self.rows
        is_forward = is_lower != is_transposed
        with counting(b, 0, rows.n) as done:
            c = done if is_forward else b.sub(index(rows.n - 1), done)
            if not is_unit:
                diagonal = splat(b, self.load(self.at(c, c)), rows.lanes)
                with counting(b, rows.n, rows.width, rows.lanes) as j:
                    place = self.at(c, j)
                    self.store(b.fdiv(self.load(place, rows.lanes), diagonal), place)
            remaining_rows = (b.add(c, index(1)), index(rows.n)) if is_forward else (index(0), c)
            with counting(b, *remaining_rows) as r:
                factor = self.load(self.at(c, r) if is_transposed else self.at(r, c))
                self.subtract(factor, c, r, index(rows.n))

    def first_zero(self) -> ir.LlvmValue:
        """Return the first row whose diagonal element is exactly 0; the number of rows if there is no such row."""
        b, n = self.b, self.rows.n
        first = Variable.of(b, index(n))
        with counting(b, 0, n) as done:
            i = b.sub(index(n - 1), done)
            x = self.load(self.at(i, i))
            with b.if_then(b.fcmp_ordered("==", x, constant(x.type, 0.0))):
                first.set(b, i)
        return first.value(b)

    def factorise(self) -> ir.LlvmValue:
        """Replace the upper triangle of a symmetric matrix by the transpose of its Cholesky factor.

        Returns:
            The order of the first leading minor that is not positive; 0 where all are.
        """
        b, rows = self.b, self.rows
        element = memory_type(rows.dtype)
        order = Variable.of(b, index(0))
        with counting(b, 0, rows.n) as c:
            after, diagonal = b.add(c, index(1)), self.load(self.at(c, c))
            is_positive = b.fcmp_ordered(">", diagonal, constant(element, 0.0))
            is_first = b.icmp_signed("==", order.value(b), index(0))
            with b.if_then(b.and_(is_first, b.not_(is_positive)), likely=False):
                order.set(b, after)
            pivot = intrinsic(b, "llvm.sqrt", diagonal)
            self.store(pivot, self.at(c, c))
            divisor = splat(b, pivot, rows.lanes)
            with counting(b, after, index(rows.width), rows.lanes) as j:
                place = self.at(c, j)
                self.store(b.fdiv(self.load(place, rows.lanes), divisor), place)
            with counting(b, after, index(rows.n)) as r:
                self.subtract(self.load(self.at(c, r)), c, r, r)
        return order.value(b)

    def log_modulus(self, x: ir.LlvmValue) -> ir.LlvmValue:
        """The logarithm of the modulus of an element; -inf for 0."""
        log = exponential.log if self.rows.dtype is f32 else wide_exponential.log
        return log(self.b, self.b.fabs(x))

    def _pivot(self, c: ir.LlvmValue) -> tuple[ir.LlvmValue, ir.LlvmValue]:
        """The modulus of the largest element of a column from its diagonal on, the first of equal ones, and its row.

        NaN is the largest.
        """
        b, element = self.b, memory_type(self.rows.dtype)
        best, place = Variable.new(b, element), Variable.new(b, I64)
        best.set(b, constant(element, -1.0))
        place.set(b, c)
        with counting(b, c, index(self.rows.n)) as r:
            x = self.load(self.at(r, c))
            modulus = b.select(b.fcmp_unordered("uno", x, x), constant(element, math.inf), b.fabs(x))
            so_far = best.value(b)
            is_larger = b.fcmp_ordered(">", modulus, so_far)
            best.set(b, b.select(is_larger, modulus, so_far))
            place.set(b, b.select(is_larger, r, place.value(b)))
        return best.value(b), place.value(b)

    def subtract(self, factor: ir.LlvmValue, source: ir.LlvmValue, row: ir.LlvmValue, first: ir.LlvmValue) -> None:
        """Subtract a multiple of one row from another, from a column on."""
        b, lanes = self.b, self.rows.lanes
        scale = splat(b, b.fneg(factor), lanes)
        with counting(b, first, index(self.rows.width), lanes) as j:
            place = self.at(row, j)
            moved = intrinsic(b, "llvm.fmuladd", scale, self.load(self.at(source, j), lanes), self.load(place, lanes))
            self.store(moved, place)
