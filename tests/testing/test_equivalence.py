"""Comparison of a program and its rewrite within the law that the rewrite states."""

from __future__ import annotations

import numpy as np
import pytest

from rlx_core.ir.graph import Graph
from rlx_core.ops.activation import exp
from rlx_core.ops.arithmetic import minimum
from rlx_core.testing.equivalence import Inputs, difference, inputs_of
from tests.passes.programs import program

LARGE = {"x": np.array([-1.0, 0.0, 200.0], np.float32)}


def predicate(limit: float | None, threshold: float = 1e30) -> Graph:
    """Whether `exp(x)`, of x below a limit, is larger than a threshold."""
    return program(lambda x: exp(x if limit is None else minimum(x, limit)) > threshold, x="f32[3]")


def test_a_predicate_of_an_overflow_is_covered_by_its_law_on_special_inputs_alone() -> None:
    before, after = predicate(None), predicate(60.0)
    assert difference(before, after, Inputs("special inputs 1", LARGE), law="overflow") is None
    for fed, law in ((Inputs("tails inputs", LARGE), "overflow"), (Inputs("special inputs 1", LARGE), "sign of zero")):
        message = difference(before, after, fed, law=law)
        assert message is not None
        assert "1 of 3 elements differ" in message
        assert "is np.False_ after it and np.True_ before" in message


@pytest.mark.parametrize("law", [None, "overflow"])
def test_equal_programs_do_not_differ_on_any_inputs(law: str | None) -> None:
    before = predicate(None)
    assert [difference(before, predicate(None), fed, law=law) for fed in inputs_of(before)] == [None] * 5
