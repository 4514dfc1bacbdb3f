"""The table of handlers: one function of rlx values for each overload of an ATen op, by the overload's name.

A handler has the parameters of the op's schema. Arguments that only describe the storage of a result (device, layout, memory
format) are removed before, and torch's dtypes are converted to rlx's. Python's operators on sizes are in the table too.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar

from rlx_core.importing.table import Handler, HandlerTable, register_rows
from rlx_core.system.records import frozen

F = TypeVar("F", bound=Callable[..., Any])


@frozen
class AtenHandler(Handler):
    """The implementation of an overload.

    Attributes:
        draws: Whether it generates random numbers, so that the caller passes a key.
    """

    draws: bool = False


TABLE: Final = HandlerTable(
    AtenHandler,
    package="rlx_torch.aten",
    registration='@rlx_torch.aten.table.aten("{}") registers a function of the parameters of its schema',
    alternatives={
        "_local_scalar_dense.default": "the value as a tensor of rank 0: .item() is only known when the program runs",
        "resize_.default": "torch.zeros(shape) or reshape",
    },
)
"""Overload (`add.Tensor`, `prims::iota.default`) or callable (`operator.add`) → handler."""


def aten(*overloads: str, draws: bool = False) -> Callable[[F], F]:
    """Register a function as the handler of overloads; a name without a dot means the overload `default`."""
    return TABLE.register(*(each if "." in each else f"{each}.default" for each in overloads), draws=draws)


rows: Final = partial(register_rows, aten)
"""Registers handlers of one expression each: overloads → function."""
