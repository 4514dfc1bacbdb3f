"""The inner loop of every product: a tile of sums that stays in registers while k runs.

For each word of k, one vector load for every column vector of B, one broadcast for every row of A, and a fused product for every
pair. Everything that the loop needs to know (strides, sizes, what follows the last k) is fixed when it is emitted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from itertools import chain
from typing import NamedTuple

from rlx_core.codegen.product import Axes
from rlx_core.ir.dims import Dim, Expr
from rlx_core.system.records import frozen
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.build import CACHE_LINE, I1, I64, POINTER, VOID, prefetch
from rlx_cpu.native.llvm.simd import Simd, counting, index, offset, times
from rlx_cpu.native.llvm.sizes import sizes_of
from rlx_cpu.native.llvm.stored import Stored
from rlx_cpu.native.llvm.words import Words
from rlx_cpu.native.products.entries import walk
from rlx_cpu.native.products.epilogue import GemmEpilogue, TileElements
from rlx_cpu.native.products.gemm_tiles import UNROLL

Sums = list[list[ir.LlvmValue]]

Masks = list["ir.LlvmValue | None"] | None
"""The lanes of each vector of B that there are; `None` for all of all."""

TYPES = [POINTER] * 5 + [I64, I1, I1, I64, I64, I64, POINTER, I64]
"""Types of the arguments."""

SIGNATURE = ir.FunctionType(VOID, TYPES)
"""Signature of a microkernel without a pitch."""

NAMES = ("a", "b", "c", "sums", "next", "k", "is_first", "is_last", "batch", "row", "column", "buffers", "run", "pitch")
"""Names of the arguments in the text of a module."""


def nothing_follows(simd: Simd, b: ir.IRBuilder, buffers: ir.LlvmValue) -> GemmEpilogue:
    """Sums are results."""
    return GemmEpilogue()


@frozen
class Right:
    """The layout of B: columns are contiguous.

    Attributes:
        stride: Bytes from a word to the next along k.
        align: Its known alignment, in bytes.
        is_masked: Whether it ends where the result does, and is not padded with zeros.
        makes_words: Whether its elements become words when they are loaded.
        is_packed: Whether the elements of a word are neighbours.
        has_head: Whether a panel begins with the initial words of the sums.
    """

    stride: int
    align: int
    is_masked: bool = False
    makes_words: bool = False
    is_packed: bool = False
    has_head: bool = False


@frozen(eq=False)
class ResultTile:
    """The layout of C.

    Attributes:
        stored: The representation of its elements.
        strides: Bytes from a row to the next, and from a column to the next.
        columns: Columns of the whole result, where the last vector of a tile may reach beyond them.
        sums_stride: Bytes from a row of partial sums to the next, if they are stored separately; `None` if they are stored in
            C.
        is_prefetched: Whether its lines are prefetched while products are computed: stores that miss the caches would stall.
    """

    stored: Stored
    strides: tuple[int, int]
    columns: int | None = None
    sums_stride: int | None = None
    is_prefetched: bool = False


@frozen
class Runs:
    """Terms of A that lie in runs: `words` of each do, and runs are where `axes` lead."""

    words: int
    axes: Axes


class MicrokernelArguments(NamedTuple):
    """The arguments of a microkernel, in order.

    Attributes:
        a, panel, c: Start addresses of the tile's rows of A, its panel of B and its part of C.
        sums: Address of partial sums, if they are not in C.
        next_panel: Start address of the tile's share of the next panel, which it prefetches.
        k: Number of words in this call.
        is_first, is_last: Whether this is the first block of K, and the last.
        batch, row, column: Position of the tile in the results.
        buffers: The kernel's buffers.
        run: The first run of this call, if terms are grouped in runs.
        pitch: Run-time value of the microkernel's `pitch`, if it has one.
    """

    a: ir.LlvmValue
    panel: ir.LlvmValue
    c: ir.LlvmValue
    sums: ir.LlvmValue
    next_panel: ir.LlvmValue
    k: ir.LlvmValue
    is_first: ir.LlvmValue
    is_last: ir.LlvmValue
    batch: ir.LlvmValue
    row: ir.LlvmValue
    column: ir.LlvmValue
    buffers: ir.LlvmValue
    run: ir.LlvmValue
    pitch: ir.LlvmValue | None = None

    @property
    def present(self) -> list[ir.LlvmValue]:
        """Return the arguments that are present."""
        return [value for value in self if value is not None]

    @classmethod
    def alone(
        cls,
        a: ir.LlvmValue,
        panel: ir.LlvmValue,
        c: ir.LlvmValue,
        k: ir.LlvmValue,
        column: ir.LlvmValue,
        **more: ir.LlvmValue,
    ) -> MicrokernelArguments:
        """Return the arguments of a product with sums in C, without prefetching and epilogue operands; the last block of K."""
        yes, zero, nowhere = ir.LlvmConstant(I1, 1), index(0), ir.LlvmConstant(POINTER, None)
        plain = cls(a, panel, c, nowhere, nowhere, k, yes, yes, zero, zero, column, nowhere, zero)
        return plain._replace(**more)


@frozen(eq=False)
class GemmTile:
    """Context of a tile's code: its arguments, the first columns of its vectors, and the lanes that exist."""

    arguments: MicrokernelArguments
    starts: tuple[ir.LlvmValue, ...]
    masks: tuple[ir.LlvmValue | None, ...]

    def elements(self, b: ir.IRBuilder, i: ir.LlvmValue, j: int) -> TileElements:
        """Return the position of the elements in vector `j` of row `i`."""
        first = self.arguments.row
        return TileElements(self.arguments.batch, b.add(first, i), self.starts[j], self.masks[j], first, i)


@frozen(eq=False)
class Microkernel:
    """A function that multiplies one tile: `c[rows, columns] = epilogue(a[rows, k] @ b[k, columns])`.

    Attributes:
        words: The factors' type, and the lanes; A consists of words.
        rows: Rows of the tile.
        vectors: Column vectors of the tile.
        a_strides: Bytes from a row of A to the next, and from a word to the next.
        right: Layout of B.
        result: Layout of C.
        pair_stride: Bytes between the elements of a word of A, if they are not adjacent.
        accumulates: Whether K is split into several blocks.
        is_even: Whether every call, or run, has a positive multiple of `unroll` words; no code is generated for others.
        unroll: Words in one iteration of the inner loop.
        chains: Partial sums per element; a divisor of `unroll`.
        runs: Layout of the terms of A, if they have no uniform stride; a call then has complete runs.
        sharers: Number of tiles that share the prefetching of the next panel; 0 for no prefetching.
        epilogue: Creates the stages that follow the last k; called with the kernel's buffers.
    """

    words: Words
    rows: int
    vectors: int
    a_strides: tuple[int, int]
    right: Right
    result: ResultTile
    pair_stride: int | None = None
    accumulates: bool = False
    is_even: bool = False
    unroll: int = UNROLL
    chains: int = 1
    runs: Runs | None = None
    sharers: int = 0
    epilogue: Callable[[Simd, ir.IRBuilder, ir.LlvmValue], GemmEpilogue] = nothing_follows

    @property
    def simd(self) -> Simd:
        return self.words.simd

    @property
    def pitch(self) -> Expr | None:
        """The stride of A or C, in bytes, that only the caller knows; one at most."""
        strides: tuple[Dim, ...] = (*self.a_strides, *self.result.strides)
        symbolic = {stride for stride in strides if isinstance(stride, Expr)}
        assert len(symbolic) <= 1, "the caller says one stride"
        return next(iter(symbolic), None)

    def emit(self, name: str) -> ir.Function:
        """Add `void name(Arguments)` to the module."""
        types = TYPES if self.pitch is None else [*TYPES, I64]
        function = ir.Function(self.simd.module, ir.FunctionType(VOID, types), name)
        function.linkage = "internal"
        for argument, known in zip(function.args, NAMES, strict=False):
            argument.named(known)
        # C may alias an operand of the epilogue, and the first store there may be another result's element.
        for pointer in function.args[:2]:
            pointer.add_attribute("noalias")
        self._build(ir.IRBuilder(function.append_basic_block("entry")), MicrokernelArguments(*function.args))
        return function

    # ------------------------------------------------------------------------------------- the body

    def _build(self, b: ir.IRBuilder, arguments: MicrokernelArguments) -> None:
        scratch = b.alloca(self.simd.vector, size=self.rows * self.vectors)
        scratch.align = self.simd.nbytes
        if self.pitch is not None:
            assert arguments.pitch is not None, "who emits a function for a stride that is not known takes it"
            for steps in range(1, max(self.rows, self.unroll + 1)):
                multiple = self.pitch * steps
                assert isinstance(multiple, Expr), "multiples of what is not known are not known"
                sizes_of(b).given(b, multiple, times(b, arguments.pitch, steps))
        starts = [b.add(arguments.column, index(j * self.simd.lanes)) for j in range(self.vectors)]
        masks: list[ir.LlvmValue | None] = [None] * self.vectors
        if self.result.columns is not None:
            masks[-1] = self.simd.below(b, starts[-1], self.result.columns)
        tile = GemmTile(arguments, tuple(starts), tuple(masks))
        self._prefetch_operands(b, tile)
        if self.result.is_prefetched:
            self._prefetch_result(b, arguments)
        sums = self._initial(b, tile)
        streams, used = (arguments.a, arguments.panel, arguments.next_panel), masks if self.right.is_masked else None
        if self.runs is None:
            _, sums = self._products(b, streams, arguments.k, sums, used)
        else:
            sums = self._runs(b, self.runs, arguments, sums, used)
        if not self.accumulates:
            self._finish(b, tile, sums, scratch)
        else:
            with b.if_else(arguments.is_last) as (done, partial):
                with done:
                    self._finish(b, tile, sums, scratch)
                with partial:
                    for i, line in enumerate(sums):
                        for j, value in enumerate(line):
                            self.simd.store(b, value, *self._waiting(b, tile, i, j))
        b.ret_void()

    def _prefetch_operands(self, b: ir.IRBuilder, tile: GemmTile) -> None:
        """Prefetch the epilogue's operands, before the last block of k."""
        epilogue = self.epilogue(self.simd, b, tile.arguments.buffers)
        if not epilogue.prefetches:
            return
        with b.if_then(tile.arguments.is_last):
            for i in range(self.rows):
                for j in range(self.vectors):
                    for fetch in epilogue.prefetches:
                        fetch(b, tile.elements(b, index(i), j))

    def _prefetch_result(self, b: ir.IRBuilder, arguments: MicrokernelArguments) -> None:
        """Prefetch the tile's part of C before it is written the first time."""
        by_row, by_column = self.result.strides
        with b.if_then(arguments.is_first) if self.accumulates else nullcontext():
            for i in range(self.rows):
                for j in range(self.vectors):
                    prefetch(b, offset(b, arguments.c, i * by_row + j * self.simd.lanes * by_column), is_written=True)

    def _initial(self, b: ir.IRBuilder, tile: GemmTile) -> Sums:
        """Zeros, or the head of a panel, or what earlier blocks of k left."""
        start: list[ir.LlvmValue] = [self.simd.zero] * self.vectors
        if self.right.has_head:  # in later blocks of k there are other words, which are not used
            head = offset(b, tile.arguments.panel, -self.right.stride)
            start = [
                self.simd.load(b, offset(b, head, j * self.simd.nbytes), align=self.right.align)
                for j in range(self.vectors)
            ]
        zeros: Sums = [[*start] for _ in range(self.rows)]
        if not self.accumulates:
            return zeros
        again, ready = b.append_basic_block("again"), b.append_basic_block("ready")
        before = b.block
        b.cbranch(tile.arguments.is_first, ready, again)
        b.position_at_end(again)
        partial_sums = [
            [self.simd.load(b, *self._waiting(b, tile, i, j)) for j in range(self.vectors)] for i in range(self.rows)
        ]
        b.branch(ready)
        b.position_at_end(ready)
        return [
            [_merge(b, self.simd.vector, (z, before), (f, again)) for z, f in zip(zs, fs, strict=True)]
            for zs, fs in zip(zeros, partial_sums, strict=True)
        ]

    def _products(
        self,
        b: ir.IRBuilder,
        streams: tuple[ir.LlvmValue, ...],
        depth: ir.LlvmValue,
        sums: Sums,
        masks: Masks,
    ) -> tuple[tuple[ir.LlvmValue, ...], Sums]:
        """All of k: rounds of several steps, then the steps that are left."""
        sums = [[*line, *[self.simd.zero] * (self.vectors * (self.chains - 1))] for line in sums]
        if self.is_even:
            streams, sums = self._rounds(b, streams, depth, sums, self.unroll, masks)
        else:
            remainder = b.and_(depth, index(self.unroll - 1))
            streams, sums = self._rounds(b, streams, b.sub(depth, remainder), sums, self.unroll, masks)
            streams, sums = self._rounds(b, streams, remainder, sums, 1, masks)
        return streams, [self._joined(b, line) for line in sums]

    def _joined(self, b: ir.IRBuilder, line: list[ir.LlvmValue]) -> list[ir.LlvmValue]:
        """The sums of a row, each of all its chains: neighbours are added, then neighbours of those."""
        parts = [line[start : start + self.vectors] for start in range(0, len(line), self.vectors)]
        while len(parts) > 1:
            parts = [
                [self.simd.add(b, x, y) for x, y in zip(*pair, strict=True)]
                for pair in zip(parts[::2], parts[1::2], strict=True)
            ]
        return parts[0]

    def _runs(self, b: ir.IRBuilder, runs: Runs, arguments: MicrokernelArguments, sums: Sums, masks: Masks) -> Sums:
        """Emit all runs of a call, at least one: the pointer to A is recomputed for each, the pointer to B advances."""
        loop, done = b.append_basic_block("run.loop"), b.append_basic_block("run.done")
        before, end = b.block, b.add(arguments.run, b.sdiv(arguments.k, index(runs.words)))
        b.branch(loop)
        b.position_at_end(loop)
        starts = [arguments.run, arguments.panel, arguments.next_panel, *chain(*sums)]
        phis = [b.phi(value.type) for value in starts]
        run, panel, following, *running = phis
        a = offset(b, arguments.a, walk(b, run, runs.axes))
        (_, *ends), totals = self._products(b, (a, panel, following), index(runs.words), self._by_rows(running), masks)
        after = b.add(run, index(1))
        _close(phis, starts, before, [after, *ends, *chain(*totals)], b.block)
        b.cbranch(b.icmp_signed("<", after, end), loop, done)
        b.position_at_end(done)
        return totals

    def _rounds(
        self,
        b: ir.IRBuilder,
        streams: tuple[ir.LlvmValue, ...],
        count: ir.LlvmValue,
        sums: Sums,
        unroll: int,
        masks: Masks,
    ) -> tuple[tuple[ir.LlvmValue, ...], Sums]:
        """`count` steps, `unroll` at a time; `streams` are where A, B and the next panel are read."""
        loop, done = b.append_basic_block("k.loop"), b.append_basic_block("k.done")
        before = b.block
        if self.is_even:
            b.branch(loop)
        else:
            b.cbranch(b.icmp_signed(">", count, index(0)), loop, done)
        b.position_at_end(loop)
        starts = [count, *streams, *chain(*sums)]
        phis = [b.phi(value.type) for value in starts]
        left, a, panel, following, *running = phis
        current = self._by_rows(running)
        nbytes = unroll * self.right.stride // self.sharers if self.sharers else 0
        lines = range(0, nbytes, CACHE_LINE)
        for u in range(unroll):
            a_word, b_word = offset(b, a, u * self.a_strides[1]), offset(b, panel, u * self.right.stride)
            self._step(b, a_word, b_word, current, u % self.chains * self.vectors, masks)
            for start in lines[u * len(lines) // unroll : (u + 1) * len(lines) // unroll]:
                prefetch(b, offset(b, following, start), locality=2)
        moved = (unroll * self.a_strides[1], unroll * self.right.stride, nbytes)
        after_round = [offset(b, p, by) for p, by in zip((a, panel, following), moved, strict=True)]
        remaining = b.sub(left, index(unroll))
        ends = [remaining, *after_round, *chain(*current)]
        _close(phis, starts, before, ends, loop)
        b.cbranch(b.icmp_signed(">", remaining, index(0)), loop, done)
        b.position_at_end(done)
        if self.is_even:
            return tuple(after_round), current
        # A count of 0 goes around the loop, so what follows finds the values from before it or those of the last round.
        merged = [_merge(b, s.type, (s, before), (n, loop)) for s, n in zip(starts[1:], ends[1:], strict=True)]
        return tuple(merged[:3]), self._by_rows(merged[3:])

    def _by_rows(self, values: Sequence[ir.LlvmValue]) -> Sums:
        """Return sums, of all rows one after the other, as a list for each row."""
        width = len(values) // self.rows
        return [list(values[start : start + width]) for start in range(0, len(values), width)]

    def _step(
        self, b: ir.IRBuilder, a: ir.LlvmValue, panel: ir.LlvmValue, sums: Sums, first: int, masks: Masks
    ) -> None:
        """One k: the outer product of a column of A and a row of B, added to the sums from the `first` of each row on."""
        simd, words = self.simd, self.words
        line = [self._right(b, panel, j, masks[j] if masks else None) for j in range(self.vectors)]
        for i in range(self.rows):
            factor = simd.splat(b, self._left(b, offset(b, a, i * self.a_strides[0])))
            for j, value in enumerate(line, first):
                sums[i][j] = words.multiply_add(b, factor, value, sums[i][j])

    def _left(self, b: ir.IRBuilder, place: ir.LlvmValue) -> ir.LlvmValue:
        """A word of A."""
        if self.pair_stride is not None:
            return self.words.scalar(b, place, self.pair_stride)
        return self.simd.load_scalar(b, place, self.words.align)

    def _right(self, b: ir.IRBuilder, panel: ir.LlvmValue, j: int, mask: ir.LlvmValue | None) -> ir.LlvmValue:
        """A vector of words of B."""
        if not self.right.makes_words:
            return self.simd.load(b, offset(b, panel, j * self.simd.nbytes), mask, align=self.right.align)
        words = self.words
        if not words.is_single and self.right.is_packed:
            return words.along(b, offset(b, panel, j * words.simd.lanes * words.stored_itemsize), self.right.align)
        place = offset(b, panel, j * words.stored.nbytes)
        return words.across(b, place, self.right.stride // words.per_word, mask, self.right.align)

    # ------------------------------------------------------------------------------------- the result

    def _finish(self, b: ir.IRBuilder, tile: GemmTile, sums: Sums, scratch: ir.LlvmValue) -> None:
        """The epilogue and the stores; a long epilogue goes over a tile of several vectors in memory, row by row."""
        epilogue, nbytes = self.epilogue(self.simd, b, tile.arguments.buffers), self.simd.nbytes
        if not epilogue.is_long or self.rows * self.vectors == 1:
            values = [
                [epilogue.apply(b, value, tile.elements(b, index(i), j)) for j, value in enumerate(line)]
                for i, line in enumerate(sums)
            ]
            for i, line in enumerate(values):
                for j, value in enumerate(line):
                    self._store(b, value, self._place(b, tile.arguments.c, i, j), tile, j)
            return
        for i, line in enumerate(sums):
            for j, value in enumerate(line):
                self.simd.store(b, value, offset(b, scratch, (i * self.vectors + j) * nbytes), align=nbytes)
        with counting(b, 0, self.rows) as row:
            line_start = offset(b, scratch, (row, self.vectors * nbytes))
            c_row = offset(b, tile.arguments.c, (row, self.result.strides[0]))
            for j in range(self.vectors):
                value = self.simd.load(b, offset(b, line_start, j * nbytes), align=nbytes)
                value = epilogue.apply(b, value, tile.elements(b, row, j))
                self._store(b, value, self._place(b, c_row, 0, j), tile, j)

    def _place(self, b: ir.IRBuilder, c: ir.LlvmValue, i: int, j: int) -> ir.LlvmValue:
        by_row, by_column = self.result.strides
        return offset(b, c, i * by_row, j * self.simd.lanes * by_column)

    def _waiting(self, b: ir.IRBuilder, tile: GemmTile, i: int, j: int) -> tuple[ir.LlvmValue, ir.LlvmValue | None]:
        """Return the address of a vector of partial sums, and its mask."""
        if self.result.sums_stride is None:
            return self._place(b, tile.arguments.c, i, j), tile.masks[j]
        return offset(b, tile.arguments.sums, i * self.result.sums_stride + j * self.simd.nbytes), None

    def _store(self, b: ir.IRBuilder, value: ir.LlvmValue, place: ir.LlvmValue, tile: GemmTile, j: int) -> None:
        """Write vector `j` of a row."""
        stored, step, mask = self.result.stored, self.result.strides[1], tile.masks[j]
        if step == stored.itemsize:
            stored.store(b, value, place, mask)
            return
        count = None if mask is None else b.sub(index(self.result.columns or 0), tile.starts[j])
        stored.store_spread(b, value, place, step, count)


def _close(
    phis: Sequence[ir.Phi],
    starts: Sequence[ir.LlvmValue],
    before: ir.Block,
    ends: Sequence[ir.LlvmValue],
    latch: ir.Block,
) -> None:
    """Close a loop: the values that it carries come from the block before it, and from the end of its last block."""
    for phi, start, end in zip(phis, starts, ends, strict=True):
        phi.add_incoming(start, before)
        phi.add_incoming(end, latch)


def _merge(
    b: ir.IRBuilder, kind: ir.Type, first: tuple[ir.LlvmValue, ir.Block], second: tuple[ir.LlvmValue, ir.Block]
) -> ir.LlvmValue:
    merged = b.phi(kind)
    merged.add_incoming(*first)
    merged.add_incoming(*second)
    return merged
