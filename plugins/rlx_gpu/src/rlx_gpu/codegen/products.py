"""Products of matrices by tiles in shared memory, with what follows computed on the sums before they are stored.

A group computes a tile of the result: it loops over the depth, loads tiles of both operands into shared memory in the type of
the sums, and each thread accumulates a few rows and columns of the tile in registers. Operands have any strides, so a
transposed operand is not copied; neighbouring threads read along the contiguous axis. The epilogue of a sum is a loop kernel
over the result's axes in which one value represents the sum.
"""

from __future__ import annotations

from math import prod

from attrs import evolve, field

from rlx_core.codegen.scalars.table import ScalarTable
from rlx_core.emit.emitters import Emitted
from rlx_core.ir.dtypes import DType
from rlx_core.system.records import define, frozen
from rlx_gpu.codegen.assembler import Register
from rlx_gpu.codegen.indexing import as_index
from rlx_gpu.codegen.languages import GpuDialect
from rlx_gpu.codegen.printer import renamed
from rlx_gpu.codegen.registers import register_dtype
from rlx_gpu.codegen.tiles import (
    Factor,
    ProductPrinting,
    Span,
    TiledProduct,
    bring,
    multiplied,
    product_refusal,
    values_of,
)
from rlx_gpu.codegen.units.products import print_unit_product
from rlx_gpu.codegen.units.tiles import unit_for
from rlx_gpu.codegen.values import ElementRun, Values
from rlx_gpu.codegen.walks import Machine, Schedule


@frozen
class Tiles:
    """Rows, columns and depth of a group's tile, and rows and columns of each thread."""

    rows: int = 64
    columns: int = 64
    depth: int = 16
    thread_rows: int = 4
    thread_columns: int = 4

    @property
    def threads(self) -> tuple[int, int]:
        """Threads down and across the tile."""
        return self.rows // self.thread_rows, self.columns // self.thread_columns


def tiles_of(problem: TiledProduct, machine: Machine) -> Tiles:
    """Tiles that are no larger than the result, and of which a group of the machine computes one."""
    *_, m, n = problem.kernel.extents
    tiles = Tiles()
    while tiles.rows > 8 and tiles.rows // 2 >= m:
        tiles = evolve(tiles, rows=tiles.rows // 2, thread_rows=max(tiles.thread_rows // 2, 1))
    while tiles.columns > 8 and tiles.columns // 2 >= n:
        tiles = evolve(tiles, columns=tiles.columns // 2, thread_columns=max(tiles.thread_columns // 2, 1))
    while prod(tiles.threads) > machine.group:
        is_tall = tiles.threads[0] >= tiles.threads[1]
        tiles = evolve(tiles, rows=tiles.rows // 2) if is_tall else evolve(tiles, columns=tiles.columns // 2)
    return tiles


def print_product(problem: TiledProduct, language: GpuDialect, machine: Machine, scalars: ScalarTable) -> Emitted:
    """The function that computes a product whose result has elements and that `product_refusal` does not refuse."""
    assert (reason := product_refusal(problem, language)) is None, f"the product needs {reason}"
    if problem.load is None:
        if language.product_template is not None:
            return language.product_template(problem, language, machine, scalars)
        if (unit := unit_for(problem, language, machine)) is not None:
            return print_unit_product(problem, unit, language, machine, scalars)
    tiles = tiles_of(problem, machine)
    printing = _Printing(problem, values_of(problem, problem.kernel, language, scalars, prod(tiles.threads)), tiles)
    return printing.done(machine, tiles.rows, tiles.columns, printing.shared)


@define(eq=False)
class _Printing(ProductPrinting):
    """The text of one product while it is written."""

    tiles: Tiles
    shared: list[str] = field(init=False)
    dtype: DType = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.dtype = self.problem.kernel.values[self.problem.element].dtype
        t, type = self.tiles, self.b.language.type(register_dtype(self.dtype))
        # One additional element per row avoids bank conflicts of writes along a column.
        self.shared = [
            self.b.language.shared(type, "tile_of_lhs", t.depth * (t.rows + 1)),
            self.b.language.shared(type, "tile_of_rhs", t.depth * (t.columns + 1)),
        ]

    def tile(self, grid: dict[int, str]) -> None:
        b, t = self.b, self.tiles
        wide = t.threads[1]
        self.let("y", f"{b.language.thread} / {wide}u")
        self.let("x", f"{b.language.thread} % {wide}u")
        dtype = register_dtype(self.dtype)
        sums = [[b.variable(b.literal(dtype, 0), "sum") for _ in range(t.thread_columns)] for _ in range(t.thread_rows)]
        with b.loop("k0", "0u", f"{self.problem.depth}u", f"{t.depth}u", self.problem.positions):
            self._bring(self.problem.lhs, "tile_of_lhs", len(grid), "row0", t.rows, grid)
            self._bring(self.problem.rhs, "tile_of_rhs", len(grid) + 1, "column0", t.columns, grid)
            b.barrier()
            multiplied(b, "tile_of_lhs", "tile_of_rhs", (t.rows, t.columns), t.threads, t.depth, sums)
            b.barrier()
        for r, row in enumerate(sums):
            for c, element in enumerate(row):
                self._finish(r, c, element, grid)

    def _bring(self, factor: Factor, tile: str, axis: int, start: str, size: int, grid: dict[int, str]) -> None:
        kernel, t = self.values.kernel, self.tiles
        span = Span(axis, start, kernel.extents[axis], size)
        depth = Span(len(kernel.extents), "k0", self.problem.depth, t.depth)
        kinds = self.problem.positions, self.problem.index_type(factor)
        load = None if factor is self.problem.lhs or self.problem.load is None else self._loaded
        buffer = kernel.buffers[factor.buffer]
        bring(self.b, factor, buffer, tile, span, depth, grid, self.dtype, self.threads, kinds, load)

    def _loaded(self, row: str, column: str) -> Register:
        """An element of the loaded operand at a position along the depth and a column, in the dtype of the sums."""
        load = self.problem.load
        assert load is not None, "the operand is a load"
        names = {i: buffer.name for i, buffer in enumerate(self.values.kernel.buffers)}
        schedule = Schedule("point", 1, self.threads, 1, 1, kind=self.problem.index_type(self.problem.rhs))
        values = Values(self.b, renamed(load, names), schedule, self.values.scalars)
        *depth, columns = range(len(load.extents))
        axes, inner = {columns: as_index(column, schedule.kind)}, 1
        for axis in reversed(depth):
            size = load.extents[axis]
            text = f"{row} / {inner}u" if inner > 1 else row
            axes[axis] = as_index(f"({text})" if axis == depth[0] else f"({text} % {size}u)", schedule.kind)
            inner *= size
        (store,) = load.stores
        element = values.value(store.value, 0, ElementRun(axes, "0", "0", None, {}))
        return self.b.converted(element, load.values[store.value].dtype.accumulator, self.dtype)

    def _finish(self, r: int, c: int, element: Register, grid: dict[int, str]) -> None:
        """Apply the kernel to one sum."""
        b, (down, across) = self.b, self.tiles.threads
        *_, m, n = self.kernel.extents
        row, column = b.fresh("row"), b.fresh("column")
        self.let(row, f"row0 + y + {r * down}u")
        self.let(column, f"column0 + x + {c * across}u")
        with b.when(f"{row} < {m}u && {column} < {n}u"):
            self.store(row, column, [element], grid)
