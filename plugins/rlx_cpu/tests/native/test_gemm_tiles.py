"""How a product is cut up: tiles, cuts and items."""

from __future__ import annotations

from itertools import product

import pytest

from rlx_core.ir.dtypes import f32, f64
from rlx_cpu.native.gemm_tiles import NARROW, TILES, blocks, cut
from rlx_cpu.native.isa import available


@pytest.mark.parametrize("registers", TILES)
def test_every_tile_fits_in_the_registers(registers: int) -> None:
    tiles = (*TILES[registers], *NARROW[registers].values())
    assert all(t.registers <= registers for t in tiles), tiles


@pytest.mark.parametrize(("length", "most"), [(n, m) for n in (0, 1, 2, 7, 8, 9, 17, 48, 100) for m in (1, 3, 8)])
def test_a_cut_deals_out_everything_evenly(length: int, most: int) -> None:
    found = cut(length, most)
    sizes = [found.size_of(i) for i in range(found.pieces)]
    assert sum(sizes) == length == found.start(found.pieces)
    assert [found.start(i) for i in range(found.pieces)] == [sum(sizes[:i]) for i in range(found.pieces)]
    assert not sizes or (max(sizes) <= most and max(sizes) - min(sizes) <= 1)
    assert len(sizes) == -(-length // most)


def test_items_cover_a_product_whatever_its_size() -> None:
    isa = available()[0]
    for m, n, k, of in product((1, 17, 1000), (1, 50, 3000), (1, 5000), (f32, f64)):
        found = blocks(3, m, n, k, of, isa)
        assert found.row_items * found.row_tiles >= found.rows.pieces
        assert found.panel_items * found.panel_group >= found.panels.pieces
        assert found.depth % 4 == 0 or found.depth == k
