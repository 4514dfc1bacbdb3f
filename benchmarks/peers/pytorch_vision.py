"""The networks of `benchmarks.networks` in PyTorch, eager and compiled; for inference batch norms are folded into weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from benchmarks.case import Data, Program
from benchmarks.cases.vision import EPS, MOMENTUM, RATE
from benchmarks.networks import NETWORKS
from benchmarks.peers.pytorch_programs import inference, training

STATISTICS = ("mean", "var")


class Layers:
    """PyTorch's layers on tensors by name; training moves the running statistics in place."""

    def __init__(self, params: Mapping[str, torch.Tensor], *, is_training: bool) -> None:
        self.params, self.is_training = params, is_training

    def conv(self, x: Any, name: str, *, channels: int, kernel: int, stride: int = 1, groups: int = 1) -> Any:
        params = self.params
        if f"{name}.b" in params:
            return F.conv2d(x, params[f"{name}.w"], params[f"{name}.b"], stride, kernel // 2, 1, groups)
        y = F.conv2d(x, params[f"{name}.w"], None, stride, kernel // 2, 1, groups)
        mean, var, gamma, beta = (params[f"{name}.{part}"] for part in (*STATISTICS, "gamma", "beta"))
        return F.batch_norm(y, mean, var, gamma, beta, self.is_training, MOMENTUM, EPS)

    def relu(self, x: Any, limit: float | None = None) -> Any:
        return F.relu(x) if limit is None else F.hardtanh(x, 0.0, limit)

    def max_pool(self, x: Any) -> Any:
        return F.max_pool2d(x, 3, 2, 1)

    def add(self, x: Any, y: Any) -> Any:
        return x + y

    def mean(self, x: Any) -> Any:
        return x.mean((2, 3))

    def linear(self, x: Any, name: str, *, features: int) -> Any:
        return torch.addmm(self.params[f"{name}.b"], x, self.params[f"{name}.w"])


def make(kind: str, data: Data) -> Mapping[str, Program]:
    return predicting(data) if kind == "vision" else learning(data)


def predicting(data: Data) -> Mapping[str, Program]:
    network, params = NETWORKS[data["network"]], folded(data["params"])

    def function(x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = network(Layers(params, is_training=False), x)
        return result

    compiled = torch.compile(function, dynamic=False)
    x = torch.from_numpy(data["x"])
    return {
        "torch eager": inference(function, x),
        "torch eager, channels last": inference(function, x.to(memory_format=torch.channels_last)),
        "torch.compile": inference(compiled, x),
    }


def folded(params: Mapping[str, np.ndarray]) -> dict[str, torch.Tensor]:
    """Weights and biases of convolutions that contain their batch norms, as PyTorch's users deploy them."""
    weights = {}
    for name, value in params.items():
        layer, _, part = name.rpartition(".")
        if f"{layer}.gamma" not in params:
            weights[name] = torch.from_numpy(value)
        elif part == "w":
            mean, var, gamma, beta = (params[f"{layer}.{p}"] for p in (*STATISTICS, "gamma", "beta"))
            factor = gamma / np.sqrt(var + np.float32(EPS))
            weights[name] = torch.from_numpy(value * factor[:, None, None, None])
            weights[f"{layer}.b"] = torch.from_numpy(beta - mean * factor)
    return weights


def learning(data: Data) -> Mapping[str, Program]:
    network = NETWORKS[data["network"]]

    def loss(params: dict[str, torch.Tensor], x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(network(Layers(params, is_training=True), x), y)

    x, y, params = torch.from_numpy(data["x"]), torch.from_numpy(data["y"]), data["params"]
    statistics = [name for name in params if name.rpartition(".")[2] in STATISTICS]
    return {
        name: training(function, params, images, y, RATE, statistics)
        for name, function, images in (
            ("torch eager", loss, x),
            ("torch eager, channels last", loss, x.to(memory_format=torch.channels_last)),
            ("torch.compile", torch.compile(loss, dynamic=False), x),
        )
    }
