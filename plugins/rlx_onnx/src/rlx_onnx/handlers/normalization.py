"""Normalisations, each as rlx's own where there is one."""

from __future__ import annotations

from typing import Any

import rlx_core as rlx
from rlx_core.errors import FormatError
from rlx_core.ir.dtypes import dtype as dtype_of
from rlx_onnx.walking.node import OnnxNode
from rlx_onnx.walking.table import handles, rows


@handles("BatchNormalization")
def batch_norm(node: OnnxNode, x: Any, gamma: Any, beta: Any, mean: Any, var: Any) -> Any:
    """With given statistics; in training with those of the batch, and the given ones moved towards them."""
    eps = node.get("epsilon", 1e-5)
    if not node.get("training_mode", 0):
        dtype = dtype_of(x.dtype)
        gamma, beta, mean, var = (rlx.astype(each, dtype) for each in (gamma, beta, mean, var))
        return rlx.batch_norm_inference(x, mean, var, weight=gamma, bias=beta, eps=eps)
    axes = (0, *range(2, x.ndim))
    momentum = node.get("momentum", 0.9)
    centre, spread = rlx.mean(x, axis=axes), rlx.var(x, axis=axes)
    dims = (-1, *(1,) * (x.ndim - 2))
    centred = x - rlx.reshape(centre, dims)
    scaled = centred * rlx.rsqrt(rlx.reshape(spread, dims) + eps) * rlx.reshape(gamma, dims) + rlx.reshape(beta, dims)
    return scaled, mean * momentum + centre * (1 - momentum), var * momentum + spread * (1 - momentum)


@handles("LayerNormalization")
def layer_norm(node: OnnxNode, x: Any, scale: Any, bias: Any = None) -> Any:
    axis = node.get("axis", -1) % x.ndim
    eps = node.get("epsilon", 1e-5)
    dtype = dtype_of(x.dtype)
    if node.count == 1 and axis == x.ndim - 1 and scale.ndim == 1:
        zero = rlx.zeros(scale.shape, dtype=dtype_of(scale.dtype)) if bias is None else bias
        return rlx.layer_norm(x, scale, zero, eps=eps)
    axes = tuple(range(axis, x.ndim))
    wide = rlx.astype(x, rlx.f32) if dtype.is_narrow else x
    mean = rlx.mean(wide, axis=axes, keepdims=True)
    centred = wide - mean
    inverse = rlx.rsqrt(rlx.mean(centred * centred, axis=axes, keepdims=True) + eps)
    y = rlx.astype(rlx.astype(centred * inverse, dtype) * scale, dtype)
    return (y if bias is None else y + bias, mean, inverse)[: max(node.count, 1)]


@handles("RMSNormalization")
def rms_norm(node: OnnxNode, x: Any, scale: Any) -> Any:
    axis, eps = node.get("axis", -1) % x.ndim, node.get("epsilon", 1e-5)
    if axis == x.ndim - 1 and scale.ndim == 1 and dtype_of(x.dtype) is dtype_of(scale.dtype):
        return rlx.rms_norm(x, scale, rlx.zeros(scale.shape, dtype=dtype_of(scale.dtype)), eps=eps)
    axes = tuple(range(axis, x.ndim))
    wide = rlx.astype(x, rlx.f32) if dtype_of(x.dtype).is_narrow else x
    y = wide * rlx.rsqrt(rlx.mean(wide * wide, axis=axes, keepdims=True) + eps)
    return rlx.astype(rlx.astype(y, dtype_of(scale.dtype)) * scale, dtype_of(scale.dtype))


def by_groups(x: Any, scale: Any, bias: Any, groups: int, eps: float) -> Any:
    """Each group of channels normalised over its cells, then scaled and moved by channel."""
    n, c, *sizes = x.shape
    wide = rlx.astype(x, rlx.f32) if dtype_of(x.dtype).is_narrow else x
    separate = rlx.reshape(wide, (n, groups, -1))
    centred = separate - rlx.mean(separate, axis=-1, keepdims=True)
    normal = centred * rlx.rsqrt(rlx.mean(centred * centred, axis=-1, keepdims=True) + eps)
    normal = rlx.astype(rlx.reshape(normal, (n, c, *sizes)), dtype_of(x.dtype))
    dims = (c, *(1,) * len(sizes))
    return normal * rlx.reshape(scale, dims) + rlx.reshape(bias, dims)


rows(
    {
        "InstanceNormalization": lambda node, x, scale, bias: by_groups(
            x, scale, bias, x.shape[1], node.get("epsilon", 1e-5)
        ),
        "GroupNormalization": lambda node, x, scale, bias: by_groups(
            x, scale, bias, node.get("num_groups"), node.get("epsilon", 1e-5)
        ),
    }
)


@handles("MeanVarianceNormalization")
def mean_variance(node: OnnxNode, x: Any) -> Any:
    axes = tuple(node.get("axes", [0, 2, 3]))
    centred = x - rlx.mean(x, axis=axes, keepdims=True)
    return centred / (rlx.sqrt(rlx.mean(centred * centred, axis=axes, keepdims=True)) + 1e-9)


@handles("LpNormalization")
def lp_norm(node: OnnxNode, x: Any) -> Any:
    """x by its norm along an axis; 0 where that is 0."""
    axis = node.get("axis", -1)
    one = node.get("p", 2) == 1
    size = rlx.sum(rlx.abs(x), axis=axis, keepdims=True) if one else rlx.sqrt(rlx.sum(x * x, axis=axis, keepdims=True))
    return rlx.where(size == 0, rlx.zeros_like(x), x / rlx.where(size == 0, rlx.ones_like(size), size))


@handles("LRN")
def local_response(node: OnnxNode, x: Any) -> Any:
    """Each channel by a power of the mean square of the channels around it."""
    size = node.get("size")
    if not 0 < size <= 1024:
        raise FormatError(f"{node}: a size of {size} channels")
    alpha, beta, bias = node.get("alpha", 1e-4), node.get("beta", 0.75), node.get("bias", 1.0)
    low = (size - 1) // 2
    padded = rlx.pad(x * x, [(0, 0), (low, size - 1 - low)] + [(0, 0)] * (x.ndim - 2))
    total = sum(padded[:, i : i + x.shape[1]] for i in range(size))
    return x / rlx.pow(bias + alpha / size * total, beta)
