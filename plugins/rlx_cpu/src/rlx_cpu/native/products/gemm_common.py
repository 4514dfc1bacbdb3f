"""The driver around the microkernels, one library function for products of all sizes whose panels are packed when bound.

If inner loops are short, a specialised driver would dominate the compile time, and models have dozens of products. So the
numbers (sizes, strides, blocking) are a constant table in the module of each product, as are the addresses of its microkernels,
which remain specialised. The result and the order of summation do not depend on the caller.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from typing import Final

from rlx_core.codegen.cuts import numbers, unknown_cut
from rlx_core.codegen.product import Axes, MatrixProduct, MatrixStrides
from rlx_core.codegen.unknown import said, unknown
from rlx_core.ir.dims import DimBinding, Expr
from rlx_core.ir.dtypes import DType
from rlx_core.system.records import frozen
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.build import I64, POINTER, VOID
from rlx_cpu.native.llvm.isa import Isa
from rlx_cpu.native.llvm.sizes import ModuleSizes
from rlx_cpu.native.llvm.words import Words
from rlx_cpu.native.products.gemm_plan import OperandSources, ProductPlan
from rlx_cpu.native.products.gemm_tiles import Blocks
from rlx_cpu.native.products.gemm_work import GemmBuffers, Work
from rlx_cpu.native.products.inner_loops import FunctionPointers

_SIGNATURE: Final = ir.FunctionType(VOID, [POINTER, I64, I64, *[POINTER] * 4, *[POINTER] * 4])
_NAMES: Final = ("buffers", "part", "parts", "a", "panels", "c", "numbers", "both", "high", "wide", "neither")
_NUMBERS: Final = _NAMES.index("numbers")

_SHARES: Final = (unknown("share"), unknown("narrow_share"))


@frozen
class GemmKind:
    """The properties of a product that are not in its table of numbers.

    Attributes:
        lines, result_lines: Number of leading axes around the rows of A, and of C.
        has_runs: Whether terms are grouped in runs.
        vector_nbytes: Bytes of a vector of B in a panel.
    """

    isa: Isa
    triple: str
    factors: DType
    dtype: DType
    lines: int
    result_lines: int
    has_runs: bool
    vector_nbytes: int

    @property
    def name(self) -> str:
        words = (
            self.isa.name, self.factors, self.dtype, self.lines, self.result_lines, self.has_runs, self.vector_nbytes
        )  # fmt: skip
        return f"rlx.product.{sha256(repr(words).encode()).hexdigest()[:12]}"


@frozen(eq=False)
class Common:
    """The library function of a kind, in a separate module, and its arguments in order."""

    name: str
    module: ir.Module
    words: tuple[Expr, ...]


def call_common(
    plan: ProductPlan,
    kind: GemmKind,
    b: ir.IRBuilder,
    addresses: GemmBuffers,
    part: ir.LlvmValue,
    parts: ir.LlvmValue,
    kernels: Mapping[tuple[int, int], ir.Function],
) -> None:
    """Do a part's share of the items of a product by the function of its kind.

    Args:
        kernels: The inner loops by rows and vectors.
    """
    common, tiles = common_of(kind), plan.blocks
    function = b.module.borrowed(common.name, common.module)
    binding = numbers_of(plan)
    words = [binding.bind(word).__index__() for word in common.words]
    table = b.module.data(f"{b.function.name}.numbers", struct.pack(f"<{len(words)}q", *words))
    rows, panels = ((cut.sizes[0], cut.sizes[-1]) for cut in (tiles.rows, tiles.panels))
    places = [kernels[height, width] for height in rows for width in panels]
    assert addresses.panels is not None, "panels are packed"
    b.call(function, [addresses.buffers, part, parts, addresses.a, addresses.panels, addresses.c, table, *places])


def kind_of(plan: ProductPlan) -> GemmKind | None:
    """Return the kind of a product that the library function does; `None` if it needs a specialised driver."""
    p = plan.product
    is_plain = plan.symbolic_blocks is None and not p.batch and plan.panels == "ahead" and plan.rows == "direct"
    if not is_plain or plan.sharers == 0 or plan.parks_sums or plan.has_memory or len(plan.runs) > 1:
        return None
    if plan.words.per_word != 1 or p.c.by_column != p.dtype.itemsize:
        return None
    return GemmKind(
        plan.isa, plan.words.simd.module.triple, p.factors, p.dtype,
        len(p.lines), len(p.result_lines), plan.run is not None, plan.vector_nbytes,
    )  # fmt: skip


@cache
def common_of(kind: GemmKind) -> Common:
    """The function of a kind; its text depends on nothing else."""
    module = ir.Module("product", kind.triple)
    module.sizes = sizes = ModuleSizes(argument=_NUMBERS)
    function = ir.Function(module, _SIGNATURE, kind.name)
    for argument, name in zip(function.args, _NAMES, strict=True):
        argument.named(name)
    buffers, part, parts, a, panels, c, _, *places = function.args
    b = ir.IRBuilder(function.append_basic_block("entry"))
    inside = b.append_basic_block("items")
    plan = plan_of(kind, module)
    addresses = GemmBuffers(buffers, a, a, c, shared=None, thread_memory=None, panels=panels)
    b.position_at_end(inside)
    Work(plan).items(
        b, addresses, part, parts, FunctionPointers(plan, (places[0], places[1], places[2], places[3]), _SHARES)
    )
    b.ret_void()
    b.position_at_end(function.entry)
    b.branch(inside)
    return Common(kind.name, module, tuple(sizes.words))


# ------------------------------------------------------------------------------------------- numbers


def plan_of(kind: GemmKind, module: ir.Module) -> ProductPlan:
    """A product of which no number is known."""
    product = MatrixProduct(
        kind.dtype, kind.factors, (), (), unknown("m"), unknown("n"), unknown("k"),
        MatrixStrides((), unknown("a_by_row"), unknown("a_by_column")), MatrixStrides((), 0, 0),
        MatrixStrides((), unknown("c_by_row"), kind.dtype.itemsize), is_bound=True,
        lines=_axes("line", kind.lines), runs=_axes("run", int(kind.has_runs)),
        result_lines=_axes("result_line", kind.result_lines),
    )  # fmt: skip
    words = Words.of_product(module, kind.isa, kind.factors, kind.dtype)
    rows, panels = unknown_cut("rows", is_in_lines=bool(kind.lines)), unknown_cut("panels")
    blocks = Blocks(rows, panels, unknown("depth"), unknown("row_tiles"), unknown("panel_group"), words.simd.lanes)
    sources = OperandSources("ahead", "direct", owns_rows=False, sharers=unknown("sharers"))
    return ProductPlan(product, words, kind.isa, False, False, blocks, sources)


def numbers_of(plan: ProductPlan) -> DimBinding:
    """Return the numbers of a product's table."""
    p, tiles = plan.product, plan.blocks
    values = {
        "m": p.m, "n": p.n, "k": plan.k, "depth": tiles.depth, "row_tiles": tiles.row_tiles,
        "panel_group": tiles.panel_group, "sharers": plan.sharers,
        "a_by_row": p.a.by_row, "a_by_column": p.a.by_column, "c_by_row": p.c.by_row,
        "share": plan.prefetched(tiles.panels.sizes[0]), "narrow_share": plan.prefetched(tiles.panels.sizes[-1]),
        **numbers("rows", tiles.rows), **numbers("panels", tiles.panels), "rows_lines": tiles.rows.lines,
    }  # fmt: skip
    runs = ((p.k // plan.run, 0),) if plan.run else ()
    for name, axes in (("line", p.lines), ("run", runs), ("result_line", p.result_lines)):
        for i, (size, stride) in enumerate(axes):
            values |= {f"{name}{i}_size": size, f"{name}{i}_stride": stride}
    return said(**values)


def _axes(name: str, count: int) -> Axes:
    return tuple((unknown(f"{name}{i}_size"), unknown(f"{name}{i}_stride")) for i in range(count))
