"""The C library's functions that native code may call, by address: LLVM looks nothing up in this process by itself."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from typing import Final

MATHEMATICS = (
    *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "cbrt", "tanh", "erf", "erfc", "hypot", "atan2", "pow"),
    *("sin", "cos", "tan", "sinh", "cosh", "asin", "acos", "atan", "asinh", "acosh", "atanh"),
)
"""Functions that kernels call for each lane."""

IMPLICIT = (
    *("memcpy", "memset", "memmove"),
    *(
        f"{name}{kind}"
        for name in ("fma", "rint", "floor", "ceil", "trunc", "fmod", "exp2", "ldexp")
        for kind in ("", "f")
    ),
)
"""Functions that LLVM may call for an intrinsic without an instruction in the set."""

SYSTEM = ("sched_yield", "sched_getcpu", "clock_gettime", "malloc", "free", "madvise")


@cache
def addresses() -> Mapping[str, int]:
    """Return function → address, for the functions that this platform has."""
    table: dict[str, int] = {}
    for library in _libraries():
        for name in (*MATHEMATICS, *IMPLICIT, *SYSTEM):
            if name not in table:
                function = getattr(library, name, None)
                if function is not None:
                    table[name] = ctypes.cast(function, ctypes.c_void_p).value or 0
    return table


_symbols: Final[dict[str, int]] = {}


def add_symbols(addresses: Mapping[str, int]) -> None:
    """Add functions of other libraries that code linked from now on may call."""
    _symbols.update(addresses)


def known_symbols() -> Mapping[str, int]:
    """Return function → address, for all functions that code may call."""
    return {**addresses(), **_symbols}


def has_clock() -> bool:
    """Return whether this platform has the system's monotonic clock."""
    return "clock_gettime" in addresses()


def _libraries() -> Iterator[ctypes.CDLL]:
    names = ("ucrtbase", "vcruntime140") if sys.platform == "win32" else ("m", "c")
    for name in names:
        library = _library(name)
        if library is not None:
            yield library
    if sys.platform != "win32":
        yield ctypes.CDLL(None)


def _library(name: str) -> ctypes.CDLL | None:
    """The library of that name; glibc's own name is tried first, because looking one up runs `ldconfig`."""
    if sys.platform == "linux":
        with suppress(OSError):
            return ctypes.CDLL(f"lib{name}.so.6")
    from ctypes.util import find_library  # here, because it brings `subprocess`

    path = find_library(name)
    return None if path is None else ctypes.CDLL(path)
