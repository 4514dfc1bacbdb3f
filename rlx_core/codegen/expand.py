"""Expansion of an op to primitives: recursive decomposition down to ops that the loop language can express.

A graph that computes complex numbers becomes one that computes their parts: each complex input and output is two real ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

from rlx_core.codegen.complex_functions import FORMULAS
from rlx_core.codegen.complex_parts import EACH_PART, MEASURES, Parts, converted, of_parts
from rlx_core.errors import RlxError
from rlx_core.ir.graph import Builder, Constant, Graph, Input, Node, Value, as_results, building
from rlx_core.ir.op import Op, operand_names
from rlx_core.ir.rewrite import copy_node, rebuild
from rlx_core.ir.types import TensorType
from rlx_core.ops.complex import MakeComplex
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
from rlx_core.ops.structural import Expand, Reshape, Sum, Transpose, expand

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


# ------------------------------------------------------------------------------- parts of complex numbers

PARTS: Final = (".re", ".im")
"""Suffixes of the names of a complex input's two parts."""

_FORMULAS: Final = {function.op: rule for function, rule in FORMULAS.items()}
_MEASURES: Final = {function.op: rule for function, rule in MEASURES.items()}


def is_complex(node: Node) -> bool:
    """Return whether an operand or a result is complex."""
    return any(v.dtype.is_complex for v in (*node.present(), *node.results))


def is_known(op: Op) -> bool:
    """Return whether there is a formula for the parts of this op's result."""
    return isinstance(op, (Input, Constant, MakeComplex, Cast, *EACH_PART)) or type(op) in {**_FORMULAS, **_MEASURES}


def in_parts(graph: Graph) -> Graph:
    """The graph with parts in place of complex numbers, side by side among its outputs; every complex node of it is known.

    An input `z` becomes `z.re` and `z.im`.
    """
    builder = Builder(graph.name)
    builder.add_guards(graph.guards)
    values: dict[Value, Any] = {}
    with building(builder):
        for node in graph.nodes:
            operands = [None if v is None else values[v] for v in node.operands]
            if is_complex(node):
                values[node.result] = _computed(builder, node, operands)
            else:
                values.update(zip(node.results, copy_node(builder, node, operands), strict=True))
        outputs = (values[v] for v in graph.outputs)
        return builder.finish(each for v in outputs for each in (v if isinstance(v, tuple) else (v,)))


def _computed(builder: Builder, node: Node, operands: list[Any]) -> Any:
    op = node.op
    if isinstance(op, Input):
        real = op.type.with_dtype(op.type.dtype.component)
        return tuple(builder.input(op.label + part, real) for part in PARTS)
    if isinstance(op, Constant):
        array = op.value.array
        return builder.constant(array.real.copy()), builder.constant(array.imag.copy())
    if isinstance(op, MakeComplex):
        return _spread(node, (operands[0], operands[1]))
    if isinstance(op, Cast):
        return converted(op, operands[0])
    if isinstance(op, EACH_PART):
        parts = enumerate(of_parts(op))
        return tuple(part(*(v[k] if isinstance(v, tuple) else v for v in operands)) for k, part in parts)
    if type(op) in _MEASURES:
        return _MEASURES[type(op)](*operands)
    return _spread(node, _FORMULAS[type(op)](*operands))


def _spread(node: Node, parts: Parts) -> Parts:
    """Both parts in the dims of the result: one may not depend on all operands."""
    re, im = (v if v.shape == node.type.shape else expand(v, node.type.shape) for v in parts)
    return re, im
