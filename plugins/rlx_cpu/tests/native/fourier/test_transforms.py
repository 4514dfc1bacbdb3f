"""Transforms of powers of two: against NumPy in float64, for every length and vector, in place and by any number of threads."""

from __future__ import annotations

import numpy as np
import pytest
from harness import EVERY_WIDTH, kernel

import rlx_core as rlx
from rlx_core.ops.fourier.fourier import NORMS, Fft
from rlx_cpu.native.fourier.transforms import LARGEST, SMALLEST, emit_transform
from rlx_cpu.native.llvm.isa import Isa, available

LENGTHS = [1 << k for k in range(SMALLEST.bit_length() - 1, 13)]


def numbers(*shape: int, dtype: str = "c8") -> np.ndarray:
    rng = np.random.default_rng(6)
    found: np.ndarray = (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(dtype)
    return found


def expect_close(found: np.ndarray, op: Fft, x: np.ndarray) -> None:
    """Roundings of each of log₂ n additions are half an eps of the norm at most, and of roots and products as much again."""
    wanted = op.reference(x.astype("c16"))
    most = np.finfo(x.dtype).eps * np.log2(x.shape[-1])
    assert np.linalg.norm(found - wanted) <= most * np.linalg.norm(wanted)


@EVERY_WIDTH
@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("dtype", ["c8", "c16"])
def test_every_length_is_the_transform(dtype: str, n: int, isa: Isa) -> None:
    x = numbers(3, n, dtype=dtype)
    for op in (Fft(), Fft((1,), inverse=True)):
        made = kernel(emit_transform, op, [x], isa)
        (found,) = made(x)
        expect_close(found, op, x)
        for again in (made(x, threads=2), made(x, in_place={0: [0]})):
            np.testing.assert_array_equal(again[0], found)


@pytest.mark.parametrize("norm", NORMS)
def test_norms_are_factors(norm: str) -> None:
    x = numbers(32)
    for inverse in (False, True):
        op = Fft((-1,), inverse=inverse, norm=norm)  # type: ignore[arg-type]
        expect_close(kernel(emit_transform, op, [x], available()[0])(x)[0], op, x)


def test_the_longest_transform_and_its_inverse_give_the_numbers_back() -> None:
    x = numbers(LARGEST)
    there = rlx.jit(rlx.fft.fft)
    expect_close(there(x), Fft(), x)
    assert "native_transform" in str(there.report)
    np.testing.assert_allclose(rlx.jit(rlx.fft.ifft)(there(x)), x, atol=1e-5)


def test_what_is_spread_or_on_another_axis_is_transformed_too() -> None:
    x = numbers(16, 64)
    for found, wanted in (
        (rlx.jit(lambda x: rlx.fft.fft(x[:, ::2])), np.fft.fft(x[:, ::2])),
        (rlx.jit(lambda x: rlx.fft.fft(x, axis=0)), np.fft.fft(x, axis=0)),
        (rlx.jit(rlx.fft.fft2), np.fft.fft2(x)),
    ):
        np.testing.assert_allclose(found(x), wanted, atol=1e-4)
