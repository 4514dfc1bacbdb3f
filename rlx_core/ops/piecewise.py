"""Piecewise functions: rounding, and the activations whose formula changes at a boundary.

At a boundary the derivative is that of the lower piece, by the order of the comparisons: `x <= edge` belongs to the lower
piece. NaN fails every comparison, so it must reach the piece that preserves it, in the value and in the derivative: the rule
derived from the formula would give NaN the derivative of the uppermost piece, so these functions define a rule.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from rlx_core.ir.apply import op_function
from rlx_core.ir.dtypes import FLOATS
from rlx_core.ir.graph import Value
from rlx_core.ir.op import ZERO, Kink, Zero, define_op, field
from rlx_core.ops.activation import expm1
from rlx_core.ops.kinds import UnaryFloat, composed, elementwise, scaled, unary_float_samples
from rlx_core.ops.samples import Rejected, Sample
from rlx_core.ops.selection import where
from rlx_core.ops.validators import number

_STEP = (Kink(1.0, takes="zero", gives=0.0),)

floor = elementwise("Floor", np.floor, ZERO, doc="The largest integer <= x.", is_smooth=False, kinks=_STEP)
ceil = elementwise("Ceil", np.ceil, ZERO, doc="The smallest integer >= x.", is_smooth=False, kinks=_STEP)
trunc = elementwise("Trunc", np.trunc, ZERO, doc="x without its fraction.", is_smooth=False, kinks=_STEP)


@define_op
class Round(UnaryFloat):
    """The nearest integer, halves to the even one.

    Attributes:
        ste: Straight-through estimator: the derivative is that of the identity, in both modes. Otherwise it is 0.
    """

    ste: bool = False
    exact_dtypes: ClassVar = FLOATS
    kinks: ClassVar = (Kink(0.5, takes="zero", gives=0.0),)

    def reference(self, x: np.ndarray) -> np.ndarray:
        return np.rint(x)

    def vjp(self, g: Value, x: Value, *, y: Value) -> tuple[Value | Zero, ...]:
        return (g if self.ste else ZERO,)

    def jvp(self, t: Sequence[Value | Zero], x: Value, *, y: Value) -> Value | Zero:
        return t[0] if self.ste else ZERO

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        yield from unary_float_samples(is_smooth=False)
        # With `ste` the derivative is declared, not computed: finite differences cannot check it.
        yield Sample("f32[5]", ste=True, is_smooth=False)


round = op_function(Round)


def _clipped(x: Value, low: float, high: float) -> Value:
    return where(x <= low, low, where(x > high, high, x))


def _slope_by_piece(x: Value, edges: Sequence[float], slopes: Sequence[Any]) -> Value:
    """Return the slope of the piece that contains x, at an edge the lower one's; for NaN the slope is NaN."""
    *lower, last = slopes
    result = where(x > edges[-1], last, x)
    for edge, slope in reversed(list(zip(edges, lower, strict=True))):
        result = where(x <= edge, slope, result)
    return result


class PiecewiseOp(UnaryFloat):
    """A piecewise function that has attributes; the subclass defines its value and its derivative."""

    @abstractmethod
    def derivative(self, x: Value, y: Value) -> Value:
        """Return dy/dx, from the operand and the result."""

    def vjp(self, g: Value, x: Value, *, y: Value) -> tuple[Value, ...]:
        return (scaled(g, self.derivative(x, y)),)

    def jvp(self, t: Sequence[Any], x: Value, *, y: Value) -> Value:
        return scaled(t[0], self.derivative(x, y), is_forward=True)


@define_op
class LeakyRelu(PiecewiseOp):
    """x where x > 0, slope · x elsewhere."""

    slope: float = 0.01
    kinks: ClassVar = (
        Kink(0.0, takes="lower", gives=0.01),
        Kink(0.0, takes="lower", gives=0.25, slope=0.25),
        Kink(0.0, takes="lower", gives=2.0, slope=2.0),
    )

    def decompose(self, x: Value) -> Value:
        return where(x <= 0, self.slope * x, x)

    def derivative(self, x: Value, y: Value) -> Value:
        return _slope_by_piece(x, (0.0,), (self.slope, 1))

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        yield from unary_float_samples()
        yield Sample("f32[5]", slope=0.2)


leaky_relu = op_function(LeakyRelu)


def _exponential_unit(x: Value, scale: float, width: float) -> Value:
    """Return scale · (e^(x/width) - 1) for x <= 0, x above."""
    # The operand is replaced above 0: e^x may overflow there, and infinity times 0 is NaN in the derivative.
    left = where(x <= 0, x, 0)
    return where(x <= 0, scale * expm1(left if width == 1 else left / width), x)


def _exponential_slope(x: Value, y: Value, scale: float, width: float, right: float = 1.0) -> Value:
    """Return scale/width · e^(x/width) for x <= 0, which is (y + scale)/width: NaN stays NaN without a further comparison."""
    left = y + scale
    return where(x > 0, right, left if width == 1 else left / width)


@define_op
class Elu(PiecewiseOp):
    """x where x > 0, alpha · (e^x - 1) elsewhere."""

    alpha: float = 1.0
    kinks: ClassVar = (Kink(0.0, takes="lower", gives=0.5, alpha=0.5),)

    def decompose(self, x: Value) -> Value:
        return _exponential_unit(x, self.alpha, 1.0)

    def derivative(self, x: Value, y: Value) -> Value:
        return _exponential_slope(x, y, self.alpha, 1.0)

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        yield from unary_float_samples()
        yield Sample("f32[5]", alpha=0.5)


elu = op_function(Elu)


@define_op
class Celu(PiecewiseOp):
    """x where x > 0, alpha · (e^(x/alpha) - 1) elsewhere: continuously differentiable for every alpha."""

    alpha: float = field(default=1.0, validator=number(0, is_open=True))

    def decompose(self, x: Value) -> Value:
        return _exponential_unit(x, self.alpha, self.alpha)

    def derivative(self, x: Value, y: Value) -> Value:
        return _exponential_slope(x, y, self.alpha, self.alpha)

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        yield from unary_float_samples()
        yield Sample("f32[5]", alpha=0.5)


celu = op_function(Celu)

# Klambauer et al. 2017, "Self-Normalizing Neural Networks", arXiv:1706.02515, appendix: the fixed point (0, 1).
SELU_ALPHA, SELU_SCALE = 1.6732632423543772, 1.0507009873554805

selu = composed(
    "Selu",
    lambda x: SELU_SCALE * _exponential_unit(x, SELU_ALPHA, 1.0),
    lambda x, y: _exponential_slope(x, y, SELU_SCALE * SELU_ALPHA, 1.0, SELU_SCALE),
    doc="λ · elu(x; α), with the λ and α that keep mean 0 and variance 1.",
    kinks=(Kink(0.0, takes="lower", gives=SELU_SCALE * SELU_ALPHA),),
)
relu6 = composed(
    "Relu6",
    lambda x: _clipped(x, 0.0, 6.0),
    lambda x, y: _slope_by_piece(x, (0.0, 6.0), (0, 1, 0)),
    doc="x clipped to 0 and 6; of -0.0 it is 0.0, as of relu.",
    low=0.5,
    high=5.5,
    kinks=(Kink(0.0, takes="lower", gives=0.0), Kink(6.0, takes="lower", gives=1.0)),
)
hard_tanh = composed(
    "HardTanh",
    lambda x: _clipped(x, -1.0, 1.0),
    lambda x, y: _slope_by_piece(x, (-1.0, 1.0), (0, 1, 0)),
    doc="x held between -1 and 1.",
    low=-0.9,
    high=0.9,
    kinks=(Kink(-1.0, takes="lower", gives=0.0), Kink(1.0, takes="lower", gives=1.0)),
)
hard_sigmoid = composed(
    "HardSigmoid",
    lambda x: _clipped(x + 3, 0.0, 6.0) / 6,
    lambda x, y: _slope_by_piece(x, (-3.0, 3.0), (0, 1 / 6, 0)),
    doc="(x + 3)/6 held between 0 and 1.",
    low=-2.5,
    high=2.5,
    kinks=(Kink(-3.0, takes="lower", gives=0.0), Kink(3.0, takes="lower", gives=1 / 6)),
)
hard_swish = composed(
    "HardSwish",
    lambda x: x * hard_sigmoid(x),
    lambda x, y: _slope_by_piece(x, (-3.0, 3.0), (0, x / 3 + 0.5, 1)),
    doc="x · hard_sigmoid(x).",
    low=-2.5,
    high=2.5,
    kinks=(Kink(-3.0, takes="lower", gives=0.0), Kink(3.0, takes="lower", gives=1.5)),
)
