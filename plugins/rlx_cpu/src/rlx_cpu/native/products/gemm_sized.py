"""Products whose number of rows comes with the call: tiles of every height up to one, chosen when it is known.

Columns, depth and the packed panels are as for any product, so that weights are packed once for all sizes. What an element's sum
adds up in which order does not depend on the height of its tile: the results are those of code for the size, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from attrs import evolve, field, frozen

from rlx_core.codegen.cuts import cut, numbers, unknown_cut
from rlx_core.codegen.places import Layout
from rlx_core.codegen.product import Matrix, Product
from rlx_core.codegen.unknown import said, unknown
from rlx_core.ir.dims import Dim, DimBinding
from rlx_core.ir.dtypes import DType
from rlx_core.ir.graph import Node
from rlx_cpu.native.contract import MOST_PARTS, Call, EmitSized, Emitted
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.isa import Isa
from rlx_cpu.native.llvm.words import Words
from rlx_cpu.native.products.gemm_driver import Driver, MakeEpilogue
from rlx_cpu.native.products.gemm_plan import ProductPlan
from rlx_cpu.native.products.gemm_tiles import Blocks, depth_of, grouped, tile_for

__all__ = ["EpilogueOf", "Lying", "ProductForm", "product_of", "sized_product"]

EpilogueOf = Callable[[Node, Layout], MakeEpilogue]
"""What follows the product of a node, of unknown size or not, whose operands lie somewhere."""


@frozen
class Lying:
    """Where an epilogue finds a tensor: bytes from a row of the product to the next, and from a column to the next.

    Attributes:
        by_row: `None` where there is one row.
    """

    dtype: DType
    by_row: int | None
    by_column: int

    def is_like(self, other: Lying) -> bool:
        """Whether code for that finds this."""
        return self == (other if self.by_row is not None else evolve(other, by_row=None))


LyingOf = Callable[[Layout], "tuple[Lying, ...] | None"]
"""Where an epilogue finds what it reads and writes; `None` where rows are not equally far apart."""


def bias_alone(layout: Layout) -> tuple[Lying, ...]:
    """A row that is the same for all rows, if there is one."""
    return tuple(Lying(p.type.dtype, 0, Matrix.of_row(p).by_column) for p in layout.operands[2:] if p is not None)


ENOUGH_ROWS: Final = 64
"""Rows for which the width of panels is chosen."""

_ROWS, _DEPTH, _TILES, _GROUP = map(unknown, ("rows", "depth", "row_tiles", "panel_group"))


@frozen(eq=False)
class ProductForm:
    """A product of a bound right side, for any number of rows.

    Attributes:
        node: What it is part of.
        product: With an unknown number of rows.
        layout: Where operands lie that do not depend on it.
        plan: How it is cut.
        others: Where the epilogue finds what it reads and writes; every row is as far from the next.
        workspace: Bytes of a thread's memory.
    """

    node: Node
    product: Product
    layout: Layout
    plan: ProductPlan
    epilogue: EpilogueOf
    lying: LyingOf
    others: tuple[Lying, ...]
    workspace: Dim = field(init=False)

    @workspace.default
    def _workspace(self) -> Dim:
        return self.plan.own

    @property
    def key(self) -> str:
        literals = [p and p.literal for p in self.layout.operands]
        return f"{self.node.op!r} {self.product!r} {self.others} {literals} {self.plan.keeps_result}"

    def call(self, layout: Layout, sizes: DimBinding) -> Call | None:
        """See `SizedForm.call`."""
        known, plan = product_of(layout), self.plan
        total = known.m * known.entries
        if total and (for_any_rows(known, like=self.product) != self.product or not self._fits(self.lying(layout))):
            return None
        assert plan.given is not None, "the cut of a form is given"
        rows = cut(total, plan.given.rows.most)
        dtype = plan.words.simd.dtype
        depth = depth_of(plan.k, dtype, plan.isa, is_short=rows.pieces == 2)
        found = grouped(1, rows, plan.given.panels, depth, dtype, plan.isa)
        tiles = max(found.row_tiles, 1)
        told = said(
            rows=total, depth=depth, row_tiles=tiles, panel_group=found.panel_group, **numbers("tiles", rows)
        )  # fmt: skip
        items = -(-rows.pieces // tiles) * found.panel_items
        products = total * known.n * known.k
        return Call(
            told,
            workspace=told.bind(self.workspace).__index__(),
            uses_threads=products >= plan.isa.machine.serial_products,
            parts=max(1, min(MOST_PARTS, items, products // plan.sizes.part_products)),
        )

    def emit(self, module: ir.Module, name: str) -> Emitted:
        """See `SizedForm.emit`."""
        words = Words.of(module, self.plan.isa, self.product.factors, self.product.dtype.accumulator)
        epilogue = self.epilogue(self.node, self.layout)
        emitted = Driver(evolve(self.plan, words=words), self.layout, name, epilogue).emit()
        return evolve(emitted, workspace=0)  # every call says its own

    def _fits(self, found: tuple[Lying, ...] | None) -> bool:
        return found is not None and all(a.is_like(b) for a, b in zip(found, self.others, strict=True))


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


def sized_product(epilogue: EpilogueOf, lying: LyingOf = bias_alone, *, keeps_result: bool = False) -> EmitSized:
    """Finds the form of a product whose epilogue that function makes."""

    def form(node: Node, layout: Layout, sizes: DimBinding, isa: Isa) -> ProductForm | None:
        known, others = product_of(layout), lying(layout)
        if known.batch or not (known.is_bound and known.m and known.n and known.k):
            return None
        if others is None or any(each.by_row is None for each in others):
            return None
        dtype = known.dtype.accumulator
        lanes = isa.lanes(dtype)
        tile = tile_for(ENOUGH_ROWS, known.n, lanes, isa.registers)
        words = Words.of(ir.Module("form"), isa, known.factors, dtype)
        panels = cut(-(-known.n // lanes), tile.vectors)
        given = Blocks(unknown_cut("tiles", tile.rows), panels, _DEPTH, _TILES, _GROUP, lanes)
        plan = ProductPlan(for_any_rows(known), words, isa, True, False, keeps_result, given)
        if plan.rows != "direct":
            return None
        return ProductForm(node, plan.product, layout, plan, epilogue, lying, others)

    return form
