"""Losses by their formulas, at the edges of their domains, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core import nn
from rlx_core.errors import ConfigError, DtypeError, ShapeError

RNG = np.random.default_rng(5)
X, Y = RNG.normal(size=(2, 4, 3))
P, Q = RNG.uniform(0.05, 0.95, (2, 4, 3))
SIGNS = np.where(RNG.uniform(size=(4, 3)) < 0.5, 1, -1)
LABELS = np.array([0, 2, 2, 1])
ROWS = np.arange(4)


def norm(x):
    return np.sqrt((x * x).sum(-1))


def huber(e, delta):
    return np.where(np.abs(e) <= delta, e * e / 2, delta * (np.abs(e) - delta / 2))


def log_softmax(x):
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


COSINE = (X * Y).sum(-1) / norm(X) / norm(Y)
SIDES = SIGNS[:, 0]
LOSSES = {
    "l1": (nn.l1_loss, (X, Y), {}, np.abs(X - Y)),
    "huber": (nn.huber_loss, (X, Y), {"delta": 0.4}, huber(X - Y, 0.4)),
    "smooth l1": (nn.smooth_l1_loss, (X, Y), {"beta": 0.4}, huber(X - Y, 0.4) / 0.4),
    "smooth l1, beta 0": (nn.smooth_l1_loss, (X, Y), {"beta": 0}, np.abs(X - Y)),
    "log cosh": (nn.log_cosh_loss, (X, Y), {}, np.log(np.cosh(X - Y))),
    "mean squared error": (nn.mean_squared_error, (X, Y), {}, (X - Y) ** 2),
    "binary": (nn.binary_cross_entropy, (P, Q), {}, -Q * np.log(P) - (1 - Q) * np.log(1 - P)),
    "kl": (nn.kl_div, (np.log(P), Q), {}, Q * np.log(Q / P)),
    "kl of logarithms": (nn.kl_div, (np.log(P), np.log(Q)), {"log_target": True}, Q * np.log(Q / P)),
    "poisson": (nn.poisson_nll_loss, (X, Q), {}, np.exp(X) - Q * X),
    "poisson of rates": (nn.poisson_nll_loss, (P, Q), {"log_input": False, "eps": 0}, P - Q * np.log(P)),
    "gaussian": (
        nn.gaussian_nll_loss,
        (X, Y, P),
        {"full": True},
        (np.log(P) + (X - Y) ** 2 / P + np.log(2 * np.pi)) / 2,
    ),
    "focal": (
        nn.sigmoid_focal_loss,
        (X, SIGNS > 0),
        {"alpha": 0.25, "gamma": 1.5},
        np.where(SIGNS > 0, 0.25, 0.75) * np.log1p(np.exp(-SIGNS * X)) * (1 / (1 + np.exp(SIGNS * X))) ** 1.5,
    ),
    "hinge": (nn.hinge_loss, (X, SIGNS), {}, np.maximum(0, 1 - SIGNS * X)),
    "soft margin": (nn.soft_margin_loss, (X, SIGNS), {}, np.log1p(np.exp(-SIGNS * X))),
    "hinge embedding": (
        nn.hinge_embedding_loss,
        (P, SIGNS),
        {"margin": 0.5},
        np.where(SIGNS > 0, P, np.maximum(0, 0.5 - P)),
    ),
    "multilabel": (
        nn.multilabel_soft_margin_loss,
        (X, SIGNS > 0),
        {"weight": np.array([1.0, 2.0, 0.5])},
        (np.log1p(np.exp(-SIGNS * X)) * [1.0, 2.0, 0.5]).mean(-1),
    ),
    "cosine embedding": (
        nn.cosine_embedding_loss,
        (X, Y, SIDES),
        {"margin": -0.2},
        np.where(SIDES > 0, 1 - COSINE, np.maximum(0, COSINE + 0.2)),
    ),
    "ranking": (
        nn.margin_ranking_loss,
        (X, Y, SIGNS),
        {"margin": 0.3},
        np.maximum(0, 0.3 - SIGNS * (X - Y)),
    ),
    "triplets": (
        nn.triplet_margin_loss,
        (X, Y, P),
        {"margin": 0.5, "eps": 0},
        np.maximum(0, norm(X - Y) - norm(X - P) + 0.5),
    ),
    "triplets swapped": (
        nn.triplet_margin_loss,
        (X, Y, P),
        {"eps": 0, "swap": True},
        np.maximum(0, norm(X - Y) - np.minimum(norm(X - P), norm(Y - P)) + 1),
    ),
    "nll": (nn.nll_loss, (X, LABELS), {}, -X[ROWS, LABELS]),
    "cross entropy, smoothed": (
        nn.cross_entropy,
        (X, LABELS),
        {"label_smoothing": 0.3},
        -0.7 * log_softmax(X)[ROWS, LABELS] - 0.1 * log_softmax(X).sum(-1),
    ),
    "multi margin": (
        nn.multi_margin_loss,
        (X, LABELS),
        {"p": 2, "margin": 0.5},
        (np.maximum(0, 0.5 + X - X[ROWS, LABELS][:, None]) ** 2 * (np.arange(3) != LABELS[:, None])).sum(-1) / 3,
    ),
}


@pytest.mark.parametrize(("loss", "arrays", "attributes", "wanted"), LOSSES.values(), ids=LOSSES)
def test_a_loss_is_its_formula_reduced(loss, arrays, attributes, wanted):
    for reduction, reduce in {"none": np.asarray, "sum": np.sum, "mean": np.mean}.items():
        found = loss(*arrays, **attributes, reduction=reduction)
        np.testing.assert_allclose(found, reduce(wanted), rtol=1e-9, atol=1e-12)
    with pytest.raises(ConfigError, match="reduction must be"):
        loss(*arrays, reduction="average")
    narrow = [x.astype(np.float16) if x.dtype.kind == "f" else x for x in arrays]
    assert loss(*narrow).dtype == np.float16


def test_distances_and_likenesses_are_along_an_axis():
    np.testing.assert_allclose(nn.cosine_similarity(X, Y, axis=0), nn.cosine_similarity(X.T, Y.T), rtol=1e-12)
    np.testing.assert_allclose(nn.cosine_similarity(X, Y), COSINE, rtol=1e-12)
    assert nn.cosine_similarity(X, 0 * Y).tolist() == [0] * 4
    np.testing.assert_allclose(nn.pairwise_distance(X, Y, p=1, eps=0, keepdims=True)[:, 0], np.abs(X - Y).sum(-1))


def test_weights_are_in_the_mean_of_labels_and_ignored_rows_are_not():
    w = np.array([1.0, 2.0, 0.5])
    labels = np.array([0, -1, 2, 1])
    with_nan = np.where(labels[:, None] < 0, np.nan, X)
    kept = labels >= 0
    own = -log_softmax(X)[ROWS, labels] * w[labels]
    for loss, x in ((nn.nll_loss, log_softmax(with_nan)), (nn.cross_entropy, with_nan)):
        found = loss(x, labels, weight=w, ignore_index=-1)
        np.testing.assert_allclose(found, own[kept].sum() / w[labels][kept].sum(), rtol=1e-12)
        gradient = rlx.grad(lambda x, loss=loss: loss(x, labels, weight=w, ignore_index=-1))(x)
        assert (gradient[1] == 0).all()
        assert np.isfinite(gradient).all()
        assert loss(x[1:2], labels[1:2], weight=w, ignore_index=-1) == 0


def test_certain_predictions_have_finite_losses_and_gradients():
    p, t = np.float32([0, 1, 0, 1]), np.float32([0, 1, 1, 0])
    assert nn.binary_cross_entropy(p, t, reduction="none").tolist() == [0, 0, 100, 100]
    assert np.isfinite(rlx.grad(lambda p: nn.binary_cross_entropy(p, t))(p)).all()
    weighted = nn.binary_cross_entropy(P, Q, weight=2 * np.ones(3), reduction="sum")
    np.testing.assert_allclose(weighted, 2 * nn.binary_cross_entropy(P, Q, reduction="sum"))


def test_a_target_of_no_probability_has_no_divergence():
    x, t = np.log(P), np.where(P < 0.5, 0, Q)
    wanted = np.where(t > 0, t * np.log(np.where(t > 0, t, 1) / P), 0).sum() / 4
    np.testing.assert_allclose(nn.kl_div(x, t, reduction="batchmean"), wanted)
    assert np.isfinite(rlx.grad(lambda t: nn.kl_div(x, t))(t)).all()


def test_the_poisson_loss_is_nearly_a_likelihood():
    from scipy import stats

    counts, rates = np.array([2.0, 7.0, 30.0]), np.array([3.0, 5.0, 29.0])
    found = nn.poisson_nll_loss(np.log(rates), counts, full=True, reduction="none")
    np.testing.assert_allclose(found, -stats.poisson.logpmf(counts, rates), atol=0.05)  # Stirling: 1/(12 t)


@pytest.mark.parametrize(
    ("ask", "error", "says"),
    [
        (lambda: nn.huber_loss(X, Y, delta=0), ConfigError, "delta must be above 0"),
        (lambda: nn.smooth_l1_loss(X, Y, beta=-1), ConfigError, "beta must be at least 0"),
        (lambda: nn.l1_loss(X, np.ones(5)), ShapeError, "broadcast"),
        (lambda: nn.l1_loss([1], [2]), DtypeError, "predictions must be a float, not i64"),
        (lambda: nn.l1_loss(X + 1j, Y), DtypeError, "predictions must be a float, not c128"),
        (lambda: nn.nll_loss(X, LABELS[:2]), ShapeError, "do not match"),
        (lambda: nn.nll_loss(X, ROWS / 4), DtypeError, "labels must be integers, not f64"),
        (lambda: nn.nll_loss(X, LABELS, weight=np.ones(4)), ShapeError, r"weight must be \[3\], not \[4\]"),
        (lambda: nn.cross_entropy(X, LABELS, label_smoothing=1.5), ConfigError, "must be from 0 to 1"),
        (lambda: nn.multi_margin_loss(X, LABELS, p=3), ConfigError, "p must be 1 or 2"),
        (lambda: nn.sigmoid_focal_loss(X, Q, alpha=2), ConfigError, "alpha must be from 0 to 1"),
        (lambda: nn.kl_div(0.5, 0.5, reduction="batchmean"), ConfigError, "there is none"),
    ],
)
def test_what_means_nothing_is_refused(ask, error, says):
    with pytest.raises(error, match=says):
        ask()
