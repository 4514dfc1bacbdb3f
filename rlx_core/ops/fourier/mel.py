"""The logarithm of a spectrum in bands (log-mel): the usual input of speech models."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rlx_core.errors import ConfigError, DtypeError, ShapeError
from rlx_core.hints.keywords import checked_call
from rlx_core.ir.dtypes import dtype, f32, promote
from rlx_core.ops.activation import log
from rlx_core.ops.arguments import number
from rlx_core.ops.array_shapes import matrix_transpose
from rlx_core.ops.comparison import greater
from rlx_core.ops.conversion import cast
from rlx_core.ops.linalg import matmul, operand
from rlx_core.ops.selection import where

if TYPE_CHECKING:
    from rlx_core.typing import Array, ArrayLike

__all__ = ["log_mel"]


@checked_call
def log_mel(spectrum: ArrayLike, filterbank: ArrayLike, *, floor: float = 1e-10, base: float = math.e) -> Array:
    """`log(max(spectrum · filterbankᵀ, floor))`, whose derivative is 0 where the floor applies.

    Args:
        spectrum: f[.., frames, bins], of powers or magnitudes: `rlx.abs(rlx.fft.stft(..)) ** 2`.
        filterbank: f[bands, bins]: the weight of each bin in each band.
        floor: The minimum value of a band.
        base: The base of the logarithm.

    Returns:
        f[.., frames, bands]

    Raises:
        ShapeError: The filterbank has another number of bins than the spectrum.
        DtypeError: One of them is complex.
        ConfigError: The floor is not above 0, or the base not above 1.

    >>> log_mel([[1.0, 3.0, 0.0]], [[1.0, 0.0, 0.0], [0.0, 1.0, 1.0], [0.0, 0.0, 1.0]], floor=0.1, base=10.0).round(3).tolist()
    [[0.0, 0.477, -1.0]]
    """
    powers, bands = operand(spectrum), operand(filterbank)
    floor, base = number("log_mel: floor", floor), number("log_mel: base", base)
    if not floor > 0 or not base > 1:
        raise ConfigError(f"log_mel: floor must be above 0 and base above 1, not {floor!r} and {base!r}")
    power_dtype = dtype(powers.dtype)
    if power_dtype.is_complex or dtype(bands.dtype).is_complex:
        raise DtypeError(
            "log_mel: spectrum and filterbank must be real, not complex", hint="rlx.abs(spectrum) ** 2 has the powers"
        )
    if not len(powers.shape) or len(bands.shape) != 2 or powers.shape[-1] != bands.shape[-1]:
        raise ShapeError(
            f"log_mel: filterbank must be [bands, bins] with the bins of the spectrum {list(powers.shape)}, "
            f"not {list(bands.shape)}"
        )
    wide = promote(power_dtype, f32)  # the floor underflows in f16
    energy = matmul(cast(powers, to=wide), cast(matrix_transpose(bands), to=wide))
    level = log(where(greater(energy, floor), energy, floor)) / math.log(base)
    return cast(level, to=power_dtype if power_dtype.is_float else wide)
