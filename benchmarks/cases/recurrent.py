"""Loops: an LSTM over 128 steps of 256 features, forward and as a step of training, and 10,000 steps that are hardly anything.

Weights are laid out as `nn.lstm` wants them, with the gates in PyTorch's order. The loss is the mean square of all results.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import rlx_core as rlx
from benchmarks.case import Case, Data, Program
from benchmarks.cases.training import rlx_program
from rlx_core import nn

STEPS, FEATURES, SMALL_STEPS, SMALL_FEATURES = 128, 256, 10_000, 16


def lstm_data(batch: int) -> Data:
    rng = np.random.default_rng(0)
    shapes = {"w": (FEATURES, 4 * FEATURES), "u": (FEATURES, 4 * FEATURES), "b": (4 * FEATURES,)}
    params = {name: (rng.standard_normal(shape) * 0.05).astype(np.float32) for name, shape in shapes.items()}
    x = rng.standard_normal((batch, STEPS, FEATURES)).astype(np.float32)
    return {"params": params, "x": x, "y": np.zeros((), np.float32)}


def scan_data() -> Data:
    rng = np.random.default_rng(0)
    w, c, xs = (
        rng.standard_normal(shape)
        for shape in ((SMALL_FEATURES, SMALL_FEATURES), (SMALL_FEATURES,), (SMALL_STEPS, SMALL_FEATURES))
    )
    return {"arrays": [(0.1 * a).astype(np.float32) for a in (w, c, xs)]}


def run_lstm(params: Any, x: Any) -> Any:
    return nn.lstm(x, params["w"], params["u"], params["b"])[0]


def lstm_loss(params: Any, x: Any, y: Any) -> Any:
    outputs = run_lstm(params, x)
    return rlx.mean(outputs * outputs) - y


def run_scan(w: Any, c: Any, xs: Any) -> Any:
    return rlx.scan(lambda c, x: (rlx.tanh(c @ w + x), None), c, xs)[0]


def lstm(data: Data) -> Program:
    x = data["x"]
    compiled = rlx.compile(run_lstm, data["params"], rlx.spec(f"f32{list(x.shape)}"))
    return Program(lambda: compiled(x), lambda: [compiled(x)])


def scan(data: Data) -> Program:
    compiled, arrays = rlx.jit(run_scan), data["arrays"]
    return Program(lambda: compiled(*arrays), lambda: [compiled(*arrays)])


def case(name: str, kind: str, data: Callable[[], Data], program: Callable[[Data], Program], aim: float) -> Case:
    # Products and logistic functions after one another, 128 deep or 10,000, forget what came long before.
    return Case(name, kind, data, program, rtol=1e-4, atol=1e-5, aim=aim)


CASES = (
    *(case(f"lstm-{n}", "lstm", partial(lstm_data, n), lstm, 0.50) for n in (1, 32)),
    *(case(f"lstm-train-{n}", "lstm-train", partial(lstm_data, n), rlx_program(lstm_loss), 0.60) for n in (1, 32)),
    case("scan", "scan", scan_data, scan, 0.20),
)
