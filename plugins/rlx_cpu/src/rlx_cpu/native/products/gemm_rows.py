"""Rows of A as words in scratch memory: packed by tiles where A is transposed, copied row by row where it is not."""

from __future__ import annotations

from rlx_core.system.records import frozen
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.build import least
from rlx_cpu.native.llvm.cuts import by_size, start_of
from rlx_cpu.native.llvm.simd import counting, index, offset, times
from rlx_cpu.native.llvm.sizes import sized
from rlx_cpu.native.products.gemm_plan import TILE_GAP, ProductPlan
from rlx_cpu.native.products.packing import copy_row, pack_rows

PACKED_STEPS = 64
"""Words along K of A that are packed at a time; a multiple of the 16-bit elements in a cache line."""

PACKED_ROUND = 16
"""Words along K that are packed of a tile before the next tile: tiles are on different pages, and this amortises a TLB miss."""


def row_strides(plan: ProductPlan, rows: int) -> tuple[int, int]:
    """Bytes from a row of a tile to the next, and from a word to the next, where the inner loop reads A."""
    words, a = plan.words, plan.product.a
    if plan.rows == "direct":
        return a.by_row, a.by_column * words.per_word
    if plan.rows == "packed":
        return words.itemsize, rows * words.itemsize
    depth = plan.row_words if plan.owns_rows else plan.k
    return depth * words.itemsize, words.itemsize


@frozen(eq=False)
class PackedRows:
    """Tiles of A one after the other, `[k, rows]` each, or `[rows, k]` if they are copied.

    Attributes:
        a: The operand.
        place: Address of the first tile.
        first: The first tile that is there; all of them if `None`.
        start: The word along K that they begin with, and `depth`, how many there are; all if `None`.
    """

    plan: ProductPlan
    a: ir.LlvmValue
    place: ir.LlvmValue
    first: ir.LlvmValue | None = None
    start: ir.LlvmValue | None = None
    depth: ir.LlvmValue | None = None

    def tile(self, b: ir.IRBuilder, tile: ir.LlvmValue, row: ir.LlvmValue, k: ir.LlvmValue) -> ir.LlvmValue:
        """Return the address of word `k` of a tile; the tile begins with `row`."""
        plan, itemsize = self.plan, self.plan.words.itemsize
        cut = plan.blocks.rows
        number = tile if self.first is None else b.sub(tile, self.first)
        before = row if self.first is None else b.sub(row, start_of(b, cut, self.first))
        if plan.rows == "copied":
            by_row, by_word = row_strides(plan, 0)
            return offset(b, self.place, (before, by_row), (number, TILE_GAP), (k, by_word))
        depth = sized(b, plan.k) if self.depth is None else self.depth
        tile_start = offset(b, self.place, (b.mul(before, depth), itemsize), (number, TILE_GAP))
        rows = b.sub(start_of(b, cut, b.add(tile, index(1))), row)
        return offset(b, tile_start, (b.mul(k, rows), itemsize))

    def pack(
        self, b: ir.IRBuilder, tiles: tuple[ir.LlvmValue, ir.LlvmValue], low: ir.LlvmValue, high: ir.LlvmValue
    ) -> None:
        """Words from `low` to `high`, a few for all tiles, then the next: the rows of a transposed A are contiguous there."""
        plan = self.plan
        if plan.rows == "copied":
            with counting(b, *tiles) as tile:
                self._copy(b, tile, low, high)
            return
        # The last word of an odd k is made alone.
        is_odd = b.icmp_signed("==", self._step(b, high), sized(b, self.plan.k)) if not self.plan.is_even else None
        full_end = high if is_odd is None else b.select(is_odd, b.sub(high, index(1)), high)
        even = b.add(low, b.and_(b.sub(full_end, low), index(-PACKED_ROUND)))
        for start, end, steps in ((low, even, PACKED_ROUND), (even, full_end, 1)):
            with counting(b, start, end, steps) as k, counting(b, *tiles) as tile:
                self._pack_steps(b, tile, k, steps)
        if is_odd is not None:
            with counting(b, full_end, high) as k, counting(b, *tiles) as tile:
                self._pack_steps(b, tile, k, 1, terms=plan.words.terms_of_last(plan.product.k))

    def _step(self, b: ir.IRBuilder, k: ir.LlvmValue) -> ir.LlvmValue:
        """Return the index of a word along all of K."""
        return k if self.start is None else b.add(self.start, k)

    def _copy(self, b: ir.IRBuilder, tile: ir.LlvmValue, low: ir.LlvmValue, high: ir.LlvmValue) -> None:
        plan, words, a = self.plan, self.plan.words.first, self.plan.product.a
        cut = plan.blocks.rows
        row = start_of(b, cut, tile)
        place = self.tile(b, tile, row, low)
        by_row = row_strides(plan, 0)[0]
        first, last = (times(b, self._step(b, k), words.per_word) for k in (low, high))
        if not plan.is_even:
            last = least(b, last, index(plan.product.k))
        with counting(b, 0, b.sub(start_of(b, cut, b.add(tile, index(1))), row)) as i:
            source = offset(b, self.a, (b.add(row, i), a.by_row))
            copy_row(
                b, words, source, offset(b, place, (i, by_row)), first, last,
                by_k=a.by_column, terms=words.terms_of_last(plan.product.k),
            )  # fmt: skip

    def _pack_steps(
        self, b: ir.IRBuilder, tile: ir.LlvmValue, k: ir.LlvmValue, steps: int, *, terms: int | None = None
    ) -> None:
        plan, words, a = self.plan, self.plan.words.first, self.plan.product.a
        row = start_of(b, plan.blocks.rows, tile)
        source = offset(b, self.a, (row, a.by_row), (self._step(b, k), a.by_column * words.per_word))
        place = self.tile(b, tile, row, k)
        for rows in by_size(b, plan.blocks.rows, tile):
            pack_rows(b, words, source, place, steps=steps, rows=rows, strides=(a.by_row, a.by_column), terms=terms)
