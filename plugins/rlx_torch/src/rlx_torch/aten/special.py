"""Special functions, by `rlx.special`; torch's decompositions lead to its `prims` for most of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import rlx_core as rlx
from rlx_torch.aten.elementwise import of_floats
from rlx_torch.aten.promotion import meet, met_floating
from rlx_torch.aten.table import aten, rows

special = rlx.special


def _two(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda a, b: function(*met_floating(a, b))


rows(
    {
        "prims::ndtri special_ndtri": of_floats(special.ndtri),
        "special_log_ndtr": of_floats(special.log_ndtr),
        "prims::erfcx special_erfcx": of_floats(special.erfcx),
        "prims::bessel_i0 special_i0 special_modified_bessel_i0": of_floats(special.i0),
        "prims::bessel_i0e special_i0e": of_floats(special.i0e),
        "prims::bessel_i1 special_i1 special_modified_bessel_i1": of_floats(special.i1),
        "prims::bessel_i1e special_i1e": of_floats(special.i1e),
        "prims::spherical_bessel_j0 special_spherical_bessel_j0": of_floats(lambda x: rlx.sinc(x * (1 / math.pi))),
        "prims::zeta special_zeta": _two(special.zeta),
        "prims::igamma igamma": _two(special.gammainc),
        "prims::igammac igammac": _two(special.gammaincc),
        "xlogy.Tensor xlogy.Scalar_Other xlogy.Scalar_Self": _two(special.xlogy),
        "special_xlog1py special_xlog1py.other_scalar special_xlog1py.self_scalar": _two(special.xlog1py),
    }
)


@aten("gcd", "prims::gcd")
def gcd(a: Any, b: Any) -> Any:
    """The greatest common divisor by Euclid's algorithm, for all elements until the last is done."""
    a, b = rlx.broadcast_arrays(*(rlx.abs(v) for v in meet(a, b)))

    def step(pair: Any) -> Any:
        a, b = pair
        is_done = b == 0
        return rlx.where(is_done, a, b), rlx.where(is_done, 0, rlx.remainder(a, rlx.where(is_done, 1, b)))

    return rlx.while_loop(lambda pair: rlx.any(pair[1] != 0), step, (a, b))[0]
