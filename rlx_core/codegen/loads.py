"""The load of a matrix operand: an expression of the loop language over several strided arrays, instead of one strided array.

A weight of codes and scales, of another dtype, or with a zero point is such an operand. A schedule evaluates the load for the
columns that it needs next, into a register, a tile or a panel; nowhere is the whole matrix in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from math import prod
from operator import mul

import numpy as np
from attrs import evolve

from rlx_core.codegen.epilogue import expression
from rlx_core.codegen.formula import Formula, formula_of
from rlx_core.codegen.interpret import run_kernel
from rlx_core.codegen.layout import simplified, whole_kernel
from rlx_core.codegen.loops import Apply, Bound, Index, Kernel, Load, Scalar, Store
from rlx_core.codegen.places import Place
from rlx_core.codegen.scalars.table import ScalarTable
from rlx_core.codegen.verify import check_kernel
from rlx_core.ir.dtypes import DType, i64
from rlx_core.ir.op import Op
from rlx_core.ir.types import TensorType
from rlx_core.ops.arithmetic import add
from rlx_core.system.records import frozen

__all__ = ["OperandLoad", "reason_against_load"]


@frozen
class OperandLoad:
    """The matrix `[k, n]` that a formula computes, with the layouts of the arrays that it reads.

    Attributes:
        formula: Its last axis has the columns; the other axes together have the rows. There are no reductions.
        places: The arrays.
    """

    formula: Formula
    places: tuple[Place, ...]

    @classmethod
    def of(cls, op: Op, places: Sequence[Place | None]) -> OperandLoad:
        """Return the load of an op that was accepted by `reason_against_load`, on arrays with these layouts."""
        known = tuple(p for p in places if p is not None)
        assert len(known) == len(places), "all operands of a load are required"
        formula = formula_of(op, tuple(p.type for p in known))
        assert formula is not None, "the load was accepted"
        return cls(formula, known)

    @property
    def dtype(self) -> DType:
        (write,) = self.formula.writes
        return self.formula.terms[write.value].dtype

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        *rows, columns = (n.__index__() for n in self.formula.extents)
        return prod(rows), columns

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(p.type.static_nbytes for p in self.places)

    def __str__(self) -> str:
        types = ", ".join(str(p.type) for p in self.places)
        (write,) = self.formula.writes
        return f"load({types}; {expression(self.formula.terms, (write.value,))}){list(self.shape)}"

    def kernel(self) -> Kernel:
        """The kernel that computes the whole matrix, dense."""
        extents = tuple(n.__index__() for n in self.formula.extents)
        return whole_kernel(self.formula, self.places, [Place.dense(TensorType(self.dtype, extents))])

    def panels(self, first: int, count: int, width: int, *, pitch: int, alignment: int) -> Kernel:
        """Return the kernel that computes `count` panels of `width` columns from column `first` on, each in the same memory.

        The first axis counts the panels, unless there is one panel. A panel has all rows of the matrix.

        Args:
            pitch: Columns from a row of a panel to the next, of which `width` are written.
            alignment: Bytes of which the start of a panel is a multiple.
        """
        whole = self.kernel()
        last, itemsize = len(whole.extents) - 1, self.dtype.accumulator.itemsize
        values: list[Scalar] = []
        numbers: list[int] = []  # of the whole kernel's values among those of the panels
        for value in whole.values:
            if isinstance(value, Load):
                step = value.strides[last]
                dynamic = tuple((numbers[v], by) for v, by in value.dynamic)
                value = evolve(
                    value,
                    strides=(width * step, *value.strides),
                    offset=value.offset + first * step,
                    dynamic=dynamic,
                )
            elif isinstance(value, Index) and value.axis == last:
                values.append(Index(i64, 0, value.offset + first * value.scale, width * value.scale))
                values.append(Index(i64, last + 1, 0, value.scale))
                value = Apply(i64, add.op(), (len(values) - 2, len(values) - 1))
            elif isinstance(value, Index):
                value = evolve(value, axis=value.axis + 1)
            elif isinstance(value, Apply):
                value = evolve(value, args=tuple(numbers[a] for a in value.args))
            elif isinstance(value, Bound):
                value = evolve(value, arg=numbers[value.arg])
            values.append(value)
            numbers.append(len(values) - 1)
        extents = (count, *whole.extents[:-1], width)
        lengths = list(accumulate(reversed(whole.extents[:-1]), mul, initial=1))
        by_row = [n * pitch * itemsize for n in reversed(lengths[:-1])]
        (stored,) = whole.stores
        apart = Store(stored.buffer, numbers[stored.value], (whole.extents[0] * by_row[0], *by_row, itemsize))
        *operands, result = whole.buffers
        buffers = (*operands, evolve(result, dtype=self.dtype.accumulator, alignment=alignment))
        panels = check_kernel(Kernel(whole.name, extents, len(extents), buffers, tuple(values), (apart,)))
        return simplified(evolve(panels, stores=(evolve(apart, strides=(0, *apart.strides[1:])),)))

    def run(self, arrays: Sequence[np.ndarray]) -> np.ndarray:
        """Return the matrix, computed with NumPy from one-dimensional `uint8` arrays that start at the first elements."""
        kernel = self.kernel()
        result = np.empty(self.shape, self.dtype.numpy)
        run_kernel(kernel, [*arrays, result.reshape(-1).view(np.uint8)])
        return result


def reason_against_load(table: ScalarTable, op: Op, types: Sequence[TensorType | None]) -> str | None:
    """Return why an op is no load with code on a target, as "needs …" would continue; `None` if it is one."""
    formula = formula_of(op, tuple(types))
    if formula is None or formula.rows or len(formula.writes) != 1:
        return "a load that is one loop without reductions"
    if not all(isinstance(n, int) for n in formula.extents):
        return "a load of known sizes"
    if any(isinstance(t, Bound) and t.is_checked for t in formula.terms):
        return "a load whose indices are not checked"
    odd = {term.dtype for term in formula.terms}.difference(table.dtypes)
    if odd:
        return f"dtypes that {table.name} code has, not {' '.join(sorted(d.name for d in odd))}"
    for term in formula.terms:
        if isinstance(term, Apply):
            refused = table.refusal(term.op, tuple(formula.terms[a].dtype for a in term.args))
            if refused is not None:
                return refused
    return None
