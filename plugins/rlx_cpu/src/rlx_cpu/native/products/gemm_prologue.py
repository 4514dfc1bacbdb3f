"""Products whose right operand is computed by a load, as native kernels: panels are computed by each thread as it needs them."""

from __future__ import annotations

from functools import lru_cache

from rlx_core.codegen.epilogue import reason_against
from rlx_core.codegen.loads import OperandLoad, reason_against_load
from rlx_core.codegen.places import Layout
from rlx_core.codegen.product import MatrixProduct
from rlx_core.ir.dims import DimBinding
from rlx_core.ir.graph import Node
from rlx_core.ir.types import TensorType
from rlx_core.ops.fused_matmul_prologue import FusedMatMulPrologue
from rlx_core.pipeline.kernels import Condition
from rlx_cpu.native.contract import Emitted
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.isa import Isa
from rlx_cpu.native.products.gemm import emit_product
from rlx_cpu.native.products.gemm_driver import MakeEpilogue
from rlx_cpu.native.products.gemm_epilogue import epilogue_of, tensors_of
from rlx_cpu.native.products.gemm_sized import Lying, MatrixForm, form_of
from rlx_cpu.native.products.microkernel import nothing_follows
from rlx_cpu.native.scalars.table import NATIVE
from rlx_cpu.native.table import native, op_of

DTYPES = ("f32", "f64")
"""Dtypes of the product: loads compute their words."""


@lru_cache(maxsize=256)
def reason_of(op: FusedMatMulPrologue, operands: tuple[TensorType, ...]) -> str | None:
    """Return why operands of these types have no native product; `None` if they have one."""
    x, count = operands[0], 1 + op.load.inputs
    if x.dtype.name not in DTYPES:
        return f"a product of {' or '.join(DTYPES)}, not {x.dtype}"
    refused = reason_against_load(NATIVE, op.load, operands[1:count])
    if refused is not None or op.region is None:
        return refused
    return reason_against(NATIVE, op.region, (x, x, *operands[count:]))


def reason_at(node: Node) -> str | None:
    """Return why a node has no native product; `None` if it has one."""
    return reason_of(op_of(node, FusedMatMulPrologue), tuple(v.type for v in node.present()))


has_load = Condition(
    "a load whose steps have vector code",
    lambda node: reason_at(node) is None,
    reason_at,
    is_settled=lambda node: all(v.type.is_static for v in list(node.present())[1 : 1 + loads_of(node)]),
)


def loads_of(node: Node) -> int:
    """Return the number of arrays that the load of a node reads."""
    return op_of(node, FusedMatMulPrologue).load.inputs


def product_at(node: Node, layout: Layout) -> MatrixProduct:
    """Return the product of a node's first operand and its load."""
    load, (x,) = op_of(node, FusedMatMulPrologue).load, layout.required(0)
    return MatrixProduct.of_load(x, OperandLoad.of(load, layout.operands[1 : 1 + load.inputs]), layout.results[0])


def region_after(node: Node, layout: Layout, *, prefetched_nbytes: int | None = None) -> MakeEpilogue:
    """The region of a product with a load on its sums; arguments as for `epilogue_of`."""
    op = op_of(node, FusedMatMulPrologue)
    if op.region is None:
        return nothing_follows
    rows, count = product_at(node, layout).m, 1 + op.load.inputs
    return epilogue_of(op.region, node, layout, rows, factors=count, prefetched_nbytes=prefetched_nbytes)


def sized(node: Node, layout: Layout, sizes: DimBinding, isa: Isa) -> MatrixForm | None:
    """See `EmitSized`."""
    op, count, known = op_of(node, FusedMatMulPrologue), 1 + loads_of(node), product_at(node, layout)
    if known.entries != 1 or not all(v.type.is_static for v in list(node.present())[1:count]):
        return None
    load = known.load
    assert load is not None, "the right operand is a load"

    def lying(layout: Layout) -> tuple[Lying, ...] | None:
        return () if op.region is None else tensors_of(layout, count)

    def of_size(layout: Layout) -> MatrixProduct:
        (x,) = layout.required(0)
        return MatrixProduct.of_load(x, load, layout.results[0])

    keeps_result = len(layout.operands) > count
    return form_of(node, layout, isa, region_after, lying, of_size, keeps_result=keeps_result)


@native.register(FusedMatMulPrologue, when=has_load, writes_strides=True, sized=sized)
def matmul_prologue(module: ir.Module, node: Node, layout: Layout, isa: Isa, name: str) -> Emitted:
    """Register tiles over panels that each thread computes, the region on the sums."""
    epilogue = region_after(node, layout, prefetched_nbytes=isa.machine.l2_nbytes)
    keeps_result = op_of(node, FusedMatMulPrologue).region is not None
    return emit_product(module, layout, isa, name, epilogue, product_at(node, layout), keeps_result=keeps_result)
