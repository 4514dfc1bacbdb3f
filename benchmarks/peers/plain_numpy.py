"""NumPy itself, and SciPy for Fourier transforms, where a person would write the program without thinking of a compiler."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import scipy.fft

from benchmarks.case import Data, Program
from benchmarks.cases.numbers import COUNT, moments, parts


def make(kind: str, data: Data, threads: int) -> Mapping[str, Program]:
    if kind == "fft":
        return {"scipy": Program(lambda: scipy.fft.fft(data["x"]), lambda: parts(scipy.fft.fft(data["x"])))}
    maker = {"call": call, "chain": chain, "gemm": gemm, "math-exp": exp, "math-tanh": tanh}.get(kind)
    draw = DRAWN.get(kind)
    function = MEMORY.get(kind)
    if maker is not None:
        run = maker(data)
    elif function is not None:
        run = partial(function, *data["arrays"])
    elif draw is not None:
        generator = np.random.Generator(np.random.Philox(0))
        return {"numpy, one thread": Program(partial(draw, generator), lambda: moments(draw(generator)))}
    else:
        return {}
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


def scattered(x: np.ndarray, rows: np.ndarray) -> np.ndarray:
    out = np.zeros_like(x)
    np.add.at(out, rows, x)
    return out


def grouped(x: np.ndarray, scale: np.ndarray, shift: np.ndarray) -> np.ndarray:
    groups = x.reshape(len(x), 32, -1)
    centred = groups - groups.mean(-1, keepdims=True)
    normed = centred / np.sqrt((centred * centred).mean(-1, keepdims=True) + np.float32(1e-5))
    return normed.reshape(x.shape) * scale[:, None, None] + shift[:, None, None]


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


DRAWN: Mapping[str, Callable[[np.random.Generator], np.ndarray]] = {
    "random-uniform": lambda generator: generator.random(COUNT, np.float32),
    "random-normal": lambda generator: generator.standard_normal(COUNT, np.float32),
}

MEMORY: Mapping[str, Callable[..., np.ndarray]] = {
    "memory-transpose": lambda x: np.ascontiguousarray(x.T),
    "memory-heads": lambda x: np.ascontiguousarray(x.transpose(0, 2, 1, 3)),
    "memory-gather": lambda x, rows: x[rows],
    "memory-scatter": scattered,
    "memory-sum-rows": lambda x: x.sum(1),
    "memory-sum-columns": lambda x: x.sum(0),
    "memory-max-rows": lambda x: x.max(1),
    "memory-max-columns": lambda x: x.max(0),
    "memory-group-norm": grouped,
    "memory-softmax": softmax,
    "memory-running-rows": lambda x: x.cumsum(1),
    "memory-running-columns": lambda x: x.cumsum(0),
    "memory-step": lambda x: np.ascontiguousarray(x[:, ::2]),
    "memory-flip": lambda x: np.ascontiguousarray(x[:, ::-1]),
    "memory-reflect": lambda x: np.pad(x, 3, mode="reflect"),
    "memory-fresh": lambda x: x + np.float32(1),
}
"""The functions of the memory cases, copied where NumPy would return a view."""
