"""Order: ties, NaN, both directions, and where gradients go."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlx_core.errors import ShapeError
from rlx_core.ops.sorting import arg_sort, search_sorted, sort_with_indices, top_k

NAN, INF = np.nan, np.inf


def test_nan_is_larger_than_every_number_in_both_directions() -> None:
    x = np.array([1.0, NAN, INF, -INF, NAN])

    np.testing.assert_array_equal(arg_sort(x), [3, 0, 2, 1, 4])
    np.testing.assert_array_equal(arg_sort(x, descending=True), [1, 4, 2, 0, 3])
    np.testing.assert_array_equal(top_k(x, k=3)[0], [NAN, NAN, INF])
    np.testing.assert_array_equal(top_k(x, k=2, largest=False)[0], [-INF, 1])


def test_ties_stay_in_index_order_in_both_directions() -> None:
    x = np.array([2, 1, 2, 1])

    np.testing.assert_array_equal(arg_sort(x), [1, 3, 0, 2])
    np.testing.assert_array_equal(arg_sort(x, descending=True), [0, 2, 1, 3])
    np.testing.assert_array_equal(top_k(x, k=3)[1], [0, 2, 1])


@pytest.mark.parametrize("dtype", [np.int64, np.uint64])
def test_integers_above_two_to_the_53_are_told_apart(dtype: Any) -> None:
    x = np.array([2**53 + 1, 2**53, 2**53 + 2], dtype)

    np.testing.assert_array_equal(sort_with_indices(x)[1], [1, 0, 2])


def test_gradients_return_to_the_elements_that_were_selected(calculus: Any) -> None:
    x = np.array([[3.0, 1.0, 2.0], [5.0, 6.0, 4.0]])

    found = calculus.evaluate(calculus.vjp(lambda v: top_k(v, k=2)[0]), np.array([[1.0, 2.0], [3.0, 4.0]]), x)
    whole = calculus.evaluate(calculus.vjp(lambda v: sort_with_indices(v, axis=0)[0]), np.arange(6.0).reshape(2, 3), x)

    np.testing.assert_array_equal(found, [[1, 0, 2], [4, 3, 0]])
    np.testing.assert_array_equal(whole, [[0, 1, 2], [3, 4, 5]])


def test_places_in_a_sorted_axis() -> None:
    rows = np.array([[1.0, 2.0, 2.0], [0.0, 5.0, NAN]])
    wanted = np.array([[2.0, 0.0], [5.0, NAN]])

    np.testing.assert_array_equal(search_sorted(rows, wanted), [[1, 0], [1, 2]])
    np.testing.assert_array_equal(search_sorted(rows, wanted, side="right"), [[3, 0], [2, 3]])


def test_more_than_there_are_is_refused() -> None:
    with pytest.raises(ShapeError, match=r"k must be 0\.\.3 .*, not 4"):
        top_k(np.ones(3), k=4)
