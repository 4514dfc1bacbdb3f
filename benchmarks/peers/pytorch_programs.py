"""Programs of PyTorch's functions: calls without gradients, and steps of training."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np
import torch

from benchmarks.case import Program


def inference(function: Callable[..., Any], *inputs: torch.Tensor) -> Program:
    def run() -> torch.Tensor:
        with torch.inference_mode():
            result: torch.Tensor = function(*inputs)
            return result

    return Program(run, lambda: [run().numpy()], torch.get_num_threads())


def training(
    loss: Callable[..., torch.Tensor],
    initial: Mapping[str, np.ndarray],
    x: torch.Tensor,
    y: torch.Tensor,
    rate: float,
    fixed: Collection[str] = (),
) -> Program:
    """Steps of stochastic gradient descent; the loss itself may update the parameters in `fixed`."""

    def fresh() -> dict[str, torch.Tensor]:
        tensors = {n: torch.from_numpy(p.copy()) for n, p in initial.items()}
        return {n: t if n in fixed else t.requires_grad_() for n, t in tensors.items()}

    def step(params: dict[str, torch.Tensor]) -> torch.Tensor:
        value = loss(params, x, y)
        tensors = [p for n, p in params.items() if n not in fixed]
        grads = torch.autograd.grad(value, tensors)
        with torch.no_grad():
            torch._foreach_sub_(tensors, torch._foreach_mul(grads, rate))
        return value

    state = fresh()

    def results() -> list[np.ndarray]:
        params = fresh()
        value = step(params)
        return [value.detach().numpy(), *(params[n].detach().numpy() for n in sorted(params))]

    return Program(lambda: step(state), results, torch.get_num_threads())
