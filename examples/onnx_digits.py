"""A digits classifier as an ONNX file: written, read back, checked, and trained on for pictures that it never saw.

What is read from a file is a function of parameters and inputs, so it trains like one's own.

    python examples/onnx_digits.py
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import rlx_core as rlx
from rlx_core import nn, optim

sys.path.insert(0, str(Path(__file__).parent))
import digits

STEPS = 600


def scores(params: Any, x: Any) -> Any:
    return digits.logits(params, x)


def negative(x: np.ndarray) -> np.ndarray:
    """White on black as black on white: what a model that learnt the one gets wrong."""
    return 1 - x


def accuracy(model: Any, x: np.ndarray, labels: np.ndarray) -> float:
    return float(np.mean(np.argmax(model(x), axis=-1) == labels))


def main() -> None:
    params = digits.initial()
    for params, _ in digits.train(epochs=10):  # noqa: B007 - the last ones are what is wanted
        pass
    (x, labels), (held_x, held_labels) = digits.data()

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "digits.onnx"
        rlx.save(path, rlx.compile(scores, params, rlx.spec("f32[n, 64]")))  # any runtime of ONNX reads this
        print(f"{path.name}: {path.stat().st_size:,} bytes")
        model = rlx.load(path)

    print(f"inputs {model.inputs}, {len(model.parameters)} parameters")
    print(f"read back: {accuracy(model, held_x, held_labels):.1%} of the held-out digits are right")
    print(f"of their negatives: {accuracy(model, negative(held_x), held_labels):.1%}")

    optimiser = optim.adam(2e-3)

    def loss(params: Any, x: Any, labels: Any) -> Any:
        return nn.cross_entropy(model.function(params, x), labels)

    step = rlx.train_step(loss, optimiser, donate=False)
    params, state = model.parameters, optimiser.init(model.parameters)
    draw = np.random.default_rng(0)
    for number in range(STEPS):
        chosen = draw.integers(len(x), size=64)
        params, state, value = step(params, state, negative(x[chosen]), labels[chosen])
        if number % 200 == 0:
            print(f"step {number}: loss {float(value):.3f}")
    right = np.argmax(model.function(params, negative(held_x)), axis=-1) == held_labels
    print(f"trained on: {np.sum(~right)} of {len(right)} negatives wrong")


if __name__ == "__main__":
    main()
