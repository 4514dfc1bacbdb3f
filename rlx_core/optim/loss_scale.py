"""Loss scaling: multiply the loss by a large number, so that gradients in f16 do not vanish, and divide the gradients by it.

A scale that is a power of two does not round. A dynamic one is adapted during training: halved whenever a gradient overflows,
whose step is skipped, and doubled after many steps without overflow. A static one is constant; such steps are skipped, too.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import rlx_core as rlx
from rlx_core.errors import ConfigError
from rlx_core.hints.keywords import checked_call
from rlx_core.ops.arguments import whole
from rlx_core.optim.transformation import Transformation, transformation
from rlx_core.optim.trees import chosen, each, next_count
from rlx_core.optim.wrapping import all_finite
from rlx_core.system.records import frozen

__all__ = ["LossScaleState", "LossScaled", "dynamic_loss_scale", "static_loss_scale"]


class LossScaleState(NamedTuple):
    """The scale, f32; steps since it last changed; the total number of skipped steps; and the inner state."""

    scale: Any
    good_steps: Any
    skipped: Any
    inner_state: Any


@frozen
class LossScaled:
    """An optimiser that takes the gradients of a scaled loss; `rlx.train_step` scales the loss for it.

    Attributes:
        inner: The optimiser that receives the gradients divided by the scale.
        initial_scale, growth_interval, factor, min_scale, max_scale: See `dynamic_loss_scale`.
    """

    inner: Transformation
    initial_scale: float
    growth_interval: int
    factor: float
    min_scale: float
    max_scale: float

    def init(self, params: Any) -> LossScaleState:
        """The state for these parameters."""
        return LossScaleState(np.float32(self.initial_scale), np.int32(0), np.int32(0), self.inner.init(params))

    def loss_scale(self, state: LossScaleState) -> Any:
        """The factor to multiply the loss by before it is differentiated, f32."""
        return state.scale

    def update(self, grads: Any, state: LossScaleState, params: Any = None) -> tuple[Any, LossScaleState]:
        """Updates for gradients of the scaled loss: 0, with the inner state unchanged, if one of them is not finite."""
        is_finite = all_finite(grads)
        plain = each("dynamic_loss_scale", lambda g: g / rlx.astype(state.scale, g.dtype), grads)
        updates, inner_state = self.inner.update(plain, state.inner_state, params)
        grows = state.good_steps + np.int32(1) >= np.int32(self.growth_interval)
        larger = rlx.minimum(state.scale * self.factor, self.max_scale)
        smaller = rlx.maximum(state.scale / self.factor, self.min_scale)
        counted = rlx.where(grows, np.int32(0), state.good_steps + np.int32(1))
        return each("dynamic_loss_scale", lambda u: rlx.where(is_finite, u, 0.0), updates), LossScaleState(
            rlx.where(is_finite, rlx.where(grows, larger, state.scale), smaller),
            rlx.where(is_finite, counted, np.int32(0)),
            rlx.where(is_finite, state.skipped, next_count(state.skipped)),
            chosen(is_finite, inner_state, state.inner_state),
        )


@checked_call
def dynamic_loss_scale(
    inner: Transformation,
    initial_scale: float = 2.0**15,
    growth_interval: int = 2000,
    factor: float = 2.0,
    min_scale: float = 1.0,
    max_scale: float = 2.0**24,
) -> LossScaled:
    """`inner` for gradients of a loss that is multiplied by a scale, which is adapted during training.

    A step whose gradients are not all finite changes neither parameters nor the state of `inner`, and divides the scale by
    `factor`; after `growth_interval` steps without one the scale is multiplied by `factor`.

    Raises:
        ConfigError: The scales are not 0 < min <= initial <= max, or the factor is not above 1.

    Source:
        Micikevicius et al. 2018, "Mixed Precision Training", arXiv:1710.03740, section 3.2.
    """
    if not 0 < min_scale <= initial_scale <= max_scale:
        raise ConfigError(
            f"dynamic_loss_scale: min_scale {min_scale}, initial_scale {initial_scale} and max_scale {max_scale} "
            "must be above 0 and in this order"
        )
    if not factor > 1:
        raise ConfigError(f"dynamic_loss_scale: factor must be above 1, not {factor}")
    interval = whole("dynamic_loss_scale: growth_interval", growth_interval, least=1)
    part = transformation("dynamic_loss_scale", inner)
    return LossScaled(part, initial_scale, interval, factor, min_scale, max_scale)


@checked_call
def static_loss_scale(inner: Transformation, scale: float) -> LossScaled:
    """`inner` for gradients of a loss that is multiplied by a constant scale.

    A step whose gradients are not all finite changes neither parameters nor the state of `inner`; `skipped` of the state counts
    such steps.

    Raises:
        ConfigError: The scale is not above 0, or not a finite f32.

    Source:
        Micikevicius et al. 2018, "Mixed Precision Training", arXiv:1710.03740, section 3.2.
    """
    if not 0 < scale <= float(np.finfo(np.float32).max):
        raise ConfigError(f"static_loss_scale: scale must be above 0 and finite in f32, not {scale}")
    part = transformation("static_loss_scale", inner)
    return LossScaled(part, scale, 1, 2.0, scale, scale)
