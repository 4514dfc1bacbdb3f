"""Keywords that a function does not have, and attributes that an array does not have, are errors with a remedy."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any, get_origin

import numpy as np
import pytest

import rlx_core
from rlx_core.errors import AbsentNameError, RlxError, UnknownNameError, WrongInputCountError
from rlx_core.hints.keywords import FORMER, checked_call
from rlx_core.public import CORE, FUNCTIONS
from rlx_core.testing.api.reference import NAMESPACES

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


def public_functions() -> Iterator[tuple[str, Any]]:
    namespaces = [name for name in NAMESPACES if name != "checkpoint_policies"]  # those are passed, and called by rlx
    modules = {
        "rlx": (rlx, {**FUNCTIONS, **CORE}),
        **{n: (getattr(rlx, n), getattr(rlx, n).__all__) for n in namespaces},
    }
    for namespace, (module, names) in modules.items():
        for name in names:
            function = getattr(module, name)
            if callable(function) and not inspect.isclass(function) and get_origin(function) is None:
                yield f"{namespace}.{name}", function


def test_a_call_that_does_not_fit_any_public_function_is_a_typed_error() -> None:
    functions = dict(public_functions())
    assert len(functions) > 500
    for name, function in functions.items():
        with pytest.raises(RlxError, match=f"takes|{name}"):
            function(no_such_keyword=1)


@pytest.mark.parametrize("former", FORMER, ids="-".join)
def test_a_keyword_of_an_earlier_version_is_refused_with_what_is_written_now(former: tuple[str, str]) -> None:
    name, keyword = former
    for module in (rlx, rlx.nn):
        with pytest.raises(UnknownNameError) as caught:
            getattr(module, name)(np.ones((2, 3)), **{keyword: 1})
        assert caught.value.hint == FORMER[former]


def test_errors_of_a_function_that_is_called_are_not_those_of_the_call() -> None:
    @checked_call
    def applied(function: Any, **options: Any) -> Any:
        return function(**options)

    with pytest.raises(TypeError, match="unsupported operand") as caught:
        applied(lambda a: 1 + "x", a=1)  # type: ignore[operator]
    assert not isinstance(caught.value, RlxError)
    with pytest.raises(
        WrongInputCountError, match=r"applied: takes \(function, options\): missing a required argument"
    ):
        applied()


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
