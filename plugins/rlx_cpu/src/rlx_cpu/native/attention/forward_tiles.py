"""Attention forward: a tile of queries against blocks of keys, with an online softmax and no matrix of weights in memory.

For each tile of rows: scores of one block of keys (a small product whose right side is the transposed keys, packed once a
head), then scale, cap, bias and masks and the running maximum and sum of each row, then the block's weights times its values
added to the tile's result. Blocks that the mask hides from a whole tile are skipped. Which block comes when depends on the
shapes alone, so threads, which take whole tiles, change no bit.
"""

from __future__ import annotations

from attrs import evolve

from rlx_core.system.records import frozen
from rlx_cpu.native.attention.cut import products_of
from rlx_cpu.native.attention.forward_plan import AttentionTile, ForwardPlan
from rlx_cpu.native.attention.forward_products import ForwardProducts
from rlx_cpu.native.attention.forward_row import clear_rows, deliver_rows, weigh_rows
from rlx_cpu.native.attention.operands import copy_rows, pack_head
from rlx_cpu.native.attention.parts import Logits, ScoreRows
from rlx_cpu.native.attention.plan import K, Q, V
from rlx_cpu.native.contract import Emitted
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.build import KERNEL, Variable, least
from rlx_cpu.native.llvm.cuts import by_size, pieces_of, start_of
from rlx_cpu.native.llvm.simd import counting, index, offset, pointer_at, share, times
from rlx_cpu.native.llvm.sizes import sized


@frozen(eq=False)
class Forward:
    """The function of one attention while it is emitted."""

    plan: ForwardPlan
    name: str

    def emit(self) -> Emitted:
        plan, p = self.plan, self.plan.problem
        b = ir.new_function(plan.simd.module, KERNEL, self.name)
        is_empty = plan.cut.is_known and not (plan.cut.items and p.width)
        if not is_empty:
            self._items(b, b.function.args)
        b.ret_void()
        return Emitted(
            self.name,
            workspace=0 if is_empty else plan.workspace,
            uses_threads=not plan.cut.is_known or products_of(p) >= plan.simd.isa.machine.serial_products,
            parts=plan.cut.parts if plan.cut.is_known else 0,
            notes={
                "tile": f"{plan.cut.rows.size}x{plan.cut.panels.size * plan.cut.lanes}",
                "keys": plan.cut.block_columns,
            },
        )

    def _items(self, b: ir.IRBuilder, arguments: tuple[ir.FunctionArgument, ...]) -> None:
        buffers, part, parts, thread = arguments
        plan, p = self.plan, self.plan.problem
        products = ForwardProducts(plan, self.name, buffers)
        operands = len(plan.layout.operands)
        q, k, v, out = (pointer_at(b, buffers, i) for i in (Q, K, V, operands))
        thread_memory = offset(b, pointer_at(b, buffers, operands + 1), (thread, plan.workspace))
        q_at, k_at, v_at, out_at = plan.operand(Q), plan.operand(K), plan.operand(V), plan.result(Q)
        packed_values = offset(b, thread_memory, plan.keys_nbytes)
        tile_memory = [offset(b, packed_values, plan.values.nbytes)]
        for nbytes in plan.tile_nbytes[:-1]:
            tile_memory.append(offset(b, tile_memory[-1], nbytes))
        logits = Logits(plan.placed, plan.simd, buffers)
        packed_head = Variable.of(b, index(-1))
        low, high = share(b, plan.cut.items, part, parts)
        row_items = sized(b, plan.cut.row_items)
        with counting(b, low, high) as item:
            row_item, remaining = b.srem(item, row_items), b.sdiv(item, row_items)
            head, batch = b.srem(remaining, index(p.heads)), b.sdiv(remaining, index(p.heads))
            kv_head = b.sdiv(head, index(p.heads // p.kv_heads))
            keys = offset(b, k, (batch, k_at.batch), (kv_head, k_at.head))
            values = offset(b, v, (batch, v_at.batch), (kv_head, v_at.head))
            which = b.add(times(b, batch, p.kv_heads), kv_head)
            valid = logits.valid(b, batch)
            with b.if_then(b.icmp_signed("!=", packed_head.value(b), which)):
                if not plan.reads_keys:
                    by = (k_at.feature, k_at.position)
                    pack_head(
                        b,
                        plan.key_words,
                        keys,
                        by,
                        thread_memory,
                        plan.cut.panels,
                        p.features,
                        p.keys,
                        columns_end=valid,
                    )
                plan.values.ready(b, values, packed_values, end=valid)
                packed_head.set(b, which)
            values = values if plan.values.is_direct else packed_values
            with counting(b, *pieces_of(b, row_item, plan.cut.group, plan.cut.rows.pieces)) as piece:
                first = start_of(b, plan.cut.rows, piece)
                for rows in by_size(b, plan.cut.rows, piece):
                    tile = AttentionTile(
                        ScoreRows(batch, head, first, valid), rows,
                        offset(b, q, (batch, q_at.batch), (head, q_at.head), (first, q_at.position)),
                        keys if plan.reads_keys else thread_memory, values,
                        offset(b, out, (batch, out_at.batch), (head, out_at.head), (first, out_at.position)),
                        *tile_memory,
                    )  # fmt: skip
                    self._tile(b, tile, products, logits)

    def _tile(self, b: ir.IRBuilder, tile: AttentionTile, products: ForwardProducts, logits: Logits) -> None:
        """All blocks of keys that a tile's rows may see, then the division by the totals."""
        plan, p, lanes = self.plan, self.plan.problem, self.plan.simd.lanes
        clear_rows(b, plan, tile)
        if plan.copies_queries:
            copy_rows(b, plan.words, tile.q, plan.operand(Q), tile.queries, tile.rows, p.features)
            tile = evolve(tile, q=tile.queries)
        low, high = logits.visible(b, tile.score_rows.first, tile.rows, tile.score_rows.valid)
        with counting(b, 0, plan.cut.panels.pieces, plan.cut.block) as panel:
            panel_end = least(b, b.add(panel, sized(b, plan.cut.block)), sized(b, plan.cut.panels.pieces))
            first_key = times(b, start_of(b, plan.cut.panels, panel), lanes)
            end = least(b, times(b, start_of(b, plan.cut.panels, panel_end), lanes), high)
            with b.if_then(b.and_(b.icmp_signed("<", first_key, end), b.icmp_signed(">", end, low))):
                products.scores(b, tile, (panel, panel_end), (first_key, end))
                count = b.sub(end, first_key)
                weigh_rows(b, plan, tile, logits, first_key, count)
                products.add_values(b, tile, first_key, count)
        deliver_rows(b, plan, tile, logits)
