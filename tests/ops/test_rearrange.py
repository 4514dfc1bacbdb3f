"""Rearrangements of axes of unknown size."""

from __future__ import annotations

import numpy as np
import pytest

import rlx_core as rlx


@pytest.mark.medium
@pytest.mark.parametrize("shift", [1, -1, 2, -2, 5])
def test_roll_of_an_unknown_size_takes_every_size(shift: int) -> None:
    def gradient(x: rlx.Array) -> rlx.Array:
        return rlx.grad(lambda x: rlx.sum(rlx.roll(x, shift) * rlx.arange(x.shape[0])))(x)

    rolled = rlx.compile(lambda x: rlx.roll(x, shift), rlx.spec("f32[n]"))
    differentiated = rlx.compile(gradient, rlx.spec("f32[n]"))
    for size in range(5):
        x = np.arange(size, dtype=np.float32)
        np.testing.assert_array_equal(rolled(x), np.roll(x, shift))
        np.testing.assert_array_equal(differentiated(x), np.roll(x, -shift))
        np.testing.assert_array_equal(rlx.jit(gradient)(x), np.roll(x, -shift))
