"""The load of a matrix operand: an expression of the loop language over several strided arrays, instead of one strided array.

A weight of codes and scales, of another dtype, or with a zero point is such an operand. A schedule evaluates the load for the
columns that it needs next, into a register, a tile or a panel; nowhere is the whole matrix in memory.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate
from math import prod
from operator import mul

import numpy as np
from attrs import evolve

from rlx_core.codegen.epilogue import expression
from rlx_core.codegen.formula import Affine, Formula, Read, formula_of
from rlx_core.codegen.interpret import run_kernel
from rlx_core.codegen.layout import (
    merged,
    simplified,
    whole_kernel,
    with_axes_ordered,
    with_axis_divided,
    with_axis_range,
)
from rlx_core.codegen.loops import Bound, Kernel, Load, Scalar
from rlx_core.codegen.meaning import reason_against
from rlx_core.codegen.places import Place
from rlx_core.codegen.scalars.table import ScalarTable
from rlx_core.codegen.verify import check_kernel
from rlx_core.ir.dtypes import DType
from rlx_core.ir.op import Op
from rlx_core.ir.strides import dense_strides
from rlx_core.ir.types import TensorType
from rlx_core.system.records import frozen


@frozen
class SourceRows:
    """An array of a load as a matrix whose columns are those of the load.

    Attributes:
        rows: Number of rows.
        strides: Bytes from a row to the next, and from a column to the next.
        by_axis: For each axis of the array the bytes between neighbours in a matrix of one column; 0 for the axis of columns.
        axis: The axis of columns.
    """

    rows: int
    strides: tuple[int, int]
    by_axis: tuple[int, ...]
    axis: int

    def place(self, place: Place, pitch: int) -> Place:
        """Return the layout inside of a panel of `pitch` columns."""
        strides = [by * pitch for by in self.by_axis]
        strides[self.axis] = place.type.dtype.itemsize
        return evolve(place, strides=tuple(strides))


def between_panels(value: Scalar, sources: Mapping[int, SourceRows], first: int, pitch: int) -> Scalar:
    """Return a load of a packed array with the stride from a panel to the next; the first axis counts panels."""
    rows = sources.get(value.buffer) if isinstance(value, Load) else None
    if rows is None or not isinstance(value, Load):
        return value
    before = first * (rows.rows - 1) * value.dtype.itemsize  # the columns in front are counted already, one row of them
    by_panel = rows.rows * pitch * value.dtype.itemsize
    return evolve(value, offset=value.offset + before, strides=(by_panel, *value.strides[1:]))


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

    def __str__(self) -> str:
        types = ", ".join(str(p.type) for p in self.places)
        (write,) = self.formula.writes
        return f"load({types}; {expression(self.formula.terms, (write.value,))}){list(self.shape)}"

    def kernel(self) -> Kernel:
        """The kernel that computes the whole matrix, dense."""
        return self._kernel({})

    def _kernel(self, instead: Mapping[int, Place]) -> Kernel:
        """The same with other layouts of some arrays."""
        extents = tuple(n.__index__() for n in self.formula.extents)
        places = [instead.get(i, place) for i, place in enumerate(self.places)]
        return whole_kernel(self.formula, places, [Place.dense(TensorType(self.dtype, extents))])

    @property
    def depths(self) -> tuple[int, ...]:
        """Numbers of rows, ascending, that divide all rows into parts of which each is a range of the axes of rows."""
        depths: set[int] = set()
        inner = 1
        for size in reversed([n.__index__() for n in self.formula.extents[:-1]]):
            depths.update(inner * n for n in range(1, size + 1) if size % n == 0)
            inner *= size
        return tuple(sorted(depths))

    def source_rows(self, number: int) -> SourceRows | None:
        """Return an array as a matrix with the columns of the load; `None` if it has another form, or is not bound."""
        place, columns = self.places[number], len(self.formula.extents) - 1
        reads = [t for t in self.formula.terms if isinstance(t, Read) and t.operand == number]
        is_fixed = place.is_bound and place.literal is None and place.is_dense
        if not is_fixed or place.type.dtype.is_complex or any(r.dynamic for r in reads):
            return None
        axes = range(place.type.rank)
        along = [a for a in axes if all(r.place[a] == Affine(columns) for r in reads)]
        others = [a for a in axes if a not in along]
        if len(along) != 1 or any(axis == columns for r in reads for a in others for axis, _ in r.place[a].terms):
            return None
        shape = place.type.static_shape
        rows = merged([shape[a] for a in others], [place.strides[a] for a in others])
        if len(rows) > 1 or shape[along[0]] != self.shape[1]:
            return None
        ((count, by_row),) = rows or [(1, 0)]
        between = dense_strides(TensorType(place.type.dtype, (*(shape[a] for a in others), 1)))
        by_axis = dict(zip(others, between, strict=False)) | {along[0]: 0}
        return SourceRows(count, (by_row, place.strides[along[0]]), tuple(by_axis[a] for a in axes), along[0])

    def panels(
        self,
        first: int,
        count: int,
        width: int,
        depth: int,
        *,
        pitch: int,
        alignment: int,
        packed: Collection[int] = (),
    ) -> Kernel:
        """Return the kernel that computes parts of `count` panels of `width` columns from column `first` on.

        All parts are in the same memory, one after the other. The first axes count the panels, and the parts of each.

        Args:
            depth: Rows of a part: one of `depths`.
            packed: Numbers of the arrays that are rearranged: the rows of each panel of `pitch` columns one after the other, and
                the panels one after the other. Each has `source_rows`.
            pitch: Columns from a row of a panel to the next, of which `width` are written.
            alignment: Bytes of which the start of a panel is a multiple.
        """
        sources = {i: rows for i in packed if (rows := self.source_rows(i)) is not None}
        kernel, inner = self._kernel({i: rows.place(self.places[i], pitch) for i, rows in sources.items()}), 1
        itemsize = self.dtype.itemsize
        for axis in reversed(range(len(kernel.extents) - 1)):
            size = kernel.extents[axis]
            if inner * size > depth:
                kernel = with_axis_divided(kernel, axis, depth // inner) if inner < depth < inner * size else kernel
                break
            inner *= size
        columns = len(kernel.extents) - 1
        kernel = with_axis_divided(with_axis_range(kernel, columns, first, count * width), columns, width)
        kernel = with_axes_ordered(kernel, (columns, *range(columns), columns + 1))
        kernel = evolve(kernel, values=tuple(between_panels(v, sources, first, pitch) for v in kernel.values))
        # Rows between neighbours on each axis: of the panels, then of the rows.
        row_steps = list(accumulate(reversed(kernel.extents[1:-1]), mul, initial=1))[::-1]
        (stored,) = kernel.stores
        separate = evolve(stored, strides=(*(n * pitch * itemsize for n in row_steps), itemsize), offset=0)
        *operands, result = kernel.buffers
        buffers = (*operands, evolve(result, alignment=alignment))
        kernel = check_kernel(evolve(kernel, buffers=buffers, stores=(separate,)))
        together = tuple(0 if n >= depth else by for n, by in zip(row_steps, separate.strides, strict=False))
        return simplified(evolve(kernel, stores=(evolve(separate, strides=(*together, itemsize)),)))

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
    return reason_against(table, op, tuple(types))
