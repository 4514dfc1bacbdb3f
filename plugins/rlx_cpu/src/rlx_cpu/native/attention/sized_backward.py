"""Attention backward whose batch comes with the call: everything else is cut as in code for the size, and agrees bit for bit."""

from __future__ import annotations

from attrs import evolve, field, frozen

from rlx_core.codegen.attention import AttentionProblem
from rlx_core.codegen.attention_scores import PlacedAttention
from rlx_core.codegen.places import Layout
from rlx_core.codegen.sizes import layout_sizes, sized_layout
from rlx_core.ir.dims import Dim, DimBinding
from rlx_core.ir.graph import Node
from rlx_core.ops.attention import AttentionBackward
from rlx_cpu.native.attention.backward_plan import BackwardPlan
from rlx_cpu.native.attention.backward_tiles import Backward
from rlx_cpu.native.attention.plan import DY, K, Q, V
from rlx_cpu.native.contract import Call, Emitted
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.isa import Isa
from rlx_cpu.native.llvm.simd import Simd
from rlx_cpu.native.llvm.sizes import is_known
from rlx_cpu.native.llvm.stored import Stored
from rlx_cpu.native.llvm.words import Words

__all__ = ["AttentionBackwardForm", "sized_attention_backward"]


@frozen(eq=False)
class AttentionBackwardForm:
    """Attention backward for any batch.

    Attributes:
        layout: Where operands and results lie, for all sizes.
        plan: Of the size that came first, with an unknown batch.
        shared_workspace: Bytes of what threads share.
    """

    op: AttentionBackward
    layout: Layout
    plan: BackwardPlan
    isa: Isa
    shared_workspace: Dim = field(init=False)

    @shared_workspace.default
    def _shared_workspace(self) -> Dim:
        return self.plan.shared

    @property
    def key(self) -> str:
        return f"{self.op!r} {self.layout!r} {self.plan.given_segments}"

    def call(self, layout: Layout, sizes: DimBinding) -> Call | None:
        """See `SizedForm.call`."""
        strides = layout_sizes(self.layout, layout)
        known = BackwardPlan.of(ir.Module("form"), self.op, layout, self.isa)
        if strides is None or not known.problem.batch or known.segments != self.plan.given_segments:
            return None
        told = DimBinding({**sizes.sizes, **strides})
        return Call(
            told,
            workspace=known.own,
            shared_workspace=told.bind(self.shared_workspace).__index__(),
            uses_threads=known.uses_threads,
            parts=known.parts,
        )

    def emit(self, module: ir.Module, name: str) -> Emitted:
        """See `SizedForm.emit`."""
        simd = Simd(module, self.isa, self.plan.problem.dtype)
        words = Words(Stored(simd, self.layout.results[0].type.dtype))
        emitted = Backward(evolve(self.plan, words=words), name).emit()
        return evolve(emitted, workspace=0, shared_workspace=0)  # every call says its own


def sized_attention_backward(node: Node, layout: Layout, sizes: DimBinding, isa: Isa) -> AttentionBackwardForm | None:
    """Finds the form of attention backward."""
    op = node.op
    assert isinstance(op, AttentionBackward), "registered for it alone"
    known, lying = BackwardPlan.of(ir.Module("form"), op, layout, isa), sized_layout(node, layout)
    problem = AttentionProblem.of(op, lying)
    is_empty = not (known.problem.batch and problem.queries and problem.keys and problem.width)
    if is_empty or known.bias is not None or not (is_known(problem.queries) and is_known(problem.keys)):
        return None
    placed = PlacedAttention(problem, lying)
    plan = evolve(known, placed=placed, given_segments=known.segments)
    heads = (*(plan.operand(i) for i in (Q, K, V, DY)), *(plan.result(i) for i in (Q, K, V)))
    is_plain = all(is_known(stride) for at in heads for stride in (at.head, at.position, at.feature))
    return AttentionBackwardForm(op, lying, plan, isa) if is_plain else None
