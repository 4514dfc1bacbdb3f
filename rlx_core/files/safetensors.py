"""The safetensors format: named tensors in one file, read where they lie.

    8 bytes   length of the header, little-endian
    ...       header: JSON, one object; name → {"dtype", "shape", "data_offsets": [begin, end]}, and "__metadata__"
    ...       data, to which the offsets are relative; the tensors lie in it without holes and without overlaps

Arrays are views of the mapped file, so a model's weights take no private memory of the process, and several processes share
them. Every field of the header is verified against the file before an array is created from it.

F8_E4M3 and F8_E5M2 are quantised arrays whose scales are 1. A tensor of another type is an error when its data are read.

Source:
    The format's description in the README of github.com/huggingface/safetensors, version 0.4.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import optree
from attrs import field

from rlx_core.errors import DtypeError, Fact, FormatError, RlxError, TraceError, UnsupportedError, nearest
from rlx_core.files.reading import mapped
from rlx_core.files.state import by_name
from rlx_core.files.tensors import FileTensor
from rlx_core.ir import dtypes
from rlx_core.ir.apply import as_array
from rlx_core.ir.dtypes import DType, dtype
from rlx_core.system.private import Chunk, replace_file
from rlx_core.system.records import frozen

if TYPE_CHECKING:
    from rlx_core.ir.schemes import Scheme
    from rlx_core.quantization import QuantizedArray

DTYPES: Final[Mapping[str, DType]] = {
    "BOOL": dtypes.bool_,
    **{f"I{8 * d.itemsize}": d for d in (dtypes.i8, dtypes.i16, dtypes.i32, dtypes.i64)},
    **{f"U{8 * d.itemsize}": d for d in (dtypes.u8, dtypes.u16, dtypes.u32, dtypes.u64)},
    **{f"F{8 * d.itemsize}": d for d in (dtypes.f16, dtypes.f32, dtypes.f64)},
    "BF16": dtypes.bf16,
    "C64": dtypes.c64,
}
FLOATS8: Final[Mapping[str, str]] = {"F8_E4M3": "fp8_e4m3", "F8_E5M2": "fp8_e5m2"}
"""Schemes of types that are no dtypes; each element is its code."""
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
    """One tensor as the header describes it, checked; offsets are relative to the data.

    Attributes:
        type_name: The name of its type in the file.
        dtype: Its dtype; `None` for other types.
    """

    name: str
    type_name: str
    dtype: DType | None
    shape: tuple[int, ...]
    begin: int
    end: int


@frozen(eq=False)
class SafetensorsTensor(FileTensor):
    """A tensor of a file; see `FileTensor`.

    Attributes:
        type_name: The name of its type in the file.
        raw: Its bytes, u8[nbytes], a view of the file.
    """

    name: str
    type_name: str
    dtype: DType | None
    scheme: Scheme | None
    shape: tuple[int, ...]
    nbytes: int
    raw: np.ndarray = field(repr=False)

    def numpy(self) -> np.ndarray:
        if self.type_name in FLOATS8:
            if self.nbytes == 0:
                return np.zeros(self.shape, np.float32)
            # As one row, because a tensor without axes has no rows.
            return np.asarray(self._with_scale(self.raw[None], self.nbytes).dequantize()).reshape(self.shape)
        if self.dtype is None:
            raise unknown_type(self.name, self.type_name)
        return _array(self.raw, TensorEntry(self.name, self.type_name, self.dtype, self.shape, 0, self.nbytes))

    def quantized(self) -> QuantizedArray:
        if self.scheme is None:
            if self.dtype is None:
                raise unknown_type(self.name, self.type_name)
            raise UnsupportedError(
                f"safetensors: {self.name!r} is {self.type_name}{list(self.shape)}, not quantised",
                hint="numpy() returns its values",
            )
        return self._with_scale(self.raw.reshape(self.shape), self.shape[-1])

    def _with_scale(self, codes: np.ndarray, length: int) -> QuantizedArray:
        from rlx_core.quantization import QuantizedArray  # here, because most files have plain arrays

        fields = {"codes": codes[..., None, :], "scale": np.ones((*codes.shape[:-1], 1), np.float32)}
        return QuantizedArray(fields, scheme_of(FLOATS8[self.type_name]).for_length(length))


@frozen(eq=False)
class SafetensorsFile(Mapping[str, SafetensorsTensor]):
    """The tensors of a file by name, and the texts under `__metadata__`."""

    path: Path
    metadata: Mapping[str, str] = field(repr=False)
    tensors: Mapping[str, SafetensorsTensor] = field(repr=False)

    def __getitem__(self, name: str) -> SafetensorsTensor:
        return self.tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.tensors)

    def __len__(self) -> int:
        return len(self.tensors)


def scheme_of(name: str) -> Scheme:
    """Return one of the schemes in `FLOATS8`, with its block undecided."""
    from rlx_core.quantization.floating import Fp8E4M3, Fp8E5M2  # here, because most files have plain arrays

    return {"fp8_e4m3": Fp8E4M3, "fp8_e5m2": Fp8E5M2}[name]()


# ---------------------------------------------------------------------------------------------- reading


def open_safetensors(path: str | os.PathLike[str]) -> SafetensorsFile:
    """The tensors of a file by name, whose data are read on request, also of types that are no dtypes.

    Raises:
        FormatError: The file is not of this format, is cut off or damaged.
        OSError: The file cannot be read.
    """
    location = Path(path)
    data, entries, metadata = _opened(location)
    return SafetensorsFile(location, metadata, {entry.name: _tensor(data, entry) for entry in entries})


def _tensor(data: np.ndarray, entry: TensorEntry) -> SafetensorsTensor:
    is_coded = entry.type_name in FLOATS8
    has_rows = bool(entry.shape) and 0 not in entry.shape
    return SafetensorsTensor(
        entry.name,
        entry.type_name,
        dtypes.f32 if is_coded else entry.dtype,
        scheme_of(FLOATS8[entry.type_name]).for_length(entry.shape[-1]) if is_coded and has_rows else None,
        entry.shape,
        entry.end - entry.begin,
        data[entry.begin : entry.end],
    )


def unknown_type(name: str, type_name: str) -> UnsupportedError:
    """Return the error of a tensor whose data are requested and whose type is unknown."""
    known = {**DTYPES, **FLOATS8}
    others = "rlx_core.files.safetensors.open_safetensors(path) reads the other tensors"
    near = nearest(type_name, known)
    return UnsupportedError(
        f"safetensors: {name!r} has the dtype {_short(type_name)}, and known are {', '.join(known)}",
        hint=others if near is None else f"{near}; {others}",
    )


def load_safetensors(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The arrays of a file by name: read-only views of the mapped file, without a copy.

    F8_E4M3 and F8_E5M2 are quantised arrays (`fp8_e4m3`, `fp8_e5m2`) whose scales are 1, or f32 without axes or elements. One
    that does not lie at a multiple of its item size is copied, because kernels rely on alignment. The file must not be shortened
    while its arrays are in use; replacing it (as `save_safetensors` does) is safe.

    Raises:
        FormatError: The file is not of this format, is cut off or damaged; the message names the file, the tensor and
            both numbers.
        UnsupportedError: A tensor has another type; `open_safetensors` reads the others.
        OSError: The file cannot be read.
    """
    data, entries, _ = _opened(Path(path))
    return {entry.name: _loaded(data, entry, Path(path)) for entry in entries}


def _loaded(data: np.ndarray, entry: TensorEntry, path: Path) -> Any:
    if entry.dtype is not None:
        return _array(data, entry)
    tensor = _tensor(data, entry)
    try:
        return tensor.numpy() if tensor.scheme is None else tensor.quantized()
    except UnsupportedError as error:
        raise error.with_fact(Fact("file", path)) from None


def read_metadata(path: str | os.PathLike[str]) -> dict[str, str]:
    """The texts under `__metadata__`; errors as for `load_safetensors`."""
    return _opened(Path(path))[2]


def _array(data: np.ndarray, entry: TensorEntry) -> np.ndarray:
    assert entry.dtype is not None, "other types are decoded"
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
    type_name = row["dtype"]
    if not isinstance(type_name, str):
        raise FormatError(f"safetensors: {name!r} has the dtype {_short(type_name)}, not a text")
    shape = _naturals(name, "shape", row["shape"])
    begin, end = _naturals(name, "data_offsets", row["data_offsets"], count=2)
    if not begin <= end <= nbytes:
        raise FormatError(f"safetensors: {name!r} is bytes {begin}..{end} of the {nbytes} that the file has as data")
    entry_dtype = DTYPES.get(type_name)
    if entry_dtype is not None or type_name in FLOATS8:
        label, itemsize = (type_name, 1) if entry_dtype is None else (str(entry_dtype), entry_dtype.itemsize)
        expected = _nbytes(name, shape, label, itemsize)
        if end - begin != expected:
            raise FormatError(f"safetensors: {name!r} is {label}{list(shape)}, {expected} bytes, and has {end - begin}")
    return TensorEntry(name, type_name, entry_dtype, shape, begin, end)


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


def _nbytes(name: str, shape: Sequence[int], label: str, itemsize: int) -> int:
    """Return the bytes of a dense tensor; sizes are multiplied even if one is zero, because NumPy refuses such overflows too."""
    strides, total = itemsize, itemsize
    for size in shape:
        strides, total = strides * max(size, 1), total * size
    if strides > _MOST_NBYTES:
        raise FormatError(f"safetensors: {name!r} is {label}{list(shape)}, {strides} bytes, more than {_MOST_NBYTES}")
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


def import_file(path: Path, host: object) -> dict[str, Any]:
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
