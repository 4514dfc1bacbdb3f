"""Matrix products as native kernels: any sizes, strides and batch axes, with the epilogue on the sums.

Floats are multiplied by register tiles over panels (`gemm_plan.py` decides which operands are packed, `gemm_driver.py` has
the per-thread code, `microkernel.py` the inner loop). Sums of f16 and bf16 are f32, go through the epilogue and are rounded
once.
"""

from __future__ import annotations

from rlx_core.codegen.epilogue import Pointwise, pointwise
from rlx_core.codegen.loads import OperandLoad
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
from rlx_cpu.native.llvm.words import Words
from rlx_cpu.native.products.epilogue import EpilogueOperand, GemmEpilogue, activation, add
from rlx_cpu.native.products.gemm_driver import GemmEmitter, MakeEpilogue
from rlx_cpu.native.products.gemm_plan import ProductPlan
from rlx_cpu.native.products.gemm_sized import product_of, sized_product
from rlx_cpu.native.products.microkernel import nothing_follows
from rlx_cpu.native.products.panel_load import PanelLoad
from rlx_cpu.native.scalars.table import NATIVE
from rlx_cpu.native.table import native

HALVES_AND_FLOATS = "f16 bf16 f32 f64"


def sums_dtype(result: DType) -> DType:
    """The dtype of the sums behind a result."""
    return result.accumulator


@native.register(
    MatMul, dtypes=HALVES_AND_FLOATS, writes_strides=True, sized=sized_product(lambda node, layout: nothing_follows)
)
def matmul(module: ir.Module, node: Node, layout: Layout, isa: Isa, name: str) -> Emitted:
    """Register tiles over packed panels."""
    return emit_product(module, layout, isa, name, nothing_follows)


def activation_code(op: Op, result: DType) -> Pointwise | None:
    """The code of an activation on the sums behind a result."""
    return pointwise(NATIVE, op, (TensorType(sums_dtype(result), (1,)),))


@condition("an activation whose steps have vector code, or none", asks_sizes=False)
def has_vector_activation(node: Node) -> bool:
    assert isinstance(node.op, FusedMatMulBiasAct), "registered for it alone"
    return node.op.activation is None or activation_code(node.op.activation, node.type.dtype) is not None


def bias_and_activation(node: Node, layout: Layout) -> MakeEpilogue:
    """Bias and activation on the sums."""
    op = node.op
    (bias_place,) = layout.required(2)
    assert isinstance(op, FusedMatMulBiasAct), "registered for it alone"
    by_column = MatrixStrides.of_row(bias_place).by_column

    def epilogue(simd: Simd, b: ir.IRBuilder, buffers: ir.LlvmValue) -> GemmEpilogue:
        bias = EpilogueOperand(pointer_at(b, buffers, 2), by_column, bias_place.type.dtype)
        stages = GemmEpilogue((add(simd, bias),))
        if op.activation is None:
            return stages
        function = activation_code(op.activation, simd.dtype)
        assert function is not None, "the row refuses other activations"
        return stages.then(activation(lambda b, x: function.apply(b, NATIVE, x)[0]), is_long=function.is_long)

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
    *,
    axes: int | None = None,
    keeps_result: bool = False,
) -> Emitted:
    """The product of the first two operands into the first result, then `epilogue`.

    Args:
        axes: Number of summed axes of the first operand, if it is no matrix.
        keeps_result: Whether an operand that the epilogue reads may lie in the result's bytes.
    """
    a, b = layout.required(0, 1)
    product = product_of(layout) if axes is None else MatrixProduct.of_axes(a, b, layout.results[0], axes)
    words = Words.of(module, isa, a.type.dtype, sums_dtype(product.dtype))
    plan = ProductPlan(product, words, isa, b.is_bound, b.is_held, keeps_result)
    return GemmEmitter(plan, layout, name, epilogue).emit()


def emit_loaded_product(
    module: ir.Module,
    layout: Layout,
    isa: Isa,
    name: str,
    epilogue: MakeEpilogue,
    load: OperandLoad,
    *,
    keeps_result: bool = False,
) -> Emitted:
    """The product of the first operand and a load of the next ones into the first result, then `epilogue`."""
    (a,) = layout.required(0)
    product = MatrixProduct.of_load(a, load, layout.results[0])
    words = Words.of(module, isa, a.type.dtype, sums_dtype(product.dtype))
    plan = ProductPlan(product, words, isa, is_bound=False, is_held=False, keeps_result=keeps_result)
    buffers = len(layout.operands) + len(layout.results)
    is_empty = not (product.m and product.n and product.entries and product.k)
    panels = None if is_empty else PanelLoad.of(plan, module, name, buffers)
    return GemmEmitter(plan, layout, name, epilogue, panels).emit()
