"""Attention backward with batch, queries and keys as run-time arguments.

Tiles have every height up to the maximum, and the row stride of the weights is a run-time argument. The order of summation is
that of code for the known size if both have tiles of the same kind, which is so from two vectors of keys on.
"""

from __future__ import annotations

from functools import cached_property

from attrs import evolve

from rlx_core.codegen.attention import AttentionProblem
from rlx_core.codegen.attention_scores import PlacedAttention
from rlx_core.codegen.places import Layout
from rlx_core.codegen.sizes import layout_sizes, sized_layout
from rlx_core.codegen.unknown import said
from rlx_core.ir.dims import Dim, DimBinding
from rlx_core.ir.graph import Node
from rlx_core.ops.attention import AttentionBackward
from rlx_core.system.records import frozen
from rlx_cpu.native.attention.backward_plan import BackwardCut, BackwardPlan, products_of
from rlx_cpu.native.attention.backward_tiles import Backward
from rlx_cpu.native.attention.cut import AttentionCut
from rlx_cpu.native.attention.plan import DY, K, Q, V
from rlx_cpu.native.attention.sized import LARGEST
from rlx_cpu.native.contract import MOST_PARTS, Call, Emitted
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.isa import Isa
from rlx_cpu.native.llvm.simd import Simd
from rlx_cpu.native.llvm.sizes import is_known
from rlx_cpu.native.llvm.stored import Stored
from rlx_cpu.native.llvm.words import Words

__all__ = ["AttentionBackwardForm", "sized_attention_backward"]


@frozen(eq=False)
class AttentionBackwardForm:
    """Attention backward for all sizes.

    Attributes:
        layout: Layout of operands and results, for all sizes.
        cut, partition: Partitions with unknown numbers.
    """

    op: AttentionBackward
    layout: Layout
    cut: AttentionCut
    partition: BackwardCut
    isa: Isa

    @cached_property
    def nbytes(self) -> tuple[Dim, Dim]:
        """Bytes of a thread's memory, and of memory shared by threads; read only if rows are known."""
        plan = self._plan(ir.Module("form"))
        return plan.own, plan.shared

    @property
    def key(self) -> str:
        return f"{self.op!r} {self.layout!r} {self.cut!r} {self.partition!r}"

    def call(self, layout: Layout, sizes: DimBinding) -> Call | None:
        """See `SizedForm.call`."""
        strides, known = layout_sizes(self.layout, layout), AttentionProblem.of(self.op, layout)
        if strides is None or not known.keys or max(known.queries, known.keys) > LARGEST:
            return None
        cut, numbers = self.cut.numbers(known, self.isa)
        partition = BackwardCut.of(known, cut)
        if (partition.segments == 1) != (self.partition.segments == 1):
            return None
        call_sizes = DimBinding({**sizes.sizes, **strides, **said(**numbers, **partition.numbers).sizes})
        thread_nbytes, shared = (call_sizes.bind(each).__index__() for each in self.nbytes)
        return Call(
            call_sizes,
            workspace=thread_nbytes,
            shared_workspace=shared,
            uses_threads=products_of(known) >= self.isa.machine.serial_products,
            parts=max(1, min(MOST_PARTS, known.batch * known.kv_heads * partition.segments)),
        )

    def emit(self, module: ir.Module, name: str) -> Emitted:
        """See `SizedForm.emit`."""
        emitted = Backward(self._plan(module), name).emit()
        return evolve(emitted, workspace=0, shared_workspace=0)  # passed in every call

    def _plan(self, module: ir.Module) -> BackwardPlan:
        words = Words(Stored(Simd(module, self.isa, self.cut.problem.dtype), self.layout.results[0].type.dtype))
        return BackwardPlan(PlacedAttention(self.cut.problem, self.layout), self.cut, words, self.partition)

    @property
    def has_known_rows(self) -> bool:
        """Whether the strides of the positions and of the features of a head are known."""
        plan = self._plan(ir.Module("form"))
        heads = (*(plan.operand(i) for i in (Q, K, V, DY)), *(plan.result(i) for i in (Q, K, V)))
        return all(is_known(s) for head in heads for s in (head.position, head.feature))


def sized_attention_backward(node: Node, layout: Layout, sizes: DimBinding, isa: Isa) -> AttentionBackwardForm | None:
    """Finds the form of attention backward."""
    op, lying = node.op, sized_layout(node, layout)
    assert isinstance(op, AttentionBackward), "registered for it alone"
    problem, known = AttentionProblem.of(op, lying), AttentionProblem.of(op, layout)
    if not (problem.width and problem.features):
        return None
    cut = AttentionCut.for_all(problem, isa)
    has_segments = BackwardCut.of(known, cut.numbers(known, isa)[0]).segments != 1
    form = AttentionBackwardForm(op, lying, cut, BackwardCut.for_all(cut, has_segments=has_segments), isa)
    return form if form.has_known_rows else None
