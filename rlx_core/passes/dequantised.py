"""Values that are computed from codes, `(codes - zero point) · scale`: ONNX's DequantizeLinear, `dequantize_linear`."""

from __future__ import annotations

import numpy as np

from rlx_core.ir.dtypes import DType, f32, i8, u8
from rlx_core.ir.graph import Constant, Value
from rlx_core.ir.types import Shape
from rlx_core.ops.arithmetic import multiply, subtract
from rlx_core.ops.conversion import Cast
from rlx_core.ops.linalg import reshaped, swap_last
from rlx_core.ops.structural import Reshape
from rlx_core.passes.engine.fusion import both_orders
from rlx_core.system.records import frozen

MAX_TERMS = (2**31 - 1) // 255**2
"""Terms of a sum of products of codes less zero points that i32 holds exactly: 33,025."""


@frozen(eq=False)
class Dequantised:
    """A value as codes: `(codes - zero) · scale`.

    Attributes:
        codes: i8 or u8, of the shape of the value.
        zero: Integers in f32 that broadcast to the codes; `None` for 0.
        scale: f32, which broadcasts to the codes.
        is_transposed: Whether the value is the transpose of the matrix that these are for.
    """

    codes: Value
    zero: Value | None
    scale: Value
    is_transposed: bool = False

    @property
    def shape(self) -> Shape:
        """The shape of the value."""
        return self.codes.shape[::-1] if self.is_transposed else self.codes.shape

    def varies_along(self, *, columns: bool) -> bool:
        """Return whether zero points and scales are one number, or, if `columns`, one for each index of the last axis."""
        allowed = (1, self.shape[-1]) if columns else (1,)
        for value in (self.scale, self.zero):
            shape = () if value is None else value.shape
            if self.is_transposed:
                shape = ((1, *shape) if len(shape) == 1 else shape)[::-1]
            if any(d != 1 for d in shape[:-1]) or any(d not in allowed for d in shape[-1:]):
                return False
        return True

    def oriented(self, value: Value) -> Value:
        """Return codes, scales or zero points for the value itself."""
        return swap_last(value) if self.is_transposed and value.ndim == 2 else value


def scaled_codes(value: Value) -> Dequantised | None:
    """Return the codes, zero point and scale of a product `(codes - zero) · scale`, or `None` if a value is not one."""
    if not isinstance(value.node.op, multiply.op) or value.dtype is not f32:
        return None
    for x, scale in both_orders(value.node):
        zero: Value | None = None
        centred = unreshaped(x)
        if isinstance(centred.node.op, subtract.op):
            centred, zero = centred.node.present()
        codes = integers_of(unreshaped(centred))
        if codes is None or codes.dtype not in (i8, u8) or codes.shape != value.shape:
            continue
        if zero is None or is_zero_point(zero, codes.dtype):
            return Dequantised(codes, None if zero is None or is_zero(zero) else zero, scale)
    return None


def integers_of(value: Value) -> Value | None:
    """Return the integers of which a value is a cast, perhaps with other dims, or `None` if it is no cast of integers."""
    while isinstance(value.node.op, Reshape):
        (value,) = value.node.present()
    if not isinstance(value.node.op, Cast):
        return None
    (source,) = value.node.present()
    return source if source.dtype.is_integer else None


def unreshaped(value: Value) -> Value:
    """Return a value without reshapes that keep its shape."""
    while isinstance(value.node.op, Reshape):
        (source,) = value.node.present()
        if source.shape != value.shape:
            break
        value = source
    return value


def is_zero_point(value: Value, codes: DType) -> bool:
    """Return whether a value in f32 is a number of the dtype of codes, so that differences have at most nine bits."""
    integers, known = integers_of(value), number_of(value)
    if known is None:
        return integers is not None and integers.dtype is codes
    limits = np.iinfo(codes.numpy)
    return bool(np.all((known == np.rint(known)) & (known >= limits.min) & (known <= limits.max)))


def number_of(value: Value) -> np.ndarray | None:
    """Return the elements of a constant, perhaps cast or with other dims; `None` if they are not known."""
    while isinstance(value.node.op, Reshape | Cast):
        (value,) = value.node.present()
    return value.node.op.value.array if isinstance(value.node.op, Constant) else None


def is_zero(zero: Value) -> bool:
    """Return whether a zero point is known to be 0."""
    known = number_of(zero)
    return known is not None and not known.any()


def one_number(scale: Value) -> Value:
    """Return the scale of a whole tensor without axes."""
    return reshaped(scale, ())
