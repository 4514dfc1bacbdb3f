"""Programs inside of programs: what torch's higher-order operators call, given as functions of values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import rlx_core as rlx
from rlx_torch.aten.table import aten

Body = Callable[..., Any]


@aten("higher_order::cond")
def cond(condition: Any, then: Body, otherwise: Body, operands: Sequence[Any] = ()) -> Any:
    if isinstance(condition, bool):
        return (then if condition else otherwise)(*operands)
    return rlx.cond(
        condition, lambda *values: tuple(then(*values)), lambda *values: tuple(otherwise(*values)), *operands
    )


@aten("higher_order::while_loop")
def while_loop(condition: Body, body: Body, carried: Sequence[Any], more: Sequence[Any] = ()) -> Any:
    def goes_on(state: Any) -> Any:
        result = condition(*state, *more)
        return result[0] if isinstance(result, tuple | list) else result

    return rlx.while_loop(goes_on, lambda state: tuple(body(*state, *more)), tuple(carried))


@aten("higher_order::map_impl")
def map_impl(body: Body, mapped: Sequence[Any], more: Sequence[Any] = ()) -> Any:
    return rlx.map(lambda each: tuple(body(*each, *more)), tuple(mapped))


@aten("higher_order::scan")
def scan(body: Body, carried: Sequence[Any], along: Sequence[Any], more: Sequence[Any] = ()) -> Any:
    count = len(carried)

    def step(state: Any, each: Any) -> Any:
        result = tuple(body(*state, *each, *more))
        return result[:count], result[count:]

    end, results = rlx.scan(step, tuple(carried), tuple(along))
    return (*end, *results)


@aten("higher_order::wrap_with_set_grad_enabled", "higher_order::wrap_with_autocast")
def wrapped(*args: Any) -> Any:
    """A block under a setting of torch that changes no value here."""
    place = next(i for i, each in enumerate(args) if callable(each))
    return args[place](*args[place + 1 :])
