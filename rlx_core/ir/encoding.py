"""Writing attributes and graphs in canonical form: JSON with self-describing tags, and exact (see `attributes.py`)."""

from __future__ import annotations

import base64
import enum
import struct
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np

from rlx_core.errors import FormatError
from rlx_core.ir.dims import Expr, SizeGuard
from rlx_core.ir.dtypes import DType
from rlx_core.ir.forms import Json
from rlx_core.ir.graph import Graph, Literal, Node, Value
from rlx_core.ir.op import Op
from rlx_core.ir.provenance import Lines, Source
from rlx_core.ir.types import TensorType


def literal_bytes(value: Literal) -> bytes:
    """The little-endian, row-major bytes of constant data."""
    return value.content[2]


def flat_bytes(array: np.ndarray) -> memoryview:
    """Return the little-endian, row-major bytes of an array, without a copy if they are in memory in that form."""
    little = array.astype(array.dtype.newbyteorder("<"), order="C", copy=False)
    return little.reshape(-1).view(np.uint8).data


def literal_from(element_type: DType, shape: Sequence[int], data: bytes | memoryview) -> Literal:
    """Constant data from its bytes, which are checked against the shape before anything is allocated.

    Raises:
        FormatError: The number of bytes differs, or a bool is neither 0 nor 1.
    """
    count = 1
    for size in shape:
        count *= size
    if any(size < 0 for size in shape) or count * element_type.itemsize != len(data):
        raise FormatError(
            f"constant: {element_type}{list(shape)} needs {count * element_type.itemsize} bytes, not {len(data)}"
        )
    if element_type.kind == "bool" and len(data) and (largest := int(np.frombuffer(data, np.uint8).max())) > 1:
        raise FormatError(f"constant: a bool is stored as 0 or 1, not {largest}")
    try:
        native = np.frombuffer(data, element_type.numpy.newbyteorder("<")) if count else np.empty(0, element_type.numpy)
        array = native.astype(element_type.numpy, copy=False).reshape(tuple(shape))
        array = array if array.flags.aligned else array.copy()  # kernels rely on it
    except ValueError as error:
        raise FormatError(f"constant: NumPy has no array of {len(shape)} axes {list(shape)} ({error})") from None
    array.flags.writeable = False
    return Literal(array)


def exact_float(value: float) -> str:
    """Return a float as text without loss: hex, with the payload of a NaN."""
    return value.hex() if value == value else f"nan:{struct.pack('>d', value).hex()}"


def read_float(text: str) -> float:
    """The inverse of `exact_float`."""
    try:
        if text.startswith("nan:") and len(text) == 20:
            return float(struct.unpack(">d", bytes.fromhex(text[4:]))[0])
        return float.fromhex(text)
    except (ValueError, OverflowError):
        raise FormatError(f"attribute: {text!r} is not a float") from None


def _inline_blob(value: Literal) -> Json:
    return base64.b64encode(literal_bytes(value)).decode("ascii")


class Encoder:
    """Writes attributes and graphs in canonical form.

    Args:
        blob: Stores constant data and returns its reference (base64 text, an index, a digest).
        keeps_names: Whether graph names, node names and origins are written; a fingerprint leaves them out.
        lines: The lines of the program from which the encoded part was made (`lines_of`): they are written by their numbers,
            so that a reader can have the same program from other lines. By default as file and line.
    """

    def __init__(
        self,
        blob: Callable[[Literal], Json] = _inline_blob,
        *,
        keeps_names: bool = True,
        lines: Lines | None = None,
    ) -> None:
        self.blob = blob
        self.keeps_names = keeps_names
        # By identity: one line of one program may be two of another.
        self.lines = None if lines is None else {id(line): n for n, line in enumerate(lines)}

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
        """An op: name, version, attributes.

        Raises:
            FormatError: It is to be stored, and belongs to this process; or an attribute has no form.
        """
        if self.keeps_names and op.calls_host:
            raise FormatError(
                f"{op.title}: a program with it is not stored, because it calls a function of this process ({op!r})",
                hint="save the program without it; what it computes is given as an input",
            )
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

    def guard(self, guard: SizeGuard) -> Json:
        relation = [guard.relation, repr(guard.left), repr(guard.right)]
        if not self.keeps_names:
            return relation
        return [*relation, guard.node, self._source(guard.source if isinstance(guard.source, Source) else None)]

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
            [self._source(origin.source), origin.block, origin.label, origin.created_by, origin.plugin],
        ]

    @staticmethod
    def ref(value: Value) -> Json:
        return [value.node.index, value.index]

    def _source(self, source: Source | None) -> Json:
        if source is None:
            return None
        return [source.file, source.line] if self.lines is None else self.lines.get(id(source))
