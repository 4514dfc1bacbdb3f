"""The rows of a GPU's kernel table for products of matrices, with epilogues that are computed on the sums."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from attrs import evolve

from rlx_core.codegen import formula_of
from rlx_core.codegen.layout import whole_kernel
from rlx_core.codegen.loops import Apply, Const, Kernel, Load, Scalar, Store
from rlx_core.codegen.places import Layout, Place
from rlx_core.emit.emitters import Emitted
from rlx_core.emit.movement import buffers_of
from rlx_core.emit.table import DeviceTable
from rlx_core.ir.dtypes import FLOATS, INTEGERS
from rlx_core.ir.graph import Node
from rlx_core.ir.op import Op
from rlx_core.ir.types import TensorType
from rlx_core.ops.conversion import Cast
from rlx_core.ops.fused_matmul_epilogue import FusedMatMulEpilogue
from rlx_core.ops.linalg import MatMul
from rlx_core.pipeline.select.kernels import Condition
from rlx_gpu.codegen.indexing import index_refusal
from rlx_gpu.codegen.tiles import Factor, TiledProduct
from rlx_gpu.codegen.units.warpgroup_products import refusal_of_sizes, warpgroup_refusal
from rlx_gpu.language import GpuLanguage

__all__ = ["product_rows", "warpgroup_product_rows"]

NUMBERS = " ".join(d.name for d in (*FLOATS, *INTEGERS))


def product_rows(table: DeviceTable, language: GpuLanguage, also: tuple[Condition, ...] = (), suffix: str = "") -> None:
    """Add the rows for products in a language.

    Args:
        also: Additional conditions on steps.
        suffix: Suffix of the rows' names, for a table that has them in two languages.
    """

    def lacking(node: Node) -> str | None:
        return language.lacking(node.type.dtype.accumulator) or too_large(node)

    def too_large(node: Node) -> str | None:
        types = [v.type for v in (*node.present(), *node.results)]
        return index_refusal(language.dialect, *(prod(t.static_shape) for t in types if t.is_static))

    def lacking_after(node: Node) -> str | None:
        op, types = node.op, node.operand_types
        assert isinstance(op, FusedMatMulEpilogue), "registered for it alone"
        product = product_type(types)
        said = language.refusal(op.region, (product, *types[2:])) or language.lacking(product.dtype.accumulator)
        return said or too_large(node)

    has_sums = Condition("sums of a dtype that the device has", lambda node: lacking(node) is None, lacking)
    has_steps = Condition("steps that have code", lambda node: lacking_after(node) is None, lacking_after)

    @table.emitter(MatMul, dtypes=NUMBERS, when=(has_sums, *also), name=f"product{suffix}")
    def product(node: Node, layout: Layout) -> Emitted:
        """Tiles in shared memory, sums in registers."""
        return language.product(tiled(layout, plain(layout)))

    @table.emitter(FusedMatMulEpilogue, when=(has_steps, *also), name=f"product_epilogue{suffix}")
    def product_epilogue(node: Node, layout: Layout) -> Emitted:
        """Return the code of the product with its epilogue, which is computed on the sums before they are stored."""
        op = node.op
        assert isinstance(op, FusedMatMulEpilogue), "registered for it alone"
        return language.product(tiled(layout, followed(op.region, product_type(node.operand_types), layout)))


def warpgroup_product_rows(table: DeviceTable, language: GpuLanguage) -> None:
    """Add the rows for products that warpgroups multiply, as `product_wgmma` and `product_epilogue_wgmma`."""

    def lacking(node: Node) -> str | None:
        x, w = node.operand_types[:2]
        assert x is not None and w is not None, "a product has two operands"  # noqa: PT018
        said = warpgroup_refusal(x.dtype, w.dtype, language.machine)
        if said is not None or not (x.is_static and w.is_static):
            return said
        return refusal_of_sizes(product_type((x, w)).static_shape, x.static_shape[-1], language.machine)

    pays = Condition("a product that pays for warpgroups", lambda node: lacking(node) is None, lacking)
    product_rows(table, language, (pays,), "_wgmma")


def product_type(types: Sequence[TensorType | None]) -> TensorType:
    """The type of the product of the first two operands."""
    x, w = types[:2]
    assert x is not None and w is not None, "a product has two operands"  # noqa: PT018
    return MatMul().infer(x, w)


def plain(layout: Layout) -> tuple[Kernel, int]:
    """Sums stored as they are, or rounded once."""
    (result,) = layout.results
    dtype = result.type.dtype
    values: list[Scalar] = [Const(dtype.accumulator, 0)]
    if dtype is not dtype.accumulator:
        values.append(Apply(dtype, Cast(to=dtype), (0,)))
    shape = result.type.static_shape
    store = Store(len(layout.operands), len(values) - 1, result.strides)
    return Kernel("product", shape, len(shape), buffers_of(layout), tuple(values), (store,)), 0


def followed(region: Op, product: TensorType, layout: Layout) -> tuple[Kernel, int]:
    """Return the kernel of a region whose first input is the sums of the product, and the index of the value that loads them."""
    formula = formula_of(region, (product, *(None if m is None else m.type for m in layout.operands[2:])))
    assert formula is not None, "the row refuses other regions"
    first = Place.dense(product)
    made = whole_kernel(formula, (first, *layout.operands[2:]), layout.results)
    element = next(i for i, v in enumerate(made.values) if isinstance(v, Load) and v.buffer == 0)
    sums: Scalar = Const(product.dtype.accumulator, 0)
    values = tuple(
        sums if i == element else evolve(v, buffer=v.buffer + 1) if isinstance(v, Load) else v
        for i, v in enumerate(made.values)
    )
    stores = tuple(evolve(s, buffer=s.buffer + 1) for s in made.stores)
    return evolve(made, buffers=buffers_of(layout), values=values, stores=stores), element


def tiled(layout: Layout, after: tuple[Kernel, int]) -> TiledProduct:
    """The problem of a step whose first two operands are multiplied."""
    kernel, element = after
    x, w = layout.operands[:2]
    assert x is not None and w is not None, "a product has two operands"  # noqa: PT018
    batch = len(kernel.extents) - 2
    lhs = Factor(0, (*batch_strides(x, batch), x.strides[-2], 0), x.strides[-1])
    rhs = Factor(1, (*batch_strides(w, batch), 0, w.strides[-1]), w.strides[-2])
    return TiledProduct(kernel, element, lhs, rhs, x.type.static_shape[-1])


def batch_strides(memory: Place, rank: int) -> tuple[int, ...]:
    """The strides along the batch axes of the result; 0 where the operand is the same for all."""
    own = [0 if d == 1 else s for d, s in zip(memory.type.static_shape[:-2], memory.strides[:-2], strict=True)]
    return (*(0,) * (rank - len(own)), *own)
