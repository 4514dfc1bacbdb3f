"""Ops whose derivatives are wrong."""

from __future__ import annotations

import numpy as np

from rlx_core.ir.dtypes import INEXACT, bf16, f16
from rlx_core.ir.op import ZERO, Kink, Op, define_op
from rlx_core.ir.rules import CustomDerivative
from rlx_core.ir.types import expect_dtype
from rlx_core.ops.activation import tanh
from rlx_core.ops.conversion import cast
from rlx_core.ops.piecewise import floor
from rlx_core.ops.samples import Sample
from rlx_core.ops.selection import where
from seeded.seeds import Blend, Seeds, Square, Total

SEEDS = Seeds()
DIFFERENCES = "vjp_agrees_with_finite_differences"
TRANSPOSES = "vjp_and_jvp_are_transposes"
DERIVED = "own_rule_agrees_with_derived_rule"
SECOND = "second_derivative_agrees_with_differences_of_the_gradient"
DTYPES = "rules_are_the_same_in_every_dtype"
SYMBOLS = "symbolic_sizes_mean_the_same"
AT_KINKS = "derivatives_at_kinks_are_the_declared_ones"
BETWEEN_SIDES = "what_is_taken_at_a_kink_lies_between_the_sides"
REFUSED = "derivative_that_users_must_state_is_refused_with_the_reason"
AT_NAN = "derivative_at_nan_is_nan"


@SEEDS.op(DIFFERENCES, "by the vjp rule")
class ForgetsTheTwo(Square):
    def vjp(self, g, x, *, y):
        return (g * x,)


@SEEDS.op(DIFFERENCES, "by the vjp rule")
class WrongInBothModes(Square):
    """Each mode is the transpose of the other, and nothing is derived."""

    decompose = None

    def vjp(self, g, x, *, y):
        return (g * 2.001 * x,)

    def jvp(self, t, x, *, y):
        return t[0] * 2.001 * x


@SEEDS.op(DERIVED, "the vjp rule differs")
class ForgetsItBesideADecomposition(Square):
    def vjp(self, g, x, *, y):
        return (g * x,)


@SEEDS.op(DERIVED, "the jvp rule differs")
class PushesTheWrongWay(Square):
    def jvp(self, t, x, *, y):
        return t[0] * -2.0 * x


@SEEDS.op(REFUSED, "does not say who could state its derivative")
class LeavesUsersWithoutAWay(CustomDerivative, Square):
    decompose = vjp = jvp = None

    def why_unstated(self):
        return "nobody knows its derivative", ""


class Rectifier(Square):
    """max(x, 0), right but for what the seeds change."""

    kinks = (Kink(0.0, takes="lower", gives=0.0),)
    category = "elementwise"

    def reference(self, x):
        return np.where(x <= 0, 0, x)

    def decompose(self, x):
        return where(x <= 0, 0, x)

    def vjp(self, g, x, *, y):
        return (g * where(y > 0, 1, y),)

    def jvp(self, t, x, *, y):
        return t[0] * where(y > 0, 1, y)


@SEEDS.op(AT_KINKS, "the vjp rule in x")
class TakesTheUpperSide(Rectifier):
    def vjp(self, g, x, *, y):
        return (g * where(x >= 0, 1, y),)


@SEEDS.op(AT_KINKS, "the jvp rule in x")
class TakesTheUpperSideForwards(Rectifier):
    def jvp(self, t, x, *, y):
        return t[0] * where(x >= 0, 1, y)


@SEEDS.op(BETWEEN_SIDES, "which is not their mean")
class DeclaresAnotherSide(Rectifier):
    kinks = (Kink(0.0, takes="mean", gives=0.0),)


@SEEDS.op(BETWEEN_SIDES, "which is outside of both")
class DeclaresWhatIsOnNeitherSide(Rectifier):
    kinks = (Kink([0.0, 0.0], takes="shared", gives=[2.0, 2.0]),)


@SEEDS.op(AT_NAN, "where x is NaN the vjp rule in x gives 0.0")
class HasANumberForNaN(Rectifier):
    def vjp(self, g, x, *, y):
        return (where(x > 0, g, 0),)


@SEEDS.op(AT_NAN, "where x is NaN the jvp rule in x gives 1.0")
class HasANumberForNaNForwards(Rectifier):
    def jvp(self, t, x, *, y):
        return where(x <= 0, 0, t[0])


@SEEDS.op(TRANSPOSES, "are not transposes")
class PushesHalf(Square):
    decompose = None

    def jvp(self, t, x, *, y):
        return t[0] * x


@SEEDS.op(DIFFERENCES, "with respect to b is 0 by the vjp rule")
class NoDerivativeForTheSecond(Blend):
    def vjp(self, g, a, b, *, y):
        return super().vjp(g, a, b, y=y)[0], ZERO


@SEEDS.op(DIFFERENCES, "by the vjp rule")
class SwapsItsCotangents(Blend):
    decompose = None

    def vjp(self, g, a, b, *, y):
        of_a, of_b = super().vjp(g, a, b, y=y)
        return (of_b, of_a) if a.shape == b.shape else (of_a, of_b)


@SEEDS.op(TRANSPOSES, "with respect to a, b are not transposes")
class IgnoresTheSecondTangent(Blend):
    """Wrong only where both tangents are there."""

    decompose = None

    def jvp(self, t, a, b, *, y):
        return super().jvp((t[0], ZERO) if t[0] is not ZERO else t, a, b, y=y)


@SEEDS.op(TRANSPOSES, "Zero|ZERO|unsupported")
class NeedsEveryTangent(Blend):
    """Adds tangents that may be ZERO."""

    decompose = None

    def jvp(self, t, a, b, *, y):
        return t[0] * 1.0 + t[1] * 3.0


@SEEDS.op(DIFFERENCES, "cotangent|must|shape|broadcast")
class LeavesTheCotangentBroadcast(Blend):
    """Right for operands of like shapes alone."""

    decompose = None

    def vjp(self, g, a, b, *, y):
        return g, g * 3.0


@SEEDS.op(DTYPES, "the gradient by vjp in f16")
class AnotherGradientInHalves(Square):
    def vjp(self, g, x, *, y):
        return (g * (1.0 if x.dtype is f16 else 2.0) * x,)


@SEEDS.op(DTYPES, "the gradient by vjp in bf16")
class AnotherGradientInBrainFloats(Square):
    def vjp(self, g, x, *, y):
        return (g * (1.0 if x.dtype is bf16 else 2.0) * x,)


@SEEDS.op(TRANSPOSES, "are not transposes")
class ForgetsToConjugate(Square):
    """Right for real numbers, and it takes complex ones."""

    decompose = None

    def infer(self, x):
        expect_dtype("x", x, INEXACT)
        return x


@SEEDS.op(DIFFERENCES, "by the vjp rule")
class ResultForTheOperand(Square):
    def vjp(self, g, x, *, y):
        return (g * 2.0 * y,)


@SEEDS.op(DIFFERENCES, "by the vjp rule")
class RightForMatricesOnly(Square):
    def vjp(self, g, x, *, y):
        return (g * (2.0 if x.ndim == 2 else 3.0) * x,)


@SEEDS.op(DIFFERENCES, "is_smooth=False")
class SaysThatItIsSmooth(Square):
    """Steps, with the derivative of the line through them."""

    decompose = None

    def reference(self, x):
        return x.astype("i8").astype(x.dtype)

    def vjp(self, g, x, *, y):
        return (g,)

    def jvp(self, t, x, *, y):
        return t[0] * 1.0


@SEEDS.op(DIFFERENCES, "by the vjp rule")
class DifferentiatesAStep(Square):
    """Derived from `floor`, but for the rule that is its own."""

    reference = jvp = None

    def decompose(self, x):
        return x + floor(x)

    def vjp(self, g, x, *, y):
        return (g * 2.0,)


@SEEDS.op("gradient_is_close_to_its_float64_oracle", "loses more than rounding")
class RoundsItsGradient(Square):
    def vjp(self, g, x, *, y):
        return (cast(cast(g * 2.0 * x, to=f16), to=x.dtype),)


@SEEDS.op(SYMBOLS, "the gradient with symbols")
class TakesSymbolsForOnes(Square):
    def vjp(self, g, x, *, y):
        size = 1.0 if all(isinstance(d, int) for d in x.shape) else 2.0
        return (g * 2.0 * x * size,)


@SEEDS.op(DIFFERENCES, "by the vjp rule")
class ForgetsItsAttribute(Total):
    scale: float = 1.0

    def reference(self, x):
        return super().reference(x) * self.scale

    def decompose(self, x):
        return super().decompose(x) * self.scale

    def vjp(self, g, x, *, y):
        return (g.reshape((*x.shape[: self.axis], 1, *x.shape[self.axis + 1 :])) + x * 0.0,)

    @classmethod
    def samples(cls):
        yield Sample("f32[3, 2]", scale=2.0)


@define_op(domain="seed")
class Frozen(Op):
    """2x, declared to have another derivative."""

    def infer(self, x):
        return x

    def reference(self, x):
        return 2 * x

    def vjp(self, g, x, *, y):
        return (tanh(g),)

    def jvp(self, t, x, *, y):
        return tanh(t[0])


@SEEDS.op(SECOND, "by the vjp rule|not transposes")
class OnceOnly(Square):
    """The first derivative is right where it is evaluated, and has another derivative than it should."""

    decompose = None

    def vjp(self, g, x, *, y):
        return (g * Frozen()(x),)

    def jvp(self, t, x, *, y):
        return t[0] * Frozen()(x)
