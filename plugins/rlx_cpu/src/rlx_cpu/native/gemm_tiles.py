"""How a product is cut up: register tiles, panels, cache blocks and the items that threads share, all as numbers.

A *tile* is what one pass of the inner loop keeps in registers: `rows` rows by `vectors` vectors of columns. A *panel* is a
tile's width of B over all of K, stored so that the inner loop reads it front to back. Rows and vectors are dealt out evenly,
so tiles come in at most two heights and panels in at most two widths, one apart: 17 rows are 6 + 6 + 5, not 8 + 8 + 1.
"""

from __future__ import annotations

from typing import Final

from attrs import frozen

from rlx_core.ir.dtypes import DType
from rlx_cpu.native.isa import Isa

__all__ = ["Blocks", "Cut", "TileShape", "blocks", "cut", "tile_for", "tiles_of"]


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

DEPTH_NBYTES: Final = 2048
"""Bytes of one row of A in a cache block: a tile of A then stays in the nearest cache, and a panel of B in the next."""

SHORT_NBYTES: Final = 512
"""The same where a panel is read by two tiles: the second finds the block in the nearest cache, where the first has left it."""

BLOCK_NBYTES: Final = 1 << 19
"""Bytes of A, or of a group of panels, in a cache block: half of a second-level cache of 1 MiB. The further caches of large
processors are slow, so what a block saves of them counts more than what its size costs in the second."""

ITEMS: Final = 32
"""At least so many items, where there is enough work, so that any small number of threads has equal shares."""

FEWEST_TILES: Final = 4
"""Tiles of an item, and items of a product, below which splitting further costs more than it brings."""

PACKED_GROUP: Final = 12
"""Panels that share one packing of A."""

PANEL_ITEMS: Final = 16
"""Items that are enough where more would make threads pack the same panels."""

UNROLL: Final = 4
"""Steps along K in one round of the inner loop."""


@frozen
class Cut:
    """A length dealt out evenly to pieces of two sizes: `many` pieces of `size`, then the rest of `size - 1`.

    >>> cut(17, 8), cut(17, 8).start(2)
    (Cut(size=6, many=2, pieces=3), 12)
    """

    size: int
    many: int
    pieces: int

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes that occur."""
        return (self.size,) if self.many == self.pieces else (self.size, self.size - 1)

    def start(self, piece: int) -> int:
        """Where a piece starts."""
        return piece * self.size - max(0, piece - self.many)

    def size_of(self, piece: int) -> int:
        return self.size if piece < self.many else self.size - 1


def cut(length: int, most: int) -> Cut:
    """`length` in as few pieces as possible, none longer than `most`, sizes one apart at most."""
    pieces = -(-length // most)
    if pieces == 0:
        return Cut(most, 0, 0)
    size = -(-length // pieces)
    return Cut(size, pieces - (size * pieces - length), pieces)


@frozen
class Blocks:
    """How one product is done.

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


def tiles_of(m: int, n: int, dtype: DType, isa: Isa) -> tuple[Cut, Cut]:
    """Tiles down `m` rows, and panels across `n` columns in vectors."""
    lanes = isa.lanes(dtype)
    tile = tile_for(m, n, lanes, isa.registers)
    return cut(m, tile.rows), cut(-(-n // lanes), tile.vectors)


def blocks(
    batch: int, m: int, n: int, k: int, dtype: DType, isa: Isa, *, packs_rows: bool = False, packs_panels: bool = False
) -> Blocks:
    """Tiles, panels and items of `batch` products `[m, k] @ [k, n]`.

    Args:
        k: In words, each as long as an element of `dtype`.
        packs_rows: Whether A is packed for every item, which wants items that are wide.
        packs_panels: Whether B is packed for every item, which wants items that are high.
    """
    lanes = isa.lanes(dtype)
    rows, panels = tiles_of(m, n, dtype, isa)
    most = (SHORT_NBYTES if rows.pieces == 2 else DEPTH_NBYTES) // dtype.itemsize
    depth = k
    if k > most:
        even = -(-k // -(-k // most))
        depth = -(-even // UNROLL) * UNROLL
    row_nbytes = max(1, depth * rows.size * dtype.itemsize)
    panel_nbytes = max(1, depth * panels.size * lanes * dtype.itemsize)
    row_tiles = max(1, min(rows.pieces, BLOCK_NBYTES // row_nbytes))
    panel_group = max(1, min(panels.pieces, BLOCK_NBYTES // panel_nbytes))
    if rows.pieces <= FEWEST_TILES and not packs_rows:
        panel_group = 1  # panels are then read in the order in which they lie, which the prefetching counts on
    if packs_rows:
        panel_group = max(panel_group, min(panels.pieces, PACKED_GROUP))

    def items() -> int:
        return batch * -(-rows.pieces // row_tiles) * -(-panels.pieces // panel_group)

    while items() < ITEMS and panel_group > 1 and not packs_rows:
        panel_group = -(-panel_group // 2)
    wanted = PANEL_ITEMS if packs_panels else ITEMS
    while items() < wanted and row_tiles > FEWEST_TILES:
        row_tiles = -(-row_tiles // 2)
    while items() < FEWEST_TILES and panel_group > 1:
        panel_group = -(-panel_group // 2)
    return Blocks(rows, panels, depth, evenly(rows.pieces, row_tiles), evenly(panels.pieces, panel_group), lanes)


def evenly(pieces: int, most: int) -> int:
    """The size of groups of at most `most` that leaves no small last one: 11 pieces by 8 are 6 + 5."""
    return -(-pieces // max(1, -(-pieces // most)))
