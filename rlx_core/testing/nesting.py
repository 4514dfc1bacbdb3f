"""Nesting of a part of a random program in a loop or a conditional that changes none of its values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlx_core.ir.graph import Builder, Graph, Value, as_results, building
from rlx_core.ir.rewrite import inline
from rlx_core.ops.control.conditional import If
from rlx_core.ops.control.loop import While
from rlx_core.ops.control.scan import Scan
from rlx_core.ops.movement import Narrow
from rlx_core.ops.structural import expand, reshape

Move = Callable[[Sequence[Value]], Any]
"""A function from the values of its operands to its results."""

STEPS = 3


def nested(rng: np.random.Generator, move: Move) -> Move:
    """The move inside a choice that takes it, in a loop over equal steps, or in one that ends after its first round."""
    kind = rng.choice(["choice", "scan", "while"])
    turns = rng.integers(0, 2, 64).astype(bool)

    def made(values: Sequence[Value]) -> Any:
        body = _body(move, values)
        if not body.outputs:
            return ()
        if kind == "choice":
            return If(body, body)(_constant(values, bool(turns[0])), *values)
        if kind == "scan":
            return _scanned(body, values, turns)
        return _once(body, values, STEPS if turns[1] else None)

    return made


def _body(move: Move, values: Sequence[Value]) -> Graph:
    builder = Builder("body")
    with building(builder):
        results = as_results(move([builder.input(f"x{i}", v.type) for i, v in enumerate(values)]))
    return builder.finish(results)


def _constant(values: Sequence[Value], data: object) -> Value:
    builder = values[0].node.owner
    assert isinstance(builder, Builder), "values of a graph being made"
    return builder.constant(np.asarray(data))


def _scanned(body: Graph, values: Sequence[Value], is_stacked: np.ndarray) -> tuple[Value, ...]:
    """Return the last of some equal steps; operands are constants of the loop, or the same at each step."""
    order = sorted(range(len(values)), key=lambda i: bool(is_stacked[i]))
    consts = sum(not is_stacked[i] for i in order)
    builder = Builder("step")
    with building(builder):
        inputs = {i: builder.input(f"x{i}", values[i].type) for i in order}
        results = _inlined(builder, body, [inputs[i] for i in range(len(values))])
    step = builder.finish(results)
    operands = [expand(values[i], (STEPS, *values[i].shape)) if is_stacked[i] else values[i] for i in order]
    outputs = as_results(Scan(step, 0, consts, STEPS)(*operands))
    return tuple(reshape(Narrow(0, STEPS - 1, 1)(y), y.shape[1:]) for y in outputs)


def _once(body: Graph, values: Sequence[Value], limit: int | None) -> tuple[Value, ...]:
    """One round of a loop whose carries begin as zeros: a count, and the results; with a bound for reverse mode, or without."""
    builder = values[0].node.owner
    assert isinstance(builder, Builder), "values of a graph being made"
    begin = [builder.constant(np.zeros(t.static_shape), t.dtype) for t in body.output_types]
    types = [*(t for t in body.output_types), *(v.type for v in values)]

    def graph(name: str, results: Callable[[Builder, Value, list[Value]], Sequence[Value]]) -> Graph:
        inner = Builder(name)
        with building(inner):
            count, *arguments = [inner.input("n", first.type), *(inner.input(f"x{i}", t) for i, t in enumerate(types))]
            outputs = results(inner, count, arguments[len(begin) :])
        return inner.finish(outputs)

    first = builder.constant(np.int32(0))
    cond = graph("is_first", lambda b, n, x: [n < 1])
    step = graph("round", lambda b, n, x: [n + 1, *_inlined(b, body, x)])
    return as_results(While(cond, step, 1 + len(begin), limit)(first, *begin, *values))[1:]


def _inlined(builder: Builder, body: Graph, values: Sequence[Value]) -> tuple[Value, ...]:
    return inline(builder, body, dict(zip(body.input_types, values, strict=True)))
