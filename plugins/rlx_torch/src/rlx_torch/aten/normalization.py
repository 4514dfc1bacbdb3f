"""Normalisation over channels, groups and trailing axes, forward and backward."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import rlx_core as rlx
from rlx_core import nn
from rlx_core.ir.dims import Dim, product
from rlx_torch.aten.elementwise import convert
from rlx_torch.aten.promotion import as_value
from rlx_torch.aten.table import aten, rows


def pulled(forward: Any, g: Any, operands: Sequence[Any], mask: Sequence[bool] | None = None) -> tuple[Any, ...]:
    """Return the cotangents of operands that are present and selected; `None` for the others."""
    required = [i for i, x in enumerate(operands) if x is not None and (mask is None or mask[i])]

    def of_wanted(*values: Any) -> Any:
        arguments = dict(zip(required, values, strict=True))
        return forward(*(arguments.get(i, x) for i, x in enumerate(operands)))

    result = (
        dict(zip(required, rlx.vjp(of_wanted, *(operands[i] for i in required))[1](g), strict=True)) if required else {}
    )
    return tuple(result.get(i) for i in range(len(operands)))


def _wide(x: Any) -> Any:
    """In at least f32, in which statistics are kept."""
    return convert(x, rlx.f32) if x.dtype in (rlx.f16, rlx.bf16) else x


@aten("layer_norm")
def layer_norm(
    x: Any, shape: Sequence[Dim], weight: Any = None, bias: Any = None, eps: float = 1e-5, cudnn_enable: bool = True
) -> Any:
    return nn.layer_norm(x, weight, bias, axis=tuple(range(-len(shape), 0)), eps=eps)


@aten("native_layer_norm")
def native_layer_norm(x: Any, shape: Sequence[Dim], weight: Any, bias: Any, eps: float) -> Any:
    """The result, and the mean and 1/deviation of each row, in the dtype of the weight, as torch's CPU kernel has them."""
    axes = tuple(range(x.ndim - len(shape), x.ndim))
    wide, result_dtype = _wide(x), x.dtype if weight is None else weight.dtype
    mean = rlx.mean(wide, axis=axes, keepdims=True)
    rstd = rlx.rsqrt(rlx.var(wide, axis=axes, keepdims=True) + eps)
    return layer_norm(x, shape, weight, bias, eps), convert(mean, result_dtype), convert(rstd, result_dtype)


@aten("native_layer_norm_backward")
def native_layer_norm_backward(
    g: Any, x: Any, shape: Sequence[Dim], mean: Any, rstd: Any, weight: Any, bias: Any, mask: Sequence[bool]
) -> Any:
    """From the statistics that were kept: x̂ = (x - mean)·rstd and its derivative."""
    axes = tuple(range(x.ndim - len(shape), x.ndim))
    rows_ = tuple(range(x.ndim - len(shape)))
    wide, wide_g, mean, rstd = _wide(x), _wide(g), _wide(mean), _wide(rstd)
    x_hat = (wide - mean) * rstd
    g_hat = wide_g if weight is None else wide_g * _wide(weight)
    centred = g_hat - rlx.mean(g_hat, axis=axes, keepdims=True)
    of_x = rstd * (centred - x_hat * rlx.mean(g_hat * x_hat, axis=axes, keepdims=True))
    of_weight = convert(rlx.sum(wide_g * x_hat, axis=rows_) if rows_ else wide_g * x_hat, x.dtype)
    of_bias = rlx.sum(g, axis=rows_) if rows_ else g
    result = (convert(of_x, x.dtype), of_weight if weight is not None else None, of_bias if bias is not None else None)
    return tuple(each if required else None for each, required in zip(result, mask, strict=True))


@aten("rms_norm")
def rms_norm(x: Any, shape: Sequence[Dim], weight: Any = None, eps: float | None = None) -> Any:
    eps = rlx.finfo(x.dtype).eps if eps is None else eps
    return nn.rms_norm(x, weight, axis=tuple(range(-len(shape), 0)), eps=eps)


@aten("_fused_rms_norm")
def fused_rms_norm(x: Any, shape: Sequence[Dim], weight: Any, eps: float | None) -> Any:
    axes = tuple(range(x.ndim - len(shape), x.ndim))
    wide = _wide(x)
    eps_ = rlx.finfo(x.dtype).eps if eps is None else eps
    return rms_norm(x, shape, weight, eps), rlx.rsqrt(rlx.mean(wide * wide, axis=axes, keepdims=True) + eps_)


@aten("group_norm")
def group_norm(
    x: Any, groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5, cudnn_enabled: bool = True
) -> Any:
    return nn.group_norm(x, groups, weight, bias, eps=eps)


@aten("native_group_norm")
def native_group_norm(
    x: Any, weight: Any, bias: Any, n: Dim, channels: Dim, cells: Dim, groups: int, eps: float
) -> Any:
    """The result, and the mean and 1/deviation of each group, `[n, groups]`."""
    separate = rlx.reshape(_wide(x), (n, groups, (channels // groups) * cells))
    mean = rlx.mean(separate, axis=-1)
    rstd = rlx.rsqrt(rlx.var(separate, axis=-1) + eps)
    return group_norm(x, groups, weight, bias, eps), convert(mean, x.dtype), convert(rstd, x.dtype)


@aten("native_group_norm_backward")
def native_group_norm_backward(
    g: Any,
    x: Any,
    mean: Any,
    rstd: Any,
    weight: Any,
    n: Dim,
    channels: Dim,
    cells: Dim,
    groups: int,
    mask: Sequence[bool],
) -> Any:
    def apart(each: Any) -> Any:
        return rlx.reshape(_wide(each), (n, groups, channels // groups, cells))

    def of_groups(each: Any) -> Any:
        return rlx.reshape(_wide(each), (n, groups, 1, 1))

    x_hat = (apart(x) - of_groups(mean)) * of_groups(rstd)
    wide_g = apart(g)
    g_hat = wide_g if weight is None else wide_g * rlx.reshape(_wide(weight), (groups, channels // groups, 1))
    centred = g_hat - rlx.mean(g_hat, axis=(2, 3), keepdims=True)
    of_x = of_groups(rstd) * (centred - x_hat * rlx.mean(g_hat * x_hat, axis=(2, 3), keepdims=True))
    result = (rlx.reshape(of_x, x.shape), _of_channels(wide_g * x_hat, channels), _of_channels(wide_g, channels))
    return tuple(convert(each, x.dtype) if required else None for each, required in zip(result, mask, strict=True))


def _of_channels(x: Any, channels: Dim) -> Any:
    return rlx.reshape(rlx.sum(x, axis=(0, 3)), (channels,))


# ---------------------------------------------------------------------------------------------------- batch norm


def _channels(x: Any, like: Any) -> Any:
    """Return a per-channel value broadcastable to `like`, whose channels are axis 1."""
    return rlx.reshape(x, (x.shape[0], *[1] * (like.ndim - 2)))


def _others(x: Any) -> tuple[int, ...]:
    return (0, *range(2, x.ndim))


def _normalised(x: Any, weight: Any, bias: Any, mean: Any, var: Any, eps: float) -> Any:
    wide = _wide(x)
    scale, shift = (None if v is None else _wide(v) for v in (weight, bias))
    return convert(nn.batch_norm_inference(wide, _wide(mean), _wide(var), weight=scale, bias=shift, eps=eps), x.dtype)


@aten("_native_batch_norm_legit_no_training")
def batch_norm_eval(x: Any, weight: Any, bias: Any, mean: Any, var: Any, momentum: float, eps: float) -> Any:
    empty = rlx.zeros((0,), dtype=x.dtype)
    return _normalised(x, weight, bias, mean, var, eps), empty, empty


def _trained(x: Any, weight: Any, bias: Any, eps: float) -> tuple[Any, Any, Any]:
    """The result with the statistics of the batch, and these: mean and biased variance."""
    wide = _wide(x)
    mean, var = rlx.mean(wide, axis=_others(x)), rlx.var(wide, axis=_others(x))
    return _normalised(x, weight, bias, mean, var, eps), mean, var


def _moved(x: Any, running: Any, result: Any, momentum: float) -> Any:
    return convert(running * (1 - momentum) + convert(result, running.dtype) * momentum, running.dtype)


@aten("_native_batch_norm_legit_functional")
def batch_norm_functional(
    x: Any, weight: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: float, eps: float
) -> Any:
    """The result, the statistics that were used, and the running ones to go on with."""
    if not training:
        return *batch_norm_eval(x, weight, bias, mean, var, momentum, eps), mean, var
    y, result, biased = _trained(x, weight, bias, eps)
    cells = product([x.shape[axis] for axis in _others(x)])
    unbiased = biased * (as_value(cells, biased.dtype) / as_value(cells - 1, biased.dtype))
    rstd = rlx.rsqrt(biased + eps)
    return y, result, rstd, _moved(x, mean, result, momentum), _moved(x, var, unbiased, momentum)


@aten("_native_batch_norm_legit.no_stats")
def batch_norm_no_stats(x: Any, weight: Any, bias: Any, training: bool, momentum: float, eps: float) -> Any:
    y, mean, var = _trained(x, weight, bias, eps)
    return y, mean, rlx.rsqrt(var + eps)


rows(
    {
        "_native_batch_norm_legit native_batch_norm": lambda x, weight, bias, mean, var, training, momentum, eps: (
            batch_norm_no_stats(x, weight, bias, training, momentum, eps)
            if training
            else batch_norm_eval(x, weight, bias, mean, var, momentum, eps)
        ),
        "batch_norm": lambda x, weight, bias, mean, var, training, momentum, eps, cudnn_enabled=True: (
            _trained(x, weight, bias, eps)[0] if training else _normalised(x, weight, bias, mean, var, eps)
        ),
        "instance_norm": lambda x, weight, bias, mean, var, use_input_stats, momentum, eps, cudnn_enabled=True: (
            nn.group_norm(x, x.shape[1], weight, bias, eps=eps)
            if use_input_stats
            else _normalised(x, weight, bias, mean, var, eps)
        ),
    }
)


@aten("native_batch_norm_backward")
def native_batch_norm_backward(
    g: Any,
    x: Any,
    weight: Any,
    running_mean: Any,
    running_var: Any,
    save_mean: Any,
    save_rstd: Any,
    train: bool,
    eps: float,
    mask: Sequence[bool],
) -> Any:
    wide, wide_g = _wide(x), _wide(g)
    mean = save_mean if train else running_mean
    rstd = save_rstd if train else rlx.rsqrt(_wide(running_var) + eps)
    x_hat = (wide - _channels(_wide(mean), x)) * _channels(_wide(rstd), x)
    g_hat = wide_g if weight is None else wide_g * _channels(_wide(weight), x)
    if train:
        over: dict[str, Any] = {"axis": _others(x), "keepdims": True}
        g_hat = g_hat - rlx.mean(g_hat, **over) - x_hat * rlx.mean(g_hat * x_hat, **over)
    result = (
        g_hat * _channels(_wide(rstd), x),
        rlx.sum(wide_g * x_hat, axis=_others(x)),
        rlx.sum(wide_g, axis=_others(x)),
    )
    dtypes = (x.dtype, *[x.dtype if weight is None else weight.dtype] * 2)
    return tuple(convert(each, d) if required else None for each, d, required in zip(result, dtypes, mask, strict=True))
