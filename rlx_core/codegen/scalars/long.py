"""The primitives with long code, without that code: it schedules a program from a cache, for which nothing is printed."""

from __future__ import annotations

from rlx_core.ir.op import Op
from rlx_core.ops import activation, arithmetic, gamma
from rlx_core.ops.families import Family

LONG: tuple[type[Op], ...] = (
    *(f.op for f in (activation.exp, activation.exp2, activation.expm1, activation.log, activation.log2)),
    *(f.op for f in (activation.log10, activation.log1p, activation.cbrt, activation.tanh)),
    *(f.op for f in (activation.erf, activation.erfc, activation.erfinv, gamma.lgamma, gamma.digamma)),
    *(f.op for f in (arithmetic.hypot, arithmetic.atan2, arithmetic.logaddexp)),
    *Family("trigonometry"),
)
"""Primitives that are long polynomials on any float: what they cost, schedules weigh."""
