"""Pools of all kinds, and images in other sizes."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import torch
from jax import lax

from rlx_core import nn

from ..rows import WIDE, Draw, Family, Row
from .convolutions import channels_first, channels_last

__all__ = ["FAMILY"]

functional = torch.nn.functional


def pooled(rank: int, *, is_choice: bool, has_dilation: bool, low: float = -2.0) -> Any:
    """Images whose windows have no ties where one element is chosen, with every attribute that PyTorch has too."""

    def cases(d: Draw) -> Any:
        kernel = d.shape(rank, 1, 3)
        dilation = d.shape(rank, 1, 2) if has_dilation else (1,) * rank
        spatial = [d.size((k - 1) * e + 1, 7) for k, e in zip(kernel, dilation, strict=True)]
        shape = (d.size(1, 2), d.size(1, 3), *spatial)
        attributes = {
            "kernel_size": kernel,
            "stride": d.shape(rank, 1, 3),
            "padding": tuple(d.size(0, k // 2) for k in kernel),
        }
        x = d.apart(shape) if is_choice else d.floats(shape, low, 2.0)
        return (x,), {**attributes, **({"dilation": dilation} if has_dilation else {})}

    return cases


def torch_max(rank: int) -> Any:
    pool = (functional.max_pool1d, functional.max_pool2d, functional.max_pool3d)[rank - 1]
    return lambda x, *, kernel_size, **a: pool(x, kernel_size, **a)


def jax_max(x: Any, *, kernel_size: Any, stride: Any, padding: Any) -> Any:
    pairs = [(0, 0), (0, 0), *((p, p) for p in padding)]
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, *kernel_size), (1, 1, *stride), pairs)


def torch_mean(rank: int, **more: Any) -> Any:
    pool = (functional.avg_pool1d, functional.avg_pool2d, functional.avg_pool3d)[rank - 1]
    return lambda x, *, kernel_size, **a: pool(x, kernel_size, **a, **more)


def jax_mean(x: Any, *, kernel_size: Any, stride: Any, padding: Any) -> Any:
    pairs = [(0, 0), (0, 0), *((p, p) for p in padding)]
    total = lax.reduce_window(x, 0.0, lax.add, (1, 1, *kernel_size), (1, 1, *stride), pairs)
    cells = 1
    for k in kernel_size:
        cells *= k
    return total / cells


def lp(d: Draw) -> Any:
    kernel = d.shape(2, 1, 3)
    return (d.floats((1, 2, *(d.size(k, 6) for k in kernel)), 0.2, 2.0),), {
        "kernel_size": kernel,
        "stride": d.shape(2, 1, 3),
    }


def adaptive(*, is_choice: bool) -> Any:
    def cases(d: Draw) -> Any:
        shape = (d.size(1, 2), d.size(1, 3), *d.shape(2, 1, 7))
        return (d.apart(shape) if is_choice else d.floats(shape),), {"sizes": d.shape(2, 1, 5)}

    return cases


def images(rank: int, layout: str = "nchw") -> Any:
    def cases(d: Draw) -> Any:
        n, c, spatial = d.size(1, 2), d.size(1, 3), d.shape(rank, 1, 6)
        x = d.normal((n, c, *spatial) if layout == "nchw" else (n, *spatial, c))
        return (x,), {"sizes": d.shape(rank, 1, 8)}

    return cases


def resized(ours: dict[str, Any], torch_mode: dict[str, Any] | None, rank: int, jax_: Any = None, **more: Any) -> Row:
    layout = ours.get("layout", "nchw")

    def theirs(x: Any, *, sizes: Any) -> Any:
        assert torch_mode is not None
        if layout == "nhwc":
            return channels_last(functional.interpolate(channels_first(x, rank), sizes, **torch_mode), rank)
        return functional.interpolate(x, sizes, **torch_mode)

    name = ", ".join(f"{key}={value!r}" for key, value in ours.items())
    return Row(
        f"resize({name}) of {rank} axes",
        lambda x, *, sizes: nn.resize(x, sizes, **ours),
        images(rank, layout),
        theirs if torch_mode is not None else None,
        jax_,
        **more,
    )


def jax_resize(method: str) -> Any:
    return lambda x, *, sizes: jax.image.resize(x, (*x.shape[:2], *sizes), method, antialias=False)


BORDERS = "JAX leaves out cells beyond the border and scales the rest; here, as in PyTorch, the border is repeated"

FAMILY = Family(
    "Pools and images",
    [
        *(
            Row(
                f"max_pool of {rank} axes",
                lambda x, **a: nn.max_pool(x, **a),
                pooled(rank, is_choice=True, has_dilation=False),
                torch_max(rank),
                jax_max,
            )
            for rank in (1, 2, 3)
        ),
        Row(
            "max_pool, dilated",
            lambda x, **a: nn.max_pool(x, **a),
            pooled(2, is_choice=True, has_dilation=True),
            torch_max(2),
            note="JAX has no reverse mode for it",
        ),
        Row(
            "min_pool",
            lambda x, **a: nn.min_pool(x, **a),
            pooled(2, is_choice=True, has_dilation=False),
            lambda x, **a: -torch_max(2)(-x, **a),
            lambda x, **a: -jax_max(-x, **a),
            note="the negative `max_pool` of negatives",
        ),
        *(
            Row(
                f"avg_pool of {rank} axes",
                lambda x, **a: nn.avg_pool(x, **a),
                pooled(rank, is_choice=False, has_dilation=False),
                torch_mean(rank),
                jax_mean,
            )
            for rank in (1, 2, 3)
        ),
        Row(
            "avg_pool(count_include_pad=False)",
            lambda x, **a: nn.avg_pool(x, count_include_pad=False, **a),
            pooled(2, is_choice=False, has_dilation=False),
            torch_mean(2, count_include_pad=False),
            None,
        ),
        Row(
            "lp_pool(p=2)",
            lambda x, *, kernel_size, stride: nn.lp_pool(x, 2.0, kernel_size, stride),
            lp,
            lambda x, *, kernel_size, stride: functional.lp_pool2d(x, 2.0, kernel_size, stride),
            None,
        ),
        Row(
            "adaptive_avg_pool",
            lambda x, *, sizes: nn.adaptive_avg_pool(x, sizes),
            adaptive(is_choice=False),
            lambda x, *, sizes: functional.adaptive_avg_pool2d(x, sizes),
        ),
        Row(
            "adaptive_max_pool",
            lambda x, *, sizes: nn.adaptive_max_pool(x, sizes),
            adaptive(is_choice=True),
            lambda x, *, sizes: functional.adaptive_max_pool2d(x, sizes),
        ),
        Row(
            "global_avg_pool",
            nn.global_avg_pool,
            lambda d: ((d.floats(d.shape(4)),), {}),
            lambda x: x.mean((2, 3), keepdim=True),
            lambda x: x.mean((2, 3), keepdims=True),
        ),
        resized({"method": "nearest"}, {"mode": "nearest-exact"}, 2, jax_resize("nearest")),
        resized({"method": "nearest", "coordinates": "asymmetric"}, {"mode": "nearest"}, 2, note="PyTorch's `nearest`"),
        resized({"method": "linear"}, {"mode": "linear"}, 1, jax_resize("linear")),
        resized({"method": "linear"}, {"mode": "bilinear"}, 2, jax_resize("linear")),
        resized({"method": "linear", "layout": "nhwc"}, {"mode": "bilinear"}, 2),
        resized({"method": "linear"}, {"mode": "trilinear"}, 3, jax_resize("linear")),
        resized({"method": "linear", "coordinates": "align-corners"}, {"mode": "bilinear", "align_corners": True}, 2),
        resized({"method": "cubic"}, {"mode": "bicubic"}, 2),
        resized({"method": "cubic", "coordinates": "align-corners"}, {"mode": "bicubic", "align_corners": True}, 2),
        Row(
            'resize(method="cubic", sharpness=-0.5)',
            lambda x, *, sizes: nn.resize(x, sizes, method="cubic", sharpness=-0.5),
            lambda d: ((d.normal((1, 2, 4, 5)),), {"sizes": (d.size(6, 9), d.size(6, 9))}),
            None,
            jax_resize("cubic"),
            dtypes=WIDE,
            differs={("jax", question): BORDERS for question in ("forward", "gradient", "jvp", "batch")},
        ),
        Row(
            "pixel_shuffle",
            lambda x: nn.pixel_shuffle(x, 2),
            lambda d: ((d.floats((1, 8, *d.shape(2, 1, 4))),), {}),
            lambda x: functional.pixel_shuffle(x, 2),
        ),
        Row(
            "pixel_unshuffle",
            lambda x: nn.pixel_unshuffle(x, 2),
            lambda d: ((d.floats((1, 2, 2 * d.size(1, 3), 2 * d.size(1, 3))),), {}),
            lambda x: functional.pixel_unshuffle(x, 2),
        ),
    ],
)
