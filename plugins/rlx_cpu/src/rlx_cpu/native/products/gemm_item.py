"""One item of a product: its blocks of K, the panels in each, the row tiles in each of those."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from rlx_core.codegen.product import MatrixProduct
from rlx_core.ir.dims import Dim
from rlx_core.system.records import frozen
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.build import POINTER
from rlx_cpu.native.llvm.cuts import start_of
from rlx_cpu.native.llvm.simd import counting, index, offset, times
from rlx_cpu.native.llvm.sizes import is_known, sized
from rlx_cpu.native.products.entries import b_entry, row_offset
from rlx_cpu.native.products.gemm_plan import AT_HAND, ProductPlan
from rlx_cpu.native.products.gemm_rows import PackedRows
from rlx_cpu.native.products.inner_loops import InnerLoops
from rlx_cpu.native.products.microkernel import MicrokernelArguments
from rlx_cpu.native.products.row_tiles import RowTile, row_tiles

if TYPE_CHECKING:
    from rlx_cpu.native.products.gemm_work import Work


@frozen(eq=False)
class Item:
    """One item while its code is emitted.

    Attributes:
        a, source, c: Start addresses of the batch entry's A, B and C; for a load, its table in place of B.
        packed: Packed panels: of all of B, or of this item.
        packed_rows: Rows of A in scratch memory.
        sums: Address of partial sums, if they are not in C.
    """

    work: Work
    kernels: InnerLoops
    buffers: ir.LlvmValue
    entry: ir.LlvmValue
    row_range: tuple[ir.LlvmValue, ir.LlvmValue]
    panel_range: tuple[ir.LlvmValue, ir.LlvmValue]
    a: ir.LlvmValue
    source: ir.LlvmValue
    c: ir.LlvmValue
    packed: ir.LlvmValue | None
    packed_rows: ir.LlvmValue | None
    sums: ir.LlvmValue | None

    @property
    def plan(self) -> ProductPlan:
        return self.work.plan

    @property
    def product(self) -> MatrixProduct:
        return self.plan.product

    def pack_panels(self, b: ir.IRBuilder) -> None:
        """Pack the item's panels into the thread's workspace, over all of K."""
        with counting(b, *self.panel_range) as panel:
            self.work.pack_panel(b, panel, self.source, self._packed_panel(b, panel))

    def run(self, b: ir.IRBuilder) -> None:
        """Blocks of K, panels in each, tiles in each."""
        p, plan, tiles = self.product, self.plan, self.plan.blocks
        step = max(tiles.depth, 1) if is_known(tiles.depth) else tiles.depth
        with counting(b, 0, max(plan.k, 1) if is_known(plan.k) else plan.k, step) as k0:
            left, depth = b.sub(sized(b, plan.k), k0), sized(b, tiles.depth)
            is_last = b.icmp_signed("<=", left, depth)
            count = b.select(is_last, left, depth)
            is_first = b.icmp_signed("==", k0, index(0))
            run = index(0) if plan.run is None else b.sdiv(k0, sized(b, plan.run))
            if plan.owns_rows:
                self._own_rows(k0, count).pack(b, self.row_range, index(0), count)
            with counting(b, *self.panel_range) as panel:
                panel_place, column = self._panel(b, panel, k0)
                if plan.panels == "loaded" and self.work.load is not None:
                    self.work.load.emit(b, panel, k0, self.source, panel_place)
                next_panel = self._next_panel(b, panel, k0, count) if plan.sharers else panel_place
                with row_tiles(b, tiles.rows, self.row_range, plan.sharers) as tile:
                    c = offset(b, self.c, row_offset(b, tile, p.c, p.result_lines), (column, p.c.by_column))
                    a = self._rows(b, tile, k0, count)
                    sums = self._sums(b, tile.number, panel)
                    arguments = MicrokernelArguments(
                        a, panel_place, c, sums, next_panel, count, is_first, is_last,
                        self.entry, tile.row, column, self.buffers, run,
                    )  # fmt: skip
                    self.kernels(b, tile, panel, arguments, partial(self._prefetched, b, next_panel, tile, count))

    def _panel(self, b: ir.IRBuilder, panel: ir.LlvmValue, k0: ir.LlvmValue) -> tuple[ir.LlvmValue, ir.LlvmValue]:
        """Return the address of a panel's rows from word `k0` on, and its first column."""
        p, plan = self.product, self.plan
        first = start_of(b, plan.blocks.panels, panel)
        column = times(b, first, plan.words.simd.lanes)
        if plan.panels == "direct":
            by_word = p.b.by_row * plan.words.per_word
            return offset(b, self.source, (column, p.b.by_column), (k0, by_word)), column
        if plan.panels == "loaded":
            assert self.packed is not None, "a thread has memory for a block of a panel"
            return self.packed, column
        width = b.sub(start_of(b, plan.blocks.panels, b.add(panel, index(1))), first)
        row = b.add(k0, index(plan.head)) if plan.head else k0
        return offset(b, self._packed_panel(b, panel), b.mul(row, times(b, width, plan.vector_nbytes))), column

    def _next_panel(self, b: ir.IRBuilder, panel: ir.LlvmValue, k0: ir.LlvmValue, count: ir.LlvmValue) -> ir.LlvmValue:
        """Return the address of the next panel to be read: one of the item, the first of its next block, or another item's."""
        first, end = self.panel_range
        after = b.add(panel, index(1))
        is_next = b.icmp_signed("<", after, end)
        k1 = b.select(is_next, k0, b.add(k0, count))
        is_block = b.icmp_signed("<", k1, sized(b, self.plan.k))
        return self._panel(
            b, b.select(is_next, after, b.select(is_block, first, end)), b.select(is_block, k1, index(0))
        )[0]

    def _prefetched(
        self, b: ir.IRBuilder, next_panel: ir.LlvmValue, tile: RowTile, count: ir.LlvmValue, share: Dim | ir.LlvmValue
    ) -> ir.LlvmValue:
        """Return the part of the next panel that a tile prefetches: `share` bytes of every step."""
        if tile.turn is None:
            return next_panel
        turn = b.mul(tile.turn, count)
        return offset(b, next_panel, b.mul(turn, share) if isinstance(share, ir.LlvmValue) else times(b, turn, share))

    def _packed_panel(self, b: ir.IRBuilder, panel: ir.LlvmValue) -> ir.LlvmValue:
        """Return the start address of a packed panel: among all panels of its matrix, or among those of the item."""
        plan = self.plan
        assert self.packed is not None, "panels are packed"
        if plan.panels in AT_HAND:
            matrix = self.packed
            if self.product.batch:
                matrix = offset(b, matrix, (b_entry(b, self.product, self.entry), plan.packed_nbytes))
            return self.work.panel(b, panel, matrix)
        panels = plan.blocks.panels
        before = b.sub(start_of(b, panels, panel), start_of(b, panels, self.panel_range[0]))
        return offset(b, self.packed, (before, plan.vector_nbytes * plan.panel_words))

    def _rows(self, b: ir.IRBuilder, tile: RowTile, k0: ir.LlvmValue, count: ir.LlvmValue) -> ir.LlvmValue:
        """Return the address of a tile's part of A, from word `k0` on."""
        a, plan = self.product.a, self.plan
        if plan.rows == "direct":
            first = 0 if plan.run is not None else times(b, k0, a.by_column * plan.words.per_word)
            return offset(b, self.a, row_offset(b, tile, a, self.product.lines), first)
        if plan.owns_rows:
            return self._own_rows(k0, count).tile(b, tile.number, tile.row, index(0))
        assert self.packed_rows is not None, "there is a workspace"
        return PackedRows(plan, self.a, self.packed_rows).tile(b, tile.number, tile.row, k0)

    def _own_rows(self, k0: ir.LlvmValue, count: ir.LlvmValue) -> PackedRows:
        assert self.packed_rows is not None, "there is a workspace"
        return PackedRows(self.plan, self.a, self.packed_rows, self.row_range[0], k0, count)

    def _sums(self, b: ir.IRBuilder, tile: ir.LlvmValue, panel: ir.LlvmValue) -> ir.LlvmValue:
        """Return the address of a tile's partial sums."""
        plan = self.plan
        if not plan.parks_sums:
            return ir.LlvmConstant(POINTER, None)
        assert self.sums is not None, "there is a workspace"
        in_panel, in_group = b.sub(tile, self.row_range[0]), b.sub(panel, self.panel_range[0])
        number = b.add(times(b, in_group, plan.blocks.row_tiles), in_panel)
        return offset(b, self.sums, (number, plan.tile_sums))
