"""The bytes of a package: a manifest in JSON, then blobs, each with its digest.

    52 bytes  prefix (`rlx_core.ir.prefix`), with the SHA-256 of the manifest
    ...       manifest (JSON, UTF-8), zeros up to a multiple of 64
    ...       blobs, each at a multiple of 64

The manifest's digest covers the blobs' digests, so a blob is checked when it is used, and only then. A machine does not read
blobs that it does not need, such as code for another machine and the program that the code was compiled from. The digest of a
blob is the digest of the digests of its chunks, which several processors check in parallel.

A package holds code, so digests are not enough: the user must have agreed to run it (`consent`).
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from attrs import field

from rlx_core.errors import Fact, FileError, FormatError
from rlx_core.files.packages.consent import expect_consent
from rlx_core.files.packages.digests import digest_of, digests_of
from rlx_core.files.reading import aligned_copy, mapped_file
from rlx_core.ir.forms import Json, items, need
from rlx_core.ir.prefix import ALIGNMENT, Prefix
from rlx_core.system.private import Chunk, reason_against, replace_file
from rlx_core.system.records import define, frozen

MAGIC: Final = b"\x89RLP\r\n\x1a\n"
FORMAT_VERSION: Final = 1
_PREFIX: Final = Prefix("package", "the manifest", MAGIC, FORMAT_VERSION)


# ------------------------------------------------------------------------------------------ writing


@define(eq=False)
class BlobStore:
    """The blobs of a package that is being made; equal ones are kept once."""

    blobs: list[memoryview] = field(factory=list)
    _known: dict[bytes, int] = field(factory=dict)

    def add(self, array: np.ndarray) -> int:
        """Keep the bytes of a dense array where they lie, until the file is written; the number of the blob."""
        return self.add_bytes(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)

    def add_json(self, form: Json) -> int:
        return self.add_bytes(memoryview(json.dumps(form, separators=(",", ":"), allow_nan=False).encode()))

    def add_bytes(self, data: memoryview) -> int:
        number = self._known.setdefault(digest_of(data), len(self.blobs))
        if number == len(self.blobs):
            self.blobs.append(data)
        return number

    @property
    def digests(self) -> list[bytes]:
        return list(self._known)


def write_container(path: Path, manifest: Mapping[str, Json], store: BlobStore) -> tuple[str, str]:
    """Write a package that only its owner may change.

    Returns:
        The SHA-256 of the file and of the manifest, as hex digits.

    Raises:
        OSError: The directory cannot be written to.
    """
    rows, offset = [], 0
    chunks: list[Chunk] = []
    for blob, digest in zip(store.blobs, store.digests, strict=True):
        rows.append([offset, len(blob), digest.hex()])
        padding = -len(blob) % ALIGNMENT
        chunks += [blob, bytes(padding)]
        offset += len(blob) + padding
    text = json.dumps({**manifest, "blobs": rows}, separators=(",", ":"), allow_nan=False).encode()
    identity = hashlib.sha256(text)
    head = _PREFIX.pack(len(text), identity.digest())
    contents = [head, text, bytes(_PREFIX.padding(len(text))), *chunks]
    sha256 = hashlib.sha256()
    for chunk in contents:
        sha256.update(chunk)
    replace_file(path, contents, mode=0o644)
    return sha256.hexdigest(), identity.hexdigest()


# ------------------------------------------------------------------------------------------ reading


@frozen(eq=False)
class BlobFile:
    """The blobs of a file (`rlx_core.pipeline.backend.Blobs`)."""

    data: np.ndarray
    places: Sequence[tuple[int, int, bytes]]
    _checked: set[int] = field(factory=set)

    def nbytes(self, number: int) -> int:
        return self._place(number)[1]

    def arrays(self, numbers: list[int]) -> list[np.ndarray]:
        views = [self.data[offset : offset + nbytes] for offset, nbytes, _ in map(self._place, numbers)]
        new = [i for i, number in enumerate(numbers) if number not in self._checked]
        for i, digest in zip(new, digests_of([views[i].data for i in new]), strict=True):
            if digest != self.places[numbers[i]][2]:
                raise FormatError(f"package: blob {numbers[i]} is damaged: its digest is {digest.hex()[:16]}…")
            self._checked.add(numbers[i])
        return views

    def json(self, number: int) -> Json:
        """Return the contents of a JSON blob.

        Raises:
            FormatError: It is damaged, or not JSON.
        """
        return _PREFIX.json(bytes(self.arrays([number])[0]), f"blob {number}")

    def expect_whole(self) -> None:
        """Check every blob, unused ones included.

        Raises:
            FormatError: One is damaged.
        """
        self.arrays(list(range(len(self.places))))

    def all_are_known(self) -> None:
        """Record that the whole file has been checked."""
        self._checked.update(range(len(self.places)))

    def _place(self, number: int) -> tuple[int, int, bytes]:
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < len(self.places):
            raise FormatError(f"package: there is no blob {number!r} among {len(self.places)}")
        return self.places[number]


@frozen(eq=False)
class Container:
    """A package as it was read.

    Attributes:
        path: The file.
        manifest: The parsed manifest.
        identity: The SHA-256 of the manifest, as hex digits; it covers the digests of all blobs.
        blobs: The blobs.
        contents: All bytes of the file.
        reason: The reason why the file's owner or mode makes it untrusted, as the end of a sentence; `None` if it is trusted.
    """

    path: Path
    manifest: Mapping[str, Json]
    identity: str
    blobs: BlobFile
    contents: np.ndarray
    reason: str | None

    @property
    def sha256(self) -> str:
        """The SHA-256 of the file, as hex digits."""
        return hashlib.sha256(self.contents.data).hexdigest()

    def expect_trusted(self, sha256: str | None, trusted: bool | None) -> None:
        """Require that the caller names this file by digest, or that the user agreed to run it and no one else can change it.

        Raises:
            FormatError: It is another than the digest is of.
            FileError: Others may have written it, or the user has not agreed to run it, and the caller gives no digest.
        """
        if sha256 is not None:
            actual = self.sha256
            if actual != sha256.lower():
                raise FormatError(f"package: its SHA-256 is {actual}, not {sha256}", Fact("file", self.path))
            self.blobs.all_are_known()
        elif self.reason is not None:
            raise FileError(
                f"package: {self.path} {self.reason}, and a package holds code",
                hint='rlx.load(path, sha256="…") with the digest that rlx.package returned, or take it over: chown, chmod go-w',
            )
        elif trusted is not False:  # then none of its code is run
            expect_consent(self.path, self.identity, lambda: self.sha256, trusted)


def read_container(path: Path) -> Container:
    """Return a package; its manifest is checked now, each blob when it is used.

    Raises:
        OSError: The file cannot be read.
        FormatError: It is no package, of another version, damaged or cut off.
    """
    # Without O_NONBLOCK, opening a pipe that someone put there would wait for a writer.
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    with open(os.open(path, flags), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise FormatError(f"package: {path} is not a plain file")
        reason = reason_against(status)
        # Bytes that others may change while they are used are copied before they are checked.
        data = mapped_file(file) if reason is None else aligned_copy(file.read())
    manifest, identity, start = _opened(data.data)
    body = data[start:]
    return Container(path, manifest, identity, BlobFile(body, _places(manifest, len(body))), data, reason)


def _opened(data: memoryview) -> tuple[dict[str, Json], str, int]:
    """The manifest, its digest, and where the blobs begin."""
    text, body, digest = _PREFIX.read(data)
    _PREFIX.expect_digest(text, digest, "the manifest's")
    start = min(len(data) - len(body) + _PREFIX.padding(len(text)), len(data))
    return _PREFIX.header(text), digest.hex(), start


def _places(manifest: Mapping[str, Json], size: int) -> list[tuple[int, int, bytes]]:
    result: list[tuple[int, int, bytes]] = []
    for row in need(manifest.get("blobs"), list, "blobs"):
        offset, nbytes, digest = items(row, 3, "a blob")
        if min(need(offset, int, "an offset"), need(nbytes, int, "a length")) < 0 or offset + nbytes > size:
            raise FormatError(f"package: a blob is bytes {offset}..{offset + nbytes} of {size}: it is cut off, or lies")
        if offset % ALIGNMENT:
            raise FormatError(f"package: a blob begins at byte {offset}, not at a multiple of {ALIGNMENT}")
        result.append((offset, nbytes, _hex(digest)))
    return result


def _hex(digest: Any) -> bytes:
    try:
        return bytes.fromhex(need(digest, str, "a digest"))
    except ValueError:
        raise FormatError(f"package: {digest!r} is no digest") from None
