"""Tiled products against NumPy in f64: sizes that no tile divides, transposed and batched operands, epilogues, narrow storage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from attrs import evolve

from plugins.rlx_gpu.tests.codegen.executors import EXECUTORS, ON_CUDA, ON_CUDA_TF32, ON_CUDA_WGMMA, ON_METAL, Executor
from plugins.rlx_gpu.tests.codegen.problems import PRODUCT_CASES as CASES
from plugins.rlx_gpu.tests.codegen.problems import UNIT_CASES, UNIT_CASES_OF_F32, WARPGROUP_CASES
from plugins.rlx_gpu.tests.codegen.problems import ProductCase as Case
from plugins.rlx_gpu.tests.codegen.problems import product_of as problem_of
from rlx_core.ir.dtypes import DType, bf16, f16, f32
from rlx_gpu.codegen.cuda import CUDA, HIP
from rlx_gpu.codegen.metal import METAL
from rlx_gpu.codegen.products import print_product, tiles_of
from rlx_gpu.codegen.scalars import scalars_of
from rlx_gpu.codegen.units.matrix_units import CUDA_UNIT, MatrixUnit
from rlx_gpu.codegen.units.simdgroup_matrices import METAL_UNIT
from rlx_gpu.codegen.units.tiles import unit_for, unit_tiles_of
from rlx_gpu.codegen.units.warpgroup_products import refusal_of_sizes, warpgroup_refusal, warpgroup_tiles_of
from rlx_gpu.codegen.walks import Machine

ROOMY = Machine(subgroup=32, shared_nbytes=48 << 10)


@pytest.mark.parametrize("executor", EXECUTORS, ids=repr)
@pytest.mark.parametrize("cases", [CASES[2:3], pytest.param(CASES, marks=pytest.mark.slow)], ids=["one", "all"])
def test_products_are_numpys(executor: Executor, cases: Sequence[Case]) -> None:
    check(executor, cases)


ON_METALS_UNITS = (*UNIT_CASES, *UNIT_CASES_OF_F32)


@pytest.mark.parametrize(
    ("executor", "cases"),
    [
        pytest.param(ON_CUDA, UNIT_CASES[2:4], id="cuda-two"),
        pytest.param(ON_CUDA_TF32, UNIT_CASES_OF_F32[:2], id="cuda-tf32-two"),
        pytest.param(ON_METAL, (*UNIT_CASES[2:4], UNIT_CASES_OF_F32[0]), id="metal-three"),
        pytest.param(ON_CUDA, UNIT_CASES, id="cuda-all", marks=pytest.mark.slow),
        pytest.param(ON_CUDA_TF32, (*UNIT_CASES[::3], *UNIT_CASES_OF_F32), id="cuda-tf32-all", marks=pytest.mark.slow),
        pytest.param(ON_METAL, ON_METALS_UNITS, id="metal-all", marks=pytest.mark.slow),
    ],
)
def test_products_by_matrix_units_are_numpys(executor: Executor, cases: Sequence[Case]) -> None:
    for case in cases:
        assert unit_for(problem_of(case), executor.language, executor.machine(case.machine)) is not None, case
    check(executor, cases)


@pytest.mark.parametrize(
    "cases", [WARPGROUP_CASES[1:2], pytest.param(WARPGROUP_CASES, marks=pytest.mark.slow)], ids=["one", "all"]
)
def test_products_by_warpgroups_are_numpys(cases: Sequence[Case]) -> None:
    check(ON_CUDA_WGMMA, cases)


def check(executor: Executor, cases: Sequence[Case]) -> None:
    """Run cases, and hold them against NumPy."""
    problems = [problem_of(case) for case in cases]
    made = [
        print_product(p, executor.language, executor.machine(c.machine), scalars_of(executor.language))
        for p, c in zip(problems, cases, strict=True)
    ]
    programs = executor.programs(made)
    rng = np.random.default_rng(0)
    for case, functions in zip(cases, made, strict=True):
        a = (4 * rng.standard_normal((*case.batch, case.m, case.k))).astype(case.dtype.numpy)
        b = (4 * rng.standard_normal((*case.batch, case.k, case.n))).astype(case.dtype.numpy)
        if executor is ON_CUDA_TF32 and case.dtype is f32:  # what its units keep of f32, so that products are exact
            a, b = ((x.view(np.uint32) & 0xFFFFE000).view(np.float32) for x in (a, b))
        bias = rng.standard_normal(case.n).astype(np.float32)
        y = np.zeros((*case.batch, case.m, case.n), case.dtype.numpy)
        lhs = np.ascontiguousarray(a.swapaxes(-1, -2) if case.is_lhs_transposed else a)
        rhs = np.ascontiguousarray(b.swapaxes(-1, -2) if case.is_rhs_transposed else b)
        data = [x.reshape(-1).view(np.uint8) for x in (lhs, rhs, bias, y)]
        programs.run(functions, data)
        want = a.astype(np.float64) @ b.astype(np.float64)
        if case.has_epilogue:
            want = np.tanh(want + bias)
        # k products of size 16 and one rounding to what is stored.
        tolerance = 1e-5 if case.dtype is f32 else {f16: 2e-3, bf16: 2e-2}.get(case.dtype, 0.0)
        np.testing.assert_allclose(
            data[3].view(case.dtype.numpy).reshape(y.shape).astype(np.float64),
            want,
            rtol=tolerance,
            atol=10 * tolerance,
        )


def test_tiles_shrink_with_the_result_and_the_group() -> None:
    tiny = tiles_of(problem_of(Case(f32, (), 3, 500, 8)), Machine())
    assert (tiny.rows, tiny.columns) == (8, 64)
    for group in (32, 64, 128, 256):
        down, across = tiles_of(problem_of(CASES[0]), Machine(group=group)).threads
        assert down * across <= group


@pytest.mark.parametrize(
    ("dtype", "unit"),
    [(bf16, CUDA_UNIT), (bf16, METAL_UNIT), (f32, METAL_UNIT)],
    ids=["cuda-bf16", "metal-bf16", "metal-f32"],
)
def test_tiles_of_units_fit_into_a_group(dtype: DType, unit: MatrixUnit) -> None:
    large = problem_of(Case(dtype, (), 4096, 4096, 256))
    for group in (32, 64, 128, 256):
        for shared in (8 << 10, 16 << 10, 48 << 10):
            tiles = unit_tiles_of(large, evolve(ROOMY, group=group, shared_nbytes=shared), unit)
            assert tiles.subgroups * unit.threads <= group
            assert tiles.stages >= 2
            assert tiles.stages * tiles.stage_nbytes <= shared


def test_tiles_of_units_fill_a_device() -> None:
    large, small = (problem_of(Case(bf16, (), n, n, 256)) for n in (4096, 512))
    assert [(t.rows, t.columns) for t in (unit_tiles_of(p, ROOMY, CUDA_UNIT) for p in (large, small))] == [
        (128, 128),
        (64, 64),
    ]


def test_warpgroups_have_tiles_that_fill_a_device_and_room_for_two_groups() -> None:
    large, small, shallow = (problem_of(Case(bf16, (), n, n, k)) for n, k in ((4096, 512), (1024, 512), (4096, 64)))
    found = [warpgroup_tiles_of(p, ROOMY) for p in (large, small, shallow)]
    assert [(t.rows, t.stages) for t in found] == [(128, 3), (64, 4), (128, 2)]
    assert all(t.stages * t.stage_nbytes <= 96 << 10 for t in found)
    assert warpgroup_tiles_of(large, evolve(ROOMY, group=128)).rows == 64


@pytest.mark.parametrize(
    ("extents", "depth", "said"),
    [
        ((4096, 4096), 192, None),
        ((8, 1024, 384), 1536, None),
        ((4096, 4096), 128, "a depth of at least 192, not 128"),
        ((4096, 4096), 260, "multiples of 8, which are copied at once, not 260 and 4096"),
        ((4096, 4090), 256, "not 256 and 4090"),
        ((512, 512), 4096, "at least 128 tiles of 64 by 128, not 32"),
        ((128, 16, 4096), 256, "filled by half, not 16 by 4096"),
        ((0, 4096), 256, "at least 128 tiles of 64 by 128, not 0"),
    ],
)
def test_warpgroups_are_left_where_sizes_do_not_pay(extents: tuple[int, ...], depth: int, said: str | None) -> None:
    reason = refusal_of_sizes(extents, depth, ROOMY)
    assert reason is None if said is None else said in str(reason)


def test_warpgroups_multiply_factors_of_one_dtype_of_two_bytes() -> None:
    assert warpgroup_refusal(bf16, bf16, ROOMY) is None
    assert "both f16 or both bf16" in str(warpgroup_refusal(f16, bf16, ROOMY))
    assert "both f16 or both bf16" in str(warpgroup_refusal(f32, f32, ROOMY))
    assert "groups of 128 threads" in str(warpgroup_refusal(f16, f16, evolve(ROOMY, group=64)))
    assert "32 of them in step" in str(warpgroup_refusal(f16, f16, evolve(ROOMY, subgroup=64)))


@pytest.mark.parametrize(
    "lacking", [{"subgroup": None}, {"group": 16}, {"shared_nbytes": 1 << 10}, {"subgroup": 64}], ids=str
)
def test_units_are_left_where_a_machine_has_no_room_for_them(lacking: dict[str, Any]) -> None:
    problem = problem_of(Case(bf16, (), 64, 64, 64))
    assert unit_for(problem, CUDA, ROOMY) is CUDA_UNIT
    assert unit_for(problem, CUDA, evolve(ROOMY, **lacking)) is None
    assert unit_for(problem, HIP, ROOMY) is None
    exact = problem_of(Case(f32, (), 64, 64, 64))
    assert unit_for(exact, CUDA, ROOMY) is None
    assert unit_for(exact, METAL, ROOMY) is METAL_UNIT
    assert unit_for(exact, METAL, evolve(ROOMY, **lacking)) is None
