"""The networks of `benchmarks.networks` in JAX: weights as arguments and as constants, training with donated parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.case import Data, Program
from benchmarks.cases.vision import EPS, MOMENTUM, RATE
from benchmarks.networks import NETWORKS
from benchmarks.peers.jax_loops import donating


class Layers:
    """JAX's layers; in training `running` collects the statistics to go on with."""

    def __init__(self, params: Mapping[str, Any], *, is_training: bool) -> None:
        self.params, self.is_training = params, is_training
        self.running: dict[str, Any] = {}

    def conv(self, x: Any, name: str, *, channels: int, kernel: int, stride: int = 1, groups: int = 1) -> Any:
        w, gamma, beta, mean, var = (self.params[f"{name}.{part}"] for part in ("w", "gamma", "beta", "mean", "var"))
        pads = [(kernel // 2, kernel // 2)] * 2
        y = jax.lax.conv_general_dilated(x, w, (stride, stride), pads, feature_group_count=groups)
        if self.is_training:
            count = y.size // channels
            before = mean, var
            mean, var = y.mean((0, 2, 3)), y.var((0, 2, 3))
            for part, old, new in zip(("mean", "var"), before, (mean, var * count / (count - 1)), strict=True):
                self.running[f"{name}.{part}"] = (1 - MOMENTUM) * old + MOMENTUM * new
        factor = gamma * jax.lax.rsqrt(var + EPS)
        return (y - mean[:, None, None]) * factor[:, None, None] + beta[:, None, None]

    def relu(self, x: Any, limit: float | None = None) -> Any:
        return jax.nn.relu(x) if limit is None else jnp.clip(x, 0.0, limit)

    def max_pool(self, x: Any) -> Any:
        pads = ((0, 0), (0, 0), (1, 1), (1, 1))
        return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 1, 3, 3), (1, 1, 2, 2), pads)

    def add(self, x: Any, y: Any) -> Any:
        return x + y

    def mean(self, x: Any) -> Any:
        return x.mean((2, 3))

    def linear(self, x: Any, name: str, *, features: int) -> Any:
        return x @ self.params[f"{name}.w"] + self.params[f"{name}.b"]


def make(kind: str, data: Data) -> Mapping[str, Program]:
    network, x = NETWORKS[data["network"]], jnp.asarray(data["x"])
    if kind == "vision-train":
        return {"jax.jit donated": training(data, x)}
    params = {n: jnp.asarray(p) for n, p in data["params"].items()}

    def function(params: Mapping[str, Any], x: Any) -> Any:
        return network(Layers(params, is_training=False), x)

    with_arguments, constant = jax.jit(function), jax.jit(lambda x: function(params, x))
    return {
        "jax.jit": Program(lambda: with_arguments(params, x).block_until_ready(), lambda: [with_arguments(params, x)]),
        "jax.jit, weights constant": Program(lambda: constant(x).block_until_ready(), lambda: [constant(x)]),
    }


def training(data: Data, x: Any) -> Program:
    network, y = NETWORKS[data["network"]], jnp.asarray(data["y"])

    def loss(params: Mapping[str, Any]) -> Any:
        layers = Layers(params, is_training=True)
        chances = jax.nn.log_softmax(network(layers, x))
        return -jnp.take_along_axis(chances, y[:, None], 1).mean(), layers.running

    def step(params: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
        (value, running), grads = jax.value_and_grad(loss, has_aux=True)(params)
        return value, {n: running[n] if n in running else p - RATE * grads[n] for n, p in params.items()}

    return donating(step, data["params"])
