"""`x[key] = y` in a trace, against NumPy doing the same to arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.errors import IndexRangeError, RlxError, ShapeError, TraceError

X = np.arange(12, dtype=np.float32).reshape(3, 4)


def run(function: Callable[..., Any]) -> list[np.ndarray]:
    """The function traced, and run by the interpreter."""
    found = rlx.interpret(rlx.trace(function, X), {"x": X})
    return [np.asarray(v) for v in found]


def places(x: Any) -> Any:
    x = x * 1
    x[1] = 7
    x[:, ::2] = -1
    x[0, 1:3] = np.float32([8, 9])
    x[-1, ...] = 2.5
    return x


def arrays_of_indices(x: Any) -> Any:
    x = x + 0
    x[[0, 2], [1, 1]] = 9
    x[np.array([True, False, True])] = 4
    return x


def masks(x: Any) -> Any:
    x = x + 0
    x[x > 5] = 0
    x[x[:, 0] < 1] = np.float32([1, 2, 3, 4])
    return x


def what_was_computed_before(x: Any) -> Any:
    x = x * 1
    y = x + 1
    z = x[0]
    x[x > 5] = 0
    return y, x, z, x + y


def another_name(x: Any) -> Any:
    x = x * 1
    also = x
    also[0] = 100
    return x


def a_copy(x: Any) -> Any:
    x = x * 1
    y, z = x.astype(x.dtype), +x
    y[0], z[1] = 100, 200
    return x, y, z


def augmented(x: Any) -> Any:
    x = x * 1
    x[1:] += 10
    x *= 2
    return x


@pytest.mark.parametrize(
    "program", [places, arrays_of_indices, masks, what_was_computed_before, another_name, a_copy, augmented]
)
def test_an_assignment_does_what_numpy_does(program: Callable[..., Any]) -> None:
    wanted = program(X.copy())
    for one, other in zip(run(program), wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
        np.testing.assert_array_equal(one, other)


def test_equal_constants_are_told_apart() -> None:
    def f(x: Any) -> Any:
        a, b = rlx.asarray([1.0, 2.0]), rlx.asarray([1.0, 2.0])
        a[0] = 5
        return a, b, rlx.asarray([1.0, 2.0]), x

    a, b, c, _ = run(f)
    np.testing.assert_array_equal([a, b, c], [[5, 2], [1, 2], [1, 2]])


def test_it_is_differentiated_and_batched() -> None:
    def f(x: Any) -> Any:
        y = x * 2
        y[0] = 0
        y[y > 10] = 1
        return rlx.sum(y * y)

    wanted = np.where((np.arange(4) > 0) & (2 * X <= 10), 8 * X, 0)
    np.testing.assert_array_equal(rlx.vmap(rlx.grad(f))(X), wanted)


def test_a_pullback_keeps_what_the_function_was_called_with() -> None:
    def f(x: Any) -> Any:
        z, w = x * 2, x + 1
        y, pull = rlx.vjp(lambda v: v * v * w, z)
        z[0], w[1], y[2] = 100, 100, 100
        return pull(rlx.ones_like(y))[0], y

    slopes, y = run(f)
    np.testing.assert_array_equal(slopes, 4 * X * (X + 1))
    np.testing.assert_array_equal(y[:2], (4 * X * X * (X + 1))[:2])


def test_a_result_that_is_an_argument_of_a_transform_is_another_name() -> None:
    def f(x: Any) -> Any:
        z = x * 2
        y, _ = rlx.vjp(lambda v: v, z)
        u = z + 0
        y[0] = 100
        return z, y, u, z + y

    z, y, u, total = run(f)
    np.testing.assert_array_equal(z, 2 * X)
    np.testing.assert_array_equal(u, 2 * X)
    np.testing.assert_array_equal(y[1:], 2 * X[1:])
    assert y[0].tolist() == [100] * 4
    np.testing.assert_array_equal(total, z + y)


REFUSED: dict[str, tuple[Callable[[Any], Any], type[RlxError], str]] = {
    "an argument": (lambda x: x.__setitem__(0, 1), TraceError, "is an argument of the program"),
    # NumPy would change the whole with its part, and a part with the whole: neither is done, so the first is refused.
    "a part of another value": (lambda x: (x * 1)[0].__setitem__(0, 1), TraceError, "is a view by"),
    "a value in another shape": (lambda x: (x * 1).T.__setitem__(0, 1), TraceError, "is a view by"),
    "a value that does not fit": (lambda x: (x * 1).__setitem__(0, np.ones(3)), ShapeError, "does not fit into"),
    "a place outside": (lambda x: (x * 1).__setitem__(3, 1), IndexRangeError, "outside an axis of 3"),
    "values for a computed mask": (
        lambda x: (x * 1).__setitem__(x > 1, np.ones(3)),
        ShapeError,
        "at most 0 axes",
    ),
    "a mask of another shape": (lambda x: (x * 1).__setitem__(x[:2] > 1, 0), ShapeError, "does not lie over"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_assigned_is_refused(name: str) -> None:
    call, error, says = REFUSED[name]
    with pytest.raises(error, match=says):
        rlx.trace(call, X)


def test_a_value_of_an_outer_trace_is_not_assigned_to_from_within() -> None:
    def f(x: Any) -> Any:
        y = x * 1

        def inner(row: Any) -> Any:
            y[0] = 0
            return row

        return rlx.vmap(inner)(x)

    with pytest.raises(TraceError, match="cannot be assigned to in another"):
        rlx.trace(f, X)
