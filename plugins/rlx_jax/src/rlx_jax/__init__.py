"""JAX functions for rlx (`from_jax`), and rlx functions inside `jax.jit` (`as_jax`).

Importing this package imports no jax: rlx reads `plugin.py`, which must be quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlx_core.public import lazy_names

if TYPE_CHECKING:
    from rlx_jax.functions import from_jax as from_jax
    from rlx_jax.inside import as_jax as as_jax
else:
    _PLACES = {"from_jax": "rlx_jax.functions", "as_jax": "rlx_jax.inside"}
    __getattr__, __dir__, __all__ = lazy_names(__name__, _PLACES)
