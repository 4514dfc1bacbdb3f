"""Every public function, with each argument replaced by things that it does not take: a result or a typed error."""

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from public_calls import X, functions, usual

import rlx_core as rlx
from rlx_core import nn
from rlx_core.errors import AxisError, ConfigError, DeviceError, DtypeError, RlxError, ShapeError

FEW = [None, "a", object(), 1.5, -7, True, {3: 4}, (), [None], 10**30, "(,f4", np.array("a")]
"""One of each kind that went wrong somewhere."""

MANY = [
    *FEW,
    *("", b"x", "(-1,)f4", "\0", "\ud800"),
    *(float("nan"), 3 + 4j, np.int64(1), np.float32(2.9), np.array(None), np.array(["2020"], "M8[s]"), np.ones(0)),
    *([], ("a",), (1.5,), [[1], [2, 3]], range(2), {1, 2}, {}, iter([1]), slice(None), ...),
    *(int, lambda: 0, rlx.f32, rlx.spec("f32[n]")),
]


def calls(function: Callable[..., Any], hostile: list[Any]) -> Iterator[tuple[str, list[Any], dict[str, Any]]]:
    """Calls with one argument that is not what it should be."""
    kinds = inspect.Parameter
    parameters = list(inspect.signature(function).parameters.values())
    first = [
        p
        for p in parameters
        if p.kind in (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD) and p.default is kinds.empty
    ]
    arguments = [usual(p) for p in first]
    if not arguments and any(p.kind is kinds.VAR_POSITIONAL for p in parameters):
        arguments = [X, X]
    named = {p.name: usual(p) for p in parameters if p.kind is kinds.KEYWORD_ONLY and p.default is kinds.empty}
    for value in hostile:
        for i in range(len(arguments)):
            yield f"argument {i} {value!r:.20}", [*arguments[:i], value, *arguments[i + 1 :]], named
        for p in parameters:
            if (
                p not in first
                and p.kind in (kinds.POSITIONAL_OR_KEYWORD, kinds.KEYWORD_ONLY)
                and p.name not in ("host", "name")
            ):
                yield f"{p.name}={value!r:.20}", arguments, {**named, p.name: value}


def untyped(names: list[str], hostile: list[Any]) -> list[str]:
    """The calls that end in an error of another kind."""
    found = []
    for name in names:
        for label, arguments, named in calls(functions()[name], hostile):
            try:
                functions()[name](*arguments, **named)
            except RlxError as error:
                str(error)
            except Exception as error:  # noqa: BLE001  # whatever it is, it is what the test looks for
                found.append(f"{name} {label}: {type(error).__name__} {error}")
    return found


@pytest.mark.medium
def test_no_public_function_ends_in_an_error_from_inside():
    assert untyped(list(functions()), FEW[::4]) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", functions())
def test_a_public_function_ends_in_a_result_or_a_typed_error(name):
    assert untyped([name], MANY) == []


@pytest.mark.parametrize(
    ("act", "error", "says"),
    [
        (lambda: rlx.split(X, -1), ShapeError, "split: an axis of 3 elements cannot be cut into -1 parts"),
        (lambda: rlx.repeat(X, 2.9), ConfigError, "repeat: repeats must be integers, not 2.9"),
        (lambda: rlx.einsum(None, X), ConfigError, "einsum: attribute spec must be a text, not None"),
        (lambda: rlx.tensordot(X, X, axes="a"), ConfigError, "tensordot: axes must be a sequence, not 'a'"),
        (lambda: rlx.tensordot(X, X, axes=3), AxisError, "3 axes cannot be contracted of 2 and 2"),
        (lambda: rlx.Session(3), DeviceError, "asked for by its name, not by 3 (int)"),
        (lambda: rlx.zeros(2, dtype="(,f4"), DtypeError, "'(,f4' is not an element type"),
        (lambda: rlx.astype(X, None), DtypeError, "None is not an element type"),
        (lambda: rlx.zeros(2, dtype="(-1,)f4"), DtypeError, "'(-1,)f4' is not an element type"),
        (lambda: rlx.exp(10**30), DtypeError, "does not fit i64"),
        (lambda: rlx.tril(X, k=10**30), ConfigError, "tril: an attribute of"),
        (lambda: rlx.ones(10**30), ShapeError, "a size is less than 2^63, not 1000"),
        (lambda: nn.attention(X[None], X[None], X[None], num_heads=0), ConfigError, "integer of at least 1, not 0"),
        (lambda: rlx.linspace("1", 2, 3), ConfigError, "linspace: an end must be a number, not '1'"),
    ],
)
def test_what_is_asked_is_said(act, error, says):
    with pytest.raises(error) as raised:
        act()
    assert says in raised.value.message


def test_numbers_of_numpy_are_taken_for_python_s():
    values, places = rlx.top_k(X, np.int64(1))
    assert values.shape == places.shape == (3, 1)
    assert len(rlx.split(X, np.int32(3))) == 3
    assert rlx.zeros(np.int64(3)).shape == (3,)
    assert rlx.tensordot(X, X.T, axes=np.int8(1)).shape == (3, 3)
