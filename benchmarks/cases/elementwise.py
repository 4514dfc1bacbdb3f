"""Programs without a large product: overhead of a call, memory bandwidth, cost of a function of one variable."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import rlx_core as rlx
from benchmarks.case import Case, Data, Program
from rlx_core import nn

LONG, SHORT = 1 << 22, 1 << 14  # elements: far beyond the caches, and well inside the nearest


def call_data() -> Data:
    rng = np.random.default_rng(0)
    weights = [rng.standard_normal((64, 64)).astype(np.float32) * 0.1 for _ in range(3)]
    biases = [np.zeros(64, np.float32) for _ in range(3)]
    return {"weights": weights, "biases": biases, "x": rng.standard_normal((1, 64)).astype(np.float32)}


def call_program(data: Data) -> Program:
    def layers(params: dict[str, Any], x: Any) -> Any:
        for w, b in zip(params["weights"], params["biases"], strict=True):
            x = nn.linear(x, w, b, activation="tanh")
        return x

    params = {"weights": data["weights"], "biases": data["biases"]}
    compiled, x = rlx.compile(layers, params, rlx.spec("f32[1, 64]")), data["x"]
    return Program(lambda: compiled(x), lambda: [compiled(x)])


def chain_data() -> Data:
    rng = np.random.default_rng(0)
    return {name: rng.random(LONG).astype(np.float32) for name in "abc"}


def chain_program(data: Data) -> Program:
    @rlx.jit
    def chain(a: Any, b: Any, c: Any) -> Any:
        return rlx.tanh(a * b + c) * rlx.exp(-a) + rlx.sqrt(b) / (c + 1.5)

    arrays = [data[name] for name in "abc"]
    return Program(lambda: chain(*arrays), lambda: [chain(*arrays)])


def math_data() -> Data:
    return {"x": np.random.default_rng(0).uniform(-4, 4, SHORT).astype(np.float32)}


def math_program(function: Callable[[Any], Any]) -> Callable[[Data], Program]:
    def make(data: Data) -> Program:
        compiled, x = rlx.jit(lambda x: function(x)), data["x"]
        return Program(lambda: compiled(x), lambda: [compiled(x)])

    return make


def math_case(name: str, function: Callable[[Any], Any]) -> Case:
    # A few ulp of float32 on both sides.
    return Case(
        f"math-{name}", f"math-{name}", math_data, math_program(function), work=(SHORT / 1e9, "G elements/s"),
        rtol=2e-6, atol=1e-6, aim=0.50,
    )  # fmt: skip


CASES = (
    Case("call", "call", call_data, call_program, rtol=1e-5, atol=1e-6, aim=0.35),
    # Three functions of a few ulp each, on numbers near 1.
    Case(
        "chain",
        "chain",
        chain_data,
        chain_program,
        work=(16 * LONG / 1e9, "GB/s"),
        rtol=1e-5,
        atol=1e-6,
        limit="copy",
        aim=0.60,
    ),
    math_case("exp", rlx.exp),
    math_case("tanh", rlx.tanh),
    math_case("gelu", nn.gelu),
)
