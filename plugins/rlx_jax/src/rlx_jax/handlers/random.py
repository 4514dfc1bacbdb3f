"""Random numbers of JAX's default implementation, threefry2x32: the same bits for the same keys.

What JAX builds on the block function (seeding, splitting, folding in, bits of any width and shape) is taken from JAX's own
definition of the implementation; the block function is here. A key is a word of 64 bits, its first half on top.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.extend.random import threefry_prng_impl

import rlx_core as rlx
from rlx_core.importing.walk import refuse
from rlx_jax.walk import Equation, handles

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
"""Constants of Salmon et al., Parallel random numbers: as easy as 1, 2, 3 (2011), table 2, for two words of 32 bits."""

PARITY = 0x1BD11BDA


@handles("threefry2x32")
def threefry2x32(equation: Equation, key0: Any, key1: Any, x0: Any, x1: Any) -> list[Any]:
    """Twenty rounds on pairs of words; the key is mixed in before the first and after every fourth."""
    keys = key0, key1, rlx.bitwise_xor(rlx.bitwise_xor(key0, key1), np.uint32(PARITY))
    x0, x1 = x0 + keys[0], x1 + keys[1]
    for block in range(5):
        for count in ROTATIONS[block % 2]:
            x0 = x0 + x1
            x1 = rlx.bitwise_xor(rotated(x1, count), x0)
        x0 = x0 + keys[(block + 1) % 3]
        x1 = x1 + keys[(block + 2) % 3] + np.uint32(block + 1)
    return [x0, x1]


@handles("iota_2x32_shape")
def iota_2x32_shape(equation: Equation) -> list[Any]:
    """Counters of 64 bits in two halves; no array has so many elements that the upper one is not 0."""
    shape = equation.shape
    count = rlx.arange(math.prod(shape), dtype=rlx.u32)
    return [rlx.zeros(shape, dtype=rlx.u32), rlx.reshape(count, shape)]


def rotated(x: Any, count: int) -> Any:
    high = rlx.bitwise_left_shift(x, np.uint32(count))
    return rlx.bitwise_or(high, rlx.bitwise_right_shift(x, np.uint32(32 - count)))


def halves(words: Any) -> Any:
    """Keys as JAX has them: pairs of u32 in a last axis."""
    high = rlx.astype(rlx.bitwise_right_shift(words, np.uint64(32)), rlx.u32)
    return rlx.stack([high, rlx.astype(words, rlx.u32)], axis=-1)


def joined(pairs: Any) -> Any:
    """Pairs of u32 as words."""
    high = rlx.bitwise_left_shift(rlx.astype(pairs[..., 0], rlx.u64), np.uint64(32))
    return rlx.bitwise_or(high, rlx.astype(pairs[..., 1], rlx.u64))


def over_keys(function: Callable[..., Any], rank: int) -> Callable[..., Any]:
    """JAX's function of one key for an array of them."""
    for _ in range(rank):
        function = jax.vmap(function)
    return function


def expect_threefry(equation: Equation) -> None:
    """Require keys of the supported implementation.

    Raises:
        OperandRefusal: They are of another.
    """
    for aval in (*equation.operands, *equation.results):
        implementation = getattr(aval.dtype, "_impl", None)
        if implementation is not None and implementation.name != "threefry2x32":
            alternative = 'jax.random.key(seed, impl="threefry2x32")'
            refuse(alternative, subject=f"{equation.name} of {implementation.name}")


@handles("random_seed")
def random_seed(equation: Equation, seeds: Any) -> Any:
    expect_threefry(equation)
    return joined(equation.expand(over_keys(threefry_prng_impl.seed, len(equation.operands[0].shape)), seeds))


@handles("random_wrap")
def random_wrap(equation: Equation, pairs: Any) -> Any:
    expect_threefry(equation)
    return joined(pairs)


@handles("random_unwrap")
def random_unwrap(equation: Equation, keys: Any) -> Any:
    expect_threefry(equation)
    return halves(keys)


@handles("random_split")
def random_split(equation: Equation, keys: Any) -> Any:
    expect_threefry(equation)
    split = over_keys(lambda key: threefry_prng_impl.split(key, equation["shape"]), len(equation.operands[0].shape))
    return joined(equation.expand(split, halves(keys)))


@handles("random_fold_in")
def random_fold_in(equation: Equation, keys: Any, data: Any) -> Any:
    expect_threefry(equation)
    fold = over_keys(threefry_prng_impl.fold_in, len(equation.operands[0].shape))
    return joined(equation.expand(fold, halves(keys), data))


@handles("random_bits")
def random_bits(equation: Equation, keys: Any) -> Any:
    expect_threefry(equation)
    width, shape = equation["bit_width"], equation["shape"]
    draw = over_keys(lambda key: threefry_prng_impl.random_bits(key, width, shape), len(equation.operands[0].shape))
    return equation.expand(draw, halves(keys))
