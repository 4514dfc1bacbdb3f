"""A pass: a frozen record whose fields are its options, whose docstring is its manual, and which maps graph to graph.

A pass `requires` and `ensures` named properties of a program, so that a pipeline can refuse a wrong order
before anything runs (`order.py`). Verifying, printing, timing and stamping belong to the runner (`runner.py`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Literal, Protocol, TypeVar, dataclass_transform

import attrs
from attrs import Factory, field

from rlx_core.ir.dtypes import DType
from rlx_core.ir.element_functions import ElementFunctions
from rlx_core.ir.graph import Graph, Node, Value, ambient_builder, nested_graphs
from rlx_core.ir.lir import Lir
from rlx_core.ir.op import Op
from rlx_core.ir.rewrite import rebuild
from rlx_core.ir.types import TensorType
from rlx_core.system.records import frozen, spelt

__all__ = [
    "INLINED",
    "LEGAL",
    "LOWERED",
    "Context",
    "Conversion",
    "LirPass",
    "Miss",
    "Pass",
    "PassRecord",
    "Property",
    "Result",
    "Stage",
    "TargetView",
    "define_pass",
    "each_graph",
    "emit_like",
    "field",
]

Stage = Literal["hir", "mir", "lir"]


@frozen
class Property:
    """A property of a program that some passes establish; two of one name are the same property."""

    name: str
    meaning: str = field(default="", eq=False)

    def __repr__(self) -> str:
        return self.name


LOWERED = Property("lowered", "no HIR block is left")
INLINED = Property("inlined", "no call of a nested graph is left")
LEGAL = Property("legal", "every node has a kernel on the target")


class TargetView(Protocol):
    """The part of a target that passes may query; `rlx_core.pipeline.backend.Target` is one."""

    @property
    def name(self) -> str: ...
    @property
    def accepts_views(self) -> bool: ...
    @property
    def region_limits(self) -> tuple[int | None, int | None]: ...
    @property
    def kernels(self) -> Any: ...
    @property
    def element_functions(self) -> ElementFunctions | None: ...
    @property
    def fast_products(self) -> tuple[DType, ...]: ...


class RefusalView(Protocol):
    """A kernel that did not take a node, and why."""

    @property
    def kernel(self) -> str: ...
    @property
    def reason(self) -> str: ...


class AnswerView(Protocol):
    """The decision for a node: `means` is "native" where a kernel of the target takes it."""

    @property
    def means(self) -> str: ...
    @property
    def refusals(self) -> Sequence[RefusalView]: ...
    @property
    def reason(self) -> str: ...


class DispatcherView(Protocol):
    """The part of a dispatcher that passes may query; `rlx_core.pipeline.dispatch.Dispatcher` is one."""

    def answer(self, node: Node, /) -> AnswerView: ...


@frozen(eq=False)
class Context:
    """The inputs of a pass in addition to the graph and its options.

    Attributes:
        target: The target of the compilation, or `None` for target-independent work.
        settings: Resolved sections of the configuration that passes read (precision, fusion), as plain values.
        dispatcher: Answers how the target would run a node under this configuration; `None` where its kernels alone determine it.
    """

    target: TargetView | None = None
    settings: Mapping[str, Any] = Factory(dict)
    dispatcher: DispatcherView | None = None


@frozen
class Miss:
    """A place where a rewrite matched the core of its pattern and a condition failed; `kind` is the reason in a word."""

    rule: str
    node: str
    reason: str
    kind: str = "NotFused"

    def __repr__(self) -> str:
        return f"{self.rule} at {self.node}: {self.reason}"


@frozen
class Conversion:
    """An operation that a pass computes in narrower numbers, or one that it considered and kept.

    Attributes:
        name: The name of the pass.
        node: The label of the operation's node.
        what: The operation and the types of its operands.
        reason: The reason why it was kept; `None` if it was converted.
        before, after: Bytes of its weight in memory.
        details: Numbers by name that the conversion depends on, such as the scale of activations.
    """

    name: str
    node: str
    what: str
    reason: str | None
    before: int
    after: int
    details: Mapping[str, float] = field(factory=dict, hash=False)

    def __str__(self) -> str:
        details = "".join(f", {name} {value:.4g}" for name, value in self.details.items())
        if self.reason is not None:
            return f"{self.name} kept {self.node}, {self.what}{details}: {self.reason}"
        saved = f": {self.before - self.after} B less ({self.before} B before)" if self.after < self.before else ""
        return f"{self.name} converted {self.node}, {self.what}{details}{saved}"


@frozen(eq=False)
class Result:
    """The result of a pass.

    Attributes:
        graph: The new graph.
        values: Old value → new value; removed values are missing.
        counts: Number of each kind of change ("merged", "algebra/neg-neg").
        misses: Near misses, with the reason of each.
        conversions: Operations in narrower numbers, and operations that were considered and kept.
        notes: Reports for people and later stages, by name (the dispatch report, a bound that was hit).
    """

    graph: Graph
    values: Mapping[Value, Value]
    counts: Mapping[str, int] = Factory(dict)
    misses: Sequence[Miss] = ()
    notes: Mapping[str, Any] = Factory(dict)
    conversions: Sequence[Conversion] = ()

    @classmethod
    def unchanged(cls, graph: Graph) -> Result:
        return cls(graph, graph.identity)

    def then(self, following: Result) -> Result:
        """This result followed by `following`: maps composed, counts added."""
        return Result(
            following.graph,
            self.values if following.values is self.graph.identity else compose(self.values, following.values),
            add_counts(self.counts, following.counts),
            (*self.misses, *following.misses),
            {**self.notes, **following.notes},
            (*self.conversions, *following.conversions),
        )


def compose(first: Mapping[Value, Value], second: Mapping[Value, Value]) -> dict[Value, Value]:
    """Old values to newest ones; values that either step dropped are dropped."""
    return {old: second[middle] for old, middle in first.items() if middle in second}


def add_counts(*tables: Mapping[str, int]) -> dict[str, int]:
    total: dict[str, int] = {}
    for table in tables:
        for name, count in table.items():
            total[name] = total.get(name, 0) + count
    return total


@frozen(slots=False, repr=False)
class PassRecord:
    """The common fields of passes of every stage; see `Pass` and `LirPass`.

    Attributes:
        gives_up: The floating-point law that the pass violates, as for a rewrite rule; `None` if results keep NaN, infinities
            and the sign of zero, and differ by rounding at most. The laws compare its results within that.
        samples: Programs that it changes, for the laws, where no small program of standard ops is one.
    """

    name: ClassVar[str] = ""
    stage: ClassVar[Stage] = "mir"
    requires: ClassVar[frozenset[Property]] = frozenset()
    ensures: ClassVar[frozenset[Property]] = frozenset()
    invalidates: ClassVar[frozenset[Property]] = frozenset()
    before: ClassVar[tuple[str, ...]] = ()
    after: ClassVar[tuple[str, ...]] = ()
    is_fusion: ClassVar[bool] = False
    gives_up: ClassVar[str | None] = None
    samples: ClassVar[Callable[[], Iterable[Graph]] | None] = None

    def __repr__(self) -> str:
        return spelt(self)

    def options(self) -> dict[str, Any]:
        """The options by name, as configuration spells them, in declared order."""
        return {a.name.replace("_", "-"): getattr(self, a.name) for a in attrs.fields(type(self))}


@frozen(slots=False, repr=False)
class Pass(PassRecord, ABC):
    """A pure function from graph to graph with options; made with `define_pass`.

    `requires`, `ensures` and `invalidates` are sets of `Property`; `before` and `after` name passes that must not come on
    the other side of this one where both are in a pipeline.
    """

    @abstractmethod
    def run(self, graph: Graph, context: Context) -> Result:
        """The graph after this pass, with the map from old to new values."""


@frozen(slots=False, repr=False)
class LirPass(PassRecord, ABC):
    """A pure function from a planned program to a planned program; made with `define_pass`."""

    stage: ClassVar[Stage] = "lir"

    @abstractmethod
    def run(self, program: Lir, context: Context) -> Lir:
        """The program after this pass."""


_P = TypeVar("_P", bound=PassRecord)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field, attrs.field))
def define_pass(name: str, *, domain: str = "rlx") -> Callable[[type[_P]], type[_P]]:
    """Make a class a pass called `domain.name`: a frozen attrs class whose fields are keyword options."""

    def make(cls: type[_P]) -> type[_P]:
        has_repr = "__repr__" in vars(cls)
        record: Any = frozen(cls, slots=False, kw_only=True, repr=False)
        if not has_repr:
            record.__repr__ = PassRecord.__repr__
        record.name = f"{domain}.{name}"
        for relation in ("requires", "ensures", "invalidates"):
            setattr(record, relation, frozenset(getattr(record, relation)))
        return record

    return make


# ------------------------------------------------------------------------------------- nested graphs


def with_bodies(op: Op, change: Callable[[Graph], Graph]) -> Op:
    """Return `op` with every nested graph replaced; `op` itself if none of them changed."""
    bodies = nested_graphs(op)
    changed = {name: new for name, body in bodies.items() if (new := change(body)) is not body}
    return attrs.evolve(op, **changed) if changed else op


def each_graph(graph: Graph, once: Callable[[Graph], Result]) -> Result:
    """Apply `once` to every nested graph, innermost first, and then to `graph` itself.

    `once` returns `Result.unchanged` (the same graph object) where it has nothing to do, which spares the copies. The map
    is about the values of `graph`; misses and counts of bodies are included.
    """
    inner: list[Result] = []

    def change(body: Graph) -> Graph:
        inner.append(each_graph(body, once))
        return inner[-1].graph

    if graph.depth == 1:
        return once(graph)
    ops = {node: with_bodies(node.op, change) for node in graph.nodes if nested_graphs(node.op)}

    def replace(node: Node, operands: tuple[Value | None, ...]) -> tuple[Value, ...] | None:
        op = ops.get(node, node.op)
        return None if op is node.op else emit_like(node, operands, op=op)

    is_same = all(op is node.op for node, op in ops.items())
    outer = Result.unchanged(graph) if is_same else Result(*rebuild(graph, replace))
    result = outer.then(once(outer.graph))
    return attrs.evolve(
        result,
        counts=add_counts(result.counts, *(r.counts for r in inner)),
        misses=(*(m for r in inner for m in r.misses), *result.misses),
        conversions=(*(c for r in inner for c in r.conversions), *result.conversions),
    )


def emit_like(
    node: Node,
    operands: Sequence[Value | None],
    *,
    op: Op | None = None,
    name: str | None = None,
    types: tuple[TensorType, ...] | None = None,
) -> tuple[Value, ...]:
    """A node in the graph being built that takes `node`'s place: its name, its origin and its declared types."""
    builder = ambient_builder()
    assert builder is not None, "emit_like is for replacements, which run inside a rebuild"
    return builder.emit(op or node.op, operands, name=name or node.name, origin=node.origin, types=types or node.types)
