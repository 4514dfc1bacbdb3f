"""Serialisation of programs and their parts: a JSON header in canonical form, then constant data as it is in memory.

    52 bytes  prefix (`prefix.py`), with the SHA-256 of everything after it
    ...       header (JSON, UTF-8), zeros up to a multiple of 64
    ...       blobs, each at a multiple of 64

Nothing is executed and nothing is trusted: every length and offset is checked against the file before it is used, the digest
detects accidents, and the graph is verified before it is returned. Constant data and weights are arrays over the bytes that are
read, without a copy: of a mapped file nothing is copied. Pickles contain these bytes too (`rlx_core.from_bytes`).
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from rlx_core import ir
from rlx_core.errors import FormatError
from rlx_core.ir.apply import OpFunction
from rlx_core.ir.decoding import Decoder, OpTable, made_before
from rlx_core.ir.encoding import Encoder, flat_bytes
from rlx_core.ir.forms import Json, items, need
from rlx_core.ir.graph import Graph, Literal
from rlx_core.ir.lir import IrStage, Lir
from rlx_core.ir.op import Op
from rlx_core.ir.plan_form import decode_lir, encode_lir
from rlx_core.ir.prefix import ALIGNMENT, Prefix
from rlx_core.ir.protocols import Travels
from rlx_core.ir.provenance import Lines

if TYPE_CHECKING:
    from rlx_core.ir.bundle import Bundle
    from rlx_core.ir.module import Module

Program: TypeAlias = "Module | Graph | Bundle"
"""The content of a file."""

Stored: TypeAlias = "Program | Lir | Op | OpFunction[Any] | Literal"
"""Objects that the format can store, which are `Travels`; pickles contain parts of programs in it."""

Bytes = bytes | memoryview

MAGIC: Final = b"\x89RLX\r\n\x1a\n"
FORMAT_VERSION: Final = 1
_PREFIX: Final = Prefix("file", "the header", MAGIC, FORMAT_VERSION)


def save(stored: Travels, lines: Lines | None = None) -> bytes:
    """A program, or a part of one, as bytes for `load`.

    Args:
        lines: Lines of the program from which it was made, to be written by number; only `load_plan` takes them back.

    Raises:
        FormatError: An attribute is of a kind that cannot be stored.
    """
    return b"".join(save_chunks(stored, lines))


def save_chunks(stored: Travels, lines: Lines | None = None) -> list[Bytes]:
    """The bytes of `save` piece by piece: constant data and weights where they lie, without a copy of all of them."""
    blobs = _Blobs()
    content = _content(stored, Encoder(blobs.add, lines=lines))
    header = json.dumps({**content, "blobs": blobs.places}, separators=(",", ":"), allow_nan=False).encode()
    body: list[Bytes] = [header, bytes(_PREFIX.padding(len(header))), *blobs.chunks]
    digest = hashlib.sha256()
    for chunk in body:
        digest.update(chunk)
    return [_PREFIX.pack(len(header), digest.digest()), *body]


def _content(stored: Travels, encoder: Encoder) -> dict[str, Json]:
    match stored:
        case Graph():
            return {"kind": "graph", "graph": encoder.graph(stored)}
        case Lir():
            return {"kind": "plan", "plan": encode_lir(stored, encoder)}
        case Op():
            return {"kind": "op", "op": encoder.op(stored)}
        case OpFunction():
            return {"kind": "function", "op": [stored.op.name, stored.op.version]}
        case Literal():
            return {"kind": "literal", "literal": encoder.value(stored)}
        case ir.module.Module():
            return {"kind": "module", **stored.encoded(encoder)}
        case ir.bundle.Bundle():
            return {"kind": "bundle", **stored.encoded(encoder)}
        case _:
            raise AssertionError(f"{type(stored).__name__} travels, and has no form")


class _Blobs:
    """Constant data laid out one after the other; equal data once."""

    def __init__(self) -> None:
        self.chunks: list[Bytes] = []
        self.places: list[list[int]] = []
        self._nbytes = 0
        self._known: dict[bytes, int] = {}

    def add(self, value: Literal) -> Json:
        data = flat_bytes(value.array)
        digest = hashlib.sha256(data).digest()
        if digest not in self._known:
            self._known[digest] = len(self.places)
            self._append(bytes(-self._nbytes % ALIGNMENT))
            self.places.append([self._nbytes, len(data)])
            self._append(data)
        return self._known[digest]

    def _append(self, chunk: Bytes) -> None:
        self.chunks.append(chunk)
        self._nbytes += len(chunk)


def load(data: Bytes, ops: OpTable) -> Program:
    """The program that `save` wrote, verified.

    Args:
        data: The whole file; arrays of the program lie in it.
        ops: Op name → class, as a registry has it.

    Raises:
        FormatError: The bytes are not such a file, are damaged, hold no program, or use an op of another version.
        UnknownNameError: An op is not installed.
        VerifyError: The program breaks the rules of its stage.
    """
    stored = load_stored(data, ops)
    if not isinstance(stored, ir.module.Module | Graph | ir.bundle.Bundle):
        raise FormatError(f"file: it holds a part of a program ({type(stored).__name__}), not a program")
    return stored


def load_stored(data: Bytes, ops: OpTable) -> Stored:
    """Return the object that `save` wrote, verified; arguments and errors are those of `load`."""
    header, blobs = _opened(data)
    decoder = Decoder(ops, _reader(need(header.get("blobs"), list, "blobs"), blobs))
    match header.get("kind"):
        case "graph":
            graph = decoder.graph(header.get("graph"))
            ir.verify.check(graph, IrStage.HIR)  # a bare graph may hold blocks; every MIR graph is HIR as well
            return graph
        case "module":
            return ir.module.Module.decoded(header, decoder)
        case "bundle":
            return ir.bundle.Bundle.decoded(header, decoder)
        case "plan":
            lir = decode_lir(header.get("plan"), decoder)
            ir.verify_lir.check_lir(lir)
            return lir
        case "op":
            return decoder.op(header.get("op"))
        case "function":
            return OpFunction(decoder.op_class(*items(header.get("op"), 2, "an op")))
        case "literal":
            return _literal(header.get("literal"), decoder)
        case kind:
            raise FormatError(f"file: there is no kind {kind!r} of program")


def _literal(form: Json, decoder: Decoder) -> Literal:
    value = decoder.value(form)
    if not isinstance(value, Literal):
        raise FormatError("file: what it calls a literal is none")
    return value


def load_plan(data: Bytes, ops: OpTable, lines: Lines = ()) -> Lir:
    """Return the plan in a module that `save` wrote, without verification: for programs that were verified when they were stored.

    Args:
        lines: Those of the program that it is loaded for.

    Raises:
        FormatError: The bytes are not such a file, are damaged, hold no plan, or use an op of another version.
        UnknownNameError: An op is not installed.
    """
    header, blobs = _opened(data)
    if header.get("kind") != "module" or header.get("stage") != IrStage.LIR.value:
        raise FormatError("file: it holds no plan")
    reader = _reader(need(header.get("blobs"), list, "blobs"), blobs)
    return decode_lir(header.get("content"), Decoder(ops, reader, made_before, lines))


def relocated(lir: Lir, old: Lines, new: Lines, ops: OpTable) -> Lir:
    """Return a plan that was made from one program, for an equal program from other lines; constants are shared."""
    constants: list[Literal] = []

    def kept(constant: Literal) -> Json:
        constants.append(constant)
        return len(constants) - 1

    form = encode_lir(lir, Encoder(kept, lines=old))
    return decode_lir(form, Decoder(ops, lambda number: flat_bytes(constants[number].array), made_before, new))


def _opened(data: Bytes) -> tuple[dict[str, Json], memoryview]:
    """The header, and the bytes after it."""
    text, body, digest = _PREFIX.read(data)
    _PREFIX.expect_digest(memoryview(data)[len(data) - len(text) - len(body) :], digest, "its")
    return _PREFIX.header(text), body[_PREFIX.padding(len(text)) :]


class _reader:
    """Blob index → its bytes, checked against the file."""

    def __init__(self, places: list[Json], data: memoryview) -> None:
        self.places = places
        self.data = data

    def __call__(self, index: Json) -> memoryview:
        if not 0 <= need(index, int, "a blob's number") < len(self.places):
            raise FormatError(f"file: there is no blob {index} among {len(self.places)}")
        offset, length = (need(n, int, "an offset") for n in items(self.places[index], 2, "a blob"))
        if offset < 0 or length < 0 or offset + length > len(self.data):
            raise FormatError(f"file: blob {index} is bytes {offset}..{offset + length} of {len(self.data)}")
        return self.data[offset : offset + length]
