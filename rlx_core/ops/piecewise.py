"""Functions made of pieces: rounding, and the activations whose formula changes at a boundary.

At a boundary the derivative is that of the piece on its lower side, which the order of the comparisons says: `x <= edge` belongs
to the lower piece. NaN fails every comparison, so it must reach the piece that keeps it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from attrs.validators import gt

from rlx_core.ir.apply import op_function
from rlx_core.ir.graph import Value
from rlx_core.ir.op import ZERO, Zero, define_op, field
from rlx_core.ir.samples import Rejected, Sample
from rlx_core.ops.activation import expm1
from rlx_core.ops.kinds import UnaryFloat, composed, elementwise, unary_float_samples
from rlx_core.ops.selection import where

floor = elementwise("Floor", np.floor, ZERO, doc="The largest integer <= x.", is_smooth=False)
ceil = elementwise("Ceil", np.ceil, ZERO, doc="The smallest integer >= x.", is_smooth=False)
trunc = elementwise("Trunc", np.trunc, ZERO, doc="x without its fraction.", is_smooth=False)


@define_op
class Round(UnaryFloat):
    """The nearest integer, halves to the even one.

    Attributes:
        ste: Straight through: derivatives pass as if it were the identity, in both modes. Otherwise they are 0.
    """

    ste: bool = False

    def reference(self, x: np.ndarray) -> np.ndarray:
        return np.rint(x)

    def vjp(self, g: Value, x: Value, *, y: Value) -> tuple[Value | Zero, ...]:
        return (g if self.ste else ZERO,)

    def jvp(self, t: Sequence[Value | Zero], x: Value, *, y: Value) -> Value | Zero:
        return t[0] if self.ste else ZERO

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        yield from unary_float_samples(is_smooth=False)
        # With `ste` the derivative is declared, not computed: finite differences have nothing to say about it.
        yield Sample("f32[5]", ste=True, is_smooth=False)


round = op_function(Round)


def _clipped(x: Value, low: float, high: float) -> Value:
    return where(x <= low, low, where(x > high, high, x))


@define_op
class LeakyRelu(UnaryFloat):
    """x where x > 0, slope · x elsewhere."""

    slope: float = 0.01

    def decompose(self, x: Value) -> Value:
        return where(x <= 0, self.slope * x, x)

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        yield from unary_float_samples()
        yield Sample("f32[5]", slope=0.2)


leaky_relu = op_function(LeakyRelu)


def _exponential_unit(x: Value, scale: float, width: float) -> Value:
    """scale · (e^(x/width) - 1) on the left, x on the right."""
    # The right half's operand is replaced: e^x may overflow there, and infinity times 0 is NaN in the derivative.
    left = where(x <= 0, x, 0)
    return where(x <= 0, scale * expm1(left if width == 1 else left / width), x)


@define_op
class Elu(UnaryFloat):
    """x where x > 0, alpha · (e^x - 1) elsewhere."""

    alpha: float = 1.0

    def decompose(self, x: Value) -> Value:
        return _exponential_unit(x, self.alpha, 1.0)

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        yield from unary_float_samples()
        yield Sample("f32[5]", alpha=0.5)


elu = op_function(Elu)


@define_op
class Celu(UnaryFloat):
    """x where x > 0, alpha · (e^(x/alpha) - 1) elsewhere: continuously differentiable for every alpha."""

    alpha: float = field(default=1.0, validator=gt(0))

    def decompose(self, x: Value) -> Value:
        return _exponential_unit(x, self.alpha, self.alpha)

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
    doc="λ · elu(x; α), with the λ and α that keep mean 0 and variance 1.",
)
relu6 = composed("Relu6", lambda x: _clipped(x, 0.0, 6.0), doc="x held between 0 and 6.", low=0.5, high=5.5)
hard_tanh = composed("HardTanh", lambda x: _clipped(x, -1.0, 1.0), doc="x held between -1 and 1.", low=-0.9, high=0.9)
hard_sigmoid = composed(
    "HardSigmoid", lambda x: _clipped(x + 3, 0.0, 6.0) / 6, doc="(x + 3)/6 held between 0 and 1.", low=-2.5, high=2.5
)
hard_swish = composed("HardSwish", lambda x: x * hard_sigmoid(x), doc="x · hard_sigmoid(x).", low=-2.5, high=2.5)

OPS = (
    *(f.op for f in (floor, ceil, trunc, selu, relu6, hard_tanh, hard_sigmoid, hard_swish)),
    Round,
    LeakyRelu,
    Elu,
    Celu,
)
