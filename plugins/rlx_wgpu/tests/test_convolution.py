"""Convolutions, pools and resizing on the device, with their gradients, beside the oracle in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core import nn
from rlx_core.plugins import PluginHost

RNG = np.random.default_rng(4)
X = RNG.normal(size=(2, 4, 7, 6))

LAYERS: dict[str, tuple[tuple[int, ...], Any]] = {
    "a product": ((6, 4, 3, 3), lambda x, w: nn.conv(x, w, stride=(2, 1), padding=1)),
    "depthwise": ((4, 1, 3, 2), lambda x, w: nn.conv(x, w, groups=4, padding="same")),
    "transposed": ((4, 5, 3, 3), lambda x, w: nn.conv_transpose(x, w, stride=2, padding=1, output_padding=1)),
    "a maximum": ((4, 1, 1), lambda x, w: nn.max_pool(x * w, 3, 2, 1)),
    "a mean": ((4, 1, 1), lambda x, w: nn.avg_pool(x * w, 3, 2, 1, count_include_pad=False)),
    "resized": ((4, 1, 1), lambda x, w: nn.resize(x * w, (9, 4), method="cubic")),
}

QUICK = ("a product", "a mean")
CASES = [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in LAYERS]


@pytest.mark.parametrize("name", CASES)
def test_a_layer_and_its_gradient_agree_with_the_oracle(host: PluginHost, name: str) -> None:
    shape, layer = LAYERS[name]
    w = RNG.normal(size=shape)

    def loss(x: Any, w: Any) -> Any:
        return rlx.sum(rlx.square(layer(x, w)))

    slopes = rlx.value_and_grad(loss, argnums=(0, 1))
    wanted, expected = slopes(X, w)
    f = rlx.jit(slopes, target="wgpu", host=host)
    found, gradients = f(X.astype(np.float32), w.astype(np.float32))
    np.testing.assert_allclose(float(np.asarray(found)), wanted, rtol=1e-5)
    for slope, exact in zip(gradients, expected, strict=True):
        np.testing.assert_allclose(np.asarray(slope), exact, rtol=1e-4, atol=1e-4 * np.abs(exact).max())
