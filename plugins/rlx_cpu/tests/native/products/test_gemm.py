"""Products as native kernels, on every instruction set of this machine, against float64 and against NumPy's own error."""

from __future__ import annotations

import re
from itertools import product
from typing import Any

import numpy as np
import pytest
from harness import EVERY_ISA, EVERY_WIDTH, WIDTHS, Kernel, kernel, place_of
from llvmlite import binding as llvm
from products import BATCHES, VIEWS, check, error_bound, random

from rlx_core.codegen.places import Layout, Place
from rlx_core.ir.dtypes import dtype, f32, f64
from rlx_core.ir.types import TensorType
from rlx_core.ops.fused import FusedMatMulBiasAct
from rlx_core.ops.linalg import MatMul
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.build import OUTER
from rlx_cpu.native.llvm.isa import ISAS, Isa, available
from rlx_cpu.native.llvm.jit import compile_module
from rlx_cpu.native.llvm.optimise import new_module
from rlx_cpu.native.llvm.simd import Simd, pointer_at
from rlx_cpu.native.products.epilogue import EpilogueOperand, GemmEpilogue, add
from rlx_cpu.native.products.gemm import emit_product, matmul, matmul_bias_activation

SIZES = (0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 47, 48, 49, 100)


def odd_sizes(seed: int) -> list[tuple[int, int, int, bool, bool, bool]]:
    """Each size twice on each axis, beside others for each seed; layouts and binding vary along."""
    rng = np.random.default_rng(seed)
    orders = [rng.permutation(SIZES) for _ in range(3)]
    choices = list(product((False, True), repeat=3))
    return [
        (int(orders[0][i]), int(orders[1][(i + s) % 15]), int(orders[2][(i + 4 * s) % 15]), *choices[(i + s) % 8])
        for s in range(2)
        for i in range(15)
    ]


@pytest.mark.medium
@EVERY_WIDTH
@pytest.mark.parametrize("of", ["f32", "f64"])
def test_odd_sizes_agree_with_float64(isa: Isa, of: str) -> None:
    rng = np.random.default_rng(0)
    # Each set and dtype has pairs of sizes of its own: all of them together have most.
    number = 2 * WIDTHS.index(isa) + (of == "f64")
    for m, n, k, a_transposed, b_transposed, is_bound in odd_sizes(number):
        a = random(rng, (m, k), dtype(of).numpy, is_transposed=a_transposed)
        b = random(rng, (k, n), dtype(of).numpy, is_transposed=b_transposed)
        made = kernel(matmul, MatMul(), [a, b], isa, bound=(1,) if is_bound else ())
        exact = a.astype(np.longdouble) @ b.astype(np.longdouble)
        check(made, a, b, exact=exact, single=a @ b)


@pytest.mark.medium
@EVERY_WIDTH
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


@EVERY_WIDTH
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


@pytest.mark.medium
@EVERY_WIDTH
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


@EVERY_WIDTH
@pytest.mark.parametrize("strides", [(160, 4), (4, 80), (8, 200), (200, 8)], ids=str)
def test_strided_results_are_written_where_they_lie(isa: Isa, strides: tuple[int, int]) -> None:
    """Canaries between the elements too."""
    rng = np.random.default_rng(6)
    a, b = random(rng, (17, 600), np.float32), random(rng, (600, 19), np.float32)
    made = kernel(matmul, MatMul(), [a, b], isa, results=[Place(TensorType(f32, (17, 19)), strides)])
    check(made, a, b, exact=a.astype(np.float64) @ b.astype(np.float64), single=a @ b)


@pytest.mark.medium
@EVERY_WIDTH
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


@EVERY_WIDTH
@pytest.mark.parametrize("by_column", [4, 68, 0])
def test_stages_follow_one_another_and_read_rows_with_any_strides(isa: Isa, by_column: int) -> None:
    rng = np.random.default_rng(10)
    a, b = random(rng, (17, 30), np.float32), random(rng, (30, 19), np.float32)
    added = np.lib.stride_tricks.as_strided(random(rng, (17 * 19,), np.float32), (19,), (by_column,))
    layout = Layout((*map(place_of, (a, b, added)),), (Place.dense(TensorType(f32, (17, 19))),))

    def stages(simd: Simd, builder: ir.IRBuilder, buffers: ir.LlvmValue) -> GemmEpilogue:
        row = EpilogueOperand(pointer_at(builder, buffers, 2), by_column, f32)
        halved = GemmEpilogue().then(lambda b, x, _: b.fmul(x, simd.constant(0.5)))
        return halved.then(add(simd, row)).then(lambda b, x, _: b.fmul(x, x))

    module = new_module("kernel")
    emitted = emit_product(module, layout, isa, "kernel", stages)
    made = Kernel(compile_module(module, isa), emitted, layout, module, isa)
    exact = (0.5 * (a.astype(np.float64) @ b) + added) ** 2
    single = (np.float32(0.5) * (a @ b) + added) ** 2
    check(made, a, b, added, exact=exact, single=single)


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
    emit_product(module, layout, isa, "kernel", lambda simd, builder, buffers: GemmEpilogue())
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


@EVERY_ISA
@pytest.mark.parametrize(("of", "wider"), [("f16", f32), ("bf16", f32), ("f32", f64)])
def test_sums_may_be_kept_in_a_wider_dtype(isa: Isa, of: str, wider: Any) -> None:
    rng = np.random.default_rng(16)
    a, b = (random(rng, shape, dtype(of).numpy) for shape in ((19, 41), (41, 23)))
    made = kernel(matmul, MatMul(acc_dtype=wider), [a, b], isa)
    single = a.astype(wider.numpy) @ b.astype(wider.numpy)
    check(made, a, b, exact=a.astype(np.float64) @ b.astype(np.float64), single=single)


@pytest.mark.parametrize("isa", [i for i in available() if "fma" in i.needs], ids=lambda isa: isa.name)
@pytest.mark.parametrize("of", [np.float32, np.float64])
def test_the_inner_loop_spills_nothing(isa: Isa, of: Any) -> None:
    """The block with the most fused products touches the stack in no instruction before its own branch back."""
    a, b = np.zeros((128, 384), of), np.zeros((384, 384), of)
    made = kernel(matmul, MatMul(), [a, b], isa, bound=(1,))
    inner = max(re.split(r"\n(?=\.LBB)", made.assembly), key=lambda block: block.count("vfmadd"))
    loop = inner[: inner.index("\n\tj")]
    assert loop.count("vfmadd") >= 2 * 6 * 2
    assert "rsp" not in loop
    assert "rbp" not in loop


@pytest.mark.parametrize(("m", "k", "n", "bound", "is_outer"), [(128, 384, 384, (), True), (128, 4, 384, (), False)])
def test_only_what_is_around_long_tiles_is_made_quickly(
    m: int, k: int, n: int, bound: tuple[int, ...], is_outer: bool
) -> None:
    """The function that finds the tiles may be slow beside long ones; the tiles themselves never are."""
    a, b = np.zeros((m, k), np.float32), np.zeros((k, n), np.float32)
    made = kernel(matmul, MatMul(), [a, b], available()[0], bound=bound)
    outer = [line for line in str(made.module).splitlines() if OUTER in line]
    assert len(outer) == is_outer
    assert not any(".tile" in line for line in outer)


def test_what_is_around_the_inner_loops_of_bound_products_is_made_once() -> None:
    """Products of different sizes, cuts and epilogues call one function, whose text knows nothing of them."""
    texts = set()
    for m, k, n in ((128, 384, 384), (17, 5, 40), (1, 700, 8)):
        a, b = np.zeros((m, k), np.float32), np.zeros((k, n), np.float32)
        module = kernel(matmul, MatMul(), [a, b], available()[0], bound=(1,)).module
        (apart,) = module.apart.values()
        assert f'call void @"{next(iter(module.apart))}"' in module.alone()
        texts.add(str(apart))
    assert len(texts) == 1


@EVERY_ISA
def test_what_is_made_quickly_is_silent_and_right(isa: Isa, capfd: pytest.CaptureFixture[str]) -> None:
    """LLVM's passes say so where they leave a function alone."""
    rng = np.random.default_rng(5)
    a, b = (random(rng, shape, np.float32) for shape in ((128, 384), (384, 96)))
    made = kernel(matmul, MatMul(), [a, b], isa)
    assert OUTER in str(made.module)
    check(made, a, b, exact=a.astype(np.float64) @ b.astype(np.float64), single=a @ b)
    assert capfd.readouterr().err == ""
