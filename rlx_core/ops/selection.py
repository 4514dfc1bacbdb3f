"""Ops that select values, or that separate a value from its derivative."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from operator import add
from typing import Any, ClassVar

import numpy as np
import optree

from rlx_core.errors import DtypeError, ShapeError
from rlx_core.hints.keywords import checked_call
from rlx_core.ir.apply import as_array, op_function
from rlx_core.ir.dims import Dim
from rlx_core.ir.dtypes import ALL, FLOATS, INEXACT, INTEGERS, bool_
from rlx_core.ir.graph import Value, as_results
from rlx_core.ir.op import ZERO, Kink, Op, Zero, define_op
from rlx_core.ir.strides import Strides
from rlx_core.ir.types import TensorType, broadcast_shapes, expect_dtype, expect_shape
from rlx_core.ops.conversion import cast, operand_batch, zero_jvp, zero_vjp
from rlx_core.ops.kinds import elementwise_batch, promoted, scaled
from rlx_core.ops.samples import Rejected, Sample
from rlx_core.ops.structural import all_batched, expand, joint_batch, reshape, sum_to
from rlx_core.trees.flatten import map_leaves


def as_condition(c: Value) -> Value:
    """Return a condition as bool: a number is true if it is not 0."""
    return c if c.dtype is bool_ else cast(c, to=bool_)


@define_op
class Where(Op):
    """`a` where the condition is true, `b` elsewhere; all three operands broadcast, the branches are promoted.

    A number as the condition is true if it is not 0 (NaN is true). The branch that is not selected contributes nothing,
    whatever its value; its derivative is still computed, so guard the operands of a branch that can be undefined.

    Shapes:
        c: [...]    a: [...]    b: [...]    ->    y: all three broadcast
    """

    category: ClassVar = "elementwise"
    exact_dtypes: ClassVar = INEXACT
    batch = elementwise_batch

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


@checked_call
def where(condition: Any, x1: Any, x2: Any) -> Any:
    """`x1` where the condition is true, `x2` elsewhere: `Where` on broadcast operands.

    The condition takes no part in promotion, so `where(counts, x, 0.5)` has the dtype of `x`.
    """
    # Before scalars are lifted: otherwise a number as the condition would affect the dtype of a weak scalar in a branch.
    if isinstance(condition, Value):
        return _where(as_condition(condition), x1, x2)
    return _where(as_array(condition) != 0, x1, x2)


def _around_bounds(*shapes: tuple[int, ...]) -> Callable[[np.random.Generator], Sequence[np.ndarray]]:
    """Return values below, between and above two bounds, none of them close to a bound."""

    def make(rng: np.random.Generator) -> Sequence[np.ndarray]:
        x, lo, hi = shapes
        near = rng.choice([-1.6, 0.0, 1.6], x) + rng.uniform(-0.3, 0.3, x)
        return near, rng.uniform(-1.0, -0.5, lo), rng.uniform(0.5, 1.0, hi)

    return make


@define_op
class Clip(Op):
    """x clamped between lo and hi: first at least lo, then at most hi; a bound may be absent. NaN is preserved.

    Where lo is above hi the result is hi, as in NumPy.

    The result has the dtype of x: bounds are cast to it. On the closed interval the derivative goes to x, outside of it to the
    bound. A bound that is NaN is ignored.

    Shapes:
        x: [...]    lo: [...]    hi: [...]    ->    y: all broadcast
    """

    category: ClassVar = "elementwise"
    exact_dtypes: ClassVar = INEXACT
    kinks: ClassVar = (
        Kink(-1.0, -1.0, 2.0, takes="inner", gives=(1.0, 0.0, 0.0)),
        Kink(2.0, -1.0, 2.0, takes="inner", gives=(1.0, 0.0, 0.0)),
    )

    def prepare(self, x: Value, lo: Value | None = None, hi: Value | None = None) -> tuple[Value | None, ...]:
        return (x, *(v if v is None or v.dtype is x.dtype else cast(v, to=x.dtype) for v in (lo, hi)))

    def infer(self, x: TensorType, lo: TensorType | None = None, hi: TensorType | None = None) -> TensorType:
        expect_dtype("x", x, (*INTEGERS, *FLOATS), "real")
        bounds = [v for v in (lo, hi) if v is not None]
        for bound in bounds:
            expect_dtype("a bound", bound, (x.dtype,))
        return x.with_shape(broadcast_shapes(x.shape, *(v.shape for v in bounds)))

    def decompose(self, x: Value, lo: Value | None = None, hi: Value | None = None) -> Value:
        y = x if lo is None else where(x < lo, lo, x)
        return y if hi is None else where(y > hi, hi, y)

    def _weights(self, x: Value, lo: Value | None, hi: Value | None) -> tuple[Value | None, ...]:
        """Return the derivative in each operand: 1 where the result is that operand, 0 elsewhere, NaN where x is NaN."""
        is_raised = None if lo is None else x < lo
        raised = x if is_raised is None else where(is_raised, lo, x)
        is_lowered = None if hi is None else raised > hi
        of_x, nothing = where(x == x, 1, x), where(x == x, 0, x)
        of_lo = of_hi = None
        if is_raised is not None:
            of_x, of_lo = where(is_raised, 0, of_x), where(is_raised, 1, nothing)
        if is_lowered is not None:
            of_x, of_hi = where(is_lowered, 0, of_x), where(is_lowered, 1, nothing)
            of_lo = None if of_lo is None else where(is_lowered, 0, of_lo)
        return of_x, of_lo, of_hi

    def vjp(
        self, g: Value, x: Value, lo: Value | None = None, hi: Value | None = None, *, y: Value
    ) -> tuple[Value | Zero, ...]:
        pairs = zip((x, lo, hi), self._weights(x, lo, hi), strict=True)
        return tuple(ZERO if v is None or w is None else sum_to(g * w, v.shape) for v, w in pairs)

    def jvp(
        self, t: Sequence[Value | Zero], x: Value, lo: Value | None = None, hi: Value | None = None, *, y: Value
    ) -> Value | Zero:
        pairs = zip(t, self._weights(x, lo, hi), strict=False)
        terms = [v * w for v, w in pairs if isinstance(v, Value) and w is not None]
        if not terms:
            return ZERO
        total = reduce(add, terms)
        return total if total.shape == y.shape else expand(total, y.shape)

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        for d in FLOATS:
            yield Sample(f"{d}[3, 4]", f"{d}[]", f"{d}[]", make=_around_bounds((3, 4), (), ()))
        for d in INTEGERS:
            yield Sample(f"{d}[3, 4]", f"{d}[]", f"{d}[]", low=0, high=9, ranges={"lo": (1, 3), "hi": (4, 7)})
        yield Sample("f32[3]", "f32[2, 1]", "f32[3]", make=_around_bounds((3,), (2, 1), (3,)))
        yield Sample("f32[3]", "f32[]", ranges={"lo": (-1.0, 1.0)})
        yield Sample("f32[3]", None, "f32[]", ranges={"hi": (-1.0, 1.0)})
        yield Sample("f32[3]", "f64[]", "i32[]", ranges={"lo": (-1.0, -0.5), "hi": (1, 2)})
        yield Sample("f32[0]", "f32[]", "f32[]")
        yield Rejected("c64[2]", "f32[]", "f32[]", error=DtypeError, says="x must be real")


clip = op_function(Clip)


@define_op
class StopGradient(Op):
    """The identity, with derivative zero."""

    category: ClassVar = "elementwise"
    exact_dtypes: ClassVar = INEXACT
    vjp = zero_vjp
    jvp = zero_jvp
    batch = operand_batch

    def infer(self, x: TensorType) -> TensorType:
        return x

    def reference(self, x: np.ndarray) -> np.ndarray:
        return x

    def view(self, x: TensorType, strides: Strides, offset: int) -> tuple[int, Strides]:
        return offset, strides

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        # The derivative is declared, not computed: finite differences cannot check it.
        for d in ALL:
            yield Sample(f"{d}[3]", is_smooth=False)
        yield Sample("f32[]", is_smooth=False)


_stop_gradient = op_function(StopGradient)


@checked_call
def stop_gradient(x: Any, *, name: str | None = None) -> Any:
    """`x` itself, with derivative zero in both modes; for a pytree every array.

    Shapes:
        x: f[...] or a pytree of such    ->    y: like x
    """
    if optree.tree_is_leaf(x):
        return _stop_gradient(x, name=name)
    return map_leaves(lambda leaf: _stop_gradient(leaf, name=name), x)


@define_op
class StraightThrough(Op):
    """`value`, with the derivatives of `factor · x` (of `x` if the factor is absent); value and factor get none.

    Shapes:
        value: f[...]    x: like value    factor: broadcasts to value    ->    y: like value
    """

    category: ClassVar = "elementwise"
    exact_dtypes: ClassVar = INEXACT

    def prepare(self, value: Value, x: Value, factor: Value | None = None) -> tuple[Value | None, ...]:
        return value, x, factor if factor is None or factor.dtype is value.dtype else cast(factor, to=value.dtype)

    def infer(self, value: TensorType, x: TensorType, factor: TensorType | None = None) -> TensorType:
        expect_dtype("value", value, INEXACT, "float or complex")
        expect_dtype("x", x, (value.dtype,))
        expect_shape("x", x, value.shape)
        if factor is not None and broadcast_shapes(value.shape, factor.shape) != value.shape:
            raise ShapeError(f"factor {factor} does not broadcast to {value}")
        return value

    def reference(self, value: np.ndarray, x: np.ndarray, factor: np.ndarray | None = None) -> np.ndarray:
        return value.copy()

    def vjp(
        self, g: Value, value: Value, x: Value, factor: Value | None = None, *, y: Value
    ) -> tuple[Value | Zero, ...]:
        return ZERO, g if factor is None else scaled(g, factor), ZERO

    def jvp(
        self, t: Sequence[Value | Zero], value: Value, x: Value, factor: Value | None = None, *, y: Value
    ) -> Value | Zero:
        t_x = t[1]
        if isinstance(t_x, Zero) or factor is None:
            return t_x
        return scaled(t_x, factor, is_forward=True)

    def batch(self, size: Dim, x: Sequence[Value | None], is_batched: Sequence[bool]) -> Any:
        value, source, factor = (*x, None)[:3]
        assert value is not None, "value is a required operand"
        assert source is not None, "x is a required operand"
        batched = all_batched(size, (value, source), is_batched[:2])  # they have one shape, so both need the axis
        missing = 0 if factor is None else batched[0].ndim - factor.ndim
        if factor is not None and is_batched[2] and missing:
            factor = reshape(factor, (size, *(1,) * missing, *factor.shape[1:]))
        return self(*batched, factor)

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        yield Sample("f32[3, 4]", "f32[3, 4]", is_smooth=False)
        yield Sample("f16[3, 4]", "f16[3, 4]", "f16[4]", is_smooth=False)
        yield Sample("c64[2]", "c64[2]", "f32[]", is_smooth=False)
        yield Sample("f64[]", "f64[]", is_smooth=False)
        yield Rejected("f32[3]", "f32[4]", error=ShapeError, says="x must be [3]")
        yield Rejected("f32[3]", "f32[3]", "f32[2, 3]", error=ShapeError, says="does not broadcast")


straight_through = op_function(StraightThrough)


@define_op
class OptimizationBarrier(Op):
    """Its operands, unchanged: operations are not moved across it, and it is never merged with another."""

    category: ClassVar = "movement"
    is_barrier: ClassVar = True
    batch = joint_batch

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        return x

    def reference(self, *x: np.ndarray) -> tuple[np.ndarray, ...]:
        return x

    def vjp(self, g: Any, *x: Value, y: Any) -> tuple[Value | Zero, ...]:
        return as_results(g)

    def jvp(self, t: Sequence[Value | Zero], *x: Value, y: Any) -> Any:
        moving = [v for v in t if isinstance(v, Value)]
        through = iter(as_results(self(*moving)) if moving else ())
        tangents = tuple(next(through) if isinstance(v, Value) else v for v in t)
        return tangents if len(tangents) > 1 else tangents[0]

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        yield Sample("f32[3]")
        yield Sample("f32[3]", "i64[2, 2]", "c64[]")


optimization_barrier = op_function(OptimizationBarrier)
