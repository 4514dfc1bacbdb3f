"""Comparisons, logic and classification: element-wise ops whose result is bool.

Operands are promoted, then compared. A comparison with NaN is false, except `!=`. Complex values are equal or not; they have
no order. Logic reads every operand as a truth value, `x != 0`.
"""

from __future__ import annotations

import numpy as np

from rlx_core.ir.dtypes import ALL, FLOATS, INTEGERS, bool_
from rlx_core.ir.op import ZERO
from rlx_core.ops.kinds import elementwise

_ORDERED = (bool_, *INTEGERS, *FLOATS)

equal = elementwise(
    "Eq", np.equal, ZERO, ZERO, doc="a == b.", accepts=ALL, result_dtype=bool_, is_smooth=False, is_commutative=True
)
not_equal = elementwise(
    "Ne",
    np.not_equal,
    ZERO,
    ZERO,
    doc="a != b; true for NaN.",
    accepts=ALL,
    result_dtype=bool_,
    is_smooth=False,
    is_commutative=True,
)
less = elementwise("Lt", np.less, ZERO, ZERO, doc="a < b.", accepts=_ORDERED, result_dtype=bool_, is_smooth=False)
less_equal = elementwise(
    "Le", np.less_equal, ZERO, ZERO, doc="a <= b.", accepts=_ORDERED, result_dtype=bool_, is_smooth=False
)
greater = elementwise("Gt", np.greater, ZERO, ZERO, doc="a > b.", accepts=_ORDERED, result_dtype=bool_, is_smooth=False)
greater_equal = elementwise(
    "Ge", np.greater_equal, ZERO, ZERO, doc="a >= b.", accepts=_ORDERED, result_dtype=bool_, is_smooth=False
)

OPS = tuple(f.op for f in (equal, not_equal, less, less_equal, greater, greater_equal))
