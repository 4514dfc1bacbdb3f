"""Epilogues of cuBLASLt for a fused product: residual, bias, activation, and the operands of their gradients."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import evolve, frozen

from rlx_core.ir.dtypes import f32, f64
from rlx_core.ir.graph import Node
from rlx_core.ir.op import Op
from rlx_core.ir.types import TensorType
from rlx_core.ops.activation import gelu_approx, relu
from rlx_core.ops.arithmetic import add
from rlx_core.ops.fused_loop import FusedLoop
from rlx_core.ops.fused_matmul_epilogue import FusedMatMulEpilogue
from rlx_core.ops.region import ElementwiseRegion, reads_as
from rlx_core.passes.fuse.product_sums import FIRST, SECOND, epilogue_with_sums, product_with_sums
from rlx_cuda import cublaslt
from rlx_cuda.gelu_slopes import slope_of

ACTIVATIONS: dict[Op, int] = {relu.op(): cublaslt.EPILOGUE_RELU, gelu_approx.op(): cublaslt.EPILOGUE_GELU}
"""Activations that the library computes; its GELU is the tanh approximation."""

SUMS: dict[Op, int] = {
    product_with_sums(FIRST): cublaslt.EPILOGUE_BGRADB,
    product_with_sums(SECOND): cublaslt.EPILOGUE_BGRADA,
}
"""Epilogues that also sum one factor; the library's B is the first factor (`product_layouts`)."""

AUX_MULTIPLE = 8
"""The column size of the auxiliary matrix is a multiple of this number of elements."""

OFFERED = "a bias of the last axis, an array to add, relu or gelu_approx, or a slope of gelu_approx to multiply with"

OFFERED_SUMS = (
    "two matrices and sums of one over what is contracted, or a product with a slope of gelu_approx and its rows' sums"
)


@frozen
class Epilogue:
    """An epilogue of the library: the computation that follows the accumulation of a product.

    Attributes:
        number: The library's number of the epilogue.
        bias, added, aux: Indices into the step's operands followed by its results: a bias or its gradient, the array added to the
            sums, and the argument of an activation, which is stored or loaded.
        result: Index of the result, counted in the same way.
    """

    number: int = cublaslt.EPILOGUE_DEFAULT
    bias: int | None = None
    added: int | None = None
    aux: int | None = None
    result: int = 0


def epilogue_of(node: Node) -> Epilogue | str:
    """Return the epilogue of a step's product, or why the library cannot compute it, as the continuation of "needs …"."""
    if isinstance(node.op, FusedLoop):
        return _summed(node)
    if isinstance(node.op, FusedMatMulEpilogue):
        return _followed(node, node.op.region)
    return Epilogue(result=len(node.operands))


def _followed(node: Node, region: ElementwiseRegion) -> Epilogue | str:
    """Return the epilogue of a step that consists of a product and an element-wise region."""
    operands = len(node.operands)
    sloped = slope_of(node, region)
    epilogue = _chained(region, node.operand_types) if sloped is None else Epilogue(cublaslt.EPILOGUE_DGELU, aux=sloped)
    if isinstance(epilogue, str):
        return epilogue
    if node.types[0].dtype is f64 and epilogue.number != cublaslt.EPILOGUE_DEFAULT:
        return "a dtype besides f64 for what follows"
    if len(region.results) == 2:  # one of them is the activation's argument, saved for the gradient
        saved = region.results.index(len(region.steps) - 2)
        epilogue = evolve(epilogue, aux=operands + saved, result=operands + 1 - saved)
    else:
        epilogue = evolve(epilogue, result=operands)
    if epilogue.aux is not None and region.shape[-1] % AUX_MULTIPLE:
        return (
            f"a last axis that is a multiple of {AUX_MULTIPLE} for an argument of gelu_approx, not {region.shape[-1]}"
        )
    return epilogue


def refusal(node: Node) -> str | None:
    """Return why the library does not compute a step, as the continuation of "needs …"; `None` if it does."""
    epilogue = epilogue_of(node)
    if isinstance(epilogue, str):
        return epilogue
    product = node.op.steps[0].op if isinstance(node.op, FusedLoop) else node.op
    if isinstance(product, FusedMatMulEpilogue) and product.acc_dtype is not None:
        return "sums of the factors' dtype"
    factor, result = node.operand_types[0], node.types[0].dtype
    assert factor is not None, "a product has two operands"
    if result is not factor.dtype and result is not f32:
        return f"results of {factor.dtype} or f32, not {result}"
    return "something to add up" if factor.shape[-1] == 0 else None


def _summed(node: Node) -> Epilogue | str:
    """Return the epilogue of a product that also sums one factor, or that multiplies by a slope and sums the result's rows."""
    assert isinstance(node.op, FusedLoop), "asked of nothing else"
    if node.types[0].dtype is f64:
        return "a dtype besides f64 for sums"
    first, *second = (0 if type is None else type.rank for type in node.operand_types)
    if node.op in SUMS and [first, *second] == [2, 2]:
        return Epilogue(SUMS[node.op], bias=3, result=2)
    product = node.op.steps[0].op
    if isinstance(product, FusedMatMulEpilogue) and node.op == epilogue_with_sums(product) and second[0] == 2:
        epilogue = _followed(node, product.region)
        if isinstance(epilogue, Epilogue) and epilogue.number == cublaslt.EPILOGUE_DGELU:
            return evolve(epilogue, number=cublaslt.EPILOGUE_DGELU_BGRAD, bias=epilogue.result + 1)
    return OFFERED_SUMS


def _chained(region: ElementwiseRegion, types: Sequence[TensorType | None]) -> Epilogue | str:
    """Return the epilogue of a linear chain of steps: additions, then an activation."""
    epilogue, value, activation = Epilogue(), 0, 0
    for place, step in enumerate(region.steps):
        if value not in step.reads:
            return f"steps that follow one another ({OFFERED})"
        if step.op in ACTIVATIONS and not activation:
            activation = ACTIVATIONS[step.op]
        elif step.op == add.op() and not activation and len(others := [r for r in step.reads if r != value]) == 1:
            extended = _with_addend(region, others[0], types, epilogue)
            if extended is None:
                return OFFERED
            epilogue = extended
        else:
            return f"{OFFERED}, not {step.op.name} there"
        value = len(region.access) + place
    last = len(region.steps) - 1
    keeps = len(region.results) == 2 and sorted(region.results) == [last - 1, last]
    if not (region.results == (last,) or (keeps and activation == cublaslt.EPILOGUE_GELU and epilogue.added is None)):
        return "one result, and besides it only the argument of gelu_approx"
    bias = cublaslt.EPILOGUE_BIAS if epilogue.bias is not None else 0
    auxiliary = cublaslt.EPILOGUE_AUX if keeps else 0
    return evolve(epilogue, number=bias | activation | auxiliary or cublaslt.EPILOGUE_DEFAULT)


def _with_addend(
    region: ElementwiseRegion, number: int, types: Sequence[TensorType | None], epilogue: Epilogue
) -> Epilogue | None:
    """Return the epilogue with an input of the region as another addend: a bias, or an array of the result's size."""
    if not 0 < number < len(region.access):
        return None
    place = number + 1  # the region's first input, the product, is the step's first two operands
    access, type, product = region.access[number], types[place], types[0]
    if type is None or product is None or type.dtype is not product.dtype:
        return None
    if epilogue.added is None and type.shape == region.shape and reads_as(access, type.shape, region.shape):
        return evolve(epilogue, added=place)
    is_row = access[-1] == 1 and not any(access[:-1])
    return evolve(epilogue, bias=place) if epilogue.bias is None and is_row else None
