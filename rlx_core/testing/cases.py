"""From the samples that ops bring along to programs and arrays: what each law is tried on."""

from __future__ import annotations

import importlib
import zlib
from collections.abc import Iterable, Sequence
from functools import cache, cached_property

import numpy as np
from attrs import evolve, frozen

from rlx_core.contributions import OpFamily, OpSpec
from rlx_core.errors import RlxError, UnknownNameError, nearest
from rlx_core.ir.apply import OpFunction
from rlx_core.ir.graph import Builder, Graph, Node, as_results, building
from rlx_core.ir.interpret import interpret
from rlx_core.ir.op import Op, operand_names
from rlx_core.ir.samples import Case, Rejected, Sample, draw
from rlx_core.ir.types import TensorType
from rlx_core.plugins import default_host

__all__ = ["Program", "cases_of", "ops_of", "programs", "rejections", "select"]


def cases_of(ops: Iterable[type[Op]]) -> list[Case]:
    """Every sample of every op."""
    return [Case(op, sample) for op in ops for sample in (op.samples() if op.samples is not None else ())]


def rejections(ops: Iterable[type[Op]]) -> list[Case]:
    """The calls that must fail."""
    return [case for case in cases_of(ops) if isinstance(case.sample, Rejected)]


@cache
def programs(ops: tuple[type[Op], ...]) -> list[Program]:
    """A program for every sample that must work; made once, because every law asks for them."""
    return [Program(case) for case in cases_of(ops) if isinstance(case.sample, Sample)]


@frozen(eq=False, repr=False, slots=False)
class Program:
    """One op on the operands of one sample, as a graph whose inputs are those operands."""

    case: Case

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
    def widened(self) -> Program:
        """The same call in f64 and c128, so that constants in rules are exact; itself where the op does not take those."""
        types = tuple(None if t is None else t.with_dtype(t.dtype.wide) for t in self.sample.types)
        wider = Program(evolve(self.case, sample=evolve_types(self.sample, types)))
        try:
            return wider if wider.graph else self
        except RlxError:
            return self

    @cached_property
    def node(self) -> Node:
        """The node of the op itself; beside it there may be casts that its `prepare` put there."""
        found = [n for n in self.graph.nodes if type(n.op) is self.op]
        return found[-1]

    @property
    def is_differentiable(self) -> bool:
        """Whether an operand and a result carry derivatives."""
        return bool(self.differentiable) and any(t.dtype.is_differentiable for t in self.node.types)

    @property
    def differentiable(self) -> list[str]:
        """The names of the operands that carry derivatives."""
        return [name for name, type in self.graph.input_types.items() if type.dtype.is_differentiable]

    @cached_property
    def is_static(self) -> bool:
        return all(t.is_static for t in self.graph.input_types.values())

    @property
    def is_narrow(self) -> bool:
        """Whether an operand is f16 or bf16; in float64 it says nothing that f32 does not."""
        return any(t.dtype.is_narrow for t in self.graph.input_types.values())

    def draw(self, variant: int = 0) -> list[np.ndarray]:
        """Arrays for the inputs; variant 0 is the sample's own draw, the others are further examples of it."""
        arrays = self.sample.arrays(self.op) if variant == 0 else self._redraw(variant)
        return [a for a in arrays if a is not None]

    def _redraw(self, variant: int) -> Sequence[np.ndarray | None]:
        sample, types = self.sample, self.sample.types
        rng = np.random.default_rng([variant, zlib.crc32(repr(self).encode())])
        if sample.make is not None:
            drawn = iter(sample.make(rng))
            return [None if t is None else np.asarray(next(drawn)).astype(t.dtype.numpy) for t in types]
        names = operand_names(self.op, len(types))
        return [
            None if t is None else draw(rng, t, *sample.ranges.get(n, (sample.low, sample.high)))
            for n, t in zip(names, types, strict=True)
        ]

    def rng(self) -> np.random.Generator:
        """Randomness for directions; the same in every run and process."""
        return np.random.default_rng(zlib.crc32(repr(self).encode()))

    def __repr__(self) -> str:
        return repr(self.case)


def evolve_types(sample: Sample, types: Sequence[TensorType | None]) -> Sample:
    return Sample(
        *types,
        low=sample.low,
        high=sample.high,
        ranges=sample.ranges,
        make=sample.make,
        is_smooth=sample.is_smooth,
        **sample.attributes,
    )


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


def ops_of(plugin: str) -> tuple[type[Op], ...]:
    """The ops of a plugin by its name, or those that a module offers: its `OPS`, or what its `rlx_ops` hook returns.

    Raises:
        UnknownNameError: There is no such plugin or module, or it offers none.
    """
    registry = default_host().activate_for(f"domain.{plugin}")
    own = tuple(registry.load("ops", name) for name in registry.ops if name.startswith(f"{plugin}."))
    return own or ops_of_module(plugin)


def ops_of_module(module: str) -> tuple[type[Op], ...]:
    """The ops that a module offers.

    Raises:
        UnknownNameError: There is no such module, or it offers none.
    """
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise UnknownNameError(f"--rlx-plugin: there is no plugin {module!r}, and no module {error.name!r}") from error
    offered = found.OPS if hasattr(found, "OPS") else found.rlx_ops() if hasattr(found, "rlx_ops") else ()
    ops = tuple(op for entry in offered for op in _classes(entry))
    if not ops:
        raise UnknownNameError(
            f"--rlx-plugin: module {module} offers no ops", hint="give it a tuple `OPS` of op classes"
        )
    return ops


def _classes(entry: object) -> list[type[Op]]:
    """The op classes that one entry of `OPS` or of `rlx_ops` stands for."""
    if isinstance(entry, OpFamily):
        return [spec.load.resolve() for spec in entry]
    if isinstance(entry, OpSpec):
        return [entry.load.resolve()]
    if isinstance(entry, OpFunction):
        return [entry.op]
    return [entry] if isinstance(entry, type) and issubclass(entry, Op) else []


def select(ops: Sequence[type[Op]], names: Sequence[str]) -> list[type[Op]]:
    """The ops with these names, with or without their domain; all if no name is given.

    Raises:
        UnknownNameError: No op has one of the names.
    """
    if not names:
        return list(ops)
    known = {op.name: op for op in ops} | {op.name.split(".", 1)[1]: op for op in ops}
    for name in names:
        if name not in known:
            raise UnknownNameError(f"--rlx-op: there is no op {name!r}", hint=nearest(name, known))
    return list(dict.fromkeys(known[name] for name in names))


def refusal(case: Case) -> RlxError | None:
    """What the call of a case is refused with, or `None` if it is not."""
    try:
        program_of(case)
    except RlxError as error:
        return error
    return None
