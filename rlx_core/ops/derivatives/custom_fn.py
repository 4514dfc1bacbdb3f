"""A function with a custom derivative: the graphs of the function and of its derivatives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
from attrs import field
from attrs.validators import ge

from rlx_core.errors import FormatError, ShapeError
from rlx_core.ir.apply import op_function
from rlx_core.ir.dims import Dim
from rlx_core.ir.graph import Graph, Value, as_results
from rlx_core.ir.interpret import evaluate_nested
from rlx_core.ir.op import ZERO, Category, Op, Rule, Zero, define_op
from rlx_core.ir.rules import CustomDerivative, nested
from rlx_core.ir.types import TensorType, listed
from rlx_core.ops.arithmetic import multiply
from rlx_core.ops.call import (
    Inlined,
    closed_body,
    expect_operands,
    results_of,
    traced,
    with_batched_outputs,
    with_cotangents_like,
    zeros,
)
from rlx_core.ops.host.effects import are_pure
from rlx_core.ops.samples import Rejected, Sample
from rlx_core.ops.selection import stop_gradient


@define_op
class CustomFn(CustomDerivative, Inlined, Op):
    """A function with a custom derivative: `fwd` is evaluated, the other graphs differentiate it.

    A missing mode is the transpose of the other one; without both, `fwd` is differentiated.

    Shapes:
        fwd: operands    ->    results
        vjp_graph: operands, results, cotangents of the float and complex results    ->    cotangents of the moving operands
        jvp_graph: operands, tangents of the moving operands[, results]    ->    tangents of the float and complex results

    The moving operands are those of float and complex types that are neither in `held` nor among the `unstated`.

    Attributes:
        held: The positions of operands whose derivative is declared to be zero.
        unstated: The number of operands, counted from the last, without a derivative: differentiating by them is an error.

    Raises:
        FormatError: A graph has params, or inputs or outputs of other types than these.
    """

    category: ClassVar[Category] = "boundary"
    fwd: Graph = field(validator=closed_body)
    vjp_graph: Graph | None = field(default=None, validator=closed_body)
    jvp_graph: Graph | None = field(default=None, validator=closed_body)
    held: tuple[int, ...] = ()
    unstated: int = field(default=0, validator=ge(0))

    def __attrs_post_init__(self) -> None:
        x, y = tuple(self.fwd.input_types.values()), self.fwd.output_types
        moving = tuple(x[i] for i in self.moving)
        if self.vjp_graph is not None:
            expect_signature(self, "vjp_graph", self.vjp_graph, [(*x, *y, *carrying(y))], moving)
        if self.jvp_graph is not None:
            forms = [(*x, *moving), (*x, *moving, *y)]
            expect_signature(self, "jvp_graph", self.jvp_graph, forms, carrying(y))

    @property
    def moving(self) -> tuple[int, ...]:
        """Return the positions of the operands that the derivative graphs have tangents and cotangents of."""
        x = tuple(self.fwd.input_types.values())
        stated = range(len(x) - self.unstated)
        return tuple(i for i in stated if x[i].dtype.is_differentiable and i not in self.held)

    @property
    def is_pure(self) -> bool:  # type: ignore[override]  # as its graph is
        return are_pure(self.fwd)

    def infer(self, *operands: TensorType) -> tuple[TensorType, ...]:
        expect_operands(self.fwd, operands)
        return self.fwd.output_types

    def reference(self, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
        return evaluate_nested(self.fwd, arrays)

    def decompose(self, *operands: Value) -> tuple[Value, ...]:
        return results_of(self.fwd, operands)

    # Properties, because the existence of a rule depends on the attributes: `None` means that it is derived.
    @property
    def vjp(self) -> Rule:  # type: ignore[override]
        return None if self.vjp_graph is None and not self._is_refusing else self._pull

    @property
    def jvp(self) -> Rule:  # type: ignore[override]
        return None if self.jvp_graph is None else self._push

    @property
    def _is_refusing(self) -> bool:
        return self.vjp_graph is None and self.jvp_graph is None and self.unstated > 0

    def why_unstated(self) -> tuple[str, str]:
        name = self.fwd.name
        if self._is_refusing:
            return (
                f"custom derivative of {name}: {name} calls itself in its own rule, which is not recorded to this order",
                "write the inner call as what it computes",
            )
        return (
            f"custom derivative of {name}: {name} uses a value of an enclosing function, and its rule states no derivative by it",
            "make the value an argument of the function, or cut it off with rlx.stop_gradient",
        )

    def _pull(self, g: Any, *x: Value, y: Any) -> tuple[Any, ...]:
        results: Iterator[Value] = iter(())
        if self.vjp_graph is not None:
            cotangents = [c for c in as_results(g) if not isinstance(c, Zero)]
            results = iter(results_of(self.vjp_graph, (*x, *as_results(y), *cotangents)))
        return tuple(next(results) if i in self.moving else self._unmoved(i, v) for i, v in enumerate(x))

    def _unmoved(self, position: int, operand: Value) -> Zero | None:
        """Return the derivative by an operand that is not moving: zero, or `None` if it is not defined."""
        is_zero = not operand.dtype.is_differentiable or position in self.held
        return ZERO if is_zero else None

    def _push(self, t: Sequence[Value | Zero], *x: Value, y: Any) -> tuple[Any, ...]:
        results = as_results(y)
        extra_moving = [i for i, c in enumerate(t) if not isinstance(c, Zero) and i not in self.moving]
        if any(self._unmoved(i, x[i]) is None for i in extra_moving):
            return tuple(None if v.dtype.is_differentiable else ZERO for v in results)
        body = self.jvp_graph
        assert body is not None
        inputs: list[Value] = [*x]
        for i in self.moving:
            tangent = t[i]
            inputs.append(zeros(x[i].type) if isinstance(tangent, Zero) else tangent)
        inputs += results
        tangents = iter(results_of(body, inputs[: len(body.inputs)]))
        return tuple(next(tangents) if v.dtype.is_differentiable else ZERO for v in results)

    def batch(self, size: Dim, x: Sequence[Value], is_batched: Sequence[bool]) -> tuple[Value, ...]:
        engine = nested()
        x_flags = tuple(is_batched)
        fwd, y_flags = engine.batch_of(self.fwd, size, x_flags)
        # Every result is batched, because the derivative graphs have one type for each result and its cotangent.
        fwd = with_batched_outputs(fwd, size, y_flags)
        all_y = (True,) * len(y_flags)
        t_flags = tuple(x_flags[i] for i in self.moving)
        g_flags = (True,) * len(carrying(self.fwd.output_types))
        vjp = jvp = None
        if self.vjp_graph is not None:
            body, out_flags = engine.batch_of(self.vjp_graph, size, (*x_flags, *all_y, *g_flags))
            vjp = with_cotangents_like(body, size, out_flags, t_flags)
        if self.jvp_graph is not None:
            flags = (*x_flags, *t_flags, *all_y)[: len(self.jvp_graph.inputs)]
            body, out_flags = engine.batch_of(self.jvp_graph, size, flags)
            jvp = with_batched_outputs(body, size, out_flags)
        return as_results(CustomFn(fwd, vjp, jvp, self.held, self.unstated)(*x))

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
        power = traced("power", lambda x, n: multiply(cube(x), stop_gradient(n)), "f32[3] f32[]")
        slope = traced("slope", lambda x, n, y, g: multiply(cotangent(x, y, g), n), "f32[3] f32[] f32[3] f32[3]")
        yield Sample("f32[3]", "f32[]", fwd=power, vjp_graph=slope, held=(1,), is_smooth=False)
        yield Rejected("f32[4]", fwd=fwd, error=ShapeError, says="x0 must be [3]")
        yield Rejected("f32[3]", fwd=fwd, vjp_graph=jvp, error=FormatError, says="vjp_graph takes 2 inputs, not 3")


custom_fn = op_function(CustomFn)


def carrying(types: Sequence[TensorType]) -> tuple[TensorType, ...]:
    """Return the types that have tangents and cotangents."""
    return tuple(t for t in types if t.dtype.is_differentiable)


def expect_signature(
    op: Op, attribute: str, graph: Graph, forms: Sequence[Sequence[TensorType]], outputs: Sequence[TensorType]
) -> None:
    """Require that a derivative graph takes one of `forms` and returns `outputs`.

    Raises:
        FormatError: It takes or returns other types; the error lists both.
    """
    actual = tuple(graph.input_types.values())
    expected = next((f for f in forms if len(f) == len(actual)), None)
    if expected is None:
        counts = " or ".join(str(len(f)) for f in forms)
        raise FormatError(f"{op.name}: {attribute} takes {len(actual)} inputs, not {counts}")
    if tuple(expected) != actual:
        raise FormatError(f"{op.name}: {attribute} takes ({listed(actual)}), not ({listed(expected)})")
    if graph.output_types != tuple(outputs):
        raise FormatError(f"{op.name}: {attribute} gives ({listed(graph.output_types)}), not ({listed(outputs)})")
