"""Programs and arrays for the laws, from the samples that ops provide."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from functools import cache, cached_property
from typing import Literal

import numpy as np
from attrs import evolve

from rlx_core.errors import RlxError
from rlx_core.ir.graph import Builder, Graph, Node, as_results, building
from rlx_core.ir.interpret import interpret
from rlx_core.ir.op import Op, operand_names
from rlx_core.ir.rules import CustomDerivative
from rlx_core.ir.types import TensorType
from rlx_core.ops.samples import Case, Rejected, Sample
from rlx_core.system.records import frozen
from rlx_core.transforms.contributed import engine_for
from rlx_core.transforms.engine import STANDARD, Engine

Variation = Literal["dtype", "size", "rank", "broadcasting"]


def cases_of(ops: Iterable[type[Op]]) -> list[Case]:
    """Every sample of every op."""
    return [Case(op, sample) for op in ops for sample in (op.samples() if op.samples is not None else ())]


def rejections(ops: Iterable[type[Op]]) -> list[Case]:
    """The calls that must fail."""
    return [case for case in cases_of(ops) if isinstance(case.sample, Rejected)]


@cache
def programs(ops: tuple[type[Op], ...]) -> list[OpProgram]:
    """Return a program for every sample that must work; cached, because every law needs them."""
    return [OpProgram(case) for case in cases_of(ops) if isinstance(case.sample, Sample)]


@frozen(eq=False, repr=False, slots=False)
class OpProgram:
    """One op on the operands of one sample, as a graph whose inputs are those operands.

    Attributes:
        case: The op and the sample.
        rule: The kind of the contributed rule that is tried ("vjp", "batch", …); nothing where it is the op's own class.
        variation: The varied property of the author's sample (see `variants.py`); `None` for the sample itself.
        varied: The description of the variation.
    """

    case: Case
    rule: str = ""
    variation: Variation | None = None
    varied: str = ""

    @property
    def op(self) -> type[Op]:
        return self.case.op

    @property
    def sample(self) -> Sample:
        assert isinstance(self.case.sample, Sample)
        return self.case.sample

    @cached_property
    def graph(self) -> Graph:
        return program_of(self.case)

    @cached_property
    def engine(self) -> Engine:
        """The source of rules: a contributed one is looked up as for users, and an op is tried with its own rules."""
        return engine_for(self.graph) if self.rule else STANDARD

    @cached_property
    def failure(self) -> Exception | None:
        """The exception of the call, in type inference or on the values."""
        try:
            graph = self.graph
            if self.is_static:
                wide(graph, self.draw())
        except Exception as error:  # noqa: BLE001  whatever it raises is for a law to judge
            return error
        return None

    @property
    def is_refused(self) -> bool:
        """Whether the op refuses the call with a typed error."""
        return isinstance(self.failure, RlxError)

    @cached_property
    def widened(self) -> OpProgram:
        """The same call in f64 and c128, so that constants in rules are exact; itself where the op does not take those."""
        types = tuple(None if t is None else t.with_dtype(t.dtype.wide) for t in self.sample.types)
        wider = self.with_types(types)
        try:
            return wider if wider.graph else self
        except RlxError:
            return self

    def with_types(self, types: Sequence[TensorType | None]) -> OpProgram:
        """The same call on operands of other types."""
        return evolve(self, case=evolve(self.case, sample=self.sample.with_types(types)))

    @cached_property
    def widened_key(self) -> str:
        """A key that is equal for programs of which a law that widens its programs needs only one."""
        sample = self.sample
        types = [None if t is None else t.with_dtype(t.dtype.wide) for t in sample.types]
        attributes = sorted(sample.attributes.items(), key=str)
        drawn = (sample.low, sample.high, sorted(sample.ranges.items()), sample.make, sample.is_smooth)
        return f"{self.rule} {self.op.name} {types} {attributes} {drawn}"

    @cached_property
    def node(self) -> Node:
        """The node of the op itself; the graph may also contain casts that its `prepare` inserted."""
        nodes = [n for n in self.graph.nodes if type(n.op) is self.op]
        return nodes[-1]

    @property
    def is_differentiable(self) -> bool:
        """Whether an operand and a result carry derivatives, and the op does not refuse them."""
        op = self.node.op
        if isinstance(op, CustomDerivative) and op.is_refusing:
            return False
        return bool(self.differentiable) and any(t.dtype.is_differentiable for t in self.node.types)

    @property
    def differentiable(self) -> list[str]:
        """The names of the operands that carry derivatives."""
        return [name for name, type in self.graph.input_types.items() if type.dtype.is_differentiable]

    @cached_property
    def is_static(self) -> bool:
        return all(t is None or t.is_static for t in self.sample.types)

    @property
    def is_narrow(self) -> bool:
        """Whether an operand is f16 or bf16; in float64 such a program tests the same as one in f32."""
        return any(t is not None and t.dtype.is_narrow for t in self.sample.types)

    def draw(self, variant: int = 0) -> list[np.ndarray]:
        """Arrays for the inputs; variant 0 is the sample's own draw, the others are further examples of it."""
        with np.errstate(all="ignore"):  # values for a wide dtype may overflow in a narrow one
            if variant == 0:
                arrays = self.sample.arrays(self.op)
            else:
                seed = [variant, zlib.crc32(repr(self.case).encode())]
                arrays = self.sample.drawn(self.op, np.random.default_rng(seed))
        return [a for a in arrays if a is not None]

    def rng(self) -> np.random.Generator:
        """Randomness for directions; the same in every run and process."""
        return np.random.default_rng(zlib.crc32(repr(self.case).encode()))

    def __repr__(self) -> str:
        of_rule = f"{self.rule} of " if self.rule else ""
        return f"{of_rule}{self.case}{f' {self.varied}' if self.varied else ''}"


def program_of(case: Case) -> Graph:
    """The graph of one call of the op.

    Raises:
        RlxError: The call is refused, as a `Rejected` sample promises.
    """
    builder = Builder("law")
    names = operand_names(case.op, len(case.sample.types))
    with building(builder):
        operands = [None if t is None else builder.input(n, t) for n, t in zip(names, case.sample.types, strict=True)]
        results = as_results(case.op(**case.sample.attributes)(*operands))
    return builder.finish(results)


def wide(graph: Graph, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The graph's outputs in float64, on arrays in the order of its inputs."""
    return list(interpret(graph, dict(zip(graph.input_types, arrays, strict=True)), mode="wide"))


def typed(graph: Graph, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The graph's outputs in their declared dtypes, on arrays in the order of its inputs."""
    return list(interpret(graph, dict(zip(graph.input_types, arrays, strict=True))))


def refusal(case: Case) -> RlxError | None:
    """Return the error that refuses the call of a case, or `None` if it is accepted."""
    try:
        program_of(case)
    except RlxError as error:
        return error
    return None
