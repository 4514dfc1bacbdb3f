"""Convolutional networks with random weights: inference at 224×224 with bound weights, and one step of training at 32×32.

In training the batch norms take the statistics of their batch, and the running ones are returned with the parameters.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import rlx_core as rlx
from benchmarks.case import Case, Data, Program
from benchmarks.networks import NETWORKS, parameters
from rlx_core import nn

RATE = 1e-3
MOMENTUM = 0.1
EPS = 1e-5

Params = dict[str, Any]


class Layers:
    """rlx's layers.

    Attributes:
        running: The statistics to go on with, in training.
    """

    def __init__(self, params: Params, *, is_training: bool = False) -> None:
        self.params, self.is_training = params, is_training
        self.running: Params = {}

    def conv(self, x: Any, name: str, *, channels: int, kernel: int, stride: int = 1, groups: int = 1) -> Any:
        w, gamma, beta, mean, var = (self.params[f"{name}.{part}"] for part in ("w", "gamma", "beta", "mean", "var"))
        y = nn.conv(x, w, stride=stride, padding=kernel // 2, groups=groups)
        if not self.is_training:
            return nn.batch_norm_inference(y, mean, var, weight=gamma, bias=beta, eps=EPS)
        y, mean, var = nn.batch_norm(y, mean, var, weight=gamma, bias=beta, momentum=MOMENTUM, eps=EPS)
        self.running |= {f"{name}.mean": mean, f"{name}.var": var}
        return y

    def relu(self, x: Any, limit: float | None = None) -> Any:
        return nn.relu(x) if limit is None else rlx.minimum(nn.relu(x), limit)

    def max_pool(self, x: Any) -> Any:
        return nn.max_pool(x, 3, 2, 1)

    def add(self, x: Any, y: Any) -> Any:
        return x + y

    def mean(self, x: Any) -> Any:
        return rlx.mean(x, axis=(2, 3))

    def linear(self, x: Any, name: str, *, features: int) -> Any:
        return nn.linear(x, self.params[f"{name}.w"], self.params[f"{name}.b"])


def data(network: str, batch: int, size: int) -> Data:
    shape = (batch, 3, size, size)
    rng = np.random.default_rng(1)
    x = rng.standard_normal(shape).astype(np.float32)
    return {"network": network, "params": parameters(NETWORKS[network], shape), "x": x, "y": rng.integers(0, 10, batch)}


def inference(data: Data) -> Program:
    network, x = NETWORKS[data["network"]], data["x"]
    compiled = rlx.compile(
        lambda params, x: network(Layers(params), x), data["params"], rlx.spec(f"f32{list(x.shape)}")
    )
    return Program(lambda: compiled(x), lambda: [compiled(x)])


def training(data: Data) -> Program:
    network, x, y = NETWORKS[data["network"]], data["x"], data["y"]

    def loss(params: Params, x: Any, y: Any) -> Any:
        layers = Layers(params, is_training=True)
        return nn.cross_entropy(network(layers, x), y), layers.running

    def step(params: Params, x: Any, y: Any) -> tuple[Any, Params]:
        (value, running), grads = rlx.value_and_grad(loss, has_aux=True)(params, x, y)
        return value, {n: running[n] if n in running else p - RATE * grads[n] for n, p in params.items()}

    compiled = rlx.jit(step, donate=("params",))
    state = copied(data["params"])

    def run() -> None:
        nonlocal state
        _, state = compiled(state, x, y)

    def results() -> list[Any]:
        value, params = compiled(copied(data["params"]), x, y)
        return [value, *(params[n] for n in sorted(params))]

    return Program(run, results)


def copied(params: Params) -> Params:
    return {name: value.copy() for name, value in params.items()}


def case(network: str, batch: int) -> Case:
    # Logits are about 1 after 18 to 53 layers of f32, in which other orders of sums and folded norms differ by 1e-6 each.
    return Case(
        f"{network}-{batch}", "vision", lambda: data(network, batch, 224), inference, rtol=1e-3, atol=1e-3, aim=0.90
    )


CASES = (
    case("resnet18", 1),
    case("resnet18", 8),
    case("mobilenet", 1),
    case("mobilenet", 8),
    # Gradients of weights in front of a batch norm are differences of large sums.
    Case("cnn-train", "vision-train", lambda: data("small-resnet", 64, 32), training, rtol=1e-3, atol=1e-4, aim=0.60),
)
