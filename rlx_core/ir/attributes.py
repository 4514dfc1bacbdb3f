"""The closed set of attribute kinds, and their one canonical form.

An attribute is `None`, a bool, int, float, complex or str, a dtype, dim or type, literal data, a nested graph or op, an
enum member, a tuple of these, or a frozen attrs record whose fields are such. The canonical form is JSON: self-describing
tags, floats as exact hex, constant bytes handed to a *blob store*. The file format keeps that form and the fingerprint
hashes it, so what one covers the other covers.
"""

from __future__ import annotations

import base64
import binascii
import enum
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import attrs
import numpy as np

from rlx_core.errors import FormatError, RlxError, UnknownNameError, nearest
from rlx_core.ir.annotations import kind_faults, record_classes
from rlx_core.ir.dims import Expr, Guard, parse_dim
from rlx_core.ir.dtypes import DType, dtype
from rlx_core.ir.forms import Json, items, need, optional, pair, quoted
from rlx_core.ir.graph import Builder, Constant, Graph, Input, Literal, Node, Param, Value
from rlx_core.ir.op import Op
from rlx_core.ir.provenance import Origin, Source
from rlx_core.ir.types import TensorType, spec

__all__ = [
    "Decoder",
    "Encoder",
    "OpTable",
    "decode",
    "encode",
    "exact_float",
    "find_op",
    "literal_bytes",
    "literal_from",
    "make_op",
    "read_float",
]

OpTable = Mapping[str, type[Op]]
"""Op name → op class, as a registry holds it."""

LEAVES: OpTable = {op.name: op for op in (Input, Param, Constant)}

_MAX_DEPTH = 64
_RELATIONS = ("==", ">", ">=", "divides")


def literal_bytes(value: Literal) -> bytes:
    """The little-endian, row-major bytes of constant data."""
    return value.content[2]


def literal_from(of: DType, shape: Sequence[int], data: bytes | memoryview) -> Literal:
    """Constant data from its bytes, which are checked against the shape before anything is allocated.

    Raises:
        FormatError: The number of bytes differs, or a bool is neither 0 nor 1.
    """
    count = 1
    for size in shape:
        count *= size
    if any(size < 0 for size in shape) or count * of.itemsize != len(data):
        raise FormatError(f"constant: {of}{list(shape)} needs {count * of.itemsize} bytes, not {len(data)}")
    if of.kind == "bool" and bytes(data).strip(b"\0\1"):
        raise FormatError(f"constant: a bool is stored as 0 or 1, not {max(data)}")
    try:
        native = np.frombuffer(data, of.numpy.newbyteorder("<")) if count else np.empty(0, of.numpy)
        array = native.astype(of.numpy, copy=False).reshape(tuple(shape))
    except ValueError as error:
        raise FormatError(f"constant: NumPy has no array of {len(shape)} axes {list(shape)} ({error})") from None
    array.flags.writeable = False
    return Literal(array)


def exact_float(value: float) -> str:
    """A float as text that loses nothing: hex, with the payload of a NaN."""
    return value.hex() if value == value else f"nan:{struct.pack('>d', value).hex()}"


def read_float(text: str) -> float:
    """The inverse of `exact_float`."""
    try:
        if text.startswith("nan:") and len(text) == 20:
            return float(struct.unpack(">d", bytes.fromhex(text[4:]))[0])
        return float.fromhex(text)
    except (ValueError, OverflowError):
        raise FormatError(f"attribute: {text!r} is not a float") from None


# -------------------------------------------------------------------------------------------- encoding


def _inline_blob(value: Literal) -> Json:
    return base64.b64encode(literal_bytes(value)).decode("ascii")


class Encoder:
    """Writes attributes and graphs in canonical form.

    Args:
        blob: Stores constant data and returns what stands for it (base64 text, an index, a digest).
        keeps_names: Whether graph names, node names and origins are written; a fingerprint leaves them out.
    """

    def __init__(self, blob: Callable[[Literal], Json] = _inline_blob, *, keeps_names: bool = True) -> None:
        self.blob = blob
        self.keeps_names = keeps_names

    def value(self, value: object) -> Json:
        """One attribute value.

        Raises:
            FormatError: Its kind is outside the closed set.
        """
        if value is None or (isinstance(value, bool | str) and not isinstance(value, enum.Enum)):
            return value
        if isinstance(value, enum.Enum):
            return {"enum": [type(value).__name__, value.name]}
        if isinstance(value, np.generic):
            return self.value(value.item())
        if isinstance(value, int):
            return int(value)
        if isinstance(value, float):
            return {"float": exact_float(value)}
        if isinstance(value, complex):
            return {"complex": [exact_float(value.real), exact_float(value.imag)]}
        if isinstance(value, tuple):
            return [self.value(v) for v in value]
        return self._object(value)

    def _object(self, value: object) -> Json:
        if isinstance(value, DType):
            return {"dtype": value.name}
        if isinstance(value, Expr):
            return {"dim": repr(value)}
        if isinstance(value, TensorType):
            return {"type": repr(value)}
        if isinstance(value, Literal):
            return {"literal": [value.dtype.name, list(value.array.shape), self.blob(value)]}
        if isinstance(value, Graph):
            return {"graph": self.graph(value)}
        if isinstance(value, Op):
            return {"op": self.op(value)}
        if attrs.has(type(value)):
            fields: Any = attrs.fields(type(value))  # type: ignore[arg-type]
            return {"record": [type(value).__name__, {a.name: self.value(getattr(value, a.name)) for a in fields}]}
        raise FormatError(
            f"attribute: a {type(value).__name__} cannot be printed or stored",
            hint="use a tuple instead of a list, a frozen attrs record instead of a dictionary",
        )

    def op(self, op: Op) -> Json:
        """An op: name, version, attributes."""
        try:
            return [op.name, op.version, {name: self.value(a) for name, a in op.attributes().items()}]
        except FormatError as error:
            raise FormatError(f"{op.name}: {error.message}", *error.facts, hint=error.hint) from None

    def graph(self, graph: Graph) -> Json:
        """A graph: its guards, nodes and outputs; values are [node, result]."""
        head = {"name": graph.name} if self.keeps_names else {}
        guards = [self.guard(g) for g in graph.guards]
        nodes = [self._node(n) for n in graph.nodes]
        return {**head, "guards": guards, "nodes": nodes, "outputs": [self.ref(v) for v in graph.outputs]}

    def guard(self, guard: Guard) -> Json:
        relation = [guard.relation, repr(guard.left), repr(guard.right)]
        if not self.keeps_names:
            return relation
        return [*relation, guard.node, _source(guard.source if isinstance(guard.source, Source) else None)]

    def _node(self, node: Node) -> Json:
        row = [
            self.op(node.op),
            [None if v is None else self.ref(v) for v in node.operands],
            list(map(repr, node.types)),
        ]
        if not self.keeps_names:
            return row
        origin = node.origin
        return [
            *row,
            node.name,
            [_source(origin.source), origin.block, origin.label, origin.created_by, origin.plugin],
        ]

    @staticmethod
    def ref(value: Value) -> Json:
        return [value.node.index, value.index]


def _source(source: Source | None) -> Json:
    return None if source is None else [source.file, source.line]


def encode(value: object) -> Json:
    """An attribute value in canonical form, constant data inside it as base64.

    >>> encode((1, -0.0, DType("f32", 4, "float")))
    [1, {'float': '-0x0.0p+0'}, {'dtype': 'f32'}]
    """
    return Encoder().value(value)


# -------------------------------------------------------------------------------------------- decoding


def _inline_data(stored: Json) -> bytes:
    if not isinstance(stored, str):
        raise FormatError(f"constant: data must be base64 text, not {type(stored).__name__}")
    try:
        return base64.b64decode(stored, validate=True)
    except (binascii.Error, ValueError):
        raise FormatError(f"constant: {stored[:24]!r} is not base64") from None


def find_op(name: str, ops: OpTable) -> type[Op]:
    """The class of the op called `name`.

    Raises:
        UnknownNameError: Nothing provides it.
    """
    found = ops.get(name) or LEAVES.get(name)
    if found is None:
        raise UnknownNameError(
            f"op {name}: no active plugin provides it", hint=nearest(name, ops) or f"rlx why op {name}"
        )
    return found


def make_op(op: type[Op], attributes: Mapping[str, Any]) -> Op:
    """An op from attributes that were read somewhere.

    Raises:
        FormatError: A name is not one of its attributes, one is missing, or a value is refused.
    """
    known = [a.name for a in attrs.fields(op)]
    for name in attributes:
        if name not in known:
            raise FormatError(f"{op.name}: it has no attribute {name!r}", hint=nearest(name, known))
    try:
        made = op(**attributes)
    except RlxError as error:
        raise FormatError(f"{op.name}: {error.message}", *error.facts, hint=error.hint) from None
    except (TypeError, ValueError, AttributeError, KeyError, IndexError, OverflowError) as error:
        # What a validator or a converter raises about a value that no builder would have let through.
        raise FormatError(f"{op.name}: attributes {dict(attributes)} are refused ({error})") from None
    problem = next(kind_faults(made), None)
    if problem is not None:
        raise FormatError(f"{op.name}: {problem}")
    return made


class Decoder:
    """Reads what `Encoder` wrote. Every shape of the input is checked, because files come from anywhere.

    Args:
        ops: The ops that may occur.
        data: The bytes for what `Encoder.blob` returned.
    """

    def __init__(self, ops: OpTable, data: Callable[[Json], bytes | memoryview] = _inline_data) -> None:
        self.ops = ops
        self.data = data
        self.depth = 0

    def value(self, form: Json, owner: type[Any] | None = None) -> Any:
        """One attribute value; records and enums are looked up in the annotations of `owner`.

        Raises:
            FormatError: The form is not one that `Encoder` writes.
        """
        if form is None or isinstance(form, bool | str | int):
            return form
        if self.depth >= _MAX_DEPTH:
            raise FormatError(f"attribute: values are nested more than {_MAX_DEPTH} deep")
        self.depth += 1
        value = self._nested(form, owner)
        self.depth -= 1
        return value

    def _nested(self, form: Json, owner: type[Any] | None) -> Any:
        if isinstance(form, list):
            return tuple(self.value(v, owner) for v in form)
        if not isinstance(form, dict) or len(form) != 1:
            raise FormatError(f"attribute: {str(form)[:60]} has no tag")
        ((tag, content),) = form.items()
        read = self._readers.get(tag)
        if read is None:
            raise FormatError(f"attribute: there is no kind {tag!r}", hint=nearest(tag, self._readers))
        return read(self, content, owner)

    def _float(self, content: Json, owner: Any) -> float:
        return read_float(need(content, str, "a float"))

    def _complex(self, content: Json, owner: Any) -> complex:
        real, imag = pair(content, "a complex number")
        return complex(self._float(real, owner), self._float(imag, owner))

    def _dtype(self, content: Json, owner: Any) -> DType:
        return quoted(dtype, need(content, str, "a dtype"))

    def _dim(self, content: Json, owner: Any) -> Any:
        return quoted(parse_dim, need(content, str, "a dim"))

    def _type(self, content: Json, owner: Any) -> TensorType:
        return self.type(content)

    def _literal(self, content: Json, owner: Any) -> Literal:
        name, shape, blob = items(content, 3, "a literal")
        sizes = [need(n, int, "a size") for n in need(shape, list, "a shape")]
        return literal_from(self._dtype(name, owner), sizes, self.data(blob))

    def _graph(self, content: Json, owner: Any) -> Graph:
        return self.graph(content)

    def _op(self, content: Json, owner: Any) -> Op:
        return self.op(content)

    def _enum(self, content: Json, owner: Any) -> Any:
        name, member = pair(content, "an enum member")
        members = getattr(self._class(name, owner), "__members__", {})
        if need(member, str, "a member") not in members:
            raise FormatError(f"attribute: {name} has no member {member!r}")
        return members[member]

    def _record(self, content: Json, owner: Any) -> Any:
        name, fields = pair(content, "a record")
        cls = self._class(name, owner)
        values = {k: self.value(v, owner) for k, v in need(fields, dict, "the fields").items()}
        return make_record(cls, values)

    @staticmethod
    def _class(name: Json, owner: type[Any] | None) -> type[Any]:
        known = {} if owner is None else record_classes(owner)
        if not isinstance(name, str) or name not in known:
            raise FormatError(f"attribute: {name!r} is not among the annotated types ({', '.join(known) or 'none'})")
        return known[name]

    _readers: ClassVar[Mapping[str, Callable[[Any, Json, Any], Any]]] = {
        "float": _float,
        "complex": _complex,
        "dtype": _dtype,
        "dim": _dim,
        "type": _type,
        "literal": _literal,
        "graph": _graph,
        "op": _op,
        "enum": _enum,
        "record": _record,
    }

    def type(self, form: Json) -> TensorType:
        return quoted(spec, need(form, str, "a type"))

    def op(self, form: Json) -> Op:
        """An op; its version must be the one that is installed."""
        name, version, attributes = items(form, 3, "an op")
        cls = find_op(need(name, str, "an op name"), self.ops)
        if version != cls.version:
            raise FormatError(f"{name}: it was stored by version {version}, and version {cls.version} is installed")
        values = need(attributes, dict, "attributes")
        return make_op(cls, {k: self.value(v, cls) for k, v in values.items()})

    def graph(self, form: Json) -> Graph:
        """A graph, as it was stored; `verify` says whether it makes sense."""
        fields = need(form, dict, "a graph")
        builder = Builder(need(fields.get("name", "main"), str, "a graph name"))
        for row in need(fields.get("nodes"), list, "nodes"):
            self._append(builder, row)
        builder.add_guards([self.guard(g) for g in need(fields.get("guards"), list, "guards")])
        outputs = [self.ref(builder.nodes, r) for r in need(fields.get("outputs"), list, "outputs")]
        return builder.finish(outputs)

    def _append(self, builder: Builder, row: Json) -> None:
        op, operands, types, name, origin = items(row, 5, "a node")
        place = f"node {len(builder.nodes)}"
        try:
            values = [None if r is None else self.ref(builder.nodes, r) for r in need(operands, list, "operands")]
            declared = tuple(self.type(t) for t in need(types, list, "types"))
            label = None if name is None else need(name, str, "a name")
            builder.emit(self.op(op), values, name=label, origin=_origin(origin), types=declared)
        except FormatError as error:
            raise FormatError(f"{place}: {error.message}", *error.facts, hint=error.hint) from None

    @staticmethod
    def ref(nodes: Sequence[Node], form: Json) -> Value:
        """The value that [node, result] stands for, among the nodes before."""
        node, result = (need(n, int, "a place") for n in pair(form, "a value"))
        if not 0 <= node < len(nodes):
            raise FormatError(f"value: node {node} is not among the {len(nodes)} before it")
        if not 0 <= result < len(nodes[node].results):
            raise FormatError(f"value: node {node} has {len(nodes[node].results)} results, not {result + 1}")
        return nodes[node].results[result]

    @staticmethod
    def guard(form: Json) -> Guard:
        relation, left, right, node, source = items(form, 5, "a guard")
        if relation not in _RELATIONS:
            raise FormatError(f"guard: there is no relation {relation!r} (known: {' '.join(_RELATIONS)})")
        sides = [quoted(parse_dim, need(d, str, "a dim")) for d in (left, right)]
        return Guard(relation, sides[0], sides[1], optional(node, str, "a node"), _read_source(source))


def decode(form: Json, ops: OpTable, owner: type[Any] | None = None) -> Any:
    """The attribute value that `encode` wrote."""
    return Decoder(ops).value(form, owner)


def make_record(cls: type[Any], values: Mapping[str, Any]) -> Any:
    """A nested record from its fields.

    Raises:
        FormatError: The class refuses them.
    """
    try:
        return cls(**values)
    except (RlxError, TypeError, ValueError, AttributeError, KeyError, IndexError, OverflowError) as error:
        raise FormatError(f"{cls.__name__}: fields {dict(values)} are refused ({error})") from None


def _origin(form: Json) -> Origin:
    source, *words = items(form, 5, "an origin")
    block, label, created_by, plugin = (optional(w, str, "an origin") for w in words)
    return Origin(_read_source(source), block, label, created_by, plugin)


def _read_source(form: Json) -> Source | None:
    if form is None:
        return None
    file, line = pair(form, "a source line")
    return Source(need(file, str, "a file"), need(line, int, "a line"))
