"""Ops that hold a graph: a function call that may be inlined, and a function whose derivative its author states.

A body sees only its operands, which are bound to its inputs in order; it has no params and captures nothing. So a call
means the same wherever it stands, and every transformation of a body is one of a whole graph.
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
from rlx_core.ir.graph import Builder, Graph, Value, ambient_builder, as_results, building
from rlx_core.ir.interpret import evaluate_nested
from rlx_core.ir.op import ZERO, Category, Op, Rule, Zero, define_op
from rlx_core.ir.rewrite import inline
from rlx_core.ir.rules import CustomDerivative, nested
from rlx_core.ir.types import TensorType, expect_dtype, expect_shape, listed, spec
from rlx_core.ops.activation import exp
from rlx_core.ops.arithmetic import multiply
from rlx_core.ops.samples import Rejected, Sample
from rlx_core.ops.structural import expand, sum_axes

__all__ = ["OPS", "Call", "CustomFn", "call", "custom_fn", "custom_jvp", "custom_vjp"]


def expect_operands(body: Graph, types: Sequence[TensorType | None]) -> None:
    """Require that operand types are those of the body's inputs.

    Raises:
        WrongInputCountError, ShapeError, DtypeError: There are more or fewer, or one differs.
    """
    if len(types) != len(body.inputs):
        raise WrongInputCountError(
            f"{body.name} takes {len(body.inputs)} operands ({', '.join(body.input_types)}), not {len(types)}"
        )
    for (name, wanted), found in zip(body.input_types.items(), types, strict=True):
        if found is None:
            raise WrongInputCountError(f"operand {name} of {body.name} is required")
        expect_dtype(name, found, [wanted.dtype])
        expect_shape(name, found, wanted.shape)


def results_of(body: Graph, operands: Sequence[Value]) -> tuple[Value, ...]:
    """The outputs of `body` on values, its nodes copied to where the values are computed."""
    builder = ambient_builder()
    assert builder is not None, "rules and decompositions run inside a builder"
    return inline(builder, body, dict(zip(body.input_types, operands, strict=True)))


def closed_body(op: Op, attribute: Any, graph: Any) -> None:
    """A validator: the body is complete in itself, because params could not be bound from outside."""
    if graph is not None and graph.params:
        names = ", ".join(graph.param_types)
        raise FormatError(
            f"{op.name}: {attribute.name} must have no params, {graph.name} has {names}", hint="make them inputs"
        )


def zeros(type: TensorType) -> Value:
    """A zero of `type` in the ambient builder."""
    builder = ambient_builder()
    assert builder is not None, "rules run inside a builder"
    scalar = builder.constant(0, type.dtype)
    return expand(scalar, type.shape) if type.rank else scalar


@define_op
class Call(Op):
    """A graph applied to operands: the same as its nodes in place, kept together under one name.

    Shapes:
        operands: the inputs of `body`    ->    results: its outputs
    """

    category: ClassVar = "boundary"
    body: Graph = field(validator=closed_body)

    def infer(self, *operands: TensorType) -> tuple[TensorType, ...]:
        expect_operands(self.body, operands)
        return self.body.output_types

    def reference(self, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
        return evaluate_nested(self.body, arrays)

    def decompose(self, *operands: Value) -> tuple[Value, ...]:
        return results_of(self.body, operands)

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        body = traced("scaled", lambda x, w: (multiply(x, w), sum_axes(multiply(x, x), axes=(0,))), "f32[3, 2] f32[2]")
        outer = traced("outer", lambda x, w: cls(body)(x, exp(w)), "f32[3, 2] f32[2]")
        yield Sample("f32[3, 2]", "f32[2]", body=body)
        yield Sample("f32[3, 2]", "f32[2]", body=outer)
        yield Rejected("f32[3, 2]", body=body, error=WrongInputCountError, says="takes 2 operands")
        yield Rejected("f32[3, 2]", "f32[3]", body=body, error=ShapeError, says="x1 must be [2]")


call = op_function(Call)


@define_op
class CustomFn(CustomDerivative, Op):
    """A function whose derivative is stated: `fwd` is evaluated, the other graphs differentiate it.

    A mode that is not given is the transpose of the one that is; with neither, `fwd` is differentiated.

    Shapes:
        fwd: operands    ->    results
        vjp_graph: operands, results, cotangents of the float and complex results    ->    cotangents of such operands
        jvp_graph: operands, tangents of the float and complex operands[, results]    ->    tangents of such results

    Raises:
        FormatError: A graph has params, or inputs or outputs of other types than these.
    """

    category: ClassVar[Category] = "boundary"
    fwd: Graph = field(validator=closed_body)
    vjp_graph: Graph | None = field(default=None, validator=closed_body)
    jvp_graph: Graph | None = field(default=None, validator=closed_body)

    def __attrs_post_init__(self) -> None:
        x, y = tuple(self.fwd.input_types.values()), self.fwd.output_types
        if self.vjp_graph is not None:
            expect_signature(self, "vjp_graph", self.vjp_graph, [(*x, *y, *carrying(y))], carrying(x))
        if self.jvp_graph is not None:
            forms = [(*x, *carrying(x)), (*x, *carrying(x), *y)]
            expect_signature(self, "jvp_graph", self.jvp_graph, forms, carrying(y))

    def infer(self, *operands: TensorType) -> tuple[TensorType, ...]:
        expect_operands(self.fwd, operands)
        return self.fwd.output_types

    def reference(self, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
        return evaluate_nested(self.fwd, arrays)

    def decompose(self, *operands: Value) -> tuple[Value, ...]:
        return results_of(self.fwd, operands)

    # The slots are properties because whether there is a rule depends on the attributes: `None` means "derive it".
    @property
    def vjp(self) -> Rule:  # type: ignore[override]
        return None if self.vjp_graph is None else self._pull

    @property
    def jvp(self) -> Rule:  # type: ignore[override]
        return None if self.jvp_graph is None else self._push

    def _pull(self, g: Any, *x: Value, y: Any) -> tuple[Any, ...]:
        assert self.vjp_graph is not None
        cotangents = [c for c in as_results(g) if not isinstance(c, Zero)]
        found = iter(results_of(self.vjp_graph, (*x, *as_results(y), *cotangents)))
        return tuple(next(found) if v.dtype.is_differentiable else ZERO for v in x)

    def _push(self, t: Sequence[Value | Zero], *x: Value, y: Any) -> tuple[Any, ...]:
        body = self.jvp_graph
        assert body is not None
        tangents = [
            zeros(v.type) if isinstance(c, Zero) else c for v, c in zip(x, t, strict=True) if v.dtype.is_differentiable
        ]
        results = as_results(y)
        given = (*x, *tangents, *results)
        found = iter(results_of(body, given[: len(body.inputs)]))
        return tuple(next(found) if v.dtype.is_differentiable else ZERO for v in results)

    def batch(self, size: Dim, x: Sequence[Value], is_batched: Sequence[bool]) -> tuple[Value, ...]:
        engine = nested()
        x_flags = tuple(is_batched)
        fwd, y_flags = engine.batch_of(self.fwd, size, x_flags)
        # Every result is made batched, because the derivative graphs see results and cotangents through one type each.
        fwd = with_batched_outputs(fwd, size, y_flags)
        all_y = (True,) * len(y_flags)
        t_flags = tuple(b for b, v in zip(x_flags, x, strict=True) if v.dtype.is_differentiable)
        g_flags = (True,) * len(carrying(self.fwd.output_types))
        vjp = jvp = None
        if self.vjp_graph is not None:
            body, found = engine.batch_of(self.vjp_graph, size, (*x_flags, *all_y, *g_flags))
            vjp = with_cotangents_like(body, size, found, t_flags)
        if self.jvp_graph is not None:
            flags = (*x_flags, *t_flags, *all_y)[: len(self.jvp_graph.inputs)]
            body, found = engine.batch_of(self.jvp_graph, size, flags)
            jvp = with_batched_outputs(body, size, found)
        return as_results(CustomFn(fwd, vjp, jvp)(*x))

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        def cube(x: Any) -> Any:
            return multiply(x, multiply(x, x))

        def cotangent(x: Any, y: Any, g: Any) -> Any:
            return multiply(g, multiply(3.0, multiply(x, x)))

        def tangent(x: Any, t: Any) -> Any:
            return multiply(t, multiply(3.0, multiply(x, x)))

        fwd = traced("cube", cube, "f32[3]")
        vjp, jvp = traced("cube_vjp", cotangent, "f32[3] f32[3] f32[3]"), traced("cube_jvp", tangent, "f32[3] f32[3]")
        yield Sample("f32[3]", fwd=fwd)
        yield Sample("f32[3]", fwd=fwd, vjp_graph=vjp)
        yield Sample("f32[3]", fwd=fwd, jvp_graph=jvp)
        yield Sample("f32[3]", fwd=fwd, vjp_graph=vjp, jvp_graph=jvp)
        yield Rejected("f32[4]", fwd=fwd, error=ShapeError, says="x0 must be [3]")
        yield Rejected("f32[3]", fwd=fwd, vjp_graph=jvp, error=FormatError, says="vjp_graph takes 2 inputs, not 3")


custom_fn = op_function(CustomFn)


def carrying(types: Sequence[TensorType]) -> tuple[TensorType, ...]:
    """The types that have tangents and cotangents."""
    return tuple(t for t in types if t.dtype.is_differentiable)


def expect_signature(
    op: Op, attribute: str, graph: Graph, forms: Sequence[Sequence[TensorType]], outputs: Sequence[TensorType]
) -> None:
    """Require that a derivative graph takes one of `forms` and gives `outputs`.

    Raises:
        FormatError: It takes or gives other types; both are listed.
    """
    found = tuple(graph.input_types.values())
    wanted = next((f for f in forms if len(f) == len(found)), None)
    if wanted is None:
        counts = " or ".join(str(len(f)) for f in forms)
        raise FormatError(f"{op.name}: {attribute} takes {len(found)} inputs, not {counts}")
    if tuple(wanted) != found:
        raise FormatError(f"{op.name}: {attribute} takes ({listed(found)}), not ({listed(wanted)})")
    if graph.output_types != tuple(outputs):
        raise FormatError(f"{op.name}: {attribute} gives ({listed(graph.output_types)}), not ({listed(outputs)})")


def with_batched_outputs(body: Graph, size: Dim, flags: Sequence[bool]) -> Graph:
    """The body with outputs that are the same for all examples repeated."""
    return with_cotangents_like(body, size, flags, (True,) * len(flags))


def with_cotangents_like(body: Graph, size: Dim, found: Sequence[bool], wanted: Sequence[bool]) -> Graph:
    """The body with each output batched as `wanted` says: repeated, or summed over the examples that share an operand."""
    if tuple(found) == tuple(wanted):
        return body
    builder = Builder(body.name)
    with building(builder):
        leaves = {name: builder.input(name, type) for name, type in body.input_types.items()}
        outputs = list(inline(builder, body, leaves))
        for i, (is_batched, should_be) in enumerate(zip(found, wanted, strict=True)):
            if is_batched and not should_be:
                outputs[i] = sum_axes(outputs[i], axes=(0,))
            elif should_be and not is_batched:
                outputs[i] = expand(outputs[i], (size, *outputs[i].shape))
    return builder.finish(outputs)


def custom_vjp(fwd: Graph, vjp: Graph) -> CustomFn:
    """The function `fwd`, differentiated in reverse by `vjp` (see `CustomFn` for what it takes and gives)."""
    return CustomFn(fwd, vjp_graph=vjp)


def custom_jvp(fwd: Graph, jvp: Graph) -> CustomFn:
    """The function `fwd`, differentiated forwards by `jvp` (see `CustomFn` for what it takes and gives)."""
    return CustomFn(fwd, jvp_graph=jvp)


def traced(name: str, function: Callable[..., Any], types: str) -> Graph:
    """The graph of a function of values; its inputs are `x0`, `x1`, … of the `types` listed."""
    builder = Builder(name)
    with building(builder):
        found = [spec(t) for t in re.findall(r"\w+\[[^]]*\]", types)]
        operands = [builder.input(f"x{i}", t) for i, t in enumerate(found)]
        results = as_results(function(*operands))
    return builder.finish(results)


OPS = (Call, CustomFn)
