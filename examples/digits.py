"""Train a small classifier on the handwritten digits that ship with scikit-learn.

Forward pass, loss, gradients and update are one program.

    python examples/digits.py
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

import rlx_core as rlx
from rlx_core import nn

Params = dict[str, Any]


def data(seed: int = 0) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """(images f32[n, 64], labels i64[n]) for training, and the same for a held-out fifth."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(labels))
    images, labels = (images[order] / 16).astype(np.float32), labels[order].astype(np.int64)
    cut = len(labels) // 5
    return (images[cut:], labels[cut:]), (images[:cut], labels[:cut])


def initial(seed: int = 0, sizes: tuple[int, ...] = (64, 128, 64, 10)) -> Params:
    """Weights scaled to keep the variance of activations (He 2015), biases at zero."""
    rng = np.random.default_rng(seed)
    params: Params = {}
    for i, (fan_in, fan_out) in enumerate(pairwise(sizes)):
        params[f"w{i}"] = (rng.standard_normal((fan_in, fan_out)) * np.sqrt(2 / fan_in)).astype(np.float32)
        params[f"b{i}"] = np.zeros(fan_out, np.float32)
    return params


def logits(params: Params, x: Any) -> Any:
    depth = len(params) // 2
    for i in range(depth):
        x = nn.linear(x, params[f"w{i}"], params[f"b{i}"], activation="relu" if i < depth - 1 else None)
    return x


def loss(params: Params, x: Any, labels: Any) -> Any:
    return nn.cross_entropy(logits(params, x), labels)


def train_step(params: Params, velocity: Params, x: Any, labels: Any, rate: Any) -> tuple[Params, Params, Any]:
    """One step of SGD with momentum 0.9; returns the new parameters, the new velocity and the loss."""
    value, grads = rlx.value_and_grad(loss)(params, x, labels)
    velocity = {k: 0.9 * velocity[k] - rate * grads[k] for k in params}
    return {k: params[k] + velocity[k] for k in params}, velocity, value


def predict(params: Params, x: Any) -> Any:
    return rlx.argmax(logits(params, x), axis=-1)


@cache
def compiled(target: str | None = None) -> tuple[Any, Any]:
    """The step and the prediction for a target."""
    return rlx.jit(train_step, target=target), rlx.jit(predict, target=target)


def accuracy(params: Params, x: np.ndarray, labels: np.ndarray, target: str | None = None) -> float:
    _, predicted = compiled(target)
    return float(np.mean(np.asarray(predicted(params, x)) == labels))


def batches(x: np.ndarray, labels: np.ndarray, size: int, seed: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    order = np.random.default_rng(seed).permutation(len(labels))
    for start in range(0, len(order) - size + 1, size):
        chosen = order[start : start + size]
        yield x[chosen], labels[chosen]


def train(epochs: int = 30, batch: int = 32, target: str | None = None) -> Iterator[tuple[Params, float]]:
    """After each step, the parameters and the loss; on a device the parameters stay there."""
    (x, labels), _ = data()
    step, _ = compiled(target)
    params = initial()
    velocity = {k: np.zeros_like(p) for k, p in params.items()}
    if target is not None:
        params, velocity = ({k: rlx.device_put(p, target) for k, p in each.items()} for each in (params, velocity))
    for epoch in range(epochs):
        rate = np.float32(0.05 * 0.5 * (1 + np.cos(np.pi * epoch / epochs)))
        for images, targets in batches(x, labels, batch, seed=epoch):
            params, velocity, value = step(params, velocity, images, targets, rate)
            yield params, float(np.asarray(value))


def main() -> None:
    params, value = initial(), float("nan")
    for params, value in train():  # noqa: B007 - the last ones are used below
        pass
    _, (x, labels) = data()
    print(f"loss {value:.4f}, held-out accuracy {accuracy(params, x, labels):.1%}")


if __name__ == "__main__":
    main()
