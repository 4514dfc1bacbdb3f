"""Keywords that a function does not have, and attributes that an array does not have, are errors with a remedy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx_core
from rlx_core.errors import AbsentNameError, UnknownNameError

rlx: Any = rlx_core  # untyped, because the calls are wrong


@pytest.mark.parametrize(
    ("call", "hint"),
    [
        (lambda x: rlx.sum(x, axs=0), "did you mean `axis`?"),
        (lambda x: rlx.mean(x, dim=0), "axis="),
        (lambda x: rlx.std(x, ddof=1), "correction="),
        (lambda x: rlx.grad(lambda x: x, holomorphic=True), "2 * rlx.conj("),
    ],
)
def test_an_unknown_keyword_is_refused_with_what_to_write(call: Any, hint: str) -> None:
    for run in (call, rlx.jit(call)):
        with pytest.raises(UnknownNameError, match=r"takes \(.*, not ") as caught:
            run(np.ones(3, np.float32))
        assert hint in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("name", "hint"), [("summ", "did you mean `sum`?"), ("detach", "rlx.stop_gradient"), ("zzz", "functions of arrays")]
)
def test_an_unknown_attribute_of_a_result_is_refused_as_that_of_a_traced_value_is(name: str, hint: str) -> None:
    x = rlx.asarray(np.ones(3, np.float32))
    for call in (lambda x: getattr(x, name), rlx.jit(lambda x: getattr(x, name)())):
        with pytest.raises(AbsentNameError, match=name) as caught:
            call(x)
        assert hint in (caught.value.hint or "")
    assert not hasattr(x, "__cuda_array_interface__")


def test_the_hint_for_holomorphic_functions_is_their_derivative() -> None:
    z = np.array(1 + 2j)
    derivative = 2 * rlx.conj(rlx.grad(lambda z: rlx.real(z * z * z))(z))
    np.testing.assert_allclose(derivative, 3 * z * z)
