"""Fixtures for tests of transformations: making a small graph, and running one in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rlx_core.ir.graph import Builder, Graph, as_results, building
from rlx_core.ir.interpret import interpret
from rlx_core.ir.types import spec
from rlx_core.ops.activation import tanh


def _graph_of(function: Callable[..., Any], *, params: tuple[str, ...] = (), **types: str) -> Graph:
    builder = Builder("f")
    with building(builder):
        leaves = {n: (builder.param if n in params else builder.input)(n, spec(t)) for n, t in types.items()}
        results = as_results(function(**leaves))
    return builder.finish(results)


def _run(graph: Graph, *arrays: Any, **named: Any) -> list[np.ndarray]:
    fed = named or dict(zip([*graph.input_types, *graph.param_types], arrays, strict=True))
    params = {n: np.asarray(fed[n]) for n in graph.param_types}
    inputs = {n: np.asarray(fed[n]) for n in graph.input_types}
    return list(interpret(graph, inputs, params, mode="wide"))


@pytest.fixture(scope="session")
def graph_of() -> Callable[..., Graph]:
    """The graph of a function; its inputs are the keyword types by name, those in `params` are params."""
    return _graph_of


@pytest.fixture(scope="session")
def run() -> Callable[..., list[np.ndarray]]:
    """The outputs of a graph in float64; arrays in the order of inputs and params, or by name."""
    return _run


@pytest.fixture
def long_chain() -> Graph:
    """5000 ops in a row: deeper than Python's stack."""

    def chain(x: Any) -> Any:
        for _ in range(5000):
            x = tanh(x)
        return x

    return _graph_of(chain, x="f32[]")


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20)
