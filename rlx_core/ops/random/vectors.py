"""Random vectors, and counts of trials."""

from __future__ import annotations

from typing import Any

from rlx_core.errors import ConfigError, ShapeError
from rlx_core.hints.keywords import checked_call
from rlx_core.ir.dtypes import DType, dtype, f32, i64
from rlx_core.ir.types import broadcast_shapes
from rlx_core.ops.activation import log
from rlx_core.ops.arguments import whole
from rlx_core.ops.arithmetic import add
from rlx_core.ops.array_linalg import cholesky
from rlx_core.ops.array_shapes import expand_dims, shape_of, squeeze
from rlx_core.ops.array_statistics import sum as total
from rlx_core.ops.comparison import equal
from rlx_core.ops.conversion import cast
from rlx_core.ops.creation import iota
from rlx_core.ops.linalg import matmul
from rlx_core.ops.random.choices import categorical
from rlx_core.ops.random.draws import Shape, bernoulli, float_of, normal, parameter
from rlx_core.ops.random.inverses import shape_for
from rlx_core.ops.random.keys import one_key
from rlx_core.trees.key import Key

__all__ = ["binomial", "multinomial", "multivariate_normal"]


@checked_call
def multivariate_normal(key: Key, mean: Any, cov: Any, shape: Shape | None = None, dtype: DType | str = f32) -> Any:
    """Normal vectors of a mean and a covariance: the mean plus L z, with L Lᵀ = cov and independent normal numbers z.

    Differentiable by both parameters.

    Args:
        key: One key.
        mean: f[.., n].
        cov: f[.., n, n], symmetric and positive definite; otherwise results are NaN.
        shape: The shape of the result without the last axis; by default the broadcast shape of the rows of both.
        dtype: A float dtype.

    Returns:
        f[*shape, n].

    Raises:
        ShapeError: The size of the covariance does not match that of the mean.
        UnsupportedError: No installed package provides Cholesky factors; rlx-custom-ops does.
    """
    result_dtype = float_of("random.multivariate_normal", dtype)
    centre, spread = (parameter(x, result_dtype.accumulator) for x in (mean, cov))
    mean_shape, wide = tuple(shape_of(centre)), tuple(shape_of(spread))
    if not mean_shape or wide[-2:] != (mean_shape[-1], mean_shape[-1]):
        raise ShapeError(
            f"random.multivariate_normal: cov must be [.., n, n] for a mean [.., n], not {[*wide]} for {[*mean_shape]}"
        )
    rows = (
        broadcast_shapes(mean_shape[:-1], wide[:-2])
        if shape is None
        else shape_for("random.multivariate_normal", shape)
    )
    z = normal(key, (*rows, mean_shape[-1]), result_dtype.accumulator)
    return cast(add(centre, squeeze(matmul(cholesky(spread), expand_dims(z, -1)), -1)), to=result_dtype)


@checked_call
def multinomial(key: Key, n: int, p: Any, shape: Shape | None = None, dtype: DType | str = i64) -> Any:
    """The number of occurrences of each category in `n` trials.

    Args:
        key: One key.
        n: The number of trials; each takes a word.
        p: f[.., k], the probabilities of the categories, or numbers proportional to them.
        shape: The shape of the result without the last axis, which ends with the rows of `p`; by default these alone.
        dtype: An integer dtype.

    Returns:
        i[*shape, k]; each row adds up to n.

    Raises:
        ConfigError: `n` is not an integer of at least 0.
        ShapeError: `p` has no axis.
    """
    one_key("random.multinomial", key)
    trials = whole("random.multinomial: n", n, least=0)
    if not shape_of(p):
        raise ShapeError("random.multinomial: p must be [.., k], not a scalar")
    rows = tuple(shape_of(p)[:-1]) if shape is None else shape_for("random.multinomial", shape)
    drawn = categorical(key, log(parameter(p, f32)), shape=(trials, *rows))
    count = shape_of(p)[-1]
    return total(
        equal(expand_dims(drawn, -1), iota(axis=0, shape=(count,))), axis=0, dtype=_integer("multinomial", dtype)
    )


@checked_call
def binomial(key: Key, n: int, p: Any, shape: Shape | None = None, dtype: DType | str = i64) -> Any:
    """The number of successes in `n` trials, each with probability `p`.

    Args:
        key: One key.
        n: The number of trials; each takes a word.
        p: From 0 to 1, a number or an array that broadcasts to `shape`.
        shape: The shape of the result; the shape of `p` by default.
        dtype: An integer dtype.

    Raises:
        ConfigError: `n` is not an integer of at least 0, or `p` is known and outside of 0..1.
    """
    trials = whole("random.binomial: n", n, least=0)
    rows = shape_for("random.binomial", shape, p)
    return total(bernoulli(key, p, (trials, *rows)), axis=0, dtype=_integer("binomial", dtype))


def _integer(name: str, requested: DType | str) -> DType:
    resolved = dtype(requested)
    if not resolved.is_integer:
        raise ConfigError(f"random.{name}: dtype must be an integer, not {resolved}")
    return resolved
