"""The per-thread code of a product: a loop over its items.

A product is cut into *items*, a group of row tiles by a group of panels of one batch entry; threads claim contiguous ranges of
them. The order of summation of an element depends only on the shapes.
"""

from __future__ import annotations

from rlx_core.system.records import frozen
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.build import I64, Variable
from rlx_cpu.native.llvm.cuts import pieces_of, start_of
from rlx_cpu.native.llvm.simd import counting, index, offset, share
from rlx_cpu.native.llvm.sizes import sized
from rlx_cpu.native.products.entries import entry_offset
from rlx_cpu.native.products.gemm_item import Item
from rlx_cpu.native.products.gemm_plan import ProductPlan
from rlx_cpu.native.products.inner_loops import InnerLoops
from rlx_cpu.native.products.packing import PanelPacking
from rlx_cpu.native.products.panel_load import PanelLoad


@frozen(eq=False)
class GemmBuffers:
    """The buffers of a product.

    Attributes:
        buffers: The array of all addresses.
        a, source, c: Start addresses of A, B and C.
        shared: Scratch memory that all threads share, if there is any.
        thread_memory: Per-thread scratch memory.
        panels: Address of packed panels, if there are any.
    """

    buffers: ir.LlvmValue
    a: ir.LlvmValue
    source: ir.LlvmValue
    c: ir.LlvmValue
    shared: ir.LlvmValue | None
    thread_memory: ir.LlvmValue | None
    panels: ir.LlvmValue | None


@frozen(eq=False)
class Work:
    """The items of a product while their code is emitted."""

    plan: ProductPlan
    load: PanelLoad | None = None
    """The computation of a panel of B, if B is not in memory."""

    def items(
        self, b: ir.IRBuilder, addresses: GemmBuffers, part: ir.LlvmValue, parts: ir.LlvmValue, kernels: InnerLoops
    ) -> None:
        """A part's share of the items; panels that a thread packs for itself are packed when their group begins."""
        plan, p, tiles = self.plan, self.plan.product, self.plan.blocks
        group_of_packed = Variable.new(b, I64) if plan.panels == "packed" else None
        table = None if self.load is None else self.load.table(b, addresses.buffers)
        if group_of_packed is not None:
            group_of_packed.set(b, index(-1))
        # Items are counted through a group of panels or of rows, then through groups, then through batch entries.
        sizes = (tiles.row_items, tiles.panel_items)
        inner, outer = sizes if plan.goes_by_panels else reversed(sizes)
        with counting(b, *share(b, plan.items, part, parts)) as item:
            in_group, in_entry = sized(b, inner), sized(b, outer)
            first, group = b.srem(item, in_group), b.sdiv(item, in_group)
            second, entry = b.srem(group, in_entry), b.sdiv(group, in_entry)
            row_item, panel_item = (first, second) if plan.goes_by_panels else (second, first)
            work = Item(
                self, kernels, addresses.buffers, entry,
                pieces_of(b, row_item, tiles.row_tiles, tiles.rows.pieces),
                pieces_of(b, panel_item, tiles.panel_group, tiles.panels.pieces),
                a=offset(b, addresses.a, entry_offset(b, p, entry, p.a)),
                source=table or offset(b, addresses.source, entry_offset(b, p, entry, p.b)),
                c=offset(b, addresses.c, entry_offset(b, p, entry, p.c)),
                packed=addresses.panels,
                packed_rows=self._packed_rows(b, addresses, entry),
                sums=self._sums(b, addresses),
            )  # fmt: skip
            if group_of_packed is not None:
                # Items of a group read the same panels.
                with b.if_then(b.icmp_signed("!=", group_of_packed.value(b), group)):
                    work.pack_panels(b)
                    group_of_packed.set(b, group)
            work.run(b)

    def _packed_rows(self, b: ir.IRBuilder, addresses: GemmBuffers, entry: ir.LlvmValue) -> ir.LlvmValue | None:
        """Return the address of rows of A in scratch memory: shared memory, or this thread's after its panels."""
        plan = self.plan
        if plan.shares_rows and addresses.shared is not None:
            return self.rows_of(b, addresses.shared, entry)
        return None if addresses.thread_memory is None else offset(b, addresses.thread_memory, plan.own_panels)

    def _sums(self, b: ir.IRBuilder, addresses: GemmBuffers) -> ir.LlvmValue | None:
        """Return the address of this thread's partial sums, after its panels and rows."""
        plan, memory = self.plan, addresses.thread_memory
        return None if memory is None else offset(b, memory, plan.own_panels + plan.own_rows)

    def rows_of(self, b: ir.IRBuilder, shared: ir.LlvmValue, entry: ir.LlvmValue) -> ir.LlvmValue:
        """Return the address of an entry's rows of A in shared memory."""
        return offset(b, shared, self.plan.shared_panels, (entry, self.plan.entry_rows))

    def panel(self, b: ir.IRBuilder, panel: ir.LlvmValue, matrix: ir.LlvmValue) -> ir.LlvmValue:
        """Return the start address of a panel of a packed matrix."""
        plan = self.plan
        return offset(b, matrix, (start_of(b, plan.blocks.panels, panel), plan.vector_nbytes * plan.panel_words))

    def pack_panel(self, b: ir.IRBuilder, panel: ir.LlvmValue, source: ir.LlvmValue, place: ir.LlvmValue) -> None:
        """Pack a panel of the matrix at `source`, over all of K, or compute it from the arrays in the table there."""
        if self.load is not None:
            self.load.emit(b, panel, index(0), source, place)
            return
        p, words, panels = self.plan.product, self.plan.words, self.plan.blocks.panels
        PanelPacking(b, words, p.k, (p.b.by_row, p.b.by_column), p.n).pack(source, place, panels, panel)
