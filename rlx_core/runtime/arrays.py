"""Conversion of arguments to arrays that a program can run on: declared dtype, native byte order, writable if donated."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from attrs import field

from rlx_core.errors import DtypeError, Fact, FormatError, LengthMismatchError, PlaceError, ShapeError, TraceError
from rlx_core.ir.apply import as_array, byte_bounds
from rlx_core.ir.array import unwrapped
from rlx_core.ir.dtypes import DType, dtype
from rlx_core.ir.placed import Placed
from rlx_core.ir.provenance import Source
from rlx_core.ir.types import TensorType
from rlx_core.system.records import frozen

Bytes = bytes | bytearray | memoryview


class ArgumentMemory(Protocol):
    """The memory of a device, as far as arguments are concerned."""

    name: str

    def adopt(self, data: Any) -> Placed | None:
        """Return an array of the device library as an array of this device without a copy; `None` for everything else."""


@frozen
class Declared:
    """An input or a parameter: its name, its type, whether runs may overwrite it, and the user's line that made it one."""

    name: str
    type: TensorType
    is_donated: bool = False
    source: Source | None = None
    stored: np.dtype = field(init=False, repr=False, eq=False)
    dims: tuple[int, ...] | None = field(init=False, repr=False, eq=False)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "stored", self.type.dtype.numpy)
        object.__setattr__(self, "dims", self.type.static_shape if self.type.is_static else None)

    @property
    def fact(self) -> Fact:
        """Return the fact that errors show for it."""
        return Fact("declared", self.type, self.source)


def checked(entry: Declared, data: Any, memory: ArgumentMemory | None = None) -> Any:
    """`data` as an array of exactly the entry's dtype and, where they are known, its dims.

    Args:
        memory: The device of the program, if not the host: an array in its memory is used in place.

    Raises:
        DtypeError, ShapeError: It has others.
        PlaceError: It lies on another device.
        TraceError: It is not an array.
    """
    if type(data) is np.ndarray and data.dtype is entry.stored and data.shape == entry.dims:
        return data  # fast path: the usual argument, without further checks
    data = unwrapped(data)
    placed = None if memory is None else memory.adopt(data)
    if placed is not None:
        data = placed
    if isinstance(data, Placed):
        _expect_here(entry, data, memory)
        _expect_dtype(entry, data.type.dtype, data.type.static_shape)
        _expect_dims(entry, data.type.static_shape)
        return data
    try:
        array = as_array(data)
    except TraceError as error:
        raise TraceError(
            f"run: {entry.name} is {type(data).__name__}, not an array", entry.fact, hint=error.hint
        ) from None
    _expect_dtype(entry, dtype(array.dtype), array.shape)
    _expect_dims(entry, array.shape)
    return array.astype(entry.type.dtype.numpy, copy=False)  # native byte order


def _expect_dims(entry: Declared, shape: tuple[int, ...]) -> None:
    dims_fit = len(shape) == entry.type.rank and all(
        not isinstance(d, int) or d == n for d, n in zip(entry.type.shape, shape, strict=True)
    )
    if not dims_fit:
        raise ShapeError(
            f"run: {entry.name} must be {entry.type}, not {TensorType(entry.type.dtype, shape)}", entry.fact
        )


def _expect_here(entry: Declared, data: Placed, memory: ArgumentMemory | None) -> None:
    here = "the host" if memory is None else memory.name
    if memory is None or data.place != here:
        raise PlaceError(
            f"run: {entry.name} lies on {data.place}, and the program runs on {here}",
            entry.fact,
            hint=f"copy it: {entry.name}.to_host()"
            + (f', or rlx.device_put({entry.name}.to_host(), "{here}")' if memory else ""),
        )


def _expect_dtype(entry: Declared, actual: DType, shape: Sequence[int] | None) -> None:
    if actual is entry.type.dtype:
        return
    description = actual if shape is None else TensorType(actual, shape)
    raise DtypeError(
        f"run: {entry.name} must be {entry.type.dtype}, not {actual}",
        entry.fact,
        Fact("given", description),
        hint=f"convert it: numpy.asarray({entry.name}, {entry.type.dtype.numpy.name!r})",
    )


def from_bytes(entry: Declared, data: Bytes, element_type: DType) -> np.ndarray:
    """Little-endian bytes as an array of the entry's type.

    Raises:
        DtypeError, LengthMismatchError: The dtype or the number of bytes is not the entry's.
        FormatError: The entry's dims are not all known.
    """
    _expect_dtype(entry, element_type, None)
    if not entry.type.is_static:
        raise FormatError(f"run: the dims of {entry.name} ({entry.type}) cannot be told from bytes; pass an array")
    nbytes = memoryview(data).nbytes
    if nbytes != entry.type.nbytes:
        raise LengthMismatchError(
            f"run: {entry.name} ({entry.type}) has {entry.type.nbytes} bytes, not {nbytes}", entry.fact
        )
    return flat_from_bytes(entry, data, element_type).reshape(entry.type.static_shape)


def flat_from_bytes(entry: Declared, data: Bytes, element_type: DType) -> np.ndarray:
    """Little-endian bytes as a flat array of the entry's dtype, of as many elements as they hold.

    Raises:
        DtypeError, LengthMismatchError: The dtype is not the entry's, or the bytes are no whole number of elements.
    """
    _expect_dtype(entry, element_type, None)
    raw = np.frombuffer(memoryview(data).cast("B"), np.uint8)
    if raw.size % element_type.itemsize:
        raise LengthMismatchError(
            f"run: {entry.name} has {raw.size} bytes, not a multiple of the {element_type.itemsize} of a {element_type}",
            entry.fact,
        )
    return raw.view(element_type.numpy.newbyteorder("<")).astype(element_type.numpy, copy=False)


def reshaped(entry: Declared, flat: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """A flat array with the entry's dims, all of which are bound now.

    Raises:
        LengthMismatchError: It has another number of elements.
    """
    if math.prod(shape) != flat.size:
        raise LengthMismatchError(
            f"run: {entry.name} ({entry.type}) has {math.prod(shape)} elements, not {flat.size}", entry.fact
        )
    return flat.reshape(shape)


# --------------------------------------------------------------------------------------- donated arrays


def writable(array: np.ndarray) -> np.ndarray:
    """`array`, or a copy of it where a program could not write its result into it."""
    flags = array.flags
    return array if flags.writeable and flags.c_contiguous and flags.aligned else array.copy(order="C")


Span = tuple[int, int]
"""The first byte of an array and the one after its last: exact for dense arrays, and large enough for strided ones."""


@frozen(eq=False)
class ParameterMemory:
    """Addresses of the parameters that a program reads while it runs.

    Attributes:
        spans: All of them, from the first to the last byte.
        written: Spans of the parameters that runs write to, because they were donated.
    """

    spans: tuple[Span, ...] = ()
    written: tuple[Span, ...] = ()

    @classmethod
    def of(cls, arrays: Mapping[str, np.ndarray], donated: Collection[str]) -> ParameterMemory:
        here = {name: array for name, array in arrays.items() if isinstance(array, np.ndarray)}
        spans = {name: byte_bounds(array) for name, array in here.items() if array.size}
        return cls(tuple(spans.values()), tuple(spans[name] for name in donated if name in spans))


def separated(
    entries: Sequence[Declared], arrays: Sequence[np.ndarray], parameter_memory: ParameterMemory | None = None
) -> list[np.ndarray]:
    """Return the arrays of a program with donations; each donated one is writable and shares no byte with another or a parameter.

    Arrays that cannot be donated, because they are read-only, strided or passed twice, are copied; their owner keeps the old
    contents. So is an input that lies in a parameter which the run writes to.

    Args:
        parameter_memory: Memory of the bound parameters, which do not move.
    """
    parameter_memory = parameter_memory or ParameterMemory()
    # Arrays on a device are its program's matter.
    ready = [
        writable(a) if e.is_donated and isinstance(a, np.ndarray) else a for e, a in zip(entries, arrays, strict=True)
    ]
    spans = {i: byte_bounds(a) for i, a in enumerate(ready) if isinstance(a, np.ndarray) and a.size}
    copied = _sharing(spans, parameter_memory.spans) if any(e.is_donated for e in entries) else set()
    copied = {i for i in copied if entries[i].is_donated}
    copied |= {
        i for i, (start, end) in spans.items() for low, high in parameter_memory.written if start < high and low < end
    }
    return [a.copy() if i in copied else a for i, a in enumerate(ready)]


def _sharing(spans: Mapping[int, Span], others: Sequence[Span]) -> set[int]:
    """Return the indices of spans that share a byte with another span, or with one of `others`."""
    overlapping: set[int] = set()
    # Along the starts, a span overlaps an earlier one exactly if it begins before the furthest end so far.
    furthest, owner = 0, -1
    for start, end, i in sorted((*((*span, i) for i, span in spans.items()), *((*span, -1) for span in others))):
        if start < furthest:
            overlapping |= {i, owner}
        if end > furthest:
            furthest, owner = end, i
    return overlapping - {-1}
