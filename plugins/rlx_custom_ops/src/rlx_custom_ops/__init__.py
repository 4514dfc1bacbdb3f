"""Linear algebra for rlx, as a separate package: one class per op, one file per family, with its kernels.

Everything here rests on what any package can import from rlx. The functions are loaded when they are first used, because
rlx imports this package to read `plugin.py`, which must be quick.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlx_custom_ops.ops.cholesky import cholesky
    from rlx_custom_ops.ops.determinant import logdet, slogdet
    from rlx_custom_ops.ops.eig import eig
    from rlx_custom_ops.ops.eigh import eigh
    from rlx_custom_ops.ops.expm import expm
    from rlx_custom_ops.ops.kron import kron
    from rlx_custom_ops.ops.least_squares import lstsq, pinv
    from rlx_custom_ops.ops.lu import lu
    from rlx_custom_ops.ops.norms import cond, norm
    from rlx_custom_ops.ops.polar import polar
    from rlx_custom_ops.ops.qr import qr
    from rlx_custom_ops.ops.solve import inverse, solve
    from rlx_custom_ops.ops.svd import svd
    from rlx_custom_ops.ops.triangular import triangular_solve

__all__ = [
    "cholesky",
    "cond",
    "eig",
    "eigh",
    "expm",
    "inverse",
    "kron",
    "logdet",
    "lstsq",
    "lu",
    "norm",
    "pinv",
    "polar",
    "qr",
    "slogdet",
    "solve",
    "svd",
    "triangular_solve",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    families = importlib.import_module(f"{__name__}.plugin").FAMILIES
    family = next((family for family, ops in families.items() if name in ops.split()), "norms")
    return getattr(importlib.import_module(f"{__name__}.ops.{family}"), name)


def __dir__() -> list[str]:
    return __all__
