"""A package outside of the repository with a format of weights: two bits a number, with a scale and a minimum for each block.

The format is an op by decomposition and its registration, and nothing else: products read such weights as they are.
"""

from __future__ import annotations

from collections.abc import Iterator

import rlx_core as rlx
from rlx_core.contributions import OpFamily
from rlx_core.hooks import hookimpl
from rlx_core.ops import Op, Sample, define_op, field, op_function


@define_op(domain="acme")
class TwoBitWeight(Op):
    """The numbers of codes, four to a byte: `scale · code + minimum`, in blocks of rows.

    Shapes:
        codes: u8[k / 4, n]    scales, minima: f32[k / block, n]    ->    f32[k, n]

    Attributes:
        block: Rows with one scale; a multiple of 4.
    """

    block: int = field(default=16)

    def decompose(self, codes: rlx.Value, scales: rlx.Value, minima: rlx.Value) -> rlx.Value:
        blocks, n = scales.shape
        shifts = rlx.reshape(rlx.arange(4, dtype=rlx.i32) * 2, (1, 4, 1))
        wide = rlx.astype(rlx.reshape(codes, (codes.shape[0], 1, n)), rlx.i32)
        numbers = rlx.bitwise_and(rlx.bitwise_right_shift(wide, shifts), 3)
        in_blocks = rlx.astype(rlx.reshape(numbers, (blocks, self.block, n)), rlx.f32)
        scaled = in_blocks * rlx.reshape(scales, (blocks, 1, n)) + rlx.reshape(minima, (blocks, 1, n))
        return rlx.reshape(scaled, (blocks * self.block, n))

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        yield Sample("u8[8, 3]", "f32[2, 3]", "f32[2, 3]")


two_bit_weight = op_function(TwoBitWeight)
OPS = {TwoBitWeight.name: TwoBitWeight}


@hookimpl
def rlx_ops() -> list[OpFamily]:
    """The op, so that saved programs find it by name."""
    return [OpFamily(OPS, [TwoBitWeight.name])]
