"""When two nodes compute the same thing: the key that CSE merges by and patterns compare by.

Python's `==` is too generous for attributes: `1 == 1.0 == True` and `0.0 == -0.0`, and an op that pads with one is not the op
that pads with the other. Here a float is its bits and a value has its type.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

from rlx_core.ir.graph import Graph, Value
from rlx_core.ir.op import Op

__all__ = ["attribute_key", "graph_key", "op_key"]


def attribute_key(attribute: Any) -> Hashable:
    """A key that is equal exactly for attributes that mean the same, bit for bit."""
    if isinstance(attribute, float):
        return float, attribute.hex()
    if isinstance(attribute, complex):
        return complex, attribute.real.hex(), attribute.imag.hex()
    if isinstance(attribute, tuple | list):
        return type(attribute), *map(attribute_key, attribute)
    if isinstance(attribute, Mapping):
        return dict, *sorted((str(k), attribute_key(v)) for k, v in attribute.items())
    if isinstance(attribute, Graph):
        return graph_key(attribute)
    if isinstance(attribute, Op):
        return op_key(attribute)
    return type(attribute), attribute


def op_key(op: Op) -> Hashable:
    """Op class and attributes, nested graphs and constant bytes included."""
    return type(op), *(attribute_key(a) for a in op.attributes().values())


def graph_key(graph: Graph) -> Hashable:
    """Everything a graph's equality is about."""

    def place(value: Value | None) -> tuple[int, int] | None:
        return None if value is None else (value.node.index, value.index)

    rows = tuple((op_key(n.op), tuple(map(place, n.operands)), n.types) for n in graph.nodes)
    return Graph, rows, tuple(map(place, graph.outputs)), graph.guards
