"""Sizes that come with the call: what a new one costs, and functions for all sizes beside code for the size."""

from __future__ import annotations

from itertools import count
from typing import Any

import numpy as np

import rlx_core as rlx
from benchmarks.case import Case, Data, Program
from rlx_core import nn

__all__ = ["CASES"]

INPUTS, HIDDEN, CLASSES = 64, 256, 10
ROWS = 100


def data() -> Data:
    rng = np.random.default_rng(0)

    def weights(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape, dtype=np.float32)

    params = {
        "w1": weights(INPUTS, HIDDEN),
        "b1": weights(HIDDEN),
        "w2": weights(HIDDEN, CLASSES),
        "b2": weights(CLASSES),
    }
    return {"params": params, "x": weights(512, INPUTS)}


def predict(params: Any, x: Any) -> Any:
    hidden = nn.gelu(nn.linear(x, params["w1"], params["b1"]))
    return nn.softmax(nn.linear(hidden, params["w2"], params["b2"]))


def compiled(data: Data, rows: str) -> Any:
    return rlx.compile(predict, data["params"], rlx.spec(f"f32[{rows}, {INPUTS}]"))


def bound(data: Data) -> Program:
    """The first call of a size, again and again."""
    function, x, calls = compiled(data, "batch"), data["x"], count()
    function(x[:1])

    def run() -> object:
        return function(x[: ROWS + next(calls) % 256])  # of which the programs of 64 are kept

    return Program(run, lambda: [compiled(data, "batch")(x[:ROWS])])


def for_all(data: Data) -> Program:
    function, x = compiled(data, "batch"), data["x"][:ROWS]
    return Program(lambda: function(x), lambda: [function(x)])


def for_size(data: Data) -> Program:
    function, x = compiled(data, str(ROWS)), data["x"][:ROWS]
    return Program(lambda: function(x), lambda: [function(x)])


CASES = (
    Case("sizes-new", "sizes-new", data, bound),
    Case("sizes-all", "sizes", data, for_all),
    Case("sizes-one", "sizes", data, for_size),
)
