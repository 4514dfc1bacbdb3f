"""Whole programs that take bytes over, shared among threads: the bits of the plan in which nothing lies where something was.

What is given away differs from run to run: nothing, one argument, all of them, with an output as the next value or without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
import rlx_cpu.plugin
from rlx_core import nn
from rlx_core.ir.graph import Graph
from rlx_core.ops.activation import sqrt
from rlx_core.ops.batch_norm import BatchNorm
from rlx_core.ops.cumulative import Cumsum, LinearRecurrence
from rlx_core.ops.dynamic import dynamic_update_slice
from rlx_core.ops.movement import narrow
from rlx_core.ops.samples import draw
from rlx_core.ops.scatter import Scatter
from rlx_core.pipeline.compile import compile_graph
from rlx_core.plugins import PluginHost
from rlx_core.testing.fuzz import Objects, complaint
from rlx_core.testing.generate import Generated
from rlx_cpu import fuzz_setups
from rlx_cpu.native.sharing import everything_is_shared

HOST = PluginHost([rlx_cpu.plugin])
SETUPS = tuple(s for s in fuzz_setups.FUZZ_SETUPS if "2 threads" in (s.repeats, s.name))


def momentum(w: Any, m: Any, g: Any) -> Any:
    m = 0.9 * m + g
    return w - 0.1 * m, m


def adam(w: Any, m: Any, v: Any, g: Any) -> Any:
    m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g
    return w - 0.1 * m / (sqrt(v) + 1e-6), m, v


def clipped(w: Any, g: Any, norm: Any) -> Any:
    size = rlx.sum(g * g)
    return w - g / rlx.maximum(size, norm), norm + size


def running_statistics(x: Any, gamma: Any, beta: Any, mean: Any, var: Any) -> Any:
    found = BatchNorm(axis=1, eps=1e-5, momentum=0.1)(x, gamma, beta, mean, var)
    return (found[0], *found[-2:])


def residual(h: Any, gamma: Any, w: Any, v: Any) -> Any:
    for _ in range(2):
        h = h + nn.gelu(nn.rms_norm(h, gamma) @ w) @ v
    return h


def two_norms(x: Any, y: Any, gamma: Any) -> Any:
    both = x + y
    normed = nn.layer_norm(both, gamma)
    return both * 2.0, normed, rlx.max(both, axis=1), rlx.sum(normed, axis=1)


def softmaxed(x: Any, y: Any) -> Any:
    share = nn.softmax(x)
    return share, rlx.sum(share * y, axis=1), nn.softmax(y, axis=0)


def trained(w: Any, v: Any, x: Any, y: Any) -> Any:
    def loss(w: Any, v: Any) -> Any:
        return rlx.mean((nn.gelu(x @ w) @ v - y) ** 2)

    value, (dw, dv) = rlx.value_and_grad(loss, (0, 1))(w, v)
    return w - 0.1 * dw, v - 0.1 * dv, value


def table(t: Any, updates: Any, at: Any) -> Any:
    return Scatter("add")(t, updates, at), rlx.take(t, at, axis=0) * updates


def cached(cache: Any, rows: Any, at: Any) -> Any:
    cache = dynamic_update_slice(cache, rows, at, np.array(0))
    return cache, nn.softmax(rows @ cache.T)


def running(a: Any, b: Any) -> Any:
    sums = Cumsum(0)(a)
    return LinearRecurrence(1)(nn.tanh(sums), b), sums + b


def joined(a: Any, b: Any, c: Any) -> Any:
    both = rlx.concat([nn.tanh(a), rlx.exp(-b * b)], axis=0)
    return narrow(both, axis=0, start=20, length=40) + c, rlx.concat([a + c, b], axis=0) + both


def exchanged(a: Any, b: Any) -> Any:
    return b * 2.0, a + 1.0


def transposed(a: Any, b: Any) -> Any:
    return a + b.T, a.T * b


F = "f32[40, 67]"
S = "f32[67, 67]"
PROGRAMS: dict[Callable[..., Any], tuple[str, ...]] = {
    momentum: (F, F, F),
    adam: ("f32[5003]",) * 4,
    clipped: (F, F, "f32[]"),
    running_statistics: ("f32[6, 40, 9]", *("f32[40]",) * 4),
    residual: (F, "f32[67]", "f32[67, 130]", "f32[130, 67]"),
    two_norms: (F, F, "f32[67]"),
    softmaxed: (F, F),
    trained: ("f32[67, 33]", "f32[33, 5]", F, "f32[40, 5]"),
    table: (F, "f32[9, 67]", "i64[9]"),
    cached: (F, "f32[3, 67]", "i64[]"),
    running: (F, F),
    joined: (F, F, F),
    exchanged: (F, F),
    transposed: (S, S),
}


def donations(graph: Graph) -> Iterator[dict[str, int | None]]:
    """What may be given away: one argument, or all of them, for outputs of their type or for whatever comes."""
    names = list(graph.input_types)
    for chosen in [[], *([name] for name in names), names]:
        continued: dict[str, int | None] = {}
        for name in chosen:
            fitting = [i for i, v in enumerate(graph.outputs) if v.type == graph.input_types[name]]
            continued[name] = next((i for i in fitting if i not in continued.values()), None)
        yield continued
        if any(index is not None for index in continued.values()):
            yield dict.fromkeys(chosen)


@pytest.mark.medium
@pytest.mark.parametrize(("function", "specs"), PROGRAMS.items(), ids=lambda x: getattr(x, "__name__", ""))
def test_a_program_in_place_gives_the_bits_of_the_one_apart(
    function: Callable[..., Any], specs: tuple[str, ...]
) -> None:
    graph = rlx.trace(function, *map(rlx.spec, specs))
    rng = np.random.default_rng(0)
    arrays = {name: draw(rng, type, 0.25, 2.0) for name, type in graph.input_types.items()}
    objects = Objects()  # what is given away changes where results lie, and hardly ever code
    for given in donations(graph):
        with everything_is_shared():
            said = complaint(Generated(graph, arrays, given), SETUPS, host=HOST, objects=objects)
        assert said is None, f"{given}: {said}"


@pytest.mark.medium
def test_every_program_takes_something_over() -> None:
    for function, specs in PROGRAMS.items():
        graph = rlx.trace(function, *map(rlx.spec, specs))
        plans = [compile_graph(graph, target="cpu", host=HOST, donations=given).lir for given in donations(graph)]
        assert any(step.in_place for plan in plans for step in plan.steps), function.__name__
