"""Products and convolutions."""

from __future__ import annotations

from string import ascii_letters
from typing import Any

import rlx_core as rlx
from rlx_core import nn
from rlx_jax.handlers.shapes import spread
from rlx_jax.walk import Equation, handles


@handles("dot_general")
def dot_general(equation: Equation, x: Any, y: Any) -> Any:
    """The product as an einsum: batch axes first, then the free axes of x, then those of y."""
    (of_x, of_y), (batch_x, batch_y) = equation["dimension_numbers"]
    letters = iter(ascii_letters)
    left = [next(letters) for _ in equation.operands[0].shape]
    right = [next(letters) for _ in equation.operands[1].shape]
    for i, j in zip((*of_x, *batch_x), (*of_y, *batch_y), strict=True):
        right[j] = left[i]
    remaining = [c for i, c in enumerate(left) if i not in (*of_x, *batch_x)]
    remaining += [c for j, c in enumerate(right) if j not in (*of_y, *batch_y)]
    out = "".join([left[i] for i in batch_x] + remaining)
    dtype = equation.results[0].dtype
    wide = [each if each.dtype == dtype else rlx.astype(each, dtype) for each in (x, y)]
    return rlx.einsum(f"{''.join(left)},{''.join(right)}->{out}", *wide)


@handles("conv_general_dilated")
def conv_general_dilated(equation: Equation, x: Any, w: Any) -> Any:
    numbers = equation["dimension_numbers"]
    x, w = rlx.permute_dims(x, numbers.lhs_spec), rlx.permute_dims(w, numbers.rhs_spec)
    for number, between in enumerate(equation["lhs_dilation"]):
        x = spread(x, 2 + number, between - 1, 0) if between > 1 else x
    groups = equation["feature_group_count"]
    if (parts := equation["batch_group_count"]) > 1:  # groups of the batch are groups of channels, side by side
        n, c, *space = x.shape
        separate = rlx.reshape(x, (parts, n // parts, c, *space))
        x, groups = rlx.reshape(rlx.moveaxis(separate, 0, 1), (n // parts, parts * c, *space)), parts
    result = nn.conv(
        x,
        w,
        stride=tuple(equation["window_strides"]),
        padding=[tuple(map(equation.sizes.size, each)) for each in equation["padding"]],
        dilation=tuple(equation["rhs_dilation"]),
        groups=groups,
    )
    order = [0] * len(numbers.out_spec)
    for number, axis in enumerate(numbers.out_spec):
        order[axis] = number
    return rlx.astype(rlx.permute_dims(result, tuple(order)), equation.results[0].dtype, copy=False)
