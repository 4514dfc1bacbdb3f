"""Integers, categories and orders from keys, and the next token from logits."""

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
    """Integers from minval to maxval - 1, each as likely as any other within 2^-32 (2^-64 where there are more than 2^32).

    Args:
        key: One key.
        shape: Of the result.
        minval, maxval: Integers, or integer arrays that broadcast to `shape`; where an array's `maxval` is not above
            `minval`, the result is `minval`.
        dtype: An integer dtype, which holds all of them.

    Raises:
        ConfigError: No integer lies between the two, or the dtype does not hold all that do.
        DtypeError: The dtype, or that of a bound, is no integer.
    """
    words, of = one_key("random.randint", key), _dtype(dtype)
    if not of.is_integer:
        raise DtypeError(f"random.randint: dtype must be an integer, not {of}")
    if isinstance(minval, int) and isinstance(maxval, int):
        limits = np.iinfo(of.numpy)
        if not limits.min <= minval < maxval <= limits.max + 1:
            raise ConfigError(f"random.randint: minval < maxval must be a range of {of}, not {minval} and {maxval}")
        span, is_narrow = scalar((maxval - minval) % (1 << 64), u64), maxval - minval <= 1 << 32
        start = scalar(minval % (1 << 64), u64)
    else:
        held = u64 if of is u64 else i64
        low, high = (_whole(x, held) for x in (minval, maxval))
        span, is_narrow = cast(where(less(low, high), subtract(high, low), scalar(0, held)), to=u64), of.itemsize < 8
        start = cast(low, to=u64)
    drawn = (_below_word if is_narrow else _below)(words, dims("random.randint: shape", shape), span)
    return cast(add(drawn, start), to=of)


_dtype = dtype


@checked_call
def categorical(key: Key, logits: Any, axis: int = -1, shape: Shape | None = None) -> Any:
    """The number of a category, drawn with the probability softmax(logits).

    One uniform number is drawn for each result, and looked up in the running sum of the probabilities. A category with the
    logit -inf is never drawn; in each row one logit at least is finite.

    Args:
        key: One key.
        logits: [.., n, ..] with n categories along `axis`; the other axes are rows.
        axis: Where the categories are.
        shape: Of the result; it ends in the rows, and each row is drawn from as often as its other axes say. The rows alone, if
            none is given.

    Returns:
        i64 of `shape`.
    """
    of = _float_of("random.categorical", logits)
    x = moveaxis(cast(logits, to=of), normalize_axis(axis, len(shape_of(logits))), -1)
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
        shape: How many.
        replace: Whether one may be drawn more than once.
        p: [n] how likely each is, up to a common factor; equally likely, if it is not given.
        axis: Which axis of the array is drawn from.

    Raises:
        ConfigError: More are drawn than there are, without replacement.
        ShapeError: `p` does not have one number for each.
    """
    words, wanted = one_key("random.choice", key), dims("random.choice: shape", shape)
    place = None if isinstance(a, int) else normalize_axis(axis, len(shape_of(a)))
    count = whole("random.choice: a", a, least=1) if place is None else shape_of(a)[place]
    many = product(wanted)
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
            found = _drawn("random.choice", key, weights, wanted)
        else:  # the largest of ln p plus Gumbel noise are drawn one after the other with what is left of p
            found = reshape(_top_k(add(log(weights), gumbel(key, (count,), weights.dtype)), many)[1], wanted)
    elif replace:
        span = scalar(count, u64) if isinstance(count, int) else cast(dim_value(size=count), to=u64)
        found = cast(_below_word(words, wanted, span), to=i64)
    else:
        found = reshape(narrow(_order(key, count), axis=0, start=0, length=many), wanted)
    return found if place is None else take(a, found, axis=place)


@checked_call
def filter_logits(logits: Any, *, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0) -> Any:
    """Logits with -inf for the tokens that are not to be drawn.

    Shapes:
        logits: f[.., n]    ->    y: f[.., n]

    Args:
        logits: With the temperature already in them.
        top_k: Keep those that are at least as large as the k-th largest; 0 keeps all.
        top_p: Of what is left keep the fewest, the likeliest first, that together have this probability; one at least.
        min_p: Keep those that are at least this many times as likely as the likeliest.

    Raises:
        ConfigError: A number is outside of its range.
    """
    count = whole("random.filter_logits: top_k", top_k, least=0)
    mass, least = (_fraction(f"random.filter_logits: {n}", x) for n, x in (("top_p", top_p), ("min_p", min_p)))
    of = _float_of("random.filter_logits", logits)
    x = cast(logits, to=of)
    none = scalar(-math.inf, of)
    size = shape_of(x)[-1]
    if count and not (isinstance(size, int) and count >= size):
        values, _ = _top_k(x, count)
        x = where(greater_equal(x, narrow(values, axis=-1, start=count - 1, length=1)), x, none)
    if mass < 1:
        order = argsort(x, descending=True)
        likely = softmax(take_along_axis(x, order), axis=-1)
        before = subtract(cumulative_sum(likely, axis=-1), likely)
        kept = total_of(cast(less(before, scalar(mass, of)), to=i64), axis=-1, keepdims=True)
        # The running sum may stop growing, so those before its end are counted, and the likeliest is among them.
        x = where(less(argsort(order), maximum(kept, scalar(1, i64))), x, none)
    if least > 0:
        top = largest(x, axis=-1, keepdims=True)
        x = where(greater_equal(x, add(top, scalar(math.log(least), of))), x, none)
    return x


@checked_call
def sample_logits(
    key: Key, logits: Any, *, temperature: Any = 1.0, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0
) -> Any:
    """The next token of each row: drawn from softmax(logits / temperature), of which `filter_logits` leaves a part.

    Shapes:
        logits: f[.., n]    ->    i64[..]

    Args:
        key: One key; rows are drawn independently.
        logits: One row a sequence.
        temperature: A number, or a traced scalar. At 0 the result is the most likely token, the first of equal ones.
        top_k, top_p, min_p: As for `filter_logits`.

    Raises:
        ConfigError: A number is outside of its range.
    """
    one_key("random.sample_logits", key)
    of = _float_of("random.sample_logits", logits)
    x = cast(logits, to=of)
    if isinstance(temperature, Value):
        heat = cast(temperature, to=of)
        is_cold = equal(heat, scalar(0.0, of))
        scaled = divide(x, where(is_cold, scalar(1.0, of), heat))
    else:
        known = number("random.sample_logits: temperature", temperature)
        if not 0 <= known < math.inf:
            raise ConfigError(f"random.sample_logits: temperature must be at least 0, not {known}")
        if known == 0:
            return argmax(x, axis=-1)
        is_cold, scaled = None, divide(x, scalar(float(known), of))
    drawn = categorical(key, filter_logits(scaled, top_k=top_k, top_p=top_p, min_p=min_p))
    return drawn if is_cold is None else where(is_cold, argmax(x, axis=-1), drawn)


# --------------------------------------------------------------------------------------- their parts


def _below_word(words: Any, shape: tuple[Dim, ...], span: Any) -> Any:
    """⌊r·span / 2^64⌋ of a random r of 64 bits, for a span of at most 2^32."""
    lower, upper = _words_of(random_bits(words, shape=shape, dtype=u64))
    carried = bitwise_right_shift(multiply(lower, span), scalar(32, u64))
    return bitwise_right_shift(add(multiply(upper, span), carried), scalar(32, u64))


def _below(words: Any, shape: tuple[Dim, ...], span: Any) -> Any:
    """⌊r·span / 2^128⌋ of a random r of 128 bits."""
    drawn = random_bits(words, shape=(2, *shape), dtype=u64)
    lower, upper = (reshape(narrow(drawn, axis=0, start=k, length=1), shape) for k in (0, 1))
    product_low = multiply(upper, span)
    total = add(product_low, _high(lower, span))
    return add(_high(upper, span), cast(less(total, product_low), to=u64))


def _high(a: Any, b: Any) -> Any:
    """The upper 64 bits of a product."""
    (a0, a1), (b0, b1) = _words_of(a), _words_of(b)
    crossed = [_words_of(multiply(a0, b1)), _words_of(multiply(a1, b0))]
    (_, middle), top = _words_of(multiply(a0, b0)), multiply(a1, b1)
    for low, high in crossed:
        middle, top = add(middle, low), add(top, high)
    return add(top, bitwise_right_shift(middle, scalar(32, u64)))


def _words_of(x: Any) -> tuple[Any, Any]:
    """The two words of u64, each as u64."""
    return bitwise_and(x, scalar(_LOWER, u64)), bitwise_right_shift(x, scalar(32, u64))


def _drawn(what: str, key: Key, weights: Any, shape: tuple[Dim, ...]) -> Any:
    """Categories by their weights, [.., n], of a shape that ends in the rows."""
    rows = tuple(shape_of(weights)[:-1])
    each = shape[: len(shape) - len(rows)]
    if len(shape) < len(rows) or shape[len(each) :] != rows:
        raise ShapeError(f"{what}: shape must end in {list(rows)}, not be {list(shape)}")
    total = cumulative_sum(weights, axis=-1)
    u = uniform(key, shape, weights.dtype)
    many = product(each)
    last = narrow(total, axis=-1, start=shape_of(total)[-1] - 1, length=1)
    # One row of draws for each row of weights: what is drawn several times comes last.
    u = moveaxis(reshape(u, (many, *rows)), 0, -1)
    found = search_sorted(total, multiply(u, last), side="right")
    return reshape(moveaxis(found, -1, 0), shape)


def _order(key: Key, count: Dim) -> Any:
    """The numbers below `count` in random order."""
    return argsort(random_bits(one_key("random.permutation", key), shape=(count,), dtype=u64))


def _whole(x: Any, of: DType) -> Any:
    """An integer, or an integer array, in a dtype."""
    if isinstance(x, int):
        return scalar(x, of)
    found = x if isinstance(x, Value) else as_array(x)
    if not _dtype(found.dtype).is_integer:
        raise DtypeError(f"random.randint: bounds must be integers, not {_dtype(found.dtype)}")
    return cast(found, to=of)


def _float_of(what: str, x: Any) -> DType:
    """The float in which probabilities of `x` are computed."""
    of = dtype_of(x)
    if not of.is_float:
        raise DtypeError(f"{what}: probabilities must come from a float, not {of}")
    return of.accumulator


def _fraction(what: str, x: Any) -> float:
    found = number(what, x)
    if not 0 <= found <= 1:
        raise ConfigError(f"{what} must be from 0 to 1, not {found}")
    return found
