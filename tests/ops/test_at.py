"""`x.at[key]` against NumPy's assignment and `ufunc.at`, traced and on arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.errors import IndexRangeError, ShapeError

X = np.arange(1, 13, dtype=np.float32).reshape(3, 4)
TWICE = np.array([2, 0, -1])  # the last row twice

KEYS: dict[str, Any] = {
    "a row": 1,
    "rows": TWICE,
    "a slice": (slice(None), slice(1, 3)),
    "elements": ([0, 2], [1, -1]),
    "a mask": X > 6,
    "backwards": slice(None, None, -1),
    "nothing": slice(0, 0),
}


@pytest.mark.parametrize("is_traced", [False, True], ids=["on arrays", "traced"])
@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
@pytest.mark.parametrize("way", ["set", "add", "subtract", "multiply", "divide", "power", "max", "min"])
def test_as_numpy_does_it(way: str, key: Any, is_traced: bool) -> None:
    value = np.float32(5.5)

    def changed(x: Any) -> Any:
        return getattr(rlx.at(x)[key], way)(value)

    expected = X.copy()
    if way == "set":
        expected[key] = value
    else:
        join = {"max": np.maximum, "min": np.minimum}.get(way) or getattr(np, way)
        join.at(expected, key, value)
    found = rlx.jit(changed)(X) if is_traced else changed(X)
    np.testing.assert_allclose(found, expected, rtol=1e-5 if way in ("divide", "power") else 0)
    assert (X.ravel() == np.arange(1, 13)).all()


def test_what_becomes_of_elements() -> None:
    found = rlx.jit(
        lambda x: (x.at[0].multiply(2), x.at[:, 1].divide(4), x.at[2, 3].power(2), x.at[1].apply(rlx.negative))
    )(X)
    for y, (key, new) in zip(
        found, [(0, X[0] * 2), ((slice(None), 1), X[:, 1] / 4), ((2, 3), X[2, 3] ** 2), (1, -X[1])], strict=True
    ):
        expected = X.copy()
        expected[key] = new
        np.testing.assert_allclose(y, expected)
    assert rlx.at(X)[1].get().tolist() == X[1].tolist()


def test_places_that_are_computed() -> None:
    """A key of values, and a mask of values; duplicates are all added."""
    found = rlx.jit(lambda x, i: (x.at[i].add(1), x.at[i, 0].add(1), x.at[x > 3].multiply(-1)))(X, TWICE)
    rows, cells = X.copy(), X.copy()
    np.add.at(rows, TWICE, 1)
    np.add.at(cells, (TWICE, 0), 1)
    for y, expected in zip(found, (rows, cells, np.where(X > 3, -X, X)), strict=True):
        np.testing.assert_array_equal(y, expected)


def test_a_carry_is_updated() -> None:
    counts = rlx.jit(lambda x: rlx.fori_loop(0, 10, lambda i, c: c.at[i % 3].add(1.0), x))(np.zeros(3, np.float32))
    assert counts.tolist() == [4, 3, 3]


def test_gradient() -> None:
    """What is overwritten has none, and what is written has that of its place."""
    weights = np.arange(12, dtype=np.float32).reshape(3, 4)
    of_x, of_y = rlx.jit(rlx.grad(lambda x, y: rlx.sum(x.at[TWICE[:1]].set(y) * weights), argnums=(0, 1)))(X, X[:1])
    np.testing.assert_array_equal(of_x, np.where(np.arange(3)[:, None] == 2, 0, weights))
    np.testing.assert_array_equal(of_y, weights[2:])


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda x: rlx.at(x)[0].set(np.ones(3, np.float32)), ShapeError),
        (lambda x: rlx.at(x)[TWICE].add(np.ones((2, 4), np.float32)), ShapeError),
        (lambda x: rlx.at(x)[:, 7].set(0), IndexRangeError),
    ],
)
@pytest.mark.parametrize("is_traced", [False, True], ids=["on arrays", "traced"])
def test_what_is_refused(call: Callable[[Any], Any], error: type[Exception], is_traced: bool) -> None:
    with pytest.raises(error):
        (rlx.jit(call) if is_traced else call)(X)
