"""Functions of pytrees as graphs without captures: each enclosing value that a function uses becomes an operand.

The body inside an op sees only its operands (`rlx_core.ops.call`); this module converts Python functions to such bodies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rlx_core.errors import DtypeError, Fact, ShapeError, TraceError
from rlx_core.ir.apply import array_value
from rlx_core.ir.dtypes import weak_dtype
from rlx_core.ir.graph import Builder, Graph, Value, ambient_builder, building
from rlx_core.ir.rewrite import inline
from rlx_core.ir.types import TensorType
from rlx_core.system.records import frozen
from rlx_core.transforms.trace import Leaf, is_static_leaf, leaf_type, not_an_array, trace_flat
from rlx_core.trees.flatten import Tree, flatten_arguments


@frozen(eq=False)
class Arguments:
    """The arguments of one call, flat.

    Attributes:
        leaves: The role of each leaf in the program.
        tree: Their structure: one tree over the dictionary of arguments.
        names: The arguments' names.
        operands: The values of the leaves that are not Python scalars.
    """

    leaves: tuple[Leaf, ...]
    tree: Tree
    names: tuple[str, ...]
    operands: tuple[Value, ...]

    @classmethod
    def of(cls, builder: Builder, named: Mapping[str, Any]) -> Arguments:
        """Return the arguments of a call inside a trace.

        Raises:
            TraceError: A leaf is not an array.
        """
        flat, tree = flatten_arguments(named)
        leaves = tuple(_leaf(name, value) for name, value in zip(tree.names, flat, strict=True))
        pairs = zip(leaves, flat, strict=True)
        operands = tuple(as_value(builder, value) for leaf, value in pairs if leaf.role == "input")
        return cls(leaves, tree, tuple(named), operands)

    def unflatten(self, leaves: Sequence[Any]) -> dict[str, Any]:
        """Return the arguments by name, with these leaves."""
        return dict(zip(self.names, self.tree.unflatten(leaves), strict=True))


def _leaf(name: str, value: Any) -> Leaf:
    if is_static_leaf(value):
        return Leaf(name, "static", static=value)
    try:
        return Leaf(name, "input", leaf_type(value))
    except TraceError as error:
        raise not_an_array(name, value, error) from None


@frozen(eq=False)
class Traced:
    """A function traced on placeholders for leaves.

    Attributes:
        graph: Its inputs are the leaves that are not Python scalars, followed by the captured values.
        results: The structure of the function's result.
        captures: Values of enclosing traces that it uses, by the input that receives them.
    """

    graph: Graph
    results: Tree
    captures: Mapping[str, Value]


def traced(name: str, leaves: Sequence[Leaf], call: Callable[[list[Any]], Any]) -> Traced:
    """Trace `call` on placeholders for leaves; it may use values of enclosing traces."""
    return Traced(*trace_flat(name, leaves, call, capturing=True))


def closed(each: Traced, leaves: Sequence[Leaf], captured: Sequence[Value], more: Sequence[Leaf] = ()) -> Graph:
    """Return the graph with an input for each leaf that is not a Python scalar, then for each of `captured`, then for `more`.

    Args:
        each: The function traced on `leaves` and `more`.
        leaves: The leaves of the arguments.
        captured: Values of enclosing traces that the call has as further operands, at least all that this function uses.
        more: Leaves that are not arguments: results, tangents, cotangents.
    """
    builder = Builder(each.graph.name)
    with building(builder):
        bindings = {leaf.name: builder.input(leaf.name, leaf.type) for leaf in leaves if leaf.type is not None}
        stand_ins = {v: builder.input(f"captured_{k}", v.type) for k, v in enumerate(captured)}
        bindings |= {leaf.name: builder.input(leaf.name, leaf.type) for leaf in more if leaf.type is not None}
        bindings |= {name: stand_ins[v] for name, v in each.captures.items()}
        return builder.finish(inline(builder, each.graph, bindings))


def as_value(builder: Builder, data: Any) -> Value:
    """Convert anything array-like to a value of `builder`; a Python number has its default dtype."""
    if is_static_leaf(data) and not isinstance(data, str):
        return builder.constant(data, weak_dtype(data))
    return builder._own(data) if isinstance(data, Value) else array_value(builder, data)


def of_type(builder: Builder, name: str, data: Any, expected: TensorType) -> Value:
    """Convert anything array-like to a value of exactly this type: a broadcast tangent would be another direction.

    Raises:
        ShapeError, DtypeError: It has another type.
    """
    value = (
        builder.constant(data, expected.dtype)
        if type(data) in (int, float) and not expected.shape
        else as_value(builder, data)
    )
    if value.type != expected:
        error = ShapeError if value.dtype is expected.dtype else DtypeError
        raise error(
            f"{name} must be {expected}, as what it belongs to, not {value.type}",
            Fact("given", value.type, value.node.origin.source),
        )
    return value


def current_builder(what: str) -> Builder:
    """Return the innermost trace.

    Raises:
        TraceError: No trace is active.
    """
    builder = ambient_builder()
    if builder is None:
        raise TraceError(f"{what}: there is no program being traced", hint=f"call rlx.{what}, which starts one")
    return builder
