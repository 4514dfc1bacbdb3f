"""Circular and hyperbolic functions and their inverses, on principal branches.

Derivatives that would square a large x are written with `hypot` or as two roots, so that they are correct where x² overflows,
which in f16 is at 256.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from rlx_core.ir.apply import OpFunction
from rlx_core.ir.dtypes import INEXACT
from rlx_core.ir.graph import Value
from rlx_core.ops.activation import rsqrt
from rlx_core.ops.arithmetic import hypot
from rlx_core.ops.kinds import Elementwise, Ratio, elementwise

sin = elementwise("Sin", np.sin, lambda x, y: cos(x), doc="sin x.", accepts=INEXACT)
cos: OpFunction[Elementwise] = elementwise("Cos", np.cos, lambda x, y: -sin(x), doc="cos x.", accepts=INEXACT)
tan = elementwise("Tan", np.tan, lambda x, y: 1 + y * y, doc="tan x.", accepts=INEXACT, low=-1.0, high=1.0)
sinh = elementwise("Sinh", np.sinh, lambda x, y: cosh(x), doc="sinh x.", accepts=INEXACT)
cosh: OpFunction[Elementwise] = elementwise("Cosh", np.cosh, lambda x, y: sinh(x), doc="cosh x.", accepts=INEXACT)


def _area_slope(x: Value, y: Value) -> Ratio | Value:
    # 1/√(1 + z²) on the branch of arsinh is a product of two roots; for a real x, `hypot` cannot overflow.
    return rsqrt(1 - 1j * x) * rsqrt(1 + 1j * x) if x.dtype.is_complex else Ratio(1, hypot(x, 1))


_INSIDE: Final[Mapping[str, Any]] = {"accepts": INEXACT, "low": -0.9, "high": 0.9}

asin = elementwise(
    "Asin", np.arcsin, lambda x, y: rsqrt(1 - x) * rsqrt(1 + x), doc="arcsin x, real on [-1, 1].", **_INSIDE
)
acos = elementwise(
    "Acos", np.arccos, lambda x, y: -(rsqrt(1 - x) * rsqrt(1 + x)), doc="arccos x, real on [-1, 1].", **_INSIDE
)
atan = elementwise("Atan", np.arctan, lambda x, y: Ratio(1, 1 + x * x), doc="arctan x.", **_INSIDE)
asinh = elementwise("Asinh", np.arcsinh, _area_slope, doc="arsinh x.", **_INSIDE)
acosh = elementwise(
    "Acosh",
    np.arccosh,
    lambda x, y: rsqrt(x - 1) * rsqrt(x + 1),
    doc="arcosh x, real on [1, ∞).",
    accepts=INEXACT,
    low=1.2,
    high=4.0,
)
atanh = elementwise(
    "Atanh",
    np.arctanh,
    lambda x, y: Ratio(1, (1 - x) * (1 + x)),
    doc="artanh x, real on [-1, 1].",
    accepts=INEXACT,
    low=-0.8,
    high=0.8,
)
