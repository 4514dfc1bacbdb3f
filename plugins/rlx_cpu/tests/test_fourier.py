"""Transforms that are library calls, of lengths that are no powers of two: what runs, and that both ways into SciPy are one."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.ops.fourier.fourier import NORMS, Fft, Fourier, InverseRealFft, RealFft
from rlx_cpu.kernels import fourier

RNG = np.random.default_rng(4)


def calls() -> Iterator[tuple[int, Fourier, np.ndarray]]:
    z = RNG.standard_normal((3, 6, 5)) + 1j * RNG.standard_normal((3, 6, 5))
    for norm in NORMS:
        for axes in ((2,), (0, 1), (2, 0)):
            yield 0, Fft(axes, norm=norm), z
            yield 0, Fft(axes, inverse=True, norm=norm), z.astype(np.complex64)
            yield 1, RealFft(axes, norm=norm), z.real.astype(np.float32)
            yield 2, InverseRealFft(2 * z.shape[axes[-1]] - 1, axes, norm), z


def test_both_ways_into_scipy_are_one() -> None:
    direct = fourier._into_buffers()
    assert direct is not None, "SciPy's pocketfft takes other parameters now: every transform costs a copy"
    for kind, op, x in calls():
        for operand in (x, np.asfortranarray(x)[:, ::-1]):
            shape = np.shape(op.reference(operand))  # type: ignore[misc]
            dtype = {0: operand.dtype, 1: np.result_type(operand, np.complex64), 2: operand.real.dtype}[kind]
            results = [np.empty(shape, dtype) for _ in range(2)]
            for way, out in zip((direct, fourier._PUBLIC), results, strict=True):
                way[kind](op, operand, out)
            np.testing.assert_array_equal(*results)
            np.testing.assert_allclose(results[0], op.reference(operand), atol=1e-5)  # type: ignore[misc]


@pytest.mark.parametrize("function", ["fft", "rfft", "irfft"])
def test_a_transform_is_a_library_call(function: str) -> None:
    compiled = rlx.compile(getattr(rlx.fft, function), rlx.spec("f32[10]"), target="cpu")
    assert "pocketfft" in str(compiled.report)
    x = np.arange(10, dtype=np.float32)
    np.testing.assert_allclose(compiled(x), getattr(np.fft, function)(x), atol=1e-4)
