"""Ops that choose between values, or that stand between a value and its derivative."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from rlx_core.errors import DtypeError, ShapeError
from rlx_core.ir.apply import op_function
from rlx_core.ir.dims import Dim
from rlx_core.ir.dtypes import ALL, bool_
from rlx_core.ir.graph import Value
from rlx_core.ir.op import ZERO, Op, Zero, define_op
from rlx_core.ir.samples import Rejected, Sample
from rlx_core.ir.types import TensorType, broadcast_shapes
from rlx_core.ops.kinds import elementwise_batch, promoted
from rlx_core.ops.structural import cast, expand, sum_to


def as_condition(c: Value) -> Value:
    """A condition as bool: a number holds where it is not 0."""
    return c if c.dtype is bool_ else cast(c, to=bool_)


@define_op
class Where(Op):
    """`a` where the condition holds, `b` elsewhere; all three operands broadcast, the branches are promoted.

    A number as the condition holds where it is not 0 (NaN holds). The branch that is not chosen contributes nothing,
    whatever it is; its own derivative is still computed, so guard the operands of a branch that can be undefined.

    Shapes:
        c: [...]    a: [...]    b: [...]    ->    y: all three broadcast
    """

    category: ClassVar = "elementwise"

    def infer(self, c: TensorType, a: TensorType, b: TensorType) -> TensorType:
        if a.dtype is not b.dtype:
            raise DtypeError(f"branches must have one dtype, not {a.dtype} and {b.dtype}")
        return TensorType(a.dtype, broadcast_shapes(c.shape, a.shape, b.shape))

    def prepare(self, c: Value, a: Value, b: Value) -> tuple[Value | None, ...]:
        return (as_condition(c), *promoted(a, b))

    def reference(self, c: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.where(c != 0, a, b)

    def vjp(self, g: Value, c: Value, a: Value, b: Value, *, y: Value) -> tuple[Value | Zero, ...]:
        return ZERO, sum_to(where(c, g, 0), a.shape), sum_to(where(c, 0, g), b.shape)

    def jvp(self, t: Sequence[Value | Zero], c: Value, a: Value, b: Value, *, y: Value) -> Value | Zero:
        _, t_a, t_b = (0 if isinstance(x, Zero) else x for x in t)
        if not isinstance(t_a, Value) and not isinstance(t_b, Value):
            return ZERO
        chosen = where(c, t_a, t_b)
        return chosen if chosen.shape == y.shape else expand(chosen, y.shape)

    def batch(self, size: Dim, x: Sequence[Value], is_batched: Sequence[bool]) -> Any:
        return elementwise_batch(self, size, x, is_batched)

    def cost(self, c: TensorType, a: TensorType, b: TensorType) -> Dim:
        return self.infer(c, a, b).size

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        for d in ALL:
            yield Sample("bool[3, 4]", f"{d}[3, 4]", f"{d}[3, 4]")
        yield Sample("bool[2, 1]", "f32[3]", "f32[]")
        yield Sample("bool[3]", "f32[1]", "f32[2, 1]")
        yield Sample("i32[4]", "f32[4]", "f32[4]")
        yield Sample("bool[0]", "f32[0]", "f32[]")
        yield Sample("bool[]", "f64[]", "f64[]")
        yield Sample("bool[2]", "i32[2]", "f32[2]")
        yield Rejected("bool[2]", "f32[3]", "f32[3]", error=ShapeError, says="do not broadcast")


_where = op_function(Where)


def where(condition: Any, a: Any, b: Any) -> Any:
    """`a` where the condition holds, `b` elsewhere: `Where` on broadcast operands.

    The condition takes no part in promotion, so `where(counts, x, 0.5)` has the dtype of `x`.
    """
    # Before scalars are lifted: a number as the condition would lend its dtype to a weak scalar in a branch.
    if isinstance(condition, Value):
        return _where(as_condition(condition), a, b)
    return _where(np.asarray(condition) != 0, a, b)


OPS = (Where,)
