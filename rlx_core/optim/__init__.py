"""Optimisers: gradient transformations that chain, and schedules for their rates.

    optimiser = rlx.optim.adamw(1e-3)
    state = optimiser.init(params)
    updates, state = optimiser.update(grads, state, params)
    params = rlx.optim.apply_updates(params, updates)

They are functions of arrays and pytrees, traced inside `rlx.jit` and evaluated immediately outside. `rlx.train_step` combines a
loss, its gradients and an update in one program.
"""

from typing import Any

from rlx_core.optim.adafactor import FactoredState, adafactor, scale_by_factored_rms, scale_by_param_block_rms
from rlx_core.optim.clipping import add_decayed_weights, clip, clip_by_block_rms, clip_by_global_norm, global_norm
from rlx_core.optim.loss_scale import LossScaled, LossScaleState, dynamic_loss_scale
from rlx_core.optim.masking import MaskedState, MultiTransformState, masked, multi_transform
from rlx_core.optim.numbers import Rate, Schedule
from rlx_core.optim.optimisers import adagrad, adam, adamw, lion, rmsprop, sgd
from rlx_core.optim.scaling import (
    AdamState,
    CenteredState,
    EmaState,
    LionState,
    MeanSquareState,
    ScheduleState,
    TraceState,
    ema,
    scale,
    scale_by_adam,
    scale_by_learning_rate,
    scale_by_lion,
    scale_by_rms,
    scale_by_rss,
    scale_by_schedule,
    scale_by_stddev,
    trace,
)
from rlx_core.optim.schedules import (
    constant_schedule,
    cosine_decay_schedule,
    exponential_decay,
    join_schedules,
    linear_schedule,
    piecewise_constant_schedule,
    polynomial_schedule,
    warmup_cosine_decay_schedule,
)
from rlx_core.optim.transformation import (
    EmptyState,
    GradientTransformation,
    Transformation,
    apply_updates,
    chain,
    identity,
    stateless,
)
from rlx_core.optim.wrapping import (
    ApplyIfFiniteState,
    InjectHyperparamsState,
    MultiStepsState,
    all_finite,
    apply_if_finite,
    inject_hyperparams,
    multi_steps,
)
from rlx_core.public import absent

__all__ = [
    "AdamState",
    "ApplyIfFiniteState",
    "CenteredState",
    "EmaState",
    "EmptyState",
    "FactoredState",
    "GradientTransformation",
    "InjectHyperparamsState",
    "LionState",
    "LossScaleState",
    "LossScaled",
    "MaskedState",
    "MeanSquareState",
    "MultiStepsState",
    "MultiTransformState",
    "Rate",
    "Schedule",
    "ScheduleState",
    "TraceState",
    "Transformation",
    "adafactor",
    "adagrad",
    "adam",
    "adamw",
    "add_decayed_weights",
    "all_finite",
    "apply_if_finite",
    "apply_updates",
    "chain",
    "clip",
    "clip_by_block_rms",
    "clip_by_global_norm",
    "constant_schedule",
    "cosine_decay_schedule",
    "dynamic_loss_scale",
    "ema",
    "exponential_decay",
    "global_norm",
    "identity",
    "inject_hyperparams",
    "join_schedules",
    "linear_schedule",
    "lion",
    "masked",
    "multi_steps",
    "multi_transform",
    "piecewise_constant_schedule",
    "polynomial_schedule",
    "rmsprop",
    "scale",
    "scale_by_adam",
    "scale_by_factored_rms",
    "scale_by_learning_rate",
    "scale_by_lion",
    "scale_by_param_block_rms",
    "scale_by_rms",
    "scale_by_rss",
    "scale_by_schedule",
    "scale_by_stddev",
    "sgd",
    "stateless",
    "trace",
    "warmup_cosine_decay_schedule",
]


def __getattr__(name: str) -> Any:
    raise absent(__name__, name, __all__)
