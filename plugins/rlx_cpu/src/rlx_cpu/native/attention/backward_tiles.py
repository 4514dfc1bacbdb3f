"""Attention backward: dq, dk and dv of one key head after the other, with the weights recomputed block by block.

An item is a batch entry and a key head with all query heads that share it. If there are few items, the blocks of queries of
each are distributed to segments, which accumulate dk and dv separately; a second phase adds the segments in order, so the
result does not depend on the assignment to threads. For each block of queries: weights p from the logits, `dp = do·vᵀ`,
`dw = p·(dp - Σ p·dp)`, `du = s·slope·dw`; then `dq = du·k`, and `dk += duᵀ·q`, `dv += pᵀ·do`, which read the blocks of p and
du by columns in place. For a bias, all dw are written to memory and summed by the second phase.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import evolve

from rlx_core.codegen.attention import HeadStrides
from rlx_core.system.records import frozen
from rlx_cpu.native.attention.backward_bias import clear_bias, sum_bias
from rlx_cpu.native.attention.backward_plan import BackwardPlan, Head
from rlx_cpu.native.attention.backward_products import BackwardProducts
from rlx_cpu.native.attention.backward_row import differentiate_row
from rlx_cpu.native.attention.operands import ByPosition, copy_rows, pack_head
from rlx_cpu.native.attention.parts import Logits, ScoreRows, number
from rlx_cpu.native.attention.plan import DY, K, Q, V
from rlx_cpu.native.contract import Emitted
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.build import KERNEL, Variable, least, most
from rlx_cpu.native.llvm.cuts import start_of
from rlx_cpu.native.llvm.simd import counting, index, offset, pointer_at, share, times
from rlx_cpu.native.llvm.sizes import is_known, sized


@frozen(eq=False)
class SharedHead:
    """A head of keys and values, which several query heads may share, with the thread's memory.

    Attributes:
        operands, results: Start addresses of the operands and results, by their positions.
        shared: The memory shared by threads.
    """

    plan: BackwardPlan
    operands: Mapping[int, ir.LlvmValue]
    results: Mapping[int, ir.LlvmValue]
    shared: ir.LlvmValue
    batch: ir.LlvmValue
    kv_head: ir.LlvmValue
    memory: dict[str, ir.LlvmValue]

    def operand(self, b: ir.IRBuilder, position: int, head: ir.LlvmValue) -> ir.LlvmValue:
        """Return the start address of a head of an operand."""
        return self._head(b, self.operands[position], self.plan.operand(position), head)

    def result(self, b: ir.IRBuilder, position: int, head: ir.LlvmValue) -> ir.LlvmValue:
        """Return the start address of a head of a result."""
        return self._head(b, self.results[position], self.plan.result(position), head)

    def _head(self, b: ir.IRBuilder, start: ir.LlvmValue, strides: HeadStrides, head: ir.LlvmValue) -> ir.LlvmValue:
        return offset(b, start, (self.batch, strides.batch), (head, strides.head))


@frozen(eq=False)
class Backward:
    """Attention backward while its function is emitted."""

    plan: BackwardPlan
    name: str

    def emit(self) -> Emitted:
        plan, p = self.plan, self.plan.problem
        b = ir.new_function(plan.simd.module, KERNEL, self.name)
        arguments = b.function.args
        is_empty = not (p.batch and p.queries and p.keys and p.width)
        prologue = None
        if is_empty:
            with b.if_then(b.icmp_signed("==", arguments[1], index(0))):
                self._clear(b, arguments[0])
        elif plan.shared == 0:
            self._items(b, arguments)
        else:
            prologue = f"{self.name}.items"
            inner = ir.new_function(plan.simd.module, KERNEL, prologue)
            self._items(inner, inner.function.args)
            inner.ret_void()
            if plan.has_segments:
                self._combine(b, arguments)
            if plan.bias is not None:
                sum_bias(b, plan, arguments)
        b.ret_void()
        return Emitted(
            self.name,
            workspace=0 if is_empty else plan.own,
            shared_workspace=0 if is_empty else plan.shared,
            uses_threads=plan.uses_threads,
            parts=plan.parts,
            prologue=prologue,
            notes={
                "tile": f"{plan.cut.rows.size}x{plan.cut.panels.size * plan.cut.lanes}",
                **({"queries": plan.cut.rows.size * plan.partition.group} if plan.cut.is_known else {}),
            },
        )

    def _clear(self, b: ir.IRBuilder, buffers: ir.LlvmValue) -> None:
        """Set all cotangents to 0, for an attention without keys or queries."""
        plan, p = self.plan, self.plan.problem
        zero = number(plan.simd, 0.0)
        for i, (heads, positions, features) in enumerate(
            ((p.heads, p.queries, p.features), (p.kv_heads, p.keys, p.features), (p.kv_heads, p.keys, p.width))
        ):
            strides, start = plan.result(i), pointer_at(b, buffers, len(plan.layout.operands) + i)
            with (
                counting(b, 0, p.batch) as batch,
                counting(b, 0, heads) as head,
                counting(b, 0, positions) as position,
                counting(b, 0, features) as feature,
            ):
                entry = offset(b, start, (batch, strides.batch), (head, strides.head))
                place = offset(b, entry, (position, strides.position), (feature, strides.feature))
                plan.stored.store_scalar(b, zero, place)
        if plan.bias is not None:
            clear_bias(b, plan, buffers)

    def _items(self, b: ir.IRBuilder, arguments: tuple[ir.FunctionArgument, ...]) -> None:
        """A part's share of heads of keys, or of segments of their queries."""
        buffers, part, parts, thread = arguments
        plan, p, segments = self.plan, self.plan.problem, self.plan.partition.segments
        products, logits = BackwardProducts(plan, self.name), Logits(plan.placed, plan.simd, buffers)
        count, results = len(plan.layout.operands), len(plan.layout.results)
        read = {position: pointer_at(b, buffers, position) for position in (Q, K, V, DY)}
        written = {position: pointer_at(b, buffers, count + position) for position in (Q, K, V)}
        shared = pointer_at(b, buffers, count + results)
        thread_memory, place = {}, offset(b, shared, plan.shared, (thread, plan.own))
        for name, nbytes in plan.memory.items():
            thread_memory[name], place = place, offset(b, place, nbytes)
        with counting(b, *share(b, plan.items * segments, part, parts)) as unit:
            segment, item = b.srem(unit, sized(b, segments)), b.sdiv(unit, sized(b, segments))
            kv_head, batch = b.srem(item, index(p.kv_heads)), b.sdiv(item, index(p.kv_heads))
            memory = dict(thread_memory)
            if plan.has_segments:
                memory["dk"] = offset(b, shared, (unit, sum(plan.sums.values())))
                memory["dv"] = offset(b, memory["dk"], plan.sums["dk"])
            shared_head = SharedHead(plan, read, written, shared, batch, kv_head, memory)
            k_ready = self._prepare(b, shared_head)
            self._query_heads(b, shared_head, segment, k_ready, products, logits)
            if not plan.has_segments:
                for name, position, right in (("dk", K, plan.right(Q)), ("dv", V, plan.right(DY))):
                    out = shared_head.result(b, position, kv_head)
                    self._deliver(b, memory[name], out, plan.result(position), right)

    def _prepare(self, b: ir.IRBuilder, shared: SharedHead) -> ir.LlvmValue:
        """Pack a head's keys and values, and clear the sums of dk and dv; where the keys are the right side of dq."""
        plan, p, simd, memory = self.plan, self.plan.problem, self.plan.simd, shared.memory
        keys, values = (shared.operand(b, position, shared.kv_head) for position in (K, V))
        for source, name, position, depth in ((keys, "keys", K, p.features), (values, "values", V, p.width)):
            by = (plan.operand(position).feature, plan.operand(position).position)
            pack_head(b, plan.words, source, by, memory[name], plan.cut.panels, depth, p.keys)
        k_ready = plan.right(K).ready(b, keys, memory["k"])
        for name in ("dk", "dv"):
            with counting(b, 0, plan.sums[name], simd.nbytes) as place:
                simd.store(b, simd.zero, offset(b, memory[name], place), align=simd.nbytes)
        return k_ready

    def _query_heads(
        self,
        b: ir.IRBuilder,
        shared: SharedHead,
        segment: ir.LlvmValue,
        k_ready: ir.LlvmValue,
        products: BackwardProducts,
        logits: Logits,
    ) -> None:
        """The blocks of a segment: of some of the query heads that share a head of keys."""
        plan, p = self.plan, self.plan.problem
        members, of_head = p.heads // p.kv_heads, sized(b, plan.partition.blocks)
        first, last = share(b, members * plan.partition.blocks, segment, sized(b, plan.partition.segments))
        last_member = b.sdiv(b.add(last, sized(b, plan.partition.blocks - 1)), of_head)
        with counting(b, b.sdiv(first, of_head), last_member) as member:
            skipped = times(b, member, plan.partition.blocks)
            blocks = most(b, b.sub(first, skipped), index(0)), least(b, b.sub(last, skipped), of_head)
            head = b.add(times(b, shared.kv_head, members), member)
            q, dy = (shared.operand(b, position, head) for position in (Q, DY))
            number_of_head = b.add(times(b, shared.batch, p.heads), head)
            dw = offset(b, shared.shared, plan.segment_sums, (number_of_head, plan.logits_nbytes))
            self._head(
                b,
                Head(
                    batch=shared.batch,
                    head=head,
                    q=q,
                    dy=dy,
                    dq=shared.result(b, Q, head),
                    q_ready=plan.right(Q).ready(b, q, shared.memory["q"]),
                    dy_ready=plan.right(DY).ready(b, dy, shared.memory["dy"]),
                    k_ready=k_ready,
                    logits=logits,
                    memory=shared.memory,
                    dw=None if plan.bias is None else dw,
                ),
                products,
                blocks,
            )

    def _head(
        self, b: ir.IRBuilder, head: Head, products: BackwardProducts, blocks: tuple[ir.LlvmValue, ir.LlvmValue]
    ) -> None:
        """A range of blocks of queries of one query head."""
        plan, p = self.plan, self.plan.problem
        with counting(b, *blocks) as block:
            tile = times(b, block, plan.partition.group)
            tile_end = least(b, b.add(tile, sized(b, plan.partition.group)), sized(b, plan.cut.rows.pieces))
            first = start_of(b, plan.cut.rows, tile)
            count = b.sub(start_of(b, plan.cut.rows, tile_end), first)
            _, end = head.logits.visible(b, first, count)
            if plan.is_uniform(head.logits):
                end = sized(b, p.keys)
            # A block that sees no key at all still writes its zeros, through vectors of one key.
            end = most(b, end, index(1))
            products.scores(b, self._widened(b, head, first, count), (tile, tile_end), first, end)
            rows = ScoreRows(head.batch, head.head, first)
            with counting(b, 0, count) as row:
                differentiate_row(b, plan, head, rows, row, end)
            products.dq(b, head, (tile, tile_end), first, end)
            for name in ("dk", "dv"):
                products.add(b, head, name, first, count, end)

    def _widened(self, b: ir.IRBuilder, head: Head, first: ir.LlvmValue, count: ir.LlvmValue) -> Head:
        """A head whose q and dy are rows of words: where they lie, or a block of them copied."""
        plan, p = self.plan, self.plan.problem
        if plan.stored.is_same:
            return head
        q, dy = head.memory["q_rows"], head.memory["dy_rows"]
        for source, position, place, features in ((head.q, Q, q, p.features), (head.dy, DY, dy, p.width)):
            strides = plan.operand(position)
            copy_rows(b, plan.words, offset(b, source, (first, strides.position)), strides, place, count, features)
        return evolve(head, q=q, dy=dy)

    def _combine(self, b: ir.IRBuilder, arguments: tuple[ir.FunctionArgument, ...]) -> None:
        """Add up the segments of each item, key by key."""
        buffers, part, parts, _ = arguments
        plan, p, operands = self.plan, self.plan.problem, len(self.plan.layout.operands)
        shared = pointer_at(b, buffers, operands + len(plan.layout.results))
        low, high = share(b, plan.items * p.keys, part, parts)
        with counting(b, low, high) as unit:
            key, item = b.srem(unit, sized(b, p.keys)), b.sdiv(unit, sized(b, p.keys))
            kv_head, batch = b.srem(item, index(p.kv_heads)), b.sdiv(item, index(p.kv_heads))
            sums = offset(b, shared, (item, plan.partition.segments * sum(plan.sums.values())))
            for position, start, right in ((K, 0, plan.right(Q)), (V, plan.sums["dk"], plan.right(DY))):
                strides = plan.result(position)
                out = offset(
                    b, pointer_at(b, buffers, operands + position), (batch, strides.batch), (kv_head, strides.head)
                )
                self._deliver(b, offset(b, sums, start), out, strides, right, (key, b.add(key, index(1))))

    def _deliver(
        self,
        b: ir.IRBuilder,
        sums: ir.LlvmValue,
        out: ir.LlvmValue,
        strides: HeadStrides,
        right: ByPosition,
        keys: tuple[ir.LlvmValue, ir.LlvmValue] | None = None,
    ) -> None:
        """The sum of a head's segments of dk or dv, to where the result lies."""
        plan, simd = self.plan, self.plan.simd
        low, high = keys or (index(0), sized(b, plan.problem.keys))
        by_segment = sum(plan.sums.values())
        with counting(b, low, high) as key, counting(b, 0, right.columns, simd.lanes) as column:
            place = offset(b, sums, (key, right.columns * simd.itemsize), (column, simd.itemsize))
            value = simd.load(b, place)
            if is_known(plan.partition.segments):
                for segment in range(1, plan.partition.segments):
                    value = b.fadd(value, simd.load(b, offset(b, place, segment * by_segment)))
            else:
                total = Variable.of(b, value)
                with counting(b, 1, plan.partition.segments) as number_of_segment:
                    more = simd.load(b, offset(b, place, (number_of_segment, by_segment)))
                    total.set(b, b.fadd(total.value(b), more))
                value = total.value(b)
            place = offset(b, out, (key, strides.position), (column, strides.feature))
            plan.stored.store_row(b, value, place, strides.feature, column, right.features)
