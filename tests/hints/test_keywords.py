"""Keywords that a function does not have, and attributes that an array does not have, are errors with a remedy."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any, get_origin

import numpy as np
import pytest

import rlx_core
from rlx_core.errors import (
    AbsentNameError,
    ConfigError,
    DtypeError,
    RlxError,
    ShapeError,
    UnknownNameError,
    WrongInputCountError,
)
from rlx_core.hints.keywords import CHANGED_ORDER, RENAMED_ARGUMENTS, checked_call
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


def of_name(name: str) -> list[Any]:
    """The public functions of a name; `random`, `optim` and `special` follow other standards."""
    namespaces = (rlx, rlx.nn, rlx.linalg)
    return [getattr(module, name) for module in namespaces if name in dir(module)]


@pytest.mark.parametrize("renamed", RENAMED_ARGUMENTS, ids="-".join)
def test_a_keyword_of_an_earlier_version_is_refused_with_what_is_written_now(renamed: tuple[str, str]) -> None:
    name, keyword = renamed
    functions = of_name(name)
    assert functions
    for function in functions:
        assert keyword not in inspect.signature(function).parameters
        with pytest.raises(UnknownNameError, match=f"not {keyword}=") as caught:
            function(**{keyword: 1})
        assert caught.value.hint == RENAMED_ARGUMENTS[renamed]


@pytest.mark.parametrize("renamed", RENAMED_ARGUMENTS, ids="-".join)
def test_the_argument_that_replaces_another_is_one_of_the_function(renamed: tuple[str, str]) -> None:
    new = re.match(r"(\w+)=", RENAMED_ARGUMENTS[renamed])
    for function in of_name(renamed[0]):
        assert new is None or new[1] in inspect.signature(function).parameters


@pytest.mark.parametrize("name", CHANGED_ORDER)
def test_a_changed_order_is_that_of_the_signature(name: str) -> None:
    listed = re.search(r"\((.*?)\)", CHANGED_ORDER[name])
    assert listed is not None
    order = [argument.rstrip("=") for argument in listed[1].split(", ")]
    for function in of_name(name):
        assert list(inspect.signature(function).parameters)[: len(order)] == order
    with pytest.raises(WrongInputCountError) as caught:
        getattr(rlx, name)(*range(20))
    assert caught.value.hint == CHANGED_ORDER[name]


X = np.ones(3, np.float32)


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: rlx.scatter(X, X[:2], np.array([0, 2])), DtypeError, "scatter: indices must be integers, not f32"),
        (lambda: rlx.scatter_add(X, X[:2], np.array([0, 2])), DtypeError, "scatter_add: indices must be integers"),
        (lambda: rlx.scatter_add(X, np.array([0, 1, 1]), 2), ShapeError, "updates must be"),
        (lambda: rlx.put_along_axis(X, X, np.array([0, 1, 2]), 0), DtypeError, "put_along_axis: indices must be"),
        (lambda: rlx.batch_norm(X[None], X, X, X, X), WrongInputCountError, "batch_norm: takes"),
        (lambda: rlx.batch_norm_inference(X[None], X, X, X, X), WrongInputCountError, "batch_norm_inference: takes"),
        (lambda: rlx.group_norm(X[None], X, X), ConfigError, "group_norm: num_groups must be an integer"),
        (lambda: rlx.polygamma(X, 1), ConfigError, "polygamma: n must be an integer"),
        (lambda: rlx.associative_scan(rlx.add, X, 0), ConfigError, "associative_scan: reverse must be True or False"),
    ],
)
def test_arguments_in_the_order_of_an_earlier_version_are_refused(call: Any, error: type[RlxError], says: str) -> None:
    with pytest.raises(error, match=re.escape(says)):
        call()


@pytest.mark.parametrize(
    "name", ["gather", "gather_nd", "scatter", "scatter_add", "scatter_nd", "take", "take_along_axis"]
)
def test_errors_of_the_value_name_the_argument(name: str) -> None:
    updates = (X,) if name.startswith("scatter") else ()
    with pytest.raises(ConfigError, match=f"{name}: out_of_bounds must be error, clip or fill, not 'wrap'"):
        getattr(rlx, name)(X, np.arange(3), *updates, out_of_bounds="wrap")


ONE_STANDARD_EACH = {
    "clip": "NumPy's, and optax's transformation",
    "gamma": "SciPy's function, and NumPy's distribution",
    "kl_div": "PyTorch's loss, and SciPy's function",
    "split": "NumPy's, and JAX's of keys",
    "trace": "JAX's of functions, the Array API's of matrices, and optax's transformation",
}
"""Names that two of the standards that rlx follows give to functions of different meaning."""


def test_a_name_has_one_function_in_all_namespaces() -> None:
    functions: dict[str, set[int]] = {}
    for name, function in public_functions():
        functions.setdefault(name.partition(".")[2], set()).add(id(function))
    assert {name for name, found in functions.items() if len(found) > 1} == set(ONE_STANDARD_EACH)


def test_the_functions_of_models_are_those_of_nn() -> None:
    names = [
        "attention",
        "batch_norm",
        "batch_norm_inference",
        "gelu",
        "group_norm",
        "layer_norm",
        "one_hot",
        "rms_norm",
        "rope",
    ]
    for name in names:
        assert getattr(rlx, name) is getattr(rlx.nn, name)


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
