"""Graphs and modules as bytes: a JSON header in canonical form, then constant data as it lies in memory.

    8 bytes   magic
    4         format version, little-endian, as all numbers
    8         length of the header
    32        SHA-256 of everything after it
    ...       header (JSON, UTF-8), zeros up to a multiple of 64
    ...       blobs, each at a multiple of 64

Nothing is executed and nothing is believed: every length and offset is held against the file before it is used, the digest
finds accidents, and the graph is verified before it is returned.
"""

from __future__ import annotations

import hashlib
import json
import struct
from typing import Final

from rlx_core.errors import FormatError
from rlx_core.ir.attributes import Decoder, Encoder, OpTable, literal_bytes
from rlx_core.ir.decoding import made_before
from rlx_core.ir.forms import Json, items, need
from rlx_core.ir.graph import Graph, Literal
from rlx_core.ir.lir import Lir
from rlx_core.ir.module import Module
from rlx_core.ir.plan_form import decode_lir
from rlx_core.ir.verify import Stage, check

__all__ = ["FORMAT_VERSION", "MAGIC", "load", "load_graph", "load_plan", "save"]

MAGIC: Final = b"\x89RLX\r\n\x1a\n"
"""Not text, and damaged by every transfer that rewrites line ends, so such a file is recognised at once."""

FORMAT_VERSION: Final = 1
_PREFIX = struct.Struct("<8sIQ32s")
_ALIGNMENT = 64


def save(program: Module | Graph) -> bytes:
    """A module or a bare graph as bytes, for `load`.

    Raises:
        FormatError: An attribute is of a kind that cannot be stored.
    """
    blobs = _Blobs()
    encoder = Encoder(blobs.add)
    if isinstance(program, Graph):
        content: Json = {"kind": "graph", "graph": encoder.graph(program)}
    else:
        content = {"kind": "module", **program.encoded(encoder)}
    header = json.dumps({**content, "blobs": blobs.places}, separators=(",", ":"), allow_nan=False).encode()
    start = _PREFIX.size + len(header)
    body = header + bytes(-start % _ALIGNMENT) + bytes(blobs.data)
    return _PREFIX.pack(MAGIC, FORMAT_VERSION, len(header), hashlib.sha256(body).digest()) + body


class _Blobs:
    """Constant data laid out one after the other; equal data once."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.places: list[list[int]] = []
        self._known: dict[bytes, int] = {}

    def add(self, value: Literal) -> Json:
        data = literal_bytes(value)
        if data not in self._known:
            self._known[data] = len(self.places)
            self.data += bytes(-len(self.data) % _ALIGNMENT)
            self.places.append([len(self.data), len(data)])
            self.data += data
        return self._known[data]


def load(data: bytes, ops: OpTable) -> Module | Graph:
    """The module or graph that `save` wrote, verified.

    Args:
        data: The whole file.
        ops: Op name → class, as a registry has it.

    Raises:
        FormatError: The bytes are not such a file, are damaged, or use an op of another version.
        UnknownNameError: An op is not installed.
        VerifyError: The program breaks the rules of its stage.
    """
    header, blobs = _opened(data)
    decoder = Decoder(ops, _reader(need(header.get("blobs"), list, "blobs"), blobs))
    if header.get("kind") == "graph":
        graph = decoder.graph(header.get("graph"))
        check(graph, Stage.HIR)  # a bare graph may hold blocks; what is MIR is HIR as well
        return graph
    if header.get("kind") == "module":
        return Module.decoded(header, decoder)
    raise FormatError(f"file: there is no kind {header.get('kind')!r} of program")


def load_plan(data: bytes, ops: OpTable) -> Lir:
    """The plan in a module that `save` wrote, as it is there: for programs that were verified when they were stored.

    Raises:
        FormatError: The bytes are not such a file, are damaged, hold no plan, or use an op of another version.
        UnknownNameError: An op is not installed.
    """
    header, blobs = _opened(data)
    if header.get("kind") != "module" or header.get("stage") != Stage.LIR.value:
        raise FormatError("file: it holds no plan")
    reader = _reader(need(header.get("blobs"), list, "blobs"), blobs)
    return decode_lir(header.get("content"), Decoder(ops, reader, made_before))


def load_graph(data: bytes, ops: OpTable) -> Graph:
    """The graph that `save` wrote.

    Raises:
        FormatError: The file holds a module; besides what `load` raises.
    """
    program = load(data, ops)
    if not isinstance(program, Graph):
        raise FormatError("file: it holds a module, not a graph", hint="use load")
    return program


def _opened(data: bytes) -> tuple[dict[str, Json], memoryview]:
    """The header, and the bytes after it."""
    if len(data) < _PREFIX.size:
        raise FormatError(f"file: {len(data)} bytes are fewer than the {_PREFIX.size} of the prefix")
    magic, version, length, digest = _PREFIX.unpack_from(data)
    if magic != MAGIC:
        raise FormatError(f"file: it starts with {magic!r}, not {MAGIC!r}")
    if version != FORMAT_VERSION:
        raise FormatError(f"file: it has format version {version}, and this rlx reads {FORMAT_VERSION}")
    body = memoryview(data)[_PREFIX.size :]
    if length > len(body):
        raise FormatError(f"file: the header has {length} bytes, and {len(body)} are left")
    found = hashlib.sha256(body).digest()
    if found != digest:
        raise FormatError(
            f"file: its digest is {found.hex()[:16]}…, not {digest.hex()[:16]}…: it is damaged or cut off"
        )
    padding = -(_PREFIX.size + length) % _ALIGNMENT
    return _header(bytes(body[:length])), body[length + padding :]


def _header(text: bytes) -> dict[str, Json]:
    try:
        header: dict[str, Json] = need(json.loads(text), dict, "the header")
    except (ValueError, RecursionError) as error:
        if isinstance(error, FormatError):
            raise
        raise FormatError(f"file: the header is not JSON ({error})") from None
    return header


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
