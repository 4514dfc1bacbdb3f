"""Distances, similarities, and losses with a margin between them. Operands broadcast; a target is 1 or -1."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlx_core.hints.keywords import checked_call
from rlx_core.nn.floats import floats, narrowed
from rlx_core.nn.losses.reducing import Reduction, at_least, checked, reduced
from rlx_core.ops.activation import softplus
from rlx_core.ops.arguments import flag, number
from rlx_core.ops.arithmetic import add, divide, maximum, minimum, multiply, negative, subtract
from rlx_core.ops.array_norms import vector_norm
from rlx_core.ops.array_statistics import sum
from rlx_core.ops.comparison import equal
from rlx_core.ops.selection import where

if TYPE_CHECKING:
    from rlx_core.typing import Array, ArrayLike

__all__ = [
    "cosine_embedding_loss",
    "cosine_similarity",
    "hinge_embedding_loss",
    "hinge_loss",
    "margin_ranking_loss",
    "pairwise_distance",
    "soft_margin_loss",
    "triplet_margin_loss",
]


@checked_call
def cosine_similarity(x1: ArrayLike, x2: ArrayLike, *, axis: int = -1, eps: float = 1e-8) -> Array:
    """The cosine of the angle between vectors along an axis: `x1·x2 / (max(|x1|, eps)·max(|x2|, eps))`."""
    least = at_least("cosine_similarity: eps", eps)
    result_dtype, (x, y) = floats("cosine_similarity", x1=x1, x2=x2)
    return narrowed(_cosine(x, y, axis, least), result_dtype)


@checked_call
def pairwise_distance(
    x1: ArrayLike, x2: ArrayLike, *, p: float = 2.0, eps: float = 1e-6, axis: int = -1, keepdims: bool = False
) -> Array:
    """The norm of `x1 - x2 + eps` along an axis; eps keeps the derivative finite where the vectors are equal.

    Args:
        x1, x2: Vectors along `axis`; the other axes broadcast.
        p: The order of the norm; see `rlx.linalg.vector_norm`.
        eps: Added to each difference.
        axis: The axis of the vectors.
        keepdims: Whether the axis stays, with size 1.
    """
    result_dtype, (x, y) = floats("pairwise_distance", x1=x1, x2=x2)
    power, shift = number("pairwise_distance: p", p), number("pairwise_distance: eps", eps)
    is_kept = flag("pairwise_distance: keepdims", keepdims)
    return narrowed(vector_norm(add(subtract(x, y), shift), axis=axis, ord=power, keepdims=is_kept), result_dtype)


@checked_call
def hinge_loss(predictions: ArrayLike, targets: ArrayLike, *, reduction: Reduction = "mean") -> Array:
    """`max(0, 1 - t·x)`, with a t of 1 or -1."""
    mode = checked("hinge_loss", reduction)
    result_dtype, (x, t) = floats("hinge_loss", predictions=predictions, targets=targets)
    return reduced(maximum(subtract(1.0, multiply(x, t)), 0.0), mode, result_dtype)


@checked_call
def soft_margin_loss(predictions: ArrayLike, targets: ArrayLike, *, reduction: Reduction = "mean") -> Array:
    """`ln(1 + e^(-t·x))`, with a t of 1 or -1."""
    mode = checked("soft_margin_loss", reduction)
    result_dtype, (x, t) = floats("soft_margin_loss", predictions=predictions, targets=targets)
    return reduced(softplus(negative(multiply(x, t))), mode, result_dtype)


@checked_call
def hinge_embedding_loss(
    distances: ArrayLike, targets: ArrayLike, *, margin: float = 1.0, reduction: Reduction = "mean"
) -> Array:
    """The distance of similar pairs (t = 1), and `max(0, margin - distance)` of dissimilar ones (t = -1)."""
    mode, wide = checked("hinge_embedding_loss", reduction), number("hinge_embedding_loss: margin", margin)
    result_dtype, (x, t) = floats("hinge_embedding_loss", distances=distances, targets=targets)
    return reduced(where(equal(t, 1), x, maximum(subtract(wide, x), 0.0)), mode, result_dtype)


@checked_call
def cosine_embedding_loss(
    a: ArrayLike, b: ArrayLike, targets: ArrayLike, *, margin: float = 0.0, reduction: Reduction = "mean"
) -> Array:
    """`1 - cos` of similar pairs (t = 1), and `max(0, cos - margin)` of dissimilar ones (t = -1); vectors are last.

    Shapes:
        a: f[.., d]    b: f[.., d]    targets: [..]    ->    [..], if not reduced
    """
    mode, wide = checked("cosine_embedding_loss", reduction), number("cosine_embedding_loss: margin", margin)
    result_dtype, (x, y, t) = floats("cosine_embedding_loss", a=a, b=b, targets=targets)
    cosine = _cosine(x, y, -1, 1e-8)
    return reduced(where(equal(t, 1), subtract(1.0, cosine), maximum(subtract(cosine, wide), 0.0)), mode, result_dtype)


@checked_call
def margin_ranking_loss(
    a: ArrayLike, b: ArrayLike, targets: ArrayLike, *, margin: float = 0.0, reduction: Reduction = "mean"
) -> Array:
    """`max(0, margin - t·(a - b))`: a should be the larger where t is 1, and b where it is -1."""
    mode, wide = checked("margin_ranking_loss", reduction), number("margin_ranking_loss: margin", margin)
    result_dtype, (x, y, t) = floats("margin_ranking_loss", a=a, b=b, targets=targets)
    return reduced(maximum(subtract(wide, multiply(t, subtract(x, y))), 0.0), mode, result_dtype)


@checked_call
def triplet_margin_loss(
    anchor: ArrayLike,
    positive: ArrayLike,
    negative: ArrayLike,
    *,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: bool = False,
    reduction: Reduction = "mean",
) -> Array:
    """`max(0, d(anchor, positive) - d(anchor, negative) + margin)`, with `pairwise_distance` over the last axis as d.

    Args:
        anchor, positive, negative: f[.., d].
        margin: The margin by which the negative should be further away.
        p, eps: Parameters of the distance.
        swap: Whether the distance from the positive to the negative is used where it is smaller.
        reduction: "mean" over rows, "sum", or "none".

    Source:
        Balntas, Riba, Ponsa, Mikolajczyk 2016, "Learning local feature descriptors with triplets", BMVC.
    """
    mode, wide = checked("triplet_margin_loss", reduction), number("triplet_margin_loss: margin", margin)
    result_dtype, (x, yes, no) = floats("triplet_margin_loss", anchor=anchor, positive=positive, negative=negative)
    near, negative_distance = (pairwise_distance(x, y, p=p, eps=eps) for y in (yes, no))
    if flag("triplet_margin_loss: swap", swap):
        negative_distance = minimum(negative_distance, pairwise_distance(yes, no, p=p, eps=eps))
    return reduced(maximum(add(subtract(near, negative_distance), wide), 0.0), mode, result_dtype)


def _cosine(x: Any, y: Any, axis: int, least: float) -> Any:
    lengths = [maximum(vector_norm(v, axis=axis), least) for v in (x, y)]
    return divide(sum(multiply(x, y), axis=axis), multiply(*lengths))
