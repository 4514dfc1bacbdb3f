"""The bytes of a header: numbers, texts and metadata, read with every length checked, and written.

Lengths are exact integers, and are compared with the bytes that are left before anything is allocated: values take memory in
proportion to the file.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

import numpy as np

from rlx_core.errors import ConfigError, Fact, FormatError
from rlx_models.gguf.types import ARRAY, BOOL, MAX_DEPTH, NUMBERS, STRING

U32: Final = struct.Struct("<I")
U64: Final = struct.Struct("<Q")


class HeaderCursor:
    """A position in the bytes of a file.

    Attributes:
        position: The next byte.
        is_narrow: Whether counts and lengths have 32 bits (version 1).
    """

    def __init__(self, data: np.ndarray) -> None:
        self.data = data
        self.position = 0
        self.is_narrow = False

    @property
    def left(self) -> int:
        """The number of bytes that are left."""
        return self.data.size - self.position

    def fault(self, text: str, position: int | None = None) -> FormatError:
        """Return an error with a position, by default the next byte."""
        return FormatError(f"gguf: {text}", Fact("at byte", self.position if position is None else position))

    def take(self, count: int, what: str) -> np.ndarray:
        """Return the next bytes.

        Raises:
            FormatError: The file has fewer.
        """
        if count > self.left:
            raise self.fault(f"{what} has {count} bytes, and {self.left} are left in the file")
        self.position += count
        return self.data[self.position - count : self.position]

    def u32(self, what: str) -> int:
        """Return the next number of 32 bits."""
        return int(U32.unpack(self.take(4, what).tobytes())[0])

    def u64(self, what: str) -> int:
        """Return the next number of 64 bits."""
        return int(U64.unpack(self.take(8, what).tobytes())[0])

    def size(self, what: str) -> int:
        """Return the next count or length, of 32 bits in version 1 and of 64 in later ones."""
        return self.u32(what) if self.is_narrow else self.u64(what)

    @property
    def size_nbytes(self) -> int:
        """The bytes of a count or length."""
        return 4 if self.is_narrow else 8

    def count(self, what: str, nbytes: int) -> int:
        """Return the next count, of things of `nbytes` bytes or more each.

        Raises:
            FormatError: The file is too short for them.
        """
        begin = self.position
        count = self.size(f"the number of {what}")
        if count * nbytes > self.left:
            raise self.fault(f"{count} {what} are {count * nbytes} bytes or more, and {self.left} are left", begin)
        return count

    def text(self, what: str) -> str:
        """Return the next text.

        Raises:
            FormatError: It is longer than the file, or not UTF-8.
        """
        begin = self.position
        length = self.size(f"the length of {what}")
        data = self.take(length, what).tobytes()
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise self.fault(f"{what} is not UTF-8 ({error.reason})", begin + self.size_nbytes + error.start) from None

    def texts(self, count: int, what: str) -> list[str]:
        """Return the next texts.

        Raises:
            FormatError: As for `text`.
        """
        data, size, position = self.data.data, U32 if self.is_narrow else U64, self.position
        result: list[str] = []
        # Vocabularies have 10⁵ texts, and a call of `text` for each takes several times as long. The first fault ends the loop.
        with suppress(UnicodeDecodeError, struct.error):
            while len(result) < count:
                begin = position + size.size
                end = begin + size.unpack_from(data, position)[0]
                if end > data.nbytes:
                    break
                result.append(str(data[begin:end], "utf-8"))
                position = end
        self.position = position
        return result + [self.text(what) for _ in range(count - len(result))]

    def value(self, type_id: int, what: str, depth: int = 0) -> Any:
        """Return the next value of metadata: a number, a text, an array of numbers, or a list.

        Raises:
            FormatError: The type is unknown, a boolean is neither 0 nor 1, or the value is longer than the file.
        """
        if type_id == STRING:
            return self.text(what)
        if type_id == ARRAY:
            return self._array(what, depth + 1)
        number = self._numbers(type_id, 1, what)
        return number[0].item()

    def _numbers(self, type_id: int, count: int, what: str) -> np.ndarray:
        stored = NUMBERS.get(type_id)
        if stored is None:
            raise self.fault(f"{what} has the type {type_id}, and types of metadata are 0 to 12")
        begin = self.position
        raw = self.take(count * stored.itemsize, what)
        if type_id == BOOL and raw.size and raw.max() > 1:
            raise self.fault(f"{what} is a boolean of {int(raw.max())}, not 0 or 1", begin + int(raw.argmax()))
        # A copy, because numbers lie at any byte.
        return np.frombuffer(raw.tobytes(), stored)

    def _array(self, what: str, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise self.fault(f"{what} has more than {MAX_DEPTH} arrays within each other")
        type_id = self.u32(f"the type of {what}")
        if type_id not in (STRING, ARRAY):
            itemsize = NUMBERS[type_id].itemsize if type_id in NUMBERS else 1
            return self._numbers(type_id, self.count(f"elements of {what}", itemsize), what)
        smallest = self.size_nbytes + (4 if type_id == ARRAY else 0)
        count = self.count(f"elements of {what}", smallest)
        if type_id == STRING:
            return self.texts(count, what)
        return [self.value(type_id, what, depth) for _ in range(count)]


def read_metadata(cursor: HeaderCursor, count: int) -> dict[str, Any]:
    """Return so many keys with their values.

    Raises:
        FormatError: A key occurs twice; also the errors of `HeaderCursor.value`.
    """
    metadata: dict[str, Any] = {}
    for _ in range(count):
        begin = cursor.position
        key = cursor.text("a key of the metadata")
        if key in metadata:
            raise cursor.fault(f"the metadata have the key {short(key)} twice", begin)
        metadata[key] = cursor.value(cursor.u32(f"the type of {short(key)}"), short(key))
    return metadata


def short(text: str) -> str:
    """Return a text for messages, limited to 80 characters."""
    return repr(text) if len(text) <= 80 else f"{text[:77]!r}..."


# ---------------------------------------------------------------------------------------------- writing

TYPES: Final = {stored.newbyteorder("="): type_id for type_id, stored in NUMBERS.items()}


def written_metadata(metadata: Mapping[str, Any]) -> Iterator[bytes]:
    """Yield the bytes of keys and values.

    Raises:
        ConfigError: A key is not a text, or a value has no type of the format.
    """
    for key, value in metadata.items():
        if not isinstance(key, str):
            raise ConfigError(f"gguf: a key of the metadata is {key!r:.80}, not a text")
        type_id, data = written_value(key, value, 0)
        yield written_text(key) + U32.pack(type_id) + data


def written_text(text: str) -> bytes:
    """Return the bytes of a text with its length.

    Raises:
        ConfigError: The text has surrogates, which UTF-8 does not have.
    """
    try:
        data = text.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(f"gguf: {error.object[error.start]!a} in a text is no character") from None
    return U64.pack(len(data)) + data


def written_value(key: str, value: Any, depth: int) -> tuple[int, bytes]:
    """Return the type of a value and its bytes.

    Python's integers are u32 if they are in its range, else i32, i64 or u64; its floats are f32, because llama.cpp refuses f64
    for its keys, and f64 beyond the range of f32. NumPy's numbers and arrays have their own types.
    """
    if isinstance(value, str):
        return STRING, written_text(value)
    if isinstance(value, list | tuple) and depth < MAX_DEPTH:
        return ARRAY, _written_list(key, value, depth)
    array = np.asarray(_typed(value)) if isinstance(value, bool | int | float | np.generic | np.ndarray) else None
    native = None if array is None else array.dtype.newbyteorder("=")
    if array is None or native not in TYPES or array.ndim > 1:
        raise ConfigError(
            f"gguf: the value of {short(key)} is {value!r:.80}, of type {type(value).__name__}",
            hint="numbers, texts, lists of them, and NumPy arrays of one axis have types of the format",
        )
    data = array.astype(native.newbyteorder("<")).tobytes()
    if array.ndim == 0:
        return TYPES[native], data
    return ARRAY, U32.pack(TYPES[native]) + U64.pack(array.size) + data


def _typed(value: Any) -> Any:
    """Return a number of Python with a type."""
    if type(value) is int:
        candidates: tuple[type[np.generic], ...] = (np.uint32, np.int32, np.int64, np.uint64)
        fitting = (each for each in candidates if np.iinfo(each).min <= value <= np.iinfo(each).max)  # type: ignore[type-var]
        chosen = next(fitting, None)
        return value if chosen is None else chosen(value)
    if type(value) is float:
        return _as_f32(np.asarray(value))
    return value


def _written_list(key: str, values: list[Any] | tuple[Any, ...], depth: int) -> bytes:
    if values and all(isinstance(each, bool | int | float | np.generic) for each in values):
        return written_value(key, _numbers_of(values), depth)[1]
    items = [written_value(key, each, depth + 1) for each in values]
    types = {type_id for type_id, _ in items} or {STRING}
    if len(types) > 1:
        raise ConfigError(f"gguf: the list of {short(key)} has elements of different types")
    return U32.pack(types.pop()) + U64.pack(len(items)) + b"".join(data for _, data in items)


def _numbers_of(values: list[Any] | tuple[Any, ...]) -> np.ndarray:
    """Return numbers as an array: integers of 32 bits where they fit."""
    array = np.asarray(values)
    if array.dtype == np.int64 and all(type(each) is int for each in values):
        is_narrow = int(array.min()) >= -(2**31) and int(array.max()) < 2**31
        return array.astype(np.int32) if is_narrow else array
    if array.dtype == np.float64 and all(type(each) in (int, float) for each in values):
        return _as_f32(array)
    return array


def _as_f32(values: np.ndarray) -> np.ndarray:
    """Return f64 numbers as f32, unless one is beyond its range."""
    with np.errstate(over="ignore"):
        narrow = values.astype(np.float32)
    return narrow if np.array_equal(np.isfinite(narrow), np.isfinite(values)) else values
