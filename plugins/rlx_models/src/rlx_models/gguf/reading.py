"""`read`: the tensors and metadata of a GGUF file, checked.

    "GGUF"    magic, then the version, u32
    counts    of tensors and of keys; u32 in version 1, u64 later, as all lengths
    metadata  key, type, value
    tensors   name, number of axes, sizes (the innermost axis first), type, offset relative to the data
    data      from the next multiple of the alignment

Everything that the header states is verified against the file when it is opened. Data are views of the file, decoded on request.

Source:
    The format's description, docs/gguf.md of github.com/ggml-org/ggml, versions 1 to 3.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from attrs import field

from rlx_core.errors import Fact, FileError, FormatError, RlxError, UnsupportedError
from rlx_core.files.load_save import path_of, reading
from rlx_core.files.reading import mapped
from rlx_core.files.tensors import FileTensor
from rlx_core.ir import dtypes
from rlx_core.ir.dtypes import DType
from rlx_core.ir.schemes import Scheme
from rlx_core.plugins import PluginHost, default_host
from rlx_core.quantization import QuantizedArray
from rlx_core.system.records import frozen
from rlx_models.gguf.metadata import HeaderCursor, read_metadata, short
from rlx_models.gguf.types import (
    DEFAULT_ALIGNMENT,
    DTYPES,
    LAYOUT_KEYS,
    MAGIC,
    MAX_AXES,
    MAX_NUMBER,
    VERSIONS,
    TensorTypes,
    unknown_type,
)

SPLIT_NAME: Final = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})(?P<suffix>\.gguf)", re.IGNORECASE)


@frozen(eq=False)
class GgufTensor(FileTensor):
    """A tensor of a file; see `FileTensor`.

    Attributes:
        name: Its name.
        type_id: The number of its type in the file.
        dtype: The dtype of `numpy()`; `None` if the type is unknown.
        scheme: The scheme of its blocks; `None` for plain arrays and unknown types.
        shape: Its shape, the outermost axis first.
        nbytes: Its bytes in the file; `None` if the type is unknown.
        raw: Its bytes, u8[nbytes], a view of the file.
    """

    name: str
    type_id: int
    dtype: DType | None
    scheme: Scheme | None
    shape: tuple[int, ...]
    nbytes: int | None
    raw: np.ndarray | None = field(repr=False)

    def numpy(self) -> np.ndarray:
        """Return the values: plain arrays are views of the file, or copies if they are not aligned; others are decoded to f32.

        Raises:
            UnsupportedError: The type is unknown.
        """
        if self.scheme is not None:
            return np.asarray(self.quantized().dequantize())
        if self.dtype is None or self.raw is None:
            raise unknown_type(self.name, self.type_id)
        stored = self.raw.view(self.dtype.numpy.newbyteorder("<"))
        array = stored.astype(self.dtype.numpy, copy=not stored.flags.aligned).reshape(self.shape)
        array.flags.writeable = False
        return array

    def quantized(self) -> QuantizedArray:
        """Return the fields of its blocks with its scheme: views of the file, or copies of numbers that are not aligned.

        Raises:
            UnsupportedError: The type is unknown, or is no scheme.
        """
        if self.scheme is None or self.raw is None:
            if self.dtype is not None:
                raise UnsupportedError(f"gguf: {self.name!r} is {self.dtype}, not quantised", hint="numpy() returns it")
            raise unknown_type(self.name, self.type_id)
        rows = self.raw.reshape(*self.shape[:-1], -1)
        return QuantizedArray(self.scheme.fields_of(rows), self.scheme)


@frozen(eq=False)
class GgufFile(Mapping[str, GgufTensor]):
    """The tensors of a file by name, and its metadata.

    Attributes:
        path: The file, or the first of several.
        version: The version of the format.
        metadata: Numbers, texts, NumPy arrays of numbers, and lists of texts or of arrays; without the keys that describe files
            (`general.alignment` and `split.*`).
        tensors: The tensors by name.
    """

    path: Path
    version: int
    metadata: Mapping[str, Any] = field(repr=False)
    tensors: Mapping[str, GgufTensor] = field(repr=False)

    def __getitem__(self, name: str) -> GgufTensor:
        return self.tensors[name]

    def __iter__(self) -> Any:
        return iter(self.tensors)

    def __len__(self) -> int:
        return len(self.tensors)


def read(path: str | os.PathLike[str], *, host: PluginHost | None = None) -> GgufFile:
    """Return the contents of a GGUF file, little-endian, of versions 1 to 3.

    Of a model in several files, `name-00001-of-00003.gguf` and so on, any one is the argument; the others are next to it. Large
    files are mapped, and must not be shortened while the result is in use.

    Args:
        path: The file.
        host: The plugins whose schemes decode blocks; everything installed by default.

    Raises:
        FormatError: The file is not of this format, is cut off or damaged; the error names the file, the byte, and the tensor or
            key.
        UnsupportedError: The file is big-endian.
        FileError: A file cannot be read.
    """
    location = path_of("gguf", path)
    types = TensorTypes(host or default_host())
    metadata, tensors, version = _part(location, types)
    count = _split_count(location, metadata)
    if count > 1:
        metadata, tensors = _all_parts(location, count, types)
    selected = {key: value for key, value in metadata.items() if key not in LAYOUT_KEYS}
    by_name = {tensor.name: tensor for tensor in tensors}
    return GgufFile(location, version, MappingProxyType(selected), MappingProxyType(by_name))


def _part(path: Path, types: TensorTypes) -> tuple[dict[str, Any], list[GgufTensor], int]:
    """Return the metadata, the tensors and the version of a file; every fault names the file."""
    try:
        with reading("gguf", path):
            data = mapped(path)
        return contents(data, types)
    except RlxError as error:
        raise error if isinstance(error, FileError) else error.with_fact(Fact("file", path)) from None


def _split_count(path: Path, metadata: Mapping[str, Any]) -> int:
    """Return the number of files of a model, by the metadata of one of them.

    Raises:
        FormatError: The name of the file, and its number and count, do not agree.
    """
    count, number = metadata.get("split.count", 1), metadata.get("split.no", 0)
    if not all(type(each) is int for each in (count, number)) or not 0 <= number < max(count, 1):
        raise FormatError(
            f"gguf: `split.no` and `split.count` are {number!r:.40} and {count!r:.40}", Fact("file", path)
        )
    match = SPLIT_NAME.fullmatch(path.name)
    named = None if match is None else (int(match["number"]) - 1, int(match["count"]))
    if count > 1 and named != (number, count):
        raise FormatError(
            f"gguf: the metadata say that this is file {number + 1} of {count}, and its name does not",
            Fact("file", path),
            hint=f"name it NAME-{number + 1:05}-of-{count:05}.gguf, as `split.no` and `split.count` say",
        )
    return max(count, 1)


def _all_parts(path: Path, count: int, types: TensorTypes) -> tuple[dict[str, Any], list[GgufTensor]]:
    """Return the metadata of the first file of a model, and the tensors of all.

    Raises:
        FormatError: A file is of another model, or the files have a tensor twice, or another number than they state.
        FileError: One cannot be read.
    """
    tensors: dict[str, GgufTensor] = {}
    first: dict[str, Any] = {}
    for number in range(count):
        part = part_path(path, number)
        metadata, more, _ = _part(part, types)
        first = first or metadata
        if (metadata.get("split.no"), _split_count(part, metadata)) != (number, count):
            raise FormatError(f"gguf: by its metadata this is not file {number + 1} of {count}", Fact("file", part))
        if metadata.get("split.tensors.count") != first.get("split.tensors.count"):
            raise FormatError("gguf: the files have different `split.tensors.count`", Fact("file", part))
        for tensor in more:
            if tensor.name in tensors:
                raise FormatError(f"gguf: {short(tensor.name)} is in two of the files", Fact("file", part))
            tensors[tensor.name] = tensor
    total = first.get("split.tensors.count", len(tensors))
    if total != len(tensors):
        raise FormatError(
            f"gguf: the files have {len(tensors)} tensors, and `split.tensors.count` is {total!r:.40}",
            Fact("file", path),
        )
    return first, list(tensors.values())


def part_path(path: Path, number: int) -> Path:
    """Return the path of the file with a number, counted from 0, next to another file of the model."""
    match = SPLIT_NAME.fullmatch(path.name)
    assert match is not None, "`_split_count` has checked the name"
    return path.with_name(f"{match['stem']}-{number + 1:05}-of-{match['count']}{match['suffix']}")


def contents(data: np.ndarray, types: TensorTypes) -> tuple[dict[str, Any], list[GgufTensor], int]:
    """Return the metadata, the tensors and the version of a file's bytes."""
    cursor = HeaderCursor(data)
    version = _version(cursor)
    smallest_tensor, smallest_key = 16 + cursor.size_nbytes, cursor.size_nbytes + 5
    num_tensors = cursor.count("tensors", smallest_tensor)
    num_keys = cursor.count("keys", smallest_key)
    metadata = read_metadata(cursor, num_keys)
    alignment = _alignment(cursor, metadata)
    entries = [_entry(cursor, types) for _ in range(num_tensors)]
    start = cursor.position + -cursor.position % alignment
    _expect_places(entries, start, alignment, data.size)
    return metadata, [entry.tensor(data, start) for entry in entries], version


def _version(cursor: HeaderCursor) -> int:
    magic = cursor.take(4, "the magic number").tobytes()
    if magic != MAGIC:
        raise cursor.fault(f"the file begins with {magic!r}, not {MAGIC!r}", 0)
    version = cursor.u32("the version")
    if version and version & 0xFFFF == 0:
        raise UnsupportedError(
            "gguf: the file is big-endian", hint="gguf-convert-endian of the package gguf converts it"
        )
    if version not in VERSIONS:
        raise cursor.fault(f"the version is {version}, and {', '.join(map(str, VERSIONS))} are supported", 4)
    cursor.is_narrow = version == 1
    return version


def _alignment(cursor: HeaderCursor, metadata: Mapping[str, Any]) -> int:
    alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    if type(alignment) is not int or not 0 < alignment < 2**32 or alignment & (alignment - 1):
        raise cursor.fault(f"`general.alignment` is {alignment!r:.40}, not a power of two")
    return alignment


@frozen
class GgufEntry:
    """One tensor as the header describes it; `begin` is relative to the data, and `header` is its byte in the header."""

    name: str
    type_id: int
    dtype: DType | None
    scheme: Scheme | None
    shape: tuple[int, ...]
    nbytes: int | None
    begin: int
    header: int

    def tensor(self, data: np.ndarray, start: int) -> GgufTensor:
        """Return the tensor, whose place is checked."""
        begin = start + self.begin
        raw = None if self.nbytes is None else data[begin : begin + self.nbytes]
        return GgufTensor(self.name, self.type_id, self.dtype, self.scheme, self.shape, self.nbytes, raw)


def _entry(cursor: HeaderCursor, types: TensorTypes) -> GgufEntry:
    header = cursor.position
    name = cursor.text("the name of a tensor")
    shown = short(name)
    rank = cursor.u32(f"the number of axes of {shown}")
    if rank > MAX_AXES:
        raise cursor.fault(f"{shown} has {rank} axes, more than {MAX_AXES}", cursor.position - 4)
    sizes = [cursor.size(f"a size of {shown}") for _ in range(rank)]
    if 0 in sizes or prod(sizes) > MAX_NUMBER:
        raise cursor.fault(f"{shown} has the sizes {sizes}, whose product is not from 1 to {MAX_NUMBER}", header)
    shape = tuple(reversed(sizes))
    type_id = cursor.u32(f"the type of {shown}")
    begin = cursor.u64(f"the offset of {shown}")
    plain = DTYPES.get(type_id)
    if plain is not None:
        return GgufEntry(name, type_id, plain, None, shape, plain.itemsize * prod(shape), begin, header)
    scheme = types.scheme(type_id)
    if scheme is None:
        return GgufEntry(name, type_id, None, None, shape, None, begin, header)
    length = shape[-1] if shape else 1
    if length % scheme.elements:
        label = scheme.name.removeprefix("rlx.")
        raise cursor.fault(
            f"{shown} has rows of {length} elements, and blocks of {label} have {scheme.elements}", header
        )
    nbytes = prod(shape) // scheme.elements * scheme.block_dtype.itemsize
    return GgufEntry(name, type_id, dtypes.f32, scheme, shape, nbytes, begin, header)


def _expect_places(entries: Sequence[GgufEntry], start: int, alignment: int, nbytes: int) -> None:
    """Require that names differ and that tensors lie in the file, aligned, without overlaps.

    Raises:
        FormatError: They do not.
    """

    def fault(entry: GgufEntry, text: str) -> FormatError:
        return FormatError(f"gguf: {short(entry.name)} {text}", Fact("at byte", entry.header))

    names: set[str] = set()
    for entry in entries:
        if entry.name in names:
            raise fault(entry, "is in the file twice")
        names.add(entry.name)
        if entry.begin % alignment:
            raise fault(entry, f"begins at byte {entry.begin} of the data, not at a multiple of {alignment}")
        if start + entry.begin + (entry.nbytes or 0) > nbytes:
            raise fault(
                entry,
                f"is bytes {entry.begin} to {entry.begin + (entry.nbytes or 0)} of {max(nbytes - start, 0)} bytes of data",
            )
    end, before = 0, ""
    for entry in sorted(entries, key=lambda each: (each.begin, each.nbytes or 0)):
        if entry.begin < end:
            raise fault(entry, f"begins at byte {entry.begin} of the data, within {before}")
        end, before = entry.begin + (entry.nbytes or 0), short(entry.name)
