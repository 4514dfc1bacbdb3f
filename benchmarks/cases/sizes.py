"""Dynamic sizes: the cost of a new one, and shape-generic functions vs. code for one size."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import numpy as np

import rlx_core as rlx
from benchmarks.case import Case, Data, Program
from rlx_core import nn

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


def first_calls(make: Callable[[], Any], inputs: Callable[[int], tuple[Any, ...]]) -> Program:
    """The first call of a size, again and again."""
    function, calls = make(), count()
    function(*inputs(ROWS))

    def run() -> object:
        return function(*inputs(ROWS + next(calls) % 256))  # of which the programs of 64 are kept

    def results() -> list[Any]:
        outputs = make()(*inputs(ROWS))
        return outputs if isinstance(outputs, list) else [outputs]

    return Program(run, results)


def bound(data: Data) -> Program:
    return first_calls(lambda: compiled(data, "batch"), lambda rows: (data["x"][:rows],))


def one_op(data: Data) -> Program:
    return first_calls(
        lambda: rlx.compile(rlx.exp, rlx.spec(f"f32[batch, {INPUTS}]")), lambda rows: (data["x"][:rows],)
    )


FEATURES, ROUNDS, DEGREE = 16, 3, 3
"""Of the graph network: each round sends a message along every edge, DEGREE of which leave a node."""


def graph_data() -> Data:
    rng, max_rows = np.random.default_rng(0), ROWS + 256
    shapes = [(2 * FEATURES, FEATURES), (FEATURES, FEATURES)] * ROUNDS
    return {
        "weights": [rng.standard_normal(shape, dtype=np.float32) * 0.1 for shape in shapes],
        "x": rng.standard_normal((max_rows, FEATURES), dtype=np.float32),
        "edges": rng.integers(0, ROWS, (2, DEGREE * max_rows), dtype=np.int32),
    }


def graph_loss(weights: Any, x: Any, edges: Any, y: Any) -> Any:
    """Messages between nodes, added up at their receivers (Gilmer et al. 2017, https://arxiv.org/abs/1704.01212)."""
    senders, receivers = edges
    for message, update in zip(weights[::2], weights[1::2], strict=True):
        ends = rlx.concat([rlx.take(x, senders, axis=0), rlx.take(x, receivers, axis=0)], axis=1)
        x = x + rlx.relu(rlx.segment_sum(rlx.relu(ends @ message), receivers, num_segments=x.shape[0]) @ update)
    return rlx.mean((x - y) ** 2)


def graph_network(data: Data) -> Program:
    def make() -> Any:
        nodes = rlx.spec(f"f32[nodes, {FEATURES}]")
        return rlx.compile(rlx.grad(graph_loss), data["weights"], nodes, rlx.spec("i32[2, edges]"), nodes)

    def inputs(nodes: int) -> tuple[Any, ...]:
        x = data["x"][:nodes]
        return x, np.ascontiguousarray(data["edges"][:, : DEGREE * nodes]), x

    return first_calls(make, inputs)


def for_all(data: Data) -> Program:
    function, x = compiled(data, "batch"), data["x"][:ROWS]
    return Program(lambda: function(x), lambda: [function(x)])


def for_size(data: Data) -> Program:
    function, x = compiled(data, str(ROWS)), data["x"][:ROWS]
    return Program(lambda: function(x), lambda: [function(x)])


CASES = (
    Case("sizes-new", "sizes-new", data, bound),
    Case("sizes-new-op", "sizes-new-op", data, one_op),
    Case("sizes-new-graph", "sizes-new-graph", graph_data, graph_network),
    Case("sizes-all", "sizes", data, for_all),
    Case("sizes-one", "sizes", data, for_size),
)
