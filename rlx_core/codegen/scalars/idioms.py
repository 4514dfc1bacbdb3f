"""Formulas with dedicated code: a few steps recognised as one function, as in instruction selection.

An op arrives decomposed. If the parts cost more than a fused implementation (GELU through erfc, which must have a small
relative error far from 0, where GELU needs that only of the product), the last step is replaced by it; steps that are then
unused are not emitted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeVar, cast

from rlx_core.codegen.loops import Apply, Const
from rlx_core.ir.dtypes import f32
from rlx_core.ir.graph import Value
from rlx_core.ir.op import Zero
from rlx_core.ops import activation, arithmetic
from rlx_core.ops.kinds import composed

_T = TypeVar("_T")

ADD, MULTIPLY, EXP = arithmetic.add.op, arithmetic.multiply.op, activation.exp.op
ERFC, GELU = activation.erfc.op, activation.gelu.op


def _slope(x: Value) -> Value:
    slope = GELU.partials[0]
    assert not isinstance(slope, Zero), "GELU has a derivative"
    return cast(Value, slope(x, GELU()(x)))


gelu_slope = composed("GeluSlope", _slope, doc="Φ(x) + x·φ(x), the derivative of GELU.", domain="codegen")
"""The derivative of GELU as one function: a name for the code, which no program ever holds as a node."""


def recognised(terms: Sequence[_T]) -> tuple[_T, ...]:
    """The terms, with the last step of each idiom replaced by the function."""
    result: list[Any] = list(terms)
    for number, term in enumerate(result):
        if not isinstance(term, Apply) or term.dtype.accumulator is not f32 or len(term.args) != 2:
            continue
        for left, right in (term.args, term.args[::-1]):
            if isinstance(term.op, MULTIPLY) and _is_cdf(result, right, left):
                result[number] = Apply(term.dtype, GELU(), (left,))
            elif isinstance(term.op, ADD):
                x = _bell_times(result, right)
                if x is not None and _is_cdf(result, left, x):
                    result[number] = Apply(term.dtype, gelu_slope.op(), (x,))
    return tuple(result)


def _is_cdf(terms: Sequence[Any], number: int, x: int) -> bool:
    """Return whether a term is ½ erfc(-x/√2)."""
    half = _scaled(terms, number, 0.5)
    if half is None or not isinstance(terms[half], Apply) or not isinstance(terms[half].op, ERFC):
        return False
    return _scaled(terms, terms[half].args[0], -math.sqrt(0.5)) == x


def _bell_times(terms: Sequence[Any], number: int) -> int | None:
    """The x of a term x · (e^(-x²/2)/√(2π))."""
    term = terms[number]
    if not isinstance(term, Apply) or not isinstance(term.op, MULTIPLY):
        return None
    for x, bell in (term.args, term.args[::-1]):
        power = _scaled(terms, bell, 1 / math.sqrt(2 * math.pi))
        if power is None or not isinstance(terms[power], Apply) or not isinstance(terms[power].op, EXP):
            continue
        square = _scaled(terms, terms[power].args[0], -0.5)
        if square is not None and isinstance(terms[square], Apply) and isinstance(terms[square].op, MULTIPLY):
            return x if terms[square].args == (x, x) else None
    return None


def _scaled(terms: Sequence[Any], number: int, factor: float) -> int | None:
    """The term that this one is `factor` times, to the accuracy of f32."""
    term = terms[number]
    if not isinstance(term, Apply) or not isinstance(term.op, MULTIPLY):
        return None
    for constant, other in (term.args, term.args[::-1]):
        one = terms[constant]
        if isinstance(one, Const) and isinstance(one.number, float) and abs(one.number - factor) < 1e-7:
            return other
    return None
