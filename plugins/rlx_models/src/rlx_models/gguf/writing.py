"""`write`: a GGUF file of version 3, from arrays and quantised arrays."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import numpy as np
from attrs import field

from rlx_core.errors import ConfigError, DtypeError, Fact, RlxError, ShapeError, TraceError
from rlx_core.files.load_save import path_of, writing
from rlx_core.ir.apply import as_array
from rlx_core.ir.dtypes import dtype
from rlx_core.quantization import QuantizedArray
from rlx_core.system.private import Chunk, replace_file
from rlx_core.system.records import frozen
from rlx_models.gguf.metadata import U32, U64, short, written_metadata, written_text
from rlx_models.gguf.types import DEFAULT_ALIGNMENT, DTYPES, LAYOUT_KEYS, MAGIC, MAX_AXES

VERSION: Final = 3
TYPE_IDS: Final = {plain: type_id for type_id, plain in DTYPES.items()}
MAX_ALIGNMENT: Final = 1 << 20


@frozen(eq=False)
class DeferredTensor:
    """A tensor whose bytes are computed when they are written, so that a file of many needs the memory of one.

    Attributes:
        type_id: The number of its type in the file.
        shape: Its shape, the outermost axis first.
        nbytes: Its bytes in the file.
        chunks: Returns the bytes in order, u8 each.
    """

    type_id: int
    shape: tuple[int, ...]
    nbytes: int
    chunks: Callable[[], Iterator[np.ndarray]] = field(repr=False)


Writable = np.ndarray | QuantizedArray | DeferredTensor


def write(
    path: str | os.PathLike[str],
    tensors: Mapping[str, Any],
    metadata: Mapping[str, Any],
    *,
    alignment: int = DEFAULT_ALIGNMENT,
) -> None:
    """Write a file; it appears as a whole, or on an error stays as it was.

    Args:
        path: The file.
        tensors: Arrays of f32, f16, bf16, f64, i8, i16, i32 or i64, and quantised arrays whose schemes are types of the format,
            by name; of one to four axes, or none for a number. Tensors can be deferred (`DeferredTensor`).
        metadata: Texts, numbers, lists of texts or numbers, and NumPy arrays of one axis. Integers of Python are u32 where they
            fit, and in lists i32; floats are f32 in its range. NumPy's numbers have their own types. `general.alignment`
            and the keys of several files are left out: they describe the file that the metadata came from.
        alignment: The data of each tensor begin at a multiple of so many bytes, a power of two.

    Raises:
        ConfigError: A name, a value of the metadata or the alignment has no form in the file.
        DtypeError, ShapeError: A tensor has a dtype, scheme or shape that the format does not have.
        FileError: The file cannot be written.
    """
    target = path_of("gguf", path)
    try:
        if type(alignment) is not int or not 0 < alignment <= MAX_ALIGNMENT or alignment & (alignment - 1):
            raise ConfigError(
                f"gguf: the alignment is {alignment!r:.40}, not a power of two of at most {MAX_ALIGNMENT}"
            )
        ready = {name: _ready(name, tensor) for name, tensor in tensors.items()}
        selected = {key: value for key, value in metadata.items() if key not in LAYOUT_KEYS}
        if alignment != DEFAULT_ALIGNMENT:
            selected = {"general.alignment": np.uint32(alignment), **selected}
        header = _header(ready, selected, alignment)
    except RlxError as error:
        raise error.with_fact(Fact("file", target)) from None
    with writing("gguf", target):
        replace_file(target, _chunks(header, ready, alignment))


def _ready(name: Any, tensor: Any) -> Writable:
    """Return a tensor whose type and shape the format has.

    Raises:
        ConfigError, DtypeError, ShapeError: The format does not have it.
    """
    if not isinstance(name, str):
        raise ConfigError(f"gguf: a tensor must be named by a text, not {name!r:.80}")
    if isinstance(tensor, DeferredTensor):
        result: Writable = tensor
    elif isinstance(tensor, QuantizedArray):
        if tensor.scheme.ggml_id is None or any(each.is_shared for each in tensor.scheme.fields):
            raise DtypeError(
                f"gguf: {short(name)} is in the scheme {tensor.scheme.name.removeprefix('rlx.')}, which is no type of the format",
                hint="rlx.quantization.quantize(tensor.dequantize(), 'q8_0') changes the scheme",
            )
        result = tensor
    else:
        try:
            result = as_array(tensor)
        except (DtypeError, TraceError) as error:
            raise type(error)(
                f"gguf: {short(name)} is of type {type(tensor).__name__}, not an array", hint=error.hint
            ) from None
        if dtype(result.dtype) not in TYPE_IDS:
            raise DtypeError(
                f"gguf: {short(name)} is {dtype(result.dtype)}, and the format has {', '.join(map(str, TYPE_IDS))}"
            )
    if len(result.shape) > MAX_AXES or 0 in result.shape:
        raise ShapeError(
            f"gguf: {short(name)} has the shape {list(result.shape)}, and the format has up to {MAX_AXES} axes of 1 or more"
        )
    return result


def _type_id(tensor: Writable) -> int:
    if isinstance(tensor, DeferredTensor):
        return tensor.type_id
    if isinstance(tensor, QuantizedArray):
        assert tensor.scheme.ggml_id is not None, "`_ready` has checked the scheme"
        return tensor.scheme.ggml_id
    return TYPE_IDS[dtype(tensor.dtype)]


def _header(tensors: Mapping[str, Writable], metadata: Mapping[str, Any], alignment: int) -> bytes:
    """Return the header, padded to the data."""
    parts = [MAGIC, U32.pack(VERSION), U64.pack(len(tensors)), U64.pack(len(metadata)), *written_metadata(metadata)]
    offset = 0
    for name, tensor in tensors.items():
        sizes = b"".join(map(U64.pack, reversed(tensor.shape)))
        place = U32.pack(_type_id(tensor)) + U64.pack(offset)
        parts.append(written_text(name) + U32.pack(len(tensor.shape)) + sizes + place)
        offset += tensor.nbytes + -tensor.nbytes % alignment
    header = b"".join(parts)
    return header + b"\0" * (-len(header) % alignment)


def _chunks(header: bytes, tensors: Mapping[str, Writable], alignment: int) -> Iterator[Chunk]:
    yield header
    for tensor in tensors.values():
        if isinstance(tensor, DeferredTensor):
            yield from (chunk.reshape(-1).data for chunk in tensor.chunks())
        else:
            yield raw_bytes(tensor).data
        yield b"\0" * (-tensor.nbytes % alignment)


def raw_bytes(tensor: np.ndarray | QuantizedArray) -> np.ndarray:
    """Return the bytes of a tensor in a file, u8[nbytes]."""
    if isinstance(tensor, QuantizedArray):
        raw = np.ascontiguousarray(tensor.scheme.bytes_of({n: np.asarray(f) for n, f in tensor.fields.items()}))
    else:
        raw = tensor.astype(tensor.dtype.newbyteorder("<"), order="C", copy=False)
    return raw.reshape(-1).view(np.uint8)
