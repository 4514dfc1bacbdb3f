"""Products whose right operand is computed by a load, as native kernels: panels are computed by each thread as it needs them."""

from __future__ import annotations

from functools import lru_cache

from rlx_core.codegen.epilogue import reason_against
from rlx_core.codegen.loads import OperandLoad, reason_against_load
from rlx_core.codegen.places import Layout
from rlx_core.codegen.product import MatrixProduct
from rlx_core.ir.graph import Node
from rlx_core.ir.types import TensorType
from rlx_core.ops.fused_matmul_prologue import FusedMatMulPrologue
from rlx_core.pipeline.kernels import Condition
from rlx_cpu.native.contract import Emitted
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.isa import Isa
from rlx_cpu.native.products.gemm import emit_loaded_product
from rlx_cpu.native.products.gemm_driver import MakeEpilogue
from rlx_cpu.native.products.gemm_epilogue import epilogue_of
from rlx_cpu.native.products.microkernel import nothing_follows
from rlx_cpu.native.scalars.table import NATIVE
from rlx_cpu.native.table import native

__all__ = ["matmul_prologue"]

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


has_load = Condition("a load whose steps have vector code", lambda node: reason_at(node) is None, reason_at)


@native.register(FusedMatMulPrologue, when=has_load, writes_strides=True)
def matmul_prologue(module: ir.Module, node: Node, layout: Layout, isa: Isa, name: str) -> Emitted:
    """Register tiles over panels that each thread computes, the region on the sums."""
    op = node.op
    assert isinstance(op, FusedMatMulPrologue), "registered for it alone"
    count = 1 + op.load.inputs
    load = OperandLoad.of(op.load, layout.operands[1:count])
    x = layout.operands[0]
    assert x is not None, "all operands are required"
    epilogue: MakeEpilogue = nothing_follows
    if op.region is not None:
        rows, prefetched = MatrixProduct.of_load(x, load, layout.results[0]).m, isa.machine.l2_nbytes
        epilogue = epilogue_of(op.region, node, layout, rows, factors=count, prefetched_nbytes=prefetched)
    return emit_loaded_product(module, layout, isa, name, epilogue, load, keeps_result=op.region is not None)
