"""Arguments that are no arrays: constants of the program, told apart by type and value."""

from __future__ import annotations

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.errors import AxisError, TraceError, UnknownNameError


@pytest.mark.parametrize("said", [{"static_argnames": "function"}, {"static_argnums": 0}, {"static_argnums": [-2]}])
def test_a_function_as_an_argument_is_compiled_once(said: dict[str, object]) -> None:
    applied = rlx.jit(lambda function, x: function(x), **said)  # type: ignore[call-overload]
    x = np.float32([1, 2])
    for _ in range(5):  # the last ones by the way that checks nothing
        np.testing.assert_allclose(applied(rlx.sin, x), np.sin(x), rtol=1e-6)
        np.testing.assert_allclose(applied(rlx.cos, x), np.cos(x), rtol=1e-6)
    assert len(applied.executables) == 2


def test_equal_values_of_different_types_are_different_programs() -> None:
    described = rlx.jit(lambda x, n: x * (2 if isinstance(n, int) else 3), static_argnames="n")
    found = [float(described(np.float32(1), n)) for n in (1, 1.0, 1)]
    assert found == [2, 3, 2]
    assert float(described(np.float32(1), n=1.0)) == 3


def test_a_compiled_method_has_a_static_self() -> None:
    class Layer:
        def __init__(self, factor: float) -> None:
            self.factor = factor

        @rlx.jit(static_argnames="self")
        def scaled(self, x: np.ndarray) -> np.ndarray:
            return self.factor * x

    assert [float(Layer(factor).scaled(np.float32(3))) for factor in (2.0, 5.0)] == [6, 15]


def test_inside_a_trace_static_arguments_arrive_as_they_are() -> None:
    choose = rlx.jit(lambda x, mode: x if mode is None else -x, static_argnames=("mode",))
    assert rlx.grad(lambda x: choose(x, mode=None))(np.float32(1)) == 1
    assert rlx.jit(lambda x: choose(x, mode=object))(np.float32(1)) == -1


def test_what_is_wrong_with_them_is_said() -> None:
    with pytest.raises(UnknownNameError, match="no parameter 'flavour'"):
        rlx.jit(lambda x, flavor: x, static_argnames="flavour")
    with pytest.raises(AxisError, match="2 parameters, and no number 2"):
        rlx.jit(lambda x, n: x, static_argnums=2)
    with pytest.raises(TraceError, match="argument n is static, and unhashable type: 'list'"):
        rlx.jit(lambda x, n: x, static_argnums=1)(np.float32(1), [1])
    with pytest.raises(TraceError) as caught:
        rlx.jit(lambda function, x: function(x))(rlx.sin, np.float32(1))
    assert "static_argnames='function'" in str(caught.value)
    assert "rlx.register_dataclass" in str(caught.value)
