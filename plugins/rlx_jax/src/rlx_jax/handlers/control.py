"""Calls, loops and choices: each program inside of an equation is walked where it runs."""

from __future__ import annotations

from typing import Any

import numpy as np

import rlx_core as rlx
from rlx_jax.walk import Equation, handles


@handles("jit", "pjit", "closed_call", "core_call", "custom_lin")
def call(equation: Equation, *x: Any) -> list[Any]:
    return equation.run(equation.params.get("jaxpr") or equation["call_jaxpr"], *x)


@handles("remat", "remat2", "checkpoint")
def remat(equation: Equation, *x: Any) -> Any:
    """Rematerialisation: values are recomputed in the backward pass; JAX's policy, if there is one, is ignored."""
    return list(rlx.checkpoint(lambda *x: tuple(equation.run(equation["jaxpr"], *x)))(*x))


@handles("scan")
def scan(equation: Equation, *x: Any) -> list[Any]:
    consts, carries = equation["num_consts"], equation["num_carry"]
    retained, first, each = x[:consts], x[consts : consts + carries], x[consts + carries :]

    def body(carry: Any, row: Any) -> Any:
        result = equation.run(equation["jaxpr"], *retained, *carry, *row)
        return tuple(result[:carries]), tuple(result[carries:])

    length = equation.sizes.size(equation["length"])
    last, stacked = rlx.scan(body, tuple(first), tuple(each), length=length, reverse=equation["reverse"])
    return [*last, *stacked]


@handles("while")
def while_loop(equation: Equation, *x: Any) -> list[Any]:
    cond_count, body_count = equation["cond_nconsts"], equation["body_nconsts"]
    of_cond, of_body, first = x[:cond_count], x[cond_count : cond_count + body_count], x[cond_count + body_count :]
    return list(
        rlx.while_loop(
            lambda carry: equation.run(equation["cond_jaxpr"], *of_cond, *carry)[0],
            lambda carry: tuple(equation.run(equation["body_jaxpr"], *of_body, *carry)),
            tuple(first),
        )
    )


@handles("platform_index")
def platform_index(equation: Equation) -> np.int32:
    """The branch of `lax.platform_dependent` that is taken: the CPU's, or the default."""
    platforms = equation["platforms"]
    named = [n for n, each in enumerate(platforms) if each is not None and "cpu" in each]
    return np.int32(named[0] if named else platforms.index(None))


@handles("cond")
def cond(equation: Equation, index: Any, *x: Any) -> list[Any]:
    if isinstance(index, np.generic):  # known here
        return equation.run(equation["branches"][int(index)], *x)
    branches = [lambda *x, branch=branch: tuple(equation.run(branch, *x)) for branch in equation["branches"]]
    return list(rlx.switch(rlx.astype(index, rlx.i32), branches, *x))
