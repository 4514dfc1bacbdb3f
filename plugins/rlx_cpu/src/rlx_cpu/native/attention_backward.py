"""Attention backward: dq, dk and dv of one key head after the other, with the weights recomputed block by block.

An item is a batch entry and a key head with all query heads that share it. Where items are few, the blocks of queries of each are
dealt out to segments, which add up dk and dv apart; a second phase adds the segments in order, so that who did which changes
nothing. For each block of queries: weights p from the logits, `dp = do·vᵀ`, `du = s·slope·p·(dp - Σ p·dp)`; then
`dq = du·k`, and `dk += duᵀ·q`, `dv += pᵀ·do`, which read the blocks of p and du by columns where they lie.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

from attrs import frozen
from llvmlite import ir

from rlx_core.ir.graph import Node
from rlx_core.ops import activation
from rlx_core.ops.attention import AttentionBackward
from rlx_core.pipeline.kernels import condition
from rlx_cpu.native import functions
from rlx_cpu.native.attention_parts import (
    SERIAL_PRODUCTS,
    ByPosition,
    Logits,
    Rows,
    aligned,
    fitting_dtypes,
    least,
    most,
    number,
    pack_head,
    register,
)
from rlx_cpu.native.attention_problem import FEWEST_PARTS, TILES, AttentionProblem, HeadStrides
from rlx_cpu.native.build import I1, KERNEL
from rlx_cpu.native.contract import MOST_PARTS, Emitted, Layout
from rlx_cpu.native.epilogue import Epilogue
from rlx_cpu.native.cuts import by_size, start_of
from rlx_cpu.native.gemm_tiles import Cut, cut
from rlx_cpu.native.isa import Isa
from rlx_cpu.native.microkernel import Microkernel
from rlx_cpu.native.simd import Simd, counting, index, offset, pointer_at, share, times
from rlx_cpu.native.table import native

__all__ = ["attention_backward"]

BLOCK_NBYTES = 1 << 17
"""Bytes of a block of weights, at most, unless one tile has more."""

SEGMENT_PRODUCTS = 1 << 18
"""Fused products below which an item is not cut: adding the segments up would take as long."""

Q, K, V, DY, MASK = range(5)
"""Operands; then the bias, which this kernel leaves to others because it has a cotangent of its own."""


@condition("no bias, whose cotangent is a sum over heads and queries")
def has_no_bias(node: Node) -> bool:
    return len(node.types) == 3


@native.register(AttentionBackward, dtypes="f32 f64 bool", when=(fitting_dtypes, has_no_bias))
def attention_backward(module: ir.Module, node: Node, layout: Layout, isa: Isa, name: str) -> Emitted:
    """Weights recomputed by blocks of queries; key heads, or segments of their queries, shared out."""
    op = node.op
    assert isinstance(op, AttentionBackward), "registered for it alone"
    problem = AttentionProblem.of(op, layout, isa)
    return _Backward(op, problem, layout, Simd(module, isa, problem.dtype), name, isa.registers).emit()


@frozen(eq=False)
class _Head:
    """What the code of one query head is built from: its operands, results and the thread's memory."""

    batch: ir.Value
    head: ir.Value
    q: ir.Value
    dy: ir.Value
    dq: ir.Value
    q_ready: ir.Value
    dy_ready: ir.Value
    k_ready: ir.Value
    logits: Logits
    memory: dict[str, ir.Value]


@frozen(eq=False)
class _Backward:
    op: AttentionBackward
    problem: AttentionProblem
    layout: Layout
    simd: Simd
    name: str
    registers: int

    # ------------------------------------------------------------------------------------- choices

    def _operand(self, position: int) -> HeadStrides:
        place = self.layout.operands[position]
        assert place is not None, "q, k, v and dy are required"
        heads = self.problem.heads if position in (Q, DY) else self.problem.kv_heads
        return HeadStrides.of(place, self.op.layout, heads)

    def _result(self, position: int) -> HeadStrides:
        heads = self.problem.heads if position == Q else self.problem.kv_heads
        return HeadStrides.of(self.layout.results[position], self.op.layout, heads)

    def _right(self, position: int) -> ByPosition:
        """An operand as the right side of a product over positions."""
        p = self.problem
        positions = p.queries if position in (Q, DY) else p.keys
        features = p.width if position in (V, DY) else p.features
        panels = cut(-(-features // p.lanes), p.outputs.size)
        return ByPosition(self.simd, self._operand(position), positions, features, panels)

    @property
    def group(self) -> int:
        """Row tiles of a block of queries."""
        tile_nbytes = max(1, self.problem.rows.size * self.row_nbytes)
        return max(1, min(TILES, BLOCK_NBYTES // tile_nbytes, self.problem.rows.pieces))

    @property
    def row_nbytes(self) -> int:
        """Bytes of one row of weights: all keys, whole vectors."""
        return self.problem.key_columns * self.simd.itemsize

    @property
    def key_rows(self) -> Cut:
        """Row tiles of dk and dv."""
        return cut(self.problem.keys, self.problem.rows.size)

    @property
    def items(self) -> int:
        return self.problem.batch * self.problem.kv_heads

    @property
    def blocks(self) -> int:
        """Blocks of queries of a head."""
        return -(-self.problem.rows.pieces // self.group)

    @property
    def products(self) -> int:
        """Fused products in all."""
        p = self.problem
        return 2 * p.batch * p.heads * p.queries * p.keys * (p.features + p.width)

    @property
    def segments(self) -> int:
        """Into how many parts an item is cut."""
        if self.items >= FEWEST_PARTS or self.products < SEGMENT_PRODUCTS:
            return 1
        blocks = self.problem.heads // self.problem.kv_heads * self.blocks
        return max(1, min(blocks, -(-FEWEST_PARTS // self.items)))

    @property
    def sums(self) -> dict[str, int]:
        """Bytes in which a segment adds up dk and dv."""
        keys, itemsize = self.problem.keys, self.simd.itemsize
        columns = {"dk": self._right(Q).columns, "dv": self._right(DY).columns}
        return {name: aligned(keys * count * itemsize) for name, count in columns.items()}

    @property
    def memory(self) -> dict[str, int]:
        """Bytes of each part of a thread's workspace."""
        p, itemsize = self.problem, self.simd.itemsize
        block = p.rows.size * self.group * self.row_nbytes
        has_cap = self.op.attn_logit_softcap is not None
        sizes = {
            "keys": p.key_columns * p.features * itemsize,
            "values": p.key_columns * p.width * itemsize,
            "weights": block,
            "slopes": block if has_cap else 0,
            "du": block,
            **(self.sums if self.segments == 1 else {}),
            "q": self._right(Q).nbytes,
            "dy": self._right(DY).nbytes,
            "k": self._right(K).nbytes,
        }
        return {name: aligned(nbytes) for name, nbytes in sizes.items()}

    # ------------------------------------------------------------------------------------- emission

    def emit(self) -> Emitted:
        p = self.problem
        function = self._function(self.name)
        b = ir.IRBuilder(function.append_basic_block("entry"))
        is_empty = not (p.batch and p.queries and p.keys and p.width)
        prologue = None
        if is_empty:
            with b.if_then(b.icmp_signed("==", function.args[1], index(0))):
                self._clear(b, function.args[0])
        elif self.segments == 1:
            self._items(b, function.args)
        else:
            prologue = f"{self.name}.segments"
            first = self._function(prologue)
            inner = ir.IRBuilder(first.append_basic_block("entry"))
            self._items(inner, first.args)
            inner.ret_void()
            self._combine(b, function.args)
        b.ret_void()
        return Emitted(
            self.name,
            workspace=0 if is_empty else sum(self.memory.values()),
            shared_workspace=0 if prologue is None else self.items * self.segments * sum(self.sums.values()),
            uses_threads=self.products >= SERIAL_PRODUCTS,
            parts=max(1, min(MOST_PARTS, self.items * self.segments)),
            prologue=prologue,
            notes={"tile": f"{p.rows.size}x{p.panels.size * p.lanes}", "queries": p.rows.size * self.group},
        )

    def _function(self, name: str) -> ir.Function:
        return ir.Function(self.simd.module, KERNEL, name)

    def _clear(self, b: ir.IRBuilder, buffers: ir.Value) -> None:
        """Nothing attends to anything: all cotangents are 0."""
        p, zero = self.problem, number(self.simd, 0.0)
        for i, (heads, positions, features) in enumerate(
            ((p.heads, p.queries, p.features), (p.kv_heads, p.keys, p.features), (p.kv_heads, p.keys, p.width))
        ):
            at, start = self._result(i), pointer_at(b, buffers, len(self.layout.operands) + i)
            with (
                counting(b, 0, p.batch) as batch,
                counting(b, 0, heads) as head,
                counting(b, 0, positions) as position,
                counting(b, 0, features) as feature,
            ):
                place = offset(
                    b, start, (batch, at.batch), (head, at.head), (position, at.position), (feature, at.feature)
                )
                b.store(zero, place, align=self.simd.itemsize)

    def _items(self, b: ir.IRBuilder, arguments: tuple[ir.Argument, ...]) -> None:
        buffers, part, parts, thread = arguments
        p, simd, segments = self.problem, self.simd, self.segments
        products = self._products()
        operands = len(self.layout.operands)
        q, k, v, dy = (pointer_at(b, buffers, i) for i in (Q, K, V, DY))
        dq, dk, dv = (pointer_at(b, buffers, operands + i) for i in (Q, K, V))
        shared = pointer_at(b, buffers, operands + 3)
        sums_nbytes = sum(self.sums.values()) if segments > 1 else 0
        place = offset(b, shared, self.items * segments * sums_nbytes, (thread, sum(self.memory.values())))
        memory: dict[str, ir.Value] = {}
        for name, nbytes in self.memory.items():
            memory[name], place = place, offset(b, place, nbytes)
        logits = Logits(self.op, p, self.layout, simd, MASK, buffers)
        low, high = share(b, self.items * segments, part, parts)
        times_shared = p.heads // p.kv_heads
        with counting(b, low, high) as unit:
            segment, item = b.srem(unit, index(segments)), b.sdiv(unit, index(segments))
            kv_head, batch = b.srem(item, index(p.kv_heads)), b.sdiv(item, index(p.kv_heads))
            if segments > 1:
                memory["dk"] = offset(b, shared, (unit, sums_nbytes))
                memory["dv"] = offset(b, memory["dk"], self.sums["dk"])

            def of(start: ir.Value, at: HeadStrides, head: ir.Value, batch: ir.Value = batch) -> ir.Value:
                return offset(b, start, (batch, at.batch), (head, at.head))

            keys, values = of(k, self._operand(K), kv_head), of(v, self._operand(V), kv_head)
            for source, name, position, depth in ((keys, "keys", K, p.features), (values, "values", V, p.width)):
                by = (self._operand(position).feature, self._operand(position).position)
                pack_head(b, simd, source, by, memory[name], p.panels, depth, p.keys)
            k_ready = self._right(K).ready(b, keys, memory["k"])
            for name in ("dk", "dv"):
                with counting(b, 0, self.sums[name], simd.nbytes) as place:
                    simd.store(b, simd.zero, offset(b, memory[name], place), align=simd.nbytes)
            first, last = share(b, times_shared * self.blocks, segment, index(segments))
            last_member = b.sdiv(b.add(last, index(self.blocks - 1)), index(self.blocks))
            with counting(b, b.sdiv(first, index(self.blocks)), last_member) as member:
                skipped = times(b, member, self.blocks)
                blocks = most(b, b.sub(first, skipped), index(0)), least(b, b.sub(last, skipped), index(self.blocks))
                head = b.add(times(b, kv_head, times_shared), member)
                q_head, dy_head = of(q, self._operand(Q), head), of(dy, self._operand(DY), head)
                self._head(
                    b,
                    _Head(
                        batch, head, q_head, dy_head, of(dq, self._result(Q), head),
                        self._right(Q).ready(b, q_head, memory["q"]), self._right(DY).ready(b, dy_head, memory["dy"]),
                        k_ready, logits, memory,
                    ),
                    products, blocks,
                )  # fmt: skip
            if segments == 1:
                self._deliver(b, memory["dk"], of(dk, self._result(K), kv_head), self._result(K), self._right(Q))
                self._deliver(b, memory["dv"], of(dv, self._result(V), kv_head), self._result(V), self._right(DY))

    def _combine(self, b: ir.IRBuilder, arguments: tuple[ir.Argument, ...]) -> None:
        """Add up the segments of each item, key by key."""
        buffers, part, parts, _ = arguments
        p, operands = self.problem, len(self.layout.operands)
        shared = pointer_at(b, buffers, operands + 3)
        low, high = share(b, self.items * p.keys, part, parts)
        with counting(b, low, high) as unit:
            key, item = b.srem(unit, index(p.keys)), b.sdiv(unit, index(p.keys))
            kv_head, batch = b.srem(item, index(p.kv_heads)), b.sdiv(item, index(p.kv_heads))
            sums = offset(b, shared, (item, self.segments * sum(self.sums.values())))
            for position, start, right in ((K, 0, self._right(Q)), (V, self.sums["dk"], self._right(DY))):
                at = self._result(position)
                out = offset(b, pointer_at(b, buffers, operands + position), (batch, at.batch), (kv_head, at.head))
                self._deliver(b, offset(b, sums, start), out, at, right, (key, b.add(key, index(1))))

    def _products(self) -> dict[str, dict[tuple[int, int], ir.Function]]:
        """The five products' microkernels, by height and width."""
        p, simd, row = self.problem, self.simd, self.row_nbytes
        by_rows, by_keys = p.rows.sizes, self.key_rows.sizes
        block = (row, simd.itemsize)

        def of(name: str, heights: tuple[int, ...], panels: Cut, **more: Any) -> dict[tuple[int, int], ir.Function]:
            return {
                (rows, vectors): self._microkernel(rows, vectors, **more).emit(f"{self.name}.{name}{rows}x{vectors}")
                for rows in heights
                for vectors in panels.sizes
            }

        def left(at: HeadStrides) -> tuple[int, int]:
            return at.position, at.feature

        def sums(right: ByPosition) -> tuple[int, int]:
            return right.columns * simd.itemsize, simd.itemsize

        k, q, dy = self._right(K), self._right(Q), self._right(DY)
        dq = self._result(Q)
        return {
            "u": of("u", by_rows, p.panels, a=left(self._operand(Q)), c=block),
            "dp": of("dp", by_rows, p.panels, a=left(self._operand(DY)), c=block),
            "dq": of("dq", by_rows, k.panels, a=block, right=k, c=left(dq), columns=p.features),
            "dk": of("dk", by_keys, q.panels, a=(simd.itemsize, row), right=q, c=sums(q), adds=True),
            "dv": of("dv", by_keys, dy.panels, a=(simd.itemsize, row), right=dy, c=sums(dy), adds=True),
        }

    def _microkernel(
        self,
        rows: int,
        vectors: int,
        *,
        a: tuple[int, int],
        c: tuple[int, int],
        right: ByPosition | None = None,
        columns: int | None = None,
        adds: bool = False,
    ) -> Microkernel:
        """One height and width of a product with packed panels, or with `right`; `columns` if the result ends there."""
        simd = self.simd
        masks_b = right is not None and right.is_partial
        end = columns if columns is not None and columns % simd.lanes else right.features if masks_b and right else None
        return Microkernel(
            simd=simd, rows=rows, vectors=vectors, a_strides=a,
            b_stride=vectors * simd.nbytes if right is None else right.stride(vectors),
            b_align=simd.nbytes if right is None else right.align,
            c_strides=c, columns=end, masks_b=masks_b, accumulates=adds, sharers=0, epilogue=_nothing,
        )  # fmt: skip

    # ------------------------------------------------------------------------------------- one head

    def _head(
        self,
        b: ir.IRBuilder,
        head: _Head,
        products: dict[str, dict[tuple[int, int], ir.Function]],
        blocks: tuple[ir.Value, ir.Value],
    ) -> None:
        p = self.problem
        with counting(b, *blocks) as block:
            tile = times(b, block, self.group)
            tile_end = least(b, b.add(tile, index(self.group)), index(p.rows.pieces))
            first = start_of(b, p.rows, tile)
            count = b.sub(start_of(b, p.rows, tile_end), first)
            _, end = head.logits.visible(b, first, count)
            if self.is_uniform(head.logits):
                end = index(p.keys)
            # A block that sees no key at all still writes its zeros, through vectors of one key.
            end = b.select(b.icmp_signed(">", end, index(1)), end, index(1))
            self._scores(b, head, products, (tile, tile_end), first, end)
            rows = Rows(head.batch, head.head, first)
            with counting(b, 0, count) as row:
                self._row(b, head, rows, row, end)
            self._dq(b, head, products["dq"], (tile, tile_end), first, end)
            for name, source, right, ready in (
                ("dk", "du", self._right(Q), head.q_ready),
                ("dv", "weights", self._right(DY), head.dy_ready),
            ):
                self._add(b, head.memory[source], head.memory[name], products[name], right, ready, (first, count), end)

    def is_uniform(self, logits: Logits) -> bool:
        """Whether a row without a visible key spreads its weight over all of them."""
        return self.op.empty_row == "uniform" and logits.may_hide

    def _scores(
        self,
        b: ir.IRBuilder,
        head: _Head,
        products: dict[str, dict[tuple[int, int], ir.Function]],
        tiles: tuple[ir.Value, ir.Value],
        first: ir.Value,
        end: ir.Value,
    ) -> None:
        """`u = q·kᵀ` and `dp = do·vᵀ` of a block, up to the last key that it sees."""
        p, simd = self.problem, self.simd
        with counting(b, *tiles) as tile:
            start = start_of(b, p.rows, tile)
            line = times(b, b.sub(start, first), self.row_nbytes)
            with counting(b, 0, p.panels.pieces) as panel:
                vector = start_of(b, p.panels, panel)
                with b.if_then(b.icmp_signed("<", times(b, vector, simd.lanes), end)):
                    for name, left, at, packed, depth, block in (
                        ("u", head.q, self._operand(Q), "keys", p.features, "weights"),
                        ("dp", head.dy, self._operand(DY), "values", p.width, "du"),
                    ):
                        a = offset(b, left, (start, at.position))
                        right = offset(b, head.memory[packed], (vector, simd.nbytes * depth))
                        place = offset(b, head.memory[block], line, (vector, simd.nbytes))

                        def packed_panel(vectors: int, right: ir.Value = right) -> ir.Value:
                            return right

                        size = index(depth)
                        self._call(b, products[name], (p.rows, tile), (p.panels, panel), a, packed_panel, place, size)

    def _row(self, b: ir.IRBuilder, head: _Head, rows: Rows, row: ir.Value, end: ir.Value) -> None:
        """One row: u into p, dp into du; both 0 from `end` on."""
        simd, op, logits = self.simd, self.op, head.logits
        weights, du, slopes = (
            offset(b, head.memory[name], (row, self.row_nbytes)) for name in ("weights", "du", "slopes")
        )

        def over(body: Callable[[ir.Value, ir.Value], None]) -> None:
            with counting(b, 0, end, simd.lanes) as key:
                body(key, times(b, key, simd.itemsize))

        def load(line: ir.Value, at: ir.Value) -> ir.Value:
            return simd.load(b, offset(b, line, at), align=simd.nbytes)

        def store(value: ir.Value, line: ir.Value, at: ir.Value) -> None:
            simd.store(b, value, offset(b, line, at), align=simd.nbytes)

        def fold(place: ir.Value) -> ir.Value:
            return b.load(place, typ=simd.vector, align=simd.itemsize)

        largest = register(b, simd, simd.constant(-inf))

        def find_largest(key: ir.Value, at: ir.Value) -> None:
            z, slope = logits.at(b, rows, row, key, load(weights, at))
            store(z, weights, at)
            if slope is not None:
                store(slope, slopes, at)
            b.store(simd.maximum(b, z, fold(largest)), largest, align=simd.itemsize)

        over(find_largest)
        found = simd.reduce(b, fold(largest), "max")
        is_hidden = b.fcmp_ordered("==", found, number(simd, -inf))
        pivot = simd.splat(b, b.select(is_hidden, number(simd, 0.0), found))
        total, mixed = register(b, simd, simd.zero), register(b, simd, simd.zero)

        all_hidden = simd.splat(b, is_hidden)

        def exponentials(key: ir.Value, at: ir.Value) -> None:
            z = load(weights, at)
            if self.is_uniform(logits):
                # All keys that there are get weight 1, which nothing depends on.
                is_key = simd.below(b, key, self.problem.keys)
                z = b.select(b.and_(all_hidden, is_key), simd.zero, z)
            e = functions.call(b, activation.exp.op, self.problem.dtype, (b.fsub(z, pivot),))
            store(e, weights, at)
            b.store(b.fadd(fold(total), e), total, align=simd.itemsize)

        over(exponentials)
        whole = simd.reduce(b, fold(total), "add")
        inverse = b.fdiv(number(simd, 1.0), whole)
        if op.empty_row == "zero" and logits.may_hide:
            is_empty = b.fcmp_ordered("==", whole, number(simd, 0.0))
            inverse = b.select(is_empty, number(simd, 0.0), inverse)
        factor = simd.splat(b, inverse)

        def normalise(key: ir.Value, at: ir.Value) -> None:
            share_of_key = b.fmul(load(weights, at), factor)
            store(share_of_key, weights, at)
            b.store(simd.multiply_add(b, share_of_key, load(du, at), fold(mixed)), mixed, align=simd.itemsize)

        over(normalise)
        mean = simd.splat(b, simd.reduce(b, fold(mixed), "add"))

        def differentiate(key: ir.Value, at: ir.Value) -> None:
            change = b.fmul(load(weights, at), b.fsub(load(du, at), mean))
            if self.is_uniform(logits):
                change = b.select(all_hidden, simd.zero, change)
            if op.attn_logit_softcap is not None:
                change = b.fmul(change, load(slopes, at))
            store(b.fmul(change, simd.constant(op.scale)), du, at)

        over(differentiate)
        done = b.and_(b.add(end, index(simd.lanes - 1)), index(-simd.lanes))
        with counting(b, done, self.problem.key_columns, simd.lanes) as key:
            for line in (weights, du):
                store(simd.zero, line, times(b, key, simd.itemsize))

    def _dq(
        self,
        b: ir.IRBuilder,
        head: _Head,
        kernels: dict[tuple[int, int], ir.Function],
        tiles: tuple[ir.Value, ir.Value],
        first: ir.Value,
        end: ir.Value,
    ) -> None:
        p, at, right = self.problem, self._result(Q), self._right(K)
        with counting(b, *tiles) as tile:
            start = start_of(b, p.rows, tile)
            a = offset(b, head.memory["du"], (b.sub(start, first), self.row_nbytes))
            with counting(b, 0, right.panels.pieces) as panel:
                vector = start_of(b, right.panels, panel)
                place = offset(b, head.dq, (start, at.position), (times(b, vector, p.lanes), at.feature))

                def panel_at(vectors: int, vector: ir.Value = vector) -> ir.Value:
                    return right.panel(b, head.k_ready, vector, index(0), vectors)

                self._call(b, kernels, (p.rows, tile), (right.panels, panel), a, panel_at, place, end)

    def _add(
        self,
        b: ir.IRBuilder,
        block: ir.Value,
        sums: ir.Value,
        kernels: dict[tuple[int, int], ir.Function],
        right: ByPosition,
        ready: ir.Value,
        queries: tuple[ir.Value, ir.Value],
        end: ir.Value,
    ) -> None:
        """Add the product of a block's transpose with rows of q or dy to dk or dv, for keys before `end`."""
        simd, first = self.simd, queries[0]
        with counting(b, 0, self.key_rows.pieces) as tile:
            key = start_of(b, self.key_rows, tile)
            a = offset(b, block, (key, simd.itemsize))
            with b.if_then(b.icmp_signed("<", key, end)), counting(b, 0, right.panels.pieces) as panel:
                vector = start_of(b, right.panels, panel)
                place = offset(b, sums, (key, right.columns * simd.itemsize), (vector, simd.nbytes))

                def panel_at(vectors: int, vector: ir.Value = vector) -> ir.Value:
                    return right.panel(b, ready, vector, first, vectors)

                self._call(b, kernels, (self.key_rows, tile), (right.panels, panel), a, panel_at, place, queries[1])

    def _call(
        self,
        b: ir.IRBuilder,
        kernels: dict[tuple[int, int], ir.Function],
        tile: tuple[Cut, ir.Value],
        panel: tuple[Cut, ir.Value],
        a: ir.Value,
        right: Callable[[int], ir.Value],
        place: ir.Value,
        depth: ir.Value,
    ) -> None:
        """Call the microkernel of a tile's height and a panel's width; one that adds up finds earlier sums or zeros."""
        no, yes = ir.Constant(I1, 0), ir.Constant(I1, 1)
        column = times(b, start_of(b, *panel), self.simd.lanes)
        for rows in by_size(b, *tile):
            for vectors in by_size(b, *panel):
                there = right(vectors)
                b.call(
                    kernels[rows, vectors],
                    [a, there, place, there, depth, no, yes, index(0), index(0), column, a],
                )

    def _deliver(
        self,
        b: ir.IRBuilder,
        sums: ir.Value,
        out: ir.Value,
        at: HeadStrides,
        right: ByPosition,
        keys: tuple[ir.Value, ir.Value] | None = None,
    ) -> None:
        """The sum of a head's segments of dk or dv, to where the result lies."""
        simd, features = self.simd, right.features
        low, high = keys or (index(0), index(self.problem.keys))
        with counting(b, low, high) as key, counting(b, 0, right.columns, simd.lanes) as column:
            place = offset(b, sums, (key, right.columns * simd.itemsize), (column, simd.itemsize))
            value = simd.load(b, place)
            for segment in range(1, self.segments):
                value = b.fadd(value, simd.load(b, offset(b, place, segment * sum(self.sums.values()))))
            place = offset(b, out, (key, at.position), (column, at.feature))
            if at.feature == simd.itemsize:
                simd.store(b, value, place, simd.below(b, column, features) if features % simd.lanes else None)
            else:
                simd.store_spread(b, value, place, at.feature, b.sub(index(features), column))


def _nothing(simd: Simd, b: ir.IRBuilder, buffers: ir.Value) -> Epilogue:
    return Epilogue()
