"""Ways back through a stride with channels last: whole numbers, so that every order of sums is exact."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from rlx_core.ops.convolution.channels_last import backward_input
from rlx_core.ops.convolution.geometry import Geometry

CASES = [
    (size, kernel, stride, lo)
    for size, kernel, stride, lo in product((5, 7, 8), (1, 2, 3, 5), (2, 3, 4), (0, 1, 2))
    if lo < kernel and size + lo + 1 >= kernel
]
"""Phases that meet no element lie in front, behind and between those that do, and phases are cut off at the end."""


@pytest.mark.parametrize(("size", "kernel", "stride", "lo"), CASES)
def test_each_cell_gets_what_it_gave(size: int, kernel: int, stride: int, lo: int) -> None:
    rng = np.random.default_rng(0)
    count = (size + lo + 1 - kernel) // stride + 1
    dy, w = (rng.integers(-3, 4, s).astype(float) for s in ((2, count, 3, 4), (4, 3, kernel, 3)))
    wanted = np.zeros((2, lo + size + max(kernel, 1) * stride, 8, 3))
    for o, p, i, j in product(range(count), range(3), range(kernel), range(3)):
        wanted[:, o * stride + i, p * 2 + j] += dy[:, o, p] @ w[:, :, i, j]
    geometry = Geometry((kernel, 3), (stride, 2), (1, 1), (lo, 1), (1, 1))
    found = backward_input(dy, w, geometry, (size, 6))  # type: ignore[arg-type]  # arrays are evaluated at once
    np.testing.assert_array_equal(found, wanted[:, lo : lo + size, 1:7])
