"""A digits classifier as an ONNX file: written, read back, checked, and trained on for pictures that it never saw.

A model read from a file is a function of parameters and inputs, so it trains like any other.

    python examples/onnx_digits.py
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

import rlx_core as rlx
from rlx_core import nn, optim

STEPS = 600
TEST_COUNT = 359  # a fifth


def initial(seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {
        "w0": (rng.standard_normal((64, 128)) / 6).astype(np.float32),
        "b0": np.zeros(128, np.float32),
        "w1": (rng.standard_normal((128, 10)) / 8).astype(np.float32),
        "b1": np.zeros(10, np.float32),
    }


def logits(params: Any, x: Any) -> Any:
    return nn.linear(nn.linear(x, params["w0"], params["b0"], activation="relu"), params["w1"], params["b1"])


def trained(function: Callable[..., Any], params: Any, x: np.ndarray, labels: np.ndarray) -> Any:
    """The parameters after so many steps of Adam on batches of 64."""
    optimiser = optim.adam(2e-3)
    step = rlx.train_step(lambda p, x, y: nn.cross_entropy(function(p, x), y), optimiser, donate=False)
    state, draw = optimiser.init(params), np.random.default_rng(0)
    for number in range(STEPS):
        chosen = draw.integers(len(x), size=64)
        params, state, value = step(params, state, x[chosen], labels[chosen])
        if number % 200 == 0:
            print(f"  step {number}: loss {float(value):.3f}")
    return params


def main() -> None:
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    x, y = (images[order] / 16).astype(np.float32), labels[order].astype(np.int64)
    params = trained(logits, initial(), x[TEST_COUNT:], y[TEST_COUNT:])

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "digits.onnx"
        rlx.save(path, rlx.compile(logits, params, rlx.spec("f32[n, 64]")))  # any runtime of ONNX reads this
        print(f"{path.name}: {path.stat().st_size:,} bytes")
        model = rlx.load(path)
    print(f"inputs {dict(model.inputs)}, parameters {sorted(model.parameters)}")

    wrong = np.argmax(model(x[:TEST_COUNT]), axis=-1) != y[:TEST_COUNT]
    print(f"read back: {wrong.sum()} of {TEST_COUNT} held-out digits wrong")
    negatives = 1 - x  # black on white
    better = trained(model.function, model.parameters, negatives[TEST_COUNT:], y[TEST_COUNT:])
    wrong = np.argmax(model.function(better, negatives[:TEST_COUNT]), axis=-1) != y[:TEST_COUNT]
    print(f"trained on: {wrong.sum()} of {TEST_COUNT} negatives wrong")


if __name__ == "__main__":
    main()
