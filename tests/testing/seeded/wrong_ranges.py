"""Faults outside the samples: a table of patches, each of one method of an op that is right (see `test_seeded.py`).

The kinds are tails, special values, many elements, batches of 1 and 5, omitted operands, gradients in a batch, one narrow dtype.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rlx_core import ops
from rlx_core.ir.dtypes import FLOATS, bf16, f16
from rlx_core.ir.op import Op, define_op
from rlx_core.ir.types import TensorType, expect_dtype
from rlx_core.ops import exp, log, where
from rlx_core.ops.activation import tanh
from rlx_core.ops.samples import Sample
from seeded.seeds import Blend, Seeds, Square, Total

SEEDS = Seeds()
TAILS = "decomposition_means_the_same_in_the_tails"
SPECIAL = "decomposition_means_the_same_at_special_values"
MANY = "decomposition_means_the_same_of_many_elements"
SLOPES = "derivatives_agree_in_the_tails"
BATCHED = "vmap_of_the_gradient_agrees_with_a_loop"
VMAP = "vmap_agrees_with_a_loop"
DTYPES = "rules_are_the_same_in_every_dtype"


class Curve(Op):
    """An element-wise function of one operand."""

    category = "elementwise"

    def infer(self, x: TensorType) -> TensorType:
        expect_dtype("x", x, FLOATS, "a float")
        return x

    @classmethod
    def samples(cls):
        yield Sample("f32[3, 2]")


@define_op(domain="seed")
class Softsign(Curve):
    """x / (1 + |x|)."""

    def reference(self, x):
        return np.where(np.isinf(x), np.sign(x) * np.nan, x / (1 + np.abs(x)))

    def decompose(self, x):
        return x / (1.0 + abs(x))


@define_op(domain="seed")
class Bend(Curve):
    """tanh(x), with both derivatives."""

    def reference(self, x):
        return np.tanh(x)

    def decompose(self, x):
        return tanh(x)

    def vjp(self, g, x, *, y):
        return (g * (1.0 - y * y),)

    def jvp(self, t, x, *, y):
        return t[0] * (1.0 - y * y)


@define_op(domain="seed")
class Ramp(Curve):
    """max(x, 0)."""

    def reference(self, x):
        return np.maximum(x, 0) + 0.0

    def decompose(self, x):
        return ops.maximum(x, 0.0) + 0.0


@define_op(domain="seed")
class Turn(Curve):
    """-x."""

    def reference(self, x):
        return -x

    def decompose(self, x):
        return -x


@define_op(domain="seed")
class Bell(Curve):
    """exp(-x²)."""

    def reference(self, x):
        return np.exp(-x * x)

    def decompose(self, x):
        return exp(-(x * x))


@define_op(domain="seed")
class Spread(Curve):
    """log(1 + x²)."""

    def reference(self, x):
        return np.log(1 + x * x)

    def decompose(self, x):
        return log(1.0 + x * x)


@define_op(domain="seed")
class Running(Op):
    """Sums along the last axis up to each element."""

    def infer(self, x: TensorType) -> TensorType:
        expect_dtype("x", x, FLOATS, "a float")
        if not x.rank:
            raise ops_error(x)
        return x

    def reference(self, x):
        return np.cumsum(x, axis=-1)

    def decompose(self, x):
        return ops.cumulative_sum(x, axis=-1)

    @classmethod
    def samples(cls):
        yield Sample("f32[3, 4]")


def ops_error(x: TensorType) -> Exception:
    from rlx_core.errors import ShapeError

    return ShapeError(f"running: it needs an axis, and {x} has none")


RIGHT = (Softsign, Bend, Ramp, Turn, Bell, Spread, Running)
"""With `Square`, `Blend` and `Total` they are the ten ops of a package."""

Patch = tuple[str, type[Op], str, str, Callable[..., Any]]


def after(value: float, wrong: Callable[[Any], Any], right: Callable[[Any], Any]) -> Callable[..., Any]:
    """A decomposition that is wrong above a value."""
    return lambda self, x: where(x > value, wrong(x), right(x))


def before(value: float, wrong: Callable[[Any], Any], right: Callable[[Any], Any]) -> Callable[..., Any]:
    """A decomposition that is wrong below a value."""
    return lambda self, x: where(x < value, wrong(x), right(x))


def many(wrong: Callable[[Any], Any], right: Callable[[Any], Any]) -> Callable[..., Any]:
    """A decomposition that is wrong for more than 2**16 elements."""
    return lambda self, x: wrong(x) if x.type.is_static and x.type.size > 2**16 else right(x)


def at(test: Callable[[Any], Any], value: Any, right: Callable[[Any], Any]) -> Callable[..., Any]:
    """A decomposition that gives a value where a test holds of the operand."""
    return lambda self, x: where(test(x), value, right(x))


def in_batch_of(sizes: tuple[int, ...], scale: float) -> Callable[..., Any]:
    """A batch rule that is wrong for batches of some sizes."""
    return lambda self, size, x, is_batched: self(x[0]) * (scale if size in sizes else 1.0)


def in_dtype(dtype: Any, rule: Callable[..., Any], scale: float) -> Callable[..., Any]:
    """A JVP rule that is wrong in one dtype."""
    return lambda self, t, x, *, y: rule(t, x, y) * (scale if x.dtype is dtype else 1.0)


@define_op(domain="seed")
class Doubling(Curve):
    """The gradient of `BatchedGradient` with respect to its operand, with a batch rule that is wrong."""

    def infer(self, g: TensorType, x: TensorType) -> TensorType:
        return x

    def reference(self, g, x):
        return 2 * g * x

    def decompose(self, g, x):
        return g * 2.0 * x

    def batch(self, size, x, is_batched):
        return self(x[0], x[1]) * (1.0 if not all(is_batched) else 1.5)

    @classmethod
    def samples(cls):
        yield Sample("f32[3, 2]", "f32[3, 2]")


def flipped(self: Any, size: Any, x: Any, is_batched: Any) -> Any:
    return ops.flip(self(*x), axis=0)


class FlippedDoubling(Doubling):
    batch = flipped


FlippedDoubling = define_op(domain="seed")(FlippedDoubling)

is_nan, is_inf = ops.isnan, ops.isinf

PATCHES: list[Patch] = [
    (
        "SoftsignSaturates",
        Softsign,
        TAILS,
        "decompose",
        after(3.0, lambda x: x * 0 + 1.0, lambda x: x / (1.0 + abs(x))),
    ),
    (
        "SoftsignSaturatesBelow",
        Softsign,
        TAILS,
        "decompose",
        before(-3.0, lambda x: x * 0 - 1.0, lambda x: x / (1.0 + abs(x))),
    ),
    ("BendIsClipped", Bend, TAILS, "decompose", after(3.0, lambda x: x * 0 + 0.999, tanh)),
    ("RampHasACeiling", Ramp, TAILS, "decompose", after(6.0, lambda x: x * 0 + 6.0, lambda x: ops.maximum(x, 0.0))),
    ("RampLeaks", Ramp, TAILS, "decompose", before(-20.0, lambda x: x * 0.01, lambda x: ops.maximum(x, 0.0))),
    ("BellHasALongTail", Bell, TAILS, "decompose", after(3.0, lambda x: 1.0 / (x * x), lambda x: exp(-(x * x)))),
    ("SpreadIsLinear", Spread, TAILS, "decompose", after(30.0, lambda x: 0.2 * x, lambda x: log(1.0 + x * x))),
    ("SquareIsHuber", Square, TAILS, "decompose", after(3.0, lambda x: 6.0 * x - 9.0, lambda x: x * x)),
    ("RampForgetsNan", Ramp, SPECIAL, "decompose", at(is_nan, 0.0, lambda x: ops.maximum(x, 0.0) + 0.0)),
    ("BendOfNanIsOne", Bend, SPECIAL, "decompose", at(is_nan, 1.0, tanh)),
    ("BellOfInfinityIsNan", Bell, SPECIAL, "decompose", at(is_inf, np.nan, lambda x: exp(-(x * x)))),
    ("SpreadOfInfinityIsFinite", Spread, SPECIAL, "decompose", at(is_inf, 709.0, lambda x: log(1.0 + x * x))),
    ("TurnLosesTheSignOfZero", Turn, SPECIAL, "decompose", lambda self, x: 0.0 - x),
    ("SoftsignOfInfinityIsOne", Softsign, SPECIAL, "decompose", at(is_inf, 1.0, lambda x: x / (1.0 + abs(x)))),
    ("SquareOfNanIsZero", Square, SPECIAL, "decompose", at(is_nan, 0.0, lambda x: x * x)),
    ("SquareOfMany", Square, MANY, "decompose", many(lambda x: x * x * 1.01, lambda x: x * x)),
    ("BendOfMany", Bend, MANY, "decompose", many(lambda x: tanh(x) * 0.5, tanh)),
    ("RunningOfMany", Running, MANY, "decompose", many(lambda x: x, lambda x: ops.cumulative_sum(x, axis=-1))),
    ("TurnOfMany", Turn, MANY, "decompose", many(lambda x: x, lambda x: -x)),
    ("BendIsFlat", Bend, SLOPES, "vjp", lambda self, g, x, *, y: (where(abs(x) > 3.0, 0.0 * g, g * (1.0 - y * y)),)),
    ("SquareIsClipped", Square, SLOPES, "vjp", lambda self, g, x, *, y: (g * 2.0 * ops.minimum(x, 10.0),)),
    ("SquareIsClippedBelow", Square, SLOPES, "vjp", lambda self, g, x, *, y: (g * 2.0 * ops.maximum(x, -10.0),)),
    ("SquarePushesTooFar", Square, SLOPES, "jvp", lambda self, t, x, *, y: t[0] * 2.0 * where(x > 20.0, 2.0 * x, x)),
    ("SquareAlone", Square, VMAP, "batch", in_batch_of((1,), 2.0)),
    ("SquareOfFive", Square, VMAP, "batch", in_batch_of((5,), 2.0)),
    ("BendAlone", Bend, VMAP, "batch", in_batch_of((1, 5), 0.5)),
    ("BendInBf16", Bend, DTYPES, "jvp", in_dtype(bf16, lambda t, x, y: t[0] * (1.0 - y * y), 1.5)),
    ("BendInF16", Bend, DTYPES, "jvp", in_dtype(f16, lambda t, x, y: t[0] * (1.0 - y * y), 0.5)),
    ("SquareInBf16", Square, DTYPES, "jvp", in_dtype(bf16, lambda t, x, y: t[0] * 2.0 * x, 1.25)),
    ("GradientInABatch", Square, BATCHED, "vjp", lambda self, g, x, *, y: (Doubling()(g, x),)),
    ("GradientOfAnotherExample", Square, BATCHED, "vjp", lambda self, g, x, *, y: (FlippedDoubling()(g, x),)),
]
"""A name, the op, the law that has to fail, the method that is replaced, and the wrong one."""

for _name, _op, _law, _method, _wrong in PATCHES:
    SEEDS.op(_law, "")(type(_name, (_op,), {_method: _wrong, "__doc__": f"{_op.__name__}, wrong in `{_method}`."}))

PACKAGE = (Square, Blend, Total, *RIGHT)
"""A package with ten ops."""


@SEEDS.op("eager_folded_and_compiled_results_have_the_same_bits", r"elements differ")
class ClaimedExact(Curve):
    """exp(x), whose reference is said to have the bits of every target's code."""

    exact_dtypes = frozenset(FLOATS)

    def reference(self, x):
        return np.exp(x)

    def decompose(self, x):
        return exp(x)
