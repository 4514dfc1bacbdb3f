"""Ops that contain a graph: a function call that may be inlined.

A body sees only its operands, which are bound to its inputs in order; it has no params and no captures. A call therefore has
the same meaning everywhere, and every transformation of a body is one of a whole graph.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
from attrs import field

from rlx_core.errors import FormatError, ShapeError, WrongInputCountError
from rlx_core.ir.apply import op_function
from rlx_core.ir.dims import Dim
from rlx_core.ir.graph import Builder, Graph, Value, ambient_builder, building, graph_of
from rlx_core.ir.interpret import evaluate_nested
from rlx_core.ir.op import Category, Op, define_op
from rlx_core.ir.rewrite import inline
from rlx_core.ir.types import TensorType, expect_dtype, expect_shape, spec
from rlx_core.ops.activation import exp
from rlx_core.ops.arithmetic import multiply
from rlx_core.ops.host.effects import are_pure
from rlx_core.ops.samples import Rejected, Sample
from rlx_core.ops.structural import expand, sum_axes
from rlx_core.system.records import frozen


def expect_operands(body: Graph, types: Sequence[TensorType | None]) -> None:
    """Require that operand types match those of the body's inputs.

    Raises:
        WrongInputCountError, ShapeError, DtypeError: Their number or a type differs.
    """
    if len(types) != len(body.inputs):
        raise WrongInputCountError(
            f"{body.name} takes {len(body.inputs)} operands ({', '.join(body.input_types)}), not {len(types)}"
        )
    for (name, expected), actual in zip(body.input_types.items(), types, strict=True):
        if actual is None:
            raise WrongInputCountError(f"operand {name} of {body.name} is required")
        expect_dtype(name, actual, [expected.dtype])
        expect_shape(name, actual, expected.shape)


def results_of(body: Graph, operands: Sequence[Value]) -> tuple[Value, ...]:
    """Return the outputs of `body` on values; its nodes are copied to the builder of the values."""
    builder = ambient_builder()
    assert builder is not None, "rules and decompositions run inside a builder"
    return inline(builder, body, dict(zip(body.input_types, operands, strict=True)))


def closed_body(op: Op, attribute: Any, graph: Any) -> None:
    """Validate that the body is self-contained: params could not be bound from outside."""
    if graph is not None and graph.params:
        names = ", ".join(graph.param_types)
        raise FormatError(
            f"{op.name}: {attribute.name} must have no params, {graph.name} has {names}", hint="make them inputs"
        )


def zeros(type: TensorType) -> Value:
    """Return a zero of `type` in the ambient builder."""
    builder = ambient_builder()
    assert builder is not None, "rules run inside a builder"
    scalar = builder.constant(0, type.dtype)
    return expand(scalar, type.shape) if type.rank else scalar


class Inlined:
    """Marks an op that groups its nodes for the transformations only: a compiled program has them inlined."""

    __slots__ = ()


@frozen(slots=False)
class AppliedGraph(Inlined, Op):
    """A graph applied to operands: the base of ops that are equivalent to the inlined nodes of `body`."""

    category: ClassVar[Category] = "boundary"
    body: Graph = field(validator=closed_body)

    @property
    def is_pure(self) -> bool:  # type: ignore[override]  # as its graph is
        return are_pure(self.body)

    def infer(self, *operands: TensorType) -> tuple[TensorType, ...]:
        expect_operands(self.body, operands)
        return self.body.output_types

    def reference(self, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
        return evaluate_nested(self.body, arrays)

    def decompose(self, *operands: Value) -> tuple[Value, ...]:
        return results_of(self.body, operands)


@define_op
class Call(AppliedGraph):
    """A graph applied to operands: equivalent to its inlined nodes, grouped under one name.

    Shapes:
        operands: the inputs of `body`    ->    results: its outputs
    """

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        body = traced("scaled", lambda x, w: (multiply(x, w), sum_axes(multiply(x, x), axes=(0,))), "f32[3, 2] f32[2]")
        outer = traced("outer", lambda x, w: cls(body)(x, exp(w)), "f32[3, 2] f32[2]")
        yield Sample("f32[3, 2]", "f32[2]", body=body)
        yield Sample("f32[3, 2]", "f32[2]", body=outer)
        yield Rejected("f32[3, 2]", body=body, error=WrongInputCountError, says="takes 2 operands")
        yield Rejected("f32[3, 2]", "f32[3]", body=body, error=ShapeError, says="x1 must be [2]")


call = op_function(Call)


def with_batched_outputs(body: Graph, size: Dim, flags: Sequence[bool]) -> Graph:
    """Return the body with outputs that are the same for all examples repeated."""
    return with_cotangents_like(body, size, flags, (True,) * len(flags))


def with_cotangents_like(body: Graph, size: Dim, actual: Sequence[bool], expected: Sequence[bool]) -> Graph:
    """Return the body with outputs batched as in `expected`: repeated, or summed over the examples that share an operand."""
    if tuple(actual) == tuple(expected):
        return body
    builder = Builder(body.name)
    with building(builder):
        leaves = {name: builder.input(name, type) for name, type in body.input_types.items()}
        outputs = list(inline(builder, body, leaves))
        for i, (is_batched, should_be) in enumerate(zip(actual, expected, strict=True)):
            if is_batched and not should_be:
                outputs[i] = sum_axes(outputs[i], axes=(0,))
            elif should_be and not is_batched:
                outputs[i] = expand(outputs[i], (size, *outputs[i].shape))
    return builder.finish(outputs)


def traced(name: str, function: Callable[..., Any], types: str) -> Graph:
    """Return the graph of a function of values; its inputs are `x0`, `x1`, … of the `types` listed."""
    return graph_of(name, [spec(t) for t in re.findall(r"\w+\[[^]]*\]", types)], function)
