"""Attention forward: a tile of queries against blocks of keys, with an online softmax and no matrix of weights in memory.

For each tile of rows: scores of one block of keys (a small product whose right side is the transposed keys, packed once a
head), then scale, cap, bias and masks and the running maximum and sum of each row, then the block's weights times its values
added to the tile's result. Blocks that the mask hides from a whole tile are skipped. Which block comes when depends on the
shapes alone, so threads, which take whole tiles, change no bit.
"""

from __future__ import annotations

from math import inf
from typing import Any

from attrs import evolve, frozen
from llvmlite import ir

from rlx_core.ir.graph import Node
from rlx_core.ops import activation
from rlx_core.ops.attention import Attention
from rlx_cpu.native import functions
from rlx_cpu.native.attention_operands import ByPosition, copy_rows, pack_head
from rlx_cpu.native.attention_parts import SERIAL_PRODUCTS, Logits, Rows, fitting_dtypes, least, number, register
from rlx_cpu.native.attention_problem import AttentionProblem, HeadStrides
from rlx_cpu.native.build import I1, I32, I64, KERNEL
from rlx_cpu.native.contract import Emitted, Layout, aligned
from rlx_cpu.native.cuts import by_size, start_of
from rlx_cpu.native.isa import Isa
from rlx_cpu.native.microkernel import Microkernel
from rlx_cpu.native.simd import Simd, counting, index, offset, pointer_at, share, times
from rlx_cpu.native.stored import Stored
from rlx_cpu.native.table import native
from rlx_cpu.native.words import Words

__all__ = ["attention"]

FEW_QUERIES = 2
"""Queries up to which keys are not transposed: a step of generating text has one."""

ByWidth = dict[int, ir.Function]
"""The microkernels of one height, by vectors."""

Kernels = dict[tuple[int, int], ir.Function]
"""Microkernels by rows and vectors."""


@native.register(Attention, dtypes="f16 bf16 f32 f64 bool", when=fitting_dtypes)
def attention(module: ir.Module, node: Node, layout: Layout, isa: Isa, name: str) -> Emitted:
    """Blocks of keys with an online softmax."""
    op = node.op
    assert isinstance(op, Attention), "registered for it alone"
    problem = AttentionProblem.of(op, layout, isa)
    words = Words(Stored(Simd(module, isa, problem.dtype), layout.results[0].type.dtype))
    return _Forward(op, problem, layout, words, name).emit()


@frozen(eq=False)
class _Tile:
    """What the code of one row tile is built from: whose rows it has, its operands, and the thread's memory."""

    at: Rows
    rows: int
    q: ir.Value
    keys: ir.Value
    values: ir.Value
    out: ir.Value
    scores: ir.Value
    sums: ir.Value
    maxima: ir.Value
    totals: ir.Value
    queries: ir.Value


@frozen(eq=False)
class _Forward:
    op: Attention
    problem: AttentionProblem
    layout: Layout
    words: Words
    name: str

    @property
    def simd(self) -> Simd:
        return self.words.simd

    @property
    def stored(self) -> Stored:
        """The elements of q, k, v and the result."""
        return self.words.stored

    # ------------------------------------------------------------------------------------- memory

    @property
    def keys_nbytes(self) -> int:
        """Bytes of a head's transposed keys, packed; none where they are read in place."""
        return 0 if self.reads_keys else aligned(self.problem.key_columns * self.problem.features * self.simd.itemsize)

    @property
    def reads_keys(self) -> bool:
        """Whether keys are read where they lie: for so few queries, transposing them would be most of the work."""
        p, itemsize = self.problem, self.stored.itemsize
        both = self._strides(0, p.heads), self._strides(1, p.kv_heads)
        return p.queries <= FEW_QUERIES and all(at.feature == itemsize for at in both)

    @property
    def values(self) -> ByPosition:
        p = self.problem
        return ByPosition(self.words, self._strides(2, p.kv_heads), p.keys, p.width, p.outputs)

    @property
    def tile_nbytes(self) -> tuple[int, ...]:
        """Bytes of a tile's scores, its sums, its rows' maxima, their totals, and of its queries if they are made words."""
        p, rows = self.problem, self.problem.rows.size
        itemsize = self.simd.itemsize
        wide = (p.block_columns, p.output_columns)
        a, b = (aligned(rows * columns * itemsize) for columns in wide)
        queries = aligned(rows * p.features * itemsize) if self.copies_queries else 0
        return a, b, aligned(rows * itemsize), aligned(rows * itemsize), queries

    @property
    def copies_queries(self) -> bool:
        """Whether a tile's queries are widened before its products."""
        return not (self.stored.is_same or self.reads_keys)

    @property
    def workspace(self) -> int:
        return self.keys_nbytes + self.values.nbytes + sum(self.tile_nbytes)

    def _strides(self, operand: int, heads: int) -> HeadStrides:
        place = self.layout.operands[operand]
        assert place is not None, "q, k and v are required"
        return HeadStrides.of(place, self.op.layout, heads)

    # ------------------------------------------------------------------------------------- emission

    def emit(self) -> Emitted:
        module, p = self.simd.module, self.problem
        function = ir.Function(module, KERNEL, self.name)
        b = ir.IRBuilder(function.append_basic_block("entry"))
        is_empty = not (p.items and p.width)
        if not is_empty:
            self._items(b, function.args)
        b.ret_void()
        flops = p.batch * p.heads * p.queries * p.keys * (p.features + p.width)
        return Emitted(
            self.name,
            workspace=0 if is_empty else self.workspace,
            uses_threads=flops >= SERIAL_PRODUCTS,
            parts=p.parts,
            notes={"tile": f"{p.rows.size}x{p.panels.size * p.lanes}", "keys": p.block_columns},
        )

    def _items(self, b: ir.IRBuilder, arguments: tuple[ir.Argument, ...]) -> None:
        buffers, part, parts, thread = arguments
        p, simd = self.problem, self.simd
        score_kernels, value_kernels = self._microkernels()
        operands = len(self.layout.operands)
        q, k, v, out = (pointer_at(b, buffers, i) for i in (0, 1, 2, operands))
        own = offset(b, pointer_at(b, buffers, operands + 1), (thread, self.workspace))
        q_at, k_at, v_at = (self._strides(i, h) for i, h in enumerate((p.heads, p.kv_heads, p.kv_heads)))
        out_at = HeadStrides.of(self.layout.results[0], self.op.layout, p.heads)
        packed_values = offset(b, own, self.keys_nbytes)
        tile_memory = [offset(b, packed_values, self.values.nbytes)]
        for nbytes in self.tile_nbytes[:-1]:
            tile_memory.append(offset(b, tile_memory[-1], nbytes))
        logits = Logits(self.op, p, self.layout, simd, 3, buffers)
        held = b.alloca(I64)
        b.store(index(-1), held, align=8)
        low, high = share(b, p.items, part, parts)
        with counting(b, low, high) as item:
            row_item, rest = b.srem(item, index(p.row_items)), b.sdiv(item, index(p.row_items))
            head, batch = b.srem(rest, index(p.heads)), b.sdiv(rest, index(p.heads))
            kv_head = b.sdiv(head, index(p.heads // p.kv_heads))
            keys = offset(b, k, (batch, k_at.batch), (kv_head, k_at.head))
            values = offset(b, v, (batch, v_at.batch), (kv_head, v_at.head))
            which = b.add(times(b, batch, p.kv_heads), kv_head)
            with b.if_then(b.icmp_signed("!=", b.load(held, typ=I64, align=8), which)):
                if not self.reads_keys:
                    by = (k_at.feature, k_at.position)
                    pack_head(b, self.words, keys, by, own, p.panels, p.features, p.keys)
                self.values.ready(b, values, packed_values)
                b.store(which, held, align=8)
            values = values if self.values.is_direct else packed_values
            last = b.add(times(b, row_item, p.group), index(p.group))
            end = b.select(b.icmp_signed("<", last, index(p.rows.pieces)), last, index(p.rows.pieces))
            with counting(b, times(b, row_item, p.group), end) as tile:
                first = start_of(b, p.rows, tile)
                for rows in by_size(b, p.rows, tile):
                    self._tile(
                        b,
                        _Tile(
                            Rows(batch, head, first), rows,
                            offset(b, q, (batch, q_at.batch), (head, q_at.head), (first, q_at.position)),
                            keys if self.reads_keys else own, values,
                            offset(b, out, (batch, out_at.batch), (head, out_at.head), (first, out_at.position)),
                            *tile_memory,
                        ),
                        {v: f for (r, v), f in score_kernels.items() if r == rows},
                        {v: f for (r, v), f in value_kernels.items() if r == rows},
                        logits,
                    )  # fmt: skip

    def _microkernels(self) -> tuple[Kernels, Kernels]:
        """The products that make scores and that sum values, for every height and width that occurs."""
        p, simd = self.problem, self.simd
        q, v, plain = self._strides(0, p.heads), self.values, Words.plain(simd)
        row = p.block_columns * simd.itemsize
        queries = (p.features * simd.itemsize, simd.itemsize) if self.copies_queries else (q.position, q.feature)
        scores, values = {}, {}
        for rows in p.rows.sizes:
            for vectors in () if self.reads_keys else p.panels.sizes:
                scores[rows, vectors] = Microkernel(
                    words=plain, rows=rows, vectors=vectors, a_strides=queries, b_stride=vectors * simd.nbytes,
                    b_align=simd.nbytes, result=plain.stored, c_strides=(row, simd.itemsize),
                ).emit(f"{self.name}.scores{rows}x{vectors}")  # fmt: skip
            for vectors in p.outputs.sizes:
                values[rows, vectors] = Microkernel(
                    words=self.words, rows=rows, vectors=vectors, a_strides=(row, simd.itemsize),
                    b_stride=v.stride(vectors), b_align=v.align, makes_words=v.makes_words, result=plain.stored,
                    c_strides=(p.output_columns * simd.itemsize, simd.itemsize),
                    columns=p.width if v.is_partial else None, masks_b=v.is_partial, accumulates=p.blocks > 1,
                ).emit(f"{self.name}.values{rows}x{vectors}")  # fmt: skip
        return scores, values

    # ------------------------------------------------------------------------------------- one tile

    def _tile(self, b: ir.IRBuilder, tile: _Tile, scores: ByWidth, values: ByWidth, logits: Logits) -> None:
        """All blocks of keys that a tile's rows may see, then the division by the totals."""
        p, simd = self.problem, self.simd
        with counting(b, 0, tile.rows) as row:
            b.store(ir.Constant(simd.element, -inf), offset(b, tile.maxima, (row, simd.itemsize)), align=simd.itemsize)
            b.store(ir.Constant(simd.element, 0.0), offset(b, tile.totals, (row, simd.itemsize)), align=simd.itemsize)
            with counting(b, 0, p.output_columns, simd.lanes) as column:
                simd.store(b, simd.zero, self._sum(b, tile, row, column), align=simd.nbytes)
        if self.copies_queries:
            copy_rows(b, self.words, tile.q, self._strides(0, p.heads), tile.queries, tile.rows, p.features)
            tile = evolve(tile, q=tile.queries)
        low, high = logits.visible(b, tile.at.first, tile.rows)
        with counting(b, 0, p.panels.pieces, p.block) as panel:
            block_end = b.add(panel, index(p.block))
            panel_end = b.select(
                b.icmp_signed("<", block_end, index(p.panels.pieces)), block_end, index(p.panels.pieces)
            )
            first_key = times(b, start_of(b, p.panels, panel), simd.lanes)
            end = least(b, times(b, start_of(b, p.panels, panel_end), simd.lanes), high)
            with b.if_then(b.and_(b.icmp_signed("<", first_key, end), b.icmp_signed(">", end, low))):
                self._block(b, tile, scores, values, logits, (panel, panel_end), (first_key, end))
        self._deliver(b, tile, logits)

    def _block(
        self,
        b: ir.IRBuilder,
        tile: _Tile,
        scores: ByWidth,
        values: ByWidth,
        logits: Logits,
        panels: tuple[ir.Value, ir.Value],
        keys: tuple[ir.Value, ir.Value],
    ) -> None:
        p, simd = self.problem, self.simd
        first_key, end = keys
        true, false = ir.Constant(I1, 1), ir.Constant(I1, 0)
        if self.reads_keys:
            self._dot_products(b, tile, first_key, end)
        else:
            self._score_panels(b, tile, scores, logits, panels, end)
        count = b.sub(end, first_key)
        with counting(b, 0, tile.rows) as row:
            self._softmax(b, tile, logits, row, first_key, count)
        with counting(b, 0, p.outputs.pieces) as panel:
            start = start_of(b, p.outputs, panel)
            column = times(b, start, simd.lanes)
            place = offset(b, tile.sums, (start, simd.nbytes))
            for vectors in by_size(b, p.outputs, panel):
                there = self.values.panel(b, tile.values, start, first_key, vectors)
                # Sums start at zero in memory, so no block is treated as the first.
                b.call(
                    values[vectors],
                    [
                        tile.scores,
                        there,
                        place,
                        there,
                        there,
                        count,
                        false,
                        true,
                        index(0),
                        index(0),
                        column,
                        logits.buffers,
                    ],
                )

    def _score_panels(
        self,
        b: ir.IRBuilder,
        tile: _Tile,
        scores: ByWidth,
        logits: Logits,
        panels: tuple[ir.Value, ir.Value],
        end: ir.Value,
    ) -> None:
        """Products of a tile's queries with the transposed keys of a block."""
        p, simd = self.problem, self.simd
        first_panel, true = start_of(b, p.panels, panels[0]), ir.Constant(I1, 1)
        with counting(b, *panels) as panel:
            start = start_of(b, p.panels, panel)
            column = times(b, start, simd.lanes)
            with b.if_then(b.icmp_signed("<", column, end)):
                packed = offset(b, tile.keys, (start, simd.nbytes * p.features))
                place = offset(b, tile.scores, (b.sub(start, first_panel), simd.nbytes))
                for vectors in by_size(b, p.panels, panel):
                    sizes = [index(p.features), true, true, index(0), index(0), column]
                    b.call(scores[vectors], [tile.q, packed, place, packed, packed, *sizes, logits.buffers])

    def _dot_products(self, b: ir.IRBuilder, tile: _Tile, first_key: ir.Value, end: ir.Value) -> None:
        """The same from keys where they lie: a vector of keys at a time, each with an accumulator along the features."""
        p, simd = self.problem, self.simd
        q, k = self._strides(0, p.heads), self._strides(1, p.kv_heads)
        even = p.features - p.features % simd.lanes
        tail = simd.below(b, index(even), p.features)
        with counting(b, 0, b.sub(end, first_key), simd.lanes) as column, counting(b, 0, tile.rows) as row:
            query = offset(b, tile.q, (row, q.position))
            rows = [
                # Keys beyond the last repeat it; the mask hides them later.
                offset(
                    b, tile.keys, (least(b, b.add(b.add(first_key, column), index(i)), index(p.keys - 1)), k.position)
                )
                for i in range(simd.lanes)
            ]
            sums = [register(b, simd, simd.zero) for _ in rows]

            def add(feature: ir.Value, mask: ir.Value | None, query: ir.Value = query, rows: Any = rows) -> None:
                at = times(b, feature, self.stored.itemsize)
                factor = self.stored.load(b, offset(b, query, at), mask)
                for total, key in zip(sums, rows, strict=True):
                    so_far = b.load(total, typ=simd.vector, align=simd.itemsize)
                    found = simd.multiply_add(b, factor, self.stored.load(b, offset(b, key, at), mask), so_far)
                    b.store(found, total, align=simd.itemsize)

            for total in sums:
                b.store(simd.zero, total, align=simd.itemsize)
            with counting(b, 0, even, simd.lanes) as feature:
                add(feature, None)
            if even < p.features:
                add(index(even), tail)
            place = offset(b, tile.scores, (row, p.block_columns * simd.itemsize), (column, simd.itemsize))
            totals = [b.load(total, typ=simd.vector, align=simd.itemsize) for total in sums]
            simd.store(b, simd.sums(b, totals), place, align=simd.nbytes)

    def _softmax(
        self, b: ir.IRBuilder, tile: _Tile, logits: Logits, row: ir.Value, first_key: ir.Value, count: ir.Value
    ) -> None:
        """Scores of one row and block into weights; the row's maximum, total and sums so far are rescaled to match."""
        p, simd = self.problem, self.simd
        line = offset(b, tile.scores, (row, p.block_columns * simd.itemsize))
        largest = register(b, simd, simd.constant(-inf))
        with counting(b, 0, count, simd.lanes) as column:
            place = offset(b, line, (column, simd.itemsize))
            product = simd.load(b, place, align=simd.nbytes)
            score, _ = logits.at(b, tile.at, row, b.add(first_key, column), product)
            simd.store(b, score, place, align=simd.nbytes)
            so_far = b.load(largest, typ=simd.vector, align=simd.itemsize)
            b.store(simd.maximum(b, score, so_far), largest, align=simd.itemsize)
        maximum_place, total_place = (offset(b, x, (row, simd.itemsize)) for x in (tile.maxima, tile.totals))
        before = simd.load_scalar(b, maximum_place)
        found = simd.reduce(b, b.load(largest, typ=simd.vector, align=simd.itemsize), "max")
        now = b.select(b.fcmp_ordered(">", found, before), found, before)
        # A row that has seen no key yet has no maximum to subtract.
        pivot = simd.splat(b, b.select(b.fcmp_ordered("==", now, number(simd, -inf)), number(simd, 0.0), now))
        total = register(b, simd, simd.zero)
        with counting(b, 0, count, simd.lanes) as column:
            place = offset(b, line, (column, simd.itemsize))
            weight = self._exp(b, b.fsub(simd.load(b, place, align=simd.nbytes), pivot))
            simd.store(b, weight, place, align=simd.nbytes)
            b.store(b.fadd(b.load(total, typ=simd.vector, align=simd.itemsize), weight), total, align=simd.itemsize)
        added = simd.reduce(b, b.load(total, typ=simd.vector, align=simd.itemsize), "add")
        if p.blocks == 1:
            b.store(added, total_place, align=simd.itemsize)
            return
        shrink = self._exp(b, b.fsub(simd.splat(b, before), pivot))
        factor = b.extract_element(shrink, ir.Constant(I32, 0))
        b.store(b.fadd(b.fmul(simd.load_scalar(b, total_place), factor), added), total_place, align=simd.itemsize)
        b.store(now, maximum_place, align=simd.itemsize)
        with counting(b, 0, p.output_columns, simd.lanes) as column:
            place = self._sum(b, tile, row, column)
            simd.store(b, b.fmul(simd.load(b, place, align=simd.nbytes), shrink), place, align=simd.nbytes)

    def _deliver(self, b: ir.IRBuilder, tile: _Tile, logits: Logits) -> None:
        """Sums over totals, to where the result lies."""
        p, simd, op = self.problem, self.simd, self.op
        at = HeadStrides.of(self.layout.results[0], op.layout, p.heads)
        with counting(b, 0, tile.rows) as row:
            total = simd.load_scalar(b, offset(b, tile.totals, (row, simd.itemsize)))
            inverse = b.fdiv(number(simd, 1.0), total)
            if p.keys == 0 or (op.empty_row != "nan" and logits.may_hide):
                is_empty = b.fcmp_ordered("==", total, number(simd, 0.0))
                is_uniform = op.empty_row == "uniform" and p.keys > 0
                if is_uniform:
                    with b.if_then(is_empty, likely=False):
                        self._add_values(b, tile, row)
                inverse = b.select(is_empty, number(simd, 1.0 / p.keys if is_uniform else 0.0), inverse)
            factor = simd.splat(b, inverse)
            with counting(b, 0, p.output_columns, simd.lanes) as column:
                value = b.fmul(simd.load(b, self._sum(b, tile, row, column), align=simd.nbytes), factor)
                place = offset(b, tile.out, (row, at.position), (column, at.feature))
                if at.feature == self.stored.itemsize:
                    self.stored.store(b, value, place, simd.below(b, column, p.width) if p.width % simd.lanes else None)
                else:
                    self.stored.store_spread(b, value, place, at.feature, b.sub(index(p.width), column))

    def _add_values(self, b: ir.IRBuilder, tile: _Tile, row: ir.Value) -> None:
        """The sum of all values, as the sum of a row that sees none of them."""
        p, simd, values = self.problem, self.simd, self.values
        with counting(b, 0, p.output_columns, simd.lanes) as column:
            simd.store(b, simd.zero, self._sum(b, tile, row, column), align=simd.nbytes)
        with counting(b, 0, p.keys) as key, counting(b, 0, p.outputs.pieces) as panel:
            start = start_of(b, p.outputs, panel)
            for vectors in by_size(b, p.outputs, panel):
                line = values.panel(b, tile.values, start, key, vectors)
                for j in range(vectors):
                    column = times(b, b.add(start, index(j)), simd.lanes)
                    mask = simd.below(b, column, p.width) if values.is_partial else None
                    place = self._sum(b, tile, row, column)
                    value = values.vector(b, line, j, mask)
                    simd.store(b, b.fadd(simd.load(b, place, align=simd.nbytes), value), place, align=simd.nbytes)

    def _sum(self, b: ir.IRBuilder, tile: _Tile, row: ir.Value, column: ir.Value) -> ir.Value:
        p, itemsize = self.problem, self.simd.itemsize
        return offset(b, tile.sums, (row, p.output_columns * itemsize), (column, itemsize))

    def _exp(self, b: ir.IRBuilder, x: ir.Value) -> ir.Value:
        return functions.call(b, activation.exp.op, self.problem.dtype, (x,))
