"""Several ops as one loop kernel: norms with the sums before them, reductions with the arithmetic around them.

An `ElementwiseRegion` has one set of dims. Here each step has its own: a step may reduce, broadcast, gather or view the result
of another step. The semantics of the op are its steps, in order, bit for bit; the pass that creates such an op must ensure that
a backend can run it as one loop nest, or by one library call.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from attrs import field

from rlx_core.errors import ConfigError, WrongInputCountError
from rlx_core.ir.apply import op_function
from rlx_core.ir.graph import Value, as_results, infer
from rlx_core.ir.op import Op, define_op
from rlx_core.ir.types import TensorType
from rlx_core.ops.activation import exp
from rlx_core.ops.arithmetic import add, multiply
from rlx_core.ops.fused import FusedResidualLN
from rlx_core.ops.normalization import RmsNorm
from rlx_core.ops.samples import Rejected, Sample
from rlx_core.ops.structural import Reshape, Sum
from rlx_core.system.records import frozen

ABSENT = -1
"""The number that a step reads in place of an absent optional operand."""


@frozen
class LoopStep:
    """One op of a fused loop. `reads` are numbers of values: inputs first, then the results of earlier steps."""

    op: Op
    reads: tuple[int, ...]


def as_steps(steps: Sequence[LoopStep]) -> tuple[LoopStep, ...]:
    return tuple(steps)


@define_op
class FusedLoop(Op):
    """A chain of ops that is run as one loop nest, with some of its values as results.

    Shapes:
        x_i: as required by the steps that read it    ->    y_j: the type of its step's result

    Attributes:
        inputs: The number of values that are read from outside.
        steps: The ops in order; each reads inputs and results of earlier steps by number.
        results: The numbers of the values that are results; each belongs to a step.

    Raises:
        ConfigError: A step reads a value that does not precede it, or a result does not belong to a step.
    """

    inputs: int
    steps: tuple[LoopStep, ...] = field(converter=as_steps)
    results: tuple[int, ...] = field(converter=tuple)
    category: ClassVar = "reduction"

    def infer(self, *x: TensorType) -> TensorType | tuple[TensorType, ...]:
        if len(x) != self.inputs:
            raise WrongInputCountError(f"reads {self.inputs} values from outside, and has {len(x)} inputs")
        types = list(x)
        for place, step in enumerate(self.steps):
            self._expect_earlier(place, step, len(types))
            types += infer(step.op, [None if r == ABSENT else types[r] for r in step.reads])
        if not self.results or not all(self.inputs <= r < len(types) for r in self.results):
            raise ConfigError(f"results {list(self.results)} are not among the values {self.inputs}..{len(types) - 1}")
        chosen = tuple(types[r] for r in self.results)
        return chosen[0] if len(chosen) == 1 else chosen

    def _expect_earlier(self, place: int, step: LoopStep, known: int) -> None:
        if not all(ABSENT <= r < known for r in step.reads):
            raise ConfigError(f"step {place} reads {list(step.reads)}, and {known} values come before it")

    def decompose(self, *x: Value) -> Value | tuple[Value, ...]:
        values = list(x)
        for step in self.steps:
            values += as_results(step.op(*(None if r == ABSENT else values[r] for r in step.reads)))
        chosen = tuple(values[r] for r in self.results)
        return chosen[0] if len(chosen) == 1 else chosen

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        scaled = (LoopStep(multiply.op(), (0, 1)), LoopStep(Sum((0,)), (2,)), LoopStep(add.op(), (3, 1)))
        for d in ("f32", "f64", "f16"):
            yield Sample(f"{d}[3, 4]", f"{d}[4]", inputs=2, steps=scaled, results=(4,))
        normed = (LoopStep(exp.op(), (0,)), LoopStep(RmsNorm(), (2, 1)))
        yield Sample("f64[2, 3, 4]", "f64[4]", inputs=2, steps=normed, results=(2, 3))
        residual = (LoopStep(FusedResidualLN(with_sum=True), (0, 1, ABSENT, 2)), LoopStep(add.op(), (3, 4)))
        yield Sample("f64[2, 4]", "f64[2, 4]", "f64[4]", inputs=3, steps=residual, results=(5, 4))
        seen = (LoopStep(Reshape((3, 1)), (0,)), LoopStep(multiply.op(), (2, 1)), LoopStep(Sum((1,)), (3,)))
        yield Sample("f64[3]", "f64[3, 4]", inputs=2, steps=seen, results=(4,))
        yield Rejected("f32[3]", inputs=2, steps=scaled, results=(2,), error=WrongInputCountError, says="has 1 inputs")
        forward_read: Any = (LoopStep(exp.op(), (1,)),)
        yield Rejected(
            "f32[3]", inputs=1, steps=forward_read, results=(1,), error=ConfigError, says="1 values come before"
        )
        one: Any = (LoopStep(exp.op(), (0,)),)
        yield Rejected("f32[3]", inputs=1, steps=one, results=(0,), error=ConfigError, says="not among the values 1..1")


fused_loop = op_function(FusedLoop)
