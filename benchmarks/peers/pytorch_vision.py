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

__all__ = ["make"]

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
    return inference(data) if kind == "vision" else training(data)


def inference(data: Data) -> Mapping[str, Program]:
    network, params = NETWORKS[data["network"]], folded(data["params"])

    def function(x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = network(Layers(params, is_training=False), x)
        return result

    compiled = torch.compile(function, dynamic=False)
    x = torch.from_numpy(data["x"])
    return {
        "torch eager": program(function, x),
        "torch eager, channels last": program(function, x.to(memory_format=torch.channels_last)),
        "torch.compile": program(compiled, x),
    }


def program(function: Any, x: torch.Tensor) -> Program:
    def run() -> torch.Tensor:
        with torch.inference_mode():
            result: torch.Tensor = function(x)
            return result

    return Program(run, lambda: [run().numpy()], torch.get_num_threads())


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


def training(data: Data) -> Mapping[str, Program]:
    network = NETWORKS[data["network"]]

    def loss(params: dict[str, torch.Tensor], x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(network(Layers(params, is_training=True), x), y)

    x, y = torch.from_numpy(data["x"]), torch.from_numpy(data["y"])
    return {
        "torch eager": stepping(loss, data["params"], x, y),
        "torch eager, channels last": stepping(loss, data["params"], x.to(memory_format=torch.channels_last), y),
        "torch.compile": stepping(torch.compile(loss, dynamic=False), data["params"], x, y),
    }


def stepping(loss: Any, initial: Mapping[str, np.ndarray], x: torch.Tensor, y: torch.Tensor) -> Program:
    def fresh() -> dict[str, torch.Tensor]:
        tensors = {n: torch.from_numpy(p.copy()) for n, p in initial.items()}
        return {n: t if is_statistic(n) else t.requires_grad_() for n, t in tensors.items()}

    def step(params: dict[str, torch.Tensor]) -> torch.Tensor:
        value: torch.Tensor = loss(params, x, y)
        tensors = [p for n, p in params.items() if not is_statistic(n)]
        grads = torch.autograd.grad(value, tensors)
        with torch.no_grad():
            torch._foreach_sub_(tensors, torch._foreach_mul(grads, RATE))
        return value

    state = fresh()

    def results() -> list[np.ndarray]:
        params = fresh()
        value = step(params)
        return [value.detach().numpy(), *(params[n].detach().numpy() for n in sorted(params))]

    return Program(lambda: step(state), results, torch.get_num_threads())


def is_statistic(name: str) -> bool:
    return name.rpartition(".")[2] in STATISTICS
