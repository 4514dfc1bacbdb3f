"""The function form of an op."""

from __future__ import annotations

import inspect

import attrs
import pytest

from rlx_core.ir.apply import op_function
from rlx_core.ir.op import Op, define_op, field


@define_op(domain="acme")
class Mix(Op):
    share: float
    rounds: int = 2
    words: tuple[str, ...] = field(factory=tuple)

    def decompose(self, x, y=None):
        return x * self.share


def test_a_signature_says_what_may_be_left_out():
    """`jit` and help binds calls by it, so a default that is missing there cannot be left out."""
    parameters = inspect.signature(op_function(Mix)).parameters
    empty = inspect.Parameter.empty

    assert {name: p.default for name, p in parameters.items()} == {
        "x": empty, "y": None, "share": empty, "rounds": 2, "words": ...,
    }  # fmt: skip


@pytest.mark.parametrize("op", [Mix])
def test_a_signature_has_every_operand_and_attribute(op):
    named = list(inspect.signature(op_function(op)).parameters)

    assert named == [o.name for o in op.operands] + [a.name for a in attrs.fields(op)]
