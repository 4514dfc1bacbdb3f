"""Adafactor: second moments of matrices, stored as one average per row and one per column.

The state of an n × m matrix is n + m numbers. The stored value of an axis is the mean over it, where the paper has the sum: the
quotient is the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

import rlx_core as rlx
from rlx_core.errors import ConfigError
from rlx_core.hints.keywords import checked_call
from rlx_core.ir.dtypes import dtype
from rlx_core.optim.clipping import add_decayed_weights, clip_by_block_rms
from rlx_core.optim.masking import Mask
from rlx_core.optim.numbers import Rate
from rlx_core.optim.scaling import ema, scale_by_learning_rate
from rlx_core.optim.transformation import GradientTransformation, chain, expect_params, identity, stateless
from rlx_core.optim.trees import each, next_count

__all__ = ["FactoredState", "adafactor", "scale_by_factored_rms", "scale_by_param_block_rms"]


class FactoredState(NamedTuple):
    """Steps taken, and for each leaf the mean squares per row and column, or all squares; the unused ones are empty arrays."""

    count: Any
    v_row: Any
    v_col: Any
    v: Any


def factored_axes(shape: Sequence[Any], smallest: int) -> tuple[int, int] | None:
    """Return the two largest axes of a shape, the largest last, if both have at least `smallest` elements."""
    sizes = [(s, i) for i, s in enumerate(shape)]
    if len(sizes) < 2:
        return None
    (second, a), (_, b) = sorted(sizes)[-2:]
    return (a, b) if second >= smallest else None


@checked_call
def scale_by_factored_rms(
    decay_rate: float = 0.8, min_dim_size_to_factor: int = 128, epsilon: float = 1e-30
) -> GradientTransformation:
    """`g / √v` of the average v of `g² + epsilon`, whose decay is `1 - step**-decay_rate`.

    For a leaf whose two largest axes have at least `min_dim_size_to_factor` elements, v is the product of its averages over one
    and over the other, divided by the average of both.
    """

    def axes(x: Any) -> tuple[int, int] | None:
        return factored_axes(x.shape, min_dim_size_to_factor)

    def init(params: Any) -> FactoredState:
        def mean_over(x: Any, which: int) -> Any:
            factored = axes(x)
            shape = (0,) if factored is None else [s for i, s in enumerate(x.shape) if i != factored[which]]
            return rlx.zeros(tuple(shape), dtype=dtype(x.dtype))

        return FactoredState(
            np.int32(0),
            each("init", lambda x: mean_over(x, 1), params),
            each("init", lambda x: mean_over(x, 0), params),
            each("init", lambda x: rlx.zeros((0,) if axes(x) else x.shape, dtype=dtype(x.dtype)), params),
        )

    def averaged(grads: Any, old: Any, count: Any, which: int | None) -> Any:
        """Return the averages over one of the factored axes, or those of leaves without factored axes."""

        def new(g: Any, v: Any) -> Any:
            factored = axes(g)
            if (factored is None) != (which is None):
                return v
            squares = g * g + epsilon
            now = squares if factored is None or which is None else rlx.mean(squares, axis=factored[which])
            decay = -rlx.expm1(-decay_rate * rlx.log(rlx.astype(count, g.dtype)))  # 1 - count**-decay_rate
            return decay * v + (1 - decay) * now

        return each("adafactor", new, grads, old)

    def update(grads: Any, state: FactoredState, params: Any = None) -> tuple[Any, FactoredState]:
        count = next_count(state.count)
        row, col, full = (
            averaged(grads, v, count, i) for v, i in ((state.v_row, 1), (state.v_col, 0), (state.v, None))
        )

        def scaled(g: Any, r: Any, c: Any, v: Any) -> Any:
            factored = axes(g)
            if factored is None:
                return g * rlx.rsqrt(v)
            a, b = factored
            rows = rlx.expand_dims(r, axis=b)  # without b; its mean over a is the mean of all
            columns = rlx.expand_dims(c, axis=a)
            return g * rlx.rsqrt(rows / rlx.mean(rows, axis=a, keepdims=True)) * rlx.rsqrt(columns)

        return each("adafactor", scaled, grads, row, col, full), FactoredState(count, row, col, full)

    return GradientTransformation(init, update)


@checked_call
def scale_by_param_block_rms(min_scale: float = 1e-3) -> GradientTransformation:
    """Each leaf's gradient times the root mean square of its parameter, or `min_scale` if that is larger."""

    def scaled(grads: Any, params: Any) -> Any:
        def by_size(g: Any, p: Any) -> Any:
            return g * rlx.maximum(rlx.sqrt(rlx.mean(p * p)), min_scale)

        return each("adafactor", by_size, grads, expect_params("adafactor", params))

    return stateless(scaled)


@checked_call
def adafactor(
    learning_rate: Rate | None = None,
    min_dim_size_to_factor: int = 128,
    decay_rate: float = 0.8,
    multiply_by_parameter_scale: bool = True,
    clipping_threshold: float | None = 1.0,
    momentum: float | None = None,
    weight_decay_rate: float | None = None,
    eps: float = 1e-30,
    weight_decay_mask: Mask | None = None,
) -> GradientTransformation:
    """Adafactor.

    Args:
        learning_rate: The rate, or a schedule; by default the paper's `min(0.01, 1/√step)`.
        min_dim_size_to_factor: The minimum size of the two largest axes of leaves whose averages are factored.
        decay_rate: r in the decay `1 - step**-r` of the averages.
        multiply_by_parameter_scale: Whether the rate is relative to the parameters' root mean squares.
        clipping_threshold: The largest root mean square of a leaf's update before its rate, or none.
        momentum: The decay of an average of updates, or none.
        weight_decay_rate: The fraction by which a parameter decays per step, independent of the rate, or none.
        eps: Added to squared gradients.
        weight_decay_mask: Which parameters decay; all by default.

    Source:
        Shazeer, Stern 2018, "Adafactor: Adaptive Learning Rates with Sublinear Memory Cost", arXiv:1804.04235, algorithms 4 to 6.
    """
    if not 0 < decay_rate <= 1:
        raise ConfigError(f"adafactor: decay_rate must be above 0 and at most 1, not {decay_rate!r}")
    parts = [
        scale_by_factored_rms(decay_rate, min_dim_size_to_factor, eps),
        identity() if clipping_threshold is None else clip_by_block_rms(clipping_threshold),
        scale_by_learning_rate(relative_step if learning_rate is None else learning_rate),
        scale_by_param_block_rms() if multiply_by_parameter_scale else identity(),
        identity() if momentum is None else ema(momentum, debias=False),
        identity() if weight_decay_rate is None else add_decayed_weights(-weight_decay_rate, weight_decay_mask),
    ]
    return chain(*parts)


def relative_step(count: Any) -> Any:
    """Return the paper's rate, `min(0.01, 1/√step)`, where the first step is 1."""
    return rlx.minimum(rlx.rsqrt(rlx.astype(count, rlx.f32) + 1.0), 0.01)
