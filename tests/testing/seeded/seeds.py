"""What a seed is, and the right ops that seeds go wrong from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from attrs import field, frozen

from rlx_core import ops
from rlx_core.ir.dtypes import FLOATS
from rlx_core.ir.op import ZERO, Op, define_op
from rlx_core.ir.types import TensorType, broadcast_shapes, expect_dtype, normalize_axis
from rlx_core.ops.arithmetic import add, multiply
from rlx_core.ops.kinds import elementwise_batch
from rlx_core.ops.samples import Sample
from rlx_core.ops.structural import sum_to

_T = TypeVar("_T", bound=type[Any])


@frozen(eq=False)
class Seed:
    """One wrong thing.

    Attributes:
        subject: An op class, or a plugin that contributes rules or kernels.
        law: The law that it breaks, without `test_`.
        says: Words of the law's message, as a pattern.
    """

    subject: Any
    law: str
    says: str

    def __str__(self) -> str:
        name = getattr(self.subject, "__name__", type(self.subject).__name__)
        return f"{name} breaks {self.law}"


@frozen(eq=False)
class Seeds:
    """The seeds of one module, in order."""

    found: list[Seed] = field(factory=list)

    def op(self, law: str, says: str) -> Callable[[_T], _T]:
        """Make the decorated class an op, and expect this law to say this of it."""

        def make(cls: _T) -> _T:
            made = define_op(domain="seed")(cls)
            self.found.append(Seed(made, law, says))
            return made

        return make

    def plugin(self, law: str, says: str) -> Callable[[_T], _T]:
        """Expect this law to say this of what the decorated plugin contributes."""

        def make(cls: _T) -> _T:
            self.found.append(Seed(cls(), law, says))
            return cls

        return make


@define_op(domain="seed")
class Square(Op):
    """x², right in every respect."""

    category = "elementwise"

    def infer(self, x: TensorType) -> TensorType:
        expect_dtype("x", x, FLOATS, "a float")
        return x

    def reference(self, x):
        return x * x

    def decompose(self, x):
        return multiply(x, x)

    def vjp(self, g, x, *, y):
        return (g * 2.0 * x,)

    def jvp(self, t, x, *, y):
        return t[0] * 2.0 * x

    def batch(self, size, x, is_batched):
        return self(x[0])

    def cost(self, x):
        return x.size

    @classmethod
    def samples(cls):
        yield Sample("f32[3, 2]")


@define_op(domain="seed")
class Blend(Op):
    """a + 3·b, right in every respect."""

    category = "elementwise"

    def infer(self, a: TensorType, b: TensorType) -> TensorType:
        expect_dtype("a", a, FLOATS, "a float")
        expect_dtype("b", b, (a.dtype,))
        return TensorType(a.dtype, broadcast_shapes(a.shape, b.shape))

    def reference(self, a, b):
        return a + 3 * b

    def decompose(self, a, b):
        return add(a, b * 3.0)

    def vjp(self, g, a, b, *, y):
        return sum_to(g, a.shape), sum_to(g * 3.0, b.shape)

    def jvp(self, t, a, b, *, y):
        terms = [x * k for x, k in zip(t, (1.0, 3.0), strict=True) if x is not ZERO]
        zeros = (a + b) * 0.0
        return sum(terms, zeros)

    def batch(self, size, x, is_batched):
        return elementwise_batch(self, size, x, is_batched)

    @classmethod
    def samples(cls):
        yield Sample("f32[3, 2]", "f32[3, 2]")


@define_op(domain="seed")
class Total(Op):
    """The sum over one axis, right in every respect."""

    axis: int = 0

    def infer(self, x: TensorType) -> TensorType:
        expect_dtype("x", x, FLOATS, "a float")
        axis = normalize_axis(self.axis, x.rank)
        return x.with_shape((*x.shape[:axis], *x.shape[axis + 1 :]))

    def reference(self, x):
        return np.sum(x, axis=self.axis)

    def decompose(self, x):
        return ops.sum(x, axis=self.axis)

    @classmethod
    def samples(cls):
        yield Sample("f32[3, 2]", axis=0)
        yield Sample("f32[3, 2]", axis=1)


RIGHT = (Square, Blend, Total)
