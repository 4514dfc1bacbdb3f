"""The function form of an op."""

from __future__ import annotations

import inspect
import pydoc

import attrs
import pytest

from rlx_core.ir.apply import op_function
from rlx_core.ir.op import Op, define_op, field
from rlx_core.ops.softmax import Softmax


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
        "x": empty, "y": None, "share": empty, "rounds": 2, "words": ..., "name": None,
    }  # fmt: skip


@pytest.mark.parametrize("op", [Mix])
def test_a_signature_has_every_operand_and_attribute(op):
    named = list(inspect.signature(op_function(op)).parameters)

    assert named == [o.name for o in op.operands] + [a.name for a in attrs.fields(op)] + ["name"]


def test_a_signature_is_how_the_function_is_called():
    """Positions as far as Python's signatures have them: what must be given cannot follow what may be left out."""
    mix, kind = inspect.signature(op_function(Mix)).parameters, inspect.Parameter

    assert [p.kind for p in mix.values()] == [kind.POSITIONAL_OR_KEYWORD] * 2 + [kind.KEYWORD_ONLY] * 4
    assert mix["share"].annotation in (float, "float")
    inspect.signature(op_function(Mix)).bind(1.0, share=0.5, name="mixed")
    with pytest.raises(TypeError, match="shares"):
        inspect.signature(op_function(Mix)).bind(1.0, share=0.5, shares=0.5)


def test_help_shows_the_operands_the_attributes_and_the_docstring():
    shown = pydoc.plain(pydoc.render_doc(op_function(Softmax)))

    assert "softmax(x, axis=, empty_row=)" in shown
    assert "The axis that sums to 1." in shown
