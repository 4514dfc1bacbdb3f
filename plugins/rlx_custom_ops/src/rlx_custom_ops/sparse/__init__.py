"""Sparse matrices: compressed rows as a pytree, products, and linear systems with gradients by adjoint solves.

Where the elements of a matrix lie (its `Pattern`) is known when a program is written; what they are is data of the program.
So products of sparse matrices, transposes and sums have known sizes and can be traced, differentiated and batched; another
pattern is another program.

Products are gathers and sums of rlx's own, which are native code wherever those are. Systems are one op, `sparse.solve`,
and least squares another, `sparse.lsqr`; both call SciPy on the host.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlx_custom_ops.sparse.csr import Csr
    from rlx_custom_ops.sparse.ops.least_squares import lsqr
    from rlx_custom_ops.sparse.ops.solve import bicgstab, cg, gmres, solve
    from rlx_custom_ops.sparse.pattern import Pattern

__all__ = ["Csr", "Pattern", "bicgstab", "cg", "gmres", "lsqr", "solve"]

_PLACES = {"Csr": "csr", "Pattern": "pattern", "lsqr": "ops.least_squares"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_PLACES.get(name, 'ops.solve')}"), name)


def __dir__() -> list[str]:
    return __all__
