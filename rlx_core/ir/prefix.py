"""The first bytes of the files that rlx writes, programs (`.rlx`) and packages (`.rlxpack`): written, read and validated.

8 bytes   magic
4         format version, little-endian, as all numbers
8         length of the text that follows
32        SHA-256 of the part that the kind of file defines
"""

from __future__ import annotations

import hashlib
import json
import struct
from typing import Final

from rlx_core.errors import FormatError
from rlx_core.ir.forms import Json, need
from rlx_core.system.records import frozen

ALIGNMENT: Final = 64
"""Alignment in bytes of the content after the text, in the file."""

_STRUCT: Final = struct.Struct("<8sIQ32s")


@frozen
class Prefix:
    """The prefix of one kind of file.

    Attributes:
        kind: Name of the file in errors.
        text: Name of its text in errors.
        magic: Not text, and damaged by every transfer that rewrites line ends, so that such a file is recognised at once.
        version: Of the format; no other is read.
    """

    kind: str
    text: str
    magic: bytes
    version: int

    def pack(self, length: int, digest: bytes) -> bytes:
        """The prefix of a text of this length."""
        return _STRUCT.pack(self.magic, self.version, length, digest)

    def padding(self, length: int) -> int:
        """Return the number of zeros that follow a text of this length."""
        return -(_STRUCT.size + length) % ALIGNMENT

    def read(self, data: bytes | memoryview) -> tuple[memoryview, memoryview, bytes]:
        """Return the text, the content after it, padding first, neither of which is validated yet; and the digest.

        Raises:
            FormatError: It is no such file, of another version, or cut off in its text.
        """
        if len(data) < _STRUCT.size:
            raise FormatError(f"{self.kind}: {len(data)} bytes are fewer than the {_STRUCT.size} of the prefix")
        magic, version, length, digest = _STRUCT.unpack_from(data)
        if magic != self.magic:
            raise FormatError(f"{self.kind}: it starts with {magic!r}, not {self.magic!r}")
        if version != self.version:
            raise FormatError(f"{self.kind}: it has format version {version}, and this rlx reads {self.version}")
        body = memoryview(data)[_STRUCT.size :]
        if length > len(body):
            raise FormatError(f"{self.kind}: {self.text} has {length} bytes, and {len(body)} are left")
        return body[:length], body[length:], digest

    def expect_digest(self, covered: memoryview, digest: bytes, part: str) -> None:
        """Require the bytes that a digest is of.

        Raises:
            FormatError: They are others.
        """
        actual = hashlib.sha256(covered).digest()
        if actual != digest:
            raise FormatError(
                f"{self.kind}: {part} digest is {actual.hex()[:16]}…, not {digest.hex()[:16]}…: it is damaged or cut off"
            )

    def json(self, text: bytes, what: str) -> Json:
        """Return parsed JSON.

        Raises:
            FormatError: It is not valid JSON.
        """
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            raise FormatError(f"{self.kind}: {what} is not JSON ({error})") from None

    def header(self, text: memoryview) -> dict[str, Json]:
        """Parse the text as a JSON object.

        Raises:
            FormatError: It is not a JSON object.
        """
        content: dict[str, Json] = need(self.json(bytes(text), self.text), dict, self.text)
        return content
