"""Products and scatters to print: sizes that no tile divides, operands in any order, every way to combine."""

from __future__ import annotations

from math import prod
from typing import Literal, get_args

from attrs import frozen

from rlx_core.codegen import check_kernel
from rlx_core.codegen.loops import Apply, Buffer, Const, Kernel, Load, Scalar, Store
from rlx_core.ir.dtypes import DType, bf16, f16, f32, i32
from rlx_core.ops.activation import tanh
from rlx_core.ops.arithmetic import add
from rlx_core.ops.conversion import Cast
from rlx_gpu.codegen.scatter import OwnedScatter
from rlx_gpu.codegen.tiles import Factor, TiledProduct
from rlx_gpu.codegen.walks import Machine

USUAL = Machine()


@frozen
class ProductCase:
    dtype: DType
    batch: tuple[int, ...]
    m: int
    n: int
    k: int
    is_lhs_transposed: bool = False
    is_rhs_transposed: bool = False
    has_epilogue: bool = False
    machine: Machine = USUAL


PRODUCT_CASES = (
    ProductCase(f32, (), 70, 50, 33, has_epilogue=True),
    ProductCase(f32, (2, 3), 17, 65, 40, is_lhs_transposed=True, machine=Machine(most_groups=5)),
    ProductCase(f32, (), 5, 130, 20, is_rhs_transposed=True, has_epilogue=True),
    ProductCase(f16, (2,), 33, 20, 50, has_epilogue=True, machine=Machine(group=64)),
    ProductCase(bf16, (), 64, 64, 64, is_lhs_transposed=True, is_rhs_transposed=True),
    ProductCase(i32, (), 9, 10, 11),
    ProductCase(f32, (), 1, 7, 3),
)

UNIT_CASES = (
    ProductCase(f16, (), 40, 72, 136, has_epilogue=True),
    ProductCase(bf16, (2,), 21, 33, 50, machine=Machine(most_groups=5)),
    ProductCase(f16, (3,), 7, 18, 19, is_lhs_transposed=True, has_epilogue=True),
    ProductCase(bf16, (), 1, 264, 72, is_rhs_transposed=True, has_epilogue=True),
    ProductCase(f16, (), 136, 128, 40, is_lhs_transposed=True, is_rhs_transposed=True, machine=Machine(many_groups=8)),
    ProductCase(bf16, (), 140, 130, 96, machine=Machine(many_groups=8, shared_nbytes=48 << 10)),
    ProductCase(bf16, (), 24, 16, 5, is_lhs_transposed=True, machine=Machine(group=32)),
)
"""What matrix units compute: copies of 16 bytes and of elements, every order of operands, tiles of all shapes."""

UNIT_CASES_OF_F32 = (
    ProductCase(f32, (3,), 7, 18, 19, is_lhs_transposed=True, has_epilogue=True),
    ProductCase(f32, (), 66, 72, 40, is_lhs_transposed=True, is_rhs_transposed=True),
    ProductCase(f32, (), 1, 100, 20, is_rhs_transposed=True, has_epilogue=True),
    ProductCase(f32, (2,), 21, 33, 50, machine=Machine(most_groups=5, group=64)),
    ProductCase(f32, (), 70, 140, 36, machine=Machine(shared_nbytes=32 << 10)),
)
"""The same where units multiply f32, too."""


SMALL_DEVICE = Machine(many_groups=8)

WARPGROUP_CASES = (
    ProductCase(f16, (), 140, 130, 200, has_epilogue=True, is_lhs_transposed=True, is_rhs_transposed=True),
    ProductCase(bf16, (), 72, 136, 328, has_epilogue=True, machine=SMALL_DEVICE),
    ProductCase(bf16, (), 130, 120, 264, is_rhs_transposed=True, has_epilogue=True, machine=SMALL_DEVICE),
    ProductCase(f16, (), 136, 264, 192, is_lhs_transposed=True, machine=SMALL_DEVICE),
    ProductCase(f16, (3,), 70, 136, 72, is_rhs_transposed=True, machine=Machine(most_groups=2)),
    ProductCase(bf16, (), 65, 131, 203, has_epilogue=True),
    ProductCase(bf16, (2,), 1, 7, 3, is_lhs_transposed=True, machine=SMALL_DEVICE),
)
"""What warpgroups multiply: one or two, every order of operands, copies of 16 bytes and of elements, edges of every kind."""


def product_of(case: ProductCase) -> TiledProduct:
    """`a @ b`, or `tanh(a @ b + bias)`, of dense operands; a transposed one has its last axes the other way in memory."""
    size, batch = case.dtype.itemsize, len(case.batch)
    held = case.dtype.accumulator
    values: list[Scalar] = [Const(held, 0)]
    if case.has_epilogue:
        values += [Load(2, f32, (0,) * (batch + 1) + (4,)), Apply(f32, add.op(), (0, 1)), Apply(f32, tanh.op(), (2,))]
    if held is not case.dtype:
        values.append(Apply(case.dtype, Cast(case.dtype), (len(values) - 1,)))

    def outer(elements: int) -> tuple[int, ...]:
        return tuple(size * elements * prod(case.batch[a + 1 :]) for a in range(batch))

    m, n, k = case.m, case.n, case.k
    of_m, lhs_depth = (size, m * size) if case.is_lhs_transposed else (k * size, size)
    of_n, rhs_depth = (k * size, size) if case.is_rhs_transposed else (size, n * size)
    buffers = (Buffer("a", case.dtype), Buffer("b", case.dtype), Buffer("bias", f32), Buffer("y", case.dtype, True))
    store = Store(3, len(values) - 1, (*outer(m * n), n * size, size))
    kernel = Kernel("product", (*case.batch, m, n), batch + 2, buffers, tuple(values), (store,))
    lhs = Factor(0, (*outer(m * k), of_m, 0), lhs_depth)
    rhs = Factor(1, (*outer(k * n), 0, of_n), rhs_depth)
    return TiledProduct(check_kernel(kernel), 0, lhs, rhs, k)


ROWS, COLUMNS, UPDATES = 7, 5, 20

Mode = Literal["set", "add", "max", "min"]
Outside = Literal["drop", "clip", "report"]


@frozen
class ScatterCase:
    dtype: DType
    mode: Mode
    outside: Outside

    @property
    def problem(self) -> OwnedScatter:
        size = self.dtype.itemsize
        buffers = (Buffer("x", self.dtype), Buffer("i", i32), Buffer("u", self.dtype), Buffer("y", self.dtype, True))
        whole = (COLUMNS * size, size)
        return OwnedScatter(
            (ROWS, COLUMNS),
            0,
            UPDATES,
            buffers,
            Factor(1, (0, 0), 4),
            Factor(2, (0, size), COLUMNS * size),
            Factor(0, whole, 0),
            Factor(3, whole, 0),
            self.mode,
            self.outside,
        )


SCATTER_CASES = [ScatterCase(d, m, o) for d in (f32, f16, i32) for m in get_args(Mode) for o in get_args(Outside)]


PRODUCTS = [product_of(case) for case in (*PRODUCT_CASES, *UNIT_CASES)]
SCATTERS = [case.problem for case in SCATTER_CASES]
