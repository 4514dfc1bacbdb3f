"""JAX functions for rlx (`from_jax`), and rlx functions inside `jax.jit` (`as_jax`).

Importing this package imports no jax: rlx reads `plugin.py`, which must be quick.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlx_jax.functions import from_jax
    from rlx_jax.inside import as_jax

__all__ = ["as_jax", "from_jax"]

_PLACES = {"from_jax": "functions", "as_jax": "inside"}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_PLACES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
