"""Products whose number of rows comes with the call: tiles of every height up to one, chosen when it is known.

Columns, depth and the packed panels are as for any product, so that weights are packed once for all sizes. What an element's sum
adds up in which order does not depend on the height of its tile: the results are those of code for the size, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, cast

from attrs import evolve, field, frozen

from rlx_core.codegen.cuts import cut, numbers, unknown_cut
from rlx_core.codegen.places import Layout
from rlx_core.codegen.product import Product
from rlx_core.ir.dims import Dim, DimBinding, symbol
from rlx_core.ir.graph import Node
from rlx_core.ir.op import Op
from rlx_cpu.native.contract import MOST_PARTS, Call, EmitSized, Emitted
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.isa import Isa
from rlx_cpu.native.llvm.words import Words
from rlx_cpu.native.products.gemm_driver import Driver, MakeEpilogue
from rlx_cpu.native.products.gemm_plan import ProductPlan
from rlx_cpu.native.products.gemm_tiles import Blocks, depth_of, grouped, tile_for

__all__ = ["EpilogueOf", "ProductForm", "sized_product"]

EpilogueOf = Callable[[Op, Layout], MakeEpilogue]
"""What follows the product of an op whose operands lie somewhere; no size of the epilogue is unknown."""

ENOUGH_ROWS: Final = 64
"""Rows for which the width of panels is chosen."""

_ROWS, _DEPTH, _TILES, _GROUP = (
    cast(int, symbol(f"_{name}")) for name in ("rows", "depth", "row_tiles", "panel_group")
)


@frozen(eq=False)
class ProductForm:
    """A product of a bound right side, for any number of rows.

    Attributes:
        op: What it is part of.
        product: With an unknown number of rows.
        layout: Where operands lie that do not depend on it.
        plan: How it is cut.
        workspace: Bytes of a thread's memory.
    """

    op: Op
    product: Product
    layout: Layout
    plan: ProductPlan
    epilogue: EpilogueOf
    workspace: Dim = field(init=False)

    @workspace.default
    def _workspace(self) -> Dim:
        return self.plan.own

    @property
    def key(self) -> str:
        others = [p and (p.type, p.strides) for p in self.layout.operands[2:]]
        return f"{self.op!r} {self.product!r} {others} {self.plan.keeps_result}"

    def call(self, layout: Layout, sizes: DimBinding) -> Call | None:
        """See `SizedForm.call`."""
        known, plan = product_of(layout), self.plan
        total = known.m * known.entries
        is_alike = total == 0 or for_any_rows(known, like=self.product) == self.product
        if not is_alike or layout.operands[2:] != self.layout.operands[2:]:
            return None
        assert plan.given is not None, "the cut of a form is given"
        rows = cut(total, plan.given.rows.most)
        dtype = plan.words.simd.dtype
        depth = depth_of(plan.k, dtype, plan.isa, is_short=rows.pieces == 2)
        found = grouped(1, rows, plan.given.panels, depth, dtype, plan.isa)
        tiles = max(found.row_tiles, 1)
        said = DimBinding.of(
            _rows=total, _depth=depth, _row_tiles=tiles, _panel_group=found.panel_group, **numbers("tiles", rows)
        )  # fmt: skip
        items = -(-rows.pieces // tiles) * found.panel_items
        products = total * known.n * known.k
        return Call(
            said,
            workspace=said.bind(self.workspace).__index__(),
            uses_threads=products >= plan.isa.machine.serial_products,
            parts=max(1, min(MOST_PARTS, items, products // plan.sizes.part_products)),
        )

    def emit(self, module: ir.Module, name: str) -> Emitted:
        """See `SizedForm.emit`."""
        words = Words.of(module, self.plan.isa, self.product.factors, self.product.dtype.accumulator)
        emitted = Driver(evolve(self.plan, words=words), self.layout, name, self.epilogue(self.op, self.layout)).emit()
        return evolve(emitted, workspace=0)  # every call says its own


def product_of(layout: Layout) -> Product:
    """The product of a layout."""
    a, b = layout.operands[:2]
    assert a is not None and b is not None, "a product has two operands"  # noqa: PT018
    return Product.of(a, b, layout.results[0])


def for_any_rows(known: Product, like: Product | None = None) -> Product:
    """A product without its number of rows; how far apart they lie is as in `like` where there are too few to tell."""
    apart = like if known.m <= 1 and like is not None else known
    a, c = evolve(known.a, by_row=apart.a.by_row), evolve(known.c, by_row=apart.c.by_row)
    return evolve(known, m=_ROWS, a=a, c=c)


def sized_product(epilogue: EpilogueOf, *, keeps_result: bool = False) -> EmitSized:
    """Finds the form of a product whose epilogue that function makes."""

    def form(node: Node, layout: Layout, sizes: DimBinding, isa: Isa) -> ProductForm | None:
        known = product_of(layout)
        if known.batch or not (known.is_bound and known.n and known.k):
            return None
        dtype = known.dtype.accumulator
        lanes = isa.lanes(dtype)
        tile = tile_for(ENOUGH_ROWS, known.n, lanes, isa.registers)
        words = Words.of(ir.Module("form"), isa, known.factors, dtype)
        panels = cut(-(-known.n // lanes), tile.vectors)
        given = Blocks(unknown_cut("tiles", tile.rows), panels, _DEPTH, _TILES, _GROUP, lanes)
        plan = ProductPlan(for_any_rows(known), words, isa, True, False, keeps_result, given)
        return ProductForm(node.op, plan.product, layout, plan, epilogue) if plan.rows == "direct" else None

    return form
