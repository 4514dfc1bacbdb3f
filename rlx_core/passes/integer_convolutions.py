"""Convolutions of dequantised codes as convolutions of the codes, which are scaled afterwards.

Codes less their zero points are i16, so that cells of the padding are 0 and no sum has to be corrected; their sums in i32 are
exact. A bias in units of both scales is added to the sums, and the division by the scale of the result becomes part of their
scale: the arithmetic of ONNX's QLinearConv.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from attrs import evolve

from rlx_core.ir.dims import product
from rlx_core.ir.dtypes import DType, f32, i8, i16, i32, u8
from rlx_core.ir.graph import Graph, Node, Value, probe
from rlx_core.ir.rewrite import rebuild
from rlx_core.ops.activation import relu
from rlx_core.ops.arithmetic import add, divide, multiply, subtract
from rlx_core.ops.comparison import equal
from rlx_core.ops.conversion import Cast, as_dtype
from rlx_core.ops.convolution.conv import Conv
from rlx_core.ops.creation import scalar
from rlx_core.ops.floating import bits_as
from rlx_core.ops.linalg import MatMul, reshaped
from rlx_core.ops.piecewise import Round
from rlx_core.ops.selection import Clip, clip, where
from rlx_core.ops.structural import Reshape
from rlx_core.passes.dequantised import (
    MAX_TERMS,
    Dequantised,
    integers_of,
    is_zero,
    is_zero_point,
    number_of,
    one_number,
    scaled_codes,
    unreshaped,
)
from rlx_core.passes.engine.base import Context, Conversion, Result
from rlx_core.passes.engine.fusion import both_orders, refusal_of
from rlx_core.passes.engine.sweep import sweep
from rlx_core.system.records import frozen

NAME = "rlx.integer-products"

MAX_SCALE = 2.0**90
"""A scale below which no sum of scaled integers overflows."""

NEAREST = 1.5 * 2.0**23
"""A number whose sum with x, |x| < 2^22, is rounded to an integer, halves to the even one, which the lower bits then contain."""


def with_integer_convolutions(graph: Graph, context: Context) -> Result:
    """Return a graph with convolutions of codes, and an entry of the report for each convolution of dequantised codes."""
    factors = {n: f for n in graph.nodes if isinstance(n.op, Conv) and (f := factors_of(n)) is not None}
    reasons = {n: reason_against(n, context) for n in factors}
    entries = [entry_of(n, reasons[n]) for n in factors]
    converted = [n for n, reason in reasons.items() if reason is None]
    if not converted and not any(isinstance(n.op, Conv) and n.op.acc_dtype is i32 for n in graph.nodes):
        return Result(graph, graph.identity, conversions=entries)
    walk = Rewriting({n: factors[n] for n in converted})
    rebuilt, values = rebuild(graph, walk.replace, by=NAME)
    if not walk.is_changed:
        return Result(graph, graph.identity, conversions=entries)
    return Result(rebuilt, values, {"converted": len(converted)}, conversions=entries).then(sweep(rebuilt))


def factors_of(node: Node) -> tuple[Dequantised, Dequantised] | None:
    """Return both operands of a convolution as codes, x with one scale, w with one for each result; `None` if they are not."""
    x, w = node.present()
    if x.dtype is not f32 or not w.type.is_static:
        return None
    image, kernel = scaled_codes(unreshaped(x)), scaled_codes(unreshaped(w))
    if image is None or kernel is None or not image.varies_along(columns=False):
        return None
    for value in (kernel.scale, kernel.zero):
        shape = () if value is None else value.shape
        if any(d != 1 for d in shape[-w.ndim + 1 :]) or (len(shape) == w.ndim and shape[0] not in (1, w.shape[0])):
            return None
    return image, kernel


def reason_against(node: Node, context: Context) -> str | None:
    """Return why a convolution of dequantised codes stays one of f32; `None` if the codes are multiplied."""
    _, w = node.present()
    terms = product(w.type.static_shape[1:])
    if terms > MAX_TERMS:
        return f"i32 does not hold sums of {terms} products of codes"
    if context.target is None:
        return None
    types = [w.type.with_dtype(i16).with_shape(shape) for shape in ((8, terms), (terms, w.shape[0]))]
    refusal = refusal_of(context, probe(MatMul(acc_dtype=i32), types))
    if refusal is not None:
        return refusal.reason
    return None if i16 in context.target.fast_products else f"{context.target.name} multiplies f32 faster than i16"


def entry_of(node: Node, reason: str | None) -> Conversion:
    """Return the report's entry for a convolution."""
    x, w = node.present()
    nbytes = w.type.static_nbytes
    return Conversion(NAME, node.label, f"convolution {x.type} by {w.type}", reason, nbytes, nbytes // 2)


@frozen(eq=False)
class Scaled:
    """A value that is `integers · scale`.

    Attributes:
        integers: i32 or i16.
        scale: f32, which broadcasts to them.
        known: The elements of the scale; `None` if they are not known.
    """

    integers: Value
    scale: Value
    known: np.ndarray | None

    @property
    def value(self) -> Value:
        """The value in f32."""
        return as_dtype(self.integers, f32) * self.scale

    @property
    def is_finite(self) -> bool:
        """Whether the value is known to be no infinity and no NaN."""
        return self.known is not None and bool((np.abs(self.known) < MAX_SCALE).all())

    def over(self, steps: Value, known: np.ndarray) -> Scaled:
        """Return the value divided by a number."""
        return Scaled(
            self.integers,
            self.scale / one_number(steps),
            None if self.known is None else self.known / known.reshape(()),
        )


@frozen(eq=False)
class ScaledSum:
    """A value that is the sum of one or two scaled integers, or `relu` of it."""

    terms: tuple[Scaled, ...]
    is_rectified: bool = False

    @property
    def value(self) -> Value:
        """The value in f32."""
        first, *others = (term.value for term in self.terms)
        total = first + others[0] if others else first
        return relu(total) if self.is_rectified else total


class Rewriting:
    """One walk over a graph.

    Attributes:
        convolutions: The convolutions that are converted, with their operands.
        images: The codes that they read.
        differences: Codes and their zero point → the difference, in i16.
        read: Values of the new graph that are computed from differences, as codes.
        scaled: Values of the new graph that are scaled sums.
        is_changed: Whether a node has another value.
    """

    def __init__(self, convolutions: dict[Node, tuple[Dequantised, Dequantised]]) -> None:
        self.convolutions = convolutions
        self.images = {key_of(x) for x, _ in convolutions.values()}
        self.differences: dict[tuple[Value, object], Value] = {}
        self.read: dict[Value, Dequantised] = {}
        self.scaled: dict[Value, ScaledSum] = {}
        self.is_changed = False

    def replace(self, node: Node, operands: tuple[Value | None, ...]) -> Value | None:
        """Return the new value of a node; `None` for a copy."""
        value = self.replacement(node, [v for v in operands if v is not None])
        self.is_changed |= value is not None
        return value

    def replacement(self, node: Node, values: Sequence[Value]) -> Value | None:
        """Return the same from the operands that are not `None`."""
        if node in self.convolutions:
            return self.kept(ScaledSum((self.convolved(node, *values),)))
        if isinstance(node.op, Reshape) and values[0].shape == node.type.shape:
            return values[0]
        if isinstance(node.op, multiply.op):
            return self.read_again(node, values)
        if isinstance(node.op, Cast):
            return self.rounded(node, *values)
        if isinstance(node.op, subtract.op):
            return self.difference_of(node, *values)
        if not isinstance(node.op, (add.op, divide.op, relu.op)):
            return None
        followed = self.followed(node, values)
        return None if followed is None else self.kept(followed)

    def kept(self, scaled: ScaledSum) -> Value:
        """Return the value of scaled sums, and record it."""
        value = scaled.value
        self.scaled[value] = scaled
        return value

    def convolved(self, node: Node, x: Value, w: Value) -> Scaled:
        """Return a convolution of codes."""
        image, kernel = (self.read.get(unreshaped(v)) or scaled_codes(unreshaped(v)) for v in (x, w))
        assert image is not None and kernel is not None, "they are copies of those that were matched"  # noqa: PT018
        assert isinstance(node.op, Conv), "convolutions were matched"
        sums = evolve(node.op, acc_dtype=i32)(self.difference(image), self.difference(kernel))
        by_result = (-1, *(1,) * (w.ndim - 2))
        left, right = number_of(image.scale), number_of(kernel.scale)
        known = None if left is None or right is None else left.reshape(()) * right.reshape(by_result)
        scales = reshaped(kernel.scale, (product(kernel.scale.shape), *by_result[1:]))
        return Scaled(sums, one_number(image.scale) * scales, known)

    def difference(self, x: Dequantised) -> Value:
        """Return codes less their zero point, in i16."""
        key = key_of(x)
        if key not in self.differences:
            wide = as_dtype(x.codes, i16)
            self.differences[key] = wide if x.zero is None else wide - as_dtype(x.zero, i16)
        return self.differences[key]

    def difference_of(self, node: Node, x: Value, zero: Value) -> Value | None:
        """Return the difference of codes and their zero point that is computed already, or `None`."""
        if node.type.dtype is not i16 or (codes := integers_of(x)) is None:
            return None
        return self.differences.get(key_of(Dequantised(codes, zero, zero)))

    def rounded(self, node: Node, value: Value) -> Value | None:
        """Return codes that a value is rounded to, from their difference to the zero point; `None` for another cast."""
        match = rounding_of(node.type.dtype, value)
        if match is None:
            return None
        x, zero = match
        limits, number = np.iinfo(node.type.dtype.numpy), None if zero is None else number_of(zero)
        offset = 0 if number is None else int(number.item())
        low, high = (scalar(float(limit - offset), f32) for limit in (limits.min, limits.max))
        scaled = self.scaled.get(x)
        if scaled is None or not all(term.is_finite for term in scaled.terms):
            x = where(equal(x, x), x, scalar(float(-offset), f32))  # the code of a NaN is 0
        shifted = clip(x, low, high) + scalar(NEAREST, f32)
        difference = as_dtype(bits_as(shifted, of=f32, to=i32), i16)
        codes = as_dtype(difference + scalar(offset, i16) if offset else difference, node.type.dtype)
        self.differences[key_of(Dequantised(codes, zero, x))] = difference
        return codes

    def read_again(self, node: Node, values: Sequence[Value]) -> Value | None:
        """Return dequantised codes whose difference to the zero point is computed anyway: the codes are then not stored."""
        before = scaled_codes(next(iter(node.results)))
        again = None if before is None else scaled_codes(node.op(*values))
        if before is None or again is None:
            return None
        if key_of(before) not in self.images and key_of(again) not in self.differences:
            return None
        value = self.kept(ScaledSum((Scaled(self.difference(again), again.scale, number_of(again.scale)),)))
        self.read[value] = again
        return value

    def followed(self, node: Node, values: Sequence[Value]) -> ScaledSum | None:
        """Return a scaled sum after a bias in its units, another scaled sum, relu, or the division by a positive number; `None`
        for other steps."""
        scaled = self.scaled.get(values[0])
        if isinstance(node.op, add.op):
            return self.added(*values) or self.added(*values[::-1])
        if scaled is None:
            return None
        if isinstance(node.op, relu.op):
            return evolve(scaled, is_rectified=True)
        steps = number_of(values[1])
        if steps is None or steps.size != 1 or not 1 / MAX_SCALE < steps.item() < MAX_SCALE:
            return None
        return evolve(scaled, terms=tuple(term.over(values[1], steps) for term in scaled.terms))

    def added(self, x: Value, other: Value) -> ScaledSum | None:
        """Return the sum of a scaled integer and a bias or another one; `None` for other values."""
        left, right = self.scaled.get(x), self.scaled.get(other)
        if left is None or left.is_rectified or len(left.terms) > 1:
            return None
        (term,) = left.terms
        if right is not None:
            is_sum = not right.is_rectified and len(right.terms) == 1
            return ScaledSum((term, *right.terms)) if is_sum else None
        codes = bias_of(other, term)
        return None if codes is None else ScaledSum((evolve(term, integers=term.integers + codes),))


def rounding_of(codes: DType, value: Value) -> tuple[Value, Value | None] | None:
    """Return the f32 and the zero point of `clip(round(x) + zero, min, max)` of codes of a dtype, cast to i32; `None` for another
    value."""
    if codes not in (i8, u8) or not isinstance(value.node.op, Cast) or value.dtype is not i32:
        return None
    (clipped,) = value.node.present()
    if not isinstance(clipped.node.op, Clip) or clipped.dtype is not f32:
        return None
    moved, *bounds = clipped.node.present()
    limits, known = np.iinfo(codes.numpy), [number_of(v) for v in bounds]
    if [None if n is None or n.size != 1 else n.item() for n in known] != [limits.min, limits.max]:
        return None
    zero = None
    if isinstance(moved.node.op, add.op):
        moved, zero = moved.node.present()
        if (number := number_of(zero)) is None or number.size != 1 or not is_zero_point(zero, codes):
            return None
    if not isinstance(moved.node.op, Round):
        return None
    (x,) = moved.node.present()
    return (x, zero) if x.shape == clipped.shape else None


def key_of(x: Dequantised) -> tuple[Value, object]:
    """Return codes and their zero point, equal for equal numbers."""
    if x.zero is None:
        return x.codes, 0
    known = number_of(x.zero)
    return x.codes, x.zero if known is None or known.size != 1 else int(known.item())


def bias_of(value: Value, scaled: Scaled) -> Value | None:
    """Return the integers of a bias whose units are those of the sums, `codes · scale`; `None` if it is another value."""
    shape = value.shape
    if scaled.integers.dtype is not i32 or scaled.known is None:
        return None
    while isinstance(value.node.op, Reshape):
        (value,) = value.node.present()
    if not isinstance(value.node.op, multiply.op):
        return None
    for x, scale in both_orders(value.node):
        codes = unreshaped(x)
        if isinstance(codes.node.op, subtract.op):
            codes, zero = codes.node.present()
            if not is_zero(zero):
                continue
        integers, units = integers_of(codes), number_of(scale)
        if integers is None or integers.dtype is not i32 or units is None:
            continue
        sizes = {units.size, scaled.known.size} - {1, integers.type.size}
        if not sizes and bool(np.all(units.ravel() == scaled.known.ravel())):
            return reshaped(integers, shape)
    return None
