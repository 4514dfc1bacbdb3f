"""A graph that computes complex numbers as one that computes their parts: each complex input and output becomes two real ones."""

from __future__ import annotations

from typing import Any, Final

from rlx_core.codegen.complex_functions import FORMULAS
from rlx_core.codegen.complex_parts import EACH_PART, MEASURES, Parts, converted, of_parts
from rlx_core.ir.graph import Builder, Constant, Graph, Input, Node, Value, building
from rlx_core.ir.op import Op
from rlx_core.ir.rewrite import copy_node
from rlx_core.ops.complex import MakeComplex
from rlx_core.ops.conversion import Cast
from rlx_core.ops.structural import expand

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
