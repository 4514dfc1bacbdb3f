"""Keys, the seeds of all random functions. They are created, split and folded here, and read by all functions that sample."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from rlx_core.errors import ConfigError, DtypeError, ShapeError
from rlx_core.hints.keywords import checked_call
from rlx_core.ir.apply import as_array
from rlx_core.ir.array import is_array
from rlx_core.ir.dims import Dim, Expr, product
from rlx_core.ir.dtypes import DType, dtype, u32, u64
from rlx_core.ir.graph import Value
from rlx_core.ops.arguments import listed, whole
from rlx_core.ops.arithmetic import add, multiply
from rlx_core.ops.bitwise import bitwise_right_shift
from rlx_core.ops.conversion import cast
from rlx_core.ops.creation import iota, scalar
from rlx_core.ops.movement import concat
from rlx_core.ops.random.bits import joined_key
from rlx_core.ops.random.philox import philox, random_word
from rlx_core.ops.structural import reshape
from rlx_core.trees.key import Key

FOLDED, SPLIT = 0x80000000 << 32, 0x80000001 << 32
"""The streams from which keys are derived; those of numbers are below 2^63."""

LOWER = (1 << 63) - 1
"""The bits of a number that is folded in."""

FEW = 16
"""Up to this number of keys, Python's integers are faster than a call of a program."""


@checked_call
def key(seed: Any) -> Key:
    """The key of a seed: its lower and its upper word. Every seed is valid, also 0.

    Args:
        seed: An integer of up to 64 bits, or an integer scalar of an array or traced.

    Raises:
        ConfigError: It is not an integer, or has more bits.
        DtypeError, ShapeError: It is an array of another dtype or rank.
    """
    if isinstance(seed, Value) or is_array(seed):
        return Key(_both_words(_integer("random.key: seed", seed, u64)))
    number = whole("random.key: seed", seed)
    if not -(1 << 63) <= number < 1 << 64:
        raise ConfigError(f"random.key: seed must fit into 64 bits, not {number}")
    return Key(np.array([number & 0xFFFFFFFF, number >> 32 & 0xFFFFFFFF], np.uint32))


@checked_call
def split(key: Key, num: Dim | Sequence[Dim] = 2) -> Key:
    """New keys from a key, which is not used again: `key, subkey = split(key)`.

    Key i is the first half of block i of a separate stream, so the first keys do not depend on `num`.

    Args:
        key: One key.
        num: The number of keys, or the shape of an array of keys.
    """
    words, shape = one_key("random.split", key), dims("random.split: num", num)
    count: Dim = product(shape)
    if isinstance(words, np.ndarray) and isinstance(count, int) and 0 <= count <= FEW:
        return Key(_first_halves(words, range(count), SPLIT).reshape(*shape, 2))
    block, half = (iota(axis=axis, shape=(count, 2), dtype=u64) for axis in (0, 1))
    drawn = random_word(joined_key(words), add(multiply(block, scalar(4, u64)), half), stream=SPLIT)
    return Key(reshape(drawn, (*shape, 2)))


@checked_call
def fold_in(key: Key, data: Any) -> Key:
    """A new key from a key and an integer: the number of a step or of a layer.

    Args:
        key: One key.
        data: An integer from 0 to 2**63 - 1, or an integer scalar of an array or traced, of which the lower 63 bits are used.

    Raises:
        ConfigError: It is not an integer, or out of this range.
        DtypeError, ShapeError: It is an array of another dtype or rank.
    """
    words = one_key("random.fold_in", key)
    if not (isinstance(data, Value) or is_array(data)):
        number = whole("random.fold_in: data", data)
        if not 0 <= number < 1 << 63:
            raise ConfigError(f"random.fold_in: data must be from 0 to 2**63 - 1, not {number}")
        data = np.asarray(number, np.uint64)
    if isinstance(words, np.ndarray) and is_array(data):
        _expect_integer("random.fold_in: data", data)
        return Key(_first_halves(words, [int(data) & LOWER], FOLDED)[0])
    block = multiply(_integer("random.fold_in: data", data, u64), scalar(2, u64))
    return Key(_both_words(random_word(joined_key(words), block, dtype=u64, stream=FOLDED)))


def _both_words(x: Any) -> Any:
    """Return the lower and the upper word of a u64 scalar, u32[2]."""
    wide = reshape(x, (1,))
    return concat([cast(part, to=u32) for part in (wide, bitwise_right_shift(wide, scalar(32, u64)))], axis=0)


def _first_halves(words: np.ndarray, blocks: Iterable[int], stream: int) -> np.ndarray:
    """Return the first two words of some blocks, u32[.., 2], without a program, whose call would take longer for a few keys."""
    key = int(words[0]), int(words[1])
    halves = [philox((n & 0xFFFFFFFF, n >> 32, stream & 0xFFFFFFFF, stream >> 32), key)[:2] for n in blocks]
    return np.array(halves, np.uint32).reshape(-1, 2)


@checked_call
def key_data(key: Key) -> Any:
    """The words of keys, u32[.., 2], for storage. `wrap_key_data` is the inverse."""
    return _words("random.key_data", key)


@checked_call
def wrap_key_data(words: Any) -> Key:
    """Keys from their words.

    Shapes:
        words: u32[.., 2]    ->    keys of shape [..]
    """
    key = Key(words if isinstance(words, Value) else as_array(words))
    _words("random.wrap_key_data", key)
    return key


def one_key(what: str, key: Any) -> Any:
    """Return the words of one key; `what` names the caller.

    Raises:
        DtypeError: It is not a key.
        ShapeError: It is an array of keys.
    """
    words = _words(what, key)
    if len(words.shape) != 1:
        raise ShapeError(
            f"{what}: key must be one key, not keys of shape {list(words.shape[:-1])}",
            hint="keys[i] is one of them; rlx.vmap draws for each",
        )
    return words


def _words(what: str, key: Any) -> Any:
    if not isinstance(key, Key):
        kind = (
            f"{dtype(key.dtype)}{list(key.shape)}"
            if hasattr(key, "dtype") and hasattr(key, "shape")
            else f"{type(key).__name__} {key!r:.40}"
        )
        is_data = kind == "u32[2]"
        raise DtypeError(
            f"{what}: key must be a random key, not {kind}",
            hint="rlx.random.wrap_key_data(words) makes one of its words"
            if is_data
            else "rlx.random.key(seed) makes one",
        )
    words = key.words
    if dtype(words.dtype) is not u32:
        raise DtypeError(f"{what}: the words of a key must be u32, not {dtype(words.dtype)}")
    if not len(words.shape) or words.shape[-1] != 2:
        raise ShapeError(f"{what}: the words of a key must be [.., 2], not {list(words.shape)}")
    return words


def _integer(what: str, x: Any, to: DType) -> Any:
    """Return an integer scalar of an array or traced, in another dtype, modulo its width."""
    _expect_integer(what, x)
    return cast(x, to=to)


def _expect_integer(what: str, x: Any) -> None:
    if not dtype(x.dtype).is_integer:
        raise DtypeError(f"{what} must be an integer, not {dtype(x.dtype)}")
    if len(x.shape):
        raise ShapeError(f"{what} must be a scalar, not {list(x.shape)}", hint="rlx.vmap takes one after the other")


def dims(what: str, shape: Any) -> tuple[Dim, ...]:
    """Return a shape as a tuple, from a size or a sequence of sizes."""
    return (shape,) if isinstance(shape, int | np.integer | Expr) else listed(what, shape)
