"""Sizes for symbols: substituting them through a whole graph, and reading them off arrays.

Binding is substitution followed by re-inference and comparison. Guards are checked before anything else, every size in every
attribute and nested graph is replaced, and what no longer fits is an error: nothing is moved, cropped or repaired.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import attrs

from rlx_core.errors import Fact, RlxError, ShapeError, UnknownNameError, nearest
from rlx_core.ir.dims import DimBinding, Expr, Guard
from rlx_core.ir.graph import Builder, Graph, Node, Value, symbols_inside
from rlx_core.ir.op import Op
from rlx_core.ir.provenance import originating
from rlx_core.ir.solve import infer_binding, infer_binding_from_counts
from rlx_core.ir.types import TensorType

__all__ = [
    "bind",
    "bind_op",
    "bind_value",
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
    bound = cache(lambda type: type.bind(binding))  # there are few types
    for node in graph.nodes:
        results = _bind_node(builder, node, binding, values, bound)
        values.update(zip(node.results, results, strict=True))
    builder.add_guards(remaining)
    return builder.finish(values[v] for v in graph.outputs), values


def check_guards(graph: Graph, binding: DimBinding) -> list[Guard]:
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


def _bind_node(
    builder: Builder,
    node: Node,
    binding: DimBinding,
    values: Mapping[Value, Value],
    bound: Callable[[TensorType], TensorType],
) -> tuple[Value, ...]:
    try:
        op = bind_op(node.op, binding)
        operands = [None if v is None else values[v] for v in node.operands]
        # The types of what no size changes are known; leaves would only be asked for theirs.
        is_known = op is node.op and all(v is None or values[v].type == v.type for v in node.operands)
        with originating(node.origin):
            results = builder.emit(
                op, operands, name=node.name, origin=node.origin, types=node.types if is_known else None
            )
    except RlxError as error:
        raise error.with_fact(Fact("node", node.label, node.origin.source), Fact("binding", binding)) from None
    for old, new in zip(node.types, results, strict=True):
        if bound(old) != new.type:
            raise ShapeError(
                f"bind: {node.label} = {node.op.name} was declared {bound(old)}, and is {new.type} once bound",
                Fact("node", repr(node), node.origin.source),
                Fact("binding", binding),
            )
    return results


def bind_op(op: Op, binding: DimBinding) -> Op:
    """The op with every size in its attributes bound; the same object if there is none."""
    return _evolved(op, binding) if symbols_inside(op) else op


def _evolved(record: Any, binding: DimBinding) -> Any:
    fields: Sequence[Any] = attrs.fields(type(record))
    changes = {}
    for a in fields:
        old = getattr(record, a.name)
        new = bind_value(old, binding)
        if new is not old:
            changes[a.alias] = new
    return attrs.evolve(record, **changes) if changes else record


def _is_record(value: Any) -> bool:
    is_plain = value is None or isinstance(value, bool | int | float | complex | str)
    return not is_plain and attrs.has(type(value)) and not type(value).__module__.startswith("rlx_core.ir.graph")


def bind_value(value: Any, binding: DimBinding) -> Any:
    """An attribute value with every size in it bound; the same object if nothing changes."""
    if isinstance(value, Expr):
        return binding.bind(value)
    if isinstance(value, TensorType):
        return value.bind(binding)
    if isinstance(value, tuple):
        bound = tuple(bind_value(v, binding) for v in value)
        return value if all(a is b for a, b in zip(value, bound, strict=True)) else bound
    if isinstance(value, Graph):
        return bind(value, binding)[0]
    return _evolved(value, binding) if _is_record(value) else value
