"""Convolutions of one to three axes, forwards and transposed, and the windows that they are made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import torch
from jax import lax

from rlx_core import nn

from ..rows import Draw, Family, Row

__all__ = ["FAMILY", "channels_first", "channels_last", "window"]

functional = torch.nn.functional
AXES = "DHW"


def channels_last(x: Any, rank: int) -> Any:
    """`[n, c, ..]` as `[n, .., c]`, of any of the three libraries."""
    order = (0, *range(2, rank + 2), 1)
    return x.permute(order) if isinstance(x, torch.Tensor) else x.transpose(order)


def channels_first(x: Any, rank: int) -> Any:
    order = (0, rank + 1, *range(1, rank + 1))
    return x.permute(order) if isinstance(x, torch.Tensor) else x.transpose(order)


def window(d: Draw, rank: int, most: int = 3) -> tuple[tuple[int, ...], dict[str, Any]]:
    """A kernel's sizes, with strides, paddings and dilations."""
    return d.shape(rank, 1, most), {
        "stride": d.shape(rank, 1, 2),
        "padding": d.shape(rank, 0, 1),
        "dilation": d.shape(rank, 1, 2),
    }


def convolved(rank: int, layout: str, *, has_bias: bool = True) -> Any:
    """Images, kernels and a bias, with every attribute."""

    def cases(d: Draw) -> Any:
        groups = d.choice([1, 1, 2, 3])
        each, out = d.size(1, 3), d.size(1, 3)
        kernel, attributes = window(d, rank)
        spatial = [d.size((k - 1) * e + 1, 7) for k, e in zip(kernel, attributes["dilation"], strict=True)]
        n, c = d.size(1, 2), each * groups
        x = d.normal((n, c, *spatial) if layout == "nchw" else (n, *spatial, c))
        args = (x, d.normal((out * groups, each, *kernel)), *([d.normal((out * groups,))] if has_bias else []))
        return args, {**attributes, "groups": groups}

    return cases


def ours_conv(layout: str) -> Any:
    return lambda x, w, b=None, **attributes: nn.conv(x, w, b, layout=layout, **attributes)


def torch_conv(rank: int, layout: str) -> Any:
    conv = (functional.conv1d, functional.conv2d, functional.conv3d)[rank - 1]
    if layout == "nchw":
        return conv
    return lambda x, w, b=None, **attributes: channels_last(conv(channels_first(x, rank), w, b, **attributes), rank)


def jax_conv(rank: int, layout: str) -> Any:
    axes = AXES[3 - rank :]
    images = f"NC{axes}" if layout == "nchw" else f"N{axes}C"

    def function(x: Any, w: Any, b: Any = None, *, stride: Any, padding: Any, dilation: Any, groups: int) -> Any:
        y = lax.conv_general_dilated(
            x,
            w,
            stride,
            [(p, p) for p in padding],
            rhs_dilation=dilation,
            dimension_numbers=(images, f"OI{axes}", images),
            feature_group_count=groups,
        )
        return y if b is None else y + (b.reshape(-1, *[1] * rank) if layout == "nchw" else b)

    return function


def padded_same(d: Draw) -> Any:
    kernel, stride = d.shape(2, 1, 4), d.shape(2, 1, 3)
    x, w = d.normal((2, 3, *d.shape(2, 4, 8))), d.normal((2, 3, *kernel))
    return (x, w), {"stride": stride, "padding": d.choice(["same", "valid"])}


def jax_same(x: Any, w: Any, *, stride: Any, padding: str) -> Any:
    return lax.conv_general_dilated(x, w, stride, padding.upper())


def transposed(rank: int, layout: str) -> Any:
    def cases(d: Draw) -> Any:
        groups = d.choice([1, 1, 2])
        each, out = d.size(1, 3), d.size(1, 3)
        kernel = d.shape(rank, 2, 4)
        stride, dilation = d.shape(rank, 1, 3), d.shape(rank, 1, 2)
        more = tuple(d.size(0, max(s, e) - 1) for s, e in zip(stride, dilation, strict=True))
        spatial = d.shape(rank, 2, 4)
        n, m = d.size(1, 2), each * groups
        x = d.normal((n, m, *spatial) if layout == "nchw" else (n, *spatial, m))
        attributes = {
            "stride": stride,
            "padding": d.shape(rank, 0, 1),
            "output_padding": more,
            "dilation": dilation,
            "groups": groups,
        }
        return (x, d.normal((m, out, *kernel)), d.normal((out * groups,))), attributes

    return cases


def ours_transpose(layout: str) -> Any:
    return lambda x, w, b, **attributes: nn.conv_transpose(x, w, b, layout=layout, **attributes)


def torch_transpose(rank: int, layout: str) -> Any:
    name = (functional.conv_transpose1d, functional.conv_transpose2d, functional.conv_transpose3d)[rank - 1]
    if layout == "nchw":
        return name
    return lambda x, w, b, **attributes: channels_last(name(channels_first(x, rank), w, b, **attributes), rank)


def jax_transpose(rank: int) -> Any:
    """The convolution whose input is spread out by the stride, with the kernel turned around and its channels exchanged.

    The input is spread out by `lax.pad` and not by `lhs_dilation`: on that, in 3 axes, XLA's CPU code aborts for some sizes.
    """

    def function(
        x: Any, w: Any, b: Any, *, stride: Any, padding: Any, output_padding: Any, dilation: Any, groups: int
    ) -> Any:
        m, out, *kernel = w.shape
        turned = jnp.flip(w.reshape(groups, m // groups, out, *kernel), range(3, 3 + rank)).swapaxes(1, 2)
        ends = [e * (k - 1) - p for e, k, p in zip(dilation, kernel, padding, strict=True)]
        spread = [(0, 0, 0), (0, 0, 0), *((0, 0, s - 1) for s in stride)]
        y = lax.conv_general_dilated(
            lax.pad(x, jnp.zeros((), x.dtype), spread),
            turned.reshape(groups * out, m // groups, *kernel),
            (1,) * rank,
            [(end, end + more) for end, more in zip(ends, output_padding, strict=True)],
            rhs_dilation=dilation,
            feature_group_count=groups,
        )
        return y + b.reshape(-1, *[1] * rank)

    return function


def unfolded(d: Draw) -> Any:
    kernel, attributes = window(d, 2)
    spatial = [d.size((k - 1) * e + 1, 6) for k, e in zip(kernel, attributes["dilation"], strict=True)]
    return (d.normal((d.size(1, 2), d.size(1, 3), *spatial)),), {"kernel_size": kernel, **attributes}


def folded(d: Draw) -> Any:
    kernel, attributes = window(d, 2)
    sizes = [d.size((k - 1) * e + 1, 6) for k, e in zip(kernel, attributes["dilation"], strict=True)]
    each = zip(sizes, kernel, *(attributes[key] for key in ("stride", "padding", "dilation")), strict=True)
    windows = [(n + 2 * p - e * (k - 1) - 1) // s + 1 for n, k, s, p, e in each]
    x = d.normal((d.size(1, 2), d.size(1, 2) * kernel[0] * kernel[1], windows[0] * windows[1]))
    return (x,), {"output_size": tuple(sizes), "kernel_size": kernel, **attributes}


def torch_unfold(x: Any, *, kernel_size: Sequence[int], **attributes: Any) -> Any:
    return functional.unfold(x, kernel_size, **attributes)


def jax_unfold(x: Any, *, kernel_size: Any, stride: Any, padding: Any, dilation: Any) -> Any:
    pairs = [(p, p) for p in padding]
    y = lax.conv_general_dilated_patches(x, kernel_size, stride, pairs, rhs_dilation=dilation)
    return y.reshape(*y.shape[:2], -1)


WIDE_STEPS = {"slack": 128, "why": "a sum of many products"}
WEIGHTS = "a kernel is `[out, in/groups, ..]` in either layout, as PyTorch's is"


def gridded(d: Draw) -> Any:
    rank = d.choice([2, 3])
    n, c, sizes, wanted = d.size(1, 2), d.size(1, 3), d.shape(rank, 2, 4), d.shape(rank, 1, 3)
    return (d.normal((n, c, *sizes)), d.floats((n, *wanted, rank), -0.9, 0.9)), {
        "padding_mode": d.choice(["zeros", "border", "reflection"]),
        "align_corners": d.choice([False, True]),
    }


def torch_grid_sample(x: Any, grid: Any, *, padding_mode: str, align_corners: bool) -> Any:
    return torch.nn.functional.grid_sample(x, grid, "bilinear", padding_mode, align_corners)


FAMILY = Family(
    "Convolutions",
    [
        Row(
            "grid_sample",
            nn.grid_sample,
            gridded,
            torch_grid_sample,
            dtypes=("f64",),
            lacks={("torch", "jvp"): "no forward mode there"},
            note="`mode='linear'` is `mode='bilinear'` there",
        ),
        Row(
            "channel_shuffle",
            lambda x: nn.channel_shuffle(x, 2),
            lambda d: ((d.normal((d.size(1, 2), 2 * d.size(1, 3), *d.shape(2, 1, 3))),), {}),
            lambda x: torch.nn.functional.channel_shuffle(x, 2),
        ),
        *(
            Row(
                f"conv of {rank} axes, {layout}",
                ours_conv(layout),
                convolved(rank, layout),
                torch_conv(rank, layout),
                jax_conv(rank, layout),
                note=WEIGHTS if layout == "nhwc" else "",
                **WIDE_STEPS,
            )
            for rank in (1, 2, 3)
            for layout in ("nchw", "nhwc")
        ),
        Row(
            "conv, twice differentiated",
            ours_conv("nchw"),
            convolved(2, "nchw", has_bias=False),
            torch_conv(2, "nchw"),
            jax_conv(2, "nchw"),
            asks={"gradient", "second"},
            dtypes=("f64", "f32"),
            **WIDE_STEPS,
        ),
        Row(
            'conv(padding="same" or "valid")',
            lambda x, w, **a: nn.conv(x, w, **a),
            padded_same,
            None,
            jax_same,
            note='PyTorch\'s "same" takes no stride',
            **WIDE_STEPS,
        ),
        *(
            Row(
                f"conv_transpose of {rank} axes, {layout}",
                ours_transpose(layout),
                transposed(rank, layout),
                torch_transpose(rank, layout),
                jax_transpose(rank) if layout == "nchw" else None,
                note="`lax.conv_general_dilated` with `lhs_dilation` and the kernel reversed"
                if layout == "nchw"
                else "",
                **WIDE_STEPS,
            )
            for rank, layout in ((1, "nchw"), (2, "nchw"), (2, "nhwc"), (3, "nchw"))
        ),
        Row("unfold", lambda x, **a: nn.unfold(x, **a), unfolded, torch_unfold, jax_unfold),
        Row(
            "fold",
            lambda x, **a: nn.fold(x, **a),
            folded,
            lambda x, *, output_size, kernel_size, **a: functional.fold(x, output_size, kernel_size, **a),
            None,
        ),
    ],
)
