"""Convolutions, forward and backward, and the windows that they read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import rlx_core as rlx
from rlx_core import nn
from rlx_torch.aten.context import refuse
from rlx_torch.aten.normalization import pulled
from rlx_torch.aten.table import aten, rows

Steps = int | Sequence[int]


def steps(values: Steps | None, axes: int) -> tuple[int, ...]:
    """One number an axis; torch writes a single one, or a list of one, for all."""
    listed = [values] if isinstance(values, int) else list(values or ())
    return tuple(listed * axes if len(listed) == 1 else listed)


def batched(function: Any, axes: int) -> Any:
    """A function of `[n, c, ..]` that also takes `[c, ..]`, as torch's layers do."""

    def lifted(x: Any, *args: Any, **named: Any) -> Any:
        if x.ndim == axes + 2:
            return function(x, *args, **named)
        result = function(rlx.expand_dims(x, axis=0), *args, **named)
        parts = result if isinstance(result, tuple) else (result,)
        single = (None if each is None else rlx.squeeze(each, axis=0) for each in parts)
        return tuple(single) if isinstance(result, tuple) else next(single)

    return lifted


@aten("convolution")
def convolution(
    x: Any,
    weight: Any,
    bias: Any,
    stride: Steps,
    padding: Steps,
    dilation: Steps,
    transposed: bool,
    output_padding: Steps,
    groups: int,
) -> Any:
    axes = weight.ndim - 2
    named: dict[str, Any] = {
        name: steps(values, axes) for name, values in (("stride", stride), ("padding", padding), ("dilation", dilation))
    }
    if x.dtype.kind == "complex":
        refuse("the convolutions of the real and the imaginary part")
    if transposed:
        return nn.conv_transpose(x, weight, bias, output_padding=steps(output_padding, axes), groups=groups, **named)
    return nn.conv(x, weight, bias, groups=groups, **named)


def _convolution_layer(axes: int) -> Any:
    def conv(
        x: Any, w: Any, b: Any = None, stride: Steps = 1, padding: Any = 0, dilation: Steps = 1, groups: int = 1
    ) -> Any:
        words: Any = padding if isinstance(padding, str) else steps(padding, axes)
        return nn.conv(
            x, w, b, stride=steps(stride, axes), padding=words, dilation=steps(dilation, axes), groups=groups
        )

    return batched(conv, axes)


def _transposed_layer(axes: int) -> Any:
    def conv_transpose(
        x: Any,
        w: Any,
        b: Any = None,
        stride: Steps = 1,
        padding: Steps = 0,
        output_padding: Steps = 0,
        groups: int = 1,
        dilation: Steps = 1,
    ) -> Any:
        return convolution(x, w, b, stride, padding, dilation, True, output_padding, groups)

    return batched(conv_transpose, axes)


for _axes in (1, 2, 3):
    aten(f"conv{_axes}d", f"conv{_axes}d.padding")(_convolution_layer(_axes))
aten("conv_transpose1d", "conv_transpose2d.input", "conv_transpose3d.input")(
    lambda x, w, *rest: _transposed_layer(w.ndim - 2)(x, w, *rest)
)


@aten("convolution_backward")
def convolution_backward(
    g: Any,
    x: Any,
    weight: Any,
    bias_sizes: Sequence[int] | None,
    stride: Steps,
    padding: Steps,
    dilation: Steps,
    transposed: bool,
    output_padding: Steps,
    groups: int,
    mask: Sequence[bool],
) -> Any:
    def forward(x: Any, weight: Any) -> Any:
        return convolution(x, weight, None, stride, padding, dilation, transposed, output_padding, groups)

    of_x, of_weight = pulled(forward, g, (x, weight), mask[:2])
    return of_x, of_weight, rlx.sum(g, axis=(0, *range(2, g.ndim))) if mask[2] else None


@aten("im2col")
def im2col(x: Any, kernel: Steps, dilation: Steps, padding: Steps, stride: Steps) -> Any:
    unfold = batched(nn.unfold, 2)
    return unfold(x, steps(kernel, 2), stride=steps(stride, 2), padding=steps(padding, 2), dilation=steps(dilation, 2))


@aten("col2im")
def col2im(x: Any, size: Sequence[int], kernel: Steps, dilation: Steps, padding: Steps, stride: Steps) -> Any:
    fold = batched(nn.fold, 1)
    named = {"stride": steps(stride, 2), "padding": steps(padding, 2), "dilation": steps(dilation, 2)}
    return fold(x, tuple(size), steps(kernel, 2), **named)


rows(
    {
        "pixel_shuffle": lambda x, factor: batched(nn.pixel_shuffle, 2)(x, factor),
        "pixel_unshuffle": lambda x, factor: batched(nn.pixel_unshuffle, 2)(x, factor),
    }
)
