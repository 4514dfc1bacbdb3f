"""Reading attributes and graphs in canonical form (see `attributes.py`). The input is untrusted."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import attrs

from rlx_core.errors import FormatError, RlxError, UnknownNameError, nearest
from rlx_core.ir.dims import SizeGuard, parse_dim
from rlx_core.ir.dtypes import DType, dtype
from rlx_core.ir.encoding import literal_from, read_float
from rlx_core.ir.forms import Json, items, make_record, need, optional, pair, quoted
from rlx_core.ir.graph import MOST_NESTED, Builder, Constant, Graph, Input, Literal, Node, Param, Value
from rlx_core.ir.op import Op
from rlx_core.ir.provenance import Lines, Origin, Source
from rlx_core.ir.types import TensorType, spec

OpTable = Mapping[str, type[Op]]
"""Op name → op class, as a registry holds it."""

OpClass = type[Op]

LEAVES: OpTable = {op.name: op for op in (Input, Param, Constant)}

_MAX_DEPTH = 2 * MOST_NESTED + 16
"""A graph in an attribute is two levels deep, and tuples and records in the innermost one add further levels."""
_RELATIONS = ("==", ">", ">=", "divides")


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
    # Leaves first: looking up an unknown name in plugins would import all of them.
    op_class = LEAVES.get(name) or ops.get(name)
    if op_class is None:
        raise UnknownNameError(
            f"op {name}: no active plugin provides it", hint=nearest(name, ops) or f"rlx why op {name}"
        )
    return op_class


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
        return op(**attributes)
    except RlxError as error:
        raise FormatError(error.message, *error.facts, hint=error.hint) from None


def made_before(op: type[Op], attributes: Mapping[str, Any]) -> Op:
    """An op from attributes that were checked before they were stored."""
    return op(**attributes)


class Decoder:
    """Reader of the output of `Encoder`. Every shape of the input is checked, because files are untrusted.

    Args:
        ops: The ops that may occur.
        data: Returns the bytes for a reference that `Encoder.blob` returned.
        make: Makes an op of its class and attributes; `made_before` where they are known to have been an op's.
        lines: The lines of the program for the numbers that `Encoder` wrote.
    """

    def __init__(
        self,
        ops: OpTable,
        data: Callable[[Json], bytes | memoryview] = _inline_data,
        make: Callable[[type[Op], Mapping[str, Any]], Op] = make_op,
        lines: Lines = (),
    ) -> None:
        self.ops = ops
        self.data = data
        self.make = make
        self.lines = lines
        self.depth = 0
        self.types: dict[str, TensorType] = {}
        self.classes: dict[str, OpClass] = {}

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
        from rlx_core.ir.declared_kinds import record_classes  # here, because few ops have records as attributes

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
        text = need(form, str, "a type")
        result = self.types.get(text)
        if result is None:
            result = self.types[text] = quoted(spec, text)
        return result

    def op(self, form: Json) -> Op:
        """An op; its version must be the one that is installed."""
        name, version, attributes = items(form, 3, "an op")
        cls = self.op_class(name, version)
        values = need(attributes, dict, "attributes")
        return self.make(cls, {k: self.value(v, cls) for k, v in values.items()})

    def op_class(self, name: Json, version: Json) -> OpClass:
        """The class of an op, of this version."""
        cls = self.classes.get(need(name, str, "an op name"))
        if cls is None:
            cls = self.classes[name] = find_op(name, self.ops)
        if version != cls.version:
            raise FormatError(f"{name}: it was stored by version {version}, and version {cls.version} is installed")
        return cls

    def graph(self, form: Json) -> Graph:
        """Return a graph, as it was stored; `verify` checks its consistency."""
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
            builder.emit(self.op(op), values, name=label, origin=self._origin(origin), types=declared)
        except FormatError as error:
            raise FormatError(f"{place}: {error.message}", *error.facts, hint=error.hint) from None

    @staticmethod
    def ref(nodes: Sequence[Node], form: Json) -> Value:
        """Return the value that [node, result] refers to, among the nodes before."""
        node, result = (need(n, int, "a place") for n in pair(form, "a value"))
        if not 0 <= node < len(nodes):
            raise FormatError(f"value: node {node} is not among the {len(nodes)} before it")
        if not 0 <= result < len(nodes[node].results):
            raise FormatError(f"value: node {node} has {len(nodes[node].results)} results, not {result + 1}")
        return nodes[node].results[result]

    def guard(self, form: Json) -> SizeGuard:
        relation, left, right, node, source = items(form, 5, "a guard")
        if relation not in _RELATIONS:
            raise FormatError(f"guard: there is no relation {relation!r} (known: {' '.join(_RELATIONS)})")
        sides = [quoted(parse_dim, need(d, str, "a dim")) for d in (left, right)]
        return SizeGuard(relation, sides[0], sides[1], optional(node, str, "a node"), self._source(source))

    def _origin(self, form: Json) -> Origin:
        source, *words = items(form, 5, "an origin")
        block, label, created_by, plugin = (optional(w, str, "an origin") for w in words)
        return Origin(self._source(source), block, label, created_by, plugin)

    def _source(self, form: Json) -> Source | None:
        if form is None:
            return None
        if isinstance(form, int):
            if not 0 <= form < len(self.lines):
                raise FormatError(f"source: there is no line {form} among {len(self.lines)}")
            return self.lines[form]
        file, line = pair(form, "a source line")
        return Source(need(file, str, "a file"), need(line, int, "a line"))
