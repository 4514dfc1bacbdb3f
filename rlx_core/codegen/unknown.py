"""Numbers that code is told in every call, as symbols beside the sizes of the program, and what they are for some sizes."""

from __future__ import annotations

from functools import cache
from typing import Final, cast

from rlx_core.ir.dims import DimBinding, SizeSymbol, free_symbols, symbol

__all__ = ["PREFIX", "said", "unknown"]

PREFIX: Final = "_rlx_"
"""What their names begin with; a program whose own sizes are called so is compiled for each size."""


def unknown(name: str) -> int:
    """A number that is told. It stands where a number would, in fields that are typed so, and refuses to be compared."""
    return cast(int, symbol(f"{PREFIX}{name}"))


def said(**numbers: int) -> DimBinding:
    """What the unknown numbers of these names are."""
    return DimBinding({_symbol(name): number for name, number in numbers.items()})


@cache
def _symbol(name: str) -> SizeSymbol:
    (found,) = free_symbols(symbol(f"{PREFIX}{name}"))
    return found
