"""Decisions of a product before code generation: in-place or packed operands, scratch memory, and the number of parts.

B is packed when it is bound; it is packed by each thread for itself when it is computed by a load, so that the whole of it is
never in memory; else by all threads together before the product if several items read it, by each thread for
itself if batches are many, and read in place otherwise. A is read in place if its elements along k are contiguous and already
words; rows that must only be converted to words (f16, for example) are copied, and a transposed A is packed by tiles.
"""

from __future__ import annotations

from math import prod
from typing import Final, Literal

from rlx_core.codegen.cuts import Cut
from rlx_core.codegen.places import Layout
from rlx_core.codegen.product import Axes, MatrixProduct
from rlx_core.system.records import evolve, frozen
from rlx_cpu.native.contract import ALIGNMENT, MOST_PARTS, aligned
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.isa import Isa
from rlx_cpu.native.llvm.sizes import is_known
from rlx_cpu.native.llvm.stored import Stored
from rlx_cpu.native.llvm.words import Words
from rlx_cpu.native.machine import ProductSizes
from rlx_cpu.native.products.gemm_tiles import UNROLL, Blocks, chains_of, depth_of, grouped, tiles_of

Panels = Literal["ahead", "held", "shared", "packed", "loaded", "direct"]
"""The origin of panels of B: packed when it was bound, before the loop around the product, by all threads before, by each
thread for itself, computed by a load a block of K at a time, or not packed."""

AT_HAND: Final = ("ahead", "held", "shared")
"""Cases in which panels of all of B are packed before any item is started."""

Rows = Literal["direct", "copied", "packed"]
"""The source of A's rows: in place, rows of words, or tiles `[k, rows]`."""

TILE_GAP = ALIGNMENT
"""Bytes between packed tiles of A, so that tiles whose size is a power of two do not compete for the same cache lines."""

SHORT_ROW = 512
"""Bytes of a row of B of which a panel is much, so that reading it where it lies takes few lines of a cache too many."""

MOST_SHARERS = 12
"""Tiles that share the prefetching of a panel at most: a round of the inner loop then fetches one line."""

SHORT_UNROLL = 2
"""Steps along k in one round of the inner loop where more would only be more code."""

LONG_TILE = 512
"""Fused vector products in a tile for which the cost of computing the next tile is negligible: some 250 cycles."""

FULL_STEP = 12
"""Fused products of a step for which loop overhead is negligible: two steps per iteration are as fast as four."""

SHARERS = 2
"""Tiles that share the prefetching of a panel if their number is unknown: two, as for few rows, fetch all of it from memory."""

RESULT_PREFETCH_TERMS = 128
"""Products for each element of a result from which its lines are prefetched whether or not that is known to be needed."""


@frozen
class OperandSources:
    """The sources of the inner loop's operands, if the caller knows the sizes.

    Attributes:
        owns_rows: Whether A is packed, or copied, by every item.
        sharers: Number of tiles that share the prefetching of a previously packed panel.
    """

    panels: Panels
    rows: Rows
    owns_rows: bool
    sharers: int = SHARERS


@frozen(eq=False)
class ProductPlan:
    """The choices for one product; lengths along k are in words.

    Attributes:
        words: The operand type of the inner loop.
        is_held: Whether it is invariant in a loop around the product.
        keeps_result: Whether C must not be written before a sum is complete: the epilogue reads operands in the same memory.
        symbolic_blocks: The blocking, if the caller knows the sizes and passes it in every call.
        sources: Operand sources of dynamic-shape code, which restrict it to some sizes.
    """

    product: MatrixProduct
    words: Words
    isa: Isa
    is_held: bool
    keeps_result: bool
    symbolic_blocks: Blocks | None = None
    sources: OperandSources | None = None

    @classmethod
    def of(
        cls, module: ir.Module, isa: Isa, product: MatrixProduct, layout: Layout, *, keeps_result: bool
    ) -> ProductPlan:
        """Return the choices for a product of the first operand of a layout, and of the second or a load."""
        words = Words.of_product(module, isa, product.factors, product.dtype)
        b = layout.operands[1]
        is_held = product.load is None and b is not None and b.is_held
        return cls(product, words, isa, is_held, keeps_result)

    @property
    def sizes(self) -> ProductSizes:
        return self.isa.machine.products

    @property
    def result(self) -> Stored:
        return Stored.next_to(self.words.simd, self.product.dtype)

    @property
    def k(self) -> int:
        """Words along k."""
        return self.words.count(self.product.k)

    @property
    def panel_words(self) -> int:
        """Words of a column of a panel: those along k, after the correction if there is one."""
        return self.k + self.head if self.head else self.k

    @property
    def head(self) -> int:
        """Words of a column of a panel before those along k: a correction with which sums begin."""
        return int(self.words.is_corrected and self.product.k != 0)

    @property
    def is_even(self) -> bool:
        """Whether the last word along k is whole."""
        return self.product.k % self.words.per_word == 0

    @property
    def rows(self) -> Rows:
        if self.sources is not None:
            return self.sources.rows
        p, words = self.product, self.words.first
        if p.lines or p.runs:
            return "direct"
        is_row_major = p.a.by_column == words.stored.itemsize
        if p.k == 0 or (is_row_major and words.in_memory and self.is_even):
            return "direct"
        return "copied" if is_row_major else "packed"

    @property
    def pair_stride(self) -> int | None:
        """Bytes between the elements of a word of A, if the inner loop reads A in place and they are not adjacent."""
        by_column = self.product.a.by_column
        is_spread = self.rows == "direct" and not self.words.is_single and by_column != self.words.stored.itemsize
        return by_column if is_spread else None

    @property
    def shares_rows(self) -> bool:
        """Whether A is packed once for all, before the product."""
        return self.rows != "direct" and not self.owns_rows

    @property
    def owns_rows(self) -> bool:
        """Whether A is packed by every item, which then has it in L2: where all panels are one group, or for want of memory."""
        if self.sources is not None:
            return self.sources.owns_rows
        p = self.product
        nbytes = p.entries * p.m * self.k * self.words.itemsize
        return self.rows != "direct" and (
            self.tiles[1].pieces <= self.sizes.packed_group or nbytes > self.sizes.shared_nbytes
        )

    @property
    def tiles(self) -> tuple[Cut, Cut]:
        """Tiles down M, panels across N."""
        if self.symbolic_blocks is not None:
            return self.symbolic_blocks.rows, self.symbolic_blocks.panels
        p = self.product
        return tiles_of(p.width, p.n, self.words.simd.dtype, self.isa, lines=self.lines)

    @property
    def lines(self) -> int:
        """Number of lines of the rows."""
        return prod(size for size, _ in self.product.lines)

    @property
    def runs(self) -> Axes:
        """The axes around the words that lie in a row; long runs are cut into several."""
        p, max_words = self.product, self.sizes.depth_nbytes // self.words.itemsize
        if not p.runs or not is_known(p.length):
            return p.runs
        length = self.words.count(p.length)
        pieces = next((n for n in range(-(-length // max_words), length // UNROLL) if length % (n * UNROLL) == 0), 1)
        stride = p.length // pieces * p.a.by_column
        return (*p.runs, (pieces, stride)) if pieces > 1 else p.runs

    @property
    def run(self) -> int | None:
        """Words along k that lie in a row, where not all of them do."""
        if not self.runs:
            return None
        pieces = prod(size for size, _ in self.runs[len(self.product.runs) :])
        return self.product.length // (pieces * self.words.per_word)

    def unroll(self, rows: int, vectors: int) -> int:
        """Steps along k in one round of a tile's inner loop: few where there is one loop for each of many heights, too."""
        has_many_heights = self.symbolic_blocks is not None and self.symbolic_blocks.rows.most != 0
        return SHORT_UNROLL if has_many_heights or rows * vectors >= FULL_STEP else UNROLL

    @property
    def is_outer(self) -> bool:
        """Whether the function around the inner loops does next to nothing itself: it packs nothing, and no loop is short."""
        tiles = self.blocks
        if self.symbolic_blocks is not None or self.panels in ("packed", "loaded") or self.owns_rows:
            return False
        return min(tiles.rows.sizes) * min(tiles.panels.sizes) * min(self.k, tiles.depth) >= LONG_TILE

    @property
    def packs_panels(self) -> bool:
        """Whether B is packed in every run; where it lies in rows and few tiles read little of it, that does not pay."""
        p, itemsize, tiles = self.product, self.words.stored.itemsize, self.tiles[0].pieces
        if p.load is not None:
            return p.k > 0
        if p.is_bound or self.packs_once:
            return False
        is_near = tiles == 1 or tiles * p.k * p.n * itemsize <= self.sizes.direct_nbytes or self.has_long_sums
        is_direct = is_near and p.b.by_column == itemsize and self.is_even and not self.head
        return self.product.k > 0 and not is_direct

    @property
    def packs_once(self) -> bool:
        """Whether B is packed before the loop around the product."""
        p = self.product
        nbytes = p.b_entries * self.panel_words * p.n * self.words.itemsize
        return p.k > 0 and self.is_held and not p.is_bound and nbytes <= self.sizes.held_nbytes

    @property
    def has_long_sums(self) -> bool:
        """Whether rows of B are short, and so many that panels of them would lie in no cache."""
        p, row = self.product, self.product.n * self.words.itemsize
        return bool(p.runs) and row <= SHORT_ROW and p.k * row > self.isa.machine.l2_nbytes

    @property
    def blocks(self) -> Blocks:
        base, depth = self._blocks, self.load_depth
        return base if depth is None else evolve(base, depth=depth)

    @property
    def _blocks(self) -> Blocks:
        if self.symbolic_blocks is not None:
            return self.symbolic_blocks
        (rows, panels), dtype = self.tiles, self.words.simd.dtype
        depth = depth_of(self.k, dtype, self.isa, is_short=rows.pieces == 2, run=self.run)
        return grouped(
            self.product.entries, rows, panels, depth, dtype, self.isa,
            packs_rows=self.owns_rows, packs_panels=self.packs_panels,
        )  # fmt: skip

    @property
    def load_depth(self) -> int | None:
        """Steps along K of a panel that a load computes at a time; `None` without a load, and if it computes all of them.

        It computes all of them if several items read a panel, or if the block would change the order of summation.
        """
        if self.product.load is None:
            return None
        if self.symbolic_blocks is not None:
            is_loaded = self.sources is not None and self.sources.panels == "loaded"
            return self.symbolic_blocks.depth if is_loaded else None
        base = self._blocks
        has_chains = chains_of(base.rows.size, base.panels.start(base.panels.pieces)) > 1
        if has_chains or base.row_items > 1:
            return None
        return self.depth_of_load(base.panels.size)

    def depth_of_load(self, vectors: int) -> int | None:
        """Return the steps along K for which a panel of so many vectors fits into half of L1; `None` if there are none."""
        assert self.product.load is not None, "the operand is a load"
        max_depth = self.sizes.load_nbytes // (vectors * self.words.nbytes)
        return max((d for d in self.product.load.depths if d <= max_depth and d % UNROLL == 0), default=None)

    @property
    def splits_depth(self) -> bool:
        """Whether K comes in several blocks, for some number of rows at least."""
        if self.symbolic_blocks is None:
            return self.blocks.depth < self.k
        if not is_known(self.k):
            return True  # for some number of terms
        return depth_of(self.k, self.words.simd.dtype, self.isa, is_short=True, run=self.run) < self.k

    @property
    def panels(self) -> Panels:
        """The source of B in the inner loop."""
        if self.sources is not None:
            return self.sources.panels
        p = self.product
        if p.load is not None and p.k:
            return "packed" if self.load_depth is None else "loaded"
        if self.packs_once:
            return "held"
        if not self.packs_panels:
            return "ahead" if p.is_bound and p.k else "direct"
        is_small = p.b_entries * self.packed_nbytes <= self.sizes.shared_nbytes
        return "shared" if is_small and self.blocks.row_items > 1 else "packed"

    @property
    def makes_words(self) -> bool:
        """Whether B's elements become words in the inner loop: where it lies, and in panels of 16 bits made ahead."""
        words = self.words
        if self.panels == "ahead":
            return words.stored_itemsize != words.itemsize
        return self.panels == "direct" and not words.stored.is_same

    @property
    def vector_nbytes(self) -> int:
        """Bytes of a vector of B in a panel."""
        return self.words.simd.lanes * self.words.stored_itemsize if self.makes_words else self.words.nbytes

    @property
    def packed_nbytes(self) -> int:
        """Bytes of one matrix B in panels."""
        tiles, itemsize = self.blocks, self.words.itemsize
        if self.product.is_bound:
            itemsize = self.words.stored_itemsize
        return tiles.columns * self.panel_words * itemsize

    @property
    def sharers(self) -> int:
        """Number of tiles that share the prefetching of the next panel; 0 for no prefetching.

        There is no prefetching if the thread has just packed the panel, and in loops where one tile has all rows: it reads all
        panels sequentially, which hardware prefetchers detect, and prefetches would be half of the loads.
        """
        if self.panels not in AT_HAND:
            return 0
        if self.symbolic_blocks is not None:
            return SHARERS if self.sources is None else self.sources.sharers
        return 0 if self.is_held and self.tiles[0].pieces == 1 else min(self.blocks.row_tiles, MOST_SHARERS)

    def prefetched(self, vectors: int) -> int:
        """Bytes of every step of the next panel that a tile prefetches where panels are that wide."""
        return vectors * self.vector_nbytes // self.sharers if self.sharers else 0

    @property
    def prefetches_result(self) -> bool:
        """Whether stores to the result would wait for its lines: it is large, and tiles are written line by line."""
        p = self.product
        if self.symbolic_blocks is not None:
            return is_known(p.k) and p.k >= RESULT_PREFETCH_TERMS and p.c.by_column == p.dtype.itemsize
        is_far = p.entries * p.m * p.n * p.dtype.itemsize >= self.isa.machine.l2_nbytes
        return is_far and p.c.by_column == p.dtype.itemsize

    # -------------------------------------------------------------------------------------- memory

    @property
    def row_words(self) -> int:
        """Words along k that an item reserves for each of its rows: the maximum of a block if the depth is not known."""
        if is_known(self.blocks.depth):
            return self.blocks.depth
        return self.sizes.depth_nbytes // self.words.itemsize + UNROLL

    @property
    def own_panels(self) -> int:
        """Bytes of a thread's own panels: the widest group, over all of K, or a block of the widest panel."""
        if self.panels == "loaded":
            return aligned(self.blocks.panels.size * self.words.nbytes * self.blocks.depth)
        if self.panels != "packed":
            return 0
        return aligned(self.blocks.panels.size * self.blocks.panel_group * self.words.nbytes * self.panel_words)

    @property
    def own_rows(self) -> int:
        """Bytes of a thread's own packed rows: one item's tiles over one block of K."""
        if not self.owns_rows:
            return 0
        tiles = self.blocks
        return aligned(tiles.row_tiles * (self.most_rows * self.row_words * self.words.itemsize + TILE_GAP))

    @property
    def parks_sums(self) -> bool:
        """Whether partial sums are stored separately: in C they would be rounded, strided, or overwrite operands still
        needed."""
        is_fit = self.result.is_same and self.product.c.by_column == self.result.itemsize
        return self.splits_depth and (self.keeps_result or not is_fit)

    @property
    def tile_sums(self) -> int:
        """Bytes of a tile's partial sums."""
        return self.most_rows * self.blocks.panels.size * self.words.nbytes

    @property
    def most_rows(self) -> int:
        """Rows of the highest tile."""
        return self.blocks.rows.most or self.blocks.rows.size

    @property
    def own_sums(self) -> int:
        """Bytes of an item's partial sums."""
        return self.blocks.row_tiles * self.blocks.panel_group * self.tile_sums if self.parks_sums else 0

    @property
    def thread_nbytes(self) -> int:
        """Bytes of a thread's memory: panels, rows, sums."""
        return self.own_panels + self.own_rows + self.own_sums

    @property
    def shared_panels(self) -> int:
        """Bytes of all matrices B in panels, where they are packed together."""
        return aligned(self.product.b_entries * self.packed_nbytes) if self.panels == "shared" else 0

    @property
    def entry_rows(self) -> int:
        """Bytes of one packed A."""
        return aligned(self.product.m * self.k * self.words.itemsize + self.blocks.rows.pieces * TILE_GAP)

    @property
    def shared_rows(self) -> int:
        """Bytes of all packed A together, where they are packed together."""
        return self.product.entries * self.entry_rows if self.shares_rows else 0

    @property
    def shared(self) -> int:
        """Bytes of the memory that all threads share: panels, rows."""
        return self.shared_panels + self.shared_rows

    @property
    def has_memory(self) -> bool:
        """Whether there is scratch memory."""
        return self.shared + self.thread_nbytes != 0

    # ---------------------------------------------------------------------------------------- work

    @property
    def items(self) -> int:
        return self.product.entries * self.blocks.panel_items * self.blocks.row_items

    @property
    def goes_by_panels(self) -> bool:
        """Whether threads are assigned full panels, and not rows.

        Rows match the partition of the steps before and after: a thread reads the data that it wrote. But panels that a thread
        packs for itself serve all rows before the next ones are packed. If B is larger than A and not bound, an update has
        written parts of it into the caches of all threads: a thread then reads its share, and not all of it. In a loop its
        share stays in its cache.
        """
        p = self.product
        is_apart = self.is_held or not p.is_bound
        if self.symbolic_blocks is not None:
            return self.panels == "packed"
        return bool(self.own_panels) or (is_apart and self.rows == "direct" and p.n > p.m)

    @property
    def products(self) -> int:
        """Fused products in all."""
        p = self.product
        return p.m * p.n * p.k * p.entries

    @property
    def uses_threads(self) -> bool:
        """Whether threads share it."""
        return self.symbolic_blocks is not None or self.products >= self.isa.machine.serial_products

    @property
    def parts(self) -> int:
        """The number of parts of a product; 0 if it is passed in every call."""
        if self.symbolic_blocks is not None:
            return 0
        return max(1, min(MOST_PARTS, self.items, self.products // self.sizes.part_products))
