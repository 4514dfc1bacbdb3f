"""Products by matrix units of a subgroup: tiles in shared memory as they are stored, sums in f32 in registers.

Each subgroup of a group computes a part of the group's tile. `tiled_products` schedules the copies and applies the epilogue.
"""

from __future__ import annotations

from math import prod

from rlx_core.codegen.scalars.table import ScalarTable
from rlx_core.emit.emitters import Emitted
from rlx_core.system.records import define, frozen
from rlx_gpu.codegen.languages import GpuDialect
from rlx_gpu.codegen.tiles import TiledProduct
from rlx_gpu.codegen.units.matrix_units import MatrixUnit
from rlx_gpu.codegen.units.tiled_products import Side, TilePrinting, paired_values
from rlx_gpu.codegen.units.tiles import COPIED, UnitTiles, unit_tiles_of
from rlx_gpu.codegen.walks import Machine


def print_unit_product(
    problem: TiledProduct, unit: MatrixUnit, language: GpuDialect, machine: Machine, scalars: ScalarTable
) -> Emitted:
    """Return the function that computes a product on the unit that `unit_for` selected."""
    tiles = unit_tiles_of(problem, machine, unit)
    values = paired_values(problem, language, scalars, tiles.subgroups * unit.threads)
    printing = _Printing(problem, values, tiles, unit)
    shared = [each.declared(language, tiles.stages) for each in printing.sides]
    return printing.done(machine, tiles.rows, tiles.columns, shared)


@frozen
class _PaddedSide(Side):
    """Rows of a tile have some elements more, so that they lie in different banks and begin where copies may."""

    @property
    def step(self) -> int:
        """Elements from a row of the tile to the next."""
        return (self.depth if self.is_deep else self.size) + COPIED // self.dtype.itemsize

    @property
    def elements(self) -> int:
        return (self.size if self.is_deep else self.depth) * self.step

    def place(self, along: str, depth: str) -> str:
        return f"({along}) * {self.step}u + {depth}" if self.is_deep else f"({depth}) * {self.step}u + {along}"

    def declared(self, language: GpuDialect, stages: int) -> str:
        return language.shared(f"__attribute__((aligned(16))) {self.type}", self.name, self.elements * stages)


@define(eq=False)
class _Printing(TilePrinting[_PaddedSide]):
    """The text of one product while it is written."""

    tiles: UnitTiles
    unit: MatrixUnit

    def __attrs_post_init__(self) -> None:
        self.sides = self.sided(_PaddedSide, self.tiles.rows, self.tiles.columns, self.tiles.depth)

    def tile(self, grid: dict[int, str]) -> None:
        b, t, unit = self.b, self.tiles, self.unit
        down, across = t.rows // t.down, t.columns // t.across
        self.let("part", f"{b.language.thread} / {unit.threads}u")
        self.let("part_row", f"part / {t.across}u * {down}u")
        self.let("part_column", f"part % {t.across}u * {across}u")
        parts = (down // unit.size, across // unit.size)
        b.line(f"rlx_sums sums[{prod(parts)}] = {{}};")
        steps = -(-self.problem.depth // t.depth)
        for stage in range(t.stages - 1):
            self.bring(f"{stage * t.depth}u", f"{stage}u", grid)
        with b.loop("turn", "0u", f"{steps}u", kind=self.problem.positions):
            b.line(f"rlx_await_copies<{t.stages - 2}>();")
            b.barrier()  # what was brought is there for all, and the stage before is read by all
            self.let("ahead", f"turn + {t.stages - 1}u")
            self.bring(f"ahead * {t.depth}u", f"ahead % {t.stages}u", grid)
            self.let("stage", f"turn % {t.stages}u")
            with b.unrolled("k", t.depth // unit.size):
                self._multiply(parts)
        b.line("rlx_await_copies<0>();")
        with b.unrolled("r", parts[0]), b.unrolled("c", parts[1]), b.unrolled("pair", unit.pairs):
            row = f"row0 + part_row + r * {unit.size}u + rlx_sum_row(pair)"
            column = f"column0 + part_column + c * {unit.size}u + rlx_sum_column(pair)"
            self.finish(row, column, f"sums[r * {parts[1]}u + c].each[pair * 2u", grid)

    def _multiply(self, parts: tuple[int, int]) -> None:
        """The products of one step of a unit's size along the depth, added to the sums of a subgroup."""
        b, size, dtype = self.b, self.unit.size, self.kernel.buffers[self.problem.lhs.buffer].dtype
        for name, stem, start, count, side in zip(
            ("lhs", "rhs"), "ab", ("part_row", "part_column"), parts, self.sides, strict=True
        ):
            b.line(f"rlx_{name} {stem}[{count}];")
            # A matrix whose rows are those of the result, or of the depth, is in the order that a unit reads.
            order = "" if side.is_deep is (name == "lhs") else "_transposed"
            place = side.place(f"{start} + r * {size}u", f"k * {size}u")
            with b.unrolled("r", count):
                address = f"{side.name} + stage * {side.elements}u + {place}"
                b.line(f"rlx_bring_{name}{order}({stem}[r], {address}, {side.step}u);")
        with b.unrolled("r", parts[0]), b.unrolled("c", parts[1]):
            b.line(f"rlx_multiply_{dtype}(sums[r * {parts[1]}u + c], a[r], b[c]);")
