"""Kinds of ops: what regular ops have in common, so that each of them is a row.

`elementwise("Exp", np.exp, lambda x, y: y)` is a whole op: the derivative with respect to each operand gives the type, the
reference, JVP, VJP and batching. If the kind supplies a rule, the op need not.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from rlx_core.errors import DtypeError, ShapeError
from rlx_core.ir.apply import OpFunction, op_function
from rlx_core.ir.dims import Dim
from rlx_core.ir.dtypes import FLOATS, DType, bool_, promote
from rlx_core.ir.graph import Value
from rlx_core.ir.op import ZERO, Op, Operand, Zero, define_op
from rlx_core.ir.samples import Rejected, Sample
from rlx_core.ir.types import TensorType, broadcast_shapes
from rlx_core.ops.structural import cast, conjugate, expand, reshape, sum_to

__all__ = [
    "Elementwise",
    "conjugate_if_complex",
    "elementwise",
    "elementwise_batch",
    "promoted",
]

Partial = Callable[..., Any] | Zero
"""∂y/∂x as a function of the operands and the result, or `ZERO` for "piecewise constant in this operand"."""


def promoted(*values: Value | None) -> tuple[Value | None, ...]:
    """The values cast to the dtype they meet in; for `prepare`."""
    common = promote(*(v.dtype for v in values if v is not None))
    return tuple(v if v is None or v.dtype is common else cast(v, to=common) for v in values)


def conjugate_if_complex(x: Value) -> Value:
    return conjugate(x) if x.dtype.is_complex else x


def scaled(t: Value, factor: Value | int, *, is_forward: bool = False) -> Value:
    """A tangent times a derivative, or a cotangent times its conjugate; a factor of 1 or -1 costs no product."""
    if isinstance(factor, int):
        return {1: t, -1: -t}[factor]
    return t * (factor if is_forward else conjugate_if_complex(factor))


def elementwise_batch(op: Op, size: Dim, x: Sequence[Value], is_batched: Sequence[bool]) -> Any:
    """Batch an element-wise op: ones go after the batch axis, so that ranks line up from the right."""
    rank = max(v.ndim - b for v, b in zip(x, is_batched, strict=True))
    aligned = [
        reshape(v, (v.shape[0], *(1,) * (rank - v.ndim + 1), *v.shape[1:])) if b and v.ndim - 1 < rank else v
        for v, b in zip(x, is_batched, strict=True)
    ]
    return op(*aligned)


class Elementwise(Op):
    """An op that computes each element of its result from the elements at the same place of its broadcast operands."""

    category: ClassVar = "elementwise"
    meaning: ClassVar[Callable[..., np.ndarray]]
    partials: ClassVar[tuple[Partial, ...]] = ()
    accepts: ClassVar[tuple[DType, ...]] = FLOATS
    result_dtype: ClassVar[DType | None] = None

    def infer(self, *types: TensorType) -> TensorType:
        common = types[0].dtype
        if any(t.dtype is not common for t in types):
            raise DtypeError(f"operands must have one dtype, not {' and '.join(str(t.dtype) for t in types)}")
        if common not in self.accepts:
            raise DtypeError(f"takes {' '.join(d.name for d in self.accepts)}, not {common}")
        shape = types[0].shape if len(types) == 1 else broadcast_shapes(*(t.shape for t in types))
        return TensorType(self.result_dtype or common, shape)

    def prepare(self, *x: Value) -> tuple[Value | None, ...]:
        return promoted(*x)

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        return type(self).meaning(*arrays)

    def vjp(self, g: Value, *x: Value, y: Value) -> tuple[Value | Zero, ...]:
        return tuple(
            ZERO if isinstance(d, Zero) else sum_to(scaled(g, d(*x, y)), v.shape)
            for d, v in zip(self.partials, x, strict=True)
        )

    def jvp(self, t: Sequence[Value | Zero], *x: Value, y: Value) -> Value | Zero:
        terms = [
            scaled(tangent, d(*x, y), is_forward=True)
            for d, tangent in zip(self.partials, t, strict=True)
            if not isinstance(d, Zero) and not isinstance(tangent, Zero)
        ]
        if not terms:
            return ZERO
        total = terms[0]
        for term in terms[1:]:
            total = total + term
        return total if total.shape == y.shape else expand(total, y.shape)

    def batch(self, size: Dim, x: Sequence[Value], is_batched: Sequence[bool]) -> Any:
        return elementwise_batch(self, size, x, is_batched)

    def cost(self, *types: TensorType) -> Dim:
        return self.infer(*types).size


_OPERAND_NAMES = {1: ("x",), 2: ("a", "b"), 3: ("x", "lo", "hi")}


def elementwise(
    name: str,
    meaning: Callable[..., np.ndarray],
    *partials: Partial,
    doc: str = "",
    accepts: tuple[DType, ...] = FLOATS,
    result_dtype: DType | None = None,
    low: float = -2.0,
    high: float = 2.0,
    is_commutative: bool = False,
    is_smooth: bool = True,
) -> OpFunction[Elementwise]:
    """An element-wise op from its meaning and its partial derivatives.

    Args:
        name: The class name; the op is its snake case.
        meaning: The NumPy function.
        partials: One an operand: ∂y/∂operand from `(*operands, y)`, or `ZERO`.
        doc: The formula and its conventions, one sentence or two.
        accepts: The dtypes the op takes.
        result_dtype: The result's dtype where it is not the operands' (bool for comparisons).
        low, high: Where samples are drawn: inside the domain, away from kinks.
        is_commutative: Whether exchanging the operands changes no bit.
        is_smooth: Whether finite differences make sense on samples.
    """
    count = len(partials)

    def samples() -> Iterator[Sample | Rejected]:

        def sample(*specs: str) -> Sample:
            return Sample(*specs, low=low, high=high, is_smooth=is_smooth)

        for d in accepts:
            yield sample(*[f"{d}[3, 4]"] * count)
        d = next((d for d in accepts if d.name in ("f32", "i32")), accepts[0])
        yield sample(*[f"{d}[0, 3]"] * count)
        yield sample(*[f"{d}[]"] * count)
        if count > 1:
            yield sample(f"{d}[2, 1, 4]", *[f"{d}[3, 1]"] * (count - 1))
            yield sample(f"{d}[]", *[f"{d}[2, 3]"] * (count - 1))
            yield Rejected(f"{d}[3]", *[f"{d}[4]"] * (count - 1), error=ShapeError, says="do not broadcast")
        if bool_ not in accepts:
            yield Rejected(*["bool[2]"] * count, error=DtypeError, says="takes")

    made = type(
        name,
        (Elementwise,),
        {
            "__doc__": doc,
            "__module__": _caller_module(),
            "meaning": staticmethod(meaning),
            "partials": partials,
            "accepts": accepts,
            "result_dtype": result_dtype,
            "is_commutative": is_commutative,
            "samples": staticmethod(samples),
        },
    )
    op: type[Elementwise] = define_op(made)
    op.operands = tuple(Operand(n) for n in _OPERAND_NAMES[count])
    return op_function(op)


def _caller_module() -> str:
    return str(sys._getframe(2).f_globals["__name__"])
