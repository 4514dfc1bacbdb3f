"""Comparisons, logic and classification: element-wise ops whose result is bool.

Operands are promoted, then compared. A comparison with NaN is false, except `!=`. Complex values can be compared for equality
only. Logical ops convert every operand to a truth value, `x != 0`, by a separate cast, so operands of any two dtypes are
accepted.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rlx_core.ir.apply import OpFunction
from rlx_core.ir.dtypes import ALL, FLOATS, INTEGERS, DType, bool_
from rlx_core.ir.op import ZERO
from rlx_core.ops.kinds import Elementwise, elementwise

_ORDERED = (bool_, *INTEGERS, *FLOATS)
_NUMBERS = tuple(d for d in ALL if d is not bool_)


def _comparison(
    name: str, meaning: Callable[..., np.ndarray], doc: str, accepts: tuple[DType, ...], is_commutative: bool = False
) -> OpFunction[Elementwise]:
    return elementwise(
        name,
        meaning,
        ZERO,
        ZERO,
        doc=doc,
        accepts=accepts,
        result_dtype=bool_,
        is_commutative=is_commutative,
        is_smooth=False,
    )


equal = _comparison("Eq", np.equal, "a == b.", ALL, is_commutative=True)
not_equal = _comparison("Ne", np.not_equal, "a != b; true if either is NaN.", ALL, is_commutative=True)
less = _comparison("Lt", np.less, "a < b.", _ORDERED)
less_equal = _comparison("Le", np.less_equal, "a <= b.", _ORDERED)
greater = _comparison("Gt", np.greater, "a > b.", _ORDERED)
greater_equal = _comparison("Ge", np.greater_equal, "a >= b.", _ORDERED)


def _logic(name: str, meaning: Callable[..., np.ndarray], doc: str, count: int = 2) -> OpFunction[Elementwise]:
    return elementwise(
        name,
        meaning,
        *[ZERO] * count,
        doc=doc,
        accepts=(bool_,),
        converts=_NUMBERS,
        computes_in=bool_,
        result_dtype=bool_,
        is_commutative=count == 2,
        is_smooth=False,
    )


logical_and = _logic("LogicalAnd", np.logical_and, "Whether a and b both are true.")
logical_or = _logic("LogicalOr", np.logical_or, "Whether a or b is true, or both.")
logical_xor = _logic("LogicalXor", np.logical_xor, "Whether one of a and b is true and the other is not.")
logical_not = _logic("LogicalNot", np.logical_not, "Whether x is false.", 1)


def _classification(
    name: str, meaning: Callable[..., np.ndarray], doc: str, accepts: tuple[DType, ...]
) -> OpFunction[Elementwise]:
    return elementwise(name, meaning, ZERO, doc=doc, accepts=accepts, result_dtype=bool_, is_smooth=False)


def sign_bit_array(x: np.ndarray) -> np.ndarray:
    """Return whether the sign bit is set, also for -0.0 and NaN."""
    return np.signbit(x) if x.dtype.kind == "f" else x < 0


isnan = _classification("IsNan", np.isnan, "Whether x is NaN; of a complex value, either part.", _NUMBERS)
isinf = _classification("IsInf", np.isinf, "Whether x is infinite; of a complex value, either part.", _NUMBERS)
isfinite = _classification("IsFinite", np.isfinite, "Whether x is neither infinite nor NaN.", _NUMBERS)
signbit = _classification(
    "SignBit", sign_bit_array, "Whether the sign of x is minus; -0.0 and NaN have a sign too.", (*INTEGERS, *FLOATS)
)
