"""Products as native kernels, on every instruction set of this machine, against float64 and against NumPy's own error."""

from __future__ import annotations

import re
from itertools import product
from typing import Any

import numpy as np
import pytest
from harness import EVERY_ISA, Kernel, kernel, place_of
from llvmlite import binding as llvm

from rlx_core.ir.dtypes import dtype, f32, f64, i32, i64
from rlx_core.ir.types import TensorType
from rlx_core.ops.activation import gelu, relu
from rlx_core.ops.arithmetic import add as plus
from rlx_core.ops.arithmetic import subtract
from rlx_core.ops.fused import FusedMatMulBiasAct
from rlx_core.ops.fused_matmul_epilogue import FusedMatMulEpilogue
from rlx_core.ops.linalg import MatMul
from rlx_core.ops.region import ElementwiseRegion, RegionStep
from rlx_core.ops.selection import Where
from rlx_cpu.native import ir
from rlx_cpu.native.codegen import new_module
from rlx_cpu.native.contract import Layout, Place
from rlx_cpu.native.epilogue import Epilogue, Operand, add, multiply, scale
from rlx_cpu.native.gemm import emit_product, matmul, matmul_bias_activation
from rlx_cpu.native.gemm_epilogue import matmul_epilogue
from rlx_cpu.native.gemm_integer import integer_matmul
from rlx_cpu.native.gemm_tiles import NARROW, TILES, blocks, cut
from rlx_cpu.native.isa import ISAS, Isa, available, named
from rlx_cpu.native.jit import compile_module
from rlx_cpu.native.simd import Simd, pointer_at

SIZES = (0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 47, 48, 49, 100)


def error_bound(single: np.ndarray, exact: np.ndarray) -> float:
    """Four times the largest error of NumPy in the same dtype, and four ulp of the largest element.

    NumPy adds up in blocks of its own, so on tiny products its error may happen to be 0.
    """
    if not exact.size:
        return 0.0
    return float(4 * np.abs(single - exact).max() + 4 * np.finfo(single.dtype).eps * np.abs(exact).max())


def check(made: Kernel, *operands: np.ndarray, exact: np.ndarray, single: np.ndarray) -> None:
    (found,) = made(*operands)
    assert found.shape == exact.shape
    assert np.abs(found - exact).max(initial=0.0) <= error_bound(single, exact)
    for threads in (2, 3, 5):
        assert np.array_equal(made(*operands, threads=threads)[0], found), "threads change no bit"


def random(rng: np.random.Generator, shape: tuple[int, ...], of: Any, *, is_transposed: bool = False) -> np.ndarray:
    """Elements of both signs, in rows or in columns."""
    if is_transposed:
        return random(rng, (*shape[:-2], shape[-1], shape[-2]), of).swapaxes(-1, -2)
    return rng.standard_normal(shape).astype(of)


def odd_sizes() -> list[tuple[int, int, int, bool, bool, bool]]:
    """Every pair of sizes occurs on every pair of axes about once; layouts and binding vary along."""
    rng = np.random.default_rng(5)
    orders = [rng.permutation(SIZES) for _ in range(3)]
    choices = list(product((False, True), repeat=3))
    return [
        (int(orders[0][i]), int(orders[1][(i + s) % 15]), int(orders[2][(i + 4 * s) % 15]), *choices[(i + s) % 8])
        for s in range(4)
        for i in range(15)
    ]


@EVERY_ISA
@pytest.mark.parametrize("of", ["f32", "f64"])
def test_odd_sizes_agree_with_float64(isa: Isa, of: str) -> None:
    rng = np.random.default_rng(0)
    for m, n, k, a_transposed, b_transposed, is_bound in odd_sizes():
        a = random(rng, (m, k), dtype(of).numpy, is_transposed=a_transposed)
        b = random(rng, (k, n), dtype(of).numpy, is_transposed=b_transposed)
        made = kernel(matmul, MatMul(), [a, b], isa, bound=(1,) if is_bound else ())
        exact = a.astype(np.longdouble) @ b.astype(np.longdouble)
        check(made, a, b, exact=exact, single=a @ b)


@EVERY_ISA
@pytest.mark.parametrize(
    ("m", "n", "k"),
    [
        (16, 384, 384),
        (130, 100, 1100),
        (20, 40, 2100),
        (1, 1000, 70),
        (2, 333, 65),
        (4, 200, 33),
        (300, 20, 40),
        (150, 150, 10),
    ],
)
def test_blocked_tall_flat_and_long_products_agree(isa: Isa, m: int, n: int, k: int) -> None:
    """More than one block of K, more tiles than are read in place, fewer rows than a tile."""
    rng = np.random.default_rng(1)
    for a_transposed, b_transposed, is_bound in ((False, False, True), (False, False, False), (True, True, False)):
        a = random(rng, (m, k), np.float32, is_transposed=a_transposed)
        b = random(rng, (k, n), np.float32, is_transposed=b_transposed)
        made = kernel(matmul, MatMul(), [a, b], isa, bound=(1,) if is_bound else ())
        check(made, a, b, exact=a.astype(np.float64) @ b.astype(np.float64), single=a @ b)


BATCHES = [
    ((2, 3, 5, 7), (2, 3, 7, 4)),
    ((2, 1, 5, 7), (3, 7, 4)),
    ((5, 7), (2, 3, 7, 4)),
    ((4, 1, 7), (7, 4)),
    ((2, 3, 1, 7), (7, 4)),
    ((1, 5, 7), (3, 7, 4)),
    ((2, 0, 5, 7), (1, 7, 4)),
]


@EVERY_ISA
@pytest.mark.parametrize(("a_shape", "b_shape"), BATCHES, ids=str)
@pytest.mark.parametrize("is_bound", [False, True])
def test_batch_axes_broadcast(isa: Isa, a_shape: tuple[int, ...], b_shape: tuple[int, ...], is_bound: bool) -> None:
    rng = np.random.default_rng(2)
    a, b = random(rng, a_shape, np.float32), random(rng, b_shape, np.float32)
    made = kernel(matmul, MatMul(), [a, b], isa, bound=(1,) if is_bound else ())
    check(made, a, b, exact=a.astype(np.float64) @ b.astype(np.float64), single=a @ b)


def test_batch_axes_over_one_matrix_become_rows() -> None:
    """[8, 4, 6] @ [6, 5] is one product of 32 rows."""
    rng = np.random.default_rng(3)
    a, b = random(rng, (8, 4, 6), np.float32), random(rng, (6, 5), np.float32)
    merged = kernel(matmul, MatMul(), [a, b], available()[0])
    flat = kernel(matmul, MatMul(), [a.reshape(32, 6), b], available()[0])
    assert merged.emitted.notes == flat.emitted.notes


VIEWS = {
    "every other row": lambda x: x[::2],
    "every other column": lambda x: x[:, ::2],
    "columns in the middle": lambda x: x[:, 3:-2],
    "backwards": lambda x: x[::-1, ::-1],
    "broadcast row": lambda x: np.broadcast_to(x[:1], (9, x.shape[1])),
    "broadcast column": lambda x: np.broadcast_to(x[:, :1], (x.shape[0], 9)),
}


@EVERY_ISA
@pytest.mark.parametrize("view", VIEWS)
def test_strided_operands_are_read_where_they_lie(isa: Isa, view: str) -> None:
    rng = np.random.default_rng(4)
    a = VIEWS[view](random(rng, (23, 29), np.float32))
    b = random(rng, (a.shape[1], 19), np.float32)
    made = kernel(matmul, MatMul(), [a, b], isa)
    check(made, a, b, exact=a.astype(np.float64) @ b.astype(np.float64), single=a @ b)
    b = VIEWS[view](random(rng, (23, 29), np.float32))
    for rows in (3, 19, 140):
        a = random(rng, (rows, b.shape[0]), np.float32)
        for bound in ((), (1,)):
            made = kernel(matmul, MatMul(), [a, b], isa, bound=bound)
            check(made, a, b, exact=a.astype(np.float64) @ b.astype(np.float64), single=a @ b)


@EVERY_ISA
@pytest.mark.parametrize("strides", [(160, 4), (4, 80), (8, 200), (200, 8)], ids=str)
def test_strided_results_are_written_where_they_lie(isa: Isa, strides: tuple[int, int]) -> None:
    """Canaries between the elements too."""
    rng = np.random.default_rng(6)
    a, b = random(rng, (17, 600), np.float32), random(rng, (600, 19), np.float32)
    made = kernel(matmul, MatMul(), [a, b], isa, results=[Place(TensorType(f32, (17, 19)), strides)])
    check(made, a, b, exact=a.astype(np.float64) @ b.astype(np.float64), single=a @ b)


@EVERY_ISA
@pytest.mark.parametrize("of", ["f32", "f64"])
@pytest.mark.parametrize("activation", [None, "relu", "gelu", "silu", "tanh", "sigmoid", "gelu_approx"])
def test_bias_and_activation_follow_the_sums(isa: Isa, of: str, activation: str | None) -> None:
    rng = np.random.default_rng(7)
    op = FusedMatMulBiasAct(activation=activation)
    for m, n, k in ((17, 50, 33), (3, 5, 0), (40, 33, 1200 if of == "f32" else 300)):
        x, w = (
            random(rng, (m, k), dtype(of).numpy),
            random(rng, (k, n), dtype(of).numpy) / dtype(of).numpy.type(np.sqrt(max(k, 1))),
        )
        b = random(rng, (n,), dtype(of).numpy)
        made = kernel(matmul_bias_activation, op, [x, w, b], isa, bound=(1, 2))
        exact = np.asarray(op(*(v.astype(np.float64) for v in (x, w, b))))
        single = x @ w + b
        plain = x.astype(np.float64) @ w.astype(np.float64) + b
        (found,) = made(x, w, b)
        # Slopes of these functions are at most 1.13; 8 ulp are for the function itself.
        bound = 1.2 * error_bound(single, plain) + 8 * np.finfo(x.dtype).eps * np.maximum(1, np.abs(exact))
        assert (np.abs(found - exact) <= bound).all()
        assert np.array_equal(made(x, w, b, threads=2)[0], found)


@EVERY_ISA
@pytest.mark.parametrize("strides", [(76, 4), (4, 68), (0, 4), (4, 0)], ids=str)
def test_stages_read_operands_with_any_strides(isa: Isa, strides: tuple[int, int]) -> None:
    """Scale, then a residual, then one factor a row: what fused chains after a product are made of."""
    rng = np.random.default_rng(10)
    a, b = random(rng, (17, 30), np.float32), random(rng, (30, 19), np.float32)
    added = np.lib.stride_tricks.as_strided(random(rng, (17 * 19,), np.float32), (17, 19), strides)
    factors = random(rng, (17,), np.float32)
    layout = Layout((*map(place_of, (a, b, added, factors)),), (Place.dense(TensorType(f32, (17, 19))),))

    def stages(simd: Simd, builder: ir.IRBuilder, buffers: ir.Value) -> Epilogue:
        residual, factor = (pointer_at(builder, buffers, i) for i in (2, 3))
        first = Epilogue((scale(simd, 0.5), add(simd, Operand(residual, *strides))))
        return first.then(multiply(simd, Operand(factor, by_row=4)))

    module = new_module("kernel")
    emitted = emit_product(module, layout, isa, "kernel", stages)
    made = Kernel(compile_module(module, isa), emitted, layout, module, isa)
    exact = (0.5 * (a.astype(np.float64) @ b) + added) * factors[:, None]
    single = (np.float32(0.5) * (a @ b) + added) * factors[:, None]
    check(made, a, b, added, factors, exact=exact, single=single)


@pytest.mark.parametrize("rows", [64, 2048])
def test_lines_of_a_result_that_is_far_are_asked_for(rows: int) -> None:
    a, b = np.ones((rows, 8), np.float32), np.ones((8, 512), np.float32)
    made = kernel(matmul, MatMul(), [a, b], available()[0])

    is_asked = 'llvm.prefetch.p0"(ptr %c, i32 1' in str(made.module)
    assert is_asked == (rows * 512 * 4 > 1 << 21)
    assert (made(a, b)[0] == 8).all()


def test_neon_code_is_made_on_any_machine() -> None:
    """It cannot run here, but every step down to machine code is taken."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    isa = next(i for i in ISAS if i.name == "neon")
    a, b = np.zeros((17, 40), np.float32), np.zeros((40, 50), np.float32)
    places = (place_of(a), place_of(b))
    layout = Layout(places, (Place.dense(TensorType(f32, (17, 50))),))
    module = new_module("kernel")
    module.triple = "aarch64-unknown-linux-gnu"
    emit_product(module, layout, isa, "kernel", lambda simd, builder, buffers: Epilogue())
    parsed = llvm.parse_assembly(str(module))
    parsed.verify()
    machine = llvm.Target.from_triple(module.triple).create_target_machine(features="+neon", opt=3)
    assert "fmla" in machine.emit_assembly(parsed)


def test_nan_and_infinity_stay_in_their_rows() -> None:
    """The zeros that fill a panel meet nothing but columns that are not stored."""
    a = np.ones((9, 5), np.float32)
    a[3, 2], a[4, 1] = np.nan, np.inf
    b = np.full((5, 19), 2, np.float32)
    for bound in ((), (1,)):
        (found,) = kernel(matmul, MatMul(), [a, b], available()[0], bound=bound)(a, b)
        assert np.isnan(found[3]).all()
        assert np.isposinf(found[4]).all()
        assert np.isfinite(np.delete(found, (3, 4), 0)).all()


def test_one_element_off_is_no_fault() -> None:
    """Arrays of callers are aligned to their elements and no more."""
    rng = np.random.default_rng(8)
    memory = rng.standard_normal(20 * 100 + 1).astype(np.float32)
    a, b = memory[1 : 1 + 15 * 30].reshape(15, 30), memory[1 : 1 + 30 * 50].reshape(30, 50)
    made = kernel(matmul, MatMul(), [a, b], available()[0])
    check(made, a, b, exact=a.astype(np.float64) @ b.astype(np.float64), single=a @ b)


# ------------------------------------------------------------------------------- halves and integers

HALVES = pytest.mark.parametrize("of", ["f16", "bf16"])
HALF_SIZES = [(17, 33, 31), (130, 50, 1101), (1, 100, 64), (300, 20, 32), (3, 4, 0), (0, 3, 2), (5, 0, 3), (9, 47, 1)]
LAYOUTS = [(False, False, False), (False, False, True), (True, True, False), (False, True, False), (True, False, True)]


def check_halves(made: Kernel, *operands: np.ndarray, exact: np.ndarray, single: np.ndarray) -> None:
    """f32 sums and one rounding of the result: the error of f32 NumPy on the same halves, and half an ulp.

    `vdpbf16ps` adds two exact products to an f32 sum with a rounding each, as the sequential f32 sum does; it takes subnormals
    for zeros (Intel's instruction set reference, volume 2, "VDPBF16PS"), which normal operands do not notice.
    """
    (found,) = made(*operands)
    unit = {"f16": 2.0**-11, "bf16": 2.0**-8}[dtype(found.dtype).name]
    bound = error_bound(single, exact) + unit * (1 + 2.0**-8) * np.abs(exact)
    assert (np.abs(found.astype(np.float64) - exact) <= bound).all()
    assert np.array_equal(made(*operands, threads=3)[0].view(np.uint16), found.view(np.uint16)), "threads change no bit"


@EVERY_ISA
@HALVES
def test_products_of_halves_are_sums_of_floats_rounded_once(isa: Isa, of: str) -> None:
    """Odd numbers of halves, several blocks of K, any layout, bound and not."""
    rng = np.random.default_rng(11)
    for (m, n, k), (a_transposed, b_transposed, is_bound) in product(HALF_SIZES, LAYOUTS):
        a = random(rng, (m, k), dtype(of).numpy, is_transposed=a_transposed)
        b = random(rng, (k, n), dtype(of).numpy, is_transposed=b_transposed)
        made = kernel(matmul, MatMul(), [a, b], isa, bound=(1,) if is_bound else ())
        exact = a.astype(np.float64) @ b.astype(np.float64)
        check_halves(made, a, b, exact=exact, single=a.astype(np.float32) @ b.astype(np.float32))


@EVERY_ISA
@HALVES
@pytest.mark.parametrize("view", VIEWS)
def test_strided_halves_are_read_where_they_lie(isa: Isa, of: str, view: str) -> None:
    rng = np.random.default_rng(12)
    a = VIEWS[view](random(rng, (23, 29), dtype(of).numpy))
    b = VIEWS[view](random(rng, (23, 29), dtype(of).numpy)).T[: a.shape[1]]
    a = a[:, : b.shape[0]]
    for bound in ((), (1,)):
        made = kernel(matmul, MatMul(), [a, b], isa, bound=bound)
        exact = a.astype(np.float64) @ b.astype(np.float64)
        check_halves(made, a, b, exact=exact, single=a.astype(np.float32) @ b.astype(np.float32))


@EVERY_ISA
@HALVES
@pytest.mark.parametrize(("a_shape", "b_shape"), BATCHES, ids=str)
def test_batches_of_halves_broadcast(isa: Isa, of: str, a_shape: tuple[int, ...], b_shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(13)
    a, b = random(rng, a_shape, dtype(of).numpy), random(rng, b_shape, dtype(of).numpy)
    for bound in ((), (1,)):
        made = kernel(matmul, MatMul(), [a, b], isa, bound=bound)
        exact = a.astype(np.float64) @ b.astype(np.float64)
        check_halves(made, a, b, exact=exact, single=a.astype(np.float32) @ b.astype(np.float32))


@EVERY_ISA
@HALVES
@pytest.mark.parametrize("activation", [None, "relu", "gelu"])
def test_what_follows_a_product_of_halves_sees_its_f32_sums(isa: Isa, of: str, activation: str | None) -> None:
    """One rounding at the end, not one after the sums and one after the bias."""
    rng = np.random.default_rng(14)
    op = FusedMatMulBiasAct(activation=activation)
    for m, n, k in ((17, 50, 33), (3, 5, 0), (40, 33, 1200)):
        x, w = (random(rng, shape, dtype(of).numpy) for shape in ((m, k), (k, n)))
        w = (w / np.sqrt(max(k, 1))).astype(w.dtype)
        bias = random(rng, (n,), dtype(of).numpy)
        made = kernel(matmul_bias_activation, op, [x, w, bias], isa, bound=(1, 2))
        exact, single = (np.asarray(op(*(v.astype(t) for v in (x, w, bias)))) for t in (np.float64, np.float32))
        # 8 ulp of f32 and slopes of at most 1.13 for the function itself, as for f32.
        (found,) = made(x, w, bias)
        unit = {"f16": 2.0**-11, "bf16": 2.0**-8}[of]
        limit = 2 * error_bound(single, exact) + 8 * 2.0**-23 + unit * (1 + 2.0**-8) * np.abs(exact)
        # Below the smallest normal f16 an ulp is 2^-24.
        assert (np.abs(found.astype(np.float64) - exact) <= limit + 2.0**-25).all()


@EVERY_ISA
@pytest.mark.parametrize("of", ["f16", "bf16", "f32"])
def test_a_residual_is_added_to_sums_of_several_blocks(isa: Isa, of: str) -> None:
    """Partial sums wait apart: the result may be the residual's own bytes."""
    rng = np.random.default_rng(15)
    subtracted = (RegionStep(subtract.op(), (1, 0)),)
    op = FusedMatMulEpilogue(ElementwiseRegion((21, 35), subtracted, ((35, 1), (35, 1)), (0,)))
    x, w = (random(rng, shape, dtype(of).numpy) for shape in ((21, 2300), (2300, 35)))
    residual = random(rng, (21, 35), dtype(of).numpy)
    made = kernel(matmul_epilogue, op, [x, w, residual], isa)
    exact, single = (np.asarray(op(*(v.astype(t) for v in (x, w, residual)))) for t in (np.float64, np.float32))
    if of == "f32":
        check(made, x, w, residual, exact=exact, single=single)
    else:
        check_halves(made, x, w, residual, exact=exact, single=single)


@EVERY_ISA
@pytest.mark.parametrize("of", ["f16", "bf16", "f32", "f64"])
@pytest.mark.parametrize("is_long", [False, True])
def test_a_region_reads_masks_rows_and_columns_and_gives_several_results(isa: Isa, of: str, is_long: bool) -> None:
    """`s = f(x·w + row)` and `where(mask, column, s)`, on sums in registers and on a tile in memory."""
    rng = np.random.default_rng(17)
    function = RegionStep(gelu.op() if is_long else relu.op(), (4,))
    for m, n, k in ((17, 50, 33), (1, 7, 5), (40, 33, 1200), (9, 1, 3), (3, 5, 0)):
        steps = (RegionStep(plus.op(), (0, 1)), function, RegionStep(Where(), (3, 2, 5)))
        whole, row, column = (n, 1), (0, 1), (1, 0)
        op = FusedMatMulEpilogue(ElementwiseRegion((m, n), steps, (whole, row, column, whole), (2, 1)))
        shapes = ((m, k), (k, n), (n,), (m, 1))
        x, w, bias, mark = (random(rng, shape, dtype(of).numpy) for shape in shapes)
        w = (w / np.sqrt(max(k, 1))).astype(w.dtype)
        mask = rng.random((m, n)) > 0.5
        operands = (x, w, bias, mark, mask)
        for bound in ((), (1,)):
            made = kernel(matmul_epilogue, op, list(operands), isa, bound=bound)
            found = made(*operands)
            again = made(*operands, threads=3)
            wide, single = (op(*(v if v is mask else v.astype(t) for v in operands)) for t in (np.float64, np.float32))
            for result, other, exact, rough in zip(found, again, wide, single, strict=True):
                np.testing.assert_array_equal(result, other)
                # Twice NumPy's own error and 8 ulp for the function; a rounding to 16 bits at the end.
                unit = {"f16": 2.0**-11, "bf16": 2.0**-8, "f32": 2.0**-24, "f64": 2.0**-53}[of]
                sums = 2.0**-29 if of == "f64" else 1.0
                limit = sums * (2 * error_bound(rough, exact) + 8 * 2.0**-23) + unit * (1 + 2.0**-8) * np.abs(exact)
                assert (np.abs(result.astype(np.float64) - exact) <= limit + 2.0**-25 * sums).all()


@EVERY_ISA
@pytest.mark.parametrize(("of", "wider"), [("f16", f32), ("bf16", f32), ("f32", f64)])
def test_sums_may_be_kept_in_a_wider_dtype(isa: Isa, of: str, wider: Any) -> None:
    rng = np.random.default_rng(16)
    a, b = (random(rng, shape, dtype(of).numpy) for shape in ((19, 41), (41, 23)))
    made = kernel(matmul, MatMul(acc_dtype=wider), [a, b], isa)
    single = a.astype(wider.numpy) @ b.astype(wider.numpy)
    check(made, a, b, exact=a.astype(np.float64) @ b.astype(np.float64), single=single)


@EVERY_ISA
def test_infinities_and_nans_of_halves_stay_in_their_rows(isa: Isa) -> None:
    """The zero that completes an odd number of halves meets no element of the next row."""
    for of in ("f16", "bf16"):
        a = np.ones((9, 5), dtype(of).numpy)
        a[3, 0], a[4, 0] = np.nan, np.inf
        b = np.full((5, 19), 2, dtype(of).numpy)
        for bound in ((), (1,)):
            found = kernel(matmul, MatMul(), [a, b], isa, bound=bound)(a, b)[0].astype(np.float32)
            assert np.isnan(found[3]).all()
            assert np.isposinf(found[4]).all()
            assert (np.delete(found, (3, 4), 0) == 10).all()


@pytest.mark.parametrize("isa", [i for i in available() if "avx512f" in i.needs], ids=lambda isa: isa.name)
def test_pairs_are_multiplied_by_the_instruction_where_the_set_has_it(isa: Isa) -> None:
    a, b = (np.zeros(shape, dtype("bf16").numpy) for shape in ((64, 64), (64, 96)))
    assert ("vdpbf16ps" in kernel(matmul, MatMul(), [a, b], isa, bound=(1,)).assembly) == isa.multiplies_bf16
    assert not named("avx512").multiplies_bf16


INTEGER_DTYPES = ["i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"]


@EVERY_ISA
@pytest.mark.parametrize("of", INTEGER_DTYPES)
def test_integer_products_wrap_in_their_own_width(isa: Isa, of: str) -> None:
    rng = np.random.default_rng(17)
    of_numpy = dtype(of).numpy
    limits = np.iinfo(of_numpy)
    for m, n, k, is_transposed in (
        (5, 70, 9, False),
        (4, 64, 300, True),
        (1, 3, 2, True),
        (0, 3, 2, False),
        (2, 3, 0, False),
    ):
        a, b = (rng.integers(limits.min, limits.max, shape, of_numpy, endpoint=True) for shape in ((m, k), (n, k)))
        b = b.T if is_transposed else np.ascontiguousarray(b.T)
        made = kernel(integer_matmul, MatMul(), [a, b], isa)
        with np.errstate(over="ignore"):
            expected = a @ b
        for threads in (1, 3):
            assert np.array_equal(made(a, b, threads=threads)[0], expected)


@EVERY_ISA
@pytest.mark.parametrize(("of", "wider"), [("i8", i32), ("u8", i32), ("i32", i64)])
def test_integer_products_may_be_summed_in_a_wider_dtype(isa: Isa, of: str, wider: Any) -> None:
    rng = np.random.default_rng(18)
    limits = np.iinfo(dtype(of).numpy)
    a, b = (rng.integers(limits.min, limits.max, shape, dtype(of).numpy) for shape in ((2, 3, 9, 31), (3, 31, 21)))
    (found,) = kernel(integer_matmul, MatMul(acc_dtype=wider), [a, b], isa)(a, b)
    assert np.array_equal(found, a.astype(wider.numpy) @ b.astype(wider.numpy))


# ------------------------------------------------------------------------------------------ choices


@pytest.mark.parametrize("registers", TILES)
def test_every_tile_fits_in_the_registers(registers: int) -> None:
    tiles = (*TILES[registers], *NARROW[registers].values())
    assert all(t.registers <= registers for t in tiles), tiles


@pytest.mark.parametrize(("length", "most"), [(n, m) for n in (0, 1, 2, 7, 8, 9, 17, 48, 100) for m in (1, 3, 8)])
def test_a_cut_deals_out_everything_evenly(length: int, most: int) -> None:
    found = cut(length, most)
    sizes = [found.size_of(i) for i in range(found.pieces)]
    assert sum(sizes) == length == found.start(found.pieces)
    assert [found.start(i) for i in range(found.pieces)] == [sum(sizes[:i]) for i in range(found.pieces)]
    assert not sizes or (max(sizes) <= most and max(sizes) - min(sizes) <= 1)
    assert len(sizes) == -(-length // most)


def test_items_cover_a_product_whatever_its_size() -> None:
    isa = available()[0]
    for m, n, k, of in product((1, 17, 1000), (1, 50, 3000), (1, 5000), (f32, f64)):
        found = blocks(3, m, n, k, of, isa)
        assert found.row_items * found.row_tiles >= found.rows.pieces
        assert found.panel_items * found.panel_group >= found.panels.pieces
        assert found.depth % 4 == 0 or found.depth == k


@pytest.mark.parametrize("isa", [i for i in available() if i.name != "sse2"], ids=lambda isa: isa.name)
@pytest.mark.parametrize("of", [np.float32, np.float64])
def test_the_inner_loop_spills_nothing(isa: Isa, of: Any) -> None:
    """The block with the most fused products touches the stack in no instruction before its own branch back."""
    a, b = np.zeros((128, 384), of), np.zeros((384, 384), of)
    made = kernel(matmul, MatMul(), [a, b], isa, bound=(1,))
    inner = max(re.split(r"\n(?=\.LBB)", made.assembly), key=lambda block: block.count("vfmadd"))
    loop = inner[: inner.index("\n\tj")]
    assert loop.count("vfmadd") >= 4 * 6 * 2
    assert "rsp" not in loop
    assert "rbp" not in loop
