"""Identities of the reals that are not exact in floating point. They run only where a pipeline names them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rlx_core.ir.graph import Value
from rlx_core.ops.activation import exp, log, rsqrt, sqrt
from rlx_core.ops.arithmetic import pow, reciprocal, square
from rlx_core.ops.creation import zeros_like
from rlx_core.passes.algebra import broadcast
from rlx_core.passes.engine.predicates import is_float
from rlx_core.passes.engine.rules import Match, RewriteRule, rewrite, ruleset


@ruleset("fast-math")
def fast_math(x: Any, y: Any, z: Any) -> Iterator[RewriteRule]:
    """Each rule declares the law that it violates; its error is unbounded if the law concerns NaN or infinity."""
    yield rewrite("add-zero", x + 0).to(x).when(is_float).giving_up("signed zero")  # -0.0 + 0 is +0.0
    yield rewrite("mul-zero", x * 0).to(zeros_of).when(is_float).giving_up("NaN, infinities, signed zero")
    yield rewrite("sub-same", x - x).to(zeros_of).when(is_float).giving_up("NaN, infinities")
    yield (
        rewrite("factor", x * y + x * z)
        .to(x * (y + z))
        .when(is_float)
        .giving_up("the rounding of each product, signed zero, overflow")
    )
    yield (
        rewrite("square-of-sqrt", square(sqrt(x)))
        .to(x)
        .when(is_float)
        .giving_up("NaN below 0, signed zero, one rounding")
    )
    yield rewrite("pow-two", pow(x, 2)).to(x * x).when(is_float).giving_up("at most one ulp")
    yield rewrite("div-sqrt", x / sqrt(y)).to(x * rsqrt(y)).when(is_float).giving_up("one rounding")
    yield rewrite("reciprocal-sqrt", reciprocal(sqrt(x))).to(rsqrt(x)).when(is_float).giving_up("one rounding")
    yield rewrite("exp-exp", exp(x) * exp(y)).to(exp(x + y)).when(is_float).giving_up("overflow of the factors")
    yield rewrite("log-exp", log(exp(x))).to(x).when(is_float).giving_up("overflow and underflow of the exponential")


def zeros_of(x: Value, match: Match) -> Value:
    return broadcast(zeros_like(x), match)
