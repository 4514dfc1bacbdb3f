"""Expansion of an op to primitives: recursive decomposition down to ops that the loop language can express."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from rlx_core.codegen.in_parts import in_parts, is_complex, is_known
from rlx_core.errors import RlxError
from rlx_core.ir.graph import Builder, Constant, Graph, Input, Node, Value, as_results, building
from rlx_core.ir.op import Op, operand_names
from rlx_core.ir.rewrite import rebuild
from rlx_core.ir.types import TensorType
from rlx_core.ops.conversion import Cast
from rlx_core.ops.convolution.sliding import SlidingWindows
from rlx_core.ops.creation import DimValue, Full, Iota
from rlx_core.ops.derivatives.checkpoint import Later
from rlx_core.ops.floating import Bitcast, NextOnGrid
from rlx_core.ops.gamma import Polygamma
from rlx_core.ops.indexing import Gather
from rlx_core.ops.kinds import Elementwise
from rlx_core.ops.movement import Narrow
from rlx_core.ops.piecewise import Round
from rlx_core.ops.reduction import Max, Mean, Min, Prod
from rlx_core.ops.selection import StopGradient, StraightThrough, Where
from rlx_core.ops.structural import Expand, Reshape, Sum, Transpose

SCALARS: tuple[type[Op], ...] = (Elementwise, Where, Cast, Round, Polygamma, NextOnGrid, Bitcast)
"""Ops that compute each element from the elements at the same position; those that decompose are expanded first."""

REDUCTIONS: tuple[type[Op], ...] = (Sum, Mean, Max, Min, Prod)

VIEWS: tuple[type[Op], ...] = (
    *(Reshape, Expand, Transpose, Narrow, SlidingWindows, StopGradient, StraightThrough, Later, Full),
)
"""Ops that only say which element of their first operand an element is."""

_WORDS = (*SCALARS, *REDUCTIONS, *VIEWS, DimValue, Iota, Gather)

_DEPTH = 12
"""Decompositions inside decompositions; no standard op comes near, and an op that decomposes into itself stops here."""


def is_word(op: Op) -> bool:
    """Return whether the loop language expresses this op directly."""
    return isinstance(op, Input | Constant) or (
        isinstance(op, _WORDS) and (op.decompose is None or isinstance(op, Full))
    )


def is_said(node: Node) -> bool:
    """Return whether a node is a word, or one of complex numbers whose parts are."""
    return is_known(node.op) if is_complex(node) else is_word(node.op)


@lru_cache(maxsize=2048)
def expanded(op: Op, types: tuple[TensorType | None, ...]) -> Graph | None:
    """Return the op on inputs of these types as a graph of primitives, or `None` if some op in it is not expressible.

    Complex inputs and outputs are two real ones each, see `in_parts`.
    """
    builder = Builder(op.name)
    with building(builder):
        names = operand_names(op, len(types))
        operands = [None if t is None else builder.input(n, t) for n, t in zip(names, types, strict=True)]
        graph = builder.finish(builder.emit(op, operands))
    for _ in range(_DEPTH):
        unsaid = [node for node in graph.nodes if not is_said(node)]
        if any(n.op.decompose is None for n in unsaid):
            return None
        try:
            if unsaid:
                graph, _ = rebuild(graph, _one_level)
            elif any(map(is_complex, graph.nodes)):
                graph = in_parts(graph)
            else:
                return graph
        except RlxError:
            return (
                None  # a rule that refuses these types refuses them again, with its reason, when it is asked directly
            )
    return None


def _one_level(node: Node, operands: tuple[Value | None, ...]) -> Sequence[Value] | None:
    if is_said(node):
        return None
    assert node.op.decompose is not None, "what does not decompose was refused"
    return tuple(as_results(node.op.decompose(*operands)))
