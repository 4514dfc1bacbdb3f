"""Norms, softmax and losses."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.special as jsp
import torch

import rlx_core as rlx
from rlx_core import nn

from ..rows import Draw, Family, Row

__all__ = ["FAMILY"]

functional = torch.nn.functional
LONG = {"slack": 64, "why": "a sum of squares and its root"}


def batch(layout: str = "nchw") -> Any:
    def cases(d: Draw) -> Any:
        c, spatial = d.size(1, 4), d.shape(d.size(0, 2), 1, 4)
        n = d.size(4, 6)
        x = d.normal((n, c, *spatial) if layout == "nchw" else (n, *spatial, c))
        rows = [d.floats((c,), low, high) for low, high in ((0.5, 2.0), (-1.0, 1.0), (-1.0, 1.0), (0.5, 2.0))]
        return (x, *rows), {"momentum": d.choice([0.1, 0.5])}

    return cases


def torch_batch_norm(x: Any, gamma: Any, beta: Any, mean: Any, var: Any, *, momentum: float) -> Any:
    # The running statistics are written in place there, and can therefore not be differentiated.
    axes = [0, *range(2, x.ndim)]
    y = functional.batch_norm(x, None, None, gamma, beta, training=True)
    new_mean = mean + momentum * (x.mean(axes) - mean)
    return y, new_mean, var + momentum * (x.var(axes, correction=1) - var)


def jax_batch_norm(x: Any, gamma: Any, beta: Any, mean: Any, var: Any, *, momentum: float) -> Any:
    axes = (0, *range(2, x.ndim))
    column = (-1, *(1,) * (x.ndim - 2))
    centred = x - x.mean(axes, keepdims=True)
    y = centred * jax.lax.rsqrt((centred * centred).mean(axes, keepdims=True) + 1e-5)
    new_mean = mean + momentum * (x.mean(axes) - mean)
    return y * gamma.reshape(column) + beta.reshape(column), new_mean, var + momentum * (x.var(axes, ddof=1) - var)


def jax_with_statistics(x: Any, gamma: Any, beta: Any, mean: Any, var: Any, *, momentum: float) -> Any:
    gamma, beta, mean, var = (row.reshape(-1, *(1,) * (x.ndim - 2)) for row in (gamma, beta, mean, var))
    return (x - mean) * jax.lax.rsqrt(var + 1e-5) * gamma + beta


def last_axis(d: Draw) -> Any:
    n = d.size(3, 9)
    return (d.normal((*d.shape(d.size(0, 2)), n)), d.floats((n,), 0.5, 2.0), d.normal((n,))), {}


def jax_layer_norm(x: Any, gamma: Any, beta: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt((centred * centred).mean(-1, keepdims=True) + 1e-5) * gamma + beta


def grouped(d: Draw) -> Any:
    groups = d.choice([1, 2, 3])
    c = groups * d.size(1, 3)
    # Of two elements the derivative is that of eps alone: what rounding leaves of larger numbers.
    shape = (d.size(1, 3), c, *d.shape(d.size(1, 2), 3, 4))
    return (d.normal(shape), d.floats((c,), 0.5, 2.0), d.normal((c,))), {"groups": groups}


def along(d: Draw) -> Any:
    rank = d.size(1, 3)
    return (d.floats(d.shape(rank), -3, 3),), {"axis": d.size(-rank, rank - 1)}


def labelled(d: Draw) -> Any:
    n, c = d.size(1, 6), d.size(2, 7)
    return (d.normal((n, c), 2.0), d.integers(c, (n,))), {"reduction": d.choice(["mean", "sum", "none"])}


def ignoring(d: Draw) -> Any:
    n, c = d.size(3, 6), d.size(2, 5)
    labels = d.integers(c, (n,))
    labels[1] = -100
    return (d.normal((n, c), 2.0), labels), {"reduction": d.choice(["mean", "sum", "none"])}


def jax_cross_entropy(x: Any, labels: Any, *, reduction: str) -> Any:
    losses = jsp.logsumexp(x, -1) - jnp.take_along_axis(x, labels[:, None], -1)[:, 0]
    return {"mean": jnp.mean, "sum": jnp.sum, "none": lambda x: x}[reduction](losses)


def jax_binary(x: Any, t: Any, *, reduction: str) -> Any:
    losses = -t * jax.nn.log_sigmoid(x) - (1 - t) * jax.nn.log_sigmoid(-x)
    return {"mean": jnp.mean, "sum": jnp.sum, "none": lambda x: x}[reduction](losses)


FAMILY = Family(
    "Norms and losses",
    [
        Row(
            "batch_norm",
            lambda x, gamma, beta, *statistics, momentum: nn.batch_norm(
                x, *statistics, weight=gamma, bias=beta, momentum=momentum
            ),
            batch(),
            torch_batch_norm,
            jax_batch_norm,
            note="the running statistics are results here",
            **LONG,
        ),
        Row(
            "batch_norm_inference",
            lambda x, gamma, beta, *statistics, momentum: nn.batch_norm_inference(
                x, *statistics, weight=gamma, bias=beta
            ),
            batch(),
            lambda x, gamma, beta, mean, var, *, momentum: functional.batch_norm(x, mean, var, gamma, beta),
            jax_with_statistics,
            note="`training=False` in PyTorch",
            lacks={
                ("torch", question): "PyTorch does not differentiate by the statistics"
                for question in ("gradient", "jvp")
            },
        ),
        Row(
            "layer_norm",
            nn.layer_norm,
            last_axis,
            lambda x, gamma, beta: functional.layer_norm(x, gamma.shape, gamma, beta),
            jax_layer_norm,
            asks=("dtype", "forward", "gradient", "jvp", "batch", "second"),
            **LONG,
        ),
        Row(
            "rms_norm",
            lambda x, gamma, beta: nn.rms_norm(x, gamma, beta),
            last_axis,
            lambda x, gamma, beta: functional.rms_norm(x, gamma.shape, gamma, 1e-6) + beta,
            lambda x, gamma, beta: x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6) * gamma + beta,
            note="eps is 1e-6 by default; PyTorch's default is the epsilon of the dtype",
            **LONG,
        ),
        Row(
            "group_norm",
            lambda x, gamma, beta, *, groups: nn.group_norm(x, groups, gamma, beta),
            grouped,
            lambda x, gamma, beta, *, groups: functional.group_norm(x, groups, gamma, beta),
            **LONG,
        ),
        Row(
            "instance_norm",
            lambda x, gamma, beta, *, groups: nn.instance_norm(x, gamma, beta),
            grouped,
            lambda x, gamma, beta, *, groups: functional.instance_norm(x, weight=gamma, bias=beta),
            **LONG,
        ),
        Row(
            "local_response_norm",
            lambda x, *, size: nn.local_response_norm(x, size, alpha=0.5, k=2.0),
            lambda d: ((d.normal((d.size(1, 3), d.size(3, 6), d.size(1, 4))),), {"size": d.size(1, 5)}),
            lambda x, *, size: functional.local_response_norm(x, size, alpha=0.5, k=2.0),
        ),
        Row("softmax", nn.softmax, along, lambda x, *, axis: x.softmax(axis), jax.nn.softmax),
        Row("log_softmax", nn.log_softmax, along, lambda x, *, axis: x.log_softmax(axis), jax.nn.log_softmax),
        Row("logsumexp", rlx.logsumexp, along, lambda x, *, axis: x.logsumexp(axis), jsp.logsumexp),
        Row(
            "cross_entropy",
            nn.cross_entropy,
            labelled,
            lambda x, labels, **a: functional.cross_entropy(x, labels, **a),
            jax_cross_entropy,
            note="classes are last here, second in PyTorch",
        ),
        Row(
            "cross_entropy(ignore_index=-100)",
            lambda x, labels, **a: nn.cross_entropy(x, labels, ignore_index=-100, **a),
            ignoring,
            lambda x, labels, **a: functional.cross_entropy(x, labels, **a),
            note="PyTorch's default",
        ),
        Row(
            "binary_cross_entropy_with_logits",
            nn.binary_cross_entropy_with_logits,
            lambda d: (
                (lambda shape: (d.normal(shape, 2.0), d.floats(shape, 0, 1)))(d.shape(2)),
                {"reduction": d.choice(["mean", "sum", "none"])},
            ),
            lambda x, t, **a: functional.binary_cross_entropy_with_logits(x, t, **a),
            jax_binary,
        ),
        Row(
            "mean_squared_error",
            nn.mean_squared_error,
            lambda d: ((lambda shape: (d.normal(shape), d.normal(shape)))(d.shape(2)), {}),
            functional.mse_loss,
            lambda x, t: jnp.mean((x - t) ** 2),
        ),
    ],
)
