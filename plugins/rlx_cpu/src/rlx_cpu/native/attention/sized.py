"""Attention whose batch, queries and keys come with the call.

Tiles come in every height up to one, as for products, and keys in blocks whose width does not depend on how many there are, so
that sums are rescaled as often as in code for the size, or more often: results agree with it to a few roundings.
"""

from __future__ import annotations

from functools import cached_property
from typing import Final

from attrs import evolve

from rlx_core.codegen.attention import AttentionProblem
from rlx_core.codegen.attention_scores import PlacedAttention
from rlx_core.codegen.places import Layout
from rlx_core.codegen.sizes import layout_sizes, sized_layout
from rlx_core.codegen.unknown import said
from rlx_core.ir.dims import Dim, DimBinding
from rlx_core.ir.graph import Node
from rlx_core.ops.attention import Attention
from rlx_core.system.records import frozen
from rlx_cpu.native.attention.cut import AttentionCut
from rlx_cpu.native.attention.forward_plan import ForwardPlan
from rlx_cpu.native.attention.forward_tiles import Forward
from rlx_cpu.native.attention.plan import K, Q, V
from rlx_cpu.native.contract import Call, Emitted
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.isa import Isa
from rlx_cpu.native.llvm.simd import Simd
from rlx_cpu.native.llvm.sizes import is_known
from rlx_cpu.native.llvm.stored import Stored
from rlx_cpu.native.llvm.words import Words

__all__ = ["AttentionForm", "sized_attention"]

LARGEST: Final = 1 << 30
"""Positions that are counted with half the bits of an address."""


@frozen(eq=False)
class AttentionForm:
    """Attention for all sizes.

    Attributes:
        layout: Layout of operands and results, for all sizes.
    """

    op: Attention
    layout: Layout
    cut: AttentionCut
    isa: Isa

    @cached_property
    def workspace(self) -> Dim:
        """Bytes of a thread's memory; read only if rows are known."""
        return self._plan(ir.Module("form")).workspace

    @property
    def key(self) -> str:
        return f"{self.op!r} {self.layout!r} {self.cut!r}"

    def call(self, layout: Layout, sizes: DimBinding) -> Call | None:
        """See `SizedForm.call`."""
        strides = layout_sizes(self.layout, layout)
        known = AttentionProblem.of(self.op, layout)
        if strides is None or not known.keys or max(known.queries, known.keys) > LARGEST:
            return None
        cut, numbers = self.cut.numbers(known, self.isa)
        call_sizes = DimBinding({**sizes.sizes, **strides, **said(**numbers).sizes})
        products = known.batch * known.heads * known.queries * known.keys * (known.features + known.width)
        return Call(
            call_sizes,
            workspace=call_sizes.bind(self.workspace).__index__(),
            uses_threads=products >= self.isa.machine.serial_products,
            parts=cut.parts,
        )

    def emit(self, module: ir.Module, name: str) -> Emitted:
        """See `SizedForm.emit`."""
        return evolve(Forward(self._plan(module), name).emit(), workspace=0)  # passed in every call

    def _plan(self, module: ir.Module) -> ForwardPlan:
        words = Words(Stored(Simd(module, self.isa, self.cut.problem.dtype), self.layout.results[0].type.dtype))
        return ForwardPlan(PlacedAttention(self.cut.problem, self.layout), self.cut, words)

    @property
    def has_known_rows(self) -> bool:
        """Whether the strides of the positions and of the features of a head are known."""
        plan = self._plan(ir.Module("form"))
        heads = (*(plan.operand(i) for i in (Q, K, V)), plan.result(Q))
        return all(is_known(s) for head in heads for s in (head.position, head.feature))


def sized_attention(node: Node, layout: Layout, sizes: DimBinding, isa: Isa) -> AttentionForm | None:
    """Finds the form of attention."""
    assert isinstance(node.op, Attention), "registered for it alone"
    lying = sized_layout(node, layout)
    problem = AttentionProblem.of(node.op, lying)
    if problem.width == 0:
        return None
    form = AttentionForm(node.op, lying, AttentionCut.for_all(problem, isa), isa)
    return form if form.has_known_rows else None
