"""Running reductions as a problem: the lines of a dense array, and the update rule of the carry along them.

A rule is the same for one lane and for sixteen, so a running sum adds in the order of its axis whichever way lanes lie.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import inf, prod
from typing import Any, TypeAlias, cast

import numpy as np

from rlx_core.codegen.scalars import arithmetic
from rlx_core.codegen.scalars.assembler import Assembler, V
from rlx_core.codegen.scalars.numpy_assembler import register
from rlx_core.codegen.scalars.table import ScalarTable
from rlx_core.ir.dtypes import DType, bool_
from rlx_core.ir.op import Op
from rlx_core.ir.types import TensorType, normalize_axis
from rlx_core.ops.activation import exp, log
from rlx_core.ops.cumulative import CumLogSumExp, Cummax, Cummin, Cumprod, Cumsum, Cumulative, LinearRecurrence
from rlx_core.system.records import frozen

Carry: TypeAlias = tuple[V, ...]

First: TypeAlias = Callable[[], V]
"""Makes a condition, as wide as the elements: whether these are at the first place."""


@frozen
class ScanRule:
    """One running reduction on registers of a dtype.

    Attributes:
        start: The carry before the first element, for a dtype and for an exclusive reduction or not.
        step: The carry after the elements at one position; the last argument is absent if they cannot be the first.
        show: The result from the carry.
    """

    start: Callable[[DType, bool], tuple[float, ...]]
    step: Callable[[Assembler[Any], ScalarTable, DType, Carry[Any], Carry[Any], First[Any] | None], Carry[Any]]
    show: Callable[[Assembler[Any], ScalarTable, DType, Carry[Any]], Any]


def carried(b: Assembler[V], table: ScalarTable, dtype: DType, carry: Carry[V]) -> V:
    """Return the carry as the result."""
    return carry[0]


def add(
    b: Assembler[V], table: ScalarTable, dtype: DType, carry: Carry[V], x: Carry[V], is_first: First[V] | None
) -> Carry[V]:
    return ((b.fadd if dtype.is_float else b.add)(carry[0], x[0]),)


def multiply(
    b: Assembler[V], table: ScalarTable, dtype: DType, carry: Carry[V], x: Carry[V], is_first: First[V] | None
) -> Carry[V]:
    return ((b.fmul if dtype.is_float else b.mul)(carry[0], x[0]),)


def larger(
    b: Assembler[V], table: ScalarTable, dtype: DType, carry: Carry[V], x: Carry[V], is_first: First[V] | None
) -> Carry[V]:
    return (arithmetic.larger(b, dtype, carry[0], x[0]),)


def smaller(
    b: Assembler[V], table: ScalarTable, dtype: DType, carry: Carry[V], x: Carry[V], is_first: First[V] | None
) -> Carry[V]:
    return (arithmetic.smaller(b, dtype, carry[0], x[0]),)


def recur(
    b: Assembler[V], table: ScalarTable, dtype: DType, carry: Carry[V], x: Carry[V], is_first: First[V] | None
) -> Carry[V]:
    """h = a·h + b; at the first place b alone, because a is not read there."""
    (product,) = multiply(b, table, dtype, carry, x[:1], None)
    (after,) = add(b, table, dtype, (product,), x[1:], None)
    return (after,) if is_first is None else (b.select(is_first(), x[1], after),)


def accumulate(
    b: Assembler[V], table: ScalarTable, dtype: DType, carry: Carry[V], x: Carry[V], is_first: First[V] | None
) -> Carry[V]:
    """The maximum so far, and the sum of exponentials relative to it (to 0 where it is infinite)."""
    peak, total = carry
    after = arithmetic.larger(b, dtype, peak, x[0])
    base, nothing = finite(b, after), b.constant(peak, -inf)
    decay = table.call(b, exp.op, dtype, (b.fsub(peak, base),))
    decay = b.select(b.fcmp_ordered("==", peak, nothing), b.constant(peak, 0.0), decay)
    term = table.call(b, exp.op, dtype, (b.fsub(x[0], base),))
    return after, b.fadd(b.fmul(total, decay), term)


def logarithm(b: Assembler[V], table: ScalarTable, dtype: DType, carry: Carry[V]) -> V:
    peak, total = carry
    shown = b.fadd(table.call(b, log.op, dtype, (total,)), finite(b, peak))
    is_nothing = b.fcmp_ordered("==", total, b.constant(total, 0.0))
    return b.select(is_nothing, b.constant(total, -inf), shown)


def finite(b: Assembler[V], peak: V) -> V:
    """The maximum, or 0 where it is infinite: the difference of two infinities is no number."""
    is_infinite = b.fcmp_ordered("==", b.fabs(peak), b.constant(peak, inf))
    return b.select(is_infinite, b.constant(peak, 0.0), peak)


def _lowest(dtype: DType, is_exclusive: bool) -> tuple[float, ...]:
    return (-inf if dtype.is_float else int(np.iinfo(dtype.numpy).min),)


def _highest(dtype: DType, is_exclusive: bool) -> tuple[float, ...]:
    return (inf if dtype.is_float else int(np.iinfo(dtype.numpy).max),)


RULES: dict[type[Op], ScanRule] = {
    # -0 + x is x for every x; but the first value of an exclusive sum is 0.
    Cumsum: ScanRule(lambda dtype, is_exclusive: (0.0 if is_exclusive or not dtype.is_float else -0.0,), add, carried),
    Cumprod: ScanRule(lambda dtype, is_exclusive: (1,), multiply, carried),
    Cummax: ScanRule(_lowest, larger, carried),
    Cummin: ScanRule(_highest, smaller, carried),
    LinearRecurrence: ScanRule(lambda dtype, is_exclusive: (0,), recur, carried),
    CumLogSumExp: ScanRule(lambda dtype, is_exclusive: (-inf, 0.0), accumulate, logarithm),
}


@frozen
class ScanProblem:
    """A running reduction of `[outer, n, inner]` dense elements along the middle axis.

    Sizes are known, or expressions for unknown ones.

    Attributes:
        op: The op.
        dtype: Dtype of the elements; for complex ones of their parts, twice as many.
        is_reversed: Whether it runs from the end.
        is_exclusive: Whether an element is excluded from its result.
    """

    op: type[Op]
    dtype: DType
    outer: int
    n: int
    inner: int
    is_reversed: bool
    is_exclusive: bool

    @classmethod
    def of(cls, op: Any, result: TensorType) -> ScanProblem:
        shape, axis, dtype = (
            cast("tuple[int, ...]", result.shape),
            normalize_axis(op.axis, result.rank),
            result.dtype.component,
        )
        inner = prod(shape[axis + 1 :]) * (result.dtype.itemsize // dtype.itemsize)
        is_exclusive = isinstance(op, Cumulative) and op.exclusive
        return cls(type(op), dtype, prod(shape[:axis]), shape[axis], inner, op.reverse, is_exclusive)

    def __str__(self) -> str:
        words = (["reverse"] if self.is_reversed else []) + (["exclusive"] if self.is_exclusive else [])
        sizes = f"{self.dtype}[{self.outer}, {self.n}, {self.inner}]"
        return " ".join([f"scan {self.op.name.removeprefix('rlx.')} {sizes} along 1", *words])

    @property
    def rule(self) -> ScanRule:
        return RULES[self.op]

    @property
    def lines(self) -> int:
        return self.outer * self.inner

    def run(self, b: Assembler[np.ndarray], table: ScalarTable, *operands: np.ndarray) -> np.ndarray:
        """Compute the scan of dense arrays by an assembler of arrays: the reference for tests of every generated scan."""
        accumulator = self.dtype.accumulator
        lines = [x.reshape(-1).view(self.dtype.numpy).reshape(self.outer, self.n, self.inner) for x in operands]
        result = np.empty((self.outer, self.n, self.inner), self.dtype.numpy)
        like = np.empty((self.outer, self.inner), accumulator.numpy)
        carry = tuple(b.number(accumulator, number, like) for number in self.rule.start(accumulator, self.is_exclusive))
        for order in range(self.n):
            place = self.n - 1 - order if self.is_reversed else order
            x = tuple(register(line[:, place].astype(accumulator.numpy)) for line in lines)
            is_first = partial(b.number, bool_, order == 0, like)
            before, carry = carry, self.rule.step(b, table, accumulator, carry, x, is_first)
            shown = self.rule.show(b, table, accumulator, before if self.is_exclusive else carry)
            result[:, place] = shown.view(accumulator.numpy)
        return result
