"""The intermediate representation: types, ops, graphs, and their invariants.

This layer knows how an op is written and how graphs of ops are built, checked, printed, stored and evaluated. It knows
no op by name except the three leaves (input, param, constant), no pass and no device.
"""

from typing import TYPE_CHECKING

from rlx_core.public import lazy_modules

if TYPE_CHECKING:
    from rlx_core.ir import (
        bind,
        block,
        bundle,
        hir,
        interpret,
        module,
        nonfinite,
        rewrite,
        solve,
        tape,
        text,
        text_lir,
        verify,
        verify_lir,
    )

__all__ = [
    "bind",
    "block",
    "bundle",
    "hir",
    "interpret",
    "module",
    "nonfinite",
    "rewrite",
    "solve",
    "tape",
    "text",
    "text_lir",
    "verify",
    "verify_lir",
]

if not TYPE_CHECKING:  # a program from a cache is neither lowered, verified nor evaluated
    __getattr__, __dir__ = lazy_modules(__name__, __all__)
