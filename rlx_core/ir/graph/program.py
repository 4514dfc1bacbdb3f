"""`Graph`: a finished program, immutable; every transformation builds a new one (see `rewrite.py`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, Final

import attrs

from rlx_core.errors import UnknownNameError, nearest
from rlx_core.ir.dims import Expr, SizeGuard, SizeSymbol, free_symbols
from rlx_core.ir.graph.leaves import GraphArgument, Input, Param
from rlx_core.ir.graph.values import Node, Value
from rlx_core.ir.op import Op, names_of
from rlx_core.ir.protocols import Drawn, Travels
from rlx_core.ir.provenance import Source
from rlx_core.ir.types import TensorType
from rlx_core.public import Registered
from rlx_core.system.records import frozen

__all__ = ["Graph", "ValueMap", "leaf_name", "nested_graphs", "ops_inside", "symbols_inside"]

_NESTED: Final = "_nested_graphs"
_SYMBOLS: Final = "_symbols"

PRINTED: Final[Registered[type, Callable[[Any], str]]] = Registered("rlx_core.ir.text")
"""Under `Graph`, the printer of its text form: printers depend on graphs, and not the other way round."""

ValueMap = Mapping[Value, Value]
"""Old value → new value, which every transformation returns."""


@frozen(eq=False, repr=False)
class Graph(Travels, Drawn):
    """A finished program: nodes in topological order, and which values are its outputs.

    Equality is structural: ops with all attributes, types, operands, outputs, names of inputs and params; where a node
    came from takes no part.
    """

    name: str
    nodes: tuple[Node, ...]
    outputs: tuple[Value, ...]
    guards: tuple[SizeGuard, ...] = ()

    @cached_property
    def inputs(self) -> tuple[Value, ...]:
        return tuple(n.result for n in self.nodes if isinstance(n.op, Input))

    @cached_property
    def params(self) -> tuple[Value, ...]:
        return tuple(n.result for n in self.nodes if isinstance(n.op, Param))

    @cached_property
    def uses(self) -> Mapping[Value, tuple[Node, ...]]:
        """Value → its users, one entry an *edge*: a node that reads a value twice is there twice."""
        result: dict[Value, list[Node]] = {v: [] for n in self.nodes for v in n.results}
        for node in self.nodes:
            for value in node.present():
                result[value].append(node)
        return {v: tuple(users) for v, users in result.items()}

    @cached_property
    def bodies(self) -> tuple[Graph, ...]:
        """The graphs among the attributes of the nodes, in order."""
        return tuple(body for node in self.nodes for body in nested_graphs(node.op).values())

    @cached_property
    def op_names(self) -> frozenset[str]:
        """The names of the ops, and of the classes that they derive from; those of nested graphs too."""
        types = {type(node.op) for node in self.nodes}
        names = (names_of(each) for each in types)  # type: ignore[arg-type]  # a class is hashable
        return frozenset[str]().union(*names, *(body.op_names for body in self.bodies))

    @cached_property
    def alike(self) -> tuple[int, ...]:
        """For each node the index of the first one with an equal op and equal types of operands and results.

        A node whose op holds graphs, or attributes that cannot be hashed, is only like itself.
        """
        firsts: dict[object, int] = {}

        def first(node: Node) -> int:
            if nested_graphs(node.op):
                return node.index
            try:
                return firsts.setdefault((node.op, node.operand_types, node.types), node.index)
            except TypeError:  # attributes that are no values, which verifying reports
                return node.index

        return tuple(map(first, self.nodes))

    @cached_property
    def output_set(self) -> frozenset[Value]:
        return frozenset(self.outputs)

    @cached_property
    def identity(self) -> ValueMap:
        """Every value to itself: the map of a transformation that changed nothing."""
        return {v: v for n in self.nodes for v in n.results}

    @property
    def input_types(self) -> dict[str, TensorType]:
        return {leaf_name(v): v.type for v in self.inputs}

    @property
    def param_types(self) -> dict[str, TensorType]:
        return {leaf_name(v): v.type for v in self.params}

    @property
    def output_types(self) -> tuple[TensorType, ...]:
        return tuple(v.type for v in self.outputs)

    @cached_property
    def symbols(self) -> frozenset[SizeSymbol]:
        """Every size that is still unknown: in types, in attributes, and in the graphs among those."""
        in_types = (free_symbols(*t.shape) for n in self.nodes for t in n.types if not t.is_static)
        return frozenset().union(*in_types, *(symbols_inside(n.op) for n in self.nodes))

    def find(self, name: str) -> Value:
        """The input, param or named value called `name`.

        Raises:
            UnknownNameError: No value has this name; the nearest names are listed.
        """
        names = self.names
        if name not in names:
            raise UnknownNameError(f"graph {self.name}: no value is called {name!r}", hint=nearest(name, names))
        return names[name]

    @cached_property
    def is_storable(self) -> bool:
        """Whether another process can use it: no op, including those of nested graphs, belongs to this one."""
        return all(not n.op.calls_host and all(g.is_storable for g in nested_graphs(n.op).values()) for n in self.nodes)

    @cached_property
    def node_count(self) -> int:
        """Number of nodes, with those of nested graphs counted once per nesting: the number after inlining all calls."""
        return len(self.nodes) + sum(body.node_count for n in self.nodes for body in nested_graphs(n.op).values())

    @cached_property
    def depth(self) -> int:
        """Number of nesting levels, this graph included: 1 if no op holds a graph."""
        return 1 + max((body.depth for n in self.nodes for body in nested_graphs(n.op).values()), default=0)

    @cached_property
    def names(self) -> Mapping[str, Value]:
        """Every named value: inputs and params by their own names, first results of named nodes by theirs."""
        leaves = {leaf_name(v): v for v in (*self.inputs, *self.params)}
        return {n.name: n.results[0] for n in self.nodes if n.name} | leaves

    @cached_property
    def structure(self) -> tuple[object, ...]:
        """The content that equality compares, as plain nested tuples."""

        def ref(v: Value | None) -> tuple[int, int] | None:
            return None if v is None else (v.node.index, v.index)

        rows = tuple((n.op, tuple(map(ref, n.operands)), n.types) for n in self.nodes)
        return rows, tuple(map(ref, self.outputs)), self.guards

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Graph) and self.structure == other.structure

    def __hash__(self) -> int:
        return hash(self.structure)

    def __len__(self) -> int:
        return len(self.nodes)

    def __repr__(self) -> str:
        return f"Graph({self.name!r}, {len(self.nodes)} nodes, {len(self.outputs)} outputs)"

    def __str__(self) -> str:
        return PRINTED[Graph](self).rstrip("\n")


MOST_NESTED = 32
"""Maximum nesting of graphs, in files too. Programs are walked without recursion, but the values inside an op with it."""


def leaf_name(value: Value) -> str:
    """The name of an input or param."""
    op = value.node.op
    assert isinstance(op, GraphArgument), f"{value!r} is not an input or a param"
    return op.label


def nested_graphs(op: Op) -> Mapping[str, Graph]:
    """The graphs among an op's attributes, by attribute name."""
    cache = vars(op)  # cached, because every walk needs it, and an op never changes
    graphs: Mapping[str, Graph] | None = cache.get(_NESTED)
    if graphs is None:
        graphs = cache[_NESTED] = {name: a for name, a in op.attributes().items() if isinstance(a, Graph)}
    return graphs


_NO_SYMBOLS: Final[frozenset[SizeSymbol]] = frozenset()


def symbols_inside(value: Any) -> frozenset[SizeSymbol]:
    """Return every unknown size in an op or in a value of an attribute: the sizes that binding could change."""
    if isinstance(value, Op):
        cache = vars(value)  # cached, because every graph that holds the op needs it
        symbols: frozenset[SizeSymbol] | None = cache.get(_SYMBOLS)
        if symbols is None:
            symbols = cache[_SYMBOLS] = _in_each(value.attributes().values())
        return symbols
    if isinstance(value, Expr):
        return free_symbols(value)
    if isinstance(value, TensorType):
        return free_symbols(*value.shape)
    if isinstance(value, tuple):
        return _in_each(value)
    if isinstance(value, Graph):
        return value.symbols
    is_plain = value is None or isinstance(value, bool | int | float | complex | str)
    if is_plain or not attrs.has(type(value)):
        return _NO_SYMBOLS
    return _in_each(attrs.asdict(value, recurse=False).values())


def keep_symbols(op: Op, symbols: frozenset[SizeSymbol]) -> Op:
    """Return the op after storing the result of `symbols_inside`, which the caller knows."""
    vars(op)[_SYMBOLS] = symbols
    return op


def _in_each(values: Iterable[object]) -> frozenset[SizeSymbol]:
    return _NO_SYMBOLS.union(*(symbols_inside(value) for value in values))


def lines_of(graph: Graph) -> Iterator[Source | None]:
    """Yield the user's line of each node, nested graphs after the node that contains them; equal programs yield equally many."""
    left = [iter(graph.nodes)]
    while left:
        node = next(left[-1], None)
        if node is None:
            left.pop()
            continue
        yield node.origin.source
        left += [iter(nested.nodes) for nested in nested_graphs(node.op).values()]


def ops_inside(value: Any) -> Iterator[Op]:
    """A graph's ops, and all ops among their attributes: in nested graphs, in records, in tuples."""
    if isinstance(value, Op):
        yield value
        for attribute in value.attributes().values():
            yield from ops_inside(attribute)
    elif isinstance(value, Graph):
        for node in value.nodes:
            yield from ops_inside(node.op)
    elif isinstance(value, tuple):
        for each in value:
            yield from ops_inside(each)
    elif attrs.has(type(value)):
        for each in attrs.asdict(value, recurse=False).values():
            yield from ops_inside(each)
