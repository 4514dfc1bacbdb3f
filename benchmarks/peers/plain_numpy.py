"""NumPy itself, where a person would write the program in it without thinking of a compiler."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarks.case import Data, Program

__all__ = ["make"]


def make(kind: str, data: Data, threads: int) -> Mapping[str, Program]:
    maker = {"call": call, "chain": chain, "gemm": gemm, "math-exp": exp, "math-tanh": tanh}.get(kind)
    if maker is None:
        return {}
    run = maker(data)
    return {"numpy": Program(run, lambda: [run()])}


def call(data: Data) -> Any:
    layers, x = list(zip(data["weights"], data["biases"], strict=True)), data["x"]

    def run() -> np.ndarray:
        y = x
        for w, b in layers:
            y = np.tanh(y @ w + b)
        return y

    return run


def chain(data: Data) -> Any:
    a, b, c = (data[name] for name in "abc")
    return lambda: np.tanh(a * b + c) * np.exp(-a) + np.sqrt(b) / (c + np.float32(1.5))


def gemm(data: Data) -> Any:
    x, w = data["x"], data["w"]
    out = np.empty((x.shape[0], w.shape[1]), np.float32)
    return lambda: np.matmul(x, w, out=out)


def exp(data: Data) -> Any:
    return lambda: np.exp(data["x"])


def tanh(data: Data) -> Any:
    return lambda: np.tanh(data["x"])
