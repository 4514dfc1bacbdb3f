"""Writing at indices: who wins, who gets the gradient, and ties."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlx_core.ops.gather_nd import gather_nd, scatter_nd
from rlx_core.ops.scatter import scatter

X, U, IDS = np.array([1.0, 2.0, 3.0, 4.0]), np.array([10.0, 20.0, 30.0]), np.array([2, 0, 2])


def test_the_last_update_at_an_index_wins() -> None:
    np.testing.assert_array_equal(scatter(X, U, IDS), [20, 2, 30, 4])


def test_an_overwritten_update_has_no_gradient(calculus: Any) -> None:
    g = np.array([1.0, 2.0, 3.0, 4.0])

    dx, du, _ = calculus.evaluate(calculus.vjp(scatter), g, X, U, IDS)

    np.testing.assert_array_equal(dx, [0, 2, 0, 4])
    np.testing.assert_array_equal(du, [0, 1, 3])


def test_what_falls_outside_is_dropped_with_its_gradient(calculus: Any) -> None:
    ids = np.array([2, -1, 7])

    dx, du, _ = calculus.evaluate(calculus.vjp(lambda x, u, i: scatter(x, u, i, oob="fill")), np.ones(4), X, U, ids)

    np.testing.assert_array_equal(scatter(X, U, ids, oob="fill"), [1, 2, 10, 4])
    np.testing.assert_array_equal((*dx, *du), [1, 1, 0, 1, 1, 0, 0])


@pytest.mark.parametrize(("mode", "sign"), [("max", 1), ("min", -1)])
def test_all_that_attain_an_extreme_share_its_gradient(mode: str, sign: int, calculus: Any) -> None:
    """The element that was there and both updates tie at index 1; at index 0 one update wins alone."""
    x, u, ids = sign * np.array([0.0, 5.0, 1.0]), sign * np.array([5.0, 7.0, 5.0]), np.array([1, 0, 1])

    dx, du, _ = calculus.evaluate(calculus.vjp(lambda *v: scatter(*v, mode=mode)), np.array([1.0, 3.0, 1.0]), x, u, ids)

    np.testing.assert_allclose(dx, [0, 1, 1], rtol=1e-15)
    np.testing.assert_allclose(du, [1, 1, 1], rtol=1e-15)


def test_nan_wins_an_extreme() -> None:
    found = scatter(np.array([1.0, 2.0]), np.array([np.nan, 3.0]), np.array([0, 1]), mode="max")

    np.testing.assert_array_equal(found, [np.nan, 3])


def test_a_tuple_is_outside_if_one_part_is() -> None:
    """(0, 4) would be a legal position of the flattened 3 by 4 matrix."""
    x = np.arange(12.0).reshape(3, 4)
    tuples = np.array([[0, 4], [1, 1]])

    np.testing.assert_array_equal(gather_nd(x, tuples, oob="fill"), [0, 5])
    np.testing.assert_array_equal(gather_nd(x, tuples, oob="clip"), [3, 5])
    np.testing.assert_array_equal(
        scatter_nd(x, tuples, np.array([-1.0, -2.0]), oob="fill").reshape(-1)[:6], [0, 1, 2, 3, 4, -2]
    )


def test_tuples_select_as_numpy_does() -> None:
    x = np.arange(24.0).reshape(2, 3, 4)
    tuples = np.array([[0, 2], [1, 0], [1, 0]])
    wanted = x.copy()
    np.add.at(wanted, (tuples[:, 0], tuples[:, 1]), np.ones((3, 4)))

    np.testing.assert_array_equal(gather_nd(x, tuples), x[tuples[:, 0], tuples[:, 1]])
    np.testing.assert_array_equal(scatter_nd(x, tuples, np.ones((3, 4)), mode="add"), wanted)
