"""ln Γ and its derivatives. Each is the derivative of the one before it, so derivatives of any order exist."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from rlx_core.ir.apply import OpFunction, op_function
from rlx_core.ir.graph import Value
from rlx_core.ir.op import define_op, field
from rlx_core.ops.kinds import Elementwise, UnaryFloat, elementwise, unary_float_samples
from rlx_core.ops.samples import Rejected, Sample
from rlx_core.ops.special import digamma_array, lgamma_array, polygamma_array
from rlx_core.ops.validators import whole

lgamma: OpFunction[Elementwise] = elementwise(
    "Lgamma", lgamma_array, lambda x, y: digamma(x), doc="ln |Γ(x)|; infinite at 0, -1, -2, …", low=0.3, high=5.0
)
digamma: OpFunction[Elementwise] = elementwise(
    "Digamma",
    digamma_array,
    lambda x, y: trigamma(x),
    doc="ψ(x), the derivative of ln Γ(x); NaN at -1, -2, …",
    low=0.3,
    high=5.0,
)


@define_op
class Polygamma(UnaryFloat):
    """The derivative of ψ of an order at least 1: `order=1` is the trigamma function.

    Source:
        Abramowitz & Stegun, "Handbook of Mathematical Functions", section 6.4.
    """

    order: int = field(default=1, validator=whole(1))

    def reference(self, x: np.ndarray) -> np.ndarray:
        return polygamma_array(self.order, x)

    def vjp(self, g: Value, x: Value, *, y: Value) -> tuple[Value, ...]:
        return (g * polygamma(x, order=self.order + 1),)

    def jvp(self, t: Sequence[Any], x: Value, *, y: Value) -> Any:
        return t[0] * polygamma(x, order=self.order + 1)

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        yield from unary_float_samples(low=0.5, high=5.0)
        yield Sample("f32[5]", order=3, low=0.8, high=5.0)


polygamma = op_function(Polygamma)


def trigamma(x: Any) -> Any:
    """ψ'(x): the polygamma function of order 1."""
    return polygamma(x, order=1)
