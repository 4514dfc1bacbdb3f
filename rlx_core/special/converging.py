"""Series and continued fractions with a data-dependent number of terms, and their derivatives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlx_core.functions.control.calls import while_loop
from rlx_core.functions.transforms import jvp
from rlx_core.ops.arithmetic import absolute, maximum
from rlx_core.ops.array_creation import asarray
from rlx_core.ops.array_elementwise import dtype_of
from rlx_core.ops.array_statistics import any as any_
from rlx_core.ops.comparison import greater, less, logical_and
from rlx_core.ops.creation import ones_like, zeros_like
from rlx_core.special.operands import epsilon
from rlx_core.system.records import frozen

MAX_TERMS = 10_000
"""The maximum number of steps of a loop, converged or not."""


@frozen
class Recurrence:
    """An elementwise iteration that approaches a limit.

    Attributes:
        start: A function of the operands that returns the first state, a tuple of arrays, the last of which approaches the
            limit.
        step: A function of the number of a step, counted from 1, the state and the operands; it returns the next state, and the
            relative change of the limit in this step.
    """

    start: Callable[..., tuple[Any, ...]]
    step: Callable[..., tuple[tuple[Any, ...], Any]]


def limit(recurrence: Recurrence, *x: Any) -> Any:
    """Return the limit for operands of one shape and dtype: steps run until none changes it by more than the rounding."""
    return _run(lambda n, state: recurrence.step(n, state, *x), recurrence.start(*x))[-1]


def slope(recurrence: Recurrence, which: int, *x: Any) -> tuple[Any, Any]:
    """Return the limit and its derivative by operand `which`: steps run until both have converged.

    Differentiating the loop of `limit` is not equivalent: a fraction that terminates exactly does so before its derivative has
    converged.
    """

    def along(function: Callable[..., Any], *more: tuple[Any, Any]) -> tuple[Any, Any]:
        """Return `function` of the values in `more` and the operands, and the tangent of its result."""
        tangents = [ones_like(v) if i == which else zeros_like(v) for i, v in enumerate(x)]
        return jvp(function, (*(v for v, _ in more), *x), (*(t for _, t in more), *tangents))

    def step(n: Any, state: Any) -> Any:
        here, moving = along(lambda state, *x: recurrence.step(n, state, *x), state)
        return (here[0], moving[0]), maximum(absolute(here[1]), absolute(moving[1]))

    values, moved = _run(step, along(recurrence.start))
    return values[-1], moved[-1]


def _run(step: Callable[[Any, Any], tuple[Any, Any]], start: Any) -> Any:
    """Return the state after the last step that changes an element by more than the rounding."""
    first = start[0][0] if isinstance(start[0], tuple) else start[0]

    def goes_on(carry: Any) -> Any:
        n, is_open, _ = carry
        return logical_and(is_open, less(n, MAX_TERMS))

    def body(carry: Any) -> Any:
        n, _, state = carry
        state, share = step(n, state)
        return n + 1, any_(greater(absolute(share), 2 * epsilon(share))), state

    return while_loop(goes_on, body, (asarray(1, dtype=dtype_of(first)), asarray(True), start))[2]
