"""The laws of programs on any device with separate memory, for the tests of the plug-in that drives it.

A test module of the plug-in imports them by name, and its `conftest.py` has two fixtures: `target`, its name, and `host`, a
plug-in host on which that has a device. Each is compared with the CPU.
"""

from __future__ import annotations

import types
from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core import nn
from rlx_core.errors import IndexRangeError
from rlx_core.pipeline.profile import profiled
from rlx_core.plugins import PluginHost
from rlx_core.testing.device_programs import PROGRAMS, X

__all__ = [
    "test_a_layer_of_images_and_its_gradient_are_what_they_mean",
    "test_a_transformer_is_trained_there_as_on_the_cpu",
    "test_an_index_outside_names_the_line",
    "test_arrays_stay_there",
    "test_every_step_is_timed",
    "test_programs_compute_what_the_cpu_does_in_the_same_bits_each_time",
]

LAYERS: dict[str, tuple[tuple[int, ...], Any]] = {
    "a product": ((6, 4, 3, 3), lambda x, w: nn.conv(x, w, stride=(2, 1), padding=1)),
    "depthwise": ((4, 1, 3, 2), lambda x, w: nn.conv(x, w, groups=4, padding="same")),
    "transposed": ((4, 5, 3, 3), lambda x, w: nn.conv_transpose(x, w, stride=2, padding=1, output_padding=1)),
    "a maximum": ((4, 1, 1), lambda x, w: nn.max_pool(x * w, 3, 2, 1)),
    "a mean": ((4, 1, 1), lambda x, w: nn.avg_pool(x * w, 3, 2, 1, count_include_pad=False)),
    "resized": ((4, 1, 1), lambda x, w: nn.resize(x * w, (9, 4), method="cubic")),
}
"""The weight's dims and the layer, by name."""


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] * (n != "a mean")) for n in LAYERS])
def test_a_layer_of_images_and_its_gradient_are_what_they_mean(host: PluginHost, target: str, name: str) -> None:
    shape, layer = LAYERS[name]
    rng = np.random.default_rng(4)
    x, w = rng.normal(size=(2, 4, 7, 6)), rng.normal(size=shape)

    def loss(x: Any, w: Any) -> Any:
        return rlx.sum(rlx.square(layer(x, w)))

    slopes = rlx.value_and_grad(loss, argnums=(0, 1))
    expected_loss, expected = slopes(x, w)  # in float64
    actual_loss, gradients = rlx.jit(slopes, target=target, host=host)(x.astype(np.float32), w.astype(np.float32))
    np.testing.assert_allclose(float(np.asarray(actual_loss)), expected_loss, rtol=1e-5)
    for slope, exact in zip(gradients, expected, strict=True):
        np.testing.assert_allclose(np.asarray(slope), exact, rtol=1e-4, atol=1e-4 * np.abs(exact).max())


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] * (n != "product")) for n in PROGRAMS])
def test_programs_compute_what_the_cpu_does_in_the_same_bits_each_time(
    host: PluginHost, target: str, name: str
) -> None:
    function, indices = PROGRAMS[name], np.array([1, 3, 3, 5])
    f = rlx.jit(function, target=target, host=host)
    result = f(X, indices)
    np.testing.assert_allclose(result, rlx.jit(function)(X, indices), rtol=2e-5, atol=1e-5)
    np.testing.assert_array_equal(f(X, indices), result)
    assert f.report.tiers is not None
    assert f.report.tiers.counts["host"] == 0


def test_arrays_stay_there(host: PluginHost, target: str) -> None:
    f = rlx.jit(lambda x: x * 2 + 1, target=target, host=host)
    x = rlx.device_put(X, f"{target}:0", host=host)
    for _ in range(3):
        x = f(x)
    assert x.place == f"{target}:0"
    np.testing.assert_allclose(x.to_host(), 8 * X + 7, rtol=1e-6)
    np.testing.assert_array_equal(x.copy().to_host(), x.to_host())


TAKING = """\
import rlx_core as rlx
def taken(t, at):
    return rlx.take(t, at, axis=0)
"""


def test_an_index_outside_names_the_line(host: PluginHost, target: str) -> None:
    theirs = types.ModuleType("theirs")  # a line of this package is never the user's line
    exec(compile(TAKING, "theirs.py", "exec"), vars(theirs))
    f = rlx.jit(theirs.taken, target=target, host=host)
    with pytest.raises(IndexRangeError, match="index 6 is outside an axis of 6 elements") as caught:
        f(X, np.array([1, 6]))
    assert "theirs.py:3" in str(caught.value)
    np.testing.assert_array_equal(f(X, np.array([1, 5])), X[[1, 5]])


def test_every_step_is_timed(host: PluginHost, target: str) -> None:
    f = rlx.jit(lambda x: rlx.sum(rlx.exp(x), axis=1), target=target, host=host)
    f(X)
    with profiled() as profile:
        f(X)
    assert [t.seconds > 0 for t in profile.times] == [True] * len(f.executables[0].lir.steps)


# -------------------------------------------------------------------------------- a step of training

WORDS, FEATURES, LENGTH, RATE = 24, 16, 12, 0.1


def loss(params: Any, x: Any, y: Any) -> Any:
    """A causal transformer's, of one layer."""
    h = nn.embedding(x, params["embedding"]) + params["positions"]
    q, k, v = rlx.split(nn.rms_norm(h, params["norm"], eps=1e-5) @ params["qkv"], 3, axis=-1)
    h = h + nn.attention(q, k, v, num_heads=2, is_causal=True) @ params["out"]
    h = h + nn.gelu(h @ params["up"]) @ params["down"]
    return nn.cross_entropy(h @ params["embedding"].T, y)


def step(params: Any, x: Any, y: Any) -> Any:
    value, grads = rlx.value_and_grad(loss)(params, x, y)
    return value, {name: params[name] - RATE * grads[name] for name in params}


def start() -> dict[str, np.ndarray]:
    rng, d = np.random.default_rng(0), FEATURES
    shapes = {"embedding": (WORDS, d), "positions": (LENGTH, d), "qkv": (d, 3 * d), "out": (d, d)}
    shapes |= {"up": (d, 2 * d), "down": (2 * d, d)}
    params = {name: 0.2 * rng.standard_normal(shape) for name, shape in shapes.items()} | {"norm": np.ones(d)}
    return {name: value.astype(np.float32) for name, value in params.items()}


@pytest.mark.slow
def test_a_transformer_is_trained_there_as_on_the_cpu(host: PluginHost, target: str) -> None:
    rng = np.random.default_rng(1)
    x, y = (rng.integers(0, WORDS, (2, LENGTH)) for _ in range(2))
    on_device = rlx.jit(step, donate=("params",), target=target, host=host)
    here = rlx.jit(step, donate=("params",))
    params = {name: rlx.device_put(value, f"{target}:0", host=host) for name, value in start().items()}
    reference, losses = start(), []
    for _ in range(3):
        value, params = on_device(params, x, y)
        right, reference = here(reference, x, y)
        np.testing.assert_allclose(np.asarray(value), right, rtol=1e-5)
        losses.append(float(right))
    assert losses[0] > losses[1] > losses[2]
    for name, array in params.items():
        assert array.place == f"{target}:0"
        # Three updates of 0.1 of gradients below 1, each a sum of some dozens of products.
        np.testing.assert_allclose(array.to_host(), reference[name], rtol=1e-5, atol=1e-6, err_msg=name)
    assert on_device.report.tiers is not None
    assert on_device.report.traffic is not None
    assert on_device.report.tiers.counts["host"] == 0
    assert on_device.report.traffic.to_json() == {"bound": 0, "inputs": x.nbytes + y.nbytes, "outputs": 0, "steps": 0}
