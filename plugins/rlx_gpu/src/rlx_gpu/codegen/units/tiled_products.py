"""Shared code of all products by units: copies of operand tiles to shared memory, and the epilogue of a thread's sums.

A group computes tiles of the result. Tiles of both operands are copied several steps along the depth ahead, each in its order
in memory: 16 bytes at once if rows are so aligned, else an element at a time. The epilogue is a loop kernel, computed on pairs
of neighbouring sums where they are stored.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Generic, TypeVar

from attrs import evolve, field

from rlx_core.codegen.loops import Index
from rlx_core.codegen.scalars.table import ScalarTable
from rlx_core.ir.dtypes import DType, f32
from rlx_core.system.records import define, frozen
from rlx_gpu.codegen.assembler import Register
from rlx_gpu.codegen.languages import GpuDialect
from rlx_gpu.codegen.registers import spelled, stored_dtype
from rlx_gpu.codegen.tiles import Factor, ProductPrinting, TiledProduct, values_of
from rlx_gpu.codegen.units.tiles import copied_at_once
from rlx_gpu.codegen.values import Values
from rlx_gpu.codegen.walks import has_pairs

S = TypeVar("S", bound="Side")


def paired_values(problem: TiledProduct, language: GpuDialect, scalars: ScalarTable, group: int) -> Values:
    """Return the values of a product's kernel on pairs of neighbouring sums where possible, in groups of `group` threads."""
    kernel = problem.kernel
    # The sums vary along all axes, as positions do; their placeholder is never computed.
    sums = Index(f32, len(kernel.extents) - 1)
    values = tuple(sums if i == problem.element else v for i, v in enumerate(kernel.values))
    return values_of(
        problem, evolve(kernel, values=values), language, scalars, group, lanes=2 if has_pairs(kernel) else 1
    )


@frozen
class Side:
    """An operand's tiles in shared memory, all stages after one another.

    Attributes:
        axis: Axis of the problem along which the tile has `size` elements from `start`.
        depth: Depth of the tile.
        is_deep: Whether the depth is the axis along which neighbours are neighbours.
        width: Elements that are copied at once.
        dtype: Dtype of an element.
    """

    name: str
    factor: Factor
    axis: int
    start: str
    size: int
    depth: int
    is_deep: bool
    width: int
    dtype: DType

    @classmethod
    def of(
        cls: type[S], problem: TiledProduct, name: str, factor: Factor, axis: int, start: str, size: int, depth: int
    ) -> S:
        """An operand's, as it lies in memory."""
        kernel = problem.kernel
        is_deep = abs(factor.depth) <= abs(factor.strides[axis])
        inner, extent = (len(factor.strides), problem.depth) if is_deep else (axis, kernel.extents[axis])
        buffer = kernel.buffers[factor.buffer]
        width = copied_at_once(factor, inner, extent, buffer)
        return cls(name, factor, axis, start, size, depth, is_deep, width, buffer.dtype)

    @property
    def type(self) -> str:
        return spelled(stored_dtype(self.dtype))

    @property
    @abstractmethod
    def elements(self) -> int:
        """Elements of one stage."""

    @abstractmethod
    def place(self, along: str, depth: str) -> str:
        """The index of an element of a stage."""


@define(eq=False)
class TilePrinting(ProductPrinting, Generic[S]):
    """The text of one product on a unit under construction; `sides` are both operands."""

    sides: tuple[S, S] = field(init=False)

    def sided(self, side: type[S], rows: int, columns: int, depth: int) -> tuple[S, S]:
        """Both operands' tiles, in a layout."""
        p, rank = self.problem, len(self.kernel.extents)
        return (
            side.of(p, "tile_of_lhs", p.lhs, rank - 2, "row0", rows, depth),
            side.of(p, "tile_of_rhs", p.rhs, rank - 1, "column0", columns, depth),
        )

    # -------------------------------------------------------------------------------------- operands

    def bring(self, deep0: str, stage: str, grid: dict[int, str]) -> None:
        """The tiles of both operands from one place along the depth on, zeros where an operand ends."""
        for side in self.sides:
            self._bring_side(side, deep0, stage, grid)
        self.b.line("rlx_copies_end();")

    def _bring_side(self, side: S, deep0: str, stage: str, grid: dict[int, str]) -> None:
        b, kernel, problem = self.b, self.kernel, self.problem
        buffer, width = self.values.kernel.buffers[side.factor.buffer], side.width
        flat, along, inner_k = (b.fresh(stem) for stem in ("e", "a", "d"))
        runs = side.size * side.depth // width
        with b.loop(flat, b.language.thread, f"{runs}u", f"{self.threads}u", is_unrolled=True):
            inner, outer, size = (inner_k, along, side.depth) if side.is_deep else (along, inner_k, side.size)
            self.let(inner, f"{flat} % {size // width}u * {width}u")
            self.let(outer, f"{flat} / {size // width}u")
            self.let(f"{along}_at", f"{side.start} + {along}")
            self.let(f"{inner_k}_at", f"{deep0} + {inner_k}")
            extent = kernel.extents[side.axis]
            b.line(f"const bool {flat}_is = {along}_at < {extent}u && {inner_k}_at < {problem.depth}u;")
            moving = {**grid, side.axis: f"{along}_at", len(kernel.extents): f"{inner_k}_at"}
            index = side.factor.index(moving, buffer.dtype.itemsize, problem.index_type(side.factor))
            to = f"{side.name}[{stage} * {side.elements}u + {side.place(along, inner_k)}]"
            if width == 1:
                b.line(f"{to} = {flat}_is ? {buffer.name}[{index}] : ({side.type})0;")
            else:
                b.line(f"rlx_copy_ahead(&{to}, &{buffer.name}[{flat}_is ? {index} : 0u], {flat}_is);")

    # ---------------------------------------------------------------------------------------- result

    def finish(self, row: str, column: str, sums: str, grid: dict[int, str]) -> None:
        """Apply the kernel to a pair of neighbours, in `row` from `column` on; `sums` is the first, without its bracket."""
        b = self.b
        *_, m, n = self.kernel.extents
        self.let("row", row)
        self.let("column", column)
        if self.values.schedule.lanes == 2:
            with b.when(f"row < {m}u && column < {n}u"):
                self.store("row", "column", [Register(f"{sums}]", f32), Register(f"{sums} + 1u]", f32)], grid)
            return
        with b.unrolled("one", 2):
            self.let("at_column", "column + one")
            with b.when(f"row < {m}u && at_column < {n}u"):
                self.store("row", "at_column", [Register(f"{sums} + one]", f32)], grid)
