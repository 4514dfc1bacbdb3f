"""Functions over ops that take their places, or their axis, otherwise than the op does."""

from __future__ import annotations

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.errors import ShapeError, WrongInputCountError

X = np.array([[3.0, 1.0, 2.0], [0.0, 5.0, 4.0]], np.float32)


def test_windows_take_their_starts_as_one_sequence() -> None:
    moved = rlx.jit(lambda x, i: rlx.dynamic_slice(x, [i, 1], [1, 2]))

    assert moved(X, np.int64(1)).tolist() == [[5.0, 4.0]]
    assert moved(X, np.int64(7)).tolist() == [[5.0, 4.0]]
    assert rlx.dynamic_update_slice(X, np.zeros((1, 2)), [1, 0]).tolist() == [[3.0, 1.0, 2.0], [0.0, 0.0, 4.0]]


def test_a_window_has_a_start_for_each_axis() -> None:
    with pytest.raises(WrongInputCountError, match="one start an axis"):
        rlx.dynamic_slice(X, [0], [1, 2])


@pytest.mark.parametrize(
    ("function", "meaning"),
    [
        (rlx.cumulative_max, np.maximum.accumulate),
        (rlx.cumulative_min, np.minimum.accumulate),
        (rlx.cumulative_logsumexp, np.logaddexp.accumulate),
    ],
)
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_running_extremes_are_numpys(function, meaning, axis: int) -> None:
    assert np.allclose(function(X, axis=axis), meaning(X, axis=axis))


def test_the_axis_may_be_left_out_where_there_is_one() -> None:
    assert rlx.cumulative_max(X[0]).tolist() == [3.0, 3.0, 3.0]
    with pytest.raises(ShapeError, match="cumulative_max: x has 2 axes"):
        rlx.cumulative_max(X)


def test_ops_that_models_need_are_public() -> None:
    """Their meaning is tested with each op; here is that they are found, with operands by name."""
    assert rlx.scatter(np.zeros(3), np.array([1]), updates=np.ones(1)).tolist() == [0.0, 1.0, 0.0]
    assert rlx.gather_nd(X, np.array([[1, 2]])).tolist() == [4.0]
    assert rlx.linear_recurrence(np.full(3, 2.0), np.ones(3), axis=0).tolist() == [1.0, 3.0, 7.0]
    assert np.isclose(rlx.polygamma(1, 1.0), np.pi**2 / 6)
    assert rlx.grouped_matmul(X[:, :1], np.ones((2, 1, 1)), np.array([0, 1])).tolist() == [[3.0], [0.0]]
    assert rlx.lora_matmul(X, np.eye(3), np.zeros((3, 1)), np.zeros((1, 3))).tolist() == X.tolist()
    y, mean, _ = rlx.batch_norm(X, np.zeros(3), np.ones(3), weight=np.ones(3), bias=np.zeros(3), momentum=1.0)
    assert np.allclose(mean, X.mean(0))
    assert np.allclose(np.mean(y, axis=0), 0, atol=1e-6)
