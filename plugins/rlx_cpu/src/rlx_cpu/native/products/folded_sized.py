"""Convolution products for a dynamic number of images, forward and for the gradient of weights.

Rows are grouped in lines and terms in runs of known lengths: tiles have the heights of code for the known size, and their
number is a run-time argument. Only if all rows are contiguous, and an image has few of them, are there tiles of every height.
"""

from __future__ import annotations

from typing import Final, cast

from rlx_core.codegen.cuts import cut, unknown_cut
from rlx_core.codegen.places import Layout
from rlx_core.codegen.product import MatrixProduct
from rlx_core.codegen.sizes import layout_sizes, sized_layout
from rlx_core.ir.dims import Dim, DimBinding
from rlx_core.ir.graph import Node
from rlx_core.ops.convolution.folded import FoldedMatMul
from rlx_core.system.records import evolve, frozen
from rlx_cpu.native.contract import Call, EmitSized
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.isa import Isa
from rlx_cpu.native.llvm.sizes import is_known
from rlx_cpu.native.products.gemm_plan import ProductPlan
from rlx_cpu.native.products.gemm_sized import (
    DEPTH,
    ENOUGH_ROWS,
    GROUP,
    TILES,
    EpilogueOf,
    ProductForm,
    sources_of,
)
from rlx_cpu.native.products.gemm_tiles import Blocks, tile_for
from rlx_cpu.native.table import op_of

FEWEST_ROWS: Final = ENOUGH_ROWS
"""Rows of an image from which tiles end with it: of fewer, too many would be low."""


@frozen(eq=False)
class FoldedForm(ProductForm):
    """A convolution product for any number of images, with a layout for all sizes."""

    @property
    def key(self) -> str:
        plan = self.plan
        return f"{self.node.op!r} {self.layout!r} {plan.product!r} {plan.keeps_result} {plan.sources}"

    def call(self, layout: Layout, sizes: DimBinding) -> Call | None:
        """See `SizedForm.call`."""
        plan, most_rows = self.plan, self.blocks.rows.most
        strides, known = layout_sizes(self.layout, layout), of_size(plan.product, sizes)
        if strides is None or not (known.m and known.k) or sources_of(plan, known) != plan.sources:
            return None
        plain = evolve(plan, product=known, symbolic_blocks=None)
        rows = cut(known.m, most_rows) if most_rows else plain.tiles[0]
        return self.call_of(known, rows, DimBinding({**sizes.sizes, **strides}))


def of_size(product: MatrixProduct, sizes: DimBinding) -> MatrixProduct:
    """A product of known sizes."""
    m, k = (sizes.bind(n).__index__() for n in (product.m, product.k))
    lines, runs, result_lines = (
        tuple((sizes.bind(n).__index__(), stride) for n, stride in axes)
        for axes in (product.lines, product.runs, product.result_lines)
    )
    return evolve(product, m=m, k=k, lines=lines, runs=runs, result_lines=result_lines)


def sized_folded(epilogue: EpilogueOf) -> EmitSized:
    """Finds the form of a product of windows whose epilogue that function makes."""

    def form(node: Node, layout: Layout, sizes: DimBinding, isa: Isa) -> FoldedForm | None:
        lying = sized_layout(node, layout)
        product = product_of(node, lying)
        if product is None or 0 in (product.n, sizes.bind(product.m), sizes.bind(product.k)):
            return None
        keeps_result = op_of(node, FoldedMatMul).region is not None
        known = of_size(product, sizes)
        plan = ProductPlan.of(ir.Module("form"), isa, known, layout, keeps_result=keeps_result)
        sources = sources_of(plan, plan.product)
        blocks = blocks_of(evolve(plan, product=product))
        form_plan = evolve(plan, product=product, symbolic_blocks=blocks, sources=sources)
        return FoldedForm(node, lying, form_plan, epilogue)

    return form


def product_of(node: Node, lying: Layout) -> MatrixProduct | None:
    """The product of an unknown number of images; `None` where something else is unknown, or a stride."""
    a, b = lying.required(0, 1)
    rows = a.type.rank - op_of(node, FoldedMatMul).axes
    counted = {axis for axis, size in enumerate(a.type.shape) if not is_known(size)}
    is_open = any(
        not is_known(stride) for place in (*lying.operands, *lying.results) if place for stride in place.strides
    )
    if is_open or not is_known(b.type.shape[1]) or counted not in ({0}, {rows}):
        return None
    product = product_of_windows(node, lying)
    return with_images_apart(product, a.type.shape[0], a.strides[0]) if counted == {0} else product


def product_of_windows(node: Node, layout: Layout) -> MatrixProduct:
    """The product of a layout."""
    a, b = layout.required(0, 1)
    return MatrixProduct.of_axes(a, b, layout.results[0], op_of(node, FoldedMatMul).axes)


def with_images_apart(product: MatrixProduct, images: Dim, stride: int) -> MatrixProduct:
    """A product whose rows are neighbours as one of as many lines as there are images, where these have rows enough."""
    rows = product.m // images
    if product.lines or not is_known(rows) or rows < FEWEST_ROWS:
        return product
    return evolve(product, lines=((cast(int, images), stride),))


def blocks_of(plan: ProductPlan) -> Blocks:
    """The cut of a product for all sizes."""
    p, lanes = plan.product, plan.words.simd.lanes
    if is_known(p.width):
        rows, panels = plan.tiles
    else:
        tile = tile_for(ENOUGH_ROWS, p.n, lanes, plan.isa.registers)
        rows, panels = unknown_cut("tiles", tile.rows), cut(-(-p.n // lanes), tile.vectors)
    return Blocks(rows, panels, DEPTH, TILES, GROUP, lanes)
