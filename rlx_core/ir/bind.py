"""Sizes for symbols: substituting them through a whole graph, and reading them off arrays.

Binding is substitution followed by re-inference and comparison. Guards are checked before anything else, every size in every
attribute and nested graph is replaced, and what no longer fits is an error: nothing is moved, cropped or repaired.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import attrs
from attrs import field

from rlx_core.errors import Fact, RlxError, ShapeError, UnknownNameError, nearest
from rlx_core.ir.dims import DimBinding, Expr, SizeGuard
from rlx_core.ir.graph import Builder, Graph, Node, Value, is_hashable, keep_symbols, nested_graphs, symbols_inside
from rlx_core.ir.op import Op
from rlx_core.ir.provenance import originating
from rlx_core.ir.solve import infer_binding, infer_binding_from_counts
from rlx_core.ir.types import TensorType
from rlx_core.system.records import define

__all__ = [
    "bind",
    "bind_op",
    "check_guards",
    "infer_binding",
    "infer_binding_from_counts",
    "named_binding",
]


def named_binding(graph: Graph, sizes: Mapping[str, int]) -> DimBinding:
    """Sizes by the names of the symbols that `graph` has.

    Raises:
        UnknownNameError: It has no symbol of a name.
        BindingError: A size is negative.
    """
    known = sorted(symbol.name for symbol in graph.symbols)
    for name in sizes:
        if name not in known:
            raise UnknownNameError(
                f"bind: {graph.name} has no symbol {name!r}",
                Fact("symbols", ", ".join(known) or "none"),
                hint=nearest(name, known),
            )
    return DimBinding.of(**sizes)


def bind(graph: Graph, binding: DimBinding) -> tuple[Graph, dict[Value, Value]]:
    """`graph` with the binding's symbols replaced by sizes; other symbols stay.

    Returns:
        The new graph and the map from old to new values.

    Raises:
        GuardError: A relation that the program relies on does not hold.
        BindingError: A quotient that was assumed exact is not.
        ShapeError: A node does not fit its bound operands any more.
    """
    remaining = check_guards(graph, binding)
    builder = Builder(graph.name)
    values: dict[Value, Value] = {}
    known = _Binding(binding)
    for node in graph.nodes:
        results = _bind_node(builder, node, known, values)
        values.update(zip(node.results, results, strict=True))
    builder.add_guards(remaining)
    return builder.finish(values[v] for v in graph.outputs), values


def check_guards(graph: Graph, binding: DimBinding) -> list[SizeGuard]:
    """The guards that are still open under `binding`, after checking all others, those of nested graphs too.

    Raises:
        GuardError: One does not hold.
    """
    checked = [guard.check(binding) for guard in graph.guards]
    for body in _nested(graph):
        check_guards(body, binding)
    return [guard for guard in checked if guard is not None]


def _nested(graph: Graph) -> Iterable[Graph]:
    return (a for node in graph.nodes for a in node.op.attributes().values() if isinstance(a, Graph))


@define(eq=False)
class _Binding:
    """What is bound already of one graph. Layers are alike, so that most of a long program is bound once.

    Attributes:
        types: Declared types and what they are.
        nodes: Ops with the bound types of their operands, and the bound op with the types of its results.
    """

    sizes: DimBinding
    types: dict[TensorType, TensorType] = field(factory=dict)
    nodes: dict[Any, tuple[Op, tuple[TensorType, ...] | None]] = field(factory=dict)

    def type(self, declared: TensorType) -> TensorType:
        found = self.types.get(declared)
        if found is None:
            found = self.types[declared] = declared.bind(self.sizes)
        return found


def _bind_node(builder: Builder, node: Node, binding: _Binding, values: Mapping[Value, Value]) -> tuple[Value, ...]:
    operands = [None if v is None else values[v] for v in node.operands]
    types = tuple(None if v is None else v.type for v in operands)
    key = None if nested_graphs(node.op) or not is_hashable(node.op) else (node.op, types)
    try:
        op, known = binding.nodes.get(key) or (bind_op(node.op, binding.sizes), None)
        if op is node.op and types == node.operand_types:
            known = node.types  # no size changes it; leaves would only be asked for theirs
        guards = len(builder.guards)
        with originating(node.origin):
            results = builder.emit(op, operands, name=node.name, origin=node.origin, types=known)
    except RlxError as error:
        raise error.with_fact(Fact("node", node.label, node.origin.source), Fact("binding", binding.sizes)) from None
    for old, new in zip(node.types, results, strict=True):
        if binding.type(old) != new.type:
            raise ShapeError(
                f"bind: {node.label} = {node.op.name} was declared {binding.type(old)}, and is {new.type} once bound",
                Fact("node", repr(node), node.origin.source),
                Fact("binding", binding.sizes),
            )
    if key is not None and known is None and len(builder.guards) == guards:  # a guard names the node that needs it
        binding.nodes[key] = op, results[0].node.types if results else ()
    return results


def bind_op(op: Op, binding: DimBinding) -> Op:
    """The op with every size in its attributes bound; the same object if there is none."""
    unknown = symbols_inside(op)
    if not unknown:
        return op
    kept = vars(op)  # a template's op is bound for every size
    places = kept.get(_PLACES)
    if places is None:
        places = kept[_PLACES] = _places(op.attributes())
    return keep_symbols(_with_bound(op, places, binding), unknown - binding.sizes.keys())


_PLACES: Final = "_places_of_sizes"
Places = Mapping[Any, Any]
"""Where sizes are inside a value: of fields by name or of items by number, those that hold any, and where in these."""

_WHOLE: Final[Places] = {}
"""The whole value is a size, a type or a graph."""


def _places(items: Mapping[Any, Any]) -> Places:
    found = {}
    for at, value in items.items():
        if not symbols_inside(value):
            continue
        if isinstance(value, Expr | TensorType | Graph):
            found[at] = _WHOLE
        elif isinstance(value, tuple):
            found[at] = _places(dict(enumerate(value)))
        else:
            found[at] = _places(attrs.asdict(value, recurse=False))
    return found


def _bound(value: Any, places: Places, binding: DimBinding) -> Any:
    """An attribute's value with the sizes in it bound."""
    if places is _WHOLE:
        if isinstance(value, Graph):
            return bind(value, binding)[0]
        return value.bind(binding) if isinstance(value, TensorType) else binding.bind(value)
    if isinstance(value, tuple):
        items = list(value)
        for at, inside in places.items():
            items[at] = _bound(items[at], inside, binding)
        return tuple(items)
    return _with_bound(value, places, binding)


def _with_bound(record: Any, places: Places, binding: DimBinding) -> Any:
    aliases = {a.name: a.alias for a in attrs.fields(type(record))}
    changes = {aliases[name]: _bound(getattr(record, name), inside, binding) for name, inside in places.items()}
    return attrs.evolve(record, **changes)
