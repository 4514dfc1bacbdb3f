"""Random words as scalar code: Philox4x32-10 of one position, which computes a block and takes one or two words of it."""

from __future__ import annotations

from functools import partial

from rlx_core.codegen.scalars.assembler import Assembler, V
from rlx_core.codegen.scalars.table import Row
from rlx_core.ir.dtypes import DType, u32, u64
from rlx_core.ir.op import Op
from rlx_core.ops.random.philox import KEY_STEPS, MULTIPLIERS, ROUNDS, RandomWord


def word(b: Assembler[V], op: Op, dtypes: tuple[DType, ...], args: tuple[V, ...]) -> V:
    """The word of `op.dtype` at a position."""
    assert isinstance(op, RandomWord), "the only op of this row"
    key, position = args
    name, make = f"philox.{op.stream:x}", partial(_two_words, stream=op.stream)
    if op.dtype is u64:
        return b.invoke(name, make, (key, position), is_inline=False)
    one = b.constant(position, 1)
    both = b.invoke(name, make, (key, b.lshr(position, one)), is_inline=False)
    is_upper = b.icmp_unsigned("!=", b.and_(position, one), b.constant(position, 0))
    return b.select(is_upper, upper(b, both), lower(b, both))


def lower(b: Assembler[V], x: V) -> V:
    """The lower word of 64 bits."""
    return b.converted(x, u64, u32)


def upper(b: Assembler[V], x: V) -> V:
    """The upper word of 64 bits."""
    return lower(b, b.lshr(x, b.constant(x, 32)))


def joined(b: Assembler[V], low: V, high: V) -> V:
    """Two words as 64 bits."""
    wide = b.converted(high, u32, u64)
    return b.or_(b.converted(low, u32, u64), b.shl(wide, b.constant(wide, 32)))


def _two_words(b: Assembler[V], key: V, position: V, stream: int) -> V:
    """The words 2·position and 2·position + 1 of a stream."""
    one = b.constant(position, 1)
    block = b.lshr(position, one)
    c0, c1, k0, k1 = lower(b, block), upper(b, block), lower(b, key), upper(b, key)
    c2, c3 = b.constant(c0, stream & 0xFFFFFFFF), b.constant(c0, stream >> 32)
    for _ in range(ROUNDS):
        p0, p1 = (_product(b, c, m) for c, m in zip((c0, c2), MULTIPLIERS, strict=True))
        c0, c2 = b.xor(b.xor(upper(b, p1), c1), k0), b.xor(b.xor(upper(b, p0), c3), k1)
        c1, c3 = lower(b, p1), lower(b, p0)
        k0, k1 = (b.add(k, b.constant(k, step)) for k, step in zip((k0, k1), KEY_STEPS, strict=True))
    is_second = b.icmp_unsigned("!=", b.and_(position, one), b.constant(position, 0))
    return b.select(is_second, joined(b, c2, c3), joined(b, c0, c1))


def _product(b: Assembler[V], x: V, factor: int) -> V:
    """All 64 bits of a word times a known one."""
    wide = b.converted(x, u32, u64)
    return b.mul(wide, b.constant(wide, factor))


ROWS: dict[type[Op], Row] = {RandomWord: Row(word, (u64,))}
