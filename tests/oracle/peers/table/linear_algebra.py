"""Products and decompositions. What has a free sign or phase is compared by what does not depend on it."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import torch

import rlx_core as rlx
from rlx_core import nn

from ..rows import COMPLEX, FLOATS, WIDE, Draw, Family, Row

__all__ = ["FAMILY"]

SOLVED = {"dtypes": WIDE, "slack": 2048, "why": "the condition of the matrix multiplies the rounding"}
PRODUCT = {"slack": 64, "why": "a sum of products"}


def factors(d: Draw) -> Any:
    """Operands of `matmul`: vectors, matrices, and stacks that broadcast."""
    n, k, m = d.shape(3, 1, 7)
    a, b = d.choice(
        [((n, k), (k, m)), ((k,), (k, m)), ((n, k), (k,)), ((k,), (k,)), ((3, n, k), (k, m)), ((2, 1, n, k), (3, k, m))]
    )
    return (d.normal(a), d.normal(b)), {}


def square(d: Draw) -> Any:
    """Matrices far from singular, a stack of them sometimes."""
    n = d.size(1, 5)
    stack = d.choice([(), (), (2,)])
    x = d.normal((*stack, n, n), 0.3)
    return (d.rounded(x.astype("complex128" if x.dtype.kind == "c" else "float64") + 2 * jnp.eye(n)),), {}


def tall(d: Draw) -> Any:
    n = d.size(1, 4)
    return (d.normal((n + d.size(0, 3), n)),), {}


def with_right(d: Draw) -> Any:
    args, _ = square(d)
    n = args[0].shape[-1]
    return (*args, d.normal((n, d.size(1, 3)) if args[0].ndim == 2 else (2, n, 2))), {}


def identity(xp: Any, x: Any) -> Any:
    return xp.eye(x.shape[-1], dtype=x.dtype)


def of_positive(ours: Any, torch_: Any, jax_: Any) -> Any:
    """The three functions, of `x·xᵀ + 1`, which is symmetric for every x."""
    return (
        lambda x: ours(x @ rlx.matrix_transpose(x) + identity(rlx, x)),
        lambda x: torch_(x @ x.mT + identity(torch, x)),
        lambda x: jax_(x @ x.mT + identity(jnp, x)),
    )


def decomposed(name: str, ours: Any, torch_: Any, jax_: Any, cases: Any = square, **more: Any) -> Row:
    mine, theirs, others = of_positive(ours, torch_, jax_)
    return Row(name, mine, cases, theirs, others, **SOLVED, **more)


def spectral(function: Any, transposed: Any = lambda v: v.mT) -> Any:
    """`1 / (1 + x)` of a positive definite matrix by its eigenvectors, which does not depend on their signs."""

    def inverted(x: Any) -> Any:
        w, v = function(x)
        return (v * (1 / (1 + w))[..., None, :]) @ transposed(v)

    return inverted


def positive_diagonal(q: Any, r: Any, sign: Any, diagonal: Any) -> Any:
    """The factors with signs chosen so that the diagonal of r is positive."""
    s = sign(diagonal(r))
    return q * s[..., None, :], r * s[..., :, None]


FAMILY = Family(
    "Linear algebra",
    [
        Row(
            "matmul",
            rlx.matmul,
            factors,
            torch.matmul,
            jnp.matmul,
            dtypes=(*FLOATS, *COMPLEX),
            asks=("dtype", "forward", "gradient", "jvp", "batch", "second"),
            **PRODUCT,
        ),
        Row(
            "bilinear",
            nn.bilinear,
            lambda d: (
                (lambda n, i, j, k: (d.normal((n, i)), d.normal((n, j)), d.normal((i, j, k)), d.normal((k,))))(
                    *d.shape(4, 1, 5)
                ),
                {},
            ),
            lambda a, b, w, bias: torch.nn.functional.bilinear(a, b, w.movedim(-1, 0), bias),
            note="weights are `[i, j, out]` here, `[out, i, j]` in PyTorch",
            **PRODUCT,
        ),
        Row(
            "einsum",
            lambda a, b: rlx.einsum("bij,bjk->bki", a, b),
            lambda d: ((lambda n, i, j, k: (d.normal((n, i, j)), d.normal((n, j, k))))(*d.shape(4, 1, 5)), {}),
            lambda a, b: torch.einsum("bij,bjk->bki", a, b),
            lambda a, b: jnp.einsum("bij,bjk->bki", a, b),
            dtypes=(*FLOATS, *COMPLEX),
            **PRODUCT,
        ),
        Row(
            "tensordot",
            rlx.tensordot,
            lambda d: (
                (lambda i, j, k: (d.normal((i, j, k)), d.normal((j, k, i))))(*d.shape(3, 1, 4)),
                {"axes": ((1, 2), (0, 1))},
            ),
            lambda a, b, *, axes: torch.tensordot(a, b, axes),
            jnp.tensordot,
            **PRODUCT,
        ),
        Row(
            "outer",
            rlx.outer,
            lambda d: ((d.normal((d.size(1, 5),)), d.normal((d.size(1, 5),))), {}),
            torch.outer,
            jnp.outer,
            dtypes=(*FLOATS, *COMPLEX),
        ),
        Row(
            "vecdot",
            rlx.vecdot,
            lambda d: ((lambda s: (d.normal(s), d.normal(s)))(d.shape(2)), {}),
            torch.linalg.vecdot,
            jnp.vecdot,
            dtypes=(*FLOATS, *COMPLEX),
            note="the first operand is conjugated",
            **PRODUCT,
        ),
        Row(
            "linear",
            nn.linear,
            lambda d: ((lambda n, i, o: (d.normal((n, i)), d.normal((i, o)), d.normal((o,))))(*d.shape(3, 1, 6)), {}),
            lambda x, w, b: torch.nn.functional.linear(x, w.T, b),
            lambda x, w, b: x @ w + b,
            note="`w` is `[in, out]`, PyTorch's `[out, in]`",
            **PRODUCT,
        ),
        Row(
            "linalg.det",
            rlx.linalg.det,
            square,
            torch.linalg.det,
            jnp.linalg.det,
            **{**SOLVED, "dtypes": (*WIDE, *COMPLEX)},
        ),
        Row(
            "linalg.slogdet",
            lambda x: tuple(rlx.linalg.slogdet(x)),
            square,
            lambda x: tuple(torch.linalg.slogdet(x)),
            lambda x: tuple(jnp.linalg.slogdet(x)),
            **{**SOLVED, "dtypes": (*WIDE, *COMPLEX)},
        ),
        Row(
            "linalg.inv",
            rlx.linalg.inv,
            square,
            torch.linalg.inv,
            jnp.linalg.inv,
            **{**SOLVED, "dtypes": (*WIDE, *COMPLEX)},
        ),
        Row(
            "linalg.solve",
            rlx.linalg.solve,
            with_right,
            torch.linalg.solve,
            jnp.linalg.solve,
            **{**SOLVED, "dtypes": (*WIDE, *COMPLEX)},
        ),
        Row(
            "linalg.matrix_power",
            lambda x: rlx.linalg.matrix_power(x, 3),
            square,
            lambda x: torch.linalg.matrix_power(x, 3),
            lambda x: jnp.linalg.matrix_power(x, 3),
            **{**SOLVED, "dtypes": (*WIDE, *COMPLEX)},
        ),
        decomposed("linalg.cholesky", rlx.linalg.cholesky, torch.linalg.cholesky, jnp.linalg.cholesky),
        decomposed("linalg.eigvalsh", rlx.linalg.eigvalsh, torch.linalg.eigvalsh, jnp.linalg.eigvalsh),
        decomposed(
            "linalg.eigh, a function of the matrix",
            spectral(rlx.linalg.eigh, rlx.matrix_transpose),
            spectral(torch.linalg.eigh),
            spectral(jnp.linalg.eigh),
            note="eigenvectors have free signs",
        ),
        Row(
            "linalg.svdvals",
            rlx.linalg.svdvals,
            tall,
            torch.linalg.svdvals,
            lambda x: jnp.linalg.svd(x, compute_uv=False),
            **SOLVED,
        ),
        Row(
            "linalg.qr, with positive diagonals",
            lambda x: positive_diagonal(*rlx.linalg.qr(x), rlx.sign, rlx.linalg.diagonal),
            tall,
            lambda x: positive_diagonal(*torch.linalg.qr(x), torch.sign, lambda r: r.diagonal(dim1=-2, dim2=-1)),
            lambda x: positive_diagonal(*jnp.linalg.qr(x), jnp.sign, lambda r: jnp.diagonal(r, axis1=-2, axis2=-1)),
            note="columns of q have free signs",
            **SOLVED,
        ),
        Row("linalg.pinv", rlx.linalg.pinv, tall, torch.linalg.pinv, jnp.linalg.pinv, **SOLVED),
        Row(
            "linalg.cross",
            rlx.linalg.cross,
            lambda d: ((d.normal((2, 3)), d.normal((2, 3))), {}),
            torch.linalg.cross,
            jnp.cross,
        ),
        Row(
            "linalg.trace",
            rlx.linalg.trace,
            square,
            lambda x: x.diagonal(dim1=-2, dim2=-1).sum(-1),
            lambda x: jnp.trace(x, axis1=-2, axis2=-1),
        ),
        Row(
            "linalg.matrix_norm",
            rlx.linalg.matrix_norm,
            square,
            torch.linalg.matrix_norm,
            lambda x: jnp.linalg.norm(x, axis=(-2, -1)),
        ),
        Row(
            "linalg.vector_norm",
            lambda x, *, ord: rlx.linalg.vector_norm(x, axis=-1, ord=ord),
            lambda d: ((d.floats(d.shape(2, 1, 5), 0.2, 2.0),), {"ord": d.choice([1, 2, 3])}),
            lambda x, *, ord: torch.linalg.vector_norm(x, ord, -1),
            lambda x, *, ord: jnp.linalg.norm(x, ord, -1),
        ),
    ],
)
