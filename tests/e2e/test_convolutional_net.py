"""A small residual network with batch norm, pools and every kind of convolution: forward and gradient in native code."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core import nn

RNG = np.random.default_rng(12)
WEIGHTS = {
    "stem": RNG.normal(size=(8, 3, 3, 3)),
    "inner": RNG.normal(size=(8, 8, 3, 3)) / 4,
    "deep": RNG.normal(size=(8, 1, 3, 3)) / 2,
    "up": RNG.normal(size=(8, 8, 3, 3)) / 4,
    "gamma": RNG.uniform(0.5, 1.5, 8),
    "beta": RNG.normal(size=8),
    "out": RNG.normal(size=(8, 5)),
}
X, LABELS = RNG.normal(size=(3, 3, 12, 10)), np.array([0, 3, 4])


def loss(w: Any, x: Any) -> Any:
    start = (np.zeros(8, np.float32), np.ones(8, np.float32))
    h, _, _ = nn.batch_norm(nn.conv(x, w["stem"], padding="same"), *start, weight=w["gamma"], bias=w["beta"])
    h = nn.relu(h)
    h = h + nn.conv(nn.relu(h), w["inner"], padding=2, dilation=2)
    h = nn.conv(nn.max_pool(h, 3, 2, 1), w["deep"], stride=2, groups=8, padding="same")
    h = nn.conv_transpose(h, w["up"], stride=2, padding=1, output_padding=1)
    h = nn.avg_pool(nn.resize(h, (8, 9), method="linear"), 2, padding=1, count_include_pad=False)
    return nn.cross_entropy(nn.global_avg_pool(h).reshape((3, 8)) @ w["out"], LABELS)


@pytest.mark.slow
def test_its_gradient_is_that_of_the_oracle_and_all_of_it_is_native() -> None:
    wanted, slopes = rlx.value_and_grad(loss)(WEIGHTS, X)
    small = {name: w.astype(np.float32) for name, w in WEIGHTS.items()}
    f = rlx.jit(rlx.value_and_grad(loss))
    found, gradients = f(small, X.astype(np.float32))
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
    for name, slope in slopes.items():
        # f32 through eleven layers; the largest entry of each gradient is the scale of its rounding.
        np.testing.assert_allclose(gradients[name], slope, rtol=1e-3, atol=1e-4 * np.abs(slope).max(), err_msg=name)
    native, steps = str(f.report).partition(" steps native")[0].split()[-3::2]
    assert native == steps
