"""A product of integer codes whose blocks along the contracted axis have scales: activations and weights of 8 bits or fewer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np
from attrs import field
from attrs.validators import in_

from rlx_core.errors import DtypeError, ShapeError
from rlx_core.ir.apply import op_function
from rlx_core.ir.dims import Dim
from rlx_core.ir.dtypes import f16, f32, i8, i16, i32, u8
from rlx_core.ir.graph import Value
from rlx_core.ir.op import Op, define_op
from rlx_core.ir.types import TensorType, expect_dtype, expect_rank, expect_shape, same_dim
from rlx_core.ops.bitwise import bitwise_and, bitwise_right_shift
from rlx_core.ops.conversion import as_dtype
from rlx_core.ops.linalg import MatMul, swap_last
from rlx_core.ops.movement import Concat
from rlx_core.ops.samples import Rejected, Sample
from rlx_core.ops.structural import reshape, sum_axes, transpose


@define_op(name="block_scaled_matmul")
class BlockScaledMatMul(Op):
    """A product of codes, `y = Σ_j s_j·(x_scales_j·scales_j) + offsets_j·(x_scales_j·c_j)` over the blocks j of the last axes.

    `s_j = Σ_k x_k·(code_k - zero)` and `c_j = Σ_k x_k` are sums of integers over the elements of block j, exact in i32. It is the
    product of the values `x·x_scales` and `(code - zero)·scales + offsets`. Blocks are added in ascending order, the scaled sum
    of a block before its offset; kernels multiply and add in f32 without fused multiply-adds, so that all have the same bits.

    Shapes:
        x: i8[.., m, k]    x_scales: f32[.., m, blocks]    weight: u8[n, k], u8[n, k/2] or i8[n, k]
        scales: f16|f32[n, blocks]    offsets: f32[n, blocks], optional    ->    y: f32[.., m, n]

    Attributes:
        bits: Bits of a code of the weight. Codes of at most four bits lie two to a byte, the first in its low half. Codes of i8
            have eight bits. Results of codes that are `2^bits` or more are unspecified.
        zero: Subtracted from codes of u8.

    Raises:
        DtypeError: An operand has another dtype.
        ShapeError: k is not a whole number of blocks, or sizes do not fit.
    """

    category: ClassVar = "compute"
    bits: int = field(default=8, validator=in_(range(2, 9)))
    zero: int = field(default=0, validator=in_(range(256)))

    @property
    def per_byte(self) -> int:
        """Codes in a byte of the weight."""
        return 2 if self.bits <= 4 else 1

    def infer(
        self,
        x: TensorType,
        x_scales: TensorType,
        weight: TensorType,
        scales: TensorType,
        offsets: TensorType | None = None,
    ) -> TensorType:
        expect_dtype("x", x, (i8,))
        expect_dtype("x_scales", x_scales, (f32,))
        expect_dtype("weight", weight, (i8, u8) if self.bits == 8 and not self.zero else (u8,))
        expect_dtype("scales", scales, (f16, f32))
        expect_rank("x", x, 2)
        for name, each in (("weight", weight), ("scales", scales)):
            if each.rank != 2:
                raise ShapeError(f"{name} must be a matrix, not {each}")
        n, k, blocks = weight.shape[0], weight.shape[1] * self.per_byte, scales.shape[1]
        if not same_dim(x.shape[-1], k):
            raise ShapeError(f"x has {x.shape[-1]} columns, and weight {k} codes in a row")
        if isinstance(k, int) and isinstance(blocks, int) and (k % blocks if blocks else k):
            raise ShapeError(f"{k} columns are no whole number of {blocks} blocks")
        expect_shape("x_scales", x_scales, (*x.shape[:-1], blocks))
        expect_shape("scales", scales, (n, blocks))
        if offsets is not None:
            expect_dtype("offsets", offsets, (f32,))
            expect_shape("offsets", offsets, (n, blocks))
        return x_scales.with_shape((*x.shape[:-1], n))

    def decompose(self, x: Value, x_scales: Value, weight: Value, scales: Value, offsets: Value | None = None) -> Value:
        n, blocks = scales.shape
        if self.per_byte == 2:
            halves = bitwise_and(weight, np.uint8(15)), bitwise_right_shift(weight, np.uint8(4))
            weight = Concat(axis=2)(*(half[..., None] for half in halves))  # [n, k/2, 2]
        codes = as_dtype(weight, i16)
        codes = codes - np.int16(self.zero) if self.zero else codes
        size = x.shape[-1] // blocks if blocks != 0 else 0
        # The axis of blocks is a batch axis of the products, before the rows.
        rows = len(x.shape) - 2
        order = (*range(rows), rows + 1, rows, rows + 2)
        x_blocks = transpose(reshape(x, (*x.shape[:-1], blocks, size)), order)
        weights = transpose(reshape(codes, (n, blocks, size)), (1, 2, 0))
        sums = MatMul(acc_dtype=i32)(as_dtype(x_blocks, i16), weights)
        by_row = swap_last(x_scales)[..., None]
        by_column = swap_last(as_dtype(scales, f32))[:, None, :]
        terms = as_dtype(sums, f32) * (by_row * by_column)
        if offsets is not None:
            of_rows = as_dtype(sum_axes(as_dtype(x_blocks, i32), axes=(rows + 2,)), f32)[..., None]
            terms = terms + (of_rows * by_row) * swap_last(offsets)[:, None, :]
        return sum_axes(terms, axes=(rows,))

    def cost(self, x: TensorType, x_scales: TensorType, weight: TensorType, *others: TensorType) -> Dim:
        return 2 * x.size * weight.shape[0]

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        of_x = {"x": (-127.0, 127.0)}
        of_bytes = {**of_x, "weight": (0.0, 255.0)}
        yield Sample("i8[1, 64]", "f32[1, 2]", "u8[19, 32]", "f16[19, 2]", bits=4, zero=8, ranges=of_bytes)
        yield Sample("i8[3, 32]", "f32[3, 2]", "u8[16, 16]", "f32[16, 2]", "f32[16, 2]", bits=4, ranges=of_bytes)
        yield Sample("i8[2, 3, 32]", "f32[2, 3, 4]", "u8[5, 16]", "f32[5, 4]", "f32[5, 4]", bits=4, ranges=of_bytes)
        yield Sample("i8[5, 64]", "f32[5, 2]", "u8[9, 64]", "f16[9, 2]", "f32[9, 2]", bits=5,
                     ranges={**of_x, "weight": (0.0, 31.0)})  # fmt: skip
        yield Sample("i8[2, 48]", "f32[2, 3]", "u8[8, 48]", "f32[8, 3]", bits=6, zero=32,
                     ranges={**of_x, "weight": (0.0, 63.0)})  # fmt: skip
        yield Sample("i8[4, 64]", "f32[4, 1]", "i8[17, 64]", "f32[17, 1]", ranges={**of_x, "weight": (-128.0, 127.0)})
        yield Sample("i8[2, 32]", "f32[2, 4]", "u8[3, 32]", "f16[3, 4]", "f32[3, 4]", zero=3, ranges=of_bytes)
        yield Sample("i8[2, 12]", "f32[2, 3]", "u8[3, 6]", "f32[3, 3]", bits=4, zero=1, ranges=of_bytes)
        yield Sample("i8[0, 32]", "f32[0, 1]", "i8[3, 32]", "f32[3, 1]")
        yield Rejected("i8[2, 32]", "f32[2, 3]", "i8[3, 32]", "f32[3, 3]", error=ShapeError, says="32 columns are no")
        yield Rejected(
            "i8[2, 32]", "f32[2, 1]", "i8[3, 32]", "f32[3, 1]", zero=8, error=DtypeError, says="weight must be"
        )
        yield Rejected("i8[2, 16]", "f32[2, 1]", "i8[3, 32]", "f32[3, 1]", error=ShapeError, says="x has 16 columns")
        yield Rejected("i8[2, 32]", "f32[2, 2]", "i8[3, 32]", "f32[3, 1]", error=ShapeError, says="x_scales must be")


block_scaled_matmul = op_function(BlockScaledMatMul)
