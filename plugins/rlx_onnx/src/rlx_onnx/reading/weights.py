"""Extraction of large tensors' bytes from a model, to avoid copies.

For a file, they remain in the mapped file: protobuf parses the file without them, so their offsets must be known first. This
requires only the wire format: a message is a sequence of fields, each a number, a kind, and bytes with a length prefix.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from onnx import GraphProto, ModelProto, TensorProto

_LARGE: Final = 1024
"""Bytes of a tensor from which they are taken out: nothing that checks or converts a model looks at weights."""

_ELSEWHERE: Final = "taken-out"
_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5
_FIXED: Final = {_EIGHT: 8, _FOUR: 4}
"""Kinds of fields on the wire; groups, which are not in use, are among none of them."""


def taken_weights(graph: Any) -> dict[str, np.ndarray]:
    """The same of a model in memory, which is changed."""
    retained = {}
    for tensor in graph.initializer:
        data = tensor.raw_data  # a copy at every access
        if len(data) > _LARGE and tensor.data_location != TensorProto.EXTERNAL:
            retained[tensor.name] = np.frombuffer(data, np.uint8)
            tensor.ClearField("raw_data")
            _say_elsewhere(tensor)
    return retained


def mapped_weights(data: np.ndarray) -> tuple[bytes, dict[str, np.ndarray]]:
    """Return a serialized model without its large tensors' bytes, and these by the tensors' names, as views of `data`.

    Data that are no model are returned unchanged, and protobuf then refuses them; so is a model with an unusual encoding.

    Args:
        data: u8[n], the bytes of the file.
    """
    taken: dict[str, np.ndarray] = {}
    try:
        return b"".join(_model(data.data, taken)), taken
    except (IndexError, UnicodeDecodeError):
        return data.tobytes(), {}


def _model(data: memoryview, taken: dict[str, np.ndarray]) -> Iterator[bytes | memoryview]:
    for number, full, inner in _fields(data):
        is_graph = number == ModelProto.GRAPH_FIELD_NUMBER and inner is not None
        yield from _rewritten(number, list(_graph(inner, taken))) if is_graph and inner is not None else (full,)


def _graph(data: memoryview, taken: dict[str, np.ndarray]) -> Iterator[bytes | memoryview]:
    for number, full, inner in _fields(data):
        is_tensor = number == GraphProto.INITIALIZER_FIELD_NUMBER and inner is not None and len(inner) > _LARGE
        remaining = _tensor(inner, taken) if is_tensor and inner is not None else None
        yield from (full,) if remaining is None else _rewritten(number, remaining)


def _tensor(data: memoryview, taken: dict[str, np.ndarray]) -> list[bytes | memoryview] | None:
    """A tensor without its bytes; `None` where it keeps them."""
    result: dict[int, list[Any]] = {}
    remaining: list[bytes | memoryview] = []
    for number, full, inner in _fields(data):
        result.setdefault(number, []).append(inner)
        if number != TensorProto.RAW_DATA_FIELD_NUMBER:
            remaining.append(full)
    raw, names = result.get(TensorProto.RAW_DATA_FIELD_NUMBER, []), result.get(TensorProto.NAME_FIELD_NUMBER, [])
    is_plain = len(raw) == len(names) == 1 and raw[0] is not None and names[0] is not None
    if not is_plain or len(raw[0]) <= _LARGE or TensorProto.DATA_LOCATION_FIELD_NUMBER in result:
        return None
    name = bytes(names[0]).decode()
    if name in taken:  # twice, which is refused later
        return None
    taken[name] = np.frombuffer(raw[0], np.uint8)
    message = TensorProto()
    _say_elsewhere(message)
    return [*remaining, message.SerializeToString()]


def _say_elsewhere(tensor: Any) -> None:
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=_ELSEWHERE)


def _fields(data: memoryview) -> Iterator[tuple[int, memoryview, memoryview | None]]:
    """Yield the fields of a message: number, all of its bytes, and its payload if that is bytes.

    Raises:
        IndexError: The data are no message, or have fields of an obsolete kind.
    """
    position = 0
    while position < len(data):
        start = position
        key, position = _varint(data, position)
        number, kind = key >> 3, key & 7
        inner = None
        if kind == _VARINT:
            _, position = _varint(data, position)
        elif kind == _BYTES:
            count, position = _varint(data, position)
            inner, position = data[position : position + count], position + count
        else:
            position += _FIXED.get(kind, len(data) + 1)
        if number == 0 or position > len(data):
            raise IndexError
        yield number, data[start:position], inner


def _varint(data: memoryview, offset: int) -> tuple[int, int]:
    """A number of seven bits a byte, least first, and where it ends."""
    result = 0
    for shift in range(0, 64, 7):
        result |= (data[offset] & 0x7F) << shift
        offset += 1
        if data[offset - 1] < 0x80:
            return result, offset
    raise IndexError


def _rewritten(number: int, parts: list[bytes | memoryview]) -> Iterator[bytes | memoryview]:
    """A field of bytes again."""
    yield _number(number << 3 | _BYTES) + _number(sum(map(len, parts)))
    yield from parts


def _number(value: int) -> bytes:
    result = bytearray()
    while value > 0x7F:
        result.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*result, value])
