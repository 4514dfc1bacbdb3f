"""Scenes in PLY files, by the names of properties that trainers and viewers of splats agree on.

A vertex is a Gaussian: `x y z`, `scale_0 ..` (logarithms), `rot_0 ..` (quaternion w x y z), `opacity` (a logit), `f_dc_0 ..` and
`f_rest_0 ..` (spherical harmonics, all coefficients of red, then of green, then of blue).

Files are untrusted: allocations are limited by the size of the file, and errors are a `FormatError` that names the cause.

Source: Turk 1994, "The PLY polygon file format"; the properties are those of Kerbl et al. 2023.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from rlx_core.errors import Fact, FileError, FormatError
from rlx_custom_ops.splat.harmonics import BAND_0
from rlx_custom_ops.splat.scene import Gaussians, expect_gaussians

LONGEST_HEADER: Final = 1 << 16  # bytes
ENDS: Final = {"binary_little_endian": "<", "binary_big_endian": ">"}
TYPES: Final = {
    **dict.fromkeys(("char", "int8"), "i1"),
    **dict.fromkeys(("uchar", "uint8"), "u1"),
    **dict.fromkeys(("short", "int16"), "i2"),
    **dict.fromkeys(("ushort", "uint16"), "u2"),
    **dict.fromkeys(("int", "int32"), "i4"),
    **dict.fromkeys(("uint", "uint32"), "u4"),
    **dict.fromkeys(("float", "float32"), "f4"),
    **dict.fromkeys(("double", "float64"), "f8"),
}
COEFFICIENTS: Final = (0, 3, 8, 15)
"""Numbers of coefficients of the bands above the first, up to the third."""


class Header(NamedTuple):
    """The header of a file."""

    encoding: str
    vertices: int
    properties: dict[str, str]  # name → NumPy's letter and size
    nbytes: int


def read_ply(path: str | os.PathLike[str]) -> Gaussians:
    """Return the Gaussians of a PLY file, in float32.

    Raises:
        FileError: It cannot be read.
        FormatError: It is no PLY file, is truncated, or contains no Gaussians; the message has the actual content.
    """
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise FileError(f"read_ply: {os.fspath(path)!r} cannot be read: {error.strerror or error}") from None
    try:
        return gaussians_of(vertices(content, header_of(content)))
    except FormatError as error:
        raise error.with_fact(Fact("file", os.fspath(path))) from None


def header_of(content: bytes) -> Header:
    """The header of a file whose first element is its vertices.

    Raises:
        FormatError: It has none, or one that is not understood.
    """
    if not content.startswith((b"ply\n", b"ply\r\n")):
        raise FormatError(f"ply: the file begins with {content[:8]!r}, and not with 'ply'")
    head, end, _ = content[:LONGEST_HEADER].partition(b"end_header")
    stop = content.find(b"\n", len(head))
    if not end or stop < 0:
        raise FormatError(f"ply: there is no end_header in the first {LONGEST_HEADER} bytes")
    try:
        lines = [line.split() for line in head.decode("ascii").splitlines()[1:]]
    except UnicodeDecodeError as error:
        raise FormatError(f"ply: byte {error.start} of the header is no ASCII") from None
    encoding, count, properties = "", -1, dict[str, str]()
    elements = 0
    for words in lines:
        match words:
            case [] | ["comment" | "obj_info", *_]:
                continue
            case ["format", name, "1.0"] if name in (*ENDS, "ascii"):
                encoding = name
            case ["element", name, number]:
                elements += 1
                if elements == 1:
                    count = vertex_count(name, number)
            case ["property", kind, name] if kind in TYPES and elements == 1:
                if name in properties:
                    raise FormatError(f"ply: property {name!r} is there twice")
                properties[name] = TYPES[kind]
            case ["property", *_] if elements > 1:
                continue  # of an element behind the vertices, which is not read
            case _:
                raise FormatError(f"ply: the line {' '.join(words)!r} of the header is not understood")
    if not encoding or count < 0:
        raise FormatError(f"ply: the header says no {'format' if count >= 0 else 'element vertex'}")
    return Header(encoding, count, properties, stop + 1)


def vertex_count(name: str, number: str) -> int:
    if name != "vertex" or not number.isascii() or not number.isdigit() or len(number) > 18:
        raise FormatError(f"ply: the first element must be vertex and its number, not {name!r} and {number[:30]!r}")
    return int(number)


def vertices(content: bytes, header: Header) -> dict[str, np.ndarray]:
    """Every property of all vertices, in float32.

    Raises:
        FormatError: The file holds fewer.
    """
    if not header.properties:
        raise FormatError("ply: the vertices have no properties")
    if header.encoding == "ascii":
        return from_text(content, header)
    kinds = [(name, ENDS[header.encoding] + kind) for name, kind in header.properties.items()]
    row = np.dtype(kinds)
    available = len(content) - header.nbytes
    if header.vertices * row.itemsize > available:
        raise FormatError(
            f"ply: {header.vertices} vertices of {row.itemsize} bytes need {header.vertices * row.itemsize} bytes, "
            f"and the file holds {available} behind its header"
        )
    table = np.frombuffer(content, row, header.vertices, header.nbytes)
    return {name: table[name].astype(np.float32) for name in header.properties}


def from_text(content: bytes, header: Header) -> dict[str, np.ndarray]:
    expected = header.vertices * len(header.properties)
    available = (len(content) - header.nbytes + 1) // 2  # a number takes a digit and a space at least
    words = content[header.nbytes :].split(maxsplit=expected)[:expected] if expected <= available else []
    if len(words) < expected:
        raise FormatError(
            f"ply: {header.vertices} vertices need {expected} numbers, and the file does not hold as many"
        )
    try:
        table = np.array(words, dtype="S").astype(np.float32) if words else np.empty(0, np.float32)
    except ValueError as error:
        raise FormatError(f"ply: among the vertices there is no number where one should be: {error}") from None
    table = table.reshape(header.vertices, len(header.properties))
    return {name: np.ascontiguousarray(table[:, i]) for i, name in enumerate(header.properties)}


def gaussians_of(properties: dict[str, np.ndarray]) -> Gaussians:
    """The Gaussians that the properties say.

    Raises:
        FormatError: One is missing, or there are other numbers of spherical harmonics than bands have.
    """
    higher_count = sum(name.startswith("f_rest_") for name in properties)
    if higher_count % 3 or higher_count // 3 not in COEFFICIENTS:
        raise FormatError(f"ply: there are {higher_count} properties f_rest_*, and not 0, 9, 24 or 45")

    def columns(*names: str) -> np.ndarray:
        missing = [name for name in names if name not in properties]
        if missing:
            raise FormatError(
                f"ply: the vertices have no {', '.join(missing[:5])}", Fact("there are", ", ".join(properties))
            )
        return np.stack([properties[name] for name in names], axis=1)

    first = columns("f_dc_0", "f_dc_1", "f_dc_2")
    count = len(first)
    others = (
        columns(*(f"f_rest_{i}" for i in range(higher_count))) if higher_count else np.empty((count, 0), np.float32)
    )
    return Gaussians(
        positions=columns("x", "y", "z"),
        scales=columns("scale_0", "scale_1", "scale_2"),
        rotations=columns("rot_1", "rot_2", "rot_3", "rot_0"),
        opacities=columns("opacity")[:, 0],
        colors=np.float32(0.5) + np.float32(BAND_0) * first,
        sh=np.ascontiguousarray(others.reshape(count, 3, higher_count // 3).swapaxes(1, 2)),
    )


def write_ply(path: str | os.PathLike[str], gaussians: Gaussians) -> None:
    """Write Gaussians to a PLY file, in float32; the file appears whole or not at all.

    Raises:
        ShapeError: The arrays do not belong together.
        FileError: It cannot be written.
    """
    scene = Gaussians(*(np.asarray(part, np.float32) for part in gaussians))
    count = expect_gaussians(scene)
    coefficients = scene.sh.swapaxes(1, 2).reshape(count, 3 * scene.sh.shape[1])
    columns = {
        **{name: scene.positions[:, i] for i, name in enumerate("xyz")},
        **{f"f_dc_{i}": (scene.colors[:, i] - np.float32(0.5)) / np.float32(BAND_0) for i in range(3)},
        **{f"f_rest_{i}": coefficients[:, i] for i in range(coefficients.shape[1])},
        "opacity": scene.opacities,
        **{f"scale_{i}": scene.scales[:, i] for i in range(3)},
        **{f"rot_{(i + 1) % 4}": scene.rotations[:, i] for i in (3, 0, 1, 2)},
    }
    table = np.stack([column.astype("<f4") for column in columns.values()], axis=1)
    lines = ["ply", "format binary_little_endian 1.0", f"element vertex {count}"]
    header = "\n".join([*lines, *(f"property float {name}" for name in columns), "end_header", ""])
    target = Path(path)
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        part.write_bytes(header.encode("ascii") + table.astype("<f4").tobytes())
        part.replace(target)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise FileError(f"write_ply: {os.fspath(path)!r} cannot be written: {error.strerror or error}") from None
