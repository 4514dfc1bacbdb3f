"""Losses beside PyTorch's own: arguments are drawn away from the kinks, where a derivative is a convention."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import rlx_core as rlx
from rlx_core import nn

from ..rows import Draw, Family, Row

__all__ = ["FAMILY"]

functional = torch.nn.functional
LONG: Any = {"slack": 64, "why": "a sum of squares and its root"}
REDUCTIONS = ["mean", "sum", "none"]


def pairs(first: Callable[[Draw, Any], Any], second: Callable[[Draw, Any], Any]) -> Callable[[Draw], Any]:
    """Two arrays of one shape, and a reduction."""

    def cases(d: Draw) -> Any:
        shape = d.shape(2, 2, 5)
        return (first(d, shape), second(d, shape)), {"reduction": d.choice(REDUCTIONS)}

    return cases


def apart(d: Draw, shape: Any) -> Any:
    return d.apart(shape, 0.21)


def nothing(d: Draw, shape: Any) -> Any:
    return d.rounded(d.elements.integers(0, 1, shape))


def normal(d: Draw, shape: Any) -> Any:
    return d.normal(shape, 2.0)


def share(d: Draw, shape: Any) -> Any:
    return d.floats(shape, 0.05, 0.95)


def sides(d: Draw, shape: Any) -> Any:
    """1 or -1, as integers."""
    return d.integers(2, shape) * 2 - 1


def counts(d: Draw, shape: Any) -> Any:
    return d.rounded(d.elements.integers(2, 7, shape))


def labelled(d: Draw) -> Any:
    n, c = d.size(2, 6), d.size(2, 6)
    labels = d.integers(c, (n,))
    return (d.normal((n, c), 2.0), labels), {"reduction": d.choice(REDUCTIONS)}


def ignoring(d: Draw) -> Any:
    (x, labels), attributes = labelled(d)
    labels[1] = -100
    return (x, labels), attributes


def weights(c: int) -> np.ndarray:
    """What classes count with; PyTorch does not differentiate by it."""
    return np.linspace(0.5, 1.5, c)


def weights_like(x: Any) -> Any:
    return rlx.astype(weights(x.shape[-1]), x.dtype)


def torch_weights(x: Any) -> Any:
    return torch.as_tensor(weights(x.shape[-1]), dtype=x.dtype)


def spread(d: Draw) -> Any:
    """Scores whose differences are nowhere near 1."""
    n, c = d.size(2, 5), d.size(2, 5)
    scores = d.elements.permuted(np.tile(np.arange(c), (n, 1)), axis=1) * 0.3
    return (d.rounded(scores), d.integers(c, (n,))), {"reduction": d.choice(REDUCTIONS)}


def divergent(second: Callable[[Draw, Any], Any]) -> Callable[[Draw], Any]:
    """The mean over elements is left out: PyTorch warns that it will mean another."""

    def cases(d: Draw) -> Any:
        arrays, _ = pairs(normal, second)(d)
        return arrays, {"reduction": d.choice(["batchmean", "sum", "none"])}

    return cases


def vectors(count: int) -> Callable[[Draw], Any]:
    def cases(d: Draw) -> Any:
        shape = (d.size(2, 4), d.size(3, 6))
        return tuple(d.normal(shape) for _ in range(count)), {}

    return cases


def reducing(cases: Callable[[Draw], Any], *more: Callable[[Draw, Any], Any]) -> Callable[[Draw], Any]:
    """The arrays of other cases, arrays of their rows, and a reduction."""

    def drawn(d: Draw) -> Any:
        arrays, attributes = cases(d)
        rows = [each(d, arrays[0].shape[:1]) for each in more]
        return (*arrays, *rows), {**attributes, "reduction": d.choice(REDUCTIONS)}

    return drawn


def unaligned(d: Draw) -> Any:
    n, t, c, most = d.size(1, 3), d.size(5, 8), d.size(2, 4), d.size(1, 3)
    lengths = d.integers(t + 1, (n,), low=5), d.integers(most + 1, (n,), low=1)
    return (d.normal((n, t, c)), d.integers(c, (n, most), low=1), *lengths), {"reduction": d.choice(REDUCTIONS)}


FAMILY = Family(
    "Losses",
    [
        Row("l1_loss", nn.l1_loss, pairs(apart, nothing), functional.l1_loss),
        Row(
            "huber_loss(delta=0.7)",
            lambda x, t, **a: nn.huber_loss(x, t, delta=0.7, **a),
            pairs(apart, nothing),
            lambda x, t, **a: functional.huber_loss(x, t, delta=0.7, **a),
        ),
        Row(
            "smooth_l1_loss(beta=0.7)",
            lambda x, t, **a: nn.smooth_l1_loss(x, t, beta=0.7, **a),
            pairs(apart, nothing),
            lambda x, t, **a: functional.smooth_l1_loss(x, t, beta=0.7, **a),
        ),
        Row(
            "mean_squared_error(reduction=)",
            nn.mean_squared_error,
            pairs(normal, normal),
            functional.mse_loss,
        ),
        Row("binary_cross_entropy", nn.binary_cross_entropy, pairs(share, share), functional.binary_cross_entropy),
        Row("kl_div", nn.kl_div, divergent(share), functional.kl_div),
        Row(
            "kl_div(log_target=True)",
            lambda x, t, **a: nn.kl_div(x, t, log_target=True, **a),
            divergent(normal),
            lambda x, t, **a: functional.kl_div(x, t, log_target=True, **a),
        ),
        Row(
            "poisson_nll_loss",
            lambda x, t, **a: nn.poisson_nll_loss(x, t, full=True, **a),
            pairs(normal, counts),
            lambda x, t, **a: functional.poisson_nll_loss(x, t, full=True, **a),
        ),
        Row(
            "gaussian_nll_loss",
            nn.gaussian_nll_loss,
            lambda d: (
                (lambda s: (d.normal(s), d.normal(s), d.floats(s, 0.3, 2.0)))(d.shape(2)),
                {"reduction": d.choice(REDUCTIONS)},
            ),
            functional.gaussian_nll_loss,
        ),
        Row("soft_margin_loss", nn.soft_margin_loss, pairs(normal, sides), functional.soft_margin_loss),
        Row(
            "hinge_embedding_loss",
            nn.hinge_embedding_loss,
            pairs(apart, sides),
            functional.hinge_embedding_loss,
        ),
        Row(
            "multilabel_soft_margin_loss",
            nn.multilabel_soft_margin_loss,
            pairs(normal, lambda d, s: d.integers(2, s)),
            functional.multilabel_soft_margin_loss,
        ),
        Row(
            "cross_entropy(weight=, label_smoothing=0.2)",
            lambda x, t, **a: nn.cross_entropy(
                x, t, weight=weights_like(x), label_smoothing=0.2, ignore_index=-100, **a
            ),
            ignoring,
            lambda x, t, **a: functional.cross_entropy(x, t, torch_weights(x), label_smoothing=0.2, **a),
            **LONG,
        ),
        Row(
            "nll_loss",
            lambda x, t, **a: nn.nll_loss(x, t, weight=weights_like(x), ignore_index=-100, **a),
            ignoring,
            lambda x, t, **a: functional.nll_loss(x, t, torch_weights(x), **a),
        ),
        Row(
            "multi_margin_loss",
            nn.multi_margin_loss,
            spread,
            functional.multi_margin_loss,
            lacks={("torch", "jvp"): "no forward mode there"},
        ),
        Row("cosine_similarity", nn.cosine_similarity, vectors(2), functional.cosine_similarity, **LONG),
        Row("pairwise_distance", nn.pairwise_distance, vectors(2), functional.pairwise_distance, **LONG),
        Row(
            "cosine_embedding_loss",
            nn.cosine_embedding_loss,
            reducing(vectors(2), sides),
            functional.cosine_embedding_loss,
            inexact={"torch": (2e-12, "PyTorch adds 1e-12 to squared lengths")},
            **LONG,
        ),
        Row(
            "triplet_margin_loss",
            lambda *x, **a: nn.triplet_margin_loss(*x, margin=9.0, swap=True, **a),
            reducing(vectors(3)),
            lambda *x, **a: functional.triplet_margin_loss(*x, margin=9.0, swap=True, **a),
            **LONG,
        ),
        Row(
            "ctc_loss(log_softmax(x), ..)",
            lambda x, *y, **a: nn.ctc_loss(rlx.log_softmax(x, axis=-1), *y, zero_infinity=True, **a),
            unaligned,
            lambda x, *y, **a: functional.ctc_loss(x.log_softmax(-1).transpose(0, 1), *y, zero_infinity=True, **a),
            note="steps are second here, first in PyTorch, whose gradient is right for what `log_softmax` made",
            lacks={("torch", question): "PyTorch has no such rule" for question in ("jvp", "batch")},
            slack=256,
            why="a sum over alignments, step by step",
        ),
        Row(
            "margin_ranking_loss",
            nn.margin_ranking_loss,
            lambda d: (
                (lambda n: (d.apart((n,), 0.21), d.rounded(d.elements.integers(0, 1, n)), sides(d, (n,))))(
                    d.size(2, 6)
                ),
                {"reduction": d.choice(REDUCTIONS)},
            ),
            functional.margin_ranking_loss,
        ),
    ],
)
