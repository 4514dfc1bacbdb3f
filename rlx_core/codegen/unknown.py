"""Run-time arguments of code, as symbols in addition to the sizes of the program, and their values for known sizes."""

from __future__ import annotations

from functools import cache
from typing import Final, cast

from rlx_core.ir.dims import DimBinding, SizeSymbol, free_symbols, symbol

PREFIX: Final = "_rlx_"
"""Prefix of their names; a program with sizes of such names is compiled for each size."""


def unknown(name: str) -> int:
    """Return a number that is a run-time argument. It has the type of a number, as fields require, and refuses comparisons."""
    return cast(int, symbol(f"{PREFIX}{name}"))


def said(**numbers: int) -> DimBinding:
    """Return the binding of the unknown numbers of these names."""
    return DimBinding({_symbol(name): number for name, number in numbers.items()})


@cache
def _symbol(name: str) -> SizeSymbol:
    (free,) = free_symbols(symbol(f"{PREFIX}{name}"))
    return free
