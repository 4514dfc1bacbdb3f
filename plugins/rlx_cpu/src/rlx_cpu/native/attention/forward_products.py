"""The two products of attention forward: scores of a tile's queries with a block of keys, and weights times its values."""

from __future__ import annotations

from rlx_cpu.native.attention.forward_plan import AttentionTile, ForwardPlan
from rlx_cpu.native.attention.plan import K, Q
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.build import I1, Variable, least
from rlx_cpu.native.llvm.cuts import by_size, start_of
from rlx_cpu.native.llvm.simd import counting, index, offset, times
from rlx_cpu.native.llvm.sizes import sized
from rlx_cpu.native.llvm.words import Words
from rlx_cpu.native.products.gemm_tiles import UNROLL
from rlx_cpu.native.products.microkernel import Microkernel, MicrokernelArguments, ResultTile, Right


class ForwardProducts:
    """The microkernels of both products, by rows and vectors, and the loops that call them.

    Args:
        plan: The choices.
        name: Prefix of functions' names.
        buffers: The kernel's argument.
    """

    def __init__(self, plan: ForwardPlan, name: str, buffers: ir.LlvmValue) -> None:
        self._plan = plan
        self._buffers = buffers
        self._scores: dict[tuple[int, int], ir.Function] = {}
        self._values: dict[tuple[int, int], ir.Function] = {}
        for rows in plan.cut.rows.sizes:
            for vectors in () if plan.reads_keys else plan.cut.panels.sizes:
                kernel = self._score_kernel(rows, vectors)
                self._scores[rows, vectors] = kernel.emit(f"{name}.scores{rows}x{vectors}")
            for vectors in plan.cut.outputs.sizes:
                kernel = self._value_kernel(rows, vectors)
                self._values[rows, vectors] = kernel.emit(f"{name}.values{rows}x{vectors}")

    def scores(
        self,
        b: ir.IRBuilder,
        tile: AttentionTile,
        panels: tuple[ir.LlvmValue, ir.LlvmValue],
        keys: tuple[ir.LlvmValue, ir.LlvmValue],
    ) -> None:
        """Products of a tile's queries with a block of keys, which `panels` hold if they are transposed."""
        if self._plan.reads_keys:
            self._dot_products(b, tile, *keys)
        else:
            self._score_panels(b, tile, panels, keys[1])

    def add_values(self, b: ir.IRBuilder, tile: AttentionTile, first_key: ir.LlvmValue, count: ir.LlvmValue) -> None:
        """Add the weights of a block times its values to a tile's sums."""
        simd, right = self._plan.simd, self._plan.values
        false = ir.LlvmConstant(I1, 0)
        with counting(b, 0, self._plan.cut.outputs.pieces) as panel:
            start = start_of(b, self._plan.cut.outputs, panel)
            column = times(b, start, simd.lanes)
            place = offset(b, tile.sums, (start, simd.nbytes))
            for vectors in by_size(b, self._plan.cut.outputs, panel):
                packed = right.panel(b, tile.values, start, first_key, vectors)
                # Sums start at zero in memory, so no block is treated as the first.
                arguments = MicrokernelArguments.alone(tile.scores, packed, place, count, column, is_first=false)
                b.call(self._values[tile.rows, vectors], arguments.present)

    def _score_panels(
        self, b: ir.IRBuilder, tile: AttentionTile, panels: tuple[ir.LlvmValue, ir.LlvmValue], end: ir.LlvmValue
    ) -> None:
        """With keys transposed."""
        p, simd = self._plan.problem, self._plan.simd
        first_panel = start_of(b, self._plan.cut.panels, panels[0])
        with counting(b, *panels) as panel:
            start = start_of(b, self._plan.cut.panels, panel)
            column = times(b, start, simd.lanes)
            with b.if_then(b.icmp_signed("<", column, end)):
                packed = offset(b, tile.keys, (start, simd.nbytes * p.features))
                place = offset(b, tile.scores, (b.sub(start, first_panel), simd.nbytes))
                for vectors in by_size(b, self._plan.cut.panels, panel):
                    arguments = MicrokernelArguments.alone(tile.q, packed, place, index(p.features), column)
                    b.call(self._scores[tile.rows, vectors], arguments.present)

    def _dot_products(self, b: ir.IRBuilder, tile: AttentionTile, first_key: ir.LlvmValue, end: ir.LlvmValue) -> None:
        """With keys where they lie: a vector of keys at a time, each with an accumulator along the features."""
        plan, p, simd, stored = self._plan, self._plan.problem, self._plan.simd, self._plan.stored
        keys = plan.key_words.stored
        q, k = plan.operand(Q), plan.operand(K)
        even = p.features - p.features % simd.lanes
        tail = simd.below(b, index(even), p.features)
        with counting(b, 0, b.sub(end, first_key), simd.lanes) as column, counting(b, 0, tile.rows) as row:
            query = offset(b, tile.q, (row, q.position))
            rows = [
                # Keys beyond the last repeat it; the mask hides them later.
                offset(
                    b,
                    tile.keys,
                    (least(b, b.add(b.add(first_key, column), index(i)), sized(b, p.keys - 1)), k.position),
                )
                for i in range(simd.lanes)
            ]
            sums = [Variable.of(b, simd.zero) for _ in rows]

            def add(
                feature: ir.LlvmValue,
                mask: ir.LlvmValue | None,
                query: ir.LlvmValue = query,
                rows: list[ir.LlvmValue] = rows,
            ) -> None:
                byte_offset = times(b, feature, stored.itemsize)
                factor = stored.load(b, offset(b, query, byte_offset), mask)
                if keys.itemsize != stored.itemsize:
                    byte_offset = times(b, feature, keys.itemsize)
                for total, key in zip(sums, rows, strict=True):
                    so_far = total.value(b)
                    other = keys.load(b, offset(b, key, byte_offset), mask)
                    total.set(b, simd.multiply_add(b, factor, other, so_far))

            for total in sums:
                total.set(b, simd.zero)
            with counting(b, 0, even, simd.lanes) as feature:
                add(feature, None)
            if even < p.features:
                add(index(even), tail)
            place = offset(b, tile.scores, (row, plan.score_nbytes), (column, simd.itemsize))
            simd.store(b, simd.sums(b, [total.value(b) for total in sums]), place, align=simd.nbytes)

    # --------------------------------------------------------------------------------- microkernels

    def _score_kernel(self, rows: int, vectors: int) -> Microkernel:
        plan, p, simd, plain = self._plan, self._plan.problem, self._plan.simd, Words.plain(self._plan.simd)
        q = plan.operand(Q)
        copied = (p.features * simd.itemsize, simd.itemsize)
        return Microkernel(
            words=plain, rows=rows, vectors=vectors,
            a_strides=copied if plan.copies_queries else (q.position, q.feature),
            right=Right(vectors * simd.nbytes, simd.nbytes),
            result=ResultTile(plain.stored, (plan.score_nbytes, simd.itemsize)),
            is_even=p.features > 0 and p.features % UNROLL == 0,
        )  # fmt: skip

    def _value_kernel(self, rows: int, vectors: int) -> Microkernel:
        plan, p, simd, right = self._plan, self._plan.problem, self._plan.simd, self._plan.values
        return Microkernel(
            words=plan.key_words, rows=rows, vectors=vectors, a_strides=(plan.score_nbytes, simd.itemsize),
            right=right.right(vectors),
            result=ResultTile(
                Words.plain(simd).stored, (plan.sum_nbytes, simd.itemsize), p.width if right.is_partial else None
            ),
            accumulates=plan.cut.blocks > 1,
        )  # fmt: skip
