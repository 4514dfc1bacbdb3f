"""Fourier transforms by SciPy's pocketfft: library calls in the operand's precision, written directly into the planned buffer.

SciPy's public functions allocate their results. The private function that they call accepts an output buffer, which saves a
copy of the result (5 to 10 % of a transform). Because it is private, it is tested once; if it behaves differently, the public
functions are used.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from rlx_core.ops.fourier.fourier import Fft, InverseRealFft, RealFft
from rlx_cpu.kernels.table import FLOAT, LIBRARY, kernels

COMPLEX = "c64 c128"

Transform = Callable[[Any, np.ndarray, np.ndarray], None]
"""Writes the transform described by an op, of an operand, into a buffer."""


@kernels.register(Fft, dtypes=COMPLEX, in_place=(0,), accepts_strides=True, tier=LIBRARY, name="pocketfft")
def complex_to_complex(op: Any, x: np.ndarray, *, out: np.ndarray, workspace: Any) -> None:
    """All listed axes in one call; the first pass reads the operand, the others the result."""
    transforms()[0](op, x, out)


@kernels.register(RealFft, dtypes=FLOAT, accepts_strides=True, tier=LIBRARY, name="pocketfft_real")
def real_to_complex(op: Any, x: np.ndarray, *, out: np.ndarray, workspace: Any) -> None:
    """Half a spectrum, at half the cost."""
    transforms()[1](op, x, out)


@kernels.register(InverseRealFft, dtypes=COMPLEX, accepts_strides=True, tier=LIBRARY, name="pocketfft_inverse_real")
def complex_to_real(op: Any, z: np.ndarray, *, out: np.ndarray, workspace: Any) -> None:
    """Real numbers from half a spectrum, at half the cost."""
    transforms()[2](op, z, out)


@cache
def transforms() -> tuple[Transform, Transform, Transform]:
    """Complex to complex, real to complex, complex to real; SciPy is imported here, because few programs transform anything."""
    private = _into_buffers()
    return _PUBLIC if private is None else private


def _into_buffers() -> tuple[Transform, Transform, Transform] | None:
    """pocketfft's own functions; `None` where SciPy has them no more, or with other parameters."""
    try:
        from scipy.fft._pocketfft import pypocketfft as library  # type: ignore[import-not-found]

        x, z = np.ones(2), np.empty(2, np.complex128)
        library.r2c(x, (0,), True, 0, z, 1)
        library.c2c(z, (0,), False, 2, z, 1)
        library.c2r(z, (0,), 2, False, 2, x, 1)
    except (ImportError, AttributeError, TypeError):
        return None
    scale = {False: {"backward": 0, "ortho": 1, "forward": 2}, True: {"backward": 2, "ortho": 1, "forward": 0}}

    def c2c(op: Any, x: np.ndarray, out: np.ndarray) -> None:
        library.c2c(x, op.axes, not op.inverse, scale[op.inverse][op.norm], out, 1)

    def r2c(op: Any, x: np.ndarray, out: np.ndarray) -> None:
        library.r2c(x, op.axes, True, scale[False][op.norm], out, 1)

    def c2r(op: Any, z: np.ndarray, out: np.ndarray) -> None:
        library.c2r(z, op.axes, out.shape[op.axes[-1]], False, scale[True][op.norm], out, 1)

    return c2c, r2c, c2r


def _c2c(op: Any, x: np.ndarray, out: np.ndarray) -> None:
    import scipy.fft

    transform = scipy.fft.ifftn if op.inverse else scipy.fft.fftn
    np.copyto(out, transform(x, axes=op.axes, norm=op.norm))


def _r2c(op: Any, x: np.ndarray, out: np.ndarray) -> None:
    import scipy.fft

    np.copyto(out, scipy.fft.rfftn(x, axes=op.axes, norm=op.norm))


def _c2r(op: Any, z: np.ndarray, out: np.ndarray) -> None:
    import scipy.fft

    sizes = [out.shape[axis] for axis in op.axes]
    np.copyto(out, scipy.fft.irfftn(z, s=sizes, axes=op.axes, norm=op.norm))


_PUBLIC: tuple[Transform, Transform, Transform] = (_c2c, _r2c, _c2r)
