"""A fused region of element-wise ops: a chain of steps that a backend runs as one loop over the elements of its results.

Values of a region are numbered: first its inputs, then its steps in order. Every step has the dims of the region and a separate
dtype; inputs may be smaller, with strides that define how they are broadcast. The region computes exactly what the chain
computes, in the same order and dtypes, so it is equivalent to its chain bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from operator import mul
from typing import Any, ClassVar

from attrs import evolve, field

from rlx_core.errors import ConfigError, ShapeError, WrongInputCountError
from rlx_core.ir.apply import op_function
from rlx_core.ir.dims import Dim
from rlx_core.ir.dtypes import f16, f64
from rlx_core.ir.graph import Value, as_results, infer
from rlx_core.ir.op import Op, define_op
from rlx_core.ir.types import Shape, TensorType, broadcast_shapes, same_dim
from rlx_core.ops.activation import exp, gelu, relu, tanh
from rlx_core.ops.arithmetic import add, divide, multiply
from rlx_core.ops.comparison import greater
from rlx_core.ops.conversion import Cast
from rlx_core.ops.linalg import reshaped
from rlx_core.ops.samples import Rejected, Sample
from rlx_core.ops.selection import Where
from rlx_core.ops.structural import as_shape, expand
from rlx_core.system.records import frozen

Access = tuple[Dim, ...]
"""The strides of an input: for each axis of the region the stride in elements of the dense input, 0 where it is broadcast."""


@frozen
class RegionStep:
    """One op of a region. `reads` are numbers of values: inputs first, then earlier steps."""

    op: Op
    reads: tuple[int, ...]


def may_be_step(op: Op) -> bool:
    """Return whether an op computes each element of its one result from elements at the same position, and nothing else."""
    return op.category == "elementwise" and op.is_pure and not op.is_barrier and not isinstance(op, ElementwiseRegion)


def access_of(shape: Shape, region: Shape) -> Access:
    """Return the strides of a dense input of dims `shape` in a region: aligned right, broadcast where only its size is 1.

    >>> access_of((3, 1), (2, 3, 4))
    (0, 1, 0)
    """
    strides = tuple(accumulate(reversed(shape), mul, initial=1))[:-1][::-1]
    repeated = (0 if d == 1 else s for d, s in zip(shape, strides, strict=True))
    return (*(0,) * (len(region) - len(shape)), *repeated)


def reads_as(access: Access, shape: Shape, region: Shape) -> bool:
    """Return whether `access` is equivalent to `access_of`, ignoring axes of size 1, whose stride is not used.

    A size that was unknown when the region was created may become 1.
    """
    expected = access_of(shape, region)
    return len(access) == len(region) and all(
        d == 1 or a == w for d, a, w in zip(region, access, expected, strict=True)
    )


def as_steps(steps: Sequence[RegionStep]) -> tuple[RegionStep, ...]:
    return tuple(steps)


def as_accesses(accesses: Sequence[Sequence[Dim]]) -> tuple[Access, ...]:
    return tuple(tuple(a) for a in accesses)


@define_op
class ElementwiseRegion(Op):
    """A chain of element-wise ops over one set of dims, with some of its steps as results.

    Shapes:
        x_i: broadcast to `shape`, by its access    ->    y_j: shape, in the dtype of its step

    Attributes:
        shape: The dims of every step.
        steps: The ops in order; each reads inputs and earlier steps by number.
        access: One map per input: its stride in elements along each axis of `shape`, 0 where it is broadcast.
        results: The steps that are results, by their index.

    Raises:
        ConfigError: A step reads a value that does not precede it, or a result is not a step.
        ShapeError: An access map does not match its input, or a step has other dims than the region.
    """

    shape: Shape = field(converter=as_shape)
    steps: tuple[RegionStep, ...] = field(converter=as_steps)
    access: tuple[Access, ...] = field(converter=as_accesses)
    results: tuple[int, ...] = field(converter=tuple)
    category: ClassVar = "elementwise"

    def __attrs_post_init__(self) -> None:
        count = len(self.access)
        for place, step in enumerate(self.steps):
            if not may_be_step(step.op):
                raise ConfigError(f"step {place} is {step.op.name}, which is no element-wise op")
            if not all(0 <= r < count + place for r in step.reads):
                raise ConfigError(f"step {place} reads {list(step.reads)}, and {count + place} values come before it")
        if not self.results or not all(0 <= r < len(self.steps) for r in self.results):
            raise ConfigError(f"results {list(self.results)} are not among the {len(self.steps)} steps")

    def infer(self, *x: TensorType) -> TensorType | tuple[TensorType, ...]:
        if len(x) != len(self.access):
            raise WrongInputCountError(f"has {len(self.access)} access maps and {len(x)} inputs")
        for place, (operand_type, access) in enumerate(zip(x, self.access, strict=True)):
            is_broadcast = (
                operand_type.shape == self.shape or broadcast_shapes(operand_type.shape, self.shape) == self.shape
            )
            if not (is_broadcast and reads_as(access, operand_type.shape, self.shape)):
                raise ShapeError(
                    f"x{place} {operand_type} is not read by strides {list(access)} in a region {list(self.shape)}"
                )
        types = self.types(*x)[len(x) :]
        chosen = tuple(types[r] for r in self.results)
        return chosen[0] if len(chosen) == 1 else chosen

    def types(self, *x: TensorType) -> list[TensorType]:
        """Return the types of all values: the inputs as read, then the steps."""
        types = [t if t.shape == self.shape else t.with_shape(self.shape) for t in x]
        for place, step in enumerate(self.steps):
            (step_type,) = infer(step.op, [types[r] for r in step.reads])
            is_same = step_type.shape == self.shape or (
                step_type.rank == len(self.shape) and all(map(same_dim, step_type.shape, self.shape))
            )
            if not is_same:
                raise ShapeError(f"step {place} ({step.op.name}) is {step_type}, and the region {list(self.shape)}")
            types.append(step_type)
        return types

    def decompose(self, *x: Value) -> Value | tuple[Value, ...]:
        # A scalar or a smaller operand broadcasts in the op as in the region; only a chain whose result would be smaller than
        # the region is expanded first.
        values = list(x)
        for step in self.steps:
            reads = [values[r] for r in step.reads]
            if broadcast_shapes(*(v.shape for v in reads)) != self.shape:
                reads[0] = expand(reads[0], self.shape)
            values.append(step.op(*reads))
        chosen = tuple(values[len(x) + r] for r in self.results)
        return chosen[0] if len(chosen) == 1 else chosen

    def batch(self, size: Dim, x: Sequence[Value], is_batched: Sequence[bool]) -> Any:
        rank, shape = len(self.shape), (size, *self.shape)
        aligned = [
            reshaped(v, (size, *(1,) * (rank - v.ndim + 1), *v.shape[1:])) if b else v
            for v, b in zip(x, is_batched, strict=True)
        ]
        op = evolve(self, shape=shape, access=tuple(access_of(v.shape, shape) for v in aligned))
        return op(*aligned)

    def cost(self, *x: TensorType) -> Dim:
        return len(self.steps) * as_results(self.infer(*x))[0].size

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        row, both = (0, 1), (4, 1)
        chain = (RegionStep(multiply.op(), (0, 1)), RegionStep(tanh.op(), (2,)), RegionStep(add.op(), (3, 0)))
        for d in ("f32", "f64", "f16", "bf16"):
            yield Sample(f"{d}[3, 4]", f"{d}[4]", shape=(3, 4), steps=chain, access=(both, row), results=(2,))
        yield Sample("f64[3, 4]", "f64[4]", shape=(3, 4), steps=chain, access=(both, row), results=(0, 2))
        outer_sum = (RegionStep(add.op(), (0, 1)), RegionStep(gelu.op(), (2,)))
        yield Sample("f64[3, 1]", "f64[1, 4]", shape=(3, 4), steps=outer_sum, access=((1, 0), (0, 1)), results=(1,))
        yield Sample("f32[2, 1, 3]", "f32[]", shape=(2, 5, 3), access=((3, 0, 1), (0, 0, 0)), results=(1,),
                     steps=(RegionStep(divide.op(), (0, 1)), RegionStep(exp.op(), (2,))), low=0.5)  # fmt: skip
        masked = (RegionStep(Where(), (0, 1, 2)), RegionStep(Cast(f64), (3,)))
        yield Sample("bool[4]", "f32[3, 4]", "f32[]", shape=(3, 4), steps=masked, results=(1,),
                     access=(row, both, (0, 0)))  # fmt: skip
        signs = (RegionStep(greater.op(), (0, 1)), RegionStep(Cast(f64), (2,)), RegionStep(multiply.op(), (3, 0)))
        yield Sample("f64[3]", "f64[]", shape=(3,), steps=signs, access=((1,), (0,)), results=(0, 2), low=0.5,
                     ranges={"x1": (-2.0, -1.0)})  # fmt: skip
        yield Sample("i32[2, 3]", "i32[3]", shape=(2, 3), access=((3, 1), (0, 1)), results=(1,),
                     steps=(RegionStep(multiply.op(), (0, 1)), RegionStep(add.op(), (2, 0))))  # fmt: skip
        yield Sample("c64[2, 3]", shape=(2, 3), access=((3, 1),), results=(1,), is_smooth=False,
                     steps=(RegionStep(multiply.op(), (0, 0)), RegionStep(exp.op(), (1,))))  # fmt: skip
        narrow = (RegionStep(Cast(f16), (0,)), RegionStep(relu.op(), (1,)))
        yield Sample("f32[0, 3]", shape=(0, 3), steps=narrow, access=((3, 1),), results=(1,))
        one = (RegionStep(tanh.op(), (0,)),)
        yield Rejected("f32[3, 4]", shape=(3, 4), steps=one, access=((1, 3),), results=(0,), error=ShapeError,
                       says="is not read by strides [1, 3]")  # fmt: skip
        yield Rejected("f32[3]", "f32[3]", shape=(3,), steps=one, access=((1,),), results=(0,),
                       error=WrongInputCountError, says="1 access maps and 2 inputs")  # fmt: skip
        yield Rejected("f32[3]", shape=(3,), steps=one, access=((1,),), results=(1,), error=ConfigError,
                       says="not among the 1 steps")  # fmt: skip
        forward_read = (RegionStep(tanh.op(), (1,)),)
        yield Rejected("f32[3]", shape=(3,), steps=forward_read, access=((1,),), results=(0,), error=ConfigError,
                       says="1 values come before it")  # fmt: skip


elementwise_region = op_function(ElementwiseRegion)
