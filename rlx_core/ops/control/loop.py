"""`While`: a loop until a condition that depends on the program's values is false."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import count as counting
from typing import Any, ClassVar

import numpy as np
from attrs import field

from rlx_core.errors import ConfigError, DtypeError, MissingRuleError, ShapeError, WrongInputCountError
from rlx_core.ir.dims import Dim
from rlx_core.ir.dtypes import bool_
from rlx_core.ir.graph import Graph, Value, as_results, graph_of
from rlx_core.ir.op import ZERO, Op, Rule, Zero, define_op
from rlx_core.ir.rules import Replicated, nested
from rlx_core.ir.types import TensorType, expect_dtype, expect_shape
from rlx_core.ops.arithmetic import add, multiply
from rlx_core.ops.call import closed_body, results_of, traced, with_batched_outputs, with_cotangents_like, zeros
from rlx_core.ops.comparison import less
from rlx_core.ops.control import scan_derivatives
from rlx_core.ops.control.bodies import (
    Run,
    carry_flags,
    cost_of,
    differentiable,
    evaluate_attribute,
    expect_agreement,
    expect_inputs,
    expect_same_types,
    is_zero,
    names,
    reached,
    with_axis_where,
)
from rlx_core.ops.control.conditional import If
from rlx_core.ops.control.scan import Scan
from rlx_core.ops.counting import any_axes
from rlx_core.ops.host.effects import are_pure, without_effects
from rlx_core.ops.samples import Rejected, Sample
from rlx_core.ops.selection import where
from rlx_core.ops.structural import expand, reshape, sum_axes


@define_op
class While(Op):
    """`body` repeated while `cond` is true; if it is false at first, the initial carries.

    Both graphs take the carries and the constants; `cond` returns one bool, `body` the next carries. Under `vmap`, if a
    condition differs between examples, the loop continues while any is true, and the carries of the other examples do not
    change.

    Shapes:
        carries, consts: the operands of the graphs    ->    carries

    Attributes:
        cond, body: The condition and a step.
        carries: The number of operands that are carries; the rest are constants.
        max_steps: The maximum number of steps, whatever the condition. Reverse mode needs it.

    Raises:
        WrongInputCountError, ShapeError, DtypeError: The graphs take other operands, or return other types.
    """

    category: ClassVar = "boundary"
    cond: Graph = field(validator=closed_body)
    body: Graph = field(validator=closed_body)
    carries: int
    max_steps: int | None = None

    def __attrs_post_init__(self) -> None:
        if not 0 <= self.carries <= len(self.body.inputs):
            raise ConfigError(
                f"{self.title}: {self.body.name} takes {len(self.body.inputs)} inputs, which cannot be {self.carries} carries"
            )
        if self.max_steps is not None and self.max_steps < 0:
            raise ConfigError(f"{self.title}: max_steps must be at least 0, not {self.max_steps}")

    @property
    def is_pure(self) -> bool:  # type: ignore[override]  # as its graphs are
        return are_pure(self.cond, self.body)

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        expect_inputs(self, "body", self.body, x)
        expect_inputs(self, "cond", self.cond, x)
        expect_same_types("carry", tuple(self.body.input_types.values())[: self.carries], self.body.output_types)
        if len(self.cond.outputs) != 1:
            raise WrongInputCountError(
                f"{self.cond.name} returns {len(self.cond.outputs)} values, and must return one bool"
            )
        expect_dtype("the condition", self.cond.output_types[0], [bool_])
        expect_shape("the condition", self.cond.output_types[0], ())
        return self.body.output_types

    def reference(self, *x: np.ndarray) -> tuple[np.ndarray, ...]:
        return tuple(map(np.array, self.driven(partial(evaluate_attribute, self), x)))

    def driven(self, run: Run, x: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        """Return the results; the carries are copies, which may be overwritten. Each graph is run by `run`."""
        state, consts = tuple(map(np.array, x[: self.carries])), x[self.carries :]
        for step in counting():
            if step == self.max_steps or not run("cond", (*state, *consts))[0]:
                break
            state = tuple(run("body", (*state, *consts)))
        return state

    def carried(self) -> dict[str, int]:
        return {"body": self.carries}

    def cost(self, *x: TensorType) -> Any:
        """Return the cost of one iteration, or of all with `max_steps`: otherwise their number is unknown."""
        return (self.max_steps or 1) * (cost_of(self.body) + cost_of(self.cond))

    # ---------------------------------------------------------------------------------------------- rules

    @property
    def saving(self) -> Rule:  # type: ignore[override]  # only a loop with a bound has one
        return None if self.max_steps is None else self._saving

    def _saving(self, *x: Value) -> tuple[Value, ...]:
        op = self.bounded()
        return scan_derivatives.saving(op, x)

    def bounded(self) -> Scan:
        """Return the Scan of `max_steps` steps, each of which is executed only while the condition is true."""
        types = tuple(self.body.input_types.values())
        identity = graph_of("as_it_is", types, lambda *x: x[: self.carries])
        choice = If(self.body, identity)
        step = graph_of(self.body.name, types, lambda *x: choice(results_of(self.cond, x)[0], *x))
        assert self.max_steps is not None, "only a loop with a bound is a Scan"
        return Scan(step, self.carries, len(types) - self.carries, self.max_steps)

    def vjp(self, g: Any, *x: Value, y: Any) -> tuple[Any, ...]:
        """Return the VJP of the bounded loop; if a derivative is known to follow, that loop replaces this one (`saving`)."""
        if self.max_steps is None:
            raise MissingRuleError(
                f"{self.title}: reverse mode goes back through every step, and how many there are is not known",
                hint="give the most there can be: rlx.while_loop(cond, body, init, max_steps=K); "
                "or use rlx.fori_loop with Python ints, or rlx.scan",
            )
        active = differentiable(x)
        live = [i for i, c in enumerate(as_results(g)) if not is_zero(c)]
        if not live:
            return tuple(ZERO for _ in x)
        restricted = graph_of(
            self.body.name, [v.type for v in x], lambda *v: [as_results(self.bounded()(*v))[i] for i in live]
        )
        pull = nested().vjp_of(restricted, [names(restricted)[i] for i in active])
        results = iter(results_of(pull, (*x, *(as_results(g)[i] for i in live))))
        return tuple(next(results) if i in active else ZERO for i in range(len(x)))

    def jvp(self, t: Sequence[Value | Zero], *x: Value, y: Any) -> tuple[Any, ...]:
        """Return the results of a loop over the carries and their tangents together."""
        # The loop runs again together with its tangents; its side effects have already happened.
        count, body, goes = self.carries, without_effects(self.body), without_effects(self.cond)
        has_tangent = [not isinstance(c, Zero) for c in t]
        flags = carry_flags(has_tangent[:count], lambda carried: reached(body, (*carried, *has_tangent[count:])))
        moving = [i for i, flag in enumerate(flags) if flag]
        if not moving:
            return tuple(ZERO for _ in range(count))
        fixed = [i for i in range(count, len(x)) if has_tangent[i]]
        step = nested().jvp_of(body, [names(body)[i] for i in (*moving, *fixed)])
        tangent_of = {i: place for place, i in enumerate(differentiable(body.outputs))}
        first = count + len(moving)

        def operands(values: Sequence[Value]) -> tuple[Sequence[Value], Sequence[Value]]:
            """Return the operands of the loop, and the tangents."""
            remaining = values[first:]
            primals = (*values[:count], *remaining[: len(x) - count])
            return primals, (*values[count:first], *remaining[len(x) - count :])

        def along(*values: Value) -> tuple[Value, ...]:
            primals, tangents = operands(values)
            outputs = results_of(step, (*primals, *tangents))
            return (*results_of(body, primals), *(outputs[tangent_of[i]] for i in moving))

        tangents = [zeros(v.type) if isinstance(c, Zero) else c for v, c in zip(x, t, strict=True)]
        everything = (*x[:count], *(tangents[i] for i in moving), *x[count:], *(tangents[i] for i in fixed))
        types = [v.type for v in everything]
        cond = graph_of(self.cond.name, types, lambda *v: results_of(goes, operands(v)[0]))
        both = While(cond, graph_of(f"{body.name}_along", types, along), first, self.max_steps)
        results = dict(zip(moving, as_results(both(*everything))[count:], strict=True))
        return tuple(results.get(i, ZERO) for i in range(count))

    def batch(self, size: Dim, x: Sequence[Value], is_batched: Sequence[bool]) -> tuple[Value | Replicated, ...]:
        count, engine = self.carries, nested()
        constants = tuple(is_batched[count:])
        flags = carry_flags(is_batched[:count], lambda f: engine.batch_of(self.body, size, (*f, *constants))[1])
        cond, (differs,) = engine.batch_of(self.cond, size, (*flags, *constants))
        if differs:
            return self._masked(size, x, is_batched)
        body, batched = engine.batch_of(self.body, size, (*flags, *constants))
        body = with_cotangents_like(body, size, batched, flags)
        begin = [_repeated(v, size, a and not b) for v, a, b in zip(x[:count], flags, is_batched[:count], strict=True)]
        results = as_results(While(cond, body, count, self.max_steps)(*begin, *x[count:]))
        return with_axis_where(results, flags)

    def _masked(self, size: Dim, x: Sequence[Value], is_batched: Sequence[bool]) -> tuple[Value, ...]:
        """Return the results of a loop in which examples continue independently: a carry records which of them are active."""
        expect_agreement(self, "the condition", self.cond, self.body)
        count, engine = self.carries, nested()
        flags = (*[True] * count, *is_batched[count:])
        cond = engine.batch_of(self.cond, size, flags)[0]
        body = with_batched_outputs(*_in_order(size, engine.batch_of(self.body, size, flags)))

        def step(goes: Value, *operands: Value) -> tuple[Value, ...]:
            after = results_of(body, operands)
            masks = [expand(reshape(goes, (size, *[1] * (v.ndim - 1))), v.shape) for v in after]
            state = tuple(where(m, a, b) for m, a, b in zip(masks, after, operands[:count], strict=True))
            return (results_of(cond, (*state, *operands[count:]))[0], *state)

        begin = [_repeated(v, size, not b) for v, b in zip(x[:count], is_batched[:count], strict=True)]
        everything = (results_of(cond, (*begin, *x[count:]))[0], *begin, *x[count:])
        types = [v.type for v in everything]
        goes_on = graph_of(self.cond.name, types, lambda goes, *_: any_axes(goes, axes=(0,)))
        loop = While(goes_on, graph_of(f"{self.body.name}_masked", types, step), count + 1, self.max_steps)
        return as_results(loop(*everything))[1:]

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        def is_short(x: Any, n: Any, w: Any) -> Any:
            return less(sum_axes(multiply(x, x), axes=(0,)), 9.0)

        def longer(x: Any, n: Any, w: Any) -> Any:
            return add(multiply(x, w), 0.25), add(n, 1)

        types = "f32[3] i64[] f32[3]"
        cond, body = traced("is_short", is_short, types), traced("longer", longer, types)
        ranges = {"x0": (0.5, 1.0), "x2": (1.4, 1.6)}
        yield Sample("f32[3]", "i64[]", "f32[3]", ranges=ranges, cond=cond, body=body, carries=2, max_steps=9)
        yield Sample("f32[3]", "i64[]", "f32[3]", ranges=ranges, cond=cond, body=body, carries=2, max_steps=2)
        yield Sample("f32[3]", "i64[]", "f32[3]", ranges=ranges, cond=cond, body=body, carries=2, max_steps=0)
        yield Rejected("f32[3]", "i64[]", cond=cond, body=body, carries=2, error=WrongInputCountError, says="takes 3")
        wrong = traced("wrong", lambda x, n, w: sum_axes(x, axes=(0,)), types)
        yield Rejected(
            "f32[3]", "i64[]", "f32[3]", cond=wrong, body=body, carries=2, error=DtypeError, says="condition must be"
        )
        each = traced("each", lambda x, n, w: less(x, 1.0), types)
        yield Rejected(
            "f32[3]", "i64[]", "f32[3]", cond=each, body=body, carries=2, error=ShapeError, says="condition must be []"
        )


def _repeated(value: Value, size: Dim, is_needed: bool) -> Value:
    return expand(value, (size, *value.shape)) if is_needed else value


def _in_order(size: Dim, batched: tuple[Graph, tuple[bool, ...]]) -> tuple[Graph, Dim, tuple[bool, ...]]:
    return batched[0], size, batched[1]
