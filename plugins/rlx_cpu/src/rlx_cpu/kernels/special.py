"""SciPy's special functions, imported by the first kernel that calls one: it takes 80 ms, and most programs call none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable


def _lazy(name: str) -> Callable[..., np.ndarray]:
    def call(*arrays: Any, **options: Any) -> np.ndarray:
        from scipy import special

        result: np.ndarray = vars(special)[name](*arrays, **options)
        return result

    return call


erf = _lazy("erf")
erfc = _lazy("erfc")
expit = _lazy("expit")
