"""Kinds of ops: the common parts of regular ops, each of which is then defined by one row.

`elementwise("Exp", np.exp, lambda x, y: y)` is a complete op: the derivative with respect to each operand yields the type, the
reference, JVP, VJP and batching. If the kind supplies a rule, the op need not.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np

from rlx_core import ops
from rlx_core.errors import DtypeError, ShapeError
from rlx_core.ir.apply import OpFunction, as_array, op_function
from rlx_core.ir.dims import Dim
from rlx_core.ir.dtypes import COMPLEXES, FLOATS, DType, bool_, c64, i32, promote
from rlx_core.ir.graph import Value
from rlx_core.ir.op import ZERO, Kink, Op, Operand, Zero, define_op
from rlx_core.ir.types import TensorType, broadcast_shapes, expect_dtype
from rlx_core.ops.conversion import cast, conjugate, operand_batch, per_element
from rlx_core.system.records import frozen

if TYPE_CHECKING:  # for the laws
    from rlx_core.ops.samples import Range, Rejected, Sample

_EXACT_OF_COMPLEX: Final = {
    *(np.add, np.subtract, np.negative, np.equal, np.not_equal, np.isfinite, np.isinf, np.isnan)
}

_EXACT_OF_FLOATS: Final = _EXACT_OF_COMPLEX | {
    *(np.multiply, np.true_divide, np.square, np.reciprocal, np.sqrt, np.abs, np.sign, np.copysign),
    *(np.maximum, np.minimum, np.less, np.less_equal, np.greater, np.greater_equal),
}
"""NumPy functions with bit-identical results on every target: correctly rounded by IEEE 754, or without rounding."""

Partial = Callable[..., Any] | Zero
"""∂y/∂x as a function of the operands and the result, or `ZERO` for "piecewise constant in this operand"."""


@frozen(eq=False)
class Ratio:
    """A derivative applied as `t · numerator / divisor`: one rounding fewer than through a reciprocal, and no overflow where
    only `1 / divisor` overflows.
    """

    numerator: Value | float
    divisor: Value


def promoted(*values: Value | None) -> tuple[Value | None, ...]:
    """Return the values cast to their promoted dtype; for `prepare`."""
    common = promote(*(v.dtype for v in values if v is not None))
    return tuple(v if v is None or v.dtype is common else cast(v, to=common) for v in values)


def conjugate_if_complex(x: Value) -> Value:
    return conjugate(x) if x.dtype.is_complex else x


def scaled(t: Value, factor: Value | Ratio | float, *, is_forward: bool = False) -> Value:
    """Return a tangent times a derivative, or a cotangent times its conjugate; a factor of 1 or -1 needs no product."""
    if isinstance(factor, Ratio):
        divisor = factor.divisor if is_forward else conjugate_if_complex(factor.divisor)
        return scaled(t, factor.numerator, is_forward=is_forward) / divisor
    if isinstance(factor, int | float):
        return t if factor == 1 else -t if factor == -1 else t * factor
    return t * (factor if is_forward else conjugate_if_complex(factor))


def indicator(condition: Value, like: Value) -> Value:
    """Return 1 where a condition is true and 0 elsewhere, in the dtype of `like`: the Iverson bracket."""
    return cast(condition, to=like.dtype)


def is_complex(x: Any) -> bool:
    """Return whether a value, an array or a scalar is complex."""
    return x.dtype.is_complex if isinstance(x, Value) else bool(np.iscomplexobj(as_array(x)))


def elementwise_batch(op: Op, size: Dim, x: Sequence[Value], is_batched: Sequence[bool]) -> Any:
    """Batch an element-wise op: ones are inserted after the batch axis, so that ranks align from the right."""
    from rlx_core.ops.structural import reshape  # here, because most programs are not transformed

    rank = max(v.ndim - b for v, b in zip(x, is_batched, strict=True))
    aligned = [
        reshape(v, (v.shape[0], *(1,) * (rank - v.ndim + 1), *v.shape[1:])) if b and v.ndim - 1 < rank else v
        for v, b in zip(x, is_batched, strict=True)
    ]
    return op(*aligned)


class Elementwise(Op):
    """An op that computes each element of its result from the elements at the same position of its broadcast operands."""

    category: ClassVar = "elementwise"
    meaning: ClassVar[Callable[..., np.ndarray]]
    partials: ClassVar[tuple[Partial, ...]] = ()
    accepts: ClassVar[tuple[DType, ...]] = FLOATS
    result_dtype: ClassVar[DType | None] = None
    computes_in: ClassVar[DType | Callable[[DType], DType] | None] = None
    batch = elementwise_batch

    def infer(self, *types: TensorType) -> TensorType:
        common = types[0].dtype
        if any(t.dtype is not common for t in types):
            raise DtypeError(f"operands must have one dtype, not {' and '.join(str(t.dtype) for t in types)}")
        if common not in self.accepts:
            raise DtypeError(f"takes {' '.join(d.name for d in self.accepts)}, not {common}")
        shape = types[0].shape if len(types) == 1 else broadcast_shapes(*(t.shape for t in types))
        return TensorType(self.result_dtype or common, shape)

    def prepare(self, *x: Value) -> tuple[Value | None, ...]:
        target = self._computing_dtype(x)
        return tuple(v if v.dtype is target else cast(v, to=target) for v in x)

    def _computing_dtype(self, x: Sequence[Value]) -> DType:
        rule = type(self).computes_in
        if isinstance(rule, DType):
            return rule
        common = promote(*(v.dtype for v in x))
        return common if rule is None else rule(common)

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        return type(self).meaning(*arrays)

    def vjp(self, g: Value, *x: Value, y: Value) -> tuple[Value | Zero, ...]:
        from rlx_core.ops.structural import sum_to  # here, because most programs are not transformed

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
        from rlx_core.ops.structural import expand  # here, because most programs are not transformed

        return total if total.shape == y.shape else expand(total, y.shape)

    def cost(self, *types: TensorType) -> Dim:
        return self.infer(*types).size


class UnaryFloat(Op):
    """A function of one floating-point variable that has attributes; the subclass defines it."""

    category: ClassVar = "elementwise"
    batch = operand_batch
    cost = per_element(1)

    def infer(self, x: TensorType) -> TensorType:
        expect_dtype("x", x, FLOATS, "a float")
        return x


def unary_float_samples(
    low: float = -2.0, high: float = 2.0, is_smooth: bool = True, **attributes: Any
) -> Iterator[Sample | Rejected]:
    """Yield samples for a `UnaryFloat` with these attributes."""
    for dims in (*(f"{d}[3, 4]" for d in FLOATS), "f32[0, 3]", "f32[]"):
        yield ops.Sample(dims, low=low, high=high, is_smooth=is_smooth, **attributes)
    for refused in ("bool[2]", "i32[2]", "c64[2]"):
        yield ops.Rejected(refused, error=DtypeError, says="must be a float", **attributes)


_OPERAND_NAMES = {1: ("x",), 2: ("a", "b")}


def elementwise(
    name: str,
    meaning: Callable[..., np.ndarray],
    *partials: Partial,
    doc: str = "",
    accepts: tuple[DType, ...] = FLOATS,
    converts: tuple[DType, ...] = (),
    computes_in: DType | Callable[[DType], DType] | None = None,
    result_dtype: DType | None = None,
    low: float = -2.0,
    high: float = 2.0,
    ranges: Mapping[str, Range] | None = None,
    is_commutative: bool = False,
    is_smooth: bool = True,
    kinks: tuple[Kink, ...] = (),
    domain: str = "rlx",
    exact_dtypes: tuple[DType, ...] | None = None,
) -> OpFunction[Elementwise]:
    """Return a primitive element-wise op, defined by a NumPy function and its partial derivatives.

    Args:
        name: The class name; the op is its snake case.
        meaning: The NumPy function.
        partials: One per operand: ∂y/∂operand from `(*operands, y)`, as a value, a number or a `Ratio`; or `ZERO`.
        doc: The formula and its conventions, one sentence or two.
        accepts: The dtypes the op takes.
        converts: Further dtypes that `computes_in` converts to one of them, by a visible cast.
        computes_in: The dtype the op computes in, or a function from the promoted dtype of its operands to it.
        result_dtype: The result's dtype if it differs from the operands' (bool for comparisons).
        low, high: The range of samples: inside the domain, away from kinks.
        ranges: Other ranges for single operands.
        is_commutative: Whether exchanging the operands changes no bit of a real result. (For a complex product it may change
            the last bit: processors fuse one of its two multiplications with the addition.)
        is_smooth: Whether finite differences are meaningful on samples.
        kinks: The points without a derivative, and the values of the partials there.
        domain: The plugin that the op belongs to.
        exact_dtypes: The dtypes in which `meaning` is bit-identical to the code of every target; known for NumPy's functions.
    """
    if exact_dtypes is None:
        of_complex = COMPLEXES if meaning in _EXACT_OF_COMPLEX else ()
        exact_dtypes = (*FLOATS, *of_complex) if meaning in _EXACT_OF_FLOATS else ()

    def sample(*specs: str) -> Sample:
        return ops.Sample(*specs, low=low, high=high, ranges=ranges, is_smooth=is_smooth)

    return _row(
        name,
        doc,
        sample,
        (*accepts, *converts),
        domain,
        meaning=staticmethod(meaning),
        partials=partials,
        accepts=accepts,
        computes_in=staticmethod(computes_in) if callable(computes_in) else computes_in,
        result_dtype=result_dtype,
        is_commutative=is_commutative,
        kinks=kinks,
        exact_dtypes=exact_dtypes,
    )


def composed(
    name: str,
    decompose: Callable[..., Value],
    *partials: Partial,
    doc: str = "",
    accepts: tuple[DType, ...] = FLOATS,
    low: float = -2.0,
    high: float = 2.0,
    is_smooth: bool = True,
    kinks: tuple[Kink, ...] = (),
    domain: str = "rlx",
) -> OpFunction[Elementwise]:
    """Return an element-wise op of one operand, defined by its decomposition.

    Args:
        name, doc, accepts, low, high, is_smooth, kinks, domain: As for `elementwise`.
        decompose: The formula, on values.
        partials: The derivative, if it is shorter than the one that follows from the formula.
    """

    def sample(*specs: str) -> Sample:
        return ops.Sample(*specs, low=low, high=high, is_smooth=is_smooth)

    derived = {} if partials else {"vjp": None, "jvp": None}
    return _row(
        name,
        doc,
        sample,
        accepts,
        domain,
        decompose=lambda self, x: decompose(x),
        reference=None,
        partials=partials,
        accepts=accepts,
        kinks=kinks,
        **derived,
    )


def _row(
    name: str, doc: str, sample: Callable[..., Sample], sampled: tuple[DType, ...], domain: str, **rules: Any
) -> OpFunction[Elementwise]:
    count = len(rules["partials"]) or 1

    def samples() -> Iterator[Sample | Rejected]:
        return elementwise_samples(count, sampled, sample)

    body = {"__doc__": doc, "__module__": sys._getframe(2).f_globals["__name__"], "samples": staticmethod(samples)}
    op: type[Elementwise] = define_op(domain=domain)(type(name, (Elementwise,), body | rules))
    op.operands = tuple(Operand(n) for n in _OPERAND_NAMES[count])
    return op_function(op)


def elementwise_samples(
    count: int, accepts: Sequence[DType], sample: Callable[..., Sample] | None = None, **attributes: Any
) -> Iterator[Sample | Rejected]:
    """Yield samples for every element-wise op of `count` operands: each dtype, no elements, rank 0, broadcasting both ways, and
    samples that it must refuse.

    Args:
        sample: Makes a sample of operand types and attributes; `Sample` by default.
    """
    sample = sample or ops.Sample
    for d in accepts:
        yield sample(*[f"{d}[3, 4]"] * count, **attributes)
    d = next((d for d in accepts if d.name in ("f32", "i32", "c64")), accepts[0])
    yield sample(*[f"{d}[0, 3]"] * count, **attributes)
    yield sample(*[f"{d}[]"] * count, **attributes)
    if count > 1:
        yield sample(f"{d}[2, 1, 4]", *[f"{d}[3, 1]"] * (count - 1), **attributes)
        yield sample(f"{d}[]", *[f"{d}[2, 3]"] * (count - 1), **attributes)
        yield sample(f"{d}[2, 3]", *[f"{d}[0, 1, 1]"] * (count - 1), **attributes)
        yield ops.Rejected(
            f"{d}[3]", *[f"{d}[4]"] * (count - 1), error=ShapeError, says="do not broadcast", **attributes
        )
    for refused in (d for d in (bool_, i32, c64) if d not in accepts):
        yield ops.Rejected(*[f"{refused}[2]"] * count, error=DtypeError, says="takes", **attributes)
