"""`Scan`: a loop with a number of steps that is known before it starts, passing carries from each step to the next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np
from attrs import field

from rlx_core.errors import ConfigError, ShapeError, WrongInputCountError
from rlx_core.ir.dims import Dim
from rlx_core.ir.graph import Graph, Value, as_results
from rlx_core.ir.op import Op, Zero, define_op
from rlx_core.ir.rules import Replicated, nested
from rlx_core.ir.types import TensorType, as_dim, expect_rank, expect_shape
from rlx_core.ops.activation import tanh
from rlx_core.ops.arithmetic import add, multiply
from rlx_core.ops.call import closed_body, traced, with_cotangents_like
from rlx_core.ops.control import scan_derivatives
from rlx_core.ops.control.bodies import (
    Run,
    carry_flags,
    cost_of,
    evaluate_attribute,
    expect_inputs,
    expect_same_types,
    with_axis_where,
)
from rlx_core.ops.host.effects import are_pure
from rlx_core.ops.linalg import matmul
from rlx_core.ops.samples import Rejected, Sample
from rlx_core.ops.structural import expand, sum_axes, transpose


def as_length(size: object) -> Dim:
    """Return a number of steps.

    Raises:
        ShapeError: It is negative, or not a size.
    """
    length = as_dim(size)
    if isinstance(length, int) and length < 0:
        raise ShapeError(f"length must be at least 0, not {length}")
    return length


@define_op
class Scan(Op):
    """`length` steps of a graph: the carries of one are the input of the next, and each step's other results are stacked.

    `body` takes the carries, the constants, and one element of each of the xs; it returns the carries and the ys. Time is axis
    0 of xs and ys. In reverse the last element comes first, and each y is at the position of its x.

    Shapes:
        carries, consts: the operands of the body    xs: [length, *x]    ->    carries, ys: [length, *y]

    Attributes:
        body: The graph of a step.
        carries, consts: The numbers of operands that are carries and, after them, constants; the rest are xs.
        length: The number of steps; 0 returns the initial carries.
        reverse: Whether the steps go from the end to the beginning.

    Derivatives are Scans over the trajectory of the carries, which the forward Scan saves if a derivative follows; a step is
    recomputed in its derivative, so that only carries are saved, and products if a pass recognises both loops.

    Raises:
        WrongInputCountError, ShapeError, DtypeError: The body takes other operands, or returns carries of other types.
    """

    category: ClassVar = "boundary"
    body: Graph = field(validator=closed_body)
    carries: int
    consts: int
    length: Dim = field(converter=as_length)
    reverse: bool = False

    def __attrs_post_init__(self) -> None:
        if min(self.carries, self.consts) < 0 or self.carries + self.consts > len(self.body.inputs):
            raise ConfigError(
                f"{self.title}: {self.body.name} takes {len(self.body.inputs)} inputs, which cannot be {self.carries} carries "
                f"and {self.consts} consts"
            )

    def split(self, x: Sequence[Any]) -> tuple[tuple[Any, ...], tuple[Any, ...], tuple[Any, ...]]:
        """Split operands into carries, constants and xs."""
        first = self.carries + self.consts
        return tuple(x[: self.carries]), tuple(x[self.carries : first]), tuple(x[first:])

    @property
    def is_pure(self) -> bool:  # type: ignore[override]  # as its graphs are
        return are_pure(self.body)

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        carries, consts, xs = self.split(x)
        for number, each in enumerate(xs):
            expect_rank(f"xs {number}", each, 1)
            expect_shape(f"xs {number}", each, (self.length, *each.shape[1:]))
        elements = [each.with_shape(each.shape[1:]) for each in xs]
        expect_inputs(self, "body", self.body, (*carries, *consts, *elements))
        returned = self.body.output_types
        if len(returned) < self.carries:
            raise WrongInputCountError(
                f"{self.body.name} returns {len(returned)} values, and has {self.carries} carries"
            )
        expect_same_types("carry", tuple(self.body.input_types.values())[: self.carries], returned[: self.carries])
        stacked = (t.with_shape((self.length, *t.shape)) for t in returned[self.carries :])
        return (*returned[: self.carries], *stacked)

    def reference(self, *x: np.ndarray) -> tuple[np.ndarray, ...]:
        return tuple(map(np.array, self.driven(partial(evaluate_attribute, self), x)))

    def driven(self, run: Run, x: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        """Return the results; the carries are copies, which may be overwritten. Each step is run by `run`."""
        begun, consts, xs = self.split(x)
        state = tuple(map(np.array, begun))
        assert isinstance(self.length, int), "sizes are known when programs run"
        outputs: list[Sequence[np.ndarray]] = []
        steps = range(self.length)
        for t in reversed(steps) if self.reverse else steps:
            results = run("body", (*state, *consts, *(each[t, ...] for each in xs)))
            state = tuple(results[: self.carries])
            outputs.append(results[self.carries :])
        if self.reverse:
            outputs.reverse()
        types = self.body.output_types[self.carries :]
        if not outputs:
            return (*state, *(np.zeros((0, *t.static_shape), t.dtype.numpy) for t in types))
        return (*state, *(np.stack(column) for column in zip(*outputs, strict=True)))

    def carried(self) -> dict[str, int]:
        return {"body": self.carries}

    def cost(self, *x: TensorType) -> Any:
        return self.length * cost_of(self.body)

    # ---------------------------------------------------------------------------------------------- rules

    def saving(self, *x: Value) -> tuple[Value, ...]:
        return scan_derivatives.saving(self, x)

    def vjp(self, g: Any, *x: Value, y: Any) -> tuple[Any, ...]:
        return scan_derivatives.pulled(self, as_results(g), x, as_results(y))

    def jvp(self, t: Sequence[Value | Zero], *x: Value, y: Any) -> tuple[Any, ...]:
        return scan_derivatives.pushed(self, t, x, as_results(y))

    def batch(self, size: Dim, x: Sequence[Value], is_batched: Sequence[bool]) -> tuple[Value | Replicated, ...]:
        def batched(carries: Sequence[bool]) -> tuple[Graph, tuple[bool, ...]]:
            return nested().batch_of(self.body, size, (*carries, *is_batched[self.carries :]))

        carried = carry_flags(is_batched[: self.carries], lambda flags: batched(flags)[1][: self.carries])
        body, out_flags = batched(carried)
        body = with_cotangents_like(body, size, out_flags, (*carried, *out_flags[self.carries :]))
        carries, consts, xs = self.split(x)
        initial, _, per_step = self.split(is_batched)
        carries = tuple(
            expand(v, (size, *v.shape)) if is_carried and not is_one else v
            for v, is_carried, is_one in zip(carries, carried, initial, strict=True)
        )
        xs = tuple(_turned(v) if is_one else v for v, is_one in zip(xs, per_step, strict=True))
        results = as_results(Scan(body, self.carries, self.consts, self.length, self.reverse)(*carries, *consts, *xs))
        flags = (*carried, *out_flags[self.carries :])
        stacked = (
            _turned(v) if flag else v
            for v, flag in zip(results[self.carries :], out_flags[self.carries :], strict=True)
        )
        return with_axis_where((*results[: self.carries], *stacked), flags)

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        def cell(c: Any, w: Any, x: Any) -> Any:
            h = tanh(add(multiply(c, w), x))
            return h, multiply(h, x)

        def pair(a: Any, n: Any, x: Any) -> Any:
            return add(a, multiply(a, x)), add(n, 1), sum_axes(multiply(a, x), axes=(0,)), n

        one = traced("cell", cell, "f32[3] f32[3] f32[3]")
        two = traced("pair", pair, "f32[2] i64[] f32[2]")
        for reverse in (False, True):
            yield Sample("f32[3]", "f32[3]", "f32[4, 3]", body=one, carries=1, consts=1, length=4, reverse=reverse)
        net = traced("net", lambda c, w, x: (tanh(add(matmul(c, w), x)), matmul(x, w)), "f32[1, 3] f32[3, 3] f32[1, 3]")
        yield Sample("f32[1, 3]", "f32[3, 3]", "f32[4, 1, 3]", body=net, carries=1, consts=1, length=4)
        yield Sample("f32[2]", "i64[]", "f32[3, 2]", body=two, carries=2, consts=0, length=3, low=-0.5, high=0.5)
        yield Sample("f32[3]", "f32[3]", "f32[0, 3]", body=one, carries=1, consts=1, length=0)
        swap = traced("swap", lambda a, b, x: (b, add(a, x), a, multiply(b, x)), "f32[2] f32[2] f32[2]")
        yield Sample("f32[2]", "f32[2]", "f32[3, 2]", body=swap, carries=2, consts=0, length=3)
        free = traced("free", lambda x: multiply(x, x), "f32[2]")
        yield Sample("f32[3, 2]", body=free, carries=0, consts=0, length=3)
        alone = traced("alone", lambda c: multiply(c, 1.5), "f32[2]")
        yield Sample("f32[2]", body=alone, carries=1, consts=0, length=3)
        half = traced("half", cell, "f16[2] f16[2] f16[2]")
        yield Sample("f16[2]", "f16[2]", "f16[3, 2]", body=half, carries=1, consts=1, length=3)
        outer = traced("outer", lambda c, x: cls(one, 1, 1, 2)(c, c, x)[:2], "f32[3] f32[2, 3]")
        yield Sample("f32[3]", "f32[3, 2, 3]", body=outer, carries=1, consts=0, length=3)
        yield Rejected(
            "f32[3]", "f32[3]", "f32[5, 3]", body=one, carries=1, consts=1, length=4, error=ShapeError, says="[4, 3]"
        )
        yield Rejected("f32[3]", body=one, carries=1, consts=1, length=4, error=WrongInputCountError, says="takes 3")
        grows = traced("grows", lambda c: add(c, np.ones((2, 3), np.float32)), "f32[3]")
        yield Rejected(
            "f32[3]",
            body=grows,
            carries=1,
            consts=0,
            length=2,
            error=ShapeError,
            says="carry 0 is f32[2, 3], and must be",
        )


def _turned(value: Value) -> Value:
    """Return a value with its first two axes exchanged: time and examples."""
    return transpose(value, (1, 0, *range(2, value.ndim)))
