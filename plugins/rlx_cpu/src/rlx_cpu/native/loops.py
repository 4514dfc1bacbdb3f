"""Loop kernels as native kernels: every op whose meaning is one kernel of the loop language and whose steps have code.

The ops are listed, so that a report names each; element-wise ops of plugins are taken by the row of their base class. An op
whose meaning would be one kernel but which is not listed goes through its decomposition, or whatever rewrite a plugin brings.
"""

from __future__ import annotations

from functools import lru_cache

from rlx_core.codegen import Formula, check_kernel, formula_of, kernel_of
from rlx_core.codegen.formula import Place as Element
from rlx_core.codegen.formula import Read
from rlx_core.codegen.layout import Memory
from rlx_core.codegen.loops import Apply, Bound, Kernel
from rlx_core.ir.graph import Node
from rlx_core.ir.op import Op
from rlx_core.ir.types import TensorType
from rlx_core.ops import (
    activation,
    along_axis,
    conversion,
    counting,
    creation,
    floating,
    fused,
    fused_loop,
    indexing,
    kinds,
    loss,
    movement,
    normalization,
    normalization_backward,
    piecewise,
    rearrange,
    reduction,
    selection,
    softmax,
    structural,
)
from rlx_core.ops.region import ElementwiseRegion
from rlx_core.pipeline.kernels import Condition, condition
from rlx_cpu.native import functions, grid, ir, quotients, scalar, wide_gamma
from rlx_cpu.native.contract import Emitted, Fault, Layout, Place
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
        return f"dtypes that native code has, not {' '.join(sorted(d.name for d in held.difference(scalar.DTYPES)))}"
    for term in formula.terms:
        if isinstance(term, Apply):
            refused = scalar.refusal(term.op, tuple(formula.terms[a].dtype for a in term.args))
            if refused is not None:
                return refused
    return None


def reason_at(node: Node) -> str | None:
    """Why a node is no native loop kernel."""
    return reason_against(node.op, node.operand_types)


is_loop = Condition(
    "a meaning that is one loop kernel of steps with native code", lambda node: reason_at(node) is None, reason_at
)


@condition("operands of a result's type to be read where that result is written")
def reads_in_place(node: Node) -> bool:
    formula = formula_of(node.op, node.operand_types)
    return formula is not None and all(
        is_read_at(formula, position, formula.writes[result].place, value.type)
        for result, type in enumerate(node.types)
        for position, value in enumerate(node.operands)
        if value is not None and value.type.shape == type.shape
    )


def is_read_at(formula: Formula, operand: int, place: Element, type: TensorType) -> bool:
    """Whether every read of an operand is of the element at `place`; axes of size 1 have one place only."""
    reads = [t for t in formula.terms if isinstance(t, Read) and t.operand == operand]
    return all(
        not r.dynamic and all(d == 1 or a == b for d, a, b in zip(type.shape, r.place, place, strict=True))
        for r in reads
    )


def loop_kernel(node: Node, layout: Layout) -> Kernel:
    """The kernel of a node whose operands and results lie as `layout` says."""
    formula = formula_of(node.op, node.operand_types)
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

    title = node.op.name.rpartition(".")[2]
    fault = Fault(f"{title}: index {{}} is outside an axis of {sizes[0]} elements") if made.has_status else None
    return Emitted(
        made.function,
        workspace=made.workspace,
        shared_workspace=made.shared_workspace,
        fault=fault,
        uses_threads=made.uses_threads,
        prologue=made.prologue,
    )


SCALAR_CODE = (scalar, quotients, grid, wide_gamma)
"""The modules that say what single ops become; importing them fills the table."""

ELEMENTWISE = tuple(
    dict.fromkeys(
        (
            *(op for op in scalar.CODE if issubclass(op, kinds.Elementwise) and op not in functions.IDIOMS),
            *(op for op in (*activation.OPS, *piecewise.OPS)),
            conversion.Cast,
            floating.NextOnGrid,
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
    normalization.GroupNorm,
    fused.FusedResidualLN,
    fused.FusedResidualRmsNorm,
    normalization_backward.LayerNormBackwardInput,
    normalization_backward.RmsNormBackwardInput,
    normalization_backward.GroupNormBackwardInput,
)
"""Ops of several loops over a row, the first operand of which a result may take over."""

OTHERS = (
    structural.Sum,
    *reduction.OPS,
    counting.CountNonzero,
    counting.AnyTrue,
    counting.AllTrue,
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
    along_axis.TakeAlongAxis,
    loss.SoftmaxCrossEntropyWithLogits,
    loss.SoftmaxCrossEntropyBackward,
    rearrange.Tril,
    rearrange.Triu,
)

native.register(*ELEMENTWISE, when=is_loop, in_place=(0, 1), name="loop", is_generated=True)(emit_loop)
native.register(selection.Where, when=is_loop, in_place=(1, 2), name="loop_where", is_generated=True)(emit_loop)
native.register(*ROWS, when=is_loop, in_place=(0,), name="loop_rows", is_generated=True)(emit_loop)
native.register(*OTHERS, when=is_loop, name="loop_of", is_generated=True)(emit_loop)
native.register(kinds.Elementwise, when=is_loop, in_place=(0, 1), name="loop_elementwise", is_generated=True)(emit_loop)
native.register(kinds.UnaryFloat, when=is_loop, in_place=(0,), name="loop_unary", is_generated=True)(emit_loop)
native.register(ElementwiseRegion, when=is_loop, in_place=tuple(range(8)), name="loop_region", is_generated=True)(
    emit_loop
)
native.register(
    fused_loop.FusedLoop,
    when=(is_loop, reads_in_place),
    in_place=tuple(range(16)),
    name="loop_fused",
    is_generated=True,
)(emit_loop)
native.register(fused_loop.FusedLoop, when=is_loop, name="loop_fused_apart", is_generated=True)(emit_loop)
