"""Reading the text form of graphs back (`text.py` describes and prints it).

A recursive-descent parser over one string. Nothing is guessed: text that does not parse is a FormatError with its line and
column, the unexpected text, and the op or attribute that it belongs to. A type may be left out, and is then inferred.
"""

from __future__ import annotations

import base64
import binascii
import enum
import re
from collections.abc import Sequence
from typing import Any

import attrs

from rlx_core.errors import nearest
from rlx_core.ir.attributes import OpTable, find_op, literal_from, make_op, make_record
from rlx_core.ir.declared_kinds import record_classes
from rlx_core.ir.dims import Dim, Relation, SizeGuard, parse_dim
from rlx_core.ir.dtypes import ALL
from rlx_core.ir.graph import MOST_NESTED, Builder, Constant, Graph, Input, Literal, Param, Value
from rlx_core.ir.numbers import literal_from_numbers, read_number
from rlx_core.ir.op import Op
from rlx_core.ir.provenance import NOWHERE
from rlx_core.ir.scanner import INT, NUMBER, TYPE, VALUE, WORD, Scanner
from rlx_core.ir.types import TensorType
from rlx_core.ir.verify import type_faults

_DIM = re.compile(r"\{([^}]*)\}")
_GUARD = re.compile(r"([^\n#]*)")
_BASE64 = re.compile(r'"([A-Za-z0-9+/=]*)"')
_DTYPES = {d.name: d for d in ALL}
_KEYWORDS: dict[str, Any] = {"None": None, "True": True, "False": False}
_MAX_DEPTH = 2 * MOST_NESTED + 16
"""A graph in an attribute is two levels deep, and tuples and records in the innermost one add further levels."""


def parse_graph(text: str, ops: OpTable) -> Graph:
    """The graph that `print_graph` printed.

    Args:
        text: One graph, and nothing after it but comments.
        ops: Op name → class, as a registry has it; the leaves are always known.

    Raises:
        FormatError: The text has another form, or an op's operands or types do not match its declaration; with the position.
    """
    parser = Parser(text, ops)
    graph = parser.graph()
    parser.end()
    return graph


class Parser(Scanner):
    """A text, and the ops that may occur in it.

    Args:
        text: The text to read.
        ops: Op name → class.
    """

    def __init__(self, text: str, ops: OpTable) -> None:
        super().__init__(text)
        self.ops = ops
        self.depth = 0

    # -- graphs

    def graph(self) -> Graph:
        """`graph NAME { ... }`"""
        return self.graph_and_names()[0]

    def graph_and_names(self) -> tuple[Graph, dict[str, Value]]:
        """Return a graph, and its values by their names in the text."""
        if self.depth >= _MAX_DEPTH:
            self.fail(f"graphs are nested more than {_MAX_DEPTH} deep")
        self.depth += 1
        self.expect("graph")
        builder = Builder(self.name("the graph's name"))
        self.expect("{")
        values: dict[str, Value] = {}
        while not self.accept("return"):
            self.statement(builder, values)
        outputs = [self.value(values)] if self.looks_at("%") else []
        while outputs and self.accept(","):
            outputs.append(self.value(values))
        self.expect("}")
        self.depth -= 1
        return builder.finish(outputs), values

    def statement(self, builder: Builder, values: dict[str, Value]) -> None:
        if self.accept("guard"):
            builder.add_guards([self.guard()])
        elif self.accept("input"):
            self.leaf(builder, values, Input)
        elif self.accept("param"):
            self.leaf(builder, values, Param)
        elif self.accept("constant"):
            self.constant(builder, values)
        elif self.looks_at("%"):
            self.node(builder, values)
        else:
            self.fail("expected a node, `input`, `param`, `constant`, `guard` or `return`")

    def leaf(self, builder: Builder, values: dict[str, Value], op: type[Input] | type[Param]) -> None:
        called, name = self.defined()
        self.expect(":")
        type = self.type()
        label = self.alias() or name
        if label is None:
            self.fail('expected `as "name"`: an input or param needs a name')
        (value,) = builder.emit(op(label, type), (), name=label, types=(type,), origin=NOWHERE)
        self.define(values, called, (value,))

    def constant(self, builder: Builder, values: dict[str, Value]) -> None:
        called, name = self.defined()
        self.expect("=")
        data = self.literal()
        name = self.alias() or name
        results = builder.emit(Constant(data), (), name=name, types=(data.type,), origin=NOWHERE)
        self.define(values, called, results)

    def node(self, builder: Builder, values: dict[str, Value]) -> None:
        called, name = self.defined()
        self.expect("=")
        position, outer = self.position, self.about
        op_class = self.op_class()
        self.expect("(")
        operands = self.operands(values)
        op = self.attributes(op_class, position)
        types = self.declared_types()
        if types is not None:
            self.expect_types(op, operands, types, position)
        name = self.alias() or name
        results = self.guarded(lambda: builder.emit(op, operands, name=name, types=types, origin=NOWHERE), position)
        self.about = outer
        self.define(values, called, results)

    def expect_types(
        self, op: Op, operands: Sequence[Value | None], types: Sequence[TensorType], position: int
    ) -> None:
        """Require that the declared types equal the op's inferred types on these operands, whose number must match."""
        problem = next(type_faults(op, [None if v is None else v.type for v in operands], types), None)
        if problem is not None:
            self.fail(problem, position=position)

    def defined(self) -> tuple[str, str | None]:
        """The value that a statement defines, and its name unless it is called by number."""
        position = self.position
        called = self.need(VALUE, "a value such as %x")
        body = called[1:]
        name = self.unquoted(body, position) if body.startswith('"') else body
        return called, None if body[0].isdigit() else name

    def define(self, values: dict[str, Value], called: str, results: Sequence[Value]) -> None:
        names = [called] if len(results) == 1 else [f"{called}.{i}" for i in range(len(results))]
        for name, value in zip(names, results, strict=True):
            if name in values:
                self.fail(f"{name} is defined twice")
            values[name] = value

    def alias(self) -> str | None:
        return self.string("a name") if self.accept("as") else None

    def value(self, values: dict[str, Value]) -> Value:
        position = self.position
        called = self.need(VALUE, "a value")
        if called not in values:
            self.fail(f"{called} is not defined before this", position=position, hint=nearest(called, values))
        return values[called]

    def guard(self) -> SizeGuard:
        position = self.position
        text = (self.take(_GUARD) or "").strip()
        relation: Relation
        divides = re.fullmatch(r"(.*) % (.*) == 0", text)
        compared = re.fullmatch(r"(.*?) (==|>=|>) (.*)", text)
        if divides:
            relation, right, left = "divides", divides.group(1), divides.group(2)
        elif compared:
            left, right = compared.group(1), compared.group(3)
            relation = {"==": "==", ">=": ">=", ">": ">"}[compared.group(2)]  # type: ignore[assignment]
        else:
            self.fail("a guard reads `a == b`, `a > b`, `a >= b` or `a % b == 0`", position=position)
        return SizeGuard(relation, self.dim(left, position), self.dim(right, position))

    def dim(self, text: str, position: int) -> Dim:
        size: Dim = self.guarded(lambda: parse_dim(text), position)
        return size

    # -- ops

    def op_class(self) -> type[Op]:
        position = self.position
        word = self.need(WORD, "an op name")
        name = word if "." in word else f"rlx.{word}"
        op = self.guarded(lambda: find_op(name, self.ops), position)
        self.about = word
        version = int(self.need(INT, "a version")) if self.accept("@") else 1
        if version != op.version:
            self.fail(
                f"written by version {version} of the op, and version {op.version} is installed", position=position
            )
        return op

    def operands(self, values: dict[str, Value]) -> list[Value | None]:
        result: list[Value | None] = []
        while self.looks_at("%") or self.looks_at("_"):
            if self.looks_at("_") and not self.accept("_"):
                break  # an attribute whose name starts with an underscore
            result.append(self.value(values) if self.looks_at("%") else None)
            if not self.accept(","):
                break
        return result

    def attributes(self, op: type[Op], position: int) -> Op:
        """`name=value, ...)` and the op they make."""
        values: dict[str, Any] = {}

        def read() -> None:
            outer, here = self.about, self.position
            name = self.need(WORD, "an attribute or `)`")
            if name in values:
                self.fail(f"attribute {name} is given twice", position=here)
            self.about = f"{outer}, attribute {name}"
            self.expect("=")
            values[name] = self.attribute(op)
            self.about = outer

        self.separated(")", read)
        return self.guarded(lambda: make_op(op, values), position)

    def declared_types(self) -> tuple[TensorType, ...] | None:
        if not self.accept(":"):
            return None
        if not self.accept("("):
            return (self.type(),)
        return tuple(self.separated(")", self.type))

    # -- attribute values

    def attribute(self, owner: type[Any]) -> Any:
        """Return one attribute value; records and enums are those that `owner` annotates."""
        if self.depth >= _MAX_DEPTH:
            self.fail(f"values are nested more than {_MAX_DEPTH} deep")
        self.depth += 1
        value = self._attribute(owner)
        self.depth -= 1
        return value

    def _attribute(self, owner: type[Any]) -> Any:
        position = self.position
        if self.looks_at('"'):
            return self.string()
        if self.accept("("):
            return tuple(self.separated(")", lambda: self.attribute(owner)))
        if self.looks_at("{"):
            text = self.need(_DIM, "a dim such as {2*n + 1}")
            return self.dim(text[1:-1], position)
        number = self.take(NUMBER)
        if number is not None:
            return self.number(number, position)
        self.skip()
        if TYPE.match(self.text, self.position):
            return self.type()
        return self.worded(owner)

    def number(self, text: str, position: int) -> int | float:
        if INT.fullmatch(text):
            return int(text)
        try:
            return read_number(text)
        except ValueError:
            self.fail(f"{text[:40]} is not a number", position=position)

    def worded(self, owner: type[Any]) -> Any:
        """Return a value that starts with a word: a language constant, dtype, graph, data, op, record or enum member."""
        if self.looks_at("graph") and re.match(r"graph\s", self.text[self.position : self.position + 6]):
            return self.graph()
        position = self.position
        word = self.need(WORD, "a value")
        if word in _KEYWORDS:
            return _KEYWORDS[word]
        if word in _DTYPES:
            return _DTYPES[word]
        if word == "literal" and self.accept("("):
            data = self.literal()
            self.expect(")")
            return data
        if word == "complex" and self.accept("("):
            return self.complex()
        if word == "op" and not self.looks_at("("):
            op = self.op_class()
            self.expect("(")
            return self.attributes(op, position)
        return self.record(word, owner, position)

    def complex(self) -> complex:
        real = self.number(self.need(NUMBER, "a number"), self.position)
        self.expect(",")
        imag = self.number(self.need(NUMBER, "a number"), self.position)
        self.expect(")")
        return complex(real, imag)

    def record(self, word: str, owner: type[Any], position: int) -> Any:
        known = self.guarded(lambda: record_classes(owner), position)
        name, _, member = word.partition(".")
        cls = known.get(name)
        if cls is None:
            self.fail(f"`{word}` is not a value of this attribute", position=position, hint=nearest(name, known))
        if issubclass(cls, enum.Enum):
            if member not in cls.__members__:
                self.fail(f"{name} has no member {member!r}", position=position, hint=nearest(member, cls.__members__))
            return cls[member]
        self.expect("(")
        fields: dict[str, Any] = {}
        allowed = [a.name for a in attrs.fields(cls)]

        def read() -> None:
            here = self.position
            field = self.need(WORD, "a field or `)`")
            if field not in allowed or field in fields:
                self.fail(f"{name} has no field {field} to set", position=here, hint=nearest(field, allowed))
            self.expect("=")
            fields[field] = self.attribute(owner)

        self.separated(")", read)
        return self.guarded(lambda: make_record(cls, fields), position)

    # -- constant data

    def literal(self) -> Literal:
        """`[1.0, 2.0] : f32[2]` or `base64 "..." : f32[2]`"""
        position = self.position
        if self.accept("base64"):
            return self.base64()
        self.expect("[")
        numbers = self.separated("]", self.element)
        self.expect(":")
        type = self.static_type()
        return self.guarded(lambda: literal_from_numbers(type, numbers), position)

    def element(self) -> str:
        for word in ("True", "False"):
            if self.accept(word):
                return word
        if self.accept("complex"):
            self.expect("(")
            real = self.need(NUMBER, "a number")
            self.expect(",")
            imag = self.need(NUMBER, "a number")
            self.expect(")")
            return f"complex({real}, {imag})"
        return self.need(NUMBER, "an element")

    def base64(self) -> Literal:
        position = self.position
        coded = self.need(_BASE64, "base64 data in quotes")
        self.expect(":")
        type = self.static_type()
        try:
            data = base64.b64decode(coded[1:-1], validate=True)
        except binascii.Error:
            self.fail("the data is not base64", position=position)
        return self.guarded(lambda: literal_from(type.dtype, type.static_shape, data), position)

    def static_type(self) -> TensorType:
        position = self.position
        type = self.type()
        if not type.is_static:
            self.fail(f"data has a static type, not {type}", position=position)
        return type
