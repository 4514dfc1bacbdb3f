"""Sizes for symbols: substituting them through a whole graph, and reading them off arrays.

Binding is substitution followed by re-inference and comparison. Guards are checked before anything else, every size in every
attribute and nested graph is replaced, and a mismatch is an error: nothing is moved, cropped or repaired.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs
from attrs import field

from rlx_core.errors import Fact, RlxError, ShapeError, UnknownNameError, nearest
from rlx_core.ir.dims import DimBinding, Expr, SizeGuard
from rlx_core.ir.graph import Builder, Graph, GraphArgument, Node, Value, keep_symbols, symbols_inside
from rlx_core.ir.op import Op
from rlx_core.ir.provenance import originating
from rlx_core.ir.solve import infer_binding as infer_binding
from rlx_core.ir.solve import infer_binding_from_counts as infer_binding_from_counts
from rlx_core.ir.types import TensorType
from rlx_core.system.records import define, evolve


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
    bound: dict[int, tuple[Op, tuple[TensorType, ...]]] = {}
    types = _BoundTypes(binding)
    for node, first in zip(graph.nodes, graph.alike, strict=True):
        operands = [None if v is None else values[v] for v in node.operands]
        bound_op = bound.get(first)
        if bound_op is None:
            guards = len(builder.guards)
            bound_op = _bound_node(builder, node, operands, types)
            if len(builder.guards) == guards:  # a guard names the node that needs it
                bound[first] = bound_op
        results = builder.emit(bound_op[0], operands, name=node.name, origin=node.origin, types=bound_op[1])
        values.update(zip(node.results, results, strict=True))
    builder.add_guards(remaining)
    return builder.finish(values[v] for v in graph.outputs), values


def check_guards(graph: Graph, binding: DimBinding) -> list[SizeGuard]:
    """The guards that are still open under `binding`, after checking all others, those of nested graphs too.

    Raises:
        GuardError: One does not hold.
    """
    checked = [guard.check(binding) for guard in graph.guards]
    for body in graph.bodies:
        check_guards(body, binding)
    return [guard for guard in checked if guard is not None]


@define(eq=False)
class _BoundTypes:
    """Declared types with their sizes bound; each is bound once, because most values share their types.

    Attributes:
        sizes: The binding of symbols to sizes.
        known: Declared types and the bound types.
    """

    sizes: DimBinding
    known: dict[TensorType, TensorType] = field(factory=dict)

    def of(self, declared: TensorType) -> TensorType:
        bound_type = self.known.get(declared)
        if bound_type is None:
            bound_type = self.known[declared] = declared.bind(self.sizes)
        return bound_type


def _bound_node(
    builder: Builder, node: Node, operands: Sequence[Value | None], bound: _BoundTypes
) -> tuple[Op, tuple[TensorType, ...]]:
    """Return the op of a node with its sizes bound, and its result types, which are inferred again and compared."""
    try:
        op = bind_op(node.op, bound.sizes)
        if op is node.op and all(v is None or v.type == t for v, t in zip(operands, node.operand_types, strict=True)):
            return op, node.types  # no size changes it; leaves would only return theirs
        if isinstance(op, GraphArgument):
            inferred: tuple[TensorType, ...] = (op.type,)
        else:
            with originating(node.origin):
                inferred = builder.inferred(op, operands, node.name, node.origin, is_kept=False)
    except RlxError as error:
        raise error.with_fact(Fact("node", node.label, node.origin.source), Fact("binding", bound.sizes)) from None
    types = tuple(map(bound.of, node.types))
    for declared, type in zip(types, inferred, strict=True):
        if declared != type:
            raise ShapeError(
                f"bind: {node.label} = {node.op.name} was declared {declared}, and is {type} once bound",
                Fact("node", repr(node), node.origin.source),
                Fact("binding", bound.sizes),
            )
    return op, types


def bind_op(op: Op, binding: DimBinding) -> Op:
    """Return the op with every size in its attributes bound; the same object if its attributes have no symbols."""
    unknown = symbols_inside(op)
    if not unknown:
        return op
    cache = vars(op)  # a template's op is bound for every size
    places = cache.get(_PLACES)
    if places is None:
        places = cache[_PLACES] = _places(op.attributes())
    return keep_symbols(_with_bound(op, places, binding), unknown - binding.sizes.keys())


_PLACES: Final = "_places_of_sizes"
Places = Mapping[Any, Any]
"""Positions of sizes inside a value: for fields by name or items by number that contain any, the positions inside these."""

_ENTIRE: Final[Places] = {}
"""The whole value is a size, a type or a graph."""


def _places(items: Mapping[Any, Any]) -> Places:
    result = {}
    for key, value in items.items():
        if not symbols_inside(value):
            continue
        if isinstance(value, Expr | TensorType | Graph):
            result[key] = _ENTIRE
        elif isinstance(value, tuple):
            result[key] = _places(dict(enumerate(value)))
        else:
            result[key] = _places(attrs.asdict(value, recurse=False))
    return result


def _bound(value: Any, places: Places, binding: DimBinding) -> Any:
    """An attribute's value with the sizes in it bound."""
    if places is _ENTIRE:
        if isinstance(value, Graph):
            return bind(value, binding)[0]
        return value.bind(binding) if isinstance(value, TensorType) else binding.bind(value)
    if isinstance(value, tuple):
        items = list(value)
        for key, inside in places.items():
            items[key] = _bound(items[key], inside, binding)
        return tuple(items)
    return _with_bound(value, places, binding)


def _with_bound(record: Any, places: Places, binding: DimBinding) -> Any:
    return evolve(record, **{name: _bound(getattr(record, name), inside, binding) for name, inside in places.items()})
