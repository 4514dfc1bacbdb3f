"""Operands of attention in the form that products read them: heads in place, packed into panels, or copied as rows of words."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Final

from rlx_core.codegen.attention import HeadStrides
from rlx_core.codegen.cuts import Cut
from rlx_core.system.records import frozen
from rlx_cpu.native.contract import aligned
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.cuts import start_of
from rlx_cpu.native.llvm.simd import Simd, counting, index, offset, times
from rlx_cpu.native.llvm.sizes import is_known
from rlx_cpu.native.llvm.words import Words
from rlx_cpu.native.products.microkernel import Right
from rlx_cpu.native.products.packing import PanelPacking, copy_row

FAR_NBYTES: Final = 1024
"""Bytes from a position to the next from which a head is packed where it is not known how many there are."""


@frozen(eq=False)
class ByPosition:
    """A head's `[positions, features]` as the right side of a product: in place, or packed.

    It is used in place if features are contiguous, unless many tiles read rows with a large stride: each row is then on a
    separate page, and the rows compete for the same few sets of L1 (1024 positions 8 KiB apart: twice the time).

    Attributes:
        words: The elements in memory and in registers.
        panels: Its features in vectors.
        tiles: Number of tiles of the left side that read all of it.
    """

    words: Words
    strides: HeadStrides
    positions: int
    features: int
    panels: Cut
    tiles: int

    @property
    def simd(self) -> Simd:
        return self.words.simd

    @property
    def is_direct(self) -> bool:
        sizes = self.simd.isa.machine.attention
        if not is_known(self.positions):
            is_near = self.strides.position < FAR_NBYTES or (is_known(self.tiles) and self.tiles == 1)
            return self.strides.feature == self.words.stored.itemsize and is_near
        is_spread = self.positions * self.strides.position >= sizes.spread_nbytes and self.tiles >= sizes.packing_tiles
        return self.strides.feature == self.words.stored.itemsize and not is_spread

    @property
    def makes_words(self) -> bool:
        """Whether elements are widened when a product reads them."""
        return self.is_direct and not self.words.stored.is_same

    def vector(self, b: ir.IRBuilder, line: ir.LlvmValue, j: int, mask: ir.LlvmValue | None) -> ir.LlvmValue:
        """Vector `j` of a panel's row."""
        if self.is_direct:
            return self.words.stored.load(b, offset(b, line, j * self.words.stored.nbytes), mask)
        return self.simd.load(b, offset(b, line, j * self.simd.nbytes), mask)

    @property
    def nbytes(self) -> int:
        """Bytes of the packed head; none where it is read in place."""
        return 0 if self.is_direct else aligned(self.columns * self.positions * self.simd.itemsize)

    @property
    def columns(self) -> int:
        """Features, whole vectors."""
        return self.panels.start(self.panels.pieces) * self.simd.lanes

    @property
    def is_partial(self) -> bool:
        """Whether the last vector reaches beyond the features where they lie."""
        return self.is_direct and self.features % self.simd.lanes != 0

    def stride(self, vectors: int) -> int:
        """Bytes from a position to the next in a panel of so many vectors."""
        return self.strides.position if self.is_direct else vectors * self.simd.nbytes

    def right(self, vectors: int) -> Right:
        """Return its layout in a panel of so many vectors."""
        align = self.words.stored.itemsize if self.is_direct else self.simd.nbytes
        return Right(self.stride(vectors), align, self.is_partial, self.makes_words)

    def ready(
        self, b: ir.IRBuilder, head: ir.LlvmValue, memory: ir.LlvmValue, end: ir.LlvmValue | None = None
    ) -> ir.LlvmValue:
        """The head where products read it; packed into `memory` if need be, up to the position `end` at least."""
        if self.is_direct:
            return head
        by = (self.strides.position, self.strides.feature)
        pack_head(b, self.words, head, by, memory, self.panels, self.positions, self.features, depth_end=end)
        return memory

    def panel(
        self, b: ir.IRBuilder, head: ir.LlvmValue, start: ir.LlvmValue, position: ir.LlvmValue, vectors: int
    ) -> ir.LlvmValue:
        """Return the address of row `position` of the panel that begins with vector `start`."""
        if self.is_direct:
            column = times(b, start, self.simd.lanes)
            return offset(b, head, (column, self.strides.feature), (position, self.strides.position))
        return offset(b, head, (start, self.simd.nbytes * self.positions), (position, vectors * self.simd.nbytes))


def pack_head(
    b: ir.IRBuilder,
    words: Words,
    source: ir.LlvmValue,
    strides: tuple[int, int],
    packed: ir.LlvmValue,
    panels: Cut,
    depth: int,
    columns: int,
    *,
    depth_end: ir.LlvmValue | None = None,
    columns_end: ir.LlvmValue | None = None,
) -> None:
    """A matrix `[depth, columns]` with any strides as panels; rows and columns from the ends on may be left out."""
    packing = PanelPacking(b, words, depth, strides, columns, depth_end)
    with counting(b, 0, panels.pieces) as panel:
        start = start_of(b, panels, panel)
        is_read = None if columns_end is None else b.icmp_signed("<", times(b, start, words.simd.lanes), columns_end)
        with nullcontext() if is_read is None else b.if_then(is_read):
            packing.pack(source, offset(b, packed, (start, words.nbytes * depth)), panels, panel)


def copy_rows(
    b: ir.IRBuilder,
    words: Words,
    source: ir.LlvmValue,
    strides: HeadStrides,
    place: ir.LlvmValue,
    rows: int | ir.LlvmValue,
    features: int,
) -> None:
    """Rows of a head as dense rows of words."""
    with counting(b, 0, rows) as row:
        left, line = offset(b, source, (row, strides.position)), offset(b, place, (row, features * words.itemsize))
        copy_row(b, words, left, line, index(0), index(features), by_k=strides.feature)
