"""Parameters of distributions without a derivative: differentiating by them is an error, instead of a silent zero."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from rlx_core.ir.apply import op_function
from rlx_core.ir.dtypes import FLOATS
from rlx_core.ir.graph import Value
from rlx_core.ir.op import Category, Op, define_op
from rlx_core.ir.rules import CustomDerivative
from rlx_core.ir.types import TensorType, expect_dtype
from rlx_core.ops.conversion import operand_batch
from rlx_core.ops.samples import Rejected, Sample


@define_op
class Undifferentiated(CustomDerivative, Op):
    """The identity, without a derivative: for a parameter of a distribution that is sampled by rejection.

    Shapes:
        x: f[..]    ->    y: f[..]

    Attributes:
        what: The distribution and its parameter, for the message.

    Raises:
        MissingRuleError: When it is differentiated.
    """

    category: ClassVar[Category] = "elementwise"
    is_refusing: ClassVar[bool] = True
    what: str
    batch = operand_batch

    def infer(self, x: TensorType) -> TensorType:
        expect_dtype("x", x, FLOATS, "float")
        return x

    def reference(self, x: np.ndarray) -> np.ndarray:
        return x.copy()

    def decompose(self, x: Value) -> Value:
        return x

    def vjp(self, g: Value, x: Value, *, y: Value) -> tuple[None]:
        return (None,)  # not a zero: the rule leaves the operand out

    def jvp(self, t: Sequence[Any], x: Value, *, y: Value) -> tuple[None]:
        return (None,)

    def why_unstated(self) -> tuple[str, str]:
        return (
            f"{self.what}: what is drawn by rejection has no derivative by it",
            "cut it off with rlx.stop_gradient",
        )

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        for d in FLOATS:
            yield Sample(f"{d}[3, 4]", what="random.gamma: a", is_smooth=False)


undifferentiated = op_function(Undifferentiated)
