"""Choices between functions: `cond` and `switch`. All functions return the same structure of the same types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlx_core.errors import DtypeError, Fact, RlxError, ShapeError, TraceError, WrongInputCountError
from rlx_core.functions.control.tracing import (
    Function,
    Inputs,
    TracedBody,
    captured_by,
    expect_scalar,
    traced,
    with_arguments,
)
from rlx_core.ir.dtypes import bool_
from rlx_core.ir.graph import Builder, Graph, Value, as_results, building, graph_of
from rlx_core.ops.call import results_of
from rlx_core.ops.comparison import less
from rlx_core.ops.control.conditional import If
from rlx_core.transforms.lifting import as_value, current_builder
from rlx_core.trees.flatten import expect_function, flatten, function_name, same_structure


def cond(pred: Any, true_fn: Function, false_fn: Function, *operands: Any) -> Any:
    """See `rlx.cond`."""
    builder = current_builder("cond")
    for function in (true_fn, false_fn):
        expect_function("cond", function)
    chosen = expect_scalar("cond", "the predicate", as_value(builder, pred))
    if chosen.dtype is not bool_:
        raise DtypeError(f"cond: the predicate must be one bool, not {chosen.type}", hint="compare it: x != 0")
    values, inputs, (then, otherwise) = _branches("cond", builder, [true_fn, false_fn], operands)
    captured = captured_by(then, otherwise)
    outputs = If(then.over(inputs, captured), otherwise.over(inputs, captured))(chosen, *values, *captured)
    return then.results.unflatten(as_results(outputs))


def switch(index: Any, branches: Sequence[Function], *operands: Any) -> Any:
    """See `rlx.switch`."""
    builder = current_builder("switch")
    if not isinstance(branches, list | tuple):
        raise TraceError(f"switch: takes a list of functions, not {type(branches).__name__}")
    if not branches:
        raise WrongInputCountError("switch: there must be at least one branch")
    for function in branches:
        expect_function("switch", function)
    number = expect_scalar("switch", "the index", as_value(builder, index))
    if not number.dtype.is_integer:
        raise DtypeError(f"switch: the index must be one integer, not {number.type}")
    values, inputs, bodies = _branches("switch", builder, branches, operands)
    captured = captured_by(*bodies)
    graphs = [body.over([("index", number.type), *inputs], captured) for body in bodies]
    types = tuple(graphs[0].input_types.values())

    def among(first: int, end: int) -> Graph:
        """Return the graph that selects one of the branches from `first` up to `end`, by bisection."""
        if end - first == 1:
            return graphs[first]
        middle = (first + end) // 2
        choice = If(among(first, middle), among(middle, end))
        return graph_of("switch", types, lambda i, *x: as_results(choice(less(i, middle), i, *x)))

    with building(builder):
        outputs = results_of(among(0, len(graphs)), (number, *values, *map(builder._own, captured)))
    return bodies[0].results.unflatten(outputs)


def _branches(
    what: str, builder: Builder, functions: Sequence[Function], operands: Sequence[Any]
) -> tuple[list[Value], Inputs, list[TracedBody]]:
    """Return the operands as values and as inputs, and each function traced on them; all return the same structure and types.

    Raises:
        ShapeError, DtypeError: The results differ; the error names the result, with the type that each function returns.
    """
    leaves, tree = flatten(tuple(operands), "x")
    values = [as_value(builder, leaf) for leaf in leaves]
    inputs = list(zip(tree.names, (v.type for v in values), strict=True))

    def traced_branch(function: Function) -> TracedBody:
        return traced(function, inputs, lambda leaves: with_arguments(function, *tree.unflatten(leaves)))

    bodies = [traced_branch(function) for function in functions]
    first, name = bodies[0], function_name(functions[0])
    for body, function in zip(bodies[1:], functions[1:], strict=True):
        other = function_name(function)
        same_structure(f"{what}: {name} and {other} return different structures", first.results, body.results)
        for leaf, a, b in zip(first.results.names, first.graph.outputs, body.graph.outputs, strict=True):
            if a.type != b.type:
                error: type[RlxError] = DtypeError if a.shape == b.shape else ShapeError
                raise error(
                    f"{what}: {leaf} is {a.type} in {name} and {b.type} in {other}",
                    Fact(name, a.type, a.node.origin.source),
                    Fact(other, b.type, b.node.origin.source),
                )
    return values, inputs, bodies
