"""The rows of a GPU's kernel table for products of matrices, with epilogues that are computed on the sums."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from attrs import evolve

from rlx_core.codegen import formula_of
from rlx_core.codegen.layout import whole_kernel
from rlx_core.codegen.loads import OperandLoad, reason_against_load
from rlx_core.codegen.loops import Apply, Const, Kernel, Load, Scalar, Store
from rlx_core.codegen.places import Layout, Place
from rlx_core.emit.emitters import Emitted
from rlx_core.emit.movement import buffers_of
from rlx_core.emit.table import DeviceTable
from rlx_core.ir.dtypes import FLOATS, INTEGERS, DType
from rlx_core.ir.graph import Node
from rlx_core.ir.op import Op
from rlx_core.ir.types import TensorType
from rlx_core.ops.conversion import Cast
from rlx_core.ops.fused_matmul_epilogue import FusedMatMulEpilogue
from rlx_core.ops.fused_matmul_prologue import FusedMatMulPrologue
from rlx_core.ops.linalg import MatMul
from rlx_core.pipeline.kernels import Condition
from rlx_gpu.codegen.indexing import index_refusal
from rlx_gpu.codegen.tiles import Factor, TiledProduct
from rlx_gpu.codegen.units.warpgroup_products import refusal_of_sizes, warpgroup_refusal
from rlx_gpu.language import GpuLanguage

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
        product = product_type(types, op.acc_dtype)
        reason = language.refusal(op.region, (product, *types[2:])) or language.lacking(product.dtype.accumulator)
        return reason or too_large(node)

    def lacking_load(node: Node) -> str | None:
        op, types = node.op, node.operand_types
        assert isinstance(op, FusedMatMulPrologue), "registered for it alone"
        count = 1 + op.load.inputs
        x = types[0]
        assert x is not None, "a product has a first operand"
        refused = reason_against_load(language.scalars, op.load, types[1:count]) or language.lacking(
            x.dtype.accumulator
        )
        if refused is None and op.region is not None:
            refused = language.refusal(op.region, (product_of_load(op, types), *types[count:]))
        return refused or too_large(node)

    has_load = Condition("a load that has code", lambda node: lacking_load(node) is None, lacking_load)
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
        return language.product(
            tiled(layout, followed(op.region, product_type(node.operand_types, op.acc_dtype), layout))
        )

    if also:
        return  # the conditions of other rows are on factors that are both in memory

    @table.emitter(FusedMatMulPrologue, when=has_load, name=f"product_prologue{suffix}")
    def product_prologue(node: Node, layout: Layout) -> Emitted:
        """Return the code of the product whose second factor is computed when a tile of it is brought to shared memory."""
        return language.product(product_with_load(node, layout))


def warpgroup_product_rows(table: DeviceTable, language: GpuLanguage) -> None:
    """Add the rows for products that warpgroups multiply, as `product_wgmma` and `product_epilogue_wgmma`."""

    def lacking(node: Node) -> str | None:
        x, w = node.operand_types[:2]
        assert x is not None and w is not None, "a product has two operands"  # noqa: PT018
        reason = warpgroup_refusal(x.dtype, w.dtype, language.machine)
        if reason is not None or not (x.is_static and w.is_static):
            return reason
        return refusal_of_sizes(product_type((x, w)).static_shape, x.static_shape[-1], language.machine)

    pays = Condition("a product that pays for warpgroups", lambda node: lacking(node) is None, lacking)
    product_rows(table, language, (pays,), "_wgmma")


def product_type(types: Sequence[TensorType | None], acc_dtype: DType | None = None) -> TensorType:
    """The type of the product of the first two operands, with sums of a dtype."""
    x, w = types[:2]
    assert x is not None and w is not None, "a product has two operands"  # noqa: PT018
    return MatMul(acc_dtype=acc_dtype).infer(x, w)


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


def product_of_load(op: FusedMatMulPrologue, types: Sequence[TensorType | None]) -> TensorType:
    """The type of a product with a load, in front of its region."""
    x, *sources = types[: 1 + op.load.inputs]
    w = op.load.infer(*(t for t in sources if t is not None))
    assert x is not None and isinstance(w, TensorType), "a load has one result"  # noqa: PT018
    return x.with_shape((*x.shape[:-1], w.shape[-1]))


def followed(region: Op, product: TensorType, layout: Layout, factors: int = 2) -> tuple[Kernel, int]:
    """Return the kernel of a region whose first input is the sums of the product, and the index of the value that loads them.

    Args:
        factors: Operands of the product, in front of those of the region.
    """
    others = layout.operands[factors:]
    formula = formula_of(region, (product, *(None if m is None else m.type for m in others)))
    assert formula is not None, "the row refuses other regions"
    first = Place.dense(product)
    kernel = whole_kernel(formula, (first, *others), layout.results)
    element = next(i for i, v in enumerate(kernel.values) if isinstance(v, Load) and v.buffer == 0)
    sums: Scalar = Const(product.dtype.accumulator, 0)
    values = tuple(
        sums if i == element else evolve(v, buffer=v.buffer + factors - 1) if isinstance(v, Load) else v
        for i, v in enumerate(kernel.values)
    )
    stores = tuple(evolve(s, buffer=s.buffer + factors - 1) for s in kernel.stores)
    return evolve(kernel, buffers=buffers_of(layout), values=values, stores=stores), element


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
    strides = [0 if d == 1 else s for d, s in zip(memory.type.static_shape[:-2], memory.strides[:-2], strict=True)]
    return (*(0,) * (rank - len(strides)), *strides)


def product_with_load(node: Node, layout: Layout) -> TiledProduct:
    """The problem of a product whose right factor is computed from the operands after the first."""
    op, x = node.op, layout.operands[0]
    assert isinstance(op, FusedMatMulPrologue) and x is not None, "registered for it alone"  # noqa: PT018
    count = 1 + op.load.inputs
    if op.region is None:
        kernel, element = plain(layout)
    else:
        kernel, element = followed(op.region, product_of_load(op, node.operand_types), layout, count)
    load = OperandLoad.of(op.load, layout.operands[1:count]).kernel()
    values = tuple(evolve(v, buffer=v.buffer + 1) if isinstance(v, Load) else v for v in load.values)
    load = evolve(load, buffers=kernel.buffers, values=values)
    largest = max(load.loads, key=lambda v: prod(n for n, s in zip(load.extents, v.strides, strict=True) if s))
    by_row = min((abs(s) for s in largest.strides[:-1] if s), default=0)
    batch = len(kernel.extents) - 2
    lhs = Factor(0, (*batch_strides(x, batch), x.strides[-2], 0), x.strides[-1])
    rhs = Factor(largest.buffer, (*(0,) * (batch + 1), largest.strides[-1]), by_row)
    return TiledProduct(kernel, element, lhs, rhs, x.type.static_shape[-1], load)
