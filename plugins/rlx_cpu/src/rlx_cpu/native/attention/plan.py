"""Shared decisions of attention forward and backward before code generation: element types and layouts."""

from __future__ import annotations

from typing import Self

from rlx_core.codegen.attention import AttentionProblem, HeadStrides
from rlx_core.codegen.attention_scores import PlacedAttention
from rlx_core.codegen.places import Layout
from rlx_core.ops.attention_scores import AttentionOp
from rlx_core.system.records import frozen
from rlx_cpu.native.attention.cut import AttentionCut
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.isa import Isa
from rlx_cpu.native.llvm.simd import Simd
from rlx_cpu.native.llvm.stored import Stored
from rlx_cpu.native.llvm.words import Words

Q, K, V, DY = range(4)
"""Operands. Results come in the same order: y lies like q, and dq, dk and dv like q, k and v."""
KEY_SCALES, VALUE_SCALES = 3, 4
"""Operands after codes of keys and values."""


@frozen(eq=False)
class AttentionPlan:
    """The choices for one op and layout."""

    placed: PlacedAttention
    cut: AttentionCut
    words: Words

    @classmethod
    def of(cls, module: ir.Module, op: AttentionOp, layout: Layout, isa: Isa) -> Self:
        placed = PlacedAttention.of(op, layout)
        words = Words(Stored(Simd(module, isa, placed.dtype), layout.results[0].type.dtype))
        return cls(placed, AttentionCut.of(placed.problem, isa), words)

    @property
    def problem(self) -> AttentionProblem:
        return self.placed.problem

    @property
    def op(self) -> AttentionOp:
        return self.placed.op

    @property
    def layout(self) -> Layout:
        return self.placed.layout

    @property
    def simd(self) -> Simd:
        return self.words.simd

    @property
    def stored(self) -> Stored:
        """The elements of q and the results; of the forward pass without scales also those of k and v."""
        return self.words.stored

    def operand(self, position: int) -> HeadStrides:
        place = self.layout.operands[position]
        assert place is not None, "q, k, v and dy are required"
        return HeadStrides.of(place, self.op.layout, self._heads(position))

    def result(self, position: int) -> HeadStrides:
        return HeadStrides.of(self.layout.results[position], self.op.layout, self._heads(position))

    def _heads(self, position: int) -> int:
        return self.problem.heads if position in (Q, DY) else self.problem.kv_heads
