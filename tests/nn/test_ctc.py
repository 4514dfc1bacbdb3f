"""The loss of sequences without alignments, beside a sum over all alignments."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core import nn
from rlx_core.errors import ConfigError, DtypeError, ShapeError

RNG = np.random.default_rng(8)
LABELS = np.array([[1, 2, 0], [2, 2, -7], [9, 9, 9], [1, 1, 1]])
STEPS, LENGTHS = np.array([4, 3, 2, 4]), np.array([2, 2, 0, 3])


def scores(dtype=np.float64):
    x = RNG.normal(size=(4, 5, 3))
    return (x - np.log(np.exp(x).sum(-1, keepdims=True))).astype(dtype)


def collapsed(path, blank):
    return [c for c, _ in itertools.groupby(path) if c != blank]


def by_enumeration(x, labels, steps, length, blank):
    paths = itertools.product(range(x.shape[1]), repeat=int(steps))
    wanted = labels[:length].tolist()
    total = sum(np.exp(x[range(steps), p].sum()) for p in paths if collapsed(p, blank) == wanted)
    return -np.log(total) if total else np.inf


@pytest.mark.parametrize("blank", [0, 2])
def test_it_is_the_sum_over_all_alignments(blank):
    x = scores()
    labels = np.where(blank == LABELS, 1 - blank // 2, LABELS)
    wanted = [by_enumeration(*each, blank) for each in zip(x, labels, STEPS, LENGTHS, strict=True)]
    assert np.isinf(wanted).sum() >= 1  # three equal labels do not fit into four steps
    args = (x, labels, STEPS, LENGTHS)
    np.testing.assert_allclose(nn.ctc_loss(*args, blank=blank, reduction="none"), wanted, rtol=1e-12, atol=1e-12)
    finite = np.where(np.isinf(wanted), 0, wanted)
    found = nn.ctc_loss(*args, blank=blank, zero_infinity=True)
    np.testing.assert_allclose(found, (finite / np.maximum(LENGTHS, 1)).mean())
    np.testing.assert_allclose(nn.ctc_loss(*args, blank=blank, zero_infinity=True, reduction="sum"), finite.sum())


def test_steps_and_labels_beyond_the_lengths_have_no_gradient_nor_those_that_fit_nothing():
    gradient = rlx.grad(lambda x: nn.ctc_loss(x, LABELS, STEPS, LENGTHS, zero_infinity=True))(scores(np.float32))
    assert not any(np.abs(gradient[i, s:]).max() for i, s in enumerate(STEPS))
    assert np.abs(gradient[:3, 0]).sum(-1).min() > 0
    assert not gradient[3].any()


def test_impossible_classes_have_finite_derivatives():
    x = scores(np.float32)
    x[:, :, 1] = -np.inf
    loss, gradient = rlx.value_and_grad(lambda x: nn.ctc_loss(x, LABELS, STEPS, LENGTHS, zero_infinity=True))(x)
    assert np.isfinite(loss)
    assert np.isfinite(gradient).all()


def test_a_loss_of_many_steps_keeps_its_digits():
    x = np.log(np.full((1, 400, 2), 0.5))
    labels = np.ones((1, 1), int)
    wanted = 400 * np.log(2) - np.log(400 * 401 / 2)  # as many alignments as there are runs of steps
    found = nn.ctc_loss(x.astype(np.float32), labels, [400], [1])
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


@pytest.mark.parametrize(
    ("args", "error", "says"),
    [
        ((np.ones((4, 5)), LABELS, STEPS, LENGTHS), ShapeError, r"must be \[n, t, c\]"),
        ((np.ones((4, 5, 3)), LABELS[0], STEPS, LENGTHS), ShapeError, r"labels must be \[4, l\]"),
        ((np.ones((4, 5, 3)), LABELS, STEPS[:1], LENGTHS), ShapeError, r"input_lengths must be \[4\], not \[1\]"),
        ((np.ones((4, 5, 3)), LABELS, STEPS + 2, LENGTHS), ConfigError, "input_lengths must be from 0 to 5"),
        ((np.ones((4, 5, 3)), LABELS, STEPS, LENGTHS - 1), ConfigError, "label_lengths must be from 0 to 3"),
        ((np.ones((4, 5, 3)), LABELS * 1.0, STEPS, LENGTHS), DtypeError, "labels must be integers, not f64"),
    ],
)
def test_what_does_not_fit_is_refused(args, error, says):
    with pytest.raises(error, match=says):
        nn.ctc_loss(*args)


def test_the_blank_is_a_class():
    with pytest.raises(ConfigError, match="one of the 3 classes, not 3"):
        nn.ctc_loss(scores(), LABELS, STEPS, LENGTHS, blank=3)
