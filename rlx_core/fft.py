"""Fourier transforms by NumPy's names, which are the Python Array API's: `rlx.fft.rfft(x)`.

Every function works on arrays at once and in programs, and has derivatives. The implementations are in `rlx_core.ops.fourier`.
"""

from rlx_core.ops.fourier import frames, functions
from rlx_core.ops.fourier.frames import *
from rlx_core.ops.fourier.functions import *

__all__ = [*frames.__all__, *functions.__all__]
