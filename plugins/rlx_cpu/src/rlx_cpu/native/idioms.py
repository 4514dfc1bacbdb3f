"""Formulas that have code of their own: a few steps recognised as one function, as a compiler selects an instruction.

An op arrives taken apart. Where the parts together are dearer than the whole (GELU through erfc, which must be right in
relative terms far out where GELU needs that only of the product), the last step is replaced by the whole; steps that nothing
needs any more are never written.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeVar

from rlx_core.codegen.loops import Apply, Const
from rlx_core.ir.dtypes import f32
from rlx_core.ops import activation, arithmetic

__all__ = ["recognised"]

_T = TypeVar("_T")

MULTIPLY, ERFC, GELU = arithmetic.multiply.op, activation.erfc.op, activation.gelu.op


def recognised(terms: Sequence[_T]) -> tuple[_T, ...]:
    """The terms, with the last step of each idiom replaced by the function."""
    found: list[Any] = list(terms)
    for number, term in enumerate(found):
        if isinstance(term, Apply) and term.dtype.accumulator is f32 and isinstance(term.op, MULTIPLY):
            for x, cdf in (term.args, term.args[::-1]):
                if _is_cdf(found, cdf, x):
                    found[number] = Apply(term.dtype, GELU(), (x,))
    return tuple(found)


def _is_cdf(terms: Sequence[Any], number: int, x: int) -> bool:
    """Whether a term is ½ erfc(-x/√2)."""
    half = _scaled(terms, number, 0.5)
    if half is None or not isinstance(terms[half], Apply) or not isinstance(terms[half].op, ERFC):
        return False
    return _scaled(terms, terms[half].args[0], -math.sqrt(0.5)) == x


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
