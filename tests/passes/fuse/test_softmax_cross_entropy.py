"""Labels outside of the classes, logits that underflow, detached maxima: what recognised losses make of them when they run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core import nn
from rlx_core.errors import IndexRangeError
from rlx_core.passes.fuse.softmax_cross_entropy import FuseSoftmaxCrossEntropy

from ..programs import run

OFF = {"fusion": {"enabled": False}}
CLASSES = 5
LOGITS = np.random.default_rng(0).standard_normal((4, CLASSES))


def is_recognised(differentiated: Callable[..., Any], *x: Any) -> bool:
    traced = rlx.trace(lambda *x: differentiated(*x), *x)
    return "rlx.softmax_cross_entropy_with_logits" in [n.op.name for n in traced.nodes]


def one_hot(x: Any, labels: Any) -> Any:
    return -rlx.sum(rlx.one_hot(labels, num_classes=CLASSES) * nn.log_softmax(x), axis=-1)


def compared(x: Any, labels: Any) -> Any:
    return -rlx.sum((labels[:, None] == rlx.arange(CLASSES, dtype=labels.dtype)) * nn.log_softmax(x), axis=-1)


def selected(x: Any, labels: Any) -> Any:
    return rlx.sum(
        rlx.where(labels[:, None] == rlx.arange(CLASSES, dtype=labels.dtype), -nn.log_softmax(x), 0.0), axis=-1
    )


def indexed(x: Any, labels: Any) -> Any:
    return -rlx.take_along_axis(nn.log_softmax(x), labels[:, None], axis=1)[:, 0]


def identity(x: Any, labels: Any) -> Any:
    return -rlx.sum(rlx.take(rlx.eye(CLASSES), labels, axis=0) * nn.log_softmax(x), axis=-1)


def normalised(x: Any, labels: Any) -> Any:
    return rlx.logsumexp(x, axis=-1) - rlx.take_along_axis(x, labels[:, None], axis=1)[:, 0]


@pytest.mark.medium
@pytest.mark.parametrize("dtype", ["int8", "int64", "uint8", "uint64"])
@pytest.mark.parametrize("loss", [one_hot, compared, selected])
def test_a_row_whose_one_hot_row_is_zero_counts_for_nothing(loss: Callable[..., Any], dtype: str) -> None:
    """-1, and in unsigned dtypes the largest number; and one beyond the last class."""
    labels = np.array([-1, 2, CLASSES, 0]).astype(dtype)
    both = rlx.value_and_grad(lambda x, y: rlx.sum(rlx.sin(loss(x, y))))
    on, off = rlx.jit(lambda x, y: both(x, y)), rlx.jit(lambda x, y: both(x, y), config=OFF)
    value, gradient = on(LOGITS, labels)
    assert is_recognised(both, LOGITS, labels)
    assert not gradient[[0, 2]].any()
    expected = off(LOGITS, labels)
    np.testing.assert_allclose(value, expected[0], rtol=1e-14)  # four terms of log-softmax in f64
    np.testing.assert_allclose(gradient, expected[1], rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("loss", [indexed, identity, normalised])
@pytest.mark.parametrize("config", [None, OFF], ids=["recognised", "as written"])
def test_an_index_outside_is_an_error_either_way(loss: Callable[..., Any], config: Any) -> None:
    both = rlx.value_and_grad(lambda x, y: rlx.sum(loss(x, y)))
    run = rlx.jit(lambda x, y: both(x, y), config=config)
    run(LOGITS, np.array([0, 1, 2, CLASSES - 1]))
    assert is_recognised(both, LOGITS, np.arange(4))
    with pytest.raises(IndexRangeError):
        run(LOGITS, np.array([0, 1, 2, CLASSES]))


def test_ignored_rows_that_people_select_around_keep_their_zeros() -> None:
    """`ignore_index` as it is written out: a safe label for the reading, and 0 selected for the loss."""

    def loss(x: Any, labels: Any) -> Any:
        is_real = labels != -100
        rows = indexed(x, rlx.where(is_real, labels, 0))
        return rlx.sum(rlx.where(is_real, rows, 0)) / rlx.sum(is_real)

    both = rlx.value_and_grad(loss)
    labels = np.array([1, -100, 3, -100])
    value, gradient = rlx.jit(lambda x, y: both(x, y))(LOGITS, labels)
    assert is_recognised(both, LOGITS, labels)
    rows = LOGITS - np.log(np.exp(LOGITS).sum(axis=1, keepdims=True))
    np.testing.assert_allclose(value, -(rows[0, 1] + rows[2, 3]) / 2, rtol=1e-14)
    onehot = np.eye(CLASSES)[np.where(labels < 0, 0, labels)]
    np.testing.assert_allclose(gradient, (np.exp(rows) - onehot) * (labels >= 0)[:, None] / 2, rtol=1e-13, atol=1e-15)


def test_probabilities_that_underflow_have_a_loss() -> None:
    """What `giving_up` says: where the formula as it is written ends in infinity, the op has the number."""
    x, labels = np.array([[0.0, 2000.0]]), np.array([0])

    @rlx.jit
    def written(x: Any, labels: Any) -> Any:
        return -rlx.log(nn.softmax(x))[np.arange(1), labels]

    assert written(x, labels) == [2000.0]


def test_a_softmax_whose_maximum_is_detached_is_recognised() -> None:
    def softmax(x: Any) -> Any:
        e = rlx.exp(x - rlx.stop_gradient(rlx.max(x, axis=-1, keepdims=True)))
        return e / rlx.sum(e, axis=-1, keepdims=True)

    assert "rlx.softmax" in [n.op.name for n in rlx.trace(rlx.grad(lambda x: rlx.sum(softmax(x)[:, 0])), LOGITS).nodes]


@pytest.mark.parametrize("double", [lambda y: y + y, lambda y: y * y], ids=["sums", "squares"])
def test_values_that_are_read_twice_on_the_way_are_not_looked_at_twice_as_often(double: Callable[[Any], Any]) -> None:
    """Forty doublings have 2⁴⁰ paths; to follow each would never end."""

    def far(x: Any) -> Any:
        y = x
        for _ in range(40):
            y = double(y)
        return rlx.sum(y, axis=-1, keepdims=True) - x + (x - y)

    graph = rlx.trace(far, LOGITS)
    assert run(FuseSoftmaxCrossEntropy(), graph).graph is graph


def test_sums_of_complex_numbers_that_are_chosen_are_no_labels():
    summed = rlx.jit(lambda chosen, x: rlx.sum(rlx.where(chosen, x, np.complex64(0))))
    assert summed(np.array([True, False]), np.array([1 + 2j, 3j], np.complex64)) == 1 + 2j
