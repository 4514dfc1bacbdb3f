"""`rlx.fft` beside NumPy for every size up to 33, at once and compiled; what is refused; what derivatives and symbols do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.errors import AxisError, ConfigError, DtypeError, RlxError, ShapeError

RNG = np.random.default_rng(33)
NORMS = (None, "backward", "ortho", "forward")
LINES = ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
REAL = {"rfft", "ihfft", "rfftn", "rfft2"}


def drawn(*shape: int, is_complex: bool = True) -> np.ndarray:
    x = RNG.standard_normal(shape)
    return x + 1j * RNG.standard_normal(shape) if is_complex else x


def named(function: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    return getattr(rlx.fft, function), getattr(np.fft, function)


def same(found: Any, wanted: np.ndarray) -> None:
    found = np.asarray(found)
    assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
    np.testing.assert_allclose(found, wanted, atol=1e-12)


@pytest.mark.parametrize("function", LINES)
def test_every_length_is_numpys(function: str) -> None:
    ours, theirs = named(function)
    for size in range(1, 34):
        x = drawn(2, size, is_complex=function not in REAL)
        for i, n in enumerate((None, max(1, size - 2), size + 3)):
            if not (n is None and size == 1 and function in ("irfft", "hfft")):
                same(ours(x, n, 1, NORMS[(size + i) % 4]), theirs(x, n, 1, NORMS[(size + i) % 4]))


@pytest.mark.parametrize("function", LINES)
def test_a_compiled_transform_is_numpys(function: str) -> None:
    ours, theirs = named(function)
    for size, axis, norm in ((8, 0, "ortho"), (9, -1, "backward"), (67, 1, "forward")):
        x = drawn(size, size, is_complex=function not in REAL)
        same(rlx.jit(lambda x, axis=axis, norm=norm: ours(x, axis=axis, norm=norm))(x), theirs(x, axis=axis, norm=norm))


@pytest.mark.parametrize("function", ["fftn", "ifftn", "rfftn", "irfftn", "fft2", "ifft2", "rfft2", "irfft2"])
def test_several_axes_are_numpys(function: str) -> None:
    ours, theirs = named(function)
    x = drawn(3, 4, 5, is_complex=function not in REAL)
    for s, axes in ((None, (0, 1)), ((2, 6), (2, 0)), ((7, -1), (-2, -1)), (None, (2, 0, 1)), (None, (1,))):
        if s is not None and -1 in s and function.startswith("irfft"):
            continue  # NumPy takes -1 there for the size that the spectrum has
        for norm in NORMS:
            same(ours(x, s, axes, norm), theirs(x, s, axes, norm))
    same(rlx.jit(ours)(x), theirs(x))


def test_single_precision_stays_single() -> None:
    x = drawn(100).astype(np.complex64)
    for transform in (rlx.fft.fft, rlx.jit(rlx.fft.fft)):
        assert np.asarray(transform(x)).dtype == np.complex64
        np.testing.assert_allclose(transform(x), np.fft.fft(x.astype(complex)), rtol=1e-5, atol=1e-5)
    assert rlx.fft.rfft(np.ones(3, np.float16)).dtype == rlx.fft.rfft(np.ones(3, np.int16)).dtype == np.complex64
    assert rlx.fft.irfft(np.ones(3, np.complex64)).dtype == np.float32


def test_frequencies_and_shifts_are_numpys() -> None:
    x = drawn(4, 5)
    for n in range(1, 34):
        np.testing.assert_allclose(rlx.fft.fftfreq(n, 0.3, dtype="f64"), np.fft.fftfreq(n, 0.3))
        np.testing.assert_allclose(rlx.fft.rfftfreq(n, 0.3, dtype="f64"), np.fft.rfftfreq(n, 0.3))
    for axes in (None, 1, (0,), (-1, 0)):
        np.testing.assert_array_equal(rlx.fft.fftshift(x, axes), np.fft.fftshift(x, axes))
        np.testing.assert_array_equal(rlx.fft.ifftshift(x, axes), np.fft.ifftshift(x, axes))
    assert rlx.fft.fftfreq(8).dtype == np.float32


def test_symbols_are_sizes() -> None:
    def there_and_back(x: Any) -> Any:
        n = x.shape[-1]
        spectrum = rlx.fft.rfft(x, n=2 * n)
        return rlx.fft.irfft(spectrum, n=2 * n)[:n] + rlx.fft.fftfreq(n, dtype="f64"), rlx.fft.fftshift(x)

    compiled = rlx.compile(there_and_back, rlx.spec("f64[n]"), target="cpu")
    for n in (1, 6, 7):
        x = drawn(n, is_complex=False)
        back, turned = compiled(x)
        np.testing.assert_allclose(back, x + np.fft.fftfreq(n), atol=1e-12)
        np.testing.assert_array_equal(turned, np.fft.fftshift(x))


def test_a_power_spectrum_has_its_gradient() -> None:
    """Parseval: the gradient of Σ|y|² is 2n·x."""
    x = drawn(12, is_complex=False)

    def power(x: Any) -> Any:
        return rlx.sum(rlx.complex_norm_sq(rlx.fft.fft(x)))

    np.testing.assert_allclose(rlx.grad(power)(x), 24 * x)
    np.testing.assert_allclose(rlx.hessian(power)(x), 24 * np.eye(12), atol=1e-12)
    np.testing.assert_allclose(rlx.vmap(rlx.grad(power))(np.stack([x, -x])), [24 * x, -24 * x])


REFUSED: dict[str, tuple[Callable[[], Any], type[RlxError], str]] = {
    "an axis twice": (
        lambda: rlx.fft.fftn(np.ones((2, 3)), axes=(1, -1)),
        AxisError,
        "fftn: axes [1, 1] name one axis",
    ),
    "an axis outside": (lambda: rlx.fft.rfft(np.ones(3), axis=1), AxisError, "axis 1 is outside"),
    "no axis": (lambda: rlx.fft.fftn(np.ones(())), AxisError, "fftn: there is no axis"),
    "a size of 0": (lambda: rlx.fft.fft(np.ones(3), 0), ShapeError, "fft: 0 elements"),
    "a broken size": (lambda: rlx.fft.fft(np.ones(3), 1.5), ShapeError, "not 1.5"),  # type: ignore[arg-type]
    "nothing": (lambda: rlx.fft.fft(np.ones((2, 0))), ShapeError, "axis 1 has 0 elements"),
    "nothing real": (lambda: rlx.fft.irfft(np.ones(1)), ShapeError, "pass n=1"),
    "complex numbers": (lambda: rlx.fft.rfft(np.ones(3, complex)), DtypeError, "rfft: takes real numbers, not c128"),
    "a norm": (lambda: rlx.fft.fft(np.ones(3), norm="unit"), ConfigError, "fft: norm must be"),  # type: ignore[arg-type]
    "sizes for axes": (lambda: rlx.fft.fftn(np.ones((2, 3)), (2,), (0, 1)), ConfigError, "1 sizes for 2 axes"),
    "too many sizes": (lambda: rlx.fft.fftn(np.ones(3), (2, 2)), AxisError, "2 sizes for 1 axes"),
    "no samples": (lambda: rlx.fft.fftfreq(0), ShapeError, "fftfreq: n must be at least 1, not 0"),
    "no distance": (lambda: rlx.fft.rfftfreq(4, 0.0), ConfigError, "rfftfreq: samples at distance 0"),
    "integers": (lambda: rlx.fft.fftfreq(4, dtype="i32"), DtypeError, "fftfreq: frequencies are floats"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_transformed_is_refused(what: str) -> None:
    call, kind, says = REFUSED[what]
    with pytest.raises(kind) as refused:
        call()
    assert says in str(refused.value)
