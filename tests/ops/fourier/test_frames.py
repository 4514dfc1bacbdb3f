"""Short-time transforms beside SciPy's, and back again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.errors import ConfigError, DtypeError, RlxError, ShapeError

signal = pytest.importorskip("scipy.signal", reason="it compares with SciPy, which rlx-cpu installs")

RNG = np.random.default_rng(5)
HANN = signal.get_window("hann", 16)
WAVE = RNG.standard_normal((2, 100))


@pytest.mark.parametrize("hop", [3, 4, 16])
def test_frames_are_scipys(hop: int) -> None:
    transform = signal.ShortTimeFFT(HANN, hop, 1.0, mfft=20, phase_shift=None)
    count = (100 - 16) // hop + 1
    # SciPy centres frames on multiples of the hop: the one that begins at 0 has its middle at 8.
    wanted = np.stack(
        [np.stack([np.fft.rfft(HANN * x[k * hop : k * hop + 16], 20) for k in range(count)]) for x in WAVE]
    )
    np.testing.assert_allclose(rlx.fft.stft(WAVE, 16, hop, HANN, n=20), wanted, atol=1e-12)
    if 8 % hop == 0:
        theirs = transform.stft(WAVE, p0=8 // hop, p1=8 // hop + count)
        np.testing.assert_allclose(np.swapaxes(theirs, -1, -2), wanted, atol=1e-12)


@pytest.mark.parametrize("window", [None, HANN, signal.get_window("hamming", 16)])
def test_the_inverse_gives_the_signal_back(window: np.ndarray | None) -> None:
    def back(x: Any) -> Any:
        return rlx.fft.istft(rlx.fft.stft(x, 16, 4, window), 16, 4, window, length=105)

    for run in (back, rlx.jit(back)):
        found = np.asarray(run(WAVE))
        # A Hann window begins with 0, so nothing is known of the first sample.
        np.testing.assert_allclose(found[:, 1:100], WAVE[:, 1:], atol=1e-10)
        np.testing.assert_allclose(found[:, 0], 0 if window is HANN else WAVE[:, 0], atol=1e-10)
        assert not found[:, 100:].any()


def test_a_window_takes_the_dtype_of_the_signal() -> None:
    z = rlx.fft.stft(WAVE.astype(np.float32), 16, 4, HANN)
    assert (z.dtype, rlx.fft.istft(z, 16, 4, HANN, length=50).shape) == (np.complex64, (2, 50))


@pytest.mark.medium
def test_both_have_derivatives_in_the_signal_and_the_window() -> None:
    """Compared with differences."""

    def loss(x: Any, w: Any) -> Any:
        z = rlx.fft.stft(x, 16, 4, w)
        return rlx.sum(rlx.complex_norm_sq(z)) + rlx.sum(rlx.square(rlx.fft.istft(z * z, 16, 4, w)))

    x, w = WAVE[0, :40], signal.get_window("hamming", 16)
    found = rlx.jit(rlx.grad(loss, argnums=(0, 1)))(x, w)
    for i, gradient in enumerate(found):
        for j in (3, 11):
            step = np.zeros_like((x, w)[i])
            step[j] = 1e-6
            moved = [[a + s * step if k == i else a for k, a in enumerate((x, w))] for s in (1, -1)]
            difference = (loss(*moved[0]) - loss(*moved[1])) / 2e-6
            np.testing.assert_allclose(gradient[j], difference, rtol=1e-6)


def test_a_batch_of_signals_of_unknown_length() -> None:
    compiled = rlx.compile(lambda x: rlx.fft.stft(x, 16, 4, HANN), rlx.spec("f64[b, n]"), target="cpu")
    np.testing.assert_allclose(compiled(WAVE), rlx.fft.stft(WAVE, 16, 4, HANN), atol=1e-12)
    batched = rlx.vmap(lambda x: rlx.fft.stft(x, 16, 4, HANN))(WAVE)
    np.testing.assert_allclose(batched, rlx.fft.stft(WAVE, 16, 4, HANN), atol=1e-12)


REFUSED: dict[str, tuple[Callable[[], Any], type[RlxError], str]] = {
    "a short signal": (lambda: rlx.fft.stft(WAVE, 101, 4), ShapeError, "100 samples has no frame of 101"),
    "a complex signal": (lambda: rlx.fft.stft(WAVE * 1j, 16, 4), DtypeError, "not c128"),
    "a hop of 0": (lambda: rlx.fft.stft(WAVE, 16, 0), ConfigError, "stft: hop must be an integer of at least 1"),
    "a short transform": (lambda: rlx.fft.stft(WAVE, 16, 4, n=8), ConfigError, "n must be an integer of at least 16"),
    "a window": (lambda: rlx.fft.stft(WAVE, 16, 4, HANN[1:]), ShapeError, "must be [16], not [15]"),
    "gaps": (
        lambda: rlx.fft.istft(np.ones((3, 9)), 16, 20),
        ConfigError,
        "4 of 20 samples between frames have no weight",
    ),
    "frequencies": (
        lambda: rlx.fft.istft(np.ones((3, 9)), 15, 4),
        ShapeError,
        "frames of 15 have 8 frequencies, not 9",
    ),
    "one frame": (lambda: rlx.fft.istft(np.ones(9), 16, 4), ShapeError, "2 axes or more"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_has_no_frames_is_refused(what: str) -> None:
    call, kind, says = REFUSED[what]
    with pytest.raises(kind) as refused:
        call()
    assert says in str(refused.value)
