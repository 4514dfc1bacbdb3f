"""For tests: threads share even what is too small to be worth it, so that small programs show what sharing breaks."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

__all__ = ["everything_is_shared"]

_LIMITS: Final = {
    "printer_shape": "WORTH_THREADS",
    "movement": "WORTH_THREADS",
    "windows": "WORTH_THREADS",
    "cumulative": "WORTH_THREADS",
    "search": "WORTH_THREADS",
    "sorting": "WORTH_THREADS",
    "program": "ALONE_US",
}
"""Module → the amount of work below which one thread does it alone."""


@contextmanager
def everything_is_shared() -> Iterator[None]:
    """Programs compiled inside share every step that can be shared."""
    modules = {importlib.import_module(f"rlx_cpu.native.{name}"): limit for name, limit in _LIMITS.items()}
    before = {module: vars(module)[limit] for module, limit in modules.items()}
    for module, limit in modules.items():
        vars(module)[limit] = -1
    try:
        yield
    finally:
        for module, limit in modules.items():
            vars(module)[limit] = before[module]
