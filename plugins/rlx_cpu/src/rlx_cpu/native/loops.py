"""Loop kernels as native kernels: every op whose meaning is one kernel of the loop language and whose steps have code.

The ops are listed, so that a report names each; element-wise ops of plugins are taken by the row of their base class. An op
whose meaning would be one kernel but which is not listed goes through its decomposition, or whatever rewrite a plugin brings.
"""

from __future__ import annotations

from functools import lru_cache

from llvmlite import ir

from rlx_core.codegen import check_kernel, formula_of, kernel_of
from rlx_core.codegen.layout import Memory
from rlx_core.codegen.loops import Apply, Bound, Kernel
from rlx_core.errors import IndexRangeError
from rlx_core.ir.graph import Node
from rlx_core.ir.op import Op
from rlx_core.ir.types import TensorType
from rlx_core.ops import (
    activation,
    counting,
    creation,
    fused,
    indexing,
    kinds,
    movement,
    normalization,
    normalization_backward,
    piecewise,
    reduction,
    selection,
    softmax,
    structural,
)
from rlx_core.ops.region import ElementwiseRegion
from rlx_core.pipeline.kernels import condition
from rlx_cpu.native import quotients, scalar
from rlx_cpu.native.contract import Emitted, Layout, Place
from rlx_cpu.native.isa import Isa
from rlx_cpu.native.printer import LlvmPrinter
from rlx_cpu.native.table import native

__all__ = ["emit_loop", "loop_kernel"]


@lru_cache(maxsize=4096)
def reason_against(op: Op, types: tuple[TensorType | None, ...]) -> str | None:
    """Why an op on operands of these types is no native loop kernel; `None` if it is one."""
    formula = formula_of(op, types)
    if formula is None:
        return "a meaning that is one loop kernel"
    held = {term.dtype for term in formula.terms}
    if not held.issubset(scalar.DTYPES):
        return f"dtypes of registers, not {' '.join(sorted(d.name for d in held.difference(scalar.DTYPES)))}"
    for term in formula.terms:
        if isinstance(term, Apply):
            refused = scalar.refusal(term.op, tuple(formula.terms[a].dtype for a in term.args))
            if refused is not None:
                return refused
    return None


def operand_types(node: Node) -> tuple[TensorType | None, ...]:
    return tuple(None if v is None else v.type for v in node.operands)


@condition("a meaning that is one loop kernel of steps with native code")
def is_loop(node: Node) -> bool:
    return reason_against(node.op, operand_types(node)) is None


def loop_kernel(node: Node, layout: Layout) -> Kernel:
    """The kernel of a node whose operands and results lie as `layout` says."""
    formula = formula_of(node.op, operand_types(node))
    assert formula is not None, f"{node.op.name} was accepted as a loop kernel"
    operands = [None if p is None else Memory(p.type, p.strides, _number(p)) for p in layout.operands]
    return check_kernel(kernel_of(formula, operands, [Memory(p.type, p.strides) for p in layout.results]))


def _number(place: Place) -> bool | int | float | None:
    number = place.number
    return None if isinstance(number, complex) else number


def emit_loop(module: ir.Module, node: Node, layout: Layout, isa: Isa, name: str) -> Emitted:
    """A kernel generated from the op's own meaning."""
    kernel = loop_kernel(node, layout)
    made = LlvmPrinter(module, isa).print(kernel, name)
    sizes = [v.size for v in kernel.values if isinstance(v, Bound) and v.is_checked]

    def fault(number: int) -> Exception:
        title = node.op.name.rpartition(".")[2]
        return IndexRangeError(f"{title}: index {number} is outside an axis of {sizes[0]} elements")

    return Emitted(
        made.function,
        workspace=made.workspace,
        shared_workspace=made.shared_workspace,
        has_status=made.has_status,
        fault=fault if made.has_status else None,
        uses_threads=made.uses_threads,
    )


SCALAR_CODE = (scalar, quotients)
"""The modules that say what single ops become; importing them fills the table."""

ELEMENTWISE = tuple(
    dict.fromkeys(
        (
            *(op for op in scalar.CODE if issubclass(op, kinds.Elementwise)),
            *(op for op in (*activation.OPS, *piecewise.OPS)),
            structural.Cast,
        )
    )
)
"""Ops of one or two operands that compute element by element."""

ROWS = (
    softmax.Softmax,
    softmax.LogSoftmax,
    normalization.LayerNorm,
    normalization.RmsNorm,
    normalization.LayerNorm2d,
    fused.FusedResidualLN,
    fused.FusedResidualRmsNorm,
    normalization_backward.LayerNormBackwardInput,
    normalization_backward.RmsNormBackwardInput,
)
"""Ops of several loops over a row, the first operand of which a result may take over."""

OTHERS = (
    structural.Sum,
    *reduction.OPS,
    counting.CountNonzero,
    counting.AnyTrue,
    counting.AllTrue,
    counting.ArgMax,
    counting.ArgMin,
    normalization_backward.LayerNormBackwardGamma,
    normalization_backward.RmsNormBackwardGamma,
    normalization_backward.RmsNormBackwardBeta,
    fused.FusedSwiGLU,
    selection.Clip,
    selection.StraightThrough,
    structural.Reshape,
    structural.Expand,
    structural.Transpose,
    movement.Narrow,
    creation.Iota,
    creation.Full,
    indexing.Gather,
)

native.register(*ELEMENTWISE, when=is_loop, in_place=(0, 1), name="loop")(emit_loop)
native.register(selection.Where, when=is_loop, in_place=(1, 2), name="loop_where")(emit_loop)
native.register(*ROWS, when=is_loop, in_place=(0,), name="loop_rows")(emit_loop)
native.register(*OTHERS, when=is_loop, name="loop_of")(emit_loop)
native.register(kinds.Elementwise, when=is_loop, in_place=(0, 1), name="loop_elementwise")(emit_loop)
native.register(kinds.UnaryFloat, when=is_loop, in_place=(0,), name="loop_unary")(emit_loop)
native.register(ElementwiseRegion, when=is_loop, in_place=tuple(range(8)), name="loop_region")(emit_loop)
