"""Windows at computed places: clamping, and starts of their own for each element of a batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlx_core.functions.functional import vmap
from rlx_core.ops.dynamic import dynamic_slice, dynamic_update_slice

X = np.arange(12.0).reshape(3, 4)


@pytest.mark.parametrize(("start", "place"), [(-5, 0), (0, 0), (1, 1), (2, 1), (99, 1)])
def test_a_start_is_clamped_so_that_the_window_fits(start: int, place: int) -> None:
    found = dynamic_slice(X, np.asarray(start), np.asarray(2), sizes=(2, 2))
    written = dynamic_update_slice(X, -np.ones((2, 2)), np.asarray(start), np.asarray(2))

    np.testing.assert_array_equal(found, X[place : place + 2, 2:4])
    assert (written[place : place + 2, 2:4] == -1).all()
    assert (written == -1).sum() == 4


def test_each_element_of_a_batch_is_clamped_for_itself(calculus: Any) -> None:
    starts = np.array([-3, 1, 7])
    batch = np.stack([X, X + 100, X + 200])

    found = calculus.evaluate(vmap(lambda x, i: dynamic_slice(x, i, i, sizes=(2, 3))), batch, starts)

    for k, place in enumerate([(0, 0), (1, 1), (1, 1)]):
        np.testing.assert_array_equal(found[k], batch[k][place[0] : place[0] + 2, place[1] : place[1] + 3])


def test_an_update_takes_its_gradient_out_of_the_window(calculus: Any) -> None:
    dx, du, _ = calculus.evaluate(
        calculus.vjp(dynamic_update_slice), np.arange(4.0), np.zeros(4), np.zeros(2), np.asarray(1)
    )

    np.testing.assert_array_equal(dx, [0, 0, 0, 3])
    np.testing.assert_array_equal(du, [1, 2])
