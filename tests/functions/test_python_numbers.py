"""A Python number that a function returns has the dtype that `asarray` gives it, whatever transforms the function."""

from __future__ import annotations

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.errors import DtypeError

X, XS = np.float32(2), np.ones(3, np.float32)


def with_own_vjp(number):
    function = rlx.custom_vjp(lambda z: number)
    function.defvjp(lambda z: (number, None), lambda residuals, cotangent: (np.float32(0),))
    return function


WRAPPERS = {
    "jit": lambda number: lambda x: number,
    "checkpoint": lambda number: rlx.checkpoint(lambda x: number),
    "custom_vjp": with_own_vjp,
    "vmap": lambda number: lambda x: rlx.vmap(lambda y: number)(XS),
    "map": lambda number: lambda x: rlx.map(lambda y: number, XS),
    "scan": lambda number: lambda x: rlx.scan(lambda carry, y: (carry, number), x, XS)[1],
    "cond": lambda number: lambda x: rlx.cond(x > 0, lambda y: number, lambda y: number, x),
    "vjp": lambda number: lambda x: rlx.vjp(lambda y: number, x)[0],
    "jvp": lambda number: lambda x: rlx.jvp(lambda y: number, (x,), (x,))[0],
    "aux": lambda number: lambda x: rlx.value_and_grad(lambda y: (y, number), has_aux=True)(x)[0][1],
}


@pytest.mark.parametrize("number", [3.0, 3, 3j, True], ids=str)
@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_a_returned_number_has_the_dtype_of_asarray(wrapper, number):
    if wrapper == "vjp" and type(number) in (bool, int):
        with pytest.raises(DtypeError, match="no output with a derivative"):
            rlx.jit(WRAPPERS[wrapper](number))(X)
        return
    found = rlx.jit(WRAPPERS[wrapper](number))(X)
    assert found.dtype == rlx.asarray(number).dtype
    np.testing.assert_array_equal(found, np.full(found.shape, number))


def test_branches_agree_whether_or_not_one_is_checkpointed():
    """Behind a choice, the derivative of a checkpointed function that ignores its argument is 0."""

    def loss(x):
        return rlx.cond(x > 0, lambda y: rlx.checkpoint(lambda z: 3.0)(y), lambda y: 2.0, x)

    assert rlx.grad(loss)(1.0) == 0
