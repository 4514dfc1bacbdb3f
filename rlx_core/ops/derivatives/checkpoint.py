"""Rematerialisation: a part of a program whose values are recomputed in the reverse derivative instead of saved."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
from attrs import field
from attrs.validators import ge

from rlx_core.errors import ConfigError, WrongInputCountError
from rlx_core.ir.apply import op_function
from rlx_core.ir.dims import Dim
from rlx_core.ir.graph import (
    Builder,
    Constant,
    Graph,
    Input,
    Node,
    Param,
    Value,
    ambient_builder,
    as_results,
    building,
    leaf_name,
)
from rlx_core.ir.op import ZERO, Category, Op, Zero, define_op
from rlx_core.ir.rewrite import rebuild
from rlx_core.ir.rules import Replicated, nested
from rlx_core.ir.strides import Strides
from rlx_core.ir.types import TensorType
from rlx_core.ops.activation import exp, tanh
from rlx_core.ops.arithmetic import multiply
from rlx_core.ops.call import AppliedGraph, Inlined, closed_body, results_of, traced
from rlx_core.ops.samples import Rejected, Sample
from rlx_core.ops.selection import StraightThrough
from rlx_core.ops.structural import all_batched


@define_op
class Later(Op):
    """An optimisation barrier: its readers run after all of `after`, and are never merged with readers of `x` itself.

    Shapes:
        x: t[...]    after: any    ->    y: like x
    """

    category: ClassVar[Category] = "movement"
    is_barrier: ClassVar[bool] = True

    def infer(self, x: TensorType, *after: TensorType) -> TensorType:
        return x

    def reference(self, x: np.ndarray, *after: np.ndarray) -> np.ndarray:
        return x

    def vjp(self, g: Value, x: Value, *after: Value, y: Value) -> tuple[Value | Zero, ...]:
        return g, *[ZERO] * len(after)

    def jvp(self, t: Sequence[Value | Zero], x: Value, *after: Value, y: Value) -> Any:
        return t[0] if isinstance(t[0], Zero) else value_after(t[0], *after)

    def batch(self, size: Dim, x: Sequence[Value], is_batched: Sequence[bool]) -> Any:
        first = x[0] if is_batched[0] else all_batched(size, x[:1], [False])[0]
        return value_after(first, *x[1:])

    def view(self, x: TensorType, strides: Strides, offset: int) -> tuple[int, Strides]:
        return offset, strides

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        yield Sample("f32[3]")
        yield Sample("f32[3]", "i64[2, 2]", "f32[3]")
        yield Sample("f16[2, 2]", "f32[]")


value_after = op_function(Later)


@define_op
class Checkpoint(AppliedGraph):
    """A graph applied to operands, whose reverse derivative recomputes the intermediate values that it needs.

    Shapes:
        operands: the inputs of `body`    ->    results: its outputs

    Attributes:
        body: The graph.
        saved: The number of its outputs, counted from the last, that are values saved for the derivative.
    """

    body: Graph = field(validator=closed_body)
    saved: int = field(default=0, validator=ge(0))

    def __attrs_post_init__(self) -> None:
        if self.saved > len(self.body.outputs):
            raise ConfigError(
                f"{self.title}: saved is {self.saved}, and {self.body.name} has {len(self.body.outputs)} outputs"
            )

    def vjp(self, g: Any, *x: Value, y: Any) -> tuple[Value | Zero, ...]:
        wrt = [name for name, type in self.body.input_types.items() if type.dtype.is_differentiable]
        cotangents = [c for c in as_results(g) if not isinstance(c, Zero)]
        residuals = as_results(y)[len(self.body.outputs) - self.saved :]
        pull = with_values_given(nested().vjp_of(with_values_marked(self.body, self.saved), wrt))
        again = [v if isinstance(v.node.op, Param | Constant) else value_after(v, *cotangents) for v in x]
        results = iter(results_of(pull, (*again, *residuals, *cotangents)))
        return tuple(next(results) if v.dtype.is_differentiable else ZERO for v in x)

    def batch(self, size: Dim, x: Sequence[Value], is_batched: Sequence[bool]) -> tuple[Value | Replicated, ...]:
        body, flags = nested().batch_of(self.body, size, tuple(is_batched))
        results = as_results(Checkpoint(body, self.saved)(*x))
        return tuple(v if flag else Replicated(v) for v, flag in zip(results, flags, strict=True))

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        def layer(x: Any, w: Any) -> Any:
            product = multiply(x, w)
            return tanh(exp(product)), product

        body = traced("layer", layer, "f32[3, 2] f32[2]")
        yield Sample("f32[3, 2]", "f32[2]", body=body, low=-1, high=1)
        yield Sample("f32[3, 2]", "f32[2]", body=body, saved=1, low=-1, high=1)
        yield Rejected("f32[3, 2]", body=body, error=WrongInputCountError, says="takes 2 operands")
        yield Rejected("f32[3, 2]", "f32[2]", body=body, saved=3, error=ConfigError, says="has 2 outputs")


checkpoint = op_function(Checkpoint)

_SAVED, _COMPUTED = "saved ", "computed "
"""Prefixes of the names of inputs with saved values of a body, and of the nodes that compute them; other names have no spaces."""


def with_values_marked(body: Graph, saved: int) -> Graph:
    """Return the body with one more input per saved value, which replaces the value in its readers and has its derivative."""
    if not saved:
        return body
    builder = Builder(body.name)
    values = {v: builder.input(leaf_name(v), v.type) for v in body.inputs}
    last = body.outputs[len(body.outputs) - saved :]
    marks = {v: builder.input(f"{_SAVED}{k}", v.type) for k, v in enumerate(last)}
    names = {v.node: f"{_COMPUTED}{k}" for k, v in enumerate(last) if len(v.node.results) == 1}
    with building(builder):
        for node in body.nodes:
            if isinstance(node.op, Input):
                continue
            operands = [None if v is None else values[v] for v in node.operands]
            copies = builder.emit(node.op, operands, origin=node.origin, name=names.get(node))
            for old, new in zip(node.results, copies, strict=True):
                values[old] = standing_for(marks[old], new) if old in marks else new
    return builder.finish(values[v] for v in body.outputs)


def standing_for(marker: Value, computed: Value) -> Any:
    """Return a given value in place of a computed one, with the derivatives of the latter."""
    return StraightThrough()(marker, computed) if computed.dtype.is_differentiable else marker


def with_values_given(pull: Graph) -> Graph:
    """Return the derivative of such a body, which reads the inputs in place of recomputing the values."""
    inputs: dict[str, Value] = {}

    def given(node: Node, operands: tuple[Value | None, ...]) -> Value | None:
        builder = ambient_builder()
        assert builder is not None, "a rebuild has a builder"
        if isinstance(node.op, Input):
            input_value = builder.input(node.op.label, node.op.type)
            if node.op.label.startswith(_SAVED):
                inputs[node.op.label.removeprefix(_SAVED)] = input_value
            return input_value
        if node.name is not None and node.name.startswith(_COMPUTED):
            return inputs[node.name.removeprefix(_COMPUTED)]
        source = operands[0] if isinstance(node.op, StraightThrough) else None
        return source if any(source is each for each in inputs.values()) else None

    return rebuild(pull, given)[0]


@define_op
class CheckpointName(Inlined, Op):
    """`x`, with a name by which a policy of `rlx.checkpoint` may select it.

    Shapes:
        x: t[...]    ->    y: like x
    """

    category: ClassVar[Category] = "movement"
    label: str

    def infer(self, x: TensorType) -> TensorType:
        return x

    def reference(self, x: np.ndarray) -> np.ndarray:
        return x

    def decompose(self, x: Value) -> Value:
        return x

    def view(self, x: TensorType, strides: Strides, offset: int) -> tuple[int, Strides]:
        return offset, strides

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        yield Sample("f32[3]", label="hidden")
        yield Sample("i64[]", label="count")
