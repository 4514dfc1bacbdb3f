"""Arithmetic and comparison, and what Python's operators mean on values."""

from __future__ import annotations

import numpy as np

from rlx_core.ir.dtypes import ALL, COMPLEXES, FLOATS, INTEGERS, bool_
from rlx_core.ir.op import ZERO
from rlx_core.ops.kinds import elementwise

NUMERIC = (*INTEGERS, *FLOATS, *COMPLEXES)
REAL = (*INTEGERS, *FLOATS)

add = elementwise(
    "Add", np.add, lambda a, b, y: 1, lambda a, b, y: 1, doc="a + b.", accepts=NUMERIC, is_commutative=True
)
subtract = elementwise("Sub", np.subtract, lambda a, b, y: 1, lambda a, b, y: -1, doc="a - b.", accepts=NUMERIC)
multiply = elementwise(
    "Mul",
    np.multiply,
    lambda a, b, y: b,
    lambda a, b, y: a,
    doc="a · b.",
    accepts=NUMERIC,
    is_commutative=True,
)
negative = elementwise("Neg", np.negative, lambda x, y: -1, doc="-x.", accepts=NUMERIC)
exp = elementwise("Exp", np.exp, lambda x, y: y, doc="e^x.", accepts=(*FLOATS, *COMPLEXES))
equal = elementwise("Eq", np.equal, ZERO, ZERO, doc="a == b.", accepts=ALL, result_dtype=bool_)
