"""Activations, softmax, dropout and losses."""

from __future__ import annotations

import math
from typing import Any

import rlx_core as rlx
from rlx_core import nn, random
from rlx_torch.aten.context import fresh_key
from rlx_torch.aten.elementwise import convert, is_exact, multiply
from rlx_torch.aten.promotion import as_value, floating, is_complex
from rlx_torch.aten.table import aten, rows


def _softmax(function: Any) -> Any:
    def over(x: Any, dim: int, half_to_float: Any = False, dtype: Any = None) -> Any:
        """`softmax(x, dim, dtype)` and `_softmax(x, dim, half_to_float)`, whose third parameters are two things."""
        required = half_to_float if half_to_float not in (False, True, None) else dtype
        x = convert(x, required or (rlx.f32 if half_to_float is True else floating(x).dtype))
        if not x.ndim:
            return rlx.reshape(function(rlx.reshape(x, (1,)), axis=0), ())
        return function(x, axis=dim % x.ndim)

    return over


@aten("elu")
def elu(x: Any, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Any:
    result = rlx.where(rlx.greater(x, as_value(0, x.dtype)), x, rlx.expm1(x * input_scale) * alpha)
    return result if scale == 1 else result * scale


@aten("hardtanh")
def hardtanh(x: Any, min_val: float = -1.0, max_val: float = 1.0) -> Any:
    """Between two bounds, at which the derivative is 0."""
    low, high = as_value(min_val, x.dtype), as_value(max_val, x.dtype)
    return rlx.where(rlx.less_equal(x, low), low, rlx.where(rlx.greater_equal(x, high), high, x))


@aten("softplus")
def softplus(x: Any, beta: float = 1.0, threshold: float = 20.0) -> Any:
    return rlx.where(rlx.greater(x * beta, as_value(threshold, x.dtype)), x, rlx.softplus(x, beta=float(beta)))


@aten("prelu", "_prelu_kernel")
def prelu(x: Any, weight: Any) -> Any:
    """x where it is positive, elsewhere times the weight of its channel."""
    if weight.ndim == 1 and x.ndim > 1:
        weight = rlx.reshape(weight, (weight.shape[0], *[1] * (x.ndim - 2)))
    elif weight.ndim == 1:
        weight = rlx.reshape(weight, () if not x.ndim else weight.shape)
    return rlx.where(rlx.greater(x, as_value(0, x.dtype)), x, x * weight)


@aten("threshold")
def threshold(x: Any, threshold: float, value: float) -> Any:
    return rlx.where(rlx.less_equal(x, as_value(threshold, x.dtype)), as_value(value, x.dtype), x)


@aten("logit")
def logit(x: Any, eps: float | None = None) -> Any:
    x = floating(x)
    if eps is not None:
        x = rlx.clip(x, as_value(eps, x.dtype), as_value(1 - eps, x.dtype))
    return rlx.log(x / (1 - x))


def _shrunk(x: Any, size: float, inside: Any) -> Any:
    return rlx.where(rlx.less_equal(rlx.abs(x), as_value(size, x.dtype)), as_value(0, x.dtype), inside)


rows(
    {
        "relu": lambda x: rlx.maximum(x, as_value(0, x.dtype)) if is_exact(x) else rlx.relu(x),
        "relu6": lambda x: hardtanh(x, 0, 6),
        "leaky_relu": lambda x, slope=0.01: rlx.leaky_relu(x, negative_slope=float(slope)),
        "silu": lambda x: x / (1 + rlx.exp(-x)) if is_complex(x) else rlx.silu(x),
        "mish": rlx.mish,
        "selu": rlx.selu,
        "celu": lambda x, alpha=1.0: rlx.celu(x, alpha=float(alpha)),
        "hardsigmoid": rlx.hard_sigmoid,
        "hardswish": rlx.hard_swish,
        "log_sigmoid": lambda x: -softplus(-x, threshold=math.inf),
        "softshrink": lambda x, lambd=0.5: _shrunk(x, lambd, x - rlx.sign(x) * lambd),
        "hardshrink": lambda x, lambd=0.5: _shrunk(x, lambd, x),
        "glu": lambda x, dim=-1: _gated(x, dim),
        "softmax.int _softmax": _softmax(rlx.softmax),
        "log_softmax.int _log_softmax": _softmax(rlx.log_softmax),
    }
)


def _gated(x: Any, dim: int) -> Any:
    value, gate = rlx.split(x, 2, axis=dim % x.ndim)
    return value * rlx.sigmoid(gate)


# ------------------------------------------------------------------------------------------------------- dropout


@aten("native_dropout", draws=True)
def native_dropout(x: Any, p: float, train: bool | None = True) -> Any:
    """Dropout with scaling, and the mask of kept elements."""
    if train is False or p == 0:
        return x, rlx.ones(x.shape, dtype=rlx.bool_)
    if p == 1:
        return rlx.zeros_like(x), rlx.zeros(x.shape, dtype=rlx.bool_)
    mask = random.bernoulli(fresh_key(), 1 - p, x.shape)
    return rlx.where(mask, x * (1 / (1 - p)), as_value(0, x.dtype)), mask


@aten("dropout", "feature_dropout_in_eval")
def dropout(x: Any, p: float, train: bool) -> Any:
    return native_dropout(x, p)[0] if train else x


# -------------------------------------------------------------------------------------------------------- losses


def _reduction(loss: Any, reduction: int) -> Any:
    """Torch's number for `none`, `mean` and `sum`."""
    return (loss, rlx.mean, rlx.sum)[reduction](loss) if reduction else loss


def _absolute_or_square(difference: Any, beta: float) -> Any:
    size = rlx.abs(difference)
    near = rlx.less(size, as_value(beta, size.dtype))
    return rlx.where(near, difference * difference * (0.5 / (beta or 1.0)), size - 0.5 * beta)


@aten("binary_cross_entropy_with_logits")
def bce_with_logits(x: Any, target: Any, weight: Any = None, pos_weight: Any = None, reduction: int = 1) -> Any:
    remaining = 1 if pos_weight is None else (pos_weight - 1) * target + 1
    loss = (1 - target) * x + remaining * softplus(-x, threshold=math.inf)
    return _reduction(loss if weight is None else loss * weight, reduction)


@aten("binary_cross_entropy")
def bce(x: Any, target: Any, weight: Any = None, reduction: int = 1) -> Any:
    least = as_value(-100.0, x.dtype)
    logs = (rlx.maximum(rlx.log(p), least) for p in (x, 1 - x))
    loss = -(target * next(logs) + (1 - target) * next(logs))
    return _reduction(loss if weight is None else loss * weight, reduction)


@aten("cross_entropy_loss")
def cross_entropy(
    x: Any, target: Any, weight: Any = None, reduction: int = 1, ignore_index: int = -100, label_smoothing: float = 0.0
) -> Any:
    axis = 1 if x.ndim > 1 else 0
    logs = rlx.log_softmax(x, axis=axis)
    if target.dtype.kind == "float":
        return _soft_cross_entropy(logs, target, weight, reduction, label_smoothing, axis)
    loss, share = _picked(logs, target, weight, ignore_index, axis)
    if label_smoothing:
        every = logs if weight is None else logs * _over_classes(weight, logs, axis)
        smooth = rlx.where(
            rlx.equal(target, as_value(ignore_index, target.dtype)), as_value(0, x.dtype), -rlx.sum(every, axis=axis)
        )
        even = label_smoothing / x.shape[axis]
        loss = loss * (1 - label_smoothing) + smooth * even
    if reduction == 1:
        return rlx.sum(loss) / rlx.sum(share)
    return _reduction(loss, reduction)


def _over_classes(weight: Any, logs: Any, axis: int) -> Any:
    return rlx.reshape(weight, (weight.shape[0], *[1] * (logs.ndim - axis - 1)))


def _soft_cross_entropy(logs: Any, target: Any, weight: Any, reduction: int, smoothing: float, axis: int) -> Any:
    if smoothing:
        target = target * (1 - smoothing) + smoothing / logs.shape[axis]
    each = logs * target if weight is None else logs * target * _over_classes(weight, logs, axis)
    loss = -rlx.sum(each, axis=axis)
    if reduction == 1:
        rows_ = loss.size if loss.ndim else 1
        return rlx.sum(loss) / as_value(rows_, loss.dtype)
    return _reduction(loss, reduction)


def _picked(logs: Any, target: Any, weight: Any, ignore_index: int, axis: int) -> tuple[Any, Any]:
    """-log p of each label times its weight, and that weight; both 0 where the label is ignored."""
    ignored = rlx.equal(target, as_value(ignore_index, target.dtype))
    labels = rlx.where(ignored, as_value(0, target.dtype), target)
    one = rlx.take_along_axis(logs, rlx.expand_dims(labels, axis=axis), axis=axis)
    share = rlx.ones(labels.shape, dtype=logs.dtype) if weight is None else rlx.take(weight, labels, axis=0)
    share = rlx.where(ignored, as_value(0, logs.dtype), share)
    result = rlx.squeeze(one, axis=axis)
    return rlx.where(ignored, as_value(0, logs.dtype), -result) * share, share


@aten("nll_loss_forward", "nll_loss2d_forward")
def nll_loss_forward(x: Any, target: Any, weight: Any, reduction: int, ignore_index: int) -> Any:
    """The loss, and the sum of weights that a mean divides by."""
    loss, share = _picked(x, target, weight, ignore_index, 1 if x.ndim > 1 else 0)
    full = rlx.sum(share)
    if reduction == 0:
        return loss, as_value(0.0, x.dtype)
    return rlx.sum(loss) / full if reduction == 1 else rlx.sum(loss), full


rows(
    {
        "mse_loss": lambda x, y, reduction=1: _reduction(rlx.square(x - y), reduction),
        "l1_loss": lambda x, y, reduction=1: _reduction(rlx.abs(x - y), reduction),
        "smooth_l1_loss": lambda x, y, reduction=1, beta=1.0: _reduction(_absolute_or_square(x - y, beta), reduction),
        "huber_loss": lambda x, y, reduction=1, delta=1.0: _reduction(
            _absolute_or_square(x - y, delta) * delta, reduction
        ),
        "_safe_softmax": lambda x, dim, dtype=None: rlx.softmax(
            convert(x, dtype or x.dtype), axis=dim % x.ndim, empty_row="zero"
        ),
        "gelu": lambda x, *, approximate="none": nn.gelu(x, approximate=approximate == "tanh"),
        "native_dropout_backward": lambda g, mask, scale: multiply(g, convert(mask, g.dtype)) * scale,
        "nll_loss_nd nll_loss nll_loss2d": lambda x, target, weight=None, reduction=1, ignore_index=-100: (
            nll_loss_forward(x, target, weight, reduction, ignore_index)[0]
        ),
    }
)
