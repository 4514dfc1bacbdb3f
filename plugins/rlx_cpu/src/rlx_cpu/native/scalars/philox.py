"""Random words at neighbouring positions: the four words of a block lie in four lanes, and a round is four instructions.

The code for any positions computes a block for each lane and throws three quarters of it away. Where lanes are neighbours, and
the first of them begins a block, as in every kernel that draws a dense array, a register of sixteen words is four blocks. In
the even half of each 64 bits are the words that a round multiplies.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlx_core.codegen.scalars import philox
from rlx_core.codegen.scalars.table import Row
from rlx_core.ir.dtypes import DType, u32, u64
from rlx_core.ir.op import Op
from rlx_core.ops.random.philox import KEY_STEPS, MULTIPLIERS, ROUNDS, RandomWord
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.build import I32, I64, splat
from rlx_cpu.native.llvm.ir.numbers import constant, width


def word(b: Any, op: Op, dtypes: tuple[DType, ...], args: tuple[Any, ...]) -> Any:
    """The word of `op.dtype` at a position."""
    assert isinstance(op, RandomWord), "the only op of this row"
    key, position = args
    lanes = width(position)
    in_block = 4 if op.dtype is u32 else 2  # words of this dtype
    if lanes % in_block:
        return philox.word(b, op, dtypes, args)
    first, one_key = (b.extract_element(x, ir.LlvmConstant(I32, 0)) for x in (position, key))
    start = b.and_(first, ir.LlvmConstant(I64, -in_block))
    dense = b.add(splat(b, start, lanes), ir.LlvmConstant(position.type, list(range(lanes))))
    is_apart = b.or_(b.icmp_unsigned("!=", position, dense), b.icmp_unsigned("!=", key, splat(b, one_key, lanes)))
    block = b.lshr(start, ir.LlvmConstant(I64, in_block.bit_length() - 1))
    words = blocks(b, one_key, block, 2 * lanes // in_block, op.stream)
    usual = words if op.dtype is u64 else b.bitcast(words, ir.VectorType(I32, lanes))
    return b.rarely(is_apart, lambda: philox.word(b, op, dtypes, args), usual)


def blocks(b: ir.IRBuilder, key: ir.LlvmValue, first: ir.LlvmValue, lanes: int, stream: int) -> ir.LlvmValue:
    """Blocks from a number on, a pair of words in each of an even number of lanes of 64 bits."""
    wide, narrow = ir.VectorType(I64, lanes), ir.VectorType(I32, 2 * lanes)
    pairs = lanes // 2
    half = constant(wide, 32)
    low = constant(wide, 0xFFFFFFFF)

    def alternating(even: int, odd: int) -> ir.LlvmValue:
        return ir.LlvmConstant(wide, [even, odd] * pairs)

    is_even = ir.LlvmConstant(ir.VectorType(ir.IntType(1), lanes), [1, 0] * pairs)
    numbers = b.add(splat(b, first, lanes), ir.LlvmConstant(wide, [lane // 2 for lane in range(lanes)]))
    state = b.select(is_even, numbers, constant(wide, stream))
    both = splat(b, key, lanes)
    keys = b.select(is_even, b.and_(both, low), b.lshr(both, half))
    # Of a pair of products the halves change places twice: with those of the other, and with one another.
    swapped = ir.LlvmConstant(narrow, [4 * (word // 4) + 3 - word % 4 for word in range(2 * lanes)])
    for _ in range(ROUNDS):
        products = b.bitcast(b.mul(b.and_(state, low), alternating(*MULTIPLIERS)), narrow)
        mixed = b.bitcast(b.shuffle_vector(products, products, swapped), wide)
        state = b.xor(b.xor(mixed, b.lshr(state, half)), keys)
        keys = b.and_(b.add(keys, alternating(*KEY_STEPS)), low)
    return state


ROWS: Mapping[type[Op], Row] = {RandomWord: Row(word, (u64,))}
