"""Transformations that bound gradients or add a decay of the parameters to them."""

from __future__ import annotations

from typing import Any

import rlx_core as rlx
from rlx_core.hints.keywords import checked_call
from rlx_core.optim.masking import Mask, masked
from rlx_core.optim.numbers import expect_positive
from rlx_core.optim.transformation import GradientTransformation, expect_params, stateless
from rlx_core.optim.trees import each, sum_of_squares

__all__ = ["add_decayed_weights", "clip", "clip_by_block_rms", "clip_by_global_norm", "global_norm"]


@checked_call
def global_norm(tree: Any) -> Any:
    """The Euclidean norm of all leaves as one vector."""
    return rlx.sqrt(sum_of_squares(tree))


@checked_call
def clip(max_delta: Any) -> GradientTransformation:
    """Clip every element to `-max_delta` … `max_delta`; NaN is preserved."""
    expect_positive("clip: max_delta", max_delta)
    return stateless(
        lambda grads, params: each("clip", lambda g: rlx.minimum(rlx.maximum(g, -max_delta), max_delta), grads)
    )


@checked_call
def clip_by_global_norm(max_norm: Any) -> GradientTransformation:
    """Scale all gradients by one factor, such that their global norm is at most `max_norm`.

    Source:
        Pascanu, Mikolov, Bengio 2013, "On the difficulty of training recurrent neural networks", algorithm 1.
    """
    expect_positive("clip_by_global_norm: max_norm", max_norm)

    def clipped(grads: Any, params: Any) -> Any:
        factor = max_norm / rlx.maximum(global_norm(grads), max_norm)  # exactly 1 up to the bound
        return each("clip_by_global_norm", lambda g: g * rlx.astype(factor, g.dtype, copy=False), grads)

    return stateless(clipped)


@checked_call
def clip_by_block_rms(threshold: Any) -> GradientTransformation:
    """Scale each leaf by a separate factor, such that its root mean square is at most `threshold`."""
    expect_positive("clip_by_block_rms: threshold", threshold)
    return stateless(
        lambda grads, params: each(
            "clip_by_block_rms",
            lambda g: g / rlx.maximum(rlx.sqrt(rlx.mean(g * g)) / threshold, 1.0),
            grads,
        )
    )


@checked_call
def add_decayed_weights(weight_decay: Any = 0.0, mask: Mask | None = None) -> GradientTransformation:
    """Gradients plus `weight_decay` times the parameters that `mask` selects."""

    def decayed(grads: Any, params: Any) -> Any:
        known = expect_params("add_decayed_weights", params)
        return each("add_decayed_weights", lambda g, p: g + weight_decay * p, grads, known)

    return stateless(decayed) if mask is None else masked(stateless(decayed), mask)
