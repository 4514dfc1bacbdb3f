"""The products that matrix units support, and their tile sizes."""

from __future__ import annotations

from math import prod
from typing import Final

from attrs import evolve

from rlx_core.codegen.loops import Buffer
from rlx_core.ir.dtypes import f32
from rlx_core.system.records import frozen
from rlx_gpu.codegen.languages import GpuDialect
from rlx_gpu.codegen.tiles import Factor, TiledProduct
from rlx_gpu.codegen.units.matrix_units import MatrixUnit
from rlx_gpu.codegen.walks import Machine

COPIED: Final = 16
"""Bytes that are copied at once."""


def copied_at_once(factor: Factor, axis: int, extent: int, buffer: Buffer) -> int:
    """Return the elements of a copy along an axis: 16 bytes where all runs begin at multiples of them, else one.

    Args:
        axis: The axis, of `extent` elements; the depth follows the axes of the problem.
    """
    outer = [*factor.strides, factor.depth]
    inner, width = outer.pop(axis), COPIED // buffer.dtype.itemsize
    is_whole = inner == buffer.dtype.itemsize and extent % width == 0
    return width if is_whole and all(s % COPIED == 0 for s in (*outer, factor.offset, buffer.alignment)) else 1


def unit_for(problem: TiledProduct, language: GpuDialect, machine: Machine) -> MatrixUnit | None:
    """Return the unit that multiplies the factors of a product, if the language and the machine have one."""
    unit, kernel = language.matrix_unit, problem.kernel
    if unit is None or machine.subgroup != unit.threads or machine.group < unit.threads:
        return None
    lhs, rhs = (kernel.buffers[f.buffer].dtype for f in (problem.lhs, problem.rhs))
    if machine.shared_nbytes < 2 * UnitTiles(unit.size, unit.size, lhs.itemsize).stage_nbytes:
        return None
    is_theirs = lhs is rhs and lhs in unit.dtypes and kernel.values[problem.element].dtype is f32
    return unit if is_theirs else None


@frozen
class UnitTiles:
    """A group's tile of the result, and its subgroups down and across it.

    Attributes:
        itemsize: Bytes of an operand's element.
        stages: Steps along the depth whose tiles are in shared memory at once.
    """

    rows: int
    columns: int
    itemsize: int
    stages: int = 2

    @property
    def depth(self) -> int:
        """Depth of the tiles of operands."""
        return 64 // self.itemsize

    @property
    def padding(self) -> int:
        """Elements that a row of a tile has more, so that rows lie in different banks and begin where copies may."""
        return COPIED // self.itemsize

    @property
    def across(self) -> int:
        """Subgroups across the tile: 32 columns each, so that a loaded factor is multiplied several times."""
        return max(self.columns // 32, 1)

    @property
    def down(self) -> int:
        """Subgroups down the tile: 32 rows each, or more if a group would have more than eight subgroups."""
        return max(min(self.rows // 32, 8 // self.across), 1)

    @property
    def subgroups(self) -> int:
        return self.down * self.across

    @property
    def stage_nbytes(self) -> int:
        """Bytes of both tiles, in whichever order they lie."""
        depth, more = self.depth, self.padding
        return self.itemsize * sum(max(n * (depth + more), depth * (n + more)) for n in (self.rows, self.columns))


def unit_tiles_of(problem: TiledProduct, machine: Machine, unit: MatrixUnit) -> UnitTiles:
    """Return tiles that are no larger than the result, enough to fill a device, and that fit into a group's shared memory."""
    *batch, m, n = problem.kernel.extents
    itemsize = problem.kernel.buffers[problem.lhs.buffer].dtype.itemsize
    tiles, units = UnitTiles(unit.tile, unit.tile, itemsize), machine.many_groups // 8

    def smaller(now: UnitTiles) -> UnitTiles:
        if now.rows > max(now.columns, unit.size):
            return evolve(now, rows=now.rows // 2)
        return evolve(now, columns=max(now.columns // 2, unit.size))

    while tiles.rows > unit.size and tiles.rows // 2 >= m:
        tiles = evolve(tiles, rows=tiles.rows // 2)
    while tiles.columns > unit.size and tiles.columns // 2 >= n:
        tiles = evolve(tiles, columns=tiles.columns // 2)
    while max(tiles.rows, tiles.columns) > 64 and prod(batch) * -(-m // tiles.rows) * -(-n // tiles.columns) < units:
        tiles = smaller(tiles)
    while tiles.subgroups * unit.threads > machine.group or 2 * tiles.stage_nbytes > machine.shared_nbytes:
        tiles = smaller(tiles)
    stages = min(machine.shared_nbytes // tiles.stage_nbytes, unit.stages, max(-(-problem.depth // tiles.depth), 2))
    return evolve(tiles, stages=stages)
