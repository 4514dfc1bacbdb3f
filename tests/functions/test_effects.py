"""What a program does besides its results happens once for each passage, whatever is made of the program.

A derivative evaluates loops, branches and checkpoints a second time; what they do is left out there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.errors import MissingRuleError

STEPS = np.float32([0, 1, 2])
ONE = np.float32(1)


def looped(step: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: rlx.scan(lambda c, _: (step(c), None), x, STEPS)[0]


def stated(step: Callable[[Any], Any]) -> Callable[[Any], Any]:
    f = rlx.custom_vjp(lambda x: step(x) * x)
    f.defvjp(lambda x: (f(x), x), lambda x, g: (g * 3 * x,))
    return f


def pushed(step: Callable[[Any], Any]) -> Callable[[Any], Any]:
    f = rlx.custom_jvp(lambda x: step(x) * x)
    f.defjvp(lambda primals, tangents: (f(*primals), tangents[0] * 3 * primals[0]))
    return f


def growing(step: Callable[[Any], Any], **bound: int) -> Callable[[Any], Any]:
    return lambda x: rlx.while_loop(lambda c: c < 10.0, step, x, **bound)


def beside(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A result that does not need what has the effect."""
    return lambda x: (f(x), x * x)[1]


# What is made of a function with one effect, and how often that happens for 1.
PLACES: dict[str, tuple[Callable[[Callable[[Any], Any]], Callable[[Any], Any]], int]] = {
    "in place": (lambda step: step, 1),
    "jit": (rlx.jit, 1),
    "scan": (looped, 3),
    "map": (lambda step: lambda x: rlx.sum(rlx.map(step, x * STEPS)), 3),
    "fori_loop": (lambda step: lambda x: rlx.fori_loop(0, 3, lambda i, c: step(c), x), 3),
    "cond": (lambda step: lambda x: rlx.cond(x > 0, step, lambda c: c, x), 1),
    "while_loop": (growing, 6),
    "while_loop with a bound": (lambda step: growing(step, max_steps=8), 6),
    "checkpoint": (lambda step: rlx.checkpoint(lambda x: step(x) * x), 1),
    "custom_vjp": (stated, 1),
    "custom_jvp": (pushed, 1),
    "scan in segments": (
        lambda step: lambda x: rlx.scan(lambda c, _: (step(c), None), x, STEPS, checkpoints=2)[0],
        3,
    ),
    "scan in scan": (lambda step: looped(looped(step)), 9),
    "checkpoint in scan": (lambda step: looped(rlx.checkpoint(step)), 3),
    "scan in checkpoint": (lambda step: rlx.checkpoint(looped(step)), 3),
    "cond in scan": (lambda step: looped(lambda c: rlx.cond(c > 0, step, lambda c: c, c)), 3),
    "scan in while_loop": (lambda step: growing(looped(step)), 6),
    "unread jit": (lambda step: beside(rlx.jit(step)), 1),
    "unread checkpoint": (lambda step: beside(rlx.checkpoint(step)), 1),
    "unread scan": (lambda step: beside(looped(step)), 3),
}

USES: dict[str, tuple[Callable[[Callable[[Any], Any]], Any], int]] = {
    "forward": (lambda f: rlx.jit(f)(ONE), 1),
    "gradient": (lambda f: rlx.value_and_grad(f)(ONE), 1),
    "jvp": (lambda f: rlx.jvp(f, (ONE,), (ONE,)), 1),
    "linearize": (lambda f: rlx.linearize(f, ONE), 1),
    "vmap": (lambda f: rlx.vmap(f)(np.float32([1, 1, 1])), 3),
    "gradient of gradient": (lambda f: rlx.grad(rlx.grad(f))(ONE), 1),
    "forward Jacobian": (lambda f: rlx.jacfwd(f)(ONE), 1),
    "Jacobian by gradients": (lambda f: rlx.jacrev(f)(ONE), 1),
    "Hessian, by a gradient": (lambda f: rlx.hessian(f)(ONE), 1),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("place", PLACES)
def test_an_effect_happens_once_for_each_passage(place: str, use: str) -> None:
    seen: list[float] = []

    def step(x: Any) -> Any:
        rlx.debug.callback(lambda value: seen.append(float(value)), x)
        return x * 1.5

    (make, often), (run, examples) = PLACES[place], USES[use]
    if "gradient" in use and place in ("while_loop", "scan in while_loop"):
        with pytest.raises(MissingRuleError, match="max_steps"):
            run(make(step))
        return
    run(make(step))

    assert len(seen) == often * examples
