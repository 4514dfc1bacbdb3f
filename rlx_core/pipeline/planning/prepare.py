"""Splitting off computations on parameters and constants only: they run when parameters are bound, not on every run.

The result is two graphs. The *prepare* graph goes from the user's parameters to the parameters of the *main* graph, in the
main graph's order. Views of a parameter (transpose, reshape, expand, narrow) stay in the main graph where the target has
strided views, because moving them would keep a second copy of the weights without benefit.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from rlx_core.ir.graph import Builder, Graph, Input, Node, Param, Value
from rlx_core.ir.rewrite import copy_nodes, needed_nodes, subgraph
from rlx_core.ir.strides import Strides, dense_strides
from rlx_core.passes.engine.bound_values import bound_nodes
from rlx_core.pipeline.backend import Target
from rlx_core.system.records import frozen


@frozen(eq=False)
class Prepared:
    """A program in two parts.

    Attributes:
        graph: The graph that runs every time.
        prepare: Its outputs are the params of `graph`, in order; its params are the user's. `None` if nothing was moved.
    """

    graph: Graph
    prepare: Graph | None


_LOOKAHEAD: Final = 8
"""Maximum length of a chain of views that is examined; it keeps the walk linear in the size of the graph."""


def split_prepare(graph: Graph, target: Target, pinned: Collection[str] = ()) -> Prepared:
    """Split `graph` for `target`.

    Args:
        graph: A whole program.
        target: Decides whether views of parameters cost anything.
        pinned: Names of parameters that change from run to run (donated ones), so that nothing may be computed ahead.
    """
    bound = bound_nodes(graph, frozenset(pinned))
    stay, hoisted = partition(graph, bound, target)
    if not hoisted:
        return Prepared(graph, None)
    names = prepared_names(graph, hoisted)
    main = Builder(graph.name)
    main.add_guards(graph.guards)
    values: dict[Value, Value] = {}
    feeds: list[Value] = []
    for node in graph.nodes:
        if node in stay:
            copy_nodes(main, (node,), values)
            feeds += node.results if isinstance(node.op, Param) else ()
        for value in node.results:
            if value in names:
                values[value] = main.param(names[value], value.type, origin=node.origin)
                feeds.append(value)
    finished = main.finish(values[v] for v in graph.outputs)
    return Prepared(finished, prepare_graph(graph, feeds))


def partition(graph: Graph, bound: set[Node], target: Target) -> tuple[set[Node], set[Value]]:
    """The nodes of the main graph, and the values that become its prepared params."""
    needed = set(graph.outputs)
    stay: set[Node] = set()
    hoisted: set[Value] = set()
    for node in reversed(graph.nodes):
        required = [v for v in node.results if v in needed]
        is_leaf_of_signature = isinstance(node.op, Input) or (isinstance(node.op, Param) and node not in bound)
        if node not in bound or (required and (node.is_leaf or is_free_view(node, target))):
            if required or is_leaf_of_signature or not node.op.is_pure:
                stay.add(node)
                needed.update(node.present())
        else:
            hoisted.update(required)
    return stay, hoisted


def is_free_view(node: Node, target: Target) -> bool:
    """Return whether the target reads the result in place, so that it needs neither a kernel nor bytes."""
    if not target.accepts_views:
        return False
    views: list[Node] = []
    while len(views) < _LOOKAHEAD and node.op.view is not None and node.operands and node.operands[0] is not None:
        views.append(node)
        node = node.operands[0].node
    # A view of a view has to be one where that lies.
    place: tuple[int, Strides] | None = None
    is_view = False
    for view in reversed(views):
        source = next(view.present()).type
        start, strides = place or (0, dense_strides(source))
        assert view.op.view is not None, "collected because it has one"
        viewed = view.op.view(source, strides, start)
        is_view, place = viewed is not None, viewed if len(view.types) == 1 else None
    return is_view


def prepared_names(graph: Graph, hoisted: set[Value]) -> dict[Value, str]:
    """Return a parameter name for each moved value: the node's own where it has one, and unique among the leaves."""
    taken = {*graph.input_types, *graph.param_types}
    names: dict[Value, str] = {}
    for node in graph.nodes:
        for value in node.results:
            if value in hoisted:
                base = f"prepared.{node.name or len(names)}" + (f".{value.index}" if len(node.results) > 1 else "")
                name, count = base, 1
                while name in taken:
                    name, count = f"{base}.{count}", count + 1
                names[value] = name
                taken.add(name)
    return names


def prepare_graph(graph: Graph, feeds: list[Value]) -> Graph:
    """The graph from all of the user's params to `feeds`."""
    needed = needed_nodes(graph.nodes, feeds, lambda node: isinstance(node.op, Param))
    return subgraph(graph, feeds, needed, name=f"{graph.name}.prepare")


def computed_graph(prepare: Graph) -> Graph:
    """Return the computing part of a prepare graph: its outputs that are not params, from the params that they need."""
    computed = [v for v in prepare.outputs if not isinstance(v.node.op, Param)]
    return subgraph(prepare, computed, needed_nodes(prepare.nodes, computed))
