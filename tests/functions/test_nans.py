"""`rlx.debug.nans`: the op, the package and the user's line that make a NaN, in programs, loops, gradients and eager calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core import nn
from rlx_core.errors import ConfigError, NonFiniteError

X = np.float32([1, -1, 2])


def facts_of(call: Callable[[], Any], **options: Any) -> dict[str, Any]:
    """The facts of the error that a call raises while NaN is looked for, by label."""
    with rlx.debug.nans(**options), pytest.raises(NonFiniteError) as raised:
        call()
    return {fact.label: fact for fact in raised.value.facts} | {"message": raised.value.message}


def total_of_logs(x: Any) -> Any:
    y = x + 1.0
    z = rlx.log(y - 1.0)  # the line
    return rlx.sum(z * 2.0)


def falling(c: Any, _: Any) -> Any:
    lower = c - 1.0
    return lower, rlx.sqrt(lower)  # the line


def assert_at_the_line(fact: Any) -> None:
    assert fact.where.text.endswith("# the line"), fact


@pytest.mark.parametrize("calls_before", [0, 5], ids=["first call", "fast path"])
@pytest.mark.parametrize("transform", [rlx.jit, rlx.grad, rlx.value_and_grad], ids=["jit", "grad", "value_and_grad"])
def test_the_op_and_the_line_are_named(transform: Any, calls_before: int) -> None:
    f = transform(total_of_logs)
    for _ in range(calls_before):
        f(X)
    found = facts_of(lambda: rlx.value_and_grad(total_of_logs)(X) if transform is rlx.grad else f(X))
    assert (found["op"].value, found["plugin"].value) == ("rlx.log", "rlx-core")
    assert_at_the_line(found["op"])
    assert found["elements"].value == "1 of 3; the first is [1]"


def test_a_gradient_names_the_forward_line() -> None:
    def loss(x: Any) -> Any:
        roots = rlx.pow(x, np.float32(0.5))  # the line
        return rlx.sum(roots * 0.0 + x)

    found = facts_of(lambda: rlx.grad(loss)(np.float32([0, 1])))
    assert_at_the_line(found["op"])  # 0 · ∞ in the derivative of the power at 0


def test_a_loop_names_the_iteration() -> None:
    f = rlx.jit(lambda c: rlx.scan(falling, c, None, length=10)[1])
    found = facts_of(lambda: f(np.float32(4.5)))
    assert found["op"].value == "rlx.sqrt"
    assert_at_the_line(found["op"])
    assert found["iteration"].value.startswith("4,")


def test_compiled_functions_and_sessions_are_checked() -> None:
    fast = rlx.compile(lambda w, x: rlx.log(w @ x), np.eye(3, dtype=np.float32), rlx.spec("f32[n]"))
    assert facts_of(lambda: fast(X))["op"].value == "rlx.log"
    program = rlx.Session().compile(rlx.trace(total_of_logs, rlx.spec("f32[3]")))
    assert facts_of(lambda: program.run({"x": X}))["op"].value == "rlx.log"


def test_a_training_step_is_located_although_it_overwrites_its_arguments() -> None:
    optimiser = rlx.optim.sgd(0.1)
    step = rlx.train_step(lambda w, x: rlx.sum(rlx.log(w) * x), optimiser)
    w = np.float32([-1, 2])
    found = facts_of(lambda: step(w, optimiser.init(w), np.float32([1, 2])))
    assert found["op"].value == "rlx.log"


def test_eager_calls_are_checked() -> None:
    assert facts_of(lambda: rlx.log(X))["op"].value == "rlx.log"
    with rlx.debug.nans():
        assert np.isnan(rlx.exp(np.float32([np.nan]))).all()  # what comes in is not made here


def test_a_nan_that_comes_in_is_said_to() -> None:
    found = facts_of(lambda: rlx.jit(lambda x: x + 1)(np.float32([np.nan])))
    assert found["message"].endswith("comes in with the argument x")


def test_infinities_count_where_they_are_asked_for() -> None:
    f = rlx.jit(lambda x: 1.0 / x)
    with rlx.debug.nans():
        assert np.isinf(f(np.float32([0]))).all()
    assert facts_of(lambda: f(np.float32([0])), infinities=True)["op"].value == "rlx.div"


def test_finite_results_pass_and_nothing_is_checked_outside() -> None:
    f = rlx.jit(lambda x: nn.softmax(rlx.where(x > 0, rlx.log(x), -1.0)))
    with rlx.debug.nans():
        inside = f(X)  # a NaN that is not in a result is none of the caller's
    np.testing.assert_array_equal(inside, f(X))
    assert np.isnan(rlx.jit(rlx.log)(X)).any()


def test_half_precision_and_complex_results_are_checked() -> None:
    for dtype in (rlx.f16, rlx.bf16, rlx.c64):
        f = rlx.jit(lambda x, dtype=dtype: rlx.log(rlx.astype(x, dtype)) * 0.0)
        assert facts_of(lambda f=f: f(np.float32([1, 0])))["op"].value == "rlx.mul"


def test_what_is_no_flag_is_refused() -> None:
    with pytest.raises(ConfigError, match="infinities must be True or False"), rlx.debug.nans(infinities=1):
        pass
