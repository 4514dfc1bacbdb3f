"""Operations on a product's sums before they are stored: bias, activation, regions of ops, as stages on vectors.

A stage maps a vector of sums to another of the same shape; its argument is the position of the elements. Cheap stages run on
the accumulators; stages with long polynomials run on the finished tile while it is in L1, one row at a time,
because inlining them for every accumulator would be most of the code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rlx_core.ir.dtypes import DType
from rlx_core.system.records import frozen
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.build import I32, register_type
from rlx_cpu.native.llvm.simd import Simd, index, offset, times
from rlx_cpu.native.llvm.stored import Stored


@frozen(eq=False)
class TileElements:
    """Position of a vector's elements: `row`, and columns from `column` on.

    Attributes:
        batch: Index of the product in a batch.
        mask: The lanes that exist; `None` for all.
        tile: The first row of its tile, and `ahead`, how many rows after that it is.
    """

    batch: ir.LlvmValue
    row: ir.LlvmValue
    column: ir.LlvmValue
    mask: ir.LlvmValue | None
    tile: ir.LlvmValue
    ahead: ir.LlvmValue


Stage = Callable[[ir.IRBuilder, ir.LlvmValue, TileElements], ir.LlvmValue]

Prefetch = Callable[[ir.IRBuilder, TileElements], None]
"""Prefetches the elements that stages will read at a position, well in advance."""


@frozen(eq=False)
class GemmEpilogue:
    """An ordered list of stages.

    Attributes:
        stages: The stages.
        is_long: Whether the stages are too long to be repeated for every accumulator.
        prefetches: Prefetches of their operands into L2 while the sums are computed: a tile reads a few lines of many rows, a
            pattern that hardware prefetchers do not detect.
    """

    stages: tuple[Stage, ...] = ()
    is_long: bool = False
    prefetches: tuple[Prefetch, ...] = ()

    def apply(self, b: ir.IRBuilder, value: ir.LlvmValue, position: TileElements) -> ir.LlvmValue:
        for stage in self.stages:
            value = stage(b, value, position)
        return value

    def then(self, stage: Stage, *, is_long: bool = False, prefetches: Sequence[Prefetch] = ()) -> GemmEpilogue:
        """These stages and another."""
        return GemmEpilogue((*self.stages, stage), self.is_long or is_long, (*self.prefetches, *prefetches))


@frozen(eq=False)
class EpilogueOperand:
    """A row that a stage reads: its address, the stride of its columns in bytes, and its dtype.

    Loaded values are in the register representation of that dtype: f32 for 16-bit floats, a mask for bools.
    """

    pointer: ir.LlvmValue
    by_column: int
    dtype: DType

    def load(self, b: ir.IRBuilder, simd: Simd, position: TileElements) -> ir.LlvmValue:
        """Return the elements at a position; broadcast along columns with stride 0."""
        stored = Stored.next_to(simd, self.dtype)
        place = offset(b, self.pointer, times(b, position.column, self.by_column))
        if self.by_column == stored.itemsize:
            return stored.load(b, place, position.mask)
        if self.by_column == 0:
            return simd.splat(b, stored.load_scalar(b, place))
        return _spread(b, stored, place, self.by_column, position)


def add(simd: Simd, operand: EpilogueOperand) -> Stage:
    """Add a row, such as a bias with one number per column; it is loaded once for all rows of a tile."""
    repeated: dict[str, ir.LlvmValue] = {}

    def stage(b: ir.IRBuilder, value: ir.LlvmValue, position: TileElements) -> ir.LlvmValue:
        column = position.column.text
        if column not in repeated:
            repeated[column] = operand.load(b, simd, position)
        return b.fadd(value, repeated[column])

    return stage


def _spread(b: ir.IRBuilder, stored: Stored, place: ir.LlvmValue, stride: int, position: TileElements) -> ir.LlvmValue:
    """Load elements with a stride of `stride` bytes; lanes beyond the end repeat the first."""
    simd = stored.simd
    value: ir.LlvmValue = ir.LlvmConstant(register_type(stored.dtype, simd.lanes), ir.Undefined)
    for lane in range(simd.lanes):
        where = ir.LlvmConstant(I32, lane)
        step: ir.LlvmValue = index(lane * stride)
        if position.mask is not None:
            step = b.select(b.extract_element(position.mask, where), step, index(0))
        value = b.insert_element(value, stored.load_scalar(b, offset(b, place, step)), where)
    return value
