"""What attention forward and backward decide alike before any code is made: the elements, and where operands and results lie."""

from __future__ import annotations

from typing import Self

from attrs import frozen

from rlx_core.ops.attention_scores import AttentionOp
from rlx_cpu.native import ir
from rlx_cpu.native.attention_problem import AttentionProblem, HeadStrides
from rlx_cpu.native.contract import Layout
from rlx_cpu.native.isa import Isa
from rlx_cpu.native.simd import Simd
from rlx_cpu.native.stored import Stored
from rlx_cpu.native.words import Words

__all__ = ["DY", "AttentionPlan", "K", "Q", "V"]

Q, K, V, DY = range(4)
"""Operands. Results come in the same order: y lies like q, and dq, dk and dv like q, k and v."""


@frozen(eq=False)
class AttentionPlan:
    """The choices for one op and layout."""

    op: AttentionOp
    problem: AttentionProblem
    layout: Layout
    words: Words

    @classmethod
    def of(cls, module: ir.Module, op: AttentionOp, layout: Layout, isa: Isa) -> Self:
        problem = AttentionProblem.of(op, layout, isa)
        words = Words(Stored(Simd(module, isa, problem.dtype), layout.results[0].type.dtype))
        return cls(op, problem, layout, words)

    @property
    def simd(self) -> Simd:
        return self.words.simd

    @property
    def stored(self) -> Stored:
        """The elements of q, k, v and the results."""
        return self.words.stored

    def operand(self, position: int) -> HeadStrides:
        place = self.layout.operands[position]
        assert place is not None, "q, k, v and dy are required"
        return HeadStrides.of(place, self.op.layout, self._heads(position))

    def result(self, position: int) -> HeadStrides:
        return HeadStrides.of(self.layout.results[position], self.op.layout, self._heads(position))

    def _heads(self, position: int) -> int:
        return self.problem.heads if position in (Q, DY) else self.problem.kv_heads
