"""Calls of microkernels by the driver: of local functions by the size of a tile, or through function pointers."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rlx_core.ir.dims import Dim
from rlx_core.system.records import frozen
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.cuts import by_size, is_larger
from rlx_cpu.native.llvm.sizes import sized
from rlx_cpu.native.products.gemm_plan import ProductPlan
from rlx_cpu.native.products.microkernel import SIGNATURE, MicrokernelArguments
from rlx_cpu.native.products.row_tiles import RowTile

Prefetched = Callable[["Dim | ir.LlvmValue"], ir.LlvmValue]
"""Returns the address of a tile's part of the next panel, from the bytes that it prefetches of every step."""


InnerLoops = Callable[[ir.IRBuilder, RowTile, ir.LlvmValue, MicrokernelArguments, Prefetched], None]
"""Calls the inner loop of a tile of rows and a panel."""


def call_function(
    plan: ProductPlan,
    functions: Mapping[tuple[int, int], ir.Function],
    b: ir.IRBuilder,
    tile: RowTile,
    panel: ir.LlvmValue,
    arguments: MicrokernelArguments,
    prefetched: Prefetched,
) -> None:
    """Call the function of the module for the rows and vectors of a tile."""
    tiles = plan.blocks
    for rows in by_size(b, tiles.rows, tile.number, tile.part):
        for vectors in by_size(b, tiles.panels, panel):
            call_arguments = arguments._replace(next_panel=prefetched(plan.prefetched(vectors)))
            b.call(functions[rows, vectors], call_arguments.present)


@frozen(eq=False)
class FunctionPointers:
    """Microkernels that are called through function pointers.

    Attributes:
        places: Of the larger rows and the larger panels, the larger rows and the smaller panels, the smaller and the larger, both
            the smaller.
        shares: Bytes that each tile of the larger panels prefetches, and of the smaller.
    """

    plan: ProductPlan
    places: tuple[ir.LlvmValue, ir.LlvmValue, ir.LlvmValue, ir.LlvmValue]
    shares: tuple[Dim, Dim]

    def __call__(
        self,
        b: ir.IRBuilder,
        tile: RowTile,
        panel: ir.LlvmValue,
        arguments: MicrokernelArguments,
        prefetched: Prefetched,
    ) -> None:
        tiles, (both, high, wide, neither) = self.plan.blocks, self.places
        is_high, is_wide = is_larger(b, tiles.rows, tile.number, tile.part), is_larger(b, tiles.panels, panel)
        place = b.select(is_high, b.select(is_wide, both, high), b.select(is_wide, wide, neither))
        wide_share, narrow_share = (sized(b, each) for each in self.shares)
        call_arguments = arguments._replace(next_panel=prefetched(b.select(is_wide, wide_share, narrow_share)))
        b.call(place, call_arguments.present, SIGNATURE)
