"""The running reductions as rules on registers: the carried state, the combination of adjacent ranges, the result.

The combination is associative except for rounding: the state includes the effect of a range on the state carried into it.
"""

from __future__ import annotations

from math import inf
from typing import TypeAlias

from attrs import field

from rlx_core.codegen.loops import Combine
from rlx_core.codegen.scalars.table import ScalarTable
from rlx_core.codegen.scans import ScanProblem
from rlx_core.ir.dtypes import DType
from rlx_core.ir.op import Op
from rlx_core.ops.activation import exp, log
from rlx_core.ops.cumulative import CumLogSumExp, Cummax, Cummin, Cumprod, Cumsum, LinearRecurrence
from rlx_core.system.records import define
from rlx_gpu.codegen.assembler import Register, TextAssembler
from rlx_gpu.codegen.reductions import Reductions
from rlx_gpu.codegen.registers import register_dtype

State: TypeAlias = tuple[Register, ...]

_COMBINES: dict[type[Op], Combine] = {Cumsum: "sum", Cumprod: "prod", Cummax: "max", Cummin: "min"}


def registers_of(problem: ScanProblem) -> int:
    """Return the number of registers of the state."""
    return 1 if problem.op in _COMBINES else 2


@define(eq=False)
class Rule:
    """The rule of one problem, in the function that is being written.

    A sum, product or extreme carries itself. A log-sum-exp carries the maximum m and Σ exp(x - m), with 0 for an infinite m.
    A recurrence carries the line h → A·h + B that a stretch is.
    """

    b: TextAssembler
    scalars: ScalarTable
    problem: ScanProblem
    _reductions: Reductions = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._reductions = Reductions(self.b, self.scalars, 1, None)

    @property
    def dtype(self) -> DType:
        """The dtype of the state, with its sign."""
        dtype = self.problem.dtype
        return dtype.accumulator if dtype.is_float else dtype

    @property
    def register(self) -> DType:
        return register_dtype(self.dtype)

    def identity(self) -> State:
        """A stretch of no elements."""
        op = self.problem.op
        if op is CumLogSumExp:
            return self._number(-inf), self._number(0)
        if op is LinearRecurrence:
            return self._number(1), self._number(0)
        if op is Cumsum:
            # -0 + x is x for every x.
            return (self._number(-0.0 if self.dtype.is_float else 0),)
        return (self._reductions.identity(_COMBINES[op], self.dtype),)

    def start(self) -> State:
        """Return the state before the first element: the first value of an exclusive result."""
        if self.problem.op is Cumsum and self.problem.is_exclusive:
            return (self._number(0),)
        return self.identity()

    def element(self, x: tuple[Register, ...]) -> State:
        """A stretch of one element."""
        if self.problem.op is CumLogSumExp:
            return x[0], self._exp(self.b.fsub(x[0], self._finite(x[0])))
        return x

    def joined(self, left: State, right: State) -> State:
        """Two stretches as one."""
        b, op = self.b, self.problem.op
        if op is LinearRecurrence:
            slope, shifted = self._product(left[0], right[0]), self._product(right[0], left[1])
            return slope, self._reductions.combined("sum", self.dtype, shifted, right[1])
        if op is CumLogSumExp:
            peak = self._reductions.combined("max", self.dtype, left[0], right[0])
            base = self._finite(peak)
            shares = [b.fmul(total, self._decay(old, base)) for old, total in (left, right)]
            return peak, b.fadd(*shares)
        return (self._reductions.combined(_COMBINES[op], self.dtype, left[0], right[0]),)

    def shown(self, state: State) -> Register:
        """Return the result of a state."""
        if self.problem.op is not CumLogSumExp:
            return state[-1]
        peak, total = state
        nothing = self.b.fcmp_ordered("==", total, self._number(0))
        value = self.b.fadd(self.scalars.apply(self.b, log.op(), (self.dtype,), (total,)), self._finite(peak))
        return self.b.select(nothing, self._number(-inf), value)

    def _number(self, number: float) -> Register:
        return self.b.literal(self.register, number)

    def _product(self, x: Register, y: Register) -> Register:
        return self._reductions.combined("prod", self.dtype, x, y)

    def _exp(self, x: Register) -> Register:
        return self.scalars.apply(self.b, exp.op(), (self.dtype,), (x,))

    def _decay(self, peak: Register, base: Register) -> Register:
        """Return the factor for a sum whose maximum was `peak`; 0 if the sum is empty."""
        is_nothing = self.b.fcmp_ordered("==", peak, self._number(-inf))
        return self.b.select(is_nothing, self._number(0), self._exp(self.b.fsub(peak, base)))

    def _finite(self, peak: Register) -> Register:
        """The maximum, or 0 where it is infinite: the difference of two infinities is no number."""
        is_infinite = self.b.fcmp_ordered("==", self.b.fabs(peak), self._number(inf))
        return self.b.select(is_infinite, self._number(0), peak)
