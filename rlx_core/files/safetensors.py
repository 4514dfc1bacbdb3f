"""The safetensors format: named tensors in one file, read where they lie.

    8 bytes   length of the header, little-endian
    ...       header: JSON, one object; name → {"dtype", "shape", "data_offsets": [begin, end]}, and "__metadata__"
    ...       data, to which the offsets are relative; the tensors lie in it without holes and without overlaps

Arrays are views of the mapped file, so a model's weights take no private memory of the process, and several processes share
them. Every field of the header is verified against the file before an array is created from it.

Source:
    The format's description in the README of github.com/huggingface/safetensors, version 0.4.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import optree

from rlx_core.errors import DtypeError, Fact, FormatError, RlxError, TraceError, nearest
from rlx_core.files.reading import mapped
from rlx_core.files.state import by_name
from rlx_core.ir import dtypes
from rlx_core.ir.apply import as_array
from rlx_core.ir.dtypes import DType, dtype
from rlx_core.system.private import Chunk, replace_file
from rlx_core.system.records import frozen

DTYPES: Final[Mapping[str, DType]] = {
    "BOOL": dtypes.bool_,
    **{f"I{8 * d.itemsize}": d for d in (dtypes.i8, dtypes.i16, dtypes.i32, dtypes.i64)},
    **{f"U{8 * d.itemsize}": d for d in (dtypes.u8, dtypes.u16, dtypes.u32, dtypes.u64)},
    **{f"F{8 * d.itemsize}": d for d in (dtypes.f16, dtypes.f32, dtypes.f64)},
    "BF16": dtypes.bf16,
    "C64": dtypes.c64,
}
_NAMES: Final = {each: name for name, each in DTYPES.items()}
METADATA: Final = "__metadata__"
_LENGTH: Final = struct.Struct("<Q")
_MOST_HEADER: Final = 100_000_000
"""Bytes of the longest header that the format allows."""
_MOST_AXES: Final = 32
"""NumPy 1 makes no arrays of more axes."""
_MOST_NBYTES: Final = 2**63 - 1
_ALIGNMENT: Final = 8
"""The data begin at a multiple of this many bytes, so that tensors sorted by item size are all aligned."""


@frozen
class TensorEntry:
    """One tensor as the header describes it, checked; offsets are relative to the data."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    begin: int
    end: int


# ---------------------------------------------------------------------------------------------- reading


def load_safetensors(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """The arrays of a file by name: read-only views of the mapped file, without a copy.

    A tensor that does not lie at a multiple of its item size is copied, because kernels rely on alignment. The file must
    not be shortened while its arrays are in use; replacing it (as `save_safetensors` does) is safe.

    Raises:
        FormatError: The file is not of this format, is cut off or damaged; the message names the file, the tensor and
            both numbers.
        OSError: The file cannot be read.
    """
    data, entries, _ = _opened(Path(path))
    return {entry.name: _array(data, entry) for entry in entries}


def read_metadata(path: str | os.PathLike[str]) -> dict[str, str]:
    """The texts under `__metadata__`; errors as for `load_safetensors`."""
    return _opened(Path(path))[2]


def _array(data: np.ndarray, entry: TensorEntry) -> np.ndarray:
    stored = entry.dtype.numpy.newbyteorder("<")
    native = data[entry.begin : entry.end].view(stored).astype(entry.dtype.numpy, copy=False)
    aligned = native if native.flags.aligned else native.copy()
    shaped = aligned.reshape(entry.shape)
    shaped.flags.writeable = False
    return shaped


def _opened(path: Path) -> tuple[np.ndarray, list[TensorEntry], dict[str, str]]:
    """Return the data as bytes, the entries in it, and the metadata; every fault names the file."""
    try:
        contents = mapped(path)
        header, start = _header(contents)
        metadata = _metadata(header.pop(METADATA, {}))
        data = contents[start:]
        entries = [_entry(name, row, data.size) for name, row in header.items()]
        _expect_no_holes(entries, data.size)
    except RlxError as error:
        raise error.with_fact(Fact("file", path)) from None
    return data, entries, metadata


def _header(data: np.ndarray) -> tuple[dict[str, Any], int]:
    left = data.size - _LENGTH.size
    if left < 0:
        raise FormatError(f"safetensors: {data.size} bytes are fewer than the {_LENGTH.size} of the header's length")
    (length,) = _LENGTH.unpack(data[: _LENGTH.size].tobytes())
    if length > left:
        raise FormatError(f"safetensors: the header has {length} bytes, and {left} are left in the file")
    if length > _MOST_HEADER:
        raise FormatError(f"safetensors: the header has {length} bytes, more than the {_MOST_HEADER} of the format")
    start = _LENGTH.size + length
    return _parsed(data[_LENGTH.size : start].tobytes()), start


def _parsed(text: bytes) -> dict[str, Any]:
    if not text.startswith(b"{"):
        raise FormatError(f"safetensors: the header starts with {text[:1]!r}, not b'{{'")
    try:
        header = json.loads(text.decode(), object_pairs_hook=_without_duplicates, parse_constant=_refuse_constant)
    except FormatError:
        raise
    except (ValueError, RecursionError) as error:
        raise FormatError(f"safetensors: the header is not JSON ({error})") from None
    assert isinstance(header, dict), "JSON that starts with a brace is an object"
    return header


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for i, key in enumerate(keys) if key in keys[:i])
        raise FormatError(f"safetensors: the header has the key {twice!r} {keys.count(twice)} times, not once")
    return result


def _refuse_constant(text: str) -> Any:
    raise FormatError(f"safetensors: the header has {text}, which is not JSON")


def _metadata(metadata: Any) -> dict[str, str]:
    if not isinstance(metadata, dict) or not all(isinstance(text, str) for text in metadata.values()):
        raise FormatError(f"safetensors: {METADATA} must hold texts by name, not {_short(metadata)}")
    return metadata


def _entry(name: str, row: Any, nbytes: int) -> TensorEntry:
    if not isinstance(row, dict) or row.keys() != {"dtype", "shape", "data_offsets"}:
        raise FormatError(f"safetensors: {name!r} must have dtype, shape and data_offsets, not {_short(row)}")
    entry_dtype = DTYPES.get(row["dtype"]) if isinstance(row["dtype"], str) else None
    if entry_dtype is None:
        hint = nearest(row["dtype"], DTYPES) if isinstance(row["dtype"], str) else None
        raise FormatError(
            f"safetensors: {name!r} has the dtype {_short(row['dtype'])}, and known are {', '.join(DTYPES)}", hint=hint
        )
    shape = _naturals(name, "shape", row["shape"])
    begin, end = _naturals(name, "data_offsets", row["data_offsets"], count=2)
    if not begin <= end <= nbytes:
        raise FormatError(f"safetensors: {name!r} is bytes {begin}..{end} of the {nbytes} that the file has as data")
    expected = _nbytes(name, shape, entry_dtype)
    if end - begin != expected:
        raise FormatError(
            f"safetensors: {name!r} is {entry_dtype}{list(shape)}, {expected} bytes, and has {end - begin}"
        )
    return TensorEntry(name, entry_dtype, shape, begin, end)


def _naturals(name: str, what: str, numbers: Any, count: int | None = None) -> tuple[int, ...]:
    is_list = isinstance(numbers, list) and all(type(n) is int and 0 <= n <= _MOST_NBYTES for n in numbers)
    if not is_list or (count is not None and len(numbers) != count):
        expected = "natural numbers" if count is None else f"{count} natural numbers"
        raise FormatError(
            f"safetensors: {what} of {name!r} must be a list of {expected} below 2**63, not {_short(numbers)}"
        )
    if len(numbers) > _MOST_AXES:
        raise FormatError(f"safetensors: {name!r} has {len(numbers)} axes, more than {_MOST_AXES}")
    return tuple(numbers)


def _nbytes(name: str, shape: Sequence[int], element_type: DType) -> int:
    """Return the bytes of a dense tensor; sizes are multiplied even if one is zero, because NumPy refuses such overflows too."""
    strides, total = element_type.itemsize, element_type.itemsize
    for size in shape:
        strides, total = strides * max(size, 1), total * size
    if strides > _MOST_NBYTES:
        raise FormatError(
            f"safetensors: {name!r} is {element_type}{list(shape)}, {strides} bytes, more than {_MOST_NBYTES}"
        )
    return total


def _expect_no_holes(entries: Sequence[TensorEntry], nbytes: int) -> None:
    """Require the tensors to fill the data, each byte belonging to one of them."""
    position, before = 0, "the start"
    for entry in sorted(entries, key=lambda e: (e.begin, e.end)):
        if entry.begin != position:
            problem = "overlaps" if entry.begin < position else "leaves a hole after"
            raise FormatError(
                f"safetensors: {entry.name!r} {problem} {before}: it begins at byte {entry.begin}, not at {position}"
            )
        position, before = entry.end, repr(entry.name)
    if position != nbytes:
        raise FormatError(
            f"safetensors: the tensors end at byte {position} of the data, and the file has {nbytes} bytes of them"
        )


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


# ---------------------------------------------------------------------------------------------- writing


def save_safetensors(
    path: str | os.PathLike[str], arrays: Mapping[str, Any], metadata: Mapping[str, str] | None = None
) -> None:
    """Write named arrays; the file is replaced as a whole, or on an error left as it was.

    Args:
        path: The file.
        arrays: By name: NumPy, DLPack or buffer-protocol arrays in any layout and byte order.
        metadata: Texts by name, for people and tools.

    Raises:
        FormatError: A name or a metadata entry is not a text, a name is `__metadata__`, or a value is a mapping.
        DtypeError: An array is of a dtype that the format has no name for.
        TraceError: A value is not an array.
    """
    target = Path(path)
    texts = dict(metadata or {})
    try:
        if not all(isinstance(part, str) for item in texts.items() for part in item):
            raise FormatError(f"safetensors: metadata must be texts by name, not {_short(texts)}")
        ready = {name: _ready(name, array) for name, array in arrays.items()}
    except RlxError as error:
        raise error.with_fact(Fact("file", target)) from None
    # The widest items first: each tensor then begins at a multiple of its item size.
    order = sorted(ready, key=lambda name: (-ready[name].dtype.itemsize, name))
    replace_file(target, _chunks({name: ready[name] for name in order}, texts))


def _ready(name: Any, data: Any) -> np.ndarray:
    if not isinstance(name, str) or name == METADATA:
        raise FormatError(f"safetensors: an array must be named by a text other than {METADATA!r}, not {name!r}")
    if isinstance(data, Mapping):
        inner = next(iter(data), "weight")
        raise FormatError(
            f"safetensors: {name!r} is a {type(data).__name__}, and the file holds arrays by name, one level deep",
            hint=f'give each array a name of its own: {{"{name}.{inner}": ...}}',
        )
    try:
        array = as_array(data)
    except (DtypeError, TraceError) as error:
        raise type(error)(
            f"safetensors: {name!r} is of type {type(data).__name__}, not an array", hint=error.hint
        ) from None
    if dtype(array.dtype) not in _NAMES:
        raise DtypeError(
            f"safetensors: {name!r} is {dtype(array.dtype)}, and the format has {', '.join(map(str, _NAMES))}"
        )
    return array


def _chunks(arrays: Mapping[str, np.ndarray], metadata: Mapping[str, str]) -> Iterator[Chunk]:
    rows: dict[str, Any] = {METADATA: dict(metadata)} if metadata else {}
    offset = 0
    for name, array in arrays.items():
        rows[name] = {
            "dtype": _NAMES[dtype(array.dtype)],
            "shape": list(array.shape),
            "data_offsets": [offset, offset + array.nbytes],
        }
        offset += array.nbytes
    try:
        header = json.dumps(rows, separators=(",", ":"), ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise FormatError(f"safetensors: {error.object[error.start]!a} in a name or a text is no character") from None
    header += b" " * (-len(header) % _ALIGNMENT)
    yield _LENGTH.pack(len(header))
    yield header
    for array in arrays.values():
        little = array.astype(array.dtype.newbyteorder("<"), order="C", copy=False)
        yield little.reshape(-1).view(np.uint8).data


# --------------------------------------------------------------------------------- as importer and exporter


def import_file(path: Path, host: object) -> dict[str, np.ndarray]:
    """`load_safetensors` in the form of an importer."""
    return load_safetensors(path)


def export_file(path: Path, value: Any, host: object) -> None:
    """`save_safetensors` in the form of an exporter, which takes any pytree of arrays.

    Raises:
        FormatError: The value is not a container, or its paths have no names; also the errors of `save_safetensors`.
    """
    if optree.tree_is_leaf(value):
        raise FormatError(
            f"safetensors: the file holds arrays by name, not a {type(value).__name__}", Fact("file", path)
        )
    try:
        named = by_name(value)
    except RlxError as error:
        raise error.with_fact(Fact("file", path)) from None
    save_safetensors(path, named)
