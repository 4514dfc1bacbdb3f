"""Systems with triangles."""

from __future__ import annotations

from typing import Any

import numpy as np
from cupy import like


def _substituted(a: np.ndarray, b: np.ndarray, trans: int, lower: bool, unit_diagonal: bool) -> np.ndarray:
    triangle = np.tril(a) if lower else np.triu(a)
    if unit_diagonal:
        triangle = np.where(np.eye(a.shape[-1], dtype=bool), 1, triangle).astype(a.dtype)
    return np.linalg.solve(triangle.swapaxes(-1, -2) if trans else triangle, b)


def solve_triangular(a: Any, b: Any, trans: int = 0, lower: bool = False, unit_diagonal: bool = False) -> Any:
    return like(lambda a, b: _substituted(a, b, trans, lower, unit_diagonal))(a, b)
