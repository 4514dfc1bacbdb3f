"""Shared code of all products by units: copies of operand tiles to shared memory, and the epilogue of a thread's sums.

A group computes tiles of the result. Tiles of both operands are copied several steps along the depth ahead, each in its order
in memory: 16 bytes at once if rows are so aligned, else an element at a time. The epilogue is a loop kernel, computed on pairs
of neighbouring sums where they are stored.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from math import prod
from typing import Generic, TypeVar

from attrs import evolve, field

from rlx_core.codegen.loops import Index, Kernel
from rlx_core.codegen.scalars.table import ScalarTable
from rlx_core.ir.dtypes import DType, f32
from rlx_core.system.records import define, frozen
from rlx_gpu.codegen.assembler import Register, TextAssembler
from rlx_gpu.codegen.functions import Function, assembled, each_group
from rlx_gpu.codegen.indexing import as_index, index_type
from rlx_gpu.codegen.languages import Argument, Language
from rlx_gpu.codegen.memory import index_text
from rlx_gpu.codegen.printer import renamed
from rlx_gpu.codegen.registers import spelled, stored_dtype
from rlx_gpu.codegen.tiles import Factor, TiledProduct, place_tile
from rlx_gpu.codegen.units.tiles import COPIED
from rlx_gpu.codegen.values import ElementRun, Values
from rlx_gpu.codegen.walks import Machine, Schedule, has_pairs, index_count

__all__ = ["Side", "TilePrinting", "values_of"]

S = TypeVar("S", bound="Side")


def values_of(problem: TiledProduct, language: Language, scalars: ScalarTable, group: int) -> Values:
    """Return the values of a product's kernel on its sums, in groups of `group` threads."""
    kernel = problem.kernel
    names = {buffer: f"m{i}" for i, buffer in enumerate(used_by(problem))}
    # The sums vary along all axes, as positions do; their placeholder is never computed.
    sums = Index(f32, len(kernel.extents) - 1)
    values = tuple(sums if i == problem.element else v for i, v in enumerate(kernel.values))
    lanes = 2 if has_pairs(kernel) else 1
    schedule = Schedule("point", lanes, group, 1, 1, kind=index_type(index_count(kernel)))
    return Values(TextAssembler(language), renamed(evolve(kernel, values=values), names), schedule, scalars)


def used_by(problem: TiledProduct) -> list[int]:
    """The buffers that a product is given."""
    return sorted({a.buffer for a in problem.kernel.accesses} | {problem.lhs.buffer, problem.rhs.buffer})


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
        inner, extent = (factor.depth, problem.depth) if is_deep else (factor.strides[axis], kernel.extents[axis])
        buffer = kernel.buffers[factor.buffer]
        outer = (
            *(s for a, s in enumerate(factor.strides) if a != axis),
            factor.strides[axis] if is_deep else factor.depth,
        )
        width = COPIED // buffer.dtype.itemsize
        is_whole = inner == buffer.dtype.itemsize and extent % width == 0
        is_whole = is_whole and all(s % COPIED == 0 for s in (*outer, factor.offset, buffer.alignment))
        return cls(name, factor, axis, start, size, depth, is_deep, width if is_whole else 1, buffer.dtype)

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
class TilePrinting(Generic[S]):
    """The text of one product under construction.

    Attributes:
        values: The epilogue of the sums.
        sides: Both operands.
        threads: Threads of a group.
    """

    problem: TiledProduct
    values: Values
    sides: tuple[S, S] = field(init=False)

    @property
    def kernel(self) -> Kernel:
        return self.problem.kernel

    @property
    def b(self) -> TextAssembler:
        return self.values.b

    @property
    def threads(self) -> int:
        return self.values.schedule.group

    def let(self, name: str, text: str) -> None:
        self.b.writer.line(self.b.language.declared(self.problem.positions, name, text))

    def unrolled(self, name: str, count: int) -> str:
        return self.b.language.unrolled + self.b.language.loop("u32", name, "0u", f"{count}u", "1u")

    def sided(self, side: type[S], rows: int, columns: int, depth: int) -> tuple[S, S]:
        """Both operands' tiles, in a layout."""
        p, rank = self.problem, len(self.kernel.extents)
        return (
            side.of(p, "tile_of_lhs", p.lhs, rank - 2, "row0", rows, depth),
            side.of(p, "tile_of_rhs", p.rhs, rank - 1, "column0", columns, depth),
        )

    def done(self, machine: Machine, shared: Sequence[str], dynamic_nbytes: int = 0) -> Function:
        """The function that computes every tile of the result."""
        kernel, b = self.kernel, self.b
        rows, columns = (side.size for side in self.sides)
        *batch, m, n = kernel.extents
        total = -(-m // rows) * -(-n // columns) * prod(batch)
        groups = min(total, machine.most_groups)
        with each_group(b, "i", total, groups):
            self.tile(place_tile(b, kernel.extents, rows, columns))
        buffers = used_by(self.problem)
        named = {i: self.values.kernel.buffers[i].name for i in buffers}
        arguments = {i: Argument(named[i], kernel.buffers[i].dtype, kernel.buffers[i].is_result) for i in buffers}
        sites = tuple(self.values.sites)
        return assembled(kernel.name, b, arguments, shared, self.threads, groups, sites, dynamic_nbytes)

    @abstractmethod
    def tile(self, grid: dict[int, str]) -> None:
        """The tile of the result whose number is `i`, given its index along each batch axis."""

    # -------------------------------------------------------------------------------------- operands

    def bring(self, deep0: str, stage: str, grid: dict[int, str]) -> None:
        """The tiles of both operands from one place along the depth on, zeros where an operand ends."""
        for side in self.sides:
            self._bring_side(side, deep0, stage, grid)
        self.b.writer.line("rlx_copies_end();")

    def _bring_side(self, side: S, deep0: str, stage: str, grid: dict[int, str]) -> None:
        b, kernel, problem = self.b, self.kernel, self.problem
        buffer, width = self.values.kernel.buffers[side.factor.buffer], side.width
        flat, along, inner_k = (b.writer.fresh(stem) for stem in ("e", "a", "d"))
        runs = side.size * side.depth // width
        with b.writer.block(
            b.language.unrolled + b.language.loop("u32", flat, b.language.thread, f"{runs}u", f"{self.threads}u")
        ):
            inner, outer, size = (inner_k, along, side.depth) if side.is_deep else (along, inner_k, side.size)
            self.let(inner, f"{flat} % {size // width}u * {width}u")
            self.let(outer, f"{flat} / {size // width}u")
            self.let(f"{along}_at", f"{side.start} + {along}")
            self.let(f"{inner_k}_at", f"{deep0} + {inner_k}")
            extent = kernel.extents[side.axis]
            b.writer.line(f"const bool {flat}_is = {along}_at < {extent}u && {inner_k}_at < {problem.depth}u;")
            moving = {**grid, side.axis: f"{along}_at", len(kernel.extents): f"{inner_k}_at"}
            strides = [s if a in moving else 0 for a, s in enumerate((*side.factor.strides, side.factor.depth))]
            kind = problem.index_type(side.factor)
            index = index_text(strides, side.factor.offset, buffer.dtype.itemsize, moving, kind)
            to = f"{side.name}[{stage} * {side.elements}u + {side.place(along, inner_k)}]"
            if width == 1:
                b.writer.line(f"{to} = {flat}_is ? {buffer.name}[{index}] : ({side.type})0;")
            else:
                b.writer.line(f"rlx_copy_ahead(&{to}, &{buffer.name}[{flat}_is ? {index} : 0u], {flat}_is);")

    # ---------------------------------------------------------------------------------------- result

    def finish(self, row: str, column: str, sums: str, grid: dict[int, str]) -> None:
        """Apply the kernel to a pair of neighbours, in `row` from `column` on; `sums` is the first, without its bracket."""
        b = self.b
        *_, m, n = self.kernel.extents
        self.let("row", row)
        self.let("column", column)
        if self.values.schedule.lanes == 2:
            with b.writer.block(f"if (row < {m}u && column < {n}u) {{"):
                self._store("column", [f"{sums}]", f"{sums} + 1u]"], grid)
            return
        with b.writer.block(self.unrolled("one", 2)):
            self.let("at_column", "column + one")
            with b.writer.block(f"if (row < {m}u && at_column < {n}u) {{"):
                self._store("at_column", [f"{sums} + one]"], grid)

    def _store(self, column: str, sums: Sequence[str], grid: dict[int, str]) -> None:
        extents = self.kernel.extents
        last = len(extents) - 1
        axes = {**grid, last - 1: "row", last: column}
        axes = {axis: as_index(text, self.values.schedule.kind) for axis, text in axes.items()}
        point = " + ".join(f"{axes[a]} * {prod(extents[a + 1 :])}u" for a in sorted(axes))
        place = point if len(sums) == 1 else f"({point}) / {len(sums)}u"
        coordinates = ElementRun(axes, place, place, None, {})
        coordinates.lanes = {(self.problem.element, lane): Register(text, f32) for lane, text in enumerate(sums)}
        self.values.store(self.values.kernel.stores, coordinates)
