"""Values that are known once parameters are bound: computations on them alone run at binding, not on every run.

The compiler moves these out of the program (`rlx_core.pipeline.planning.prepare`); so a pass that merges several nodes
into one does not mix them with nodes that depend on inputs.
"""

from __future__ import annotations

from collections.abc import Iterable
from weakref import WeakKeyDictionary

from rlx_core.ir.graph import Builder, Constant, Graph, Input, Node, Param, Value, symbols_inside
from rlx_core.ir.types import TensorType

EXPANSION = 1.5
"""Bytes of a result for each byte that it is computed from, from which on a weight counts as expanded."""

SMALL_NBYTES = 1 << 16
"""Bytes of a result up to which its expansion does not count."""


def expands(nbytes: int, sources: Iterable[TensorType]) -> bool:
    """Return whether a result of `nbytes` is a narrow weight made wide: 4-bit codes as bytes, or i8 as f32.

    Scalars count for nothing: a fill is no expansion of its number.
    """
    arrays = [t.static_nbytes for t in sources if t.size != 1]
    return bool(arrays) and nbytes > SMALL_NBYTES and nbytes > EXPANSION * sum(arrays)


def leaves_of(value: Value) -> list[Value]:
    """Return the parameters and constants that a value is computed from, each once."""
    leaves: dict[Value, None] = {}
    seen: set[Node] = set()
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each.node.op, Param | Constant):
            leaves[each] = None
        elif each.node not in seen:
            seen.add(each.node)
            waiting += each.node.present()
    return list(leaves)


def bound_nodes(graph: Graph, pinned: frozenset[str] = frozenset()) -> set[Node]:
    """The nodes whose results are known once parameters are bound.

    A node without operands (a range, a fill) costs nothing to make and nothing to keep away: it is bound only together with
    something that is.

    Args:
        graph: A whole program.
        pinned: Names of parameters that change from run to run (donated ones), so that nothing may be computed ahead.
    """
    known: set[Node] = set()
    free: set[Node] = set()
    for node in graph.nodes:
        op = node.op
        if isinstance(op, Constant) or (isinstance(op, Param) and op.label not in pinned and op.type.is_static):
            known.add(node)
        elif (
            isinstance(op, Input | Param) or not op.is_pure or op.is_barrier or not all(t.is_static for t in node.types)
        ):
            continue
        elif not node.operands:
            free.update([] if symbols_inside(op) else [node])
        else:
            sources = {v.node for v in node.present()}
            # A size that is not known yet is bound with the inputs, later than parameters are.
            if sources <= known | free and not symbols_inside(op):
                (known if sources & known else free).add(node)
    return known


def is_bound(value: Value) -> bool:
    """Return whether `value` derives from parameters and constants alone, and from at least one of them, with sizes known.

    The same as `bound_nodes` for one value, where looking through the whole graph would be too much.
    """
    stack = [value.node]
    while stack:
        node = stack[-1]
        known = _known.setdefault(node.owner, {})
        if node.index in known:
            stack.pop()
            continue
        sources = [v.node for v in node.present()]
        if (
            isinstance(node.op, Input)
            or not node.op.is_pure
            or node.op.is_barrier
            or not all(t.is_static for t in node.types)
        ):
            known[node.index] = _WAITS
        elif missing := [each for each in sources if each.index not in _known.setdefault(each.owner, {})]:
            stack += missing
        else:
            states = [_known[each.owner][each.index] for each in sources]
            state = _BOUND if isinstance(node.op, Param | Constant) else _FREE
            known[node.index] = _WAITS if _WAITS in states else max([state, *states])
    return _known[value.node.owner][value.node.index] == _BOUND


_WAITS, _FREE, _BOUND = 0, 1, 2
"""States of a node: it waits for inputs; it reads nothing; it is known once parameters are bound."""

_known: WeakKeyDictionary[Builder, dict[int, int]] = WeakKeyDictionary()
"""Builder → index of a node → its state, so that asking for every node of a chain visits each node once."""
