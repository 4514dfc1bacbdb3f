"""The blocking of a product: register tiles, panels, cache blocks and the items that threads share, all as numbers.

A *tile* is the part of C that one pass of the inner loop keeps in registers: `rows` rows by `vectors` vectors of columns. A
*panel* is a tile's width of B over all of K, stored so that the inner loop reads it sequentially. Rows and vectors are
distributed evenly, so tiles have at most two heights and panels at most two widths, which differ by one: 17 rows are 6 + 6 + 5,
not 8 + 8 + 1.
"""

from __future__ import annotations

from typing import Final

from rlx_core.codegen.cuts import Cut, cut, evenly
from rlx_core.ir.dims import call_recorded
from rlx_core.ir.dtypes import DType
from rlx_core.system.records import frozen
from rlx_cpu.native.llvm.isa import Isa
from rlx_cpu.native.machine import ProductSizes


@frozen
class TileShape:
    """A register tile: `rows × vectors` accumulators, `vectors` of B and one of A."""

    rows: int
    vectors: int

    @property
    def registers(self) -> int:
        return self.rows * self.vectors + self.vectors + 1


# From tall to wide; the first whose height the rows fill is taken, so that few rows still keep enough sums in flight to
# hide the latency of a fused product (4 cycles, two a cycle). By number of vector registers.
TILES: Final[dict[int, tuple[TileShape, ...]]] = {
    32: (TileShape(8, 3), TileShape(4, 6), TileShape(2, 8), TileShape(1, 8)),
    16: (TileShape(6, 2), TileShape(4, 3), TileShape(2, 4), TileShape(1, 6)),
}

# For results narrower than a tile: one or two vectors of columns.
NARROW: Final[dict[int, dict[int, TileShape]]] = {
    32: {1: TileShape(14, 1), 2: TileShape(12, 2)},
    16: {1: TileShape(10, 1), 2: TileShape(6, 2)},
}

UNROLL: Final = 4
"""Steps along K in one round of the inner loop."""

IN_FLIGHT: Final = 8
"""Fused products that are begun before the first of them is done."""


EXACT: Final = 0.7
"""Minimum relative size of a smaller tile without remainder that is preferred: products must still outnumber loads."""


@frozen
class Blocks:
    """The blocking of one product.

    Attributes:
        rows: Tiles down M.
        panels: Panels across N, in vectors.
        depth: Steps along K in a cache block; K itself when it is not split.
        row_tiles: Tiles of one item.
        panel_group: Panels of one item.
        lanes: Columns of a vector.
    """

    rows: Cut
    panels: Cut
    depth: int
    row_tiles: int
    panel_group: int
    lanes: int

    @property
    def row_items(self) -> int:
        return -(-self.rows.pieces // self.row_tiles)

    @property
    def panel_items(self) -> int:
        return -(-self.panels.pieces // self.panel_group)

    @property
    def columns(self) -> int:
        """Columns of all panels together: N rounded up to whole vectors."""
        return self.panels.start(self.panels.pieces) * self.lanes

    @property
    def widths(self) -> tuple[int, ...]:
        """Columns of each panel."""
        return tuple(self.panels.size_of(panel) * self.lanes for panel in range(self.panels.pieces))

    @property
    def tile(self) -> str:
        """The tile as reports print it: rows × columns."""
        return f"{self.rows.size}x{self.panels.size * self.lanes}"


def tile_for(m: int, n: int, lanes: int, registers: int) -> TileShape:
    """The tile for a product of `m` rows and `n` columns."""
    key = 32 if registers >= 32 else 16
    vectors = -(-n // lanes)
    if vectors in NARROW[key] and m > TILES[key][1].rows:
        return NARROW[key][vectors]
    return next((t for t in TILES[key] if m > t.rows // 2), TILES[key][-1])


def chains_of(rows: int, vectors: int) -> int:
    """Return the number of partial sums per element of a product of one row, which hides the latency; 1 for more rows.

    The assignment of steps of k to sums follows from the product's columns, not from their partition into panels: code for
    dynamic numbers of rows has other panels and gives the same bits.

    Args:
        rows: Rows of a tile. Rows are cut evenly, so a tile of a single row has all rows.
        vectors: Vectors of all columns.
    """
    if rows > 1:
        return 1
    return next((chains for chains in (UNROLL, 2) if chains * vectors <= IN_FLIGHT), 1)


def tiles_of(m: int, n: int, dtype: DType, isa: Isa, *, lines: int = 1) -> tuple[Cut, Cut]:
    """Tiles down `lines` times `m` rows, and panels across `n` columns in vectors."""
    lanes = isa.lanes(dtype)
    rows, vectors = call_recorded(_tile_sizes, m, n, lanes, isa.registers, lines)
    return cut(m, rows, lines), cut(-(-n // lanes), vectors)


def _tile_sizes(m: int, n: int, lanes: int, registers: int, lines: int) -> tuple[int, int]:
    """Return the largest rows and vectors of the tiles of a product."""
    tile, vectors = tile_for(m, n, lanes, registers), -(-n // lanes)
    if len(cut(m, tile.rows, lines).sizes) * len(cut(vectors, tile.vectors).sizes) > 1:
        tile = _exact_tile(m, vectors, tile, registers) or tile
    return tile.rows, tile.vectors


def _exact_tile(m: int, vectors: int, tile: TileShape, registers: int) -> TileShape | None:
    """The largest tile of which rows and columns are multiples, if it is not much smaller: one inner loop is made, not four."""
    if m <= tile.rows:
        return None
    shapes = [*TILES[32 if registers >= 32 else 16], *NARROW[32 if registers >= 32 else 16].values()]
    max_rows = {shape.vectors: shape.rows for shape in shapes}
    candidates = [
        TileShape(rows, width)
        for width in range(1, tile.vectors + 1)
        if vectors % width == 0 and width in max_rows
        for rows in range(1, max_rows[width] + 1)
        if m % rows == 0 and rows * width >= EXACT * tile.rows * tile.vectors
    ]
    return max(candidates, key=lambda each: each.rows * each.vectors, default=None)


def depth_of(k: int, dtype: DType, isa: Isa, *, is_short: bool = False, run: int | None = None) -> int:
    """Steps along K in a cache block.

    Args:
        is_short: Whether there are two tiles of rows.
        run: Words along K that lie in a row, where not all of them do: a block holds whole runs.
    """
    sizes = isa.machine.products
    max_depth = (sizes.short_depth_nbytes if is_short else sizes.depth_nbytes) // dtype.itemsize
    if run is not None:
        return run * evenly(k // run, max(1, max_depth // run)) if k > max_depth + max_depth // 2 else k
    if k <= max_depth:
        return k
    even = -(-k // -(-k // max_depth))
    return -(-even // UNROLL) * UNROLL


def grouped(
    batch: int,
    rows: Cut,
    panels: Cut,
    depth: int,
    dtype: DType,
    isa: Isa,
    *,
    packs_rows: bool = False,
    packs_panels: bool = False,
) -> Blocks:
    """Tiles and panels in items, of a batch of products.

    Args:
        depth: In words, each as long as an element of `dtype`.
        packs_rows: Whether A is packed for every item, which wants items that are wide.
        packs_panels: Whether B is packed for every item, which wants items that are high.
    """
    lanes = isa.lanes(dtype)
    row_nbytes = max(1, depth * rows.size * dtype.itemsize)
    panel_nbytes = max(1, depth * panels.size * lanes * dtype.itemsize)
    row_tiles, panel_group = call_recorded(
        _group_sizes, batch, rows.pieces, panels.pieces, row_nbytes, panel_nbytes, packs_rows, packs_panels,
        isa.machine.products,
    )  # fmt: skip
    return Blocks(rows, panels, depth, evenly(rows.pieces, row_tiles), evenly(panels.pieces, panel_group), lanes)


def _group_sizes(
    batch: int,
    tiles: int,
    panels: int,
    row_nbytes: int,
    panel_nbytes: int,
    packs_rows: bool,
    packs_panels: bool,
    sizes: ProductSizes,
) -> tuple[int, int]:
    """Return the tiles and the panels of an item; the numbers of both and the bytes of one of each are those of a product."""
    row_tiles = max(1, min(tiles, sizes.block_nbytes // row_nbytes))
    panel_group = max(1, min(panels, sizes.block_nbytes // panel_nbytes))
    if tiles <= sizes.fewest_tiles and not packs_rows:
        panel_group = 1  # panels are then read in the order in which they lie, which the prefetching counts on
    if packs_rows:
        panel_group = max(panel_group, min(panels, sizes.packed_group))

    def items() -> int:
        return batch * -(-tiles // row_tiles) * -(-panels // panel_group)

    while items() < sizes.items and panel_group > 1 and not packs_rows:
        panel_group = -(-panel_group // 2)
    min_items = sizes.panel_items if packs_panels else sizes.items
    while items() < min_items and row_tiles > sizes.fewest_tiles:
        row_tiles = -(-row_tiles // 2)
    while items() < sizes.fewest_tiles and panel_group > 1:
        panel_group = -(-panel_group // 2)
    return row_tiles, panel_group
