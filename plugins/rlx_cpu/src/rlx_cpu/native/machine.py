"""Machine parameters: capacities of caches and TLBs, and thresholds for blocking and for the use of threads.

Code generators read the parameters from their `Isa`; tests generate code for another machine with `assuming`. One record
contains the parameters of one kind of kernel. All were measured on AVX2 and AVX-512 machines with 2 to 32 cores, and none needs
to be exact: at a threshold both variants take equally long. Unrolling factors follow from registers and latencies, and are
defined next to the code.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from rlx_core.system.records import frozen


@frozen(cache_hash=True)
class LoopSizes:
    """Walks of loop kernels (`loops.walk`).

    Attributes:
        block: Elements of an element-wise unit: small enough to balance threads, large enough not to be counted one by one.
        chunk: Elements of a chunk of a long row: enough that the time to combine chunks is negligible.
        few_rows: Units below which long rows are cut into chunks.
        few_strips: The same for strips of adjacent rows, where a chunk is also limited by the first-level TLB.
        strip: Vectors of accumulators of a unit whose rows lie side by side.
        tile_rows: Tiles of a unit across the lanes. Every tile touches a page for each of its rows, on both sides; a band of
            tiles lets the next lines be prefetched.
        tile_columns: Tiles of a unit along the lanes, which reuse TLB entries.
        prefetched_nbytes: Bytes of an operand, walked front to back, from which it is prefetched: half of an L2 of 2 MiB.
        prefetch_nbytes: Bytes ahead of a stream that are prefetched. The processor does so by itself only for as much as its
            window of instructions holds, which where something is computed is little: the benchmark `chain` takes a quarter
            less time on Emerald Rapids, plain sums as long as before.
        resident_row_nbytes: Bytes of a row that is still in a cache when the next loop over it begins.
        repeated_nbytes: Bytes that are read again for every row side by side, beyond which they are read in strips.
    """

    block: int = 4096
    chunk: int = 32768
    few_rows: int = 16
    few_strips: int = 256
    strip: int = 8
    tile_rows: int = 64
    tile_columns: int = 16
    prefetched_nbytes: int = 1 << 20
    prefetch_nbytes: int = 4096
    resident_row_nbytes: int = 1 << 17
    repeated_nbytes: int = 1 << 14


@frozen(cache_hash=True)
class ProductSizes:
    """Cache blocks and items of products (`products.gemm_tiles`, `products.gemm_plan`); register tiles follow from the `Isa`.

    Attributes:
        depth_nbytes: Bytes of one row of A in a cache block: a tile of A then stays in L1, and a panel of B in L2.
        short_depth_nbytes: The same where a panel is read by two tiles: the second finds the block in L1, where the first
            has left it.
        block_nbytes: Bytes of A, or of a group of panels, in a cache block: half of an L2 of 1 MiB. The L3 of large processors
            is slow, so the reduction of L3 traffic outweighs the cost of the block's size in L2.
        items: Minimum number of items, if there is enough work, so that any small number of threads has equal shares.
        panel_items: Number of items that suffices if more items would make threads pack the same panels.
        fewest_tiles: Tiles of an item, and items of a product, below which splitting further costs more than it brings.
        packed_group: Panels that share one packing of A.
        direct_nbytes: Bytes that all row tiles together may read of a B that stays where it lies. Packing it pays where many
            tiles share its cost, and where it is too large for L2.
        shared_nbytes: Bytes up to which an operand is packed for all threads at once, which takes as much memory again.
        held_nbytes: The same of one that is packed before a loop.
        load_nbytes: Bytes of a part of a panel that a load computes: half of an L1 of 32 KiB.
        part_products: Fused products of a part: some 10 µs, a hundred times what claiming it costs.
    """

    depth_nbytes: int = 2048
    short_depth_nbytes: int = 512
    block_nbytes: int = 1 << 19
    items: int = 32
    panel_items: int = 16
    fewest_tiles: int = 4
    packed_group: int = 12
    direct_nbytes: int = 1 << 24
    shared_nbytes: int = 1 << 24
    held_nbytes: int = 1 << 26
    load_nbytes: int = 1 << 14
    part_products: int = 1 << 19


@frozen(cache_hash=True)
class AttentionSizes:
    """Cuts of attention (`attention.cut`, `attention.backward_plan`, `attention.operands`).

    Attributes:
        row_nbytes: Bytes of a row of scores that are in flight at once: a tile's worth of rows stays in L1.
        weights_nbytes: Bytes of a block of weights in the backward pass, at most, unless one tile has more.
        items: Minimum number of items, if there are enough queries.
        tiles: Row tiles of an item, at most.
        fewest_parts: Parts below which a few threads would not have equal shares.
        segment_products: Fused products below which an item is not cut: adding the segments up would take as long.
        few_queries: Queries up to which keys are not transposed: a text generation step has one.
        spread_nbytes: Bytes over which strided rows of a head are spread: 64 pages, the capacity of the first-level TLB.
        packing_tiles: Minimum number of tiles that read a head for its packing to be negligible: it is read and written once
            for that.
    """

    row_nbytes: int = 2048
    weights_nbytes: int = 1 << 17
    items: int = 32
    tiles: int = 8
    fewest_parts: int = 8
    segment_products: int = 1 << 18
    few_queries: int = 2
    spread_nbytes: int = 1 << 18
    packing_tiles: int = 8


@frozen(cache_hash=True)
class MovementSizes:
    """Boxes that move (`movement`).

    Attributes:
        unit_nbytes: Bytes of a unit: small enough to balance threads, large enough not to be counted one by one.
        tile: Elements along both sides of a tile of transposed squares: a cache line of the smallest.
        prefetch_lines: Lines of the operand, one below the other, that are prefetched before squares of them are stored past
            the caches.
        aligned_row_nbytes: Bytes of a row from which it pays to look for its first cache line, and to move what lies before
            it by itself.
    """

    unit_nbytes: int = 1 << 15
    tile: int = 64
    prefetch_lines: int = 32
    aligned_row_nbytes: int = 1024


@frozen(cache_hash=True)
class OrderingSizes:
    """Sorting and searching (`ordering`).

    Attributes:
        shared_row: Elements from which threads share one row.
        few_rows: Rows below which they do.
        wide_digits: Elements of a row from which fewer passes with more counters are quicker.
        search_block: Values of a unit of a search.
    """

    shared_row: int = 1 << 15
    few_rows: int = 8
    wide_digits: int = 4000
    search_block: int = 512


@frozen(cache_hash=True)
class IndexingSizes:
    """Gathers and scatters (`indexing`).

    Attributes:
        columns: Elements of a block of columns: a few vectors, so that a thread's part of a row is worth going there.
        fewest_units: Units from which tables and columns are shared out; with fewer, rows are.
        chained_row_nbytes: Bytes of a row from which going to its updates one by one, wherever they lie, pays.
        prefetch_rows: Rows ahead of the one that is added up whose first update is prefetched.
    """

    columns: int = 64
    fewest_units: int = 8
    chained_row_nbytes: int = 256
    prefetch_rows: int = 12


@frozen(cache_hash=True)
class ScanSizes:
    """Running reductions (`scans.cumulative`).

    Attributes:
        line_nbytes: Bytes of a unit's lines at one place, from the most to the least: so many as leave enough units to share
            out. Every place is another page, on both sides; of a kilobyte from each the processor sees what comes next.
        fewest_units: Units to share out.
        prefetch_places: Places on the axis that are prefetched before their turn.
    """

    line_nbytes: tuple[int, ...] = (1024, 512, 256)
    fewest_units: int = 8
    prefetch_places: int = 8


@frozen(cache_hash=True)
class Speed:
    """Estimates of program run times (`runtime.work`), and thresholds that depend on them.

    Attributes:
        flops_per_us, bytes_per_us: Minimum throughput of a core, with vectors of 16 bytes and data in L2.
        awake_us: Programs that take less run on one thread even if other threads are awake: they would gain a tenth, or
            nothing.
        locked_us: Programs that take less keep the interpreter's lock: other threads wait for it only briefly, and releasing it
            may cost a context switch.
    """

    flops_per_us: float = 25e3
    bytes_per_us: float = 30e3
    awake_us: float = 8.0
    locked_us: float = 25.0


@frozen(cache_hash=True)
class CpuMachine:
    """Machine parameters of schedules, in addition to the instruction set.

    Attributes:
        serial_nbytes: Bytes of movement, of a table or of lines below which one thread finishes before another has started.
        serial_points: The same for loop kernels, in elements, weighted by the cost of a kernel's steps.
        serial_products: The same for products and attention, in fused products: a few µs.
        serial_us: Microseconds of a whole program below which no other thread is woken for it.
        serial_pack_nbytes: Bytes of parameters below which one thread packs them: NumPy copies without the interpreter's
            lock.
        l2_nbytes: Bytes that may stay in the L2 of a core.
        nontemporal_nbytes: Bytes of a result from which it is stored nontemporally: a smaller one may still be in a cache when
            it is read.
    """

    serial_nbytes: int = 1 << 16
    serial_points: int = 1 << 14
    serial_products: int = 1 << 15
    serial_us: float = 25.0
    serial_pack_nbytes: int = 1 << 22
    l2_nbytes: int = 1 << 21
    nontemporal_nbytes: int = 1 << 24
    speed: Speed = Speed()
    loops: LoopSizes = LoopSizes()
    products: ProductSizes = ProductSizes()
    attention: AttentionSizes = AttentionSizes()
    movement: MovementSizes = MovementSizes()
    ordering: OrderingSizes = OrderingSizes()
    indexing: IndexingSizes = IndexingSizes()
    scans: ScanSizes = ScanSizes()


MACHINE: Final = CpuMachine()
"""Default parameters, assumed for every machine."""

_assumed: Final = [MACHINE]
"""The last one is used; it is shared by all threads, because tests compile on several."""


def assumed() -> CpuMachine:
    """Return the machine parameters for programs that are compiled now."""
    return _assumed[-1]


@contextmanager
def assuming(machine: CpuMachine) -> Iterator[None]:
    """Programs compiled inside are made for another machine: for tests."""
    _assumed.append(machine)
    try:
        yield
    finally:
        _assumed.pop()
