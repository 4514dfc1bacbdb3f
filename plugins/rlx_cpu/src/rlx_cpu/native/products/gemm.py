"""Matrix products as native kernels: any sizes, strides and batch axes, with the epilogue on the sums.

Floats are multiplied by register tiles over panels (`gemm_plan.py` decides which operands are packed, `gemm_driver.py` has
the per-thread code, `microkernel.py` the inner loop). Sums of f16 and bf16 are f32, go through the epilogue and are rounded
once.
"""

from __future__ import annotations

from rlx_core.codegen.epilogue import Pointwise, pointwise
from rlx_core.codegen.places import Layout
from rlx_core.codegen.product import MatrixProduct, MatrixStrides
from rlx_core.ir.dtypes import DType
from rlx_core.ir.graph import Node
from rlx_core.ir.op import Op
from rlx_core.ir.types import TensorType
from rlx_core.ops.fused import FusedMatMulBiasAct
from rlx_core.ops.linalg import MatMul
from rlx_core.pipeline.kernels import condition
from rlx_cpu.native.contract import Emitted
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.isa import Isa
from rlx_cpu.native.llvm.simd import Simd, pointer_at
from rlx_cpu.native.products.epilogue import EpilogueOperand, GemmEpilogue, add
from rlx_cpu.native.products.gemm_driver import GemmEmitter, MakeEpilogue
from rlx_cpu.native.products.gemm_plan import ProductPlan
from rlx_cpu.native.products.gemm_sized import product_of, sized_product
from rlx_cpu.native.products.microkernel import nothing_follows
from rlx_cpu.native.scalars.table import NATIVE
from rlx_cpu.native.table import native, op_of

HALVES_AND_FLOATS = "f16 bf16 f32 f64"


@native.register(
    MatMul, dtypes=HALVES_AND_FLOATS, writes_strides=True, sized=sized_product(lambda node, layout: nothing_follows)
)
def matmul(module: ir.Module, node: Node, layout: Layout, isa: Isa, name: str) -> Emitted:
    """Register tiles over packed panels."""
    return emit_product(module, layout, isa, name, nothing_follows)


def activation_code(op: Op, result: DType) -> Pointwise | None:
    """The code of an activation on the sums behind a result."""
    return pointwise(NATIVE, op, (TensorType(result.accumulator, (1,)),))


@condition("an activation whose steps have vector code, or none", asks_sizes=False)
def has_vector_activation(node: Node) -> bool:
    op = op_of(node, FusedMatMulBiasAct)
    return op.activation is None or activation_code(op.activation, node.type.dtype) is not None


def bias_and_activation(node: Node, layout: Layout) -> MakeEpilogue:
    """Bias and activation on the sums."""
    op, (bias_place,) = op_of(node, FusedMatMulBiasAct), layout.required(2)
    by_column = MatrixStrides.of_row(bias_place).by_column

    def epilogue(simd: Simd, b: ir.IRBuilder, buffers: ir.LlvmValue) -> GemmEpilogue:
        bias = EpilogueOperand(pointer_at(b, buffers, 2), by_column, bias_place.type.dtype)
        stages = GemmEpilogue((add(simd, bias),))
        if op.activation is None:
            return stages
        function = activation_code(op.activation, simd.dtype)
        assert function is not None, "the row refuses other activations"
        return stages.then(lambda b, x, _: function.apply(b, NATIVE, x)[0], is_long=function.is_long)

    return epilogue


@native.register(
    FusedMatMulBiasAct,
    dtypes=HALVES_AND_FLOATS,
    when=has_vector_activation,
    writes_strides=True,
    sized=sized_product(bias_and_activation),
)
def matmul_bias_activation(module: ir.Module, node: Node, layout: Layout, isa: Isa, name: str) -> Emitted:
    """Register tiles over packed panels, bias and activation on the sums."""
    return emit_product(module, layout, isa, name, bias_and_activation(node, layout))


def emit_product(
    module: ir.Module,
    layout: Layout,
    isa: Isa,
    name: str,
    epilogue: MakeEpilogue,
    product: MatrixProduct | None = None,
    *,
    keeps_result: bool = False,
) -> Emitted:
    """The product of the first operand and the second, or a load of the next ones, into the first result, then `epilogue`.

    Args:
        product: By default the product of the first two operands as matrices.
        keeps_result: Whether an operand that the epilogue reads may lie in the result's bytes.
    """
    plan = ProductPlan.of(module, isa, product or product_of(layout), layout, keeps_result=keeps_result)
    return GemmEmitter(plan, layout, name, epilogue).emit()
