"""Random bits of any shape, and dropout: numbers are regenerated from the key wherever they are needed again, never stored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil
from typing import Any, ClassVar

from attrs import Attribute, field

from rlx_core.errors import ConfigError, DtypeError, ShapeError
from rlx_core.ir.apply import op_function
from rlx_core.ir.dims import Dim, product
from rlx_core.ir.dtypes import FLOATS, DType, u32, u64
from rlx_core.ir.graph import Value
from rlx_core.ir.op import ZERO, Op, Zero, define_op
from rlx_core.ir.types import Shape, TensorType, expect_dtype, expect_shape
from rlx_core.ops.bitwise import bitwise_left_shift, bitwise_or, bitwise_right_shift
from rlx_core.ops.conversion import cast, operand_batch, zero_jvp, zero_vjp
from rlx_core.ops.creation import iota, scalar
from rlx_core.ops.movement import narrow
from rlx_core.ops.random.philox import RandomWord
from rlx_core.ops.samples import Rejected, Sample
from rlx_core.ops.selection import where
from rlx_core.ops.structural import as_shape, reshape
from rlx_core.ops.validators import one_of


def joined_key(words: Any) -> Any:
    """Return the two words of a key, u32[.., 2], as one of u64[..]."""
    low, high = (
        reshape(cast(narrow(words, axis=-1, start=k, length=1), to=u64), tuple(words.shape[:-1])) for k in (0, 1)
    )
    return bitwise_or(low, bitwise_left_shift(high, scalar(32, u64)))


@define_op
class RandomBits(Op):
    """Words with all bits random, in the order of the key's stream 0.

    Shapes:
        key: u32[.., 2]    ->    y: [.., *shape]

    Attributes:
        shape: The shape of the bits of each key.
        dtype: u32 or u64; one of u64 takes two words of the stream.
    """

    shape: Shape = field(converter=as_shape)
    dtype: DType = field(default=u32, validator=one_of(u32, u64))
    category: ClassVar = "boundary"
    vjp = zero_vjp
    jvp = zero_jvp
    batch = operand_batch

    def infer(self, key: TensorType) -> TensorType:
        expect_dtype("key", key, (u32,), "u32")
        if key.rank < 1 or key.shape[-1] != 2:
            raise ShapeError(f"key must be [.., 2], not {key}")
        return TensorType(self.dtype, (*key.shape[:-1], *self.shape))

    def decompose(self, key: Value) -> Value:
        each = joined_key(key)
        position = reshape(iota(axis=0, shape=(product(self.shape),), dtype=u64), self.shape)
        result: Value = RandomWord(self.dtype)(reshape(each, (*each.shape, *(1,) * len(self.shape))), position)
        return result

    def cost(self, key: TensorType) -> Dim:
        return 12 * self.infer(key).size

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        for shape in ((5,), (4, 8), (2, 3, 5), (), (0, 3)):
            for dtype in (u32, u64):
                yield Sample("u32[2]", shape=shape, dtype=dtype, low=0, high=2**32 - 1)
        yield Sample("u32[3, 2]", shape=(4, 3), low=0, high=2**32 - 1)
        yield Sample("u32[0, 2]", shape=(4,))
        yield Rejected("u32[3]", shape=(4,), error=ShapeError, says="key must be [.., 2]")
        yield Rejected("i32[2]", shape=(4,), error=DtypeError, says="key must be u32")


random_bits = op_function(RandomBits)

DROPPED_BITS = 24
"""Number of bits of a word that are compared with a rate, which is thereby rounded up to a multiple of 2^-24."""


def _rate(op: Any, attribute: Attribute[Any], value: float) -> None:
    if not 0 <= value <= 1:
        raise ConfigError(f"{attribute.name} must be from 0 to 1, not {value!r}")


@define_op
class Dropout(Op):
    """Each element is 0 with a probability of `rate`, and x / (1 - rate) otherwise.

    The mask is a function of the key and the position alone, so the gradient regenerates it instead of saving it. At rate 1 the
    result is 0.

    Shapes:
        x: f[..]    key: u32[2]    ->    y: f[..]

    Attributes:
        rate: From 0 to 1.

    Source:
        Srivastava, Hinton, Krizhevsky, Sutskever, Salakhutdinov 2014, "Dropout", JMLR 15, section 10 (scaled in training).
    """

    rate: float = field(default=0.5, validator=_rate)
    category: ClassVar = "boundary"

    def infer(self, x: TensorType, key: TensorType) -> TensorType:
        expect_dtype("x", x, FLOATS, "a float")
        expect_dtype("key", key, (u32,), "u32")
        expect_shape("key", key, (2,))
        return x

    def decompose(self, x: Value, key: Value) -> Value:
        # Integers are compared, so that a mask does not depend on the dtype and device of x.
        drawn = bitwise_right_shift(RandomBits(x.shape)(key), scalar(32 - DROPPED_BITS, u32))
        is_kept = drawn >= scalar(ceil(self.rate * 2**DROPPED_BITS), u32)
        return where(is_kept, x * (1 / (1 - self.rate) if self.rate < 1 else 0.0), 0.0)

    def vjp(self, g: Value, x: Value, key: Value, *, y: Value) -> tuple[Value, Zero]:
        return self(g, key), ZERO

    def jvp(self, t: Sequence[Any], x: Value, key: Value, *, y: Value) -> Any:
        return self(t[0], key)

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        key = {"key": (0.0, 2.0**32 - 1)}
        for d in FLOATS:
            yield Sample(f"{d}[6, 5]", "u32[2]", rate=0.3, ranges=key)
        for rate in (0.0, 1.0):
            yield Sample("f32[3, 4]", "u32[2]", rate=rate, ranges=key)
        yield Sample("f32[]", "u32[2]", ranges=key)
        yield Sample("f32[0, 3]", "u32[2]", ranges=key)
        yield Rejected("f32[3]", "u32[2]", rate=1.5, error=ConfigError, says="from 0 to 1")
        yield Rejected("i32[3]", "u32[2]", error=DtypeError, says="x must be a float")
        yield Rejected("f32[3]", "u32[3]", error=ShapeError, says="key must be [2]")


dropout = op_function(Dropout)
