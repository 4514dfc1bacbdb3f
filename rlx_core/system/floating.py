"""The processor's floating-point modes: how it rounds, and whether it takes subnormals for zero.

They belong to a thread, and any code in the process may change them: `fesetround`, a library that was linked with
`-ffast-math`, one that flushes subnormals for speed. rlx's results are defined for the standard modes (to nearest, with
subnormals), so the modes are set where it compiles and where it runs, and are restored afterwards.
"""

from __future__ import annotations

import ctypes
import functools
import os
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, Final, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])

_ENVIRONMENT_BYTES: Final = 512
"""Size of a buffer for C's `fenv_t`, which has 32 bytes on x86-64 and 8 on AArch64."""


def are_standard(
    one: float = 1.0, half_step: float = 2.0**-53, least: float = 2.0**-1022, half: float = 0.5, tiny: float = 5e-324
) -> bool:
    """Return whether this thread rounds to nearest and keeps subnormals. (Arguments prevent constant folding.)"""
    return (
        one + half_step == one  # not upward
        and one - half_step * half == one  # neither downward nor toward zero
        and least * half != 0  # subnormal results are kept
        and tiny + tiny != tiny  # and subnormal operands
    )


def in_standard_modes(function: F) -> F:
    """Return a function that runs in the standard modes, whatever the modes of its caller's thread, and restores those."""

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        if are_standard():
            return function(*args, **kwargs)
        with _standard():
            return function(*args, **kwargs)

    return cast("F", run)


@contextmanager
def _standard() -> Iterator[None]:
    library = _library()
    if library is None:
        yield
        return
    before = ctypes.create_string_buffer(_ENVIRONMENT_BYTES)
    library.fegetenv(before)
    library.fesetenv(_default())
    try:
        yield
    finally:
        library.fesetenv(before)


@cache
def _library() -> Any:
    """Return the C library's functions for the modes; `None` where no functions are known to set all of them."""
    if os.name != "posix" or platform.machine().lower() not in ("x86_64", "amd64", "aarch64", "arm64"):
        return None
    for name in (None, "libm.so.6"):
        try:
            library = ctypes.CDLL(name)
            library.fegetenv.argtypes = library.fesetenv.argtypes = [ctypes.c_void_p]
        except (OSError, AttributeError):
            continue
        return library
    return None


def _default() -> Any:
    """C's `FE_DFL_ENV`: an object on macOS, elsewhere the address -1."""
    try:
        return ctypes.addressof(ctypes.c_char.in_dll(_library(), "_FE_DFL_ENV"))
    except ValueError:
        return ctypes.c_void_p(-1)
