"""Kinds: what a row of a table becomes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlx_core.errors import DtypeError, ShapeError
from rlx_core.ir.dtypes import dtype, f16, f32
from rlx_core.ir.graph import Builder
from rlx_core.ir.interpret import interpret
from rlx_core.ir.op import ZERO, Op
from rlx_core.ir.types import TensorType
from rlx_core.ops.kinds import Ratio, composed, elementwise, scaled

twice = elementwise("Twice", lambda x: 2 * x, lambda x, y: 2.0, doc="2x.")
mean = elementwise("Mean2", lambda a, b: (a + b) / 2, lambda a, b, y: 0.5, ZERO, doc="(a + b)/2, b held fixed.")
cube = composed("Cube", lambda x: x * x * x, doc="x³.")


def test_a_row_is_an_op_of_the_module_that_has_the_row() -> None:
    assert issubclass(twice.op, Op)
    assert (twice.op.name, twice.op.__module__, twice.op.__doc__) == ("rlx.twice", __name__, "2x.")
    assert [o.name for o in mean.op.operands] == ["a", "b"]


def test_a_formula_is_no_primitive_and_has_derived_rules() -> None:
    assert twice.op().is_primitive
    assert not cube.op().is_primitive
    assert (cube.op.reference, cube.op.vjp, cube.op.jvp) == (None, None, None)


def test_a_declared_zero_is_not_a_missing_rule(calculus: Any) -> None:
    one = np.ones(2)

    assert calculus.evaluate(calculus.gradient(mean, 0), one, one).tolist() == [0.5, 0.5]
    assert calculus.evaluate(calculus.gradient(mean, 1), one, one).tolist() == [0, 0]
    assert calculus.evaluate(calculus.tangent(mean, 1), one, one).tolist() == [0, 0]


def test_a_factor_of_one_costs_no_product() -> None:
    builder = Builder()
    t = builder.input("t", TensorType(f32, (2,)))

    assert scaled(t, 1) is t
    assert scaled(t, 1.0) is t
    assert scaled(t, -1).node.op.name == "rlx.neg"
    assert scaled(t, Ratio(1, t)).node.op.name == "rlx.div"
    assert [n.op.name for n in builder.nodes] == ["core.input", "rlx.neg", "rlx.div"]


def test_a_complex_factor_is_conjugated_in_reverse_mode_only() -> None:
    z, t = np.array([2 + 1j]), np.array([1j])

    for is_forward, wanted in ((False, t * np.conj(z)), (True, t * z)):
        builder = Builder()
        value, factor = (builder.input(n, TensorType(dtype("c128"), (1,))) for n in ("t", "z"))
        graph = builder.finish(
            [scaled(value, factor, is_forward=is_forward), scaled(value, Ratio(1, factor), is_forward=is_forward)]
        )
        product, quotient = interpret(graph, {"t": t, "z": z})
        np.testing.assert_allclose(product, wanted)
        np.testing.assert_allclose(quotient * np.abs(z) ** 2, t * (np.conj(z) if is_forward else z))


def test_operands_of_two_dtypes_never_reach_a_node() -> None:
    with pytest.raises(DtypeError, match="operands must have one dtype, not f16 and f32"):
        mean.op().infer(TensorType(f16), TensorType(f32))


def test_an_error_names_the_op_and_the_difference() -> None:
    with pytest.raises(ShapeError, match=r"mean2: shapes \[2\] and \[3\] do not broadcast \(2 and 3"):
        mean(np.ones(2), np.ones(3))
