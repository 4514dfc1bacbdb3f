"""The text form of graphs: for people, for comparisons in tests, and for `parse_graph`, which reads it back to the same graph.

    graph main {
      input %x : f32[BATCH, 64]
      param %w : f32[64, 32]
      constant %2 = [0.5] : f32[1]
      %3 = matmul(%x, %w) : f32[BATCH, 32]
      %4 = softmax(%3, axis=1) : f32[BATCH, 32]
      return %4
    }

A value is called by its node's name where that is unique, else by its node's number, which is the number that error
messages show; a node with several results is `%4`, its results `%4.0`, `%4.1`. Attributes are exact: a float is printed
with as many digits as it needs, a NaN with its payload, constant data as numbers or, where those are many, as base64.
"""

from __future__ import annotations

import base64
import enum
import json
import re
import struct
from collections.abc import Iterator
from typing import Any

import attrs
import numpy as np

from rlx_core.errors import FormatError
from rlx_core.ir.attributes import literal_bytes
from rlx_core.ir.dims import Expr, SizeGuard
from rlx_core.ir.dtypes import DType
from rlx_core.ir.graph import Constant, Graph, GraphArgument, Input, Literal, Node, Value
from rlx_core.ir.graph.program import PRINTED
from rlx_core.ir.numbers import literal_from_numbers
from rlx_core.ir.op import Op
from rlx_core.ir.parse import parse_graph as parse_graph
from rlx_core.ir.types import TensorType

_PLAIN = re.compile(r"[A-Za-z_]\w*(?:\.\w+)*", re.ASCII)
_INLINE_ELEMENTS = 16
_INDENT = "  "


def print_graph(graph: Graph, *, origins: bool = False) -> str:
    """The graph as text.

    Args:
        graph: HIR or MIR.
        origins: Add a comment to each node with its block, its label, the pass that made it and the user's line.
    """
    return "\n".join(_graph_lines(graph, origins)) + "\n"


PRINTED[Graph] = print_graph


def print_node(node: Node, names: dict[Value, str] | None = None) -> str:
    """One node as a line of text; without `names` values are called by number or name as in error messages."""
    if names is not None:
        return _node_text(node, names, _node_name(node, names), "")
    called = {v: repr(v) for v in (*node.present(), *node.results)}
    return _node_text(node, called, node.label, "")


def _graph_lines(graph: Graph, origins: bool, indent: str = "") -> Iterator[str]:
    names = value_names(graph)
    inner = indent + _INDENT
    yield f"graph {quote_name(graph.name)} {{"
    for guard in graph.guards:
        yield f"{inner}guard {guard_text(guard)}"
    for node in graph.nodes:
        line = _node_text(node, names, _node_name(node, names), inner)
        yield f"{inner}{line}{_origin_comment(node) if origins else ''}"
    returned = ", ".join(names[v] for v in graph.outputs)
    yield f"{inner}return {returned}".rstrip()
    yield f"{indent}}}"


def value_names(graph: Graph) -> dict[Value, str]:
    """Return the name of each value in the text; no two values share a name."""
    taken: set[str] = set()
    for node in graph.nodes:  # numbers come first: a name must never be taken for one
        taken |= {f"%{node.index}", *(f"%{node.index}.{i}" for i in range(len(node.results)))}
    called: dict[Value, str] = {}
    # Inputs and params are addressed by name from outside, so they get their names before any other node does.
    for node in sorted(graph.nodes, key=lambda n: not isinstance(n.op, GraphArgument)):
        requested = _wanted_name(node)
        base = f"%{quote_name(requested)}" if requested is not None else f"%{node.index}"
        results = _result_names(node, base)
        if requested is None or not taken.isdisjoint({base, *results}):
            base, results = f"%{node.index}", _result_names(node, f"%{node.index}")
        taken |= {base, *results}
        called.update(zip(node.results, results, strict=True))
    return called


def _wanted_name(node: Node) -> str | None:
    return node.op.label if isinstance(node.op, GraphArgument) else node.name


def _result_names(node: Node, base: str) -> list[str]:
    return [base] if len(node.results) == 1 else [f"{base}.{i}" for i in range(len(node.results))]


def _node_name(node: Node, names: dict[Value, str]) -> str:
    if not node.results:
        return f"%{node.index}"
    first = names[node.results[0]]
    return first if len(node.results) == 1 else first.removesuffix(".0")


def quote_name(name: str) -> str:
    """Return a name as it is written in the text: bare if it has only letters, digits, `_` and `.`, else as a JSON string."""
    return name if _PLAIN.fullmatch(name) else json.dumps(name)


def _node_text(node: Node, names: dict[Value, str], called: str, indent: str) -> str:
    op = node.op
    if isinstance(op, GraphArgument):
        keyword = "input" if isinstance(op, Input) else "param"
        alias = "" if called == f"%{quote_name(op.label)}" else f" as {json.dumps(op.label)}"
        return f"{keyword} {called} : {node.types[0]}{alias}"
    suffix = _name_suffix(node, called)
    if isinstance(op, Constant):
        return f"constant {called} = {literal_text(op.value)}{suffix}"
    operands = ["_" if v is None else names[v] for v in node.operands]
    try:
        attributes = [f"{k}={attribute_text(v, indent)}" for k, v in op.attributes().items()]
    except FormatError as error:
        raise FormatError(f"{op.name} at {called}: {error.message}", *error.facts, hint=error.hint) from None
    types = ", ".join(map(repr, node.types))
    declared = types if len(node.types) == 1 else f"({types})"
    return f"{called} = {op_title(op)}({', '.join(operands + attributes)}) : {declared}{suffix}"


def _name_suffix(node: Node, called: str) -> str:
    return "" if node.name is None or called == f"%{quote_name(node.name)}" else f" as {json.dumps(node.name)}"


def op_title(op: Op) -> str:
    """The op as it is called in the text: without `rlx.`, with its version unless that is 1."""
    name = op.name.removeprefix("rlx.")
    return name if op.version == 1 else f"{name}@{op.version}"


def _origin_comment(node: Node) -> str:
    origin = node.origin
    known = [origin.block, origin.label, origin.created_by, repr(origin.source) if origin.source else None]
    words = [w for w in known if w]
    return f"  # {' | '.join(words)}" if words else ""


def guard_text(guard: SizeGuard) -> str:
    """A guard as it is parsed back: `SEQ == 128`, `n % 4 == 0`."""
    return repr(guard)


# ------------------------------------------------------------------------------------------ attributes


def attribute_text(value: Any, indent: str = "") -> str:
    """An attribute value as text, exactly.

    Raises:
        FormatError: Its kind is outside the closed set (`attributes.py`).
    """
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, np.generic):
        return attribute_text(value.item(), indent)
    if value is None or isinstance(value, bool | int):
        return repr(value)
    if isinstance(value, float):
        return float_text(float(value))
    if isinstance(value, complex):
        return complex_text(value)
    if isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, tuple):
        inner = ", ".join(attribute_text(v, indent) for v in value)
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    return _object_text(value, indent)


def _object_text(value: Any, indent: str) -> str:
    if isinstance(value, DType | TensorType):
        return repr(value)
    if isinstance(value, Expr):
        return f"{{{value}}}"
    if isinstance(value, Literal):
        return f"literal({literal_text(value)})"
    if isinstance(value, Graph):
        return "\n".join(_graph_lines(value, False, indent))
    if isinstance(value, Op):
        fields = ", ".join(f"{k}={attribute_text(v, indent)}" for k, v in value.attributes().items())
        return f"op {op_title(value)}({fields})"
    if attrs.has(type(value)):
        pairs = [(a.name, getattr(value, a.name)) for a in attrs.fields(type(value))]
        return f"{type(value).__name__}({', '.join(f'{k}={attribute_text(v, indent)}' for k, v in pairs)})"
    raise FormatError(
        f"attribute: a {type(value).__name__} cannot be printed or stored",
        hint="use a tuple instead of a list, a frozen attrs record instead of a dictionary",
    )


def float_text(value: float) -> str:
    """A float that reads back to the same bits."""
    bits = struct.pack(">d", value).hex()
    if value == value:
        return repr(value)
    return "nan" if bits == "7ff8000000000000" else f"nan(0x{bits})"


def complex_text(value: complex) -> str:
    """Return a complex number as text that reads back to the same bits; the parts are separate to preserve `-0.0` and NaN."""
    return f"complex({float_text(value.real)}, {float_text(value.imag)})"


def literal_text(value: Literal) -> str:
    """Constant data with its type: `[1.0, 2.0] : f32[2]`, or base64 where numbers would be many or inexact."""
    if value.array.size <= _INLINE_ELEMENTS:
        numbers = [element_text(e) for e in value.array.reshape(-1)]
        if literal_from_numbers(value.type, numbers) == value:
            return f"[{', '.join(numbers)}] : {value.type}"
    return f"base64 {json.dumps(base64.b64encode(literal_bytes(value)).decode('ascii'))} : {value.type}"


def element_text(element: Any) -> str:
    """Return one element of an array, in the fewest digits that distinguish it from its neighbours in its dtype."""
    if isinstance(element, np.complexfloating):
        return complex_text(complex(element))
    if isinstance(element, np.bool_ | np.integer):
        return str(element)
    # 0.1 rather than 0.10000000149011612. bfloat16 prints as a float.
    text = str(element) if isinstance(element, np.floating) else str(float(element))
    return text if not re.fullmatch(r"-?\d+", text) else f"{text}.0"
