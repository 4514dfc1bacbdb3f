"""Activations and functions of one element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.special as jsp
import torch

import rlx_core as rlx
from rlx_core import nn

from ..rows import COMPLEX, FLOATS, WIDE, Draw, Family, Row

__all__ = ["FAMILY"]

functional = torch.nn.functional
special = torch.special


def between(low: float, high: float) -> Callable[[Draw], Any]:
    """One array of any shape with elements of an interval."""
    return lambda d: ((d.floats(d.shape(d.size(0, 3)), low, high),), {})


def along(d: Draw) -> Any:
    """One array, and which axis."""
    rank = d.size(1, 3)
    return (d.floats(d.shape(rank), -3, 3),), {"axis": d.size(-rank, rank - 1)}


def rows_of_many(d: Draw) -> Any:
    """One array with a few elements along the last axis."""
    return (d.normal((*d.shape(d.size(0, 2)), d.size(3, 9))),), {}


def halves(d: Draw) -> Any:
    """One array with an even last axis."""
    return (d.normal((*d.shape(d.size(0, 2)), 2 * d.size(1, 4))),), {}


def kinked(d: Draw) -> Any:
    """One array, no element of which is at or near a kink."""
    return (d.apart(d.shape(d.size(1, 3), high=5), 0.11),), {}


def unary(name: str, ours: Any, torch_: Any, jax_: Any, low: float = -3.0, high: float = 3.0, **more: Any) -> Row:
    return Row(name, ours, between(low, high), torch_, jax_, **more)


def bent(name: str, ours: Any, torch_: Any, jax_: Any, **more: Any) -> Row:
    return Row(name, ours, kinked, torch_, jax_, **more)


LONG: Any = {"slack": 64, "why": "a sum of squares and its root"}
BOTH = (*FLOATS, *COMPLEX)

FAMILY = Family(
    "Functions of one element",
    [
        unary("exp", rlx.exp, torch.exp, jnp.exp, dtypes=BOTH),
        unary("expm1", rlx.expm1, torch.expm1, jnp.expm1),
        unary("exp2", rlx.exp2, torch.exp2, jnp.exp2),
        unary("log", rlx.log, torch.log, jnp.log, 0.2, 4.0, dtypes=BOTH),
        unary("log1p", rlx.log1p, torch.log1p, jnp.log1p, -0.7, 3.0),
        unary("log2", rlx.log2, torch.log2, jnp.log2, 0.2, 4.0),
        unary("log10", rlx.log10, torch.log10, jnp.log10, 0.2, 4.0),
        unary("sqrt", rlx.sqrt, torch.sqrt, jnp.sqrt, 0.1, 4.0, dtypes=BOTH),
        unary("rsqrt", rlx.rsqrt, torch.rsqrt, jax.lax.rsqrt, 0.2, 4.0),
        unary("cbrt", rlx.cbrt, None, jnp.cbrt, 0.2, 4.0),
        unary("square", rlx.square, torch.square, jnp.square, dtypes=BOTH),
        unary("reciprocal", rlx.reciprocal, torch.reciprocal, jnp.reciprocal, 0.3, 4.0),
        unary("sin", rlx.sin, torch.sin, jnp.sin, dtypes=BOTH),
        unary("cos", rlx.cos, torch.cos, jnp.cos, dtypes=BOTH),
        unary("tan", rlx.tan, torch.tan, jnp.tan, -1.0, 1.0),
        unary("asin", rlx.asin, torch.asin, jnp.asin, -0.8, 0.8),
        unary("acos", rlx.acos, torch.acos, jnp.acos, -0.8, 0.8),
        unary("atan", rlx.atan, torch.atan, jnp.atan),
        unary("sinh", rlx.sinh, torch.sinh, jnp.sinh),
        unary("cosh", rlx.cosh, torch.cosh, jnp.cosh),
        unary("tanh", rlx.tanh, torch.tanh, jnp.tanh),
        unary("asinh", rlx.asinh, torch.asinh, jnp.asinh),
        unary("acosh", rlx.acosh, torch.acosh, jnp.acosh, 1.3, 4.0),
        unary("atanh", rlx.atanh, torch.atanh, jnp.atanh, -0.8, 0.8),
        unary("erf", rlx.erf, torch.erf, jsp.erf),
        unary("erfc", rlx.erfc, torch.erfc, jsp.erfc),
        unary("erfinv", rlx.erfinv, torch.erfinv, jsp.erfinv, -0.8, 0.8, dtypes=WIDE),
        # Beyond its zeros, 1 and 2: near them all three are right to some ulp of 1 and not of the value.
        unary(
            "lgamma",
            rlx.lgamma,
            torch.lgamma,
            jsp.gammaln,
            2.5,
            5.5,
            dtypes=WIDE,
            inexact={"jax": (2e-14, "JAX's gammaln is right to about 4e-15")},
        ),
        unary(
            "digamma",
            rlx.digamma,
            torch.digamma,
            jsp.digamma,
            0.3,
            5.0,
            dtypes=WIDE,
            inexact={"torch": (1e-8, "PyTorch's trigamma is right to about 1e-9")},
        ),
        unary("sigmoid", rlx.sigmoid, torch.sigmoid, jax.nn.sigmoid),
        unary("silu", nn.silu, functional.silu, jax.nn.silu),
        unary("gelu", nn.gelu, functional.gelu, lambda x: jax.nn.gelu(x, approximate=False)),
        unary(
            "gelu(approximate=True)",
            lambda x: nn.gelu(x, approximate=True),
            lambda x: functional.gelu(x, approximate="tanh"),
            jax.nn.gelu,
            note="`approximate='tanh'` in PyTorch; the default in JAX",
        ),
        unary("softplus", nn.softplus, functional.softplus, jax.nn.softplus),
        unary("softplus(beta=2)", lambda x: nn.softplus(x, beta=2.0), lambda x: functional.softplus(x, 2.0), None),
        unary("mish", rlx.mish, functional.mish, jax.nn.mish),
        bent("relu", nn.relu, functional.relu, jax.nn.relu),
        bent("relu6", nn.relu6, functional.relu6, jax.nn.relu6),
        bent("leaky_relu", nn.leaky_relu, functional.leaky_relu, jax.nn.leaky_relu),
        bent("elu", nn.elu, functional.elu, jax.nn.elu),
        bent("celu", rlx.celu, functional.celu, jax.nn.celu),
        bent("selu", nn.selu, functional.selu, jax.nn.selu),
        bent("hard_tanh", nn.hard_tanh, functional.hardtanh, jax.nn.hard_tanh),
        bent(
            "hard_sigmoid",
            nn.hard_sigmoid,
            functional.hardsigmoid,
            jax.nn.hard_sigmoid,
            inexact={"torch": (1e-7, "the 1/6 of PyTorch's derivative is a float32")},
        ),
        bent("hard_swish", nn.hard_swish, functional.hardswish, jax.nn.hard_swish),
        Row("glu", nn.glu, halves, functional.glu, jax.nn.glu),
        unary("log_sigmoid", nn.log_sigmoid, functional.logsigmoid, jax.nn.log_sigmoid),
        bent("soft_sign", nn.soft_sign, functional.softsign, jax.nn.soft_sign),
        unary("squareplus", nn.squareplus, None, jax.nn.squareplus),
        bent("soft_shrink", nn.soft_shrink, functional.softshrink, None),
        bent("hard_shrink", nn.hard_shrink, functional.hardshrink, None),
        unary("tanh_shrink", nn.tanh_shrink, functional.tanhshrink, None),
        bent("threshold", lambda x: nn.threshold(x, 0.2, -1.5), lambda x: functional.threshold(x, 0.2, -1.5), None),
        Row(
            "prelu",
            nn.prelu,
            lambda d: ((lambda c: (d.apart((2, c, 3), 0.11), d.floats((c,), 0.1, 0.9)))(d.size(1, 4)), {}),
            functional.prelu,
        ),
        Row("softmin", nn.softmin, along, lambda x, *, axis: functional.softmin(x, axis)),
        Row("standardize", nn.standardize, rows_of_many, None, lambda x: jax.nn.standardize(x, epsilon=1e-5), **LONG),
        Row("normalize", nn.normalize, rows_of_many, lambda x: functional.normalize(x, dim=-1)),
        bent("abs", rlx.abs, torch.abs, jnp.abs),
        bent("sign", rlx.sign, torch.sign, jnp.sign),
        bent("floor", rlx.floor, torch.floor, jnp.floor),
        bent("ceil", rlx.ceil, torch.ceil, jnp.ceil),
        bent("trunc", rlx.trunc, torch.trunc, jnp.trunc),
        bent("round", rlx.round, torch.round, jnp.round),
        bent("clip", lambda x: rlx.clip(x, -0.3, 0.4), lambda x: x.clamp(-0.3, 0.4), lambda x: jnp.clip(x, -0.3, 0.4)),
        unary("conj", rlx.conj, lambda z: z.conj().resolve_conj(), jnp.conj, dtypes=COMPLEX),
        unary("real", rlx.real, torch.real, jnp.real, dtypes=COMPLEX),
        unary("imag", rlx.imag, torch.imag, jnp.imag, dtypes=COMPLEX),
        unary("abs of complex numbers", rlx.abs, torch.abs, jnp.abs, 0.2, 3.0, dtypes=COMPLEX),
        unary("angle", rlx.angle, torch.angle, jnp.angle, 0.2, 3.0, dtypes=COMPLEX),
    ],
)
