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
from rlx_cpu.native.products.gemm import emit_loaded_product
from rlx_cpu.native.products.gemm_driver import MakeEpilogue
from rlx_cpu.native.products.gemm_epilogue import epilogue_of, tensors_of
from rlx_cpu.native.products.gemm_sized import Lying, ProductForm, sized_load
from rlx_cpu.native.products.microkernel import nothing_follows
from rlx_cpu.native.scalars.table import NATIVE
from rlx_cpu.native.table import native

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
    assert isinstance(node.op, FusedMatMulPrologue), "registered for it alone"
    return reason_of(node.op, tuple(v.type for v in node.present()))


has_load = Condition(
    "a load whose steps have vector code",
    lambda node: reason_at(node) is None,
    reason_at,
    is_settled=lambda node: all(v.type.is_static for v in list(node.present())[1 : 1 + loads_of(node)]),
)


def loads_of(node: Node) -> int:
    """Return the number of arrays that the load of a node reads."""
    assert isinstance(node.op, FusedMatMulPrologue), "registered for it alone"
    return node.op.load.inputs


def load_at(node: Node, layout: Layout) -> OperandLoad:
    """Return the load of a node's weight."""
    assert isinstance(node.op, FusedMatMulPrologue), "registered for it alone"
    return OperandLoad.of(node.op.load, layout.operands[1 : 1 + node.op.load.inputs])


def region_after(node: Node, layout: Layout, *, prefetched_nbytes: int | None = None) -> MakeEpilogue:
    """The region of a product with a load on its sums; arguments as for `epilogue_of`."""
    op, (x,) = node.op, layout.required(0)
    assert isinstance(op, FusedMatMulPrologue), "registered for it alone"
    if op.region is None:
        return nothing_follows
    rows = MatrixProduct.of_load(x, load_at(node, layout), layout.results[0]).m
    count = 1 + op.load.inputs
    return epilogue_of(op.region, node, layout, rows, factors=count, prefetched_nbytes=prefetched_nbytes)


def sized(node: Node, layout: Layout, sizes: DimBinding, isa: Isa) -> ProductForm | None:
    """See `EmitSized`."""
    op, count = node.op, 1 + loads_of(node)
    assert isinstance(op, FusedMatMulPrologue), "registered for it alone"
    if not all(v.type.is_static for v in list(node.present())[1:count]):
        return None

    def lying(layout: Layout) -> tuple[Lying, ...] | None:
        return () if op.region is None else tensors_of(layout, count)

    return sized_load(node, layout, isa, load_at(node, layout), count, region_after, lying)


@native.register(FusedMatMulPrologue, when=has_load, writes_strides=True, sized=sized)
def matmul_prologue(module: ir.Module, node: Node, layout: Layout, isa: Isa, name: str) -> Emitted:
    """Register tiles over panels that each thread computes, the region on the sums."""
    op = node.op
    assert isinstance(op, FusedMatMulPrologue), "registered for it alone"
    epilogue = region_after(node, layout, prefetched_nbytes=isa.machine.l2_nbytes)
    load = load_at(node, layout)
    return emit_loaded_product(module, layout, isa, name, epilogue, load, keeps_result=op.region is not None)
