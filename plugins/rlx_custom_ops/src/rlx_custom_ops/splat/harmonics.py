"""Colours that depend on the direction one looks from: real spherical harmonics of the first three bands."""

from __future__ import annotations

from typing import Any, Final

from rlx_core.ops import expand_dims, stack, sum

__rlx_library__ = True

BAND_0: Final = 0.28209479177387814  # 1 / (2 √π)
BAND_1: Final = 0.4886025119029199  # √(3 / 4π)
BAND_2: Final = (1.0925484305920792, 0.31539156525252005, 0.5462742152960396)
BAND_3: Final = (0.5900435899266435, 2.890611442640554, 0.4570457994644658, 0.3731763325901154, 1.445305721320277)


def directional(directions: Any, sh: Any) -> Any:
    """Return the contribution of the coefficients [N, c, 3] to the colours [N, 3] seen along unit vectors [N, 3].

    Signs and order are those of the files that scenes are kept in, of order (band, -band .. band) with the Condon-Shortley phase.
    """
    x, y, z = (directions[:, i] for i in range(3))
    basis = [-BAND_1 * y, BAND_1 * z, -BAND_1 * x]
    count = sh.shape[1]
    if count >= 8:
        a, b, c = BAND_2
        basis += [a * x * y, -a * y * z, b * (2.0 * z * z - x * x - y * y), -a * x * z, c * (x * x - y * y)]
    if count >= 15:
        a, b, c, d, e = BAND_3
        flat = 4.0 * z * z - x * x - y * y
        basis += [
            -a * y * (3.0 * x * x - y * y),
            b * x * y * z,
            -c * y * flat,
            d * z * (2.0 * z * z - 3.0 * x * x - 3.0 * y * y),
            -c * x * flat,
            e * z * (x * x - y * y),
            -a * x * (x * x - 3.0 * y * y),
        ]
    return sum(expand_dims(stack(basis, axis=1), -1) * sh, axis=1)
