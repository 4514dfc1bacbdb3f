"""`If`: one of two graphs, selected by a value that is known at run time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np
from attrs import field

from rlx_core.errors import DtypeError, ShapeError, WrongInputCountError
from rlx_core.ir.dims import Dim
from rlx_core.ir.dtypes import bool_
from rlx_core.ir.graph import Graph, Value, as_results
from rlx_core.ir.op import ZERO, Op, Zero, define_op
from rlx_core.ir.rules import Replicated, nested
from rlx_core.ir.types import TensorType, expect_dtype, expect_shape
from rlx_core.ops.activation import exp, log
from rlx_core.ops.arithmetic import multiply
from rlx_core.ops.call import closed_body, results_of, traced, with_cotangents_like
from rlx_core.ops.control.bodies import (
    Run,
    cost_of,
    differentiable,
    evaluate_attribute,
    expect_agreement,
    expect_inputs,
    expect_same_types,
    is_zero,
    names,
    part,
    with_axis_where,
)
from rlx_core.ops.host.effects import are_pure
from rlx_core.ops.samples import Rejected, Sample
from rlx_core.ops.selection import where
from rlx_core.ops.structural import expand, reshape, sum_axes


@define_op
class If(Op):
    """The results of `then` if the predicate is true, else of `otherwise`; only the selected graph runs.

    Under `vmap`, if a predicate differs between examples, both graphs run, and the results are selected for each example.

    Shapes:
        pred: bool[]    x: the inputs of both graphs    ->    the outputs of either

    Raises:
        ShapeError, DtypeError: The predicate is not one bool; the graphs take other operands, or return different types.
    """

    category: ClassVar = "boundary"
    then: Graph = field(validator=closed_body)
    otherwise: Graph = field(validator=closed_body)

    @property
    def is_pure(self) -> bool:  # type: ignore[override]  # as its graphs are
        return are_pure(self.then, self.otherwise)

    def infer(self, pred: TensorType, *x: TensorType) -> tuple[TensorType, ...]:
        expect_dtype("pred", pred, [bool_])
        expect_shape("pred", pred, ())
        expect_inputs(self, "then", self.then, x)
        expect_inputs(self, "otherwise", self.otherwise, x)
        expect_same_types("the result of otherwise", self.then.output_types, self.otherwise.output_types)
        return self.then.output_types

    def reference(self, *x: np.ndarray) -> tuple[np.ndarray, ...]:
        return tuple(map(np.array, self.driven(partial(evaluate_attribute, self), x)))

    def driven(self, run: Run, x: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        """Return the results, with the selected graph run by `run`."""
        return run("then" if x[0] else "otherwise", x[1:])

    def cost(self, pred: TensorType, *x: TensorType) -> Any:
        """Return the cost of the more expensive graph."""
        return max(cost_of(self.then), cost_of(self.otherwise))

    def vjp(self, g: Any, pred: Value, *x: Value, y: Any) -> tuple[Any, ...]:
        active = differentiable(x)
        live = [i for i, c in enumerate(as_results(g)) if not is_zero(c)]
        if not live:
            return tuple(ZERO for _ in range(1 + len(x)))
        every = range(len(x))

        def pulled(body: Graph) -> Graph:
            return nested().vjp_of(part(body, every, live), [names(body)[i] for i in active])

        cotangents = [as_results(g)[i] for i in live]
        results = iter(as_results(If(pulled(self.then), pulled(self.otherwise))(pred, *x, *cotangents)))
        return (ZERO, *(next(results) if i in active else ZERO for i in every))

    def jvp(self, t: Sequence[Value | Zero], pred: Value, *x: Value, y: Any) -> tuple[Any, ...]:
        active = [i for i, c in enumerate(t[1:]) if not isinstance(c, Zero)]

        def pushed(body: Graph) -> Graph:
            return nested().jvp_of(body, [names(body)[i] for i in active])

        tangents = [t[1 + i] for i in active]
        results = iter(as_results(If(pushed(self.then), pushed(self.otherwise))(pred, *x, *tangents)))
        return tuple(next(results) if v.dtype.is_differentiable else ZERO for v in as_results(y))

    def batch(self, size: Dim, x: Sequence[Value], is_batched: Sequence[bool]) -> tuple[Value | Replicated, ...]:
        pred, *operands = x
        if is_batched[0]:
            expect_agreement(self, "the predicate", self.then, self.otherwise)
        bodies = [nested().batch_of(b, size, is_batched[1:]) for b in (self.then, self.otherwise)]
        has_axis = [is_batched[0] or any(flags) for flags in zip(*(flags for _, flags in bodies), strict=True)]
        then, otherwise = (with_cotangents_like(body, size, flags, has_axis) for body, flags in bodies)
        if not is_batched[0]:
            return with_axis_where(as_results(If(then, otherwise)(pred, *operands)), has_axis)
        pairs = zip(results_of(then, operands), results_of(otherwise, operands), strict=True)
        return tuple(where(expand(reshape(pred, (size, *[1] * (a.ndim - 1))), a.shape), a, b) for a, b in pairs)

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        def grown(x: Any, w: Any) -> Any:
            return multiply(x, exp(w)), sum_axes(multiply(x, x), axes=(0,))

        def scaled(x: Any, w: Any) -> Any:
            return multiply(x, 3.0), multiply(w, w)

        def chosen(pred: bool) -> Any:
            return lambda rng: (np.array(pred), rng.uniform(-2, 2, (3, 2)), rng.uniform(-2, 2, (2,)))

        then, otherwise = (traced(f.__name__, f, "f32[3, 2] f32[2]") for f in (grown, scaled))
        for pred in (True, False):
            yield Sample("bool[]", "f32[3, 2]", "f32[2]", make=chosen(pred), then=then, otherwise=otherwise)
        safe, unrestricted = traced("log", log, "f32[3]"), traced("whole", lambda x: multiply(x, 1.0), "f32[3]")
        yield Sample("bool[]", "f32[3]", ranges={"x0": (0.5, 2.0)}, then=safe, otherwise=unrestricted)
        yield Rejected("f32[]", "f32[3]", then=safe, otherwise=unrestricted, error=DtypeError, says="pred must be")
        yield Rejected("bool[1]", "f32[3]", then=safe, otherwise=unrestricted, error=ShapeError, says="pred must be []")
        yield Rejected("bool[]", then=safe, otherwise=unrestricted, error=WrongInputCountError, says="takes 1 operands")
        other = traced("sum", lambda x: sum_axes(x, axes=(0,)), "f32[3]")
        yield Rejected(
            "bool[]", "f32[3]", then=safe, otherwise=other, error=ShapeError, says="is f32[], and must be f32[3]"
        )
