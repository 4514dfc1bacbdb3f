"""JAX's primitives in rlx: one function per primitive or family of primitives, one file per subject."""

from rlx_jax.handlers import (
    control,
    derivatives,
    elementwise,
    indexing,
    linalg,
    products,
    random,
    reductions,
    shapes,
    special,
    windows,
)

__all__ = ["FILES"]

FILES = (control, derivatives, elementwise, indexing, linalg, products, random, reductions, shapes, special, windows)
