"""Integers, categories and permutations from keys, and the next token from logits."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rlx_core.errors import ConfigError, DtypeError, ShapeError
from rlx_core.hints.keywords import checked_call
from rlx_core.ir.apply import as_array
from rlx_core.ir.dims import Dim, product
from rlx_core.ir.dtypes import DType, dtype, i32, i64, u64
from rlx_core.ir.graph import Value
from rlx_core.ir.types import normalize_axis
from rlx_core.ops.activation import exp, log
from rlx_core.ops.arguments import flag, number, whole
from rlx_core.ops.arithmetic import add, divide, maximum, multiply, subtract
from rlx_core.ops.array_elementwise import dtype_of
from rlx_core.ops.array_search import argmax, argsort, take, take_along_axis
from rlx_core.ops.array_search import top_k as _top_k
from rlx_core.ops.array_shapes import moveaxis, reshape, shape_of
from rlx_core.ops.array_statistics import cumulative_sum
from rlx_core.ops.array_statistics import max as largest
from rlx_core.ops.array_statistics import sum as total_of
from rlx_core.ops.bitwise import bitwise_and, bitwise_right_shift
from rlx_core.ops.comparison import equal, greater_equal, less
from rlx_core.ops.conversion import cast
from rlx_core.ops.creation import dim_value, scalar
from rlx_core.ops.movement import narrow
from rlx_core.ops.random.bits import random_bits
from rlx_core.ops.random.draws import Shape, gumbel, uniform
from rlx_core.ops.random.keys import dims, one_key
from rlx_core.ops.selection import where
from rlx_core.ops.softmax import softmax
from rlx_core.ops.sorting import search_sorted
from rlx_core.trees.key import Key

__all__ = ["categorical", "choice", "filter_logits", "permutation", "randint", "sample_logits"]

_LOWER = (1 << 32) - 1


@checked_call
def randint(key: Key, shape: Shape, minval: Any, maxval: Any, dtype: DType | str = i32) -> Any:
    """Integers from minval to maxval - 1, uniform within 2^-32 (2^-64 if there are more than 2^32).

    Args:
        key: One key.
        shape: The shape of the result.
        minval, maxval: Integers, or integer arrays that broadcast to `shape`; where an array's `maxval` is not above
            `minval`, the result is `minval`.
        dtype: An integer dtype, which can represent all of them.

    Raises:
        ConfigError: There is no integer between the two, or the dtype cannot represent all of them.
        DtypeError: The dtype, or that of a bound, is not an integer dtype.
    """
    words, result_dtype = one_key("random.randint", key), _dtype(dtype)
    if not result_dtype.is_integer:
        raise DtypeError(f"random.randint: dtype must be an integer, not {result_dtype}")
    if isinstance(minval, int) and isinstance(maxval, int):
        limits = np.iinfo(result_dtype.numpy)
        if not limits.min <= minval < maxval <= limits.max + 1:
            raise ConfigError(
                f"random.randint: minval < maxval must be a range of {result_dtype}, not {minval} and {maxval}"
            )
        span, is_narrow = scalar((maxval - minval) % (1 << 64), u64), maxval - minval <= 1 << 32
        start = scalar(minval % (1 << 64), u64)
    else:
        wide_dtype = u64 if result_dtype is u64 else i64
        low, high = (_whole(x, wide_dtype) for x in (minval, maxval))
        span, is_narrow = (
            cast(where(less(low, high), subtract(high, low), scalar(0, wide_dtype)), to=u64),
            result_dtype.itemsize < 8,
        )
        start = cast(low, to=u64)
    drawn = (_below_word if is_narrow else _below)(words, dims("random.randint: shape", shape), span)
    return cast(add(drawn, start), to=result_dtype)


_dtype = dtype


@checked_call
def categorical(key: Key, logits: Any, axis: int = -1, shape: Shape | None = None) -> Any:
    """The index of a category, sampled with the probability softmax(logits).

    One uniform number is generated for each result, and looked up in the running sum of the probabilities. A category with the
    logit -inf is never sampled; each row must have at least one finite logit.

    Args:
        key: One key.
        logits: [.., n, ..] with n categories along `axis`; the other axes are rows.
        axis: The axis of the categories.
        shape: The shape of the result; it ends with the rows, and its leading axes are the samples of each row. By default the
            rows alone.

    Returns:
        i64 of `shape`.
    """
    result_dtype = _float_of("random.categorical", logits)
    x = moveaxis(cast(logits, to=result_dtype), normalize_axis(axis, len(shape_of(logits))), -1)
    weights = exp(subtract(x, largest(x, axis=-1, keepdims=True)))
    rows = tuple(shape_of(weights)[:-1])
    return _drawn(
        "random.categorical", key, weights, dims("random.categorical: shape", rows if shape is None else shape)
    )


@checked_call
def permutation(key: Key, x: Any, axis: int = 0) -> Any:
    """The numbers 0 to x - 1 in random order, or an array with the slices of an axis in random order.

    Slices are sorted by 64 random bits each.
    """
    one_key("random.permutation", key)
    if isinstance(x, int):
        return _order(key, whole("random.permutation: x", x, least=0))
    place = normalize_axis(axis, len(shape_of(x)))
    return take(x, _order(key, shape_of(x)[place]), axis=place)


@checked_call
def choice(key: Key, a: Any, shape: Shape = (), replace: bool = True, p: Any = None, axis: int = 0) -> Any:
    """Slices of an array, or numbers from 0 to a - 1, drawn at random.

    Args:
        key: One key.
        a: An integer, or an array.
        shape: The number of samples.
        replace: Whether to sample with replacement.
        p: [n], the probability of each, up to a common factor; uniform by default.
        axis: The axis of the array to sample from.

    Raises:
        ConfigError: Without replacement, more are sampled than there are.
        ShapeError: `p` does not have one number for each.
    """
    words, result_shape = one_key("random.choice", key), dims("random.choice: shape", shape)
    place = None if isinstance(a, int) else normalize_axis(axis, len(shape_of(a)))
    count = whole("random.choice: a", a, least=1) if place is None else shape_of(a)[place]
    many = product(result_shape)
    if (
        not flag("random.choice: replace", replace)
        and isinstance(count, int)
        and isinstance(many, int)
        and many > count
    ):
        raise ConfigError(f"random.choice: {many} of {count} cannot be drawn without replacement")
    if p is not None and tuple(shape_of(p)) != (count,):
        raise ShapeError(f"random.choice: p must be [{count}], not {list(shape_of(p))}")
    if p is not None:
        weights = cast(p, to=_float_of("random.choice", p))
        if replace:
            indices = _drawn("random.choice", key, weights, result_shape)
        else:  # the largest of ln p plus Gumbel noise are a sample without replacement
            indices = reshape(_top_k(add(log(weights), gumbel(key, (count,), weights.dtype)), many)[1], result_shape)
    elif replace:
        span = scalar(count, u64) if isinstance(count, int) else cast(dim_value(size=count), to=u64)
        indices = cast(_below_word(words, result_shape, span), to=i64)
    else:
        indices = reshape(narrow(_order(key, count), axis=0, start=0, length=many), result_shape)
    return indices if place is None else take(a, indices, axis=place)


@checked_call
def filter_logits(logits: Any, *, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0) -> Any:
    """Logits with -inf for the excluded tokens.

    Shapes:
        logits: f[.., n]    ->    y: f[.., n]

    Args:
        logits: Logits that are already divided by the temperature.
        top_k: Keep the logits that are at least as large as the k-th largest; 0 keeps all.
        top_p: Of these keep the smallest set of most probable tokens with at least this total probability; one at least.
        min_p: Keep the tokens with at least this fraction of the largest probability.

    Raises:
        ConfigError: A number is outside of its range.
    """
    count = whole("random.filter_logits: top_k", top_k, least=0)
    mass, least = (_fraction(f"random.filter_logits: {n}", x) for n, x in (("top_p", top_p), ("min_p", min_p)))
    result_dtype = _float_of("random.filter_logits", logits)
    x = cast(logits, to=result_dtype)
    none = scalar(-math.inf, result_dtype)
    size = shape_of(x)[-1]
    if count and not (isinstance(size, int) and count >= size):
        values, _ = _top_k(x, count)
        x = where(greater_equal(x, narrow(values, axis=-1, start=count - 1, length=1)), x, none)
    if mass < 1:
        order = argsort(x, descending=True)
        likely = softmax(take_along_axis(x, order), axis=-1)
        before = subtract(cumulative_sum(likely, axis=-1), likely)
        kept_count = total_of(cast(less(before, scalar(mass, result_dtype)), to=i64), axis=-1, keepdims=True)
        # The running sum may stop growing, so the elements before its end are counted, and the most probable one is among them.
        x = where(less(argsort(order), maximum(kept_count, scalar(1, i64))), x, none)
    if least > 0:
        top = largest(x, axis=-1, keepdims=True)
        x = where(greater_equal(x, add(top, scalar(math.log(least), result_dtype))), x, none)
    return x


@checked_call
def sample_logits(
    key: Key, logits: Any, *, temperature: Any = 1.0, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0
) -> Any:
    """The next token of each row, sampled from softmax(logits / temperature) after `filter_logits`.

    Shapes:
        logits: f[.., n]    ->    i64[..]

    Args:
        key: One key; rows are sampled independently.
        logits: One row per sequence.
        temperature: A number, or a traced scalar. At 0 the result is the most probable token, the first at a tie.
        top_k, top_p, min_p: As for `filter_logits`.

    Raises:
        ConfigError: A number is outside of its range.
    """
    one_key("random.sample_logits", key)
    result_dtype = _float_of("random.sample_logits", logits)
    x = cast(logits, to=result_dtype)
    if isinstance(temperature, Value):
        heat = cast(temperature, to=result_dtype)
        is_cold = equal(heat, scalar(0.0, result_dtype))
        scaled = divide(x, where(is_cold, scalar(1.0, result_dtype), heat))
    else:
        known = number("random.sample_logits: temperature", temperature)
        if not 0 <= known < math.inf:
            raise ConfigError(f"random.sample_logits: temperature must be at least 0, not {known}")
        if known == 0:
            return argmax(x, axis=-1)
        is_cold, scaled = None, divide(x, scalar(float(known), result_dtype))
    drawn = categorical(key, filter_logits(scaled, top_k=top_k, top_p=top_p, min_p=min_p))
    return drawn if is_cold is None else where(is_cold, argmax(x, axis=-1), drawn)


# --------------------------------------------------------------------------------------- their parts


def _below_word(words: Any, shape: tuple[Dim, ...], span: Any) -> Any:
    """Return ⌊r·span / 2^64⌋ of a random r of 64 bits, for a span of at most 2^32."""
    lower, upper = _words_of(random_bits(words, shape=shape, dtype=u64))
    carried = bitwise_right_shift(multiply(lower, span), scalar(32, u64))
    return bitwise_right_shift(add(multiply(upper, span), carried), scalar(32, u64))


def _below(words: Any, shape: tuple[Dim, ...], span: Any) -> Any:
    """Return ⌊r·span / 2^128⌋ of a random r of 128 bits."""
    drawn = random_bits(words, shape=(2, *shape), dtype=u64)
    lower, upper = (reshape(narrow(drawn, axis=0, start=k, length=1), shape) for k in (0, 1))
    product_low = multiply(upper, span)
    total = add(product_low, _high(lower, span))
    return add(_high(upper, span), cast(less(total, product_low), to=u64))


def _high(a: Any, b: Any) -> Any:
    """Return the upper 64 bits of a product."""
    (a0, a1), (b0, b1) = _words_of(a), _words_of(b)
    cross_terms = [_words_of(multiply(a0, b1)), _words_of(multiply(a1, b0))]
    (_, middle), top = _words_of(multiply(a0, b0)), multiply(a1, b1)
    for low, high in cross_terms:
        middle, top = add(middle, low), add(top, high)
    return add(top, bitwise_right_shift(middle, scalar(32, u64)))


def _words_of(x: Any) -> tuple[Any, Any]:
    """Return the two words of u64, each as u64."""
    return bitwise_and(x, scalar(_LOWER, u64)), bitwise_right_shift(x, scalar(32, u64))


def _drawn(what: str, key: Key, weights: Any, shape: tuple[Dim, ...]) -> Any:
    """Return categories sampled by their weights, [.., n], of a shape that ends with the rows."""
    rows = tuple(shape_of(weights)[:-1])
    each = shape[: len(shape) - len(rows)]
    if len(shape) < len(rows) or shape[len(each) :] != rows:
        raise ShapeError(f"{what}: shape must end in {list(rows)}, not be {list(shape)}")
    total = cumulative_sum(weights, axis=-1)
    u = uniform(key, shape, weights.dtype)
    many = product(each)
    last = narrow(total, axis=-1, start=shape_of(total)[-1] - 1, length=1)
    # One row of samples for each row of weights: the axis of samples comes last.
    u = moveaxis(reshape(u, (many, *rows)), 0, -1)
    indices = search_sorted(total, multiply(u, last), side="right")
    return reshape(moveaxis(indices, -1, 0), shape)


def _order(key: Key, count: Dim) -> Any:
    """Return the numbers below `count` in random order."""
    return argsort(random_bits(one_key("random.permutation", key), shape=(count,), dtype=u64))


def _whole(x: Any, target: DType) -> Any:
    """Return an integer, or an integer array, in a dtype."""
    if isinstance(x, int):
        return scalar(x, target)
    array = x if isinstance(x, Value) else as_array(x)
    if not _dtype(array.dtype).is_integer:
        raise DtypeError(f"random.randint: bounds must be integers, not {_dtype(array.dtype)}")
    return cast(array, to=target)


def _float_of(what: str, x: Any) -> DType:
    """Return the float dtype in which probabilities of `x` are computed."""
    source_dtype = dtype_of(x)
    if not source_dtype.is_float:
        raise DtypeError(f"{what}: probabilities must come from a float, not {source_dtype}")
    return source_dtype.accumulator


def _fraction(what: str, x: Any) -> float:
    fraction = number(what, x)
    if not 0 <= fraction <= 1:
        raise ConfigError(f"{what} must be from 0 to 1, not {fraction}")
    return fraction
