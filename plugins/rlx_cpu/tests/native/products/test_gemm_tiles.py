"""How a product is cut up: tiles, cuts and items."""

from __future__ import annotations

from itertools import product

import pytest

from rlx_core.codegen.cuts import cut
from rlx_core.ir.dtypes import DType, f32, f64
from rlx_cpu.native.llvm.isa import Isa, available
from rlx_cpu.native.products.gemm_tiles import NARROW, TILES, Blocks, depth_of, grouped, tiles_of


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


def test_no_piece_of_several_lengths_is_of_two_of_them() -> None:
    found = cut(17, 8, lines=3)
    assert (found.pieces, found.each, found.length) == (9, 3, 17)
    assert [found.start(i) for i in range(9)] == [line + part for line in (0, 17, 34) for part in (0, 6, 12)]
    assert [found.size_of(i) for i in range(9)] == [6, 6, 5] * 3


def blocks(batch: int, m: int, n: int, k: int, of: DType, isa: Isa) -> Blocks:
    rows, panels = tiles_of(m, n, of, isa)
    return grouped(batch, rows, panels, depth_of(k, of, isa, is_short=rows.pieces == 2), of, isa)


def test_items_cover_a_product_whatever_its_size() -> None:
    isa = available()[0]
    for m, n, k, of in product((1, 17, 1000), (1, 50, 3000), (1, 5000), (f32, f64)):
        found = blocks(3, m, n, k, of, isa)
        assert found.row_items * found.row_tiles >= found.rows.pieces
        assert found.panel_items * found.panel_group >= found.panels.pieces
        assert found.depth % 4 == 0 or found.depth == k


def test_blocks_stay_within_the_caches_that_they_are_made_for() -> None:
    isa = available()[0]
    sizes = isa.machine.products
    for m, n, k, of in product((1, 17, 1000), (1, 50, 3000), (1, 5000, 70000), (f32, f64)):
        found, size = blocks(1, m, n, k, of, isa), of.itemsize
        assert found.depth * size <= sizes.depth_nbytes + 4 * size
        tile, panel = (found.depth * c * size for c in (found.rows.size, found.panels.size * found.lanes))
        assert found.row_tiles == 1 or found.row_tiles * tile <= sizes.block_nbytes
        assert found.panel_group == 1 or found.panel_group * panel <= sizes.block_nbytes


def test_large_products_have_items_for_many_threads_and_small_ones_few() -> None:
    isa = available()[0]
    sizes = isa.machine.products
    large = blocks(1, 2000, 2000, 500, f32, isa)
    assert large.row_items * large.panel_items >= sizes.items
    small = blocks(1, 8, 16, 8, f32, isa)
    assert small.row_items * small.panel_items <= sizes.fewest_tiles
