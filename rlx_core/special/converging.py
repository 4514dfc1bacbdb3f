"""Series and continued fractions whose length is known only when they are summed, and their derivatives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attrs import frozen

from rlx_core.functions.control.calls import while_loop
from rlx_core.functions.transforms import jvp
from rlx_core.ops.arithmetic import absolute, maximum
from rlx_core.ops.array_creation import asarray
from rlx_core.ops.array_elementwise import dtype_of
from rlx_core.ops.array_statistics import any as any_
from rlx_core.ops.comparison import greater, less, logical_and
from rlx_core.ops.creation import ones_like, zeros_like
from rlx_core.special.operands import epsilon

__all__ = ["Recurrence", "limit", "slope"]

MOST = 10_000
"""Steps after which a loop ends, whatever it has reached."""


@frozen
class Recurrence:
    """Steps that approach a limit, element by element.

    Attributes:
        start: Of the operands: the first state, a tuple of arrays, the last of which approaches the limit.
        step: Of the number of a step, counted from 1, the state and the operands: the next state, and the share of the limit
            that this step has brought.
    """

    start: Callable[..., tuple[Any, ...]]
    step: Callable[..., tuple[tuple[Any, ...], Any]]


def limit(recurrence: Recurrence, *x: Any) -> Any:
    """What the state approaches for operands of one shape and dtype: steps are done until none brings a rounding any more."""
    return _run(lambda n, state: recurrence.step(n, state, *x), recurrence.start(*x))[-1]


def slope(recurrence: Recurrence, which: int, *x: Any) -> tuple[Any, Any]:
    """The limit and its derivative by operand `which`: steps are done until both have converged.

    The derivative of `limit`'s loop is another thing: a fraction that ends exactly ends it before its derivative has converged.
    """

    def along(function: Callable[..., Any], *more: tuple[Any, Any]) -> tuple[Any, Any]:
        """A function of the operands, and before them of what is given with its tangent; and the tangent of its result."""
        tangents = [ones_like(v) if i == which else zeros_like(v) for i, v in enumerate(x)]
        return jvp(function, (*(v for v, _ in more), *x), (*(t for _, t in more), *tangents))

    def step(n: Any, state: Any) -> Any:
        here, moving = along(lambda state, *x: recurrence.step(n, state, *x), state)
        return (here[0], moving[0]), maximum(absolute(here[1]), absolute(moving[1]))

    found, moved = _run(step, along(recurrence.start))
    return found[-1], moved[-1]


def _run(step: Callable[[Any, Any], tuple[Any, Any]], start: Any) -> Any:
    """The state after the last step that brings an element more than a rounding."""
    first = start[0][0] if isinstance(start[0], tuple) else start[0]

    def goes_on(carry: Any) -> Any:
        n, is_open, _ = carry
        return logical_and(is_open, less(n, MOST))

    def body(carry: Any) -> Any:
        n, _, state = carry
        state, share = step(n, state)
        return n + 1, any_(greater(absolute(share), 2 * epsilon(share))), state

    return while_loop(goes_on, body, (asarray(1, dtype=dtype_of(first)), asarray(True), start))[2]
