"""Functions whose derivatives their authors state: the rules come along."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

import jax
import numpy as np
from jax.interpreters import ad

import rlx_core as rlx
from rlx_core.system.context import assigned
from rlx_jax.walk import Equation, expect_supported, handles

_in_rule: ContextVar[bool] = ContextVar("in_rule", default=False)
"""Whether a rule is walked: it may call its own function for the result (`jax.nn.relu` does), which is then no call of a rule."""


def is_in_rule() -> bool:
    return _in_rule.get()


def within_rule() -> assigned[bool]:
    return assigned(_in_rule, True)


@handles("custom_jvp_call")
def custom_jvp_call(equation: Equation, *x: Any) -> list[Any]:
    if is_in_rule():
        return equation.run(equation["call_jaxpr"], *x)
    function = rlx.custom_jvp(lambda *x: tuple(equation.run(equation["call_jaxpr"], *x)))
    moves = [np.issubdtype(aval.dtype, np.inexact) or aval.dtype == jax.numpy.bfloat16 for aval in equation.operands]

    @function.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        jaxpr, consts, is_zero = equation["jvp_jaxpr_fun"].call_wrapped(*(not each for each in moves))
        expect_supported(equation.name, jaxpr)
        moving = [t for t, is_moving in zip(tangents, moves, strict=True) if is_moving]
        with within_rule():
            result = equation.run(jax.extend.core.ClosedJaxpr(jaxpr, consts), *primals, *moving)
        results, remaining = result[: len(is_zero)], iter(result[len(is_zero) :])
        moved = [
            rlx.zeros_like(y) if is_still else next(remaining) for y, is_still in zip(results, is_zero, strict=True)
        ]
        return tuple(results), tuple(moved)

    return list(function(*x))


@handles("custom_vjp_call")
def custom_vjp_call(equation: Equation, *x: Any) -> list[Any]:
    if is_in_rule():
        return equation.run(equation["call_jaxpr"], *x)
    captured, x = x[: equation["num_consts"]], x[equation["num_consts"] :]
    function = rlx.custom_vjp(lambda *x: tuple(equation.run(equation["call_jaxpr"], *captured, *x)))
    results = len(equation.results)

    def forward(*x: Any) -> Any:
        jaxpr, consts = equation["fwd_jaxpr_thunk"].call_wrapped(*(True for _ in x))
        with within_rule():
            result = equation.run(jax.extend.core.ClosedJaxpr(jaxpr, consts), *x)
        remaining = iter(result[:-results])
        _, _, places = equation["out_trees"]()  # a residual that is an operand is not among the results
        residuals = (next(remaining) if place is None else (*captured, *x)[place] for place in places)
        return tuple(result[-results:]), tuple(residuals)

    def transposed(*args: Any) -> Any:
        return tuple(map(ad.instantiate_zeros, equation["bwd"].call_wrapped(*args)))

    def backward(residuals: Any, cotangents: Any) -> Any:
        with within_rule():
            return equation.expand(transposed, *residuals, *cotangents)

    function.defvjp(forward, backward)
    return list(function(*x))
