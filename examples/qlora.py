"""Adapt a network of 4-bit weights: low-rank factors are trained, and codes and scales never change (QLoRA).

A network learns digits, its weights are quantised, and the task changes: the digits are shown upside down. Each product is
`x·W + (x·a)·b`, with W read from its codes and a and b trained.

    python examples/qlora.py
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

import rlx_core as rlx
from rlx_core import nn, optim, quantization

SIZES = (64, 256, 256, 32)
"""Widths of the layers; the last has 32 rows, of which ten are classes."""

RANK, BATCH = 8, 64
Params = dict[str, Any]


def data(*, is_inverted: bool, seed: int = 0) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """(images f32[n, 64], labels i64[n]) for training, and the same for tests; upside down if inverted."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(labels))
    images, labels = (images[order] / 16).astype(np.float32), labels[order].astype(np.int64)
    images = images[:, ::-1].copy() if is_inverted else images
    cut = len(labels) // 5
    return (images[cut:], labels[cut:]), (images[:cut], labels[:cut])


def initial(seed: int = 0) -> list[np.ndarray]:
    """Weights `[outputs, inputs]`, scaled to keep the variance of activations."""
    rng = np.random.default_rng(seed)
    return [(rng.standard_normal((m, n)) * np.sqrt(2 / n)).astype(np.float32) for n, m in pairwise(SIZES)]


def adapters(seed: int = 1) -> list[Params]:
    """Factors of each layer's update, whose product is 0 at first (Hu et al. 2021)."""
    rng = np.random.default_rng(seed)
    return [
        {
            "a": (rng.standard_normal((n, RANK)) / np.sqrt(n)).astype(np.float32),
            "b": np.zeros((RANK, m), np.float32),
        }
        for n, m in pairwise(SIZES)
    ]


def logits(weights: list[Any], factors: list[Params], x: Any) -> Any:
    for i, weight in enumerate(weights):
        matrix = weight.dequantize() if isinstance(weight, quantization.QuantizedArray) else weight
        y = x @ matrix.T
        if factors:
            y = y + (x @ factors[i]["a"]) @ factors[i]["b"]
        x = rlx.relu(y) if i + 1 < len(weights) else y
    return x[:, :10]


def trained(
    loss: Any, params: Any, others: Any, set_: tuple[np.ndarray, np.ndarray], epochs: int
) -> tuple[Any, list[float]]:
    """Parameters after some epochs of Adam, and the mean loss of each epoch; `others` are arguments without gradients."""
    optimiser = optim.adam(2e-3)

    def step(params: Any, state: Any, others: Any, x: Any, labels: Any) -> tuple[Any, Any, Any]:
        value, grads = rlx.value_and_grad(loss)(params, others, x, labels)
        updates, state = optimiser.update(grads, state, params)
        return optim.apply_updates(params, updates), state, value

    run, state, history = rlx.jit(step), optimiser.init(params), []
    x, labels = set_
    for epoch in range(epochs):
        order = np.random.default_rng(epoch).permutation(len(labels))
        losses = []
        for start in range(0, len(order) - BATCH + 1, BATCH):
            rows = order[start : start + BATCH]
            params, state, value = run(params, state, others, x[rows], labels[rows])
            losses.append(float(value))
        history.append(float(np.mean(losses)))
    return params, history


def accuracy(weights: list[Any], factors: list[Params], set_: tuple[np.ndarray, np.ndarray]) -> float:
    x, labels = set_
    return float(np.mean(np.argmax(np.asarray(rlx.jit(logits)(weights, factors, x)), -1) == labels))


def main() -> None:
    upright, upright_test = data(is_inverted=False)
    inverted, inverted_test = data(is_inverted=True)

    def base_loss(weights: Any, _: Any, x: Any, labels: Any) -> Any:
        return nn.cross_entropy(logits(weights, [], x), labels)

    def adapter_loss(factors: Any, weights: Any, x: Any, labels: Any) -> Any:
        return nn.cross_entropy(logits(weights, factors, x), labels)

    wide, _ = trained(base_loss, initial(), [], upright, epochs=15)
    base = [quantization.quantize(np.asarray(w), "q4_0") for w in wide]
    stored = [{name: np.array(each) for name, each in w.fields.items()} for w in base]
    print(
        f"upright: accuracy {accuracy(wide, [], upright_test):.1%} in f32, {accuracy(base, [], upright_test):.1%} in 4 bits"
    )
    print(
        f"base {sum(w.nbytes for w in base):,} bytes, of {sum(np.asarray(w).nbytes for w in wide):,} in f32; ", end=""
    )

    factors = adapters()
    print(f"adapters of rank {RANK}: {sum(each.nbytes for layer in factors for each in layer.values()):,} bytes")
    before = accuracy(base, factors, inverted_test)
    factors, history = trained(adapter_loss, factors, base, inverted, epochs=30)
    for w, fields in zip(base, stored, strict=True):
        assert all(np.array_equal(w.fields[name], each) for name, each in fields.items()), (
            "codes and scales are not trained"
        )
    print("loss", "".join("▁▂▃▄▅▆▇█"[min(7, int(8 * each / max(history)))] for each in history), f"{history[-1]:.4f}")
    after = accuracy(base, factors, inverted_test)
    wrong = round((1 - after) * len(inverted_test[1]))
    print(
        f"upside down: held-out accuracy {before:.1%} before and {after:.1%} after, {wrong} of {len(inverted_test[1])} wrong"
    )


if __name__ == "__main__":
    main()
