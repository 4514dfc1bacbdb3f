"""Fourier transforms by NumPy's names, which are the Python Array API's: `rlx.fft.rfft(x)`.

Every function works on arrays at once and in programs, and has derivatives. The implementations are in `rlx_core.ops.fourier`.
"""

import typing

from rlx_core import public
from rlx_core.ops.fourier.frames import *
from rlx_core.ops.fourier.functions import *

if not typing.TYPE_CHECKING:  # type checkers read the imports
    __all__, __getattr__ = public.reexports(__name__)
