"""The reference interpreter: names and shapes are checked, narrow floats round once, the wide mode is float64."""

import numpy as np
import pytest

from rlx_core.errors import LengthMismatchError, MissingInputError, MissingRuleError, UnknownNameError
from rlx_core.ir.graph import Builder, building
from rlx_core.ir.interpret import interpret
from rlx_core.ir.op import Op, define_op
from rlx_core.ir.types import spec
from rlx_core.ops.arithmetic import add
from rlx_core.ops.structural import sum_axes


def program(dtype="f32"):
    b = Builder()
    x, w = b.input("x", spec(f"{dtype}[3]")), b.param("w", spec(f"{dtype}[3]"))
    with building(b):
        return b.finish([add(x, w), sum_axes(x, axes=(0,))])


def test_inputs_and_params_are_fed_by_name():
    found = interpret(program(), {"x": np.float32([1, 2, 3])}, {"w": np.float32([4, 5, 6])})
    np.testing.assert_array_equal(found[0], [5, 7, 9])
    np.testing.assert_array_equal(found[1], 6)


@pytest.mark.parametrize(
    ("inputs", "error", "says"),
    [
        ({"x": np.zeros(3)}, MissingInputError, "lacks w"),
        ({"x": np.zeros(3), "w": np.zeros(3), "z": np.zeros(3)}, UnknownNameError, "no input 'z'"),
        ({"x": np.zeros(4), "w": np.zeros(3)}, LengthMismatchError, r"x must be f32\[3\], not \[4\]"),
        ({"x": np.zeros((3, 1)), "w": np.zeros(3)}, LengthMismatchError, "x must be"),
    ],
)
def test_wrong_feeds_are_typed_errors(inputs, error, says):
    with pytest.raises(error, match=says):
        interpret(program(), inputs)


def test_narrow_floats_accumulate_wide_and_round_once():
    ones = np.array([2048, 1, 1], np.float16)  # in f16, 2048 + 1 rounds back to 2048: a running sum would stay there
    assert interpret(program("f16"), {"x": ones, "w": ones})[1] == np.float16(2050)


def test_the_wide_mode_holds_floats_in_float64():
    third = np.full(3, 1 / 3)
    found = interpret(program(), {"x": third, "w": third}, mode="wide")
    assert found[0].dtype == np.float64
    np.testing.assert_array_equal(found[0], third + third)


@define_op(domain="test")
class Meaningless(Op):
    def infer(self, x):
        return x


def test_an_op_without_meaning_is_an_error_that_says_what_to_write():
    b = Builder()
    graph = b.finish([Meaningless()(b.input("x", spec("f32[2]")))])
    with pytest.raises(MissingRuleError, match=r"test\.meaningless") as error:
        interpret(graph, {"x": np.zeros(2, np.float32)})
    assert "def decompose" in error.value.hint
