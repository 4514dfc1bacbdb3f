"""The function around the inner loop of a product: what a thread does of it, in which order.

A product is cut into *items*, a group of row tiles by a group of panels of one batch entry; threads claim contiguous ranges of
them. What an element's sum adds up in which order depends on the shapes alone.
"""

from __future__ import annotations

from collections.abc import Callable

from attrs import frozen

from rlx_cpu.native import ir
from rlx_cpu.native.build import I64, KERNEL
from rlx_cpu.native.contract import Emitted, Layout, Pack
from rlx_cpu.native.cuts import pieces_of, start_of
from rlx_cpu.native.epilogue import Epilogue
from rlx_cpu.native.gemm_item import Item
from rlx_cpu.native.gemm_plan import SERIAL_PRODUCTS, Plan
from rlx_cpu.native.gemm_rows import PACKED_STEPS, PackedRows, row_strides
from rlx_cpu.native.gemm_tiles import UNROLL
from rlx_cpu.native.microkernel import Microkernel
from rlx_cpu.native.packing import pack_panel
from rlx_cpu.native.simd import Simd, counting, index, offset, pointer_at, share

__all__ = ["Driver", "MakeEpilogue"]

MakeEpilogue = Callable[[Simd, ir.IRBuilder, ir.Value], Epilogue]
"""Builds the stages inside a microkernel, from the buffers that the kernel is given."""


@frozen(eq=False)
class Driver:
    """One product while its function is emitted."""

    plan: Plan
    layout: Layout
    name: str
    epilogue: MakeEpilogue

    def emit(self) -> Emitted:
        plan, p = self.plan, self.plan.product
        function = ir.Function(plan.words.simd.module, KERNEL, self.name)
        b = ir.IRBuilder(function.append_basic_block("entry"))
        if not (p.m and p.n and p.entries):
            b.ret_void()
            return Emitted(self.name, uses_threads=False)
        self._items(b, function.args, self._microkernels())
        b.ret_void()
        packs: tuple[Pack, ...] = ()
        if plan.panels == "ahead":
            packs = (Pack(1, plan.packed_nbytes * p.b_entries, plan.form, plan.blocks.widths),)
        return Emitted(
            function=self.name,
            packs=packs,
            workspace=plan.own,
            shared_workspace=plan.shared,
            uses_threads=plan.products >= SERIAL_PRODUCTS,
            parts=plan.parts,
            prologue=self._prologue() if plan.shared else None,
            notes={
                "tile": plan.blocks.tile,
                "depth": plan.blocks.depth * plan.words.per_word,
                "panels": plan.panels,
                **({"rows": plan.rows} if plan.rows != "direct" else {}),
                **({"products": "pairs of bf16"} if plan.words.is_pair else {}),
            },
        )

    def _prologue(self) -> str:
        """The function that packs what all items read: panels of B, rows of A."""
        plan, p, name = self.plan, self.plan.product, f"{self.name}.pack"
        function = ir.Function(plan.words.simd.module, KERNEL, name)
        b = ir.IRBuilder(function.append_basic_block("entry"))
        buffers, part, parts, _ = function.args
        shared = pointer_at(b, buffers, len(self.layout.operands) + len(self.layout.results))
        if plan.shared_panels:
            source, panels = pointer_at(b, buffers, 1), plan.blocks.panels
            with counting(b, *share(b, p.b_entries * panels.pieces, part, parts)) as unit:
                panel, matrix = b.srem(unit, index(panels.pieces)), b.sdiv(unit, index(panels.pieces))
                place = offset(b, shared, (matrix, plan.packed_nbytes))
                self.pack_panel(b, panel, offset(b, source, p.b_offset(b, matrix)), self.panel(b, panel, place))
        if plan.shared_rows:
            self._pack_rows(b, pointer_at(b, buffers, 0), shared, part, parts)
        b.ret_void()
        return name

    def _pack_rows(self, b: ir.IRBuilder, a: ir.Value, shared: ir.Value, part: ir.Value, parts: ir.Value) -> None:
        """A part's share of packing A: copies tile by tile, transposed rows by ranges of k."""
        plan, p = self.plan, self.plan.product
        tiles = plan.blocks.rows.pieces
        by_tile = plan.rows == "copied"
        rounds = tiles if by_tile else -(-plan.k // PACKED_STEPS)
        with counting(b, *share(b, p.entries * rounds, part, parts)) as unit:
            turn, entry = b.srem(unit, index(rounds)), b.sdiv(unit, index(rounds))
            rows = PackedRows(plan, offset(b, a, p.entry_offset(b, entry, p.a)), self._rows_of(b, shared, entry))
            if by_tile:
                rows.pack(b, (turn, b.add(turn, index(1))), index(0), index(plan.k))
            else:
                low, high = pieces_of(b, turn, PACKED_STEPS, plan.k)
                rows.pack(b, (index(0), index(tiles)), low, high)

    def _rows_of(self, b: ir.IRBuilder, shared: ir.Value, entry: ir.Value) -> ir.Value:
        return offset(b, shared, self.plan.shared_panels, (entry, self.plan.entry_rows))

    def panel(self, b: ir.IRBuilder, panel: ir.Value, matrix: ir.Value) -> ir.Value:
        """Where a panel of a packed matrix starts."""
        plan = self.plan
        return offset(b, matrix, (start_of(b, plan.blocks.panels, panel), plan.vector_nbytes * plan.k))

    def pack_panel(self, b: ir.IRBuilder, panel: ir.Value, source: ir.Value, place: ir.Value) -> None:
        """Pack a panel of the matrix at `source`, over all of K."""
        p, words, panels = self.plan.product, self.plan.words, self.plan.blocks.panels
        strides = p.b.by_row, p.b.by_column
        pack_panel(b, words, source, place, panels, panel, depth=p.k, strides=strides, columns=p.n)

    def _microkernels(self) -> dict[tuple[int, int], ir.Function]:
        """The inner loop for every height and width that occurs."""
        plan, p, words, tiles = self.plan, self.plan.product, self.plan.words, self.plan.blocks
        partial = p.n % words.simd.lanes != 0
        is_direct = plan.panels == "direct"
        found = {}
        for rows in tiles.rows.sizes:
            for vectors in tiles.panels.sizes:
                found[rows, vectors] = Microkernel(
                    words=words,
                    rows=rows,
                    vectors=vectors,
                    a_strides=row_strides(plan, rows),
                    b_stride=p.b.by_row * words.per_word if is_direct else vectors * plan.vector_nbytes,
                    b_align=words.stored.itemsize if is_direct else plan.vector_nbytes,
                    result=plan.result,
                    c_strides=(p.c.by_row, p.c.by_column),
                    columns=p.n if partial else None,
                    masks_b=partial and is_direct,
                    makes_words=plan.makes_words,
                    accumulates=tiles.depth < plan.k,
                    is_even=plan.k > 0
                    and plan.k % UNROLL == 0
                    and (tiles.depth >= plan.k or tiles.depth % UNROLL == 0),
                    sums_stride=vectors * words.nbytes if plan.parks_sums else None,
                    sharers=plan.sharers,
                    asks_result=plan.asks_result,
                    epilogue=self.epilogue,
                ).emit(f"{self.name}.tile{rows}x{vectors}")
        return found

    def _items(
        self, b: ir.IRBuilder, arguments: tuple[ir.Argument, ...], kernels: dict[tuple[int, int], ir.Function]
    ) -> None:
        buffers, part, parts, thread = arguments
        plan, p, tiles, operands = self.plan, self.plan.product, self.plan.blocks, len(self.layout.operands)
        a, source, c = (pointer_at(b, buffers, i) for i in (0, 1, operands))
        after = operands + len(self.layout.results)
        shared = pointer_at(b, buffers, after) if plan.shared + plan.own else None
        own = None if shared is None else offset(b, shared, plan.shared, (thread, plan.own))
        packed = shared if plan.panels == "shared" else own
        if plan.panels == "ahead":
            packed = pointer_at(b, buffers, after + (shared is not None))
        group_of_packed = b.alloca(I64)
        b.store(index(-1), group_of_packed, align=8)
        with counting(b, *share(b, plan.items, part, parts)) as item:
            sizes = (tiles.row_items, tiles.panel_items)
            inner, outer = sizes if plan.goes_by_panels else reversed(sizes)
            first, group = b.srem(item, index(inner)), b.sdiv(item, index(inner))
            second, entry = b.srem(group, index(outer)), b.sdiv(group, index(outer))
            row_item, panel_item = (first, second) if plan.goes_by_panels else (second, first)
            work = Item(
                self, kernels, buffers, entry,
                pieces_of(b, row_item, tiles.row_tiles, tiles.rows.pieces),
                pieces_of(b, panel_item, tiles.panel_group, tiles.panels.pieces),
                a=offset(b, a, p.entry_offset(b, entry, p.a)),
                source=offset(b, source, p.entry_offset(b, entry, p.b)),
                c=offset(b, c, p.entry_offset(b, entry, p.c)),
                packed=packed,
                packed_rows=self._rows_of(b, shared, entry) if plan.shares_rows and shared is not None
                else None if own is None else offset(b, own, plan.own_panels),
                sums=None if own is None else offset(b, own, plan.own_panels + plan.own_rows),
            )  # fmt: skip
            if plan.panels == "packed":
                with b.if_then(b.icmp_signed("!=", b.load(group_of_packed, typ=I64, align=8), group)):
                    work.pack_panels(b)
                    b.store(group, group_of_packed, align=8)
            work.run(b)
