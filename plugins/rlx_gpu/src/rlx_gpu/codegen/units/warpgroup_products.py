"""Products by warpgroups: both tiles in shared memory in the order that a unit reads, sums in f32 in registers.

A group is one or two warpgroups, with 64 rows of a tile each. While the unit multiplies a step along the depth, the threads ask
for the copies of one further ahead; then they wait for the unit, so that the tiles it has read may be written again. How tiles
are brought, and what becomes of the sums, is `tiled_products`' matter.
"""

from __future__ import annotations

from math import prod
from typing import Final

from rlx_core.codegen.scalars.table import ScalarTable
from rlx_core.emit.emitters import Emitted
from rlx_core.ir.dtypes import DType, bf16, f16
from rlx_core.system.records import define, frozen
from rlx_gpu.codegen.languages import GpuDialect
from rlx_gpu.codegen.tiles import TiledProduct
from rlx_gpu.codegen.units.tiled_products import Side, TilePrinting, paired_values
from rlx_gpu.codegen.units.tiles import COPIED
from rlx_gpu.codegen.units.warpgroup_matrices import COLUMNS, PANEL
from rlx_gpu.codegen.walks import Machine

THREADS: Final = 128
"""Threads of a warpgroup."""

ROWS: Final = 64
"""Rows of one instruction, and depth of a tile."""

UNIT_DEPTH: Final = 16

SHARED_NBYTES: Final = 96 << 10
"""Maximum shared memory of a group: two groups fit into a multiprocessor, so one multiplies while the other waits or stores."""

FEWEST_STEPS: Final = 3
"""Minimum number of steps along the depth; with fewer, copies are hardly ahead of the products."""


@frozen
class WarpgroupTiles:
    """A group's tile of the result, a warpgroup for every 64 rows, and how many steps' tiles are in shared memory at once."""

    warpgroups: int
    stages: int = 2

    @property
    def rows(self) -> int:
        return self.warpgroups * ROWS

    @property
    def stage_nbytes(self) -> int:
        return (self.rows + COLUMNS) * PANEL * 2


def warpgroup_refusal(lhs: DType, rhs: DType, machine: Machine) -> str | None:
    """Return why products of factors of these dtypes cannot use warpgroups, as "needs …" would continue."""
    if lhs is not rhs or lhs not in (f16, bf16):
        return "factors that are both f16 or both bf16"
    if machine.subgroup != 32 or machine.group < THREADS:
        return f"groups of {THREADS} threads, 32 of them in step"
    return None


def refusal_of_sizes(extents: tuple[int, ...], depth: int, machine: Machine) -> str | None:
    """Return why a product is too small, too narrow or not aligned enough to pay, as "needs …" would continue.

    Args:
        extents: Extents of the result, batch axes first.
    """
    *batch, m, n = extents
    per_copy = COPIED // 2
    if depth < FEWEST_STEPS * PANEL:
        return f"a depth of at least {FEWEST_STEPS * PANEL}, not {depth}"
    if depth % per_copy or n % per_copy:
        return f"depth and columns in multiples of {per_copy}, which are copied at once, not {depth} and {n}"
    required, tiles = _enough(machine), prod(batch) * -(-m // ROWS) * -(-n // COLUMNS)
    if tiles < required:
        return f"at least {required} tiles of {ROWS} by {COLUMNS}, not {tiles}"
    if 2 * m * n < -(-m // ROWS) * ROWS * -(-n // COLUMNS) * COLUMNS:
        return f"tiles of {ROWS} by {COLUMNS} that are filled by half, not {m} by {n}"
    return None


def _enough(machine: Machine) -> int:
    """Tiles that fill a device: one for each multiprocessor of a large one."""
    return machine.many_groups // 8


def warpgroup_tiles_of(problem: TiledProduct, machine: Machine) -> WarpgroupTiles:
    """Return the tiles: two warpgroups if there is enough work, and as many stages as fit into shared memory."""
    *batch, m, n = problem.kernel.extents
    tall = prod(batch) * -(-m // (2 * ROWS)) * -(-n // COLUMNS)
    count = 2 if m > ROWS and tall >= _enough(machine) and machine.group >= 2 * THREADS else 1
    steps = -(-problem.depth // PANEL)
    return WarpgroupTiles(count, min(SHARED_NBYTES // WarpgroupTiles(count).stage_nbytes, max(steps, 2)))


def print_warpgroup_product(
    problem: TiledProduct, language: GpuDialect, machine: Machine, scalars: ScalarTable
) -> Emitted:
    """The function that computes a product of f16 or bf16 with sums in f32."""
    tiles = warpgroup_tiles_of(problem, machine)
    values = paired_values(problem, language, scalars, tiles.warpgroups * THREADS)
    printing, shared, place = _Printing(problem, values, tiles), ["rlx_dynamic(tiles);"], 0
    for side in printing.sides:
        shared.append(f"{side.type}* const {side.name} = ({side.type}*)(tiles + {place}u);")
        place += side.elements * side.dtype.itemsize * tiles.stages
    return printing.done(machine, tiles.rows, COLUMNS, shared, dynamic_nbytes=place)


@frozen
class _Panels(Side):
    """Rows of 64 elements, along the axis whose neighbours are neighbours; more of them are in the panels that follow."""

    @property
    def elements(self) -> int:
        return self.size * self.depth

    @property
    def lines(self) -> int:
        """Rows of a panel."""
        return self.size if self.is_deep else self.depth

    @property
    def unit_step(self) -> int:
        """Elements from the operands of one instruction to the next along the depth."""
        return UNIT_DEPTH if self.is_deep else UNIT_DEPTH * PANEL

    def place(self, along: str, depth: str) -> str:
        row, column = (along, depth) if self.is_deep else (depth, along)
        return f"rlx_exchanged_place({row}, {column}, {self.lines}u)"


@define(eq=False)
class _Printing(TilePrinting[_Panels]):
    """The text of one product while it is written."""

    tiles: WarpgroupTiles

    def __attrs_post_init__(self) -> None:
        self.sides = self.sided(_Panels, self.tiles.rows, COLUMNS, PANEL)

    def tile(self, grid: dict[int, str]) -> None:
        b, stages = self.b, self.tiles.stages
        self.let("part", f"{b.language.thread} / {THREADS}u")
        b.line("rlx_wide_sums sums = {};")
        for stage in range(stages - 1):
            self.bring(f"{stage * PANEL}u", f"{stage}u", grid)
        with b.loop("turn", "0u", f"{-(-self.problem.depth // PANEL)}u", kind=self.problem.positions):
            b.line(f"rlx_await_copies<{stages - 2}>();")
            b.line("rlx_show_units();")
            b.line("rlx_await_products(sums);")
            b.barrier()  # what was brought is there for all, and the stage before is read by all
            self.let("stage", f"turn % {stages}u")
            self._multiply()
            self.let("ahead", f"turn + {stages - 1}u")
            self.bring(f"ahead * {PANEL}u", f"ahead % {stages}u", grid)
        b.line("rlx_await_copies<0>();")
        b.line("rlx_await_products(sums);")
        with b.unrolled("pair", COLUMNS // 4):
            row = f"row0 + {b.language.thread} / 32u * 16u + rlx_sum_row(pair)"
            self.finish(row, "column0 + rlx_sum_column(pair)", "sums.each[pair * 2u", grid)

    def _multiply(self) -> None:
        """Issue the products of one step."""
        b, (lhs, rhs) = self.b, self.sides
        places = [f"{side.name} + stage * {side.elements}u + k * {side.unit_step}u" for side in self.sides]
        # 64 rows are as many elements in either order: 64 lines of a panel, or a panel of 64 lines.
        factors = f"{places[0]} + part * {ROWS * PANEL}u", places[1]
        b.line("rlx_products_begin(sums);")
        with b.unrolled("k", PANEL // UNIT_DEPTH):
            panels = [f"{side.lines * PANEL * side.dtype.itemsize}u" for side in self.sides]
            a, c = (f"rlx_factor({place}, {panel})" for place, panel in zip(factors, panels, strict=True))
            orders = f"{int(not lhs.is_deep)}u, {int(not rhs.is_deep)}u"
            b.line(f"rlx_multiply_wide_{lhs.dtype}<{orders}>(sums, {a}, {c});")
        b.line("rlx_products_end();")
