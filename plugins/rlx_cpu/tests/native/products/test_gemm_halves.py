"""Products of f16 and bf16: sums of floats, rounded once."""

from __future__ import annotations

import numpy as np
import pytest
from harness import kernel, products_of
from products import BATCHES, VIEWS, check_halves, error_bound, random

from rlx_core.ir.dtypes import dtype
from rlx_core.ops.fused import FusedMatMulBiasAct
from rlx_core.ops.linalg import MatMul
from rlx_cpu.native.llvm.isa import Isa, available, named
from rlx_cpu.native.products.gemm import matmul, matmul_bias_activation

HALVES = products_of("f16", "bf16")

LAYOUTS = [(False, False, False), (False, False, True), (True, True, False), (False, True, False), (True, False, True)]

HALF_SIZES = {
    (17, 33, 31): LAYOUTS,
    (130, 50, 1101): LAYOUTS,
    (1, 100, 64): LAYOUTS[1:3],
    (300, 20, 32): LAYOUTS[3:],
    (9, 47, 1): LAYOUTS[2:],
    (3, 4, 0): LAYOUTS[:1],
    (0, 3, 2): LAYOUTS[1:2],
    (5, 0, 3): LAYOUTS[2:3],
}
"""Sizes, and the layouts they are tried in (whether a and b are in columns, and b is bound): where there is little to do, few."""


@pytest.mark.medium
@HALVES
def test_products_of_halves_are_sums_of_floats_rounded_once(isa: Isa, of: str) -> None:
    """Odd numbers of halves, several blocks of K, any layout, bound and not."""
    rng = np.random.default_rng(11)
    cases = [(size, layout) for size, layouts in HALF_SIZES.items() for layout in layouts]
    for (m, n, k), (a_transposed, b_transposed, is_bound) in cases:
        a = random(rng, (m, k), dtype(of).numpy, is_transposed=a_transposed)
        b = random(rng, (k, n), dtype(of).numpy, is_transposed=b_transposed)
        made = kernel(matmul, MatMul(), [a, b], isa, bound=(1,) if is_bound else ())
        exact = a.astype(np.float64) @ b.astype(np.float64)
        check_halves(made, a, b, exact=exact, single=a.astype(np.float32) @ b.astype(np.float32))


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


@HALVES
@pytest.mark.parametrize(("a_shape", "b_shape"), BATCHES, ids=str)
def test_batches_of_halves_broadcast(isa: Isa, of: str, a_shape: tuple[int, ...], b_shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(13)
    a, b = random(rng, a_shape, dtype(of).numpy), random(rng, b_shape, dtype(of).numpy)
    for bound in ((), (1,)):
        made = kernel(matmul, MatMul(), [a, b], isa, bound=bound)
        exact = a.astype(np.float64) @ b.astype(np.float64)
        check_halves(made, a, b, exact=exact, single=a.astype(np.float32) @ b.astype(np.float32))


@pytest.mark.medium
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


@HALVES
def test_infinities_and_nans_of_halves_stay_in_their_rows(isa: Isa, of: str) -> None:
    """The zero that completes an odd number of halves meets no element of the next row."""
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
