"""The inner loop of every product: a tile of sums that stays in registers while k runs.

For each word of k, one vector load for every column vector of B, one broadcast for every row of A, and a fused product for every
pair. Everything that the loop needs to know (strides, sizes, what follows the last k) is fixed when it is emitted.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

from attrs import frozen

from rlx_cpu.native import ir
from rlx_cpu.native.build import CACHE_LINE, I1, I64, POINTER, VOID, prefetch
from rlx_cpu.native.epilogue import Epilogue, Spot
from rlx_cpu.native.gemm_tiles import UNROLL
from rlx_cpu.native.simd import Simd, counting, index, offset
from rlx_cpu.native.stored import Stored
from rlx_cpu.native.words import Words

__all__ = ["Microkernel"]

Sums = list[list[ir.Value]]


def nothing_follows(simd: Simd, b: ir.IRBuilder, buffers: ir.Value) -> Epilogue:
    """Sums are results."""
    return Epilogue()


@frozen(eq=False)
class Microkernel:
    """A function that multiplies one tile: `c[rows, columns] = epilogue(a[rows, k] @ b[k, columns])`.

    Attributes:
        words: What is multiplied, and the lanes; A is words already.
        rows: Rows of the tile.
        vectors: Column vectors of the tile.
        a_strides: Bytes from a row of A to the next, and from a word to the next.
        b_stride: Bytes from a word of B to the next along k; columns are contiguous.
        b_align: What is known of B's alignment, in bytes.
        result: How C holds its elements.
        c_strides: Bytes from a row of C to the next, and from a column to the next.
        columns: Columns of the whole result, where the last vector of a tile may reach beyond them.
        masks_b: Whether B itself ends there, rather than being filled up with zeros.
        makes_words: Whether B's elements become words when they are loaded.
        accumulates: Whether K comes in several blocks.
        is_even: Whether every call takes whole rounds of `UNROLL` words, one at least; no code is made for anything else.
        sums_stride: Bytes from a row of partial sums to the next, where they wait apart; `None` if they wait in C.
        sharers: Among how many tiles the prefetching of the panel that comes next is divided; 0 for no prefetching.
        asks_result: Whether lines of C are asked for while products are made: stores to what is far would wait for them.
        epilogue: Makes the stages that follow the last k; called with the buffers that the kernel is given.
    """

    words: Words
    rows: int
    vectors: int
    a_strides: tuple[int, int]
    b_stride: int
    b_align: int
    result: Stored
    c_strides: tuple[int, int]
    columns: int | None = None
    masks_b: bool = False
    makes_words: bool = False
    accumulates: bool = False
    is_even: bool = False
    sums_stride: int | None = None
    sharers: int = 0
    asks_result: bool = False
    epilogue: Callable[[Simd, ir.IRBuilder, ir.Value], Epilogue] = nothing_follows

    @property
    def simd(self) -> Simd:
        return self.words.simd

    def emit(self, name: str) -> ir.Function:
        """Add `void name(a, b, c, sums, next, k, is_first, is_last, batch, row, column, buffers)` to the module.

        `sums` is where partial sums wait, if not in C; `next` where this tile's share of the next panel starts, `k` how many
        words this call takes; `row` and `column` say where the tile lies in the result.
        """
        operands = [POINTER, POINTER, POINTER, POINTER, POINTER, I64, I1, I1, I64, I64, I64, POINTER]
        function = ir.Function(self.simd.module, ir.FunctionType(VOID, operands), name)
        function.linkage = "internal"
        names = ("a", "b", "c", "sums", "next", "k", "is_first", "is_last", "batch", "row", "column", "buffers")
        for argument, known in zip(function.args, names, strict=True):
            argument.named(known)
        # C may be what the epilogue reads, and what is stored there first another result's element.
        for pointer in function.args[:2]:
            pointer.add_attribute("noalias")
        self._build(ir.IRBuilder(function.append_basic_block("entry")), function.args)
        return function

    # ------------------------------------------------------------------------------------- the body

    def _build(self, b: ir.IRBuilder, arguments: tuple[ir.Argument, ...]) -> None:
        a, panel, c, partial_sums, following, depth, is_first, is_last, batch, row, column, buffers = arguments
        scratch = b.alloca(self.simd.vector, size=self.rows * self.vectors)
        scratch.align = self.simd.nbytes
        starts = [b.add(column, index(j * self.simd.lanes)) for j in range(self.vectors)]
        masks: list[ir.Value | None] = [None] * self.vectors
        if self.columns is not None:
            masks[-1] = self.simd.below(b, starts[-1], self.columns)
        self._ask(b, is_last, (batch, row), starts, masks, buffers)
        if self.asks_result:
            self._ask_result(b, c, is_first)
        waiting = c if self.sums_stride is None else partial_sums
        sums = self._initial(b, waiting, is_first, masks)
        sums = self._products(b, (a, panel, following), depth, sums, masks if self.masks_b else [None] * self.vectors)
        if not self.accumulates:
            self._finish(b, c, sums, scratch, (batch, row), starts, masks, buffers)
        else:
            with b.if_else(is_last) as (done, partial):
                with done:
                    self._finish(b, c, sums, scratch, (batch, row), starts, masks, buffers)
                with partial:
                    for i, line in enumerate(sums):
                        for j, value in enumerate(line):
                            self.simd.store(b, value, *self._waiting(b, waiting, i, j, masks))
        b.ret_void()

    def _ask(
        self,
        b: ir.IRBuilder,
        is_last: ir.Value,
        place: tuple[ir.Value, ir.Value],
        starts: list[ir.Value],
        masks: list[ir.Value | None],
        buffers: ir.Value,
    ) -> None:
        """Have what the epilogue will read brought near, before the last block of k."""
        epilogue = self.epilogue(self.simd, b, buffers)
        if not epilogue.asks:
            return
        batch, row = place
        with b.if_then(is_last):
            for i in range(self.rows):
                for start, mask in zip(starts, masks, strict=True):
                    for ask in epilogue.asks:
                        ask(b, Spot(batch, b.add(row, index(i)), start, mask))

    def _ask_result(self, b: ir.IRBuilder, c: ir.Value, is_first: ir.Value) -> None:
        """Have the tile's part of C brought near before it is written the first time."""
        line = self.simd.lanes * self.c_strides[1]
        with b.if_then(is_first) if self.accumulates else nullcontext():
            for i in range(self.rows):
                for j in range(self.vectors):
                    prefetch(b, offset(b, c, i * self.c_strides[0] + j * line), is_written=True)

    def _initial(self, b: ir.IRBuilder, waiting: ir.Value, is_first: ir.Value, masks: list[ir.Value | None]) -> Sums:
        """Zeros, or what earlier blocks of k left."""
        zeros: Sums = [[self.simd.zero] * self.vectors for _ in range(self.rows)]
        if not self.accumulates:
            return zeros
        again, ready = b.append_basic_block("again"), b.append_basic_block("ready")
        before = b.block
        b.cbranch(is_first, ready, again)
        b.position_at_end(again)
        found = [
            [self.simd.load(b, *self._waiting(b, waiting, i, j, masks)) for j in range(self.vectors)]
            for i in range(self.rows)
        ]
        b.branch(ready)
        b.position_at_end(ready)
        return [
            [_merge(b, self.simd.vector, (z, before), (f, again)) for z, f in zip(zs, fs, strict=True)]
            for zs, fs in zip(zeros, found, strict=True)
        ]

    def _products(
        self,
        b: ir.IRBuilder,
        streams: tuple[ir.Value, ...],
        depth: ir.Value,
        sums: Sums,
        masks: list[ir.Value | None],
    ) -> Sums:
        """All of k: rounds of several steps, then the steps that are left."""
        if self.is_even:
            return self._rounds(b, streams, depth, sums, UNROLL, masks)[1]
        rest = b.and_(depth, index(UNROLL - 1))
        streams, sums = self._rounds(b, streams, b.sub(depth, rest), sums, UNROLL, masks)
        return self._rounds(b, streams, rest, sums, 1, masks)[1]

    def _rounds(
        self,
        b: ir.IRBuilder,
        streams: tuple[ir.Value, ...],
        count: ir.Value,
        sums: Sums,
        unroll: int,
        masks: list[ir.Value | None],
    ) -> tuple[tuple[ir.Value, ...], Sums]:
        """`count` steps, `unroll` at a time; `streams` are where A, B and the next panel are read."""
        loop, done = b.append_basic_block("k.loop"), b.append_basic_block("k.done")
        before = b.block
        if self.is_even:
            b.branch(loop)
        else:
            b.cbranch(b.icmp_signed(">", count, index(0)), loop, done)
        b.position_at_end(loop)
        left = b.phi(I64)
        here = [b.phi(POINTER) for _ in streams]
        running = [[b.phi(self.simd.vector) for _ in line] for line in sums]
        current: Sums = [list(line) for line in running]
        a, panel, following = here
        nbytes = unroll * self.b_stride // self.sharers if self.sharers else 0
        asked = range(0, nbytes, CACHE_LINE)
        for u in range(unroll):
            self._step(b, offset(b, a, u * self.a_strides[1]), offset(b, panel, u * self.b_stride), current, masks)
            for start in asked[u * len(asked) // unroll : (u + 1) * len(asked) // unroll]:
                prefetch(b, offset(b, following, start), nearness=2)
        moved = (unroll * self.a_strides[1], unroll * self.b_stride, nbytes)
        after_round = [offset(b, p, by) for p, by in zip(here, moved, strict=True)]
        remaining = b.sub(left, index(unroll))
        flat = [(p, s, n) for row in zip(running, sums, current, strict=True) for p, s, n in zip(*row, strict=True)]
        for phi, first, again in (
            (left, count, remaining),
            *zip(here, streams, after_round, strict=True),
            *flat,
        ):
            phi.add_incoming(first, before)
            phi.add_incoming(again, loop)
        b.cbranch(b.icmp_signed(">", remaining, index(0)), loop, done)
        b.position_at_end(done)
        if self.is_even:
            return tuple(after_round), current
        ends = tuple(_merge(b, POINTER, (s, before), (n, loop)) for s, n in zip(streams, after_round, strict=True))
        totals = iter([_merge(b, self.simd.vector, (s, before), (n, loop)) for _, s, n in flat])
        return ends, [[next(totals) for _ in line] for line in sums]

    def _step(self, b: ir.IRBuilder, a: ir.Value, panel: ir.Value, sums: Sums, masks: list[ir.Value | None]) -> None:
        """One k: the outer product of a column of A and a row of B."""
        simd, words = self.simd, self.words
        line = [self._right(b, panel, j, masks[j]) for j in range(self.vectors)]
        for i in range(self.rows):
            factor = simd.splat(b, simd.load_scalar(b, offset(b, a, i * self.a_strides[0]), words.align))
            for j, value in enumerate(line):
                sums[i][j] = words.multiply_add(b, factor, value, sums[i][j])

    def _right(self, b: ir.IRBuilder, panel: ir.Value, j: int, mask: ir.Value | None) -> ir.Value:
        """A vector of words of B."""
        if not self.makes_words:
            return self.simd.load(b, offset(b, panel, j * self.simd.nbytes), mask, align=self.b_align)
        words = self.words
        place = offset(b, panel, j * words.stored.nbytes)
        return words.across(b, place, self.b_stride // words.per_word, mask, self.b_align)

    # ------------------------------------------------------------------------------------- the result

    def _finish(
        self,
        b: ir.IRBuilder,
        c: ir.Value,
        sums: Sums,
        scratch: ir.Value,
        place: tuple[ir.Value, ir.Value],
        starts: list[ir.Value],
        masks: list[ir.Value | None],
        buffers: ir.Value,
    ) -> None:
        """The epilogue and the stores; a long epilogue goes over the tile in memory, row by row."""
        epilogue = self.epilogue(self.simd, b, buffers)
        batch, row = place

        def spot(i: ir.Value, j: int) -> Spot:
            return Spot(batch, b.add(row, i), starts[j], masks[j])

        if not epilogue.is_long:
            values = [
                [epilogue.apply(b, value, spot(index(i), j)) for j, value in enumerate(line)]
                for i, line in enumerate(sums)
            ]
            for i, line in enumerate(values):
                for j, value in enumerate(line):
                    self._store(b, value, self._place(b, c, i, j), starts[j], masks[j])
            return
        for i, line in enumerate(sums):
            for j, value in enumerate(line):
                self.simd.store(
                    b, value, offset(b, scratch, (i * self.vectors + j) * self.simd.nbytes), align=self.simd.nbytes
                )
        with counting(b, 0, self.rows) as at:
            line_start = offset(b, scratch, (at, self.vectors * self.simd.nbytes))
            c_row = offset(b, c, (at, self.c_strides[0]))
            for j in range(self.vectors):
                value = self.simd.load(b, offset(b, line_start, j * self.simd.nbytes), align=self.simd.nbytes)
                value = epilogue.apply(b, value, spot(at, j))
                self._store(b, value, self._place(b, c_row, 0, j), starts[j], masks[j])

    def _place(self, b: ir.IRBuilder, c: ir.Value, i: int, j: int) -> ir.Value:
        return offset(b, c, i * self.c_strides[0] + j * self.simd.lanes * self.c_strides[1])

    def _waiting(
        self, b: ir.IRBuilder, sums: ir.Value, i: int, j: int, masks: list[ir.Value | None]
    ) -> tuple[ir.Value, ir.Value | None]:
        """Where a vector of partial sums waits, and which lanes there are."""
        if self.sums_stride is None:
            return self._place(b, sums, i, j), masks[j]
        return offset(b, sums, i * self.sums_stride + j * self.simd.nbytes), None

    def _store(self, b: ir.IRBuilder, value: ir.Value, place: ir.Value, start: ir.Value, mask: ir.Value | None) -> None:
        if self.c_strides[1] == self.result.itemsize:
            self.result.store(b, value, place, mask)
            return
        count = None if mask is None else b.sub(index(self.columns or 0), start)
        self.result.store_spread(b, value, place, self.c_strides[1], count)


def _merge(
    b: ir.IRBuilder, kind: ir.Type, first: tuple[ir.Value, ir.Block], second: tuple[ir.Value, ir.Block]
) -> ir.Value:
    merged = b.phi(kind)
    merged.add_incoming(*first)
    merged.add_incoming(*second)
    return merged
