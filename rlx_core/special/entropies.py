"""Products with logarithms that are 0 where their factor is 0, and entropies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rlx_core.hints.keywords import checked_call
from rlx_core.ops.activation import log, log1p
from rlx_core.ops.arithmetic import add, divide, multiply, negative, subtract
from rlx_core.ops.comparison import equal, greater, greater_equal, isinf, isnan, less_equal, logical_and, logical_or
from rlx_core.ops.selection import where
from rlx_core.special.operands import in_wide

__all__ = ["entr", "kl_div", "rel_entr", "xlog1py", "xlogy"]


@checked_call
def xlogy(x: Any, y: Any) -> Any:
    """x ln y, and 0 where x is 0 and y is not NaN. Its derivatives are ln y, 0 where both are 0, and x / y."""

    def product(x: Any, y: Any) -> Any:
        # Where ln y is infinite or NaN for a number, and x is 0, ln 1 replaces it.
        is_odd = logical_and(equal(x, 0), logical_or(less_equal(y, 0), isinf(y)))
        return multiply(x, log(where(is_odd, 1.0, y)))

    return in_wide("xlogy", product, x, y)


@checked_call
def xlog1py(x: Any, y: Any) -> Any:
    """x ln(1 + y), and 0 where x is 0 and y is not NaN."""

    def product(x: Any, y: Any) -> Any:
        is_odd = logical_and(equal(x, 0), logical_or(less_equal(y, -1), isinf(y)))
        return multiply(x, log1p(where(is_odd, 0.0, y)))

    return in_wide("xlog1py", product, x, y)


@checked_call
def entr(x: Any) -> Any:
    """-x ln x: 0 at 0, and -∞ below it."""
    return in_wide("entr", lambda x: where(greater_equal(x, 0), negative(xlogy(x, x)), where(isnan(x), x, -np.inf)), x)


@checked_call
def rel_entr(x: Any, y: Any) -> Any:
    """x ln(x / y) of two positive numbers; 0 where x is 0 and y is not negative, and ∞ elsewhere."""
    return in_wide("rel_entr", lambda x, y: _relative(x, y, lambda entropy, x, y: entropy, 0.0), x, y)


@checked_call
def kl_div(x: Any, y: Any) -> Any:
    """x ln(x / y) - x + y of two positive numbers, as SciPy defines it; y where x is 0 and y is not negative, and ∞ elsewhere.

    It is at least 0, and 0 where x = y. `nn.kl_div` is the loss.
    """
    return in_wide("kl_div", lambda x, y: _relative(x, y, lambda entropy, x, y: add(subtract(entropy, x), y), y), x, y)


def _relative(x: Any, y: Any, inside: Callable[[Any, Any, Any], Any], at_zero: Any) -> Any:
    """Return `inside` of x ln(x / y), x and y where both are positive, `at_zero` where x is 0, and ∞ elsewhere."""
    is_inside = logical_and(greater(x, 0), greater(y, 0))
    is_zero = logical_and(equal(x, 0), greater_equal(y, 0))
    above, below = (where(is_inside, v, 1.0) for v in (x, y))
    interior = inside(multiply(above, log(divide(above, below))), above, below)
    outside = where(logical_or(isnan(x), isnan(y)), np.nan, np.inf)
    return where(is_inside, interior, where(is_zero, at_zero, outside))
