"""What JAX's primitives are in rlx: one function a primitive or a family of them, one file a subject."""

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
