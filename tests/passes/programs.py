"""Programs that fusion is tried on, and how a fused program is held against the one it was made from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from attrs import frozen

from rlx_core.ir.graph import Builder, Graph, Param, Value, as_results, building
from rlx_core.ir.interpret import interpret
from rlx_core.ir.rewrite import inline
from rlx_core.ir.types import spec
from rlx_core.ir.verify import IrStage, check
from rlx_core.ops.samples import draw
from rlx_core.passes.engine.base import Context, Pass, Result

NO_TARGET = Context()


@frozen
class Row:
    """A program and what a pass makes of it: the ops afterwards, or (for a near miss) why it is left alone."""

    label: str
    each: Pass
    make: Callable[..., Any]
    types: dict[str, str]
    becomes: tuple[str, ...] = ()
    params: dict[str, str] | None = None
    kind: str | None = None

    @property
    def graph(self) -> Graph:
        return program(self.make, params=self.params, **self.types)

    def __str__(self) -> str:
        return self.label


def program(make: Callable[..., Any], *, params: Mapping[str, str] | None = None, **inputs: str) -> Graph:
    """A program of named inputs and params, in the order of the arguments."""
    builder = Builder("program")
    values = {n: builder.input(n, spec(t)) for n, t in inputs.items()}
    values |= {n: builder.param(n, spec(t)) for n, t in (params or {}).items()}
    with building(builder):
        made = as_results(make(**values))
    return builder.finish(made)


def ops(graph: Graph) -> list[str]:
    """The short names of the ops in program order."""
    return [n.op.name.removeprefix("rlx.") for n in graph.nodes if not n.is_leaf]


def run(each: Pass | Sequence[Pass], graph: Graph, context: Context = NO_TARGET) -> Result:
    """The result of a pass (or of several), verified after each."""
    total = Result.unchanged(graph)
    for one in [each] if isinstance(each, Pass) else each:
        step = one.run(total.graph, context)
        check(step.graph, IrStage.MIR)
        total = total.then(step)
    return total


def arrays(graph: Graph, seed: int = 0) -> dict[str, np.ndarray]:
    """Values for every input and param; the same for equal signatures."""
    rng = np.random.default_rng(seed)
    return {n: draw(rng, t, -2.0, 2.0) for n, t in {**graph.input_types, **graph.param_types}.items()}


def outputs(graph: Graph, fed: Mapping[str, np.ndarray], mode: Any = "wide") -> tuple[np.ndarray, ...]:
    params = {n.op.label for n in graph.nodes if isinstance(n.op, Param)}
    return interpret(
        graph,
        {k: v for k, v in fed.items() if k not in params},
        {k: v for k, v in fed.items() if k in params},
        mode=mode,
    )


def assert_equal_numbers(before: Graph, after: Graph, *, rtol: float = 1e-11, atol: float = 1e-12) -> None:
    """Both programs in float64: rewriting a formula of ten operations on numbers near 1 moves a few last bits, 1e-15 each."""
    fed = arrays(before)
    for left, right in zip(outputs(before, fed), outputs(after, fed), strict=True):
        np.testing.assert_allclose(right, left, rtol=rtol, atol=atol)


def inner_values(graph: Graph) -> list[Value]:
    """Values that a fusion may make disappear."""
    return [n.results[0] for n in graph.nodes if not n.is_leaf and n.results[0] not in graph.output_set]


def with_output(graph: Graph, extra: Value) -> Graph:
    """The program with one more output."""
    builder = Builder(graph.name)
    widened = Graph(graph.name, graph.nodes, (*graph.outputs, extra), graph.guards)
    return builder.finish(inline(builder, widened, {}))


def with_second_user(graph: Graph, extra: Value) -> Graph:
    """The program with one more output that is computed from `extra`."""
    builder = Builder(graph.name)
    *kept, value = inline(builder, Graph(graph.name, graph.nodes, (*graph.outputs, extra), graph.guards), {})
    with building(builder):
        used = value == value if value.dtype.name == "bool" else value + value
    return builder.finish([*kept, used])
