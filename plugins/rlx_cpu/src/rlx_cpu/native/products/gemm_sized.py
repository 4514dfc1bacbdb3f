"""Products whose number of rows, of terms or of batch entries is a run-time argument.

For unknown rows there are tiles of every height up to a maximum, selected at run time; columns, depth and the packed panels are
as for any product, so that weights are packed once for all sizes. Unknown terms occur in gradients, which sum over a batch. The
order of summation of an element does not depend on the height of its tile: the results are bit-identical to those of code for
the known size. The sources of the factors change with the sizes, but rarely, and each variant is a form.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Final

from rlx_core.codegen.cuts import Cut, cut, numbers, unknown_cut
from rlx_core.codegen.places import Layout
from rlx_core.codegen.product import MatrixProduct, MatrixStrides
from rlx_core.codegen.unknown import said, unknown
from rlx_core.ir.dims import Dim, DimBinding
from rlx_core.ir.dtypes import DType
from rlx_core.ir.graph import Node
from rlx_core.system.records import evolve, frozen
from rlx_cpu.native.contract import MOST_PARTS, Call, EmitSized, Emitted
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.isa import Isa
from rlx_cpu.native.llvm.sizes import is_known
from rlx_cpu.native.llvm.words import Words
from rlx_cpu.native.products.gemm_driver import GemmEmitter, MakeEpilogue
from rlx_cpu.native.products.gemm_plan import OperandSources, ProductPlan
from rlx_cpu.native.products.gemm_tiles import Blocks, chains_of, depth_of, grouped, tile_for

EpilogueOf = Callable[[Node, Layout], MakeEpilogue]
"""Returns the epilogue of a node's product, of unknown size or not, with a given layout."""


@frozen
class Lying:
    """The layout of a tensor for an epilogue: bytes from a row of the product to the next, and from a column to the next.

    Attributes:
        by_row: `None` where there is one row.
        by_entry: Bytes from an entry of a batch to the next; `None` where that is from its last row to the next.
    """

    dtype: DType
    by_row: int | None
    by_column: int
    by_entry: int | None = None

    def is_like(self, other: Lying) -> bool:
        """Return whether code for that finds this."""
        return self == (other if self.by_row is not None else evolve(other, by_row=None))


LyingOf = Callable[[Layout], "tuple[Lying, ...] | None"]
"""Returns the layouts of an epilogue's operands and results; `None` if rows have no uniform stride."""


def bias_alone(layout: Layout) -> tuple[Lying, ...]:
    """Return a row that is the same for all rows, if there is one."""
    return tuple(
        Lying(p.type.dtype, 0, MatrixStrides.of_row(p).by_column) for p in layout.operands[2:] if p is not None
    )


ENOUGH_ROWS: Final = 64
"""Rows for which the width of panels is chosen."""

FEW_ROWS: Final = 3
"""The same of panels that a load computes, where one row is frequent (decoding): it has a sum for each vector of a panel, whose
latencies overlap. A tile of fewer rows and more vectors has as many sums, and loads as much for each product."""

_ROWS, _TERMS, _ENTRIES = map(unknown, ("rows", "terms", "entries"))
DEPTH, TILES, GROUP = map(unknown, ("depth", "row_tiles", "panel_group"))
"""Steps along K in a block, tiles of an item and its panels; set by `ProductForm.call_of`."""

_BY_ROW, _BY_COLUMN = map(unknown, ("by_row", "by_column"))


def product_of(layout: Layout) -> MatrixProduct:
    """The product of a layout."""
    a, b = layout.required(0, 1)
    return MatrixProduct.of(a, b, layout.results[0])


@frozen(eq=False)
class ProductForm:
    """A product for any number of rows, of terms or of entries.

    Attributes:
        node: The node that contains the product.
        layout: Layout of the operands and results, as far as it does not depend on the sizes.
        plan: The blocking for all sizes.
    """

    node: Node
    layout: Layout
    plan: ProductPlan
    epilogue: EpilogueOf

    @cached_property
    def nbytes(self) -> tuple[Dim, Dim]:
        """Bytes of a thread's memory, and of memory shared by all threads."""
        return self.plan.thread_nbytes, self.plan.shared

    @property
    def blocks(self) -> Blocks:
        assert self.plan.symbolic_blocks is not None, "the sizes are unknown"
        return self.plan.symbolic_blocks

    def call_of(self, known: MatrixProduct, rows: Cut, values: DimBinding) -> Call:
        """Return the call for known sizes.

        Args:
            known: The product of that size, and `rows` its tiles.
            values: Further run-time arguments of the code.
        """
        plan, of_size = self.plan, evolve(self.plan, product=known)
        panels, dtype = self.blocks.panels, plan.words.simd.dtype
        depth = plan.load_depth or depth_of(of_size.k, dtype, plan.isa, is_short=rows.pieces == 2, run=plan.run)
        blocks = grouped(
            known.entries, rows, panels, depth, dtype, plan.isa,
            packs_rows=plan.owns_rows, packs_panels=plan.panels in ("shared", "packed"),
        )  # fmt: skip
        # A panel that a load computes is computed once for all rows.
        tiles = max(rows.pieces if plan.panels == "loaded" else blocks.row_tiles, 1)
        cuts = said(depth=depth, row_tiles=tiles, panel_group=blocks.panel_group, **numbers("tiles", rows))
        values = DimBinding({**values.sizes, **cuts.sizes})
        items = known.entries * -(-rows.pieces // tiles) * blocks.panel_items
        workspace, shared_workspace = (values.bind(each).__index__() for each in self.nbytes)
        return Call(
            values,
            workspace,
            shared_workspace,
            uses_threads=of_size.products >= plan.isa.machine.serial_products,
            parts=max(1, min(MOST_PARTS, items, of_size.products // plan.sizes.part_products)),
        )

    def emit(self, module: ir.Module, name: str) -> Emitted:
        """See `SizedForm.emit`."""
        product = self.plan.product
        words = Words.of_product(module, self.plan.isa, product.factors, product.dtype)
        plan, epilogue = evolve(self.plan, words=words), self.epilogue(self.node, self.layout)
        emitted = GemmEmitter(plan, self.layout, name, epilogue).emit()
        return evolve(emitted, workspace=0, shared_workspace=0)  # passed in every call


@frozen(eq=False)
class MatrixForm(ProductForm):
    """A product of matrices.

    Attributes:
        others: Layouts of the epilogue's operands and results; rows have a uniform stride.
        product_at: Returns the product of a layout with known sizes.
    """

    lying: LyingOf
    others: tuple[Lying, ...]
    product_at: Callable[[Layout], MatrixProduct] = product_of

    @property
    def product(self) -> MatrixProduct:
        """The product with unknown sizes."""
        return self.plan.product

    @property
    def key(self) -> str:
        op, literals = self.node.op, [p and p.literal for p in self.layout.operands]
        return f"{op!r} {self.product!r} {self.others} {literals} {self.plan.keeps_result} {self.plan.sources}"

    def call(self, layout: Layout, sizes: DimBinding) -> Call | None:
        """See `SizedForm.call`."""
        known, rows = self.product_at(layout), self.blocks.rows
        total = known.m * known.entries
        if total and not (self._is_like(known) and self._has_layouts(self.lying(layout), known.entries)):
            return None
        values = said(
            rows=total, terms=self.plan.words.count(known.k), entries=known.entries,
            by_row=known.a.by_row, by_column=known.b.by_column,
        )  # fmt: skip
        return self.call_of(known, rows if is_known(self.product.m) else cut(total, rows.most), values)

    def _is_like(self, known: MatrixProduct) -> bool:
        """Return whether a product of some size lies and is read as this one."""
        if not is_known(self.product.k):
            matching = for_any_terms(known, like=self.product) if known.k else None
        elif self.product.batch:
            known = known if known.batch else of_one_entry(known, like=self.product)
            matching = for_any_entries(known) if len(known.batch) == 1 else None
        else:
            matching = for_any_rows(known, like=self.product)
        if matching != self.product:
            return False
        # Strides of dimensions of size 1 are those of the form.
        a = self.product.a if is_known(self.product.a.by_row) else known.a
        b = self.product.b if is_known(self.product.b.by_column) else known.b
        of_size = evolve(known, a=a, b=b, c=self.product.c)
        return sources_of(self.plan, of_size) == self.plan.sources

    def _has_layouts(self, layouts: tuple[Lying, ...] | None, entries: int) -> bool:
        if layouts is None:
            return False
        if entries == 1:  # the stride to the next entry is irrelevant, unless rows of the same entry use it
            if any(each.by_entry is not None for each in layouts):
                return False
            layouts = tuple(evolve(a, by_entry=b.by_entry) for a, b in zip(layouts, self.others, strict=True))
        return all(a.is_like(b) for a, b in zip(layouts, self.others, strict=True))


def for_any_rows(known: MatrixProduct, like: MatrixProduct | None = None) -> MatrixProduct:
    """Return a product without its number of rows, with the row strides of `like` if there is at most one row."""
    strided = like if known.m <= 1 and like is not None else known
    a, c = evolve(known.a, by_row=strided.a.by_row), evolve(known.c, by_row=strided.c.by_row)
    return evolve(known, m=_ROWS, a=a, c=c)


def for_any_terms(known: MatrixProduct, like: MatrixProduct | None = None) -> MatrixProduct:
    """Return a product without its number of terms; its strides along k are those of `like` if there is one term."""
    strided = like if known.k <= 1 and like is not None else known
    a, b = evolve(known.a, by_column=strided.a.by_column), evolve(known.b, by_row=strided.b.by_row)
    if a.by_column == known.factors.itemsize:
        a = evolve(a, by_row=_BY_ROW)  # the row stride is the row length
    if b.by_row == known.factors.itemsize != b.by_column:
        b = evolve(b, by_column=_BY_COLUMN)
    return evolve(known, k=_TERMS, a=a, b=b)


def for_any_entries(known: MatrixProduct) -> MatrixProduct:
    """A product without its number of entries."""
    is_shared = known.b.batch == (0,)
    return evolve(known, batch=(_ENTRIES,), b_shape=(1 if is_shared else _ENTRIES,))


def of_one_entry(known: MatrixProduct, like: MatrixProduct) -> MatrixProduct:
    """A product as a batch of one that lies as in `like`."""
    a, b, c = (
        evolve(operand, batch=lies.batch) for operand, lies in ((known.a, like.a), (known.b, like.b), (known.c, like.c))
    )
    return evolve(known, batch=(1,), b_shape=(1,), a=a, b=b, c=c)


def sources_of(plan: ProductPlan, known: MatrixProduct) -> OperandSources | None:
    """Return the factors' sources for all sizes with the same sources as this one; `None` if they are the same for all.

    The sources are as in code for the size, except rows whose stride changes: an item copies them.
    """
    if plan.product.is_bound and not known.batch:
        return None
    if known.load is not None:
        return OperandSources("loaded", "direct", owns_rows=False)
    of_size = evolve(plan, product=known, symbolic_blocks=None, sources=None)
    if plan.sources is not None and plan.sources.rows == "copied":
        return OperandSources(of_size.panels, "copied", owns_rows=True)
    return OperandSources(of_size.panels, of_size.rows, of_size.owns_rows)


def sized_product(epilogue: EpilogueOf, lying: LyingOf = bias_alone, *, keeps_result: bool = False) -> EmitSized:
    """Finds the form of a product whose epilogue that function makes."""

    def form(node: Node, layout: Layout, sizes: DimBinding, isa: Isa) -> MatrixForm | None:
        return form_of(node, layout, isa, epilogue, lying, product_of, keeps_result=keeps_result)

    return form


def form_of(
    node: Node,
    layout: Layout,
    isa: Isa,
    epilogue: EpilogueOf,
    lying: LyingOf,
    product_at: Callable[[Layout], MatrixProduct],
    *,
    keeps_result: bool,
) -> MatrixForm | None:
    """Return the form of a product, whose function for known sizes is `product_at`."""
    known, others = product_at(layout), lying(layout)
    if not (known.entries and known.m and known.n and known.k):
        return None
    if others is None or any(each.by_row is None for each in others):
        return None
    plan = ProductPlan.of(ir.Module("form"), isa, known, layout, keeps_result=keeps_result)
    a, *_ = node.present()
    if known.batch and known.load is None:
        form_plan = _for_all_entries(node, plan)
    elif any(each.by_entry is not None for each in others):
        form_plan = None
    else:
        form_plan = _for_all_rows(node, plan) if is_known(a.shape[-1]) else _for_all_terms(node, plan)
    if form_plan is None:
        return None
    return MatrixForm(node, layout, form_plan, epilogue, lying, others, product_at)


def _for_all_rows(node: Node, plan: ProductPlan) -> ProductPlan | None:
    """Return the plan of a product of unknown rows."""
    known, lanes = plan.product, plan.words.simd.lanes
    if not list(node.present())[1].type.is_static:
        return None
    rows = ENOUGH_ROWS if known.load is None else FEW_ROWS
    tile = tile_for(rows, known.n, lanes, plan.isa.registers)
    panels = cut(-(-known.n // lanes), tile.vectors)
    blocks = Blocks(unknown_cut("tiles", tile.rows), panels, DEPTH, TILES, GROUP, lanes)
    if known.load is not None:
        depth = plan.depth_of_load(panels.size)
        if depth is None or plan.rows != "direct" or chains_of(1, panels.start(panels.pieces)) > 1:
            return None
        blocks = evolve(blocks, depth=depth)
    form_plan = evolve(plan, product=for_any_rows(known), symbolic_blocks=blocks, sources=sources_of(plan, known))
    return form_plan if form_plan.rows == "direct" else None


def _for_all_terms(node: Node, plan: ProductPlan) -> ProductPlan | None:
    """Return the plan of a product of unknown terms."""
    known, words, b = plan.product, plan.words, list(node.present())[1]
    is_known_else = all(is_known(size) for size in (*node.types[0].shape, b.shape[-1]))
    is_plain = words.stored.itemsize in (known.b.by_row, known.b.by_column)
    if not is_known_else or not is_plain or words.per_word != 1 or known.is_bound or plan.rows == "copied":
        return None
    blocks = Blocks(*plan.tiles, DEPTH, TILES, GROUP, words.simd.lanes)
    sources = (
        OperandSources(plan.panels, "copied", owns_rows=True) if plan.rows == "direct" else sources_of(plan, known)
    )
    return evolve(plan, product=for_any_terms(known), symbolic_blocks=blocks, sources=sources)


def _for_all_entries(node: Node, plan: ProductPlan) -> ProductPlan | None:
    """Return the plan of a batch of an unknown number of products."""
    known = plan.product
    sizes = (value.shape[-2:] for value in node.operands[:2] if value is not None)
    if len(known.batch) != 1 or not all(is_known(size) for each in sizes for size in each) or plan.rows == "copied":
        return None
    blocks = Blocks(*plan.tiles, DEPTH, TILES, GROUP, plan.words.simd.lanes)
    return evolve(plan, product=for_any_entries(known), symbolic_blocks=blocks, sources=sources_of(plan, known))
