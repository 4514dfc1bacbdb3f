"""Random words: Philox4x32-10, a function of a key and a position, so that every word can be computed independently.

A *stream* of a key is a sequence of 32-bit words. Ten rounds of multiplications and exclusive ors convert a counter of four
words (the number of a block, and the stream) to the four words of that block. There is no state between words, so results do
not depend on threads or devices.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, TypeVar

import numpy as np
from attrs import Attribute, field

from rlx_core.errors import ConfigError
from rlx_core.ir.apply import op_function
from rlx_core.ir.dtypes import DType, u32, u64
from rlx_core.ir.op import ZERO, Operand, define_op
from rlx_core.ir.types import TensorType
from rlx_core.ops.kinds import Elementwise, elementwise_samples
from rlx_core.ops.samples import Rejected, Sample
from rlx_core.ops.validators import one_of

ROUNDS = 10
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
"""The increments of the two words of the key between rounds."""

_LOW = 0xFFFFFFFF
_HALF = 32

Words = TypeVar("Words", np.ndarray, int)


def philox(counter: tuple[Words, ...], key: tuple[Words, ...]) -> tuple[Words, ...]:
    """Return the block of a counter: four 32-bit words in arrays of u64 or as integers, like the counter and the key.

    Source:
        Salmon, Moraes, Dror, Shaw 2011, "Parallel random numbers: as easy as 1, 2, 3", SC11, section 3.3.
    """
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(ROUNDS):
        p0, p1 = MULTIPLIERS[0] * c0, MULTIPLIERS[1] * c2
        c0, c1, c2, c3 = (p1 >> _HALF) ^ c1 ^ k0, p1 & _LOW, (p0 >> _HALF) ^ c3 ^ k1, p0 & _LOW
        k0, k1 = (k0 + KEY_STEPS[0]) & _LOW, (k1 + KEY_STEPS[1]) & _LOW
    return c0, c1, c2, c3


def _two_words(op: Any, attribute: Attribute[Any], value: int) -> None:
    if not 0 <= value < 1 << 64:
        raise ConfigError(f"{attribute.name} must be from 0 to 2**64 - 1, not {value}")


@define_op
class RandomWord(Elementwise):
    """The word at a position of a stream, of Philox4x32-10; for u64 the words 2·position and 2·position + 1, the lower first.

    Shapes:
        key: u64[..]    position: u64[..]    ->    y: of `dtype`, of the shape that both broadcast to

    Attributes:
        dtype: u32 or u64.
        stream: The upper two words of the counter.

    Source:
        Salmon, Moraes, Dror, Shaw 2011, "Parallel random numbers: as easy as 1, 2, 3", SC11.
    """

    dtype: DType = field(default=u32, validator=one_of(u32, u64))
    stream: int = field(default=0, validator=_two_words)
    accepts: ClassVar = (u64,)
    partials: ClassVar = (ZERO, ZERO)

    def infer(self, *types: TensorType) -> TensorType:
        return super().infer(*types).with_dtype(self.dtype)

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        words = 4 // (self.dtype.itemsize // 4)  # of `dtype`, in a block
        shape = np.broadcast_shapes(*(x.shape for x in arrays))
        # With at least one axis: NumPy 1 converts an unsigned scalar and a Python integer to floats.
        key, position = np.broadcast_arrays(*(np.atleast_1d(x.astype(np.uint64)) for x in arrays))
        block, which = position // words, position % words
        stream = tuple(np.full_like(block, word) for word in (self.stream & 0xFFFFFFFF, self.stream >> 32))
        outputs = philox((block & _LOW, block >> _HALF, *stream), (key & _LOW, key >> _HALF))
        if self.dtype is u32:
            return np.choose(which.astype(np.int64), outputs).astype(np.uint32).reshape(shape)
        c0, c1, c2, c3 = outputs
        return np.where(which == 0, c0 | c1 << _HALF, c2 | c3 << _HALF).reshape(shape)

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        for dtype in (u32, u64):
            yield from elementwise_samples(2, (u64,), _sample, dtype=dtype)
        yield _sample("u64[37]", "u64[37]", stream=0x8000_0001_0000_0000)
        yield Sample("u64[]", "u64[19]", make=_large)
        yield Rejected("u64[2]", "u64[2]", stream=-1, error=ConfigError, says="from 0 to")


def _large(rng: np.random.Generator) -> list[np.ndarray]:
    """Return a key and positions with all of their bits used."""
    key, *positions = rng.integers(0, (1 << 64) - 1, 20, np.uint64, endpoint=True)
    return [np.asarray(key), np.asarray(positions)]


def _sample(*specs: str, **attributes: Any) -> Sample:
    return Sample(*specs, low=0, high=1000, is_smooth=False, **attributes)


RandomWord.operands = (Operand("key"), Operand("position"))  # `infer` takes any number of operands

random_word = op_function(RandomWord)
