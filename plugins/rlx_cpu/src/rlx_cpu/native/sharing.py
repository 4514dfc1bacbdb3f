"""For tests: threads share work of any size, so that small programs reveal errors of the partition."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from rlx_cpu.native.machine import (
    AttentionSizes,
    CpuMachine,
    IndexingSizes,
    LoopSizes,
    MovementSizes,
    OrderingSizes,
    ProductSizes,
    ScanSizes,
    assuming,
)

SHARING: Final = CpuMachine(
    serial_nbytes=-1,
    serial_points=-1,
    serial_products=-1,
    serial_us=-1.0,
    serial_pack_nbytes=-1,
    loops=LoopSizes(block=64, chunk=256, strip=1, tile_rows=1, tile_columns=1),
    products=ProductSizes(block_nbytes=1, items=64, panel_items=64, fewest_tiles=1, packed_group=1, part_products=1),
    attention=AttentionSizes(tiles=1, fewest_parts=64, segment_products=1),
    movement=MovementSizes(unit_nbytes=256, tile=16),
    ordering=OrderingSizes(shared_row=256, search_block=16),
    indexing=IndexingSizes(columns=16, fewest_units=2),
    scans=ScanSizes(line_nbytes=(64,), fewest_units=2),
)
"""A machine on which no work is too little to be shared: there are many units, and no threshold for threads."""


@contextmanager
def everything_is_shared() -> Iterator[None]:
    """Programs compiled inside share every step that can be shared."""
    with assuming(SHARING):
        yield
