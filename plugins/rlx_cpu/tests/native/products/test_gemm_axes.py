"""Products whose rows and terms are several axes: windows read where they lie, forwards and for the cotangent of the weights."""

from __future__ import annotations

import numpy as np
import pytest
from harness import EVERY_WIDTH, kernel, place_of, products_of
from products import check, error_bound, random

from rlx_core.ir.dtypes import dtype, f32, i16, i32, i64, u8
from rlx_core.ir.graph import probe
from rlx_core.ir.types import spec
from rlx_core.ops.activation import relu
from rlx_core.ops.arithmetic import add, multiply
from rlx_core.ops.conversion import Cast
from rlx_core.ops.convolution.folded import FoldedMatMul
from rlx_core.ops.piecewise import Round
from rlx_core.ops.region import ElementwiseRegion, RegionStep
from rlx_cpu.native.llvm.isa import Isa, available
from rlx_cpu.native.products.gemm_epilogue import folded_matmul, integer_folded_matmul, reason_at_integer_windows

CASES = {
    "lines of 15": ((2, 17, 17, 5), (3, 3), (1, 1), (1, 1), 19),
    "a stride": ((1, 9, 20, 8), (3, 2), (2, 3), (1, 1), 64),
    "a dilation": ((1, 9, 9, 4), (3, 3), (1, 1), (2, 3), 33),
    "runs of whole lines": ((1, 4, 6, 3), (1, 6), (1, 1), (1, 1), 16),
    "one row": ((1, 3, 3, 7), (3, 3), (1, 1), (1, 1), 48),
    "many terms": ((1, 4, 5, 140), (3, 3), (1, 1), (1, 1), 9),
    "runs beyond a block": ((1, 3, 9, 620), (2, 2), (1, 1), (1, 1), 8),
    "one cell at steps": ((2, 7, 7, 24), (1, 1), (2, 2), (1, 1), 16),
}
"""Image, kernel, stride, dilation, results."""


def windows(x: np.ndarray, kernel: tuple[int, ...], stride: tuple[int, ...], dilation: tuple[int, ...]) -> np.ndarray:
    """`[n, o, p, i, j, c]` as a view of `[n, h, w, c]`."""
    counts = [(n - d * (k - 1) - 1) // s + 1 for n, k, s, d in zip(x.shape[1:3], kernel, stride, dilation, strict=True)]
    by_window = [b * s for b, s in zip(x.strides[1:3], stride, strict=True)]
    by_cell = [b * d for b, d in zip(x.strides[1:3], dilation, strict=True)]
    shape, strides = (len(x), *counts, *kernel, x.shape[3]), (x.strides[0], *by_window, *by_cell, x.strides[3])
    return np.lib.stride_tricks.as_strided(x, shape, strides)


def in_order(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """The products added up one after the other: BLAS has an order, and so an error, of its own in every process."""
    return np.einsum("...k,kn->...n", x.reshape(*x.shape[:3], -1), w)


@products_of("f32", "f64")
@pytest.mark.parametrize("name", CASES)
def test_windows_times_weights(isa: Isa, of: str, name: str) -> None:
    image, cells, stride, dilation, n = CASES[name]
    rng = np.random.default_rng(3)
    x = windows(random(rng, image, dtype(of).numpy), cells, stride, dilation)
    w = random(rng, (int(np.prod(x.shape[3:])), n), dtype(of).numpy)
    exact, single = (in_order(x.astype(t), w.astype(t)) for t in ("f8", "f4"))
    for bound in ((), (1,)):
        check(kernel(folded_matmul, FoldedMatMul(3), [x, w], isa, bound=bound), x, w, exact=exact, single=single)


@products_of("f32")
@pytest.mark.parametrize("name", CASES)
def test_the_terms_of_weights_are_places(isa: Isa, of: str, name: str) -> None:
    image, cells, stride, dilation, n = CASES[name]
    rng = np.random.default_rng(4)
    x = windows(random(rng, image, dtype(of).numpy), cells, stride, dilation).transpose(3, 4, 5, 0, 1, 2)
    dy = random(rng, (int(np.prod(x.shape[3:])), n), dtype(of).numpy)
    exact, single = (in_order(x.astype(t), dy.astype(t)) for t in ("f8", "f4"))
    check(kernel(folded_matmul, FoldedMatMul(3), [x, dy], isa), x, dy, exact=exact, single=single)


@products_of("f32")
def test_many_places_are_summed_without_packing_what_they_are_multiplied_with(isa: Isa, of: str) -> None:
    rng = np.random.default_rng(5)
    image, dy = (rng.integers(-3, 4, s).astype(dtype(of).numpy) for s in ((4, 50, 102, 2), (4 * 48 * 100, 32)))
    x = windows(image, (3, 3), (1, 1), (1, 1)).transpose(3, 4, 5, 0, 1, 2)  # whole numbers: every sum is exact
    made = kernel(folded_matmul, FoldedMatMul(3), [x, dy], isa)
    assert made.emitted.notes["panels"] == "direct"
    exact = np.tensordot(x.astype("f8"), dy.astype("f8").reshape(4, 48, 100, 32), 3)
    check(made, x, dy, exact=exact, single=exact.astype("f4"))


@products_of("f32")
def test_a_region_on_the_sums_reads_a_bias_and_a_residual(isa: Isa, of: str) -> None:
    """Once with all terms in one block, once with partial sums apart."""
    rng = np.random.default_rng(6)
    for channels in (6, 200):
        x = windows(random(rng, (2, 6, 13, channels), dtype(of).numpy), (3, 3), (1, 1), (1, 1))
        shape = (*x.shape[:3], 21)
        w, bias, residual = (random(rng, s, dtype(of).numpy) for s in ((9 * channels, 21), (21,), shape))
        whole, row = (11 * 4 * 21, 11 * 21, 21, 1), (0, 0, 0, 1)
        steps = (RegionStep(add.op(), (0, 1)), RegionStep(add.op(), (3, 2)), RegionStep(relu.op(), (4,)))
        op = FoldedMatMul(3, region=ElementwiseRegion(shape, steps, (whole, row, whole), (2,)))
        exact, single = (np.asarray(op(*(v.astype(t) for v in (x, w, bias, residual)))) for t in ("f8", "f4"))
        made = kernel(folded_matmul, op, [x, w, bias, residual], isa, bound=(1, 2))
        check(made, x, w, bias, residual, exact=exact, single=single)
        assert np.array_equal(made(x, w, bias, residual, in_place={0: [3]})[0], made(x, w, bias, residual)[0])


@products_of("f32", "f64")
@pytest.mark.parametrize("name", CASES)
def test_rows_of_a_result_lie_inside_of_a_larger_image(isa: Isa, of: str, name: str) -> None:
    """Both results and the residual have a border; what is around results stays as it is."""
    image, cells, stride, dilation, n = CASES[name]
    rng, numpy = np.random.default_rng(7), dtype(of).numpy
    x = windows(random(rng, image, numpy), cells, stride, dilation)
    lead = x.shape[:3]
    w, image = (random(rng, s, numpy) for s in ((int(np.prod(x.shape[3:])), n), (lead[0], lead[1] + 2, lead[2] + 3, n)))
    residual = image[:, 1:-1, 1:-2]
    whole = (lead[1] * lead[2] * n, lead[2] * n, n, 1)
    steps = (RegionStep(add.op(), (0, 1)), RegionStep(relu.op(), (2,)))
    op = FoldedMatMul(3, region=ElementwiseRegion((*lead, n), steps, (whole, whole), (1, 0)))
    sums = [in_order(x.astype(t), w.astype(t)) + residual.astype(t) for t in ("f8", "f4")]
    exact, single = ((np.maximum(each, 0), each) for each in sums)
    made = kernel(folded_matmul, op, [x, w, residual], isa, results=[place_of(residual)] * 2)
    for threads in (1, 3):
        for found, wide, narrow in zip(made(x, w, residual, threads=threads), exact, single, strict=True):
            assert np.abs(found - wide).max() <= error_bound(np.asarray(narrow), np.asarray(wide))


def test_without_elements_nothing_is_read() -> None:
    isa = available()[0]
    for shape, n in (((0, 3, 2, 4), 5), ((2, 3, 0, 4), 5), ((2, 3, 2, 4), 0)):
        x = np.ones(shape, "f4")
        w = np.ones((shape[2] * shape[3], n), "f4")
        (found,) = kernel(folded_matmul, FoldedMatMul(2), [x, w], isa)(x, w)
        assert np.array_equal(found, np.tensordot(x, w.reshape(*shape[2:], n), 2))


def integers(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """Differences of codes and zero points."""
    return np.random.default_rng(seed).integers(-255, 256, shape).astype("i2")


@EVERY_WIDTH
@pytest.mark.parametrize("name", CASES)
def test_windows_of_integers_are_multiplied_in_pairs(isa: Isa, name: str) -> None:
    """Exactly, with an even number of channels, also where the channels of an image are not adjacent."""
    (*sizes, channels), cells, stride, dilation, n = CASES[name]
    image = integers((*sizes, channels + channels % 2))
    for each in (image, np.moveaxis(np.ascontiguousarray(np.moveaxis(image, -1, 1)), 1, -1)):
        x = windows(each, cells, stride, dilation)
        w = integers((int(np.prod(x.shape[3:])), n), seed=1)
        exact = x.reshape(*x.shape[:3], -1).astype("i4") @ w.astype("i4")
        for bound in ((), (1,)):
            (result,) = kernel(integer_folded_matmul, FoldedMatMul(3, acc_dtype=i32), [x, w], isa, bound=bound)(x, w)
            np.testing.assert_array_equal(result, exact)


@EVERY_WIDTH
@pytest.mark.parametrize("channels", [6, 1500])
def test_sums_of_integers_are_scaled_and_rounded_to_codes(isa: Isa, channels: int) -> None:
    """With a residual in i16, and both results in one block of terms and in several."""
    x, n = windows(integers((2, 5, 6, channels)), (3, 3), (1, 1), (1, 1)), 19
    w, residual, scale = (
        integers((9 * channels, n), seed=1),
        integers((*x.shape[:3], n), seed=2),
        np.linspace(1, 2, n, dtype="f4") / channels,
    )
    whole = (3 * 4 * n, 4 * n, n, 1)
    steps = (
        RegionStep(Cast(f32), (0,)), RegionStep(multiply.op(), (3, 2)), RegionStep(Cast(f32), (1,)),
        RegionStep(add.op(), (4, 5)), RegionStep(Round(), (6,)), RegionStep(Cast(i16), (7,)), RegionStep(Cast(u8), (8,)),
    )  # fmt: skip
    region = ElementwiseRegion((*x.shape[:3], n), steps, (whole, whole, (0, 0, 0, 1)), (5, 6))
    op = FoldedMatMul(3, region=region, acc_dtype=i32)
    sums = x.reshape(*x.shape[:3], -1).astype("i4") @ w.astype("i4")
    rounded = np.clip(np.rint(sums.astype("f4") * scale + residual), -(2**15), 2**15 - 1).astype("i2")
    made = kernel(integer_folded_matmul, op, [x, w, residual, scale], isa, bound=(1, 3))
    for found, expected in zip(made(x, w, residual, scale), (rounded, rounded.astype("u1")), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("types", "acc", "reason"),
    [
        (("i16[2, 3, 5]", "i16[5, 4]"), i32, "an even number of channels, not 5"),
        (("i8[2, 3, 6]", "i8[6, 4]"), i32, "factors of i16 with sums in i32, not i8"),
        (("i16[2, 3, 6]", "i16[6, 4]"), i64, "not i16 with sums in i64"),
    ],
)
def test_other_integers_have_no_such_kernel(types: tuple[str, ...], acc: object, reason: str) -> None:
    node = probe(FoldedMatMul(1, acc_dtype=acc), [spec(t) for t in types])
    assert reason in (reason_at_integer_windows(node) or "")
