"""Fourier transforms by NumPy's names, which are the Python Array API's: `rlx.fft.rfft(x)`.

Every function works on arrays at once and in programs, and has derivatives. The implementations are in `rlx_core.ops.fourier`.
"""

from rlx_core.ops.fourier.frames import istft, stft
from rlx_core.ops.fourier.functions import (
    fft,
    fft2,
    fftfreq,
    fftn,
    fftshift,
    hfft,
    ifft,
    ifft2,
    ifftn,
    ifftshift,
    ihfft,
    irfft,
    irfft2,
    irfftn,
    rfft,
    rfft2,
    rfftfreq,
    rfftn,
)

__all__ = [
    "fft",
    "fft2",
    "fftfreq",
    "fftn",
    "fftshift",
    "hfft",
    "ifft",
    "ifft2",
    "ifftn",
    "ifftshift",
    "ihfft",
    "irfft",
    "irfft2",
    "irfftn",
    "istft",
    "rfft",
    "rfft2",
    "rfftfreq",
    "rfftn",
    "stft",
]
