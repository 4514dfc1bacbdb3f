"""Incomplete gamma and beta functions, by JAX's loops and with its own rules for their derivatives; and what words have."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax._src.lax import special  # what JAX itself lowers these primitives to

import rlx_core as rlx
from rlx_core.importing.walk import refuse
from rlx_jax.handlers.derivatives import is_in_rule, within_rule
from rlx_jax.walk import Equation, handles

LOOPS = {
    "igamma": (jax.lax.igamma, special.igamma_impl),
    "igammac": (jax.lax.igammac, special.igammac_impl),
    "igamma_grad_a": (jax.lax.igamma_grad_a, special.igamma_grad_a_impl),
    "regularized_incomplete_beta": (jax.lax.betainc, special.regularized_incomplete_beta_impl),
}
"""Name → the function, which has a derivative, and JAX's implementation as a program."""


@handles(*LOOPS)
def incomplete(equation: Equation, *x: Any) -> Any:
    """Compute the function as JAX does, in f32 at least."""
    wide = np.promote_types(equation.results[0].dtype, np.float32)
    function, loops = LOOPS[equation.name]

    def program(*x: Any) -> Any:
        arguments = jnp.broadcast_arrays(*(each.astype(wide) for each in x))
        return loops(*arguments, dtype=wide).astype(equation.results[0].dtype)

    if equation.name != "regularized_incomplete_beta":
        return stated(equation, function, program, *x)
    *shape, position = x
    if all(isinstance(each, np.ndarray) for each in shape):
        return stated(equation, partial(function, *shape), partial(program, *shape), position)
    return equation.expand(program, *x)  # the first operands have no derivative


def stated(equation: Equation, theirs: Callable[..., Any], program: Callable[..., Any], *x: Any) -> Any:
    """Compute a program of JAX, with the derivative of JAX's function."""
    if is_in_rule():
        return equation.expand(program, *x)
    function = rlx.custom_jvp(lambda *x: equation.expand(program, *x))

    @function.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        count = len(primals)
        with within_rule():
            return equation.expand(lambda *each: jax.jvp(theirs, each[:count], each[count:]), *primals, *tangents)

    return function(*x)


@handles("eq_to")
def equal_in_total_order(equation: Equation, x: Any, y: Any) -> Any:
    """Zeros by their signs, NaN by their bits."""
    return rlx.equal(*(rlx.bitcast(each, f"i{8 * each.dtype.itemsize}") for each in (x, y)))


@handles("mulhi")
def upper_half(equation: Equation, x: Any, y: Any) -> Any:
    """The upper half of a product of words of 8 to 32 bits."""
    dtype = np.dtype(equation.results[0].dtype)
    if dtype.itemsize > 4:
        refuse(subject="mulhi of 64 bits")
    wide = np.dtype(f"{dtype.kind}{2 * dtype.itemsize}")
    product = rlx.astype(x, wide) * rlx.astype(y, wide)
    return rlx.astype(rlx.bitwise_right_shift(product, wide.type(8 * dtype.itemsize)), dtype)
