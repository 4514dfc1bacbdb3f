"""Small GGUF files, and files by hand."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import rlx_core as rlx
from rlx_models import gguf

SCHEMES = (
    "q4_0",
    "q4_1",
    "q5_0",
    "q5_1",
    "q8_0",
    "q2_k",
    "q3_k",
    "q4_k",
    "q5_k",
    "q6_k",
    "iq4_nl",
    "iq4_xs",
    "tq1_0",
    "tq2_0",
)
METADATA: dict[str, Any] = {
    "general.architecture": "llama", "none": [], "texts": ["a", "", "ä"], "count": 3, "negative": -1, "large": 2**40, "half": 0.5,
    "tenth": np.float64(0.1), "large float": 1e300, "flag": True,
    "integers": [1, 2], "bytes": np.arange(3, dtype=np.uint8), "floats": [0.5, 2],
    "nested": [[1, 2], [3]], "flags": [True, False],
}  # fmt: skip


def plain_tensors() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    w = rng.standard_normal((3, 5)).astype(np.float32)
    half = np.asarray(rlx.astype(w, "bf16"))
    integers = {f"i{8 * n}": np.arange(-2, 2, dtype=f"i{n}").reshape(2, 1, 2) for n in (1, 2, 4, 8)}
    return {
        "f32": w,
        "f16": w.astype(np.float16),
        "bf16": half,
        "f64": w.astype(np.float64),
        "number": w[0, 0],
        **integers,
    }


def quantized_tensors(schemes: Sequence[str] = SCHEMES) -> dict[str, Any]:
    values = np.random.default_rng(1).standard_normal((3, 256)).astype(np.float32)
    return {name: rlx.quantization.quantize(values, name) for name in schemes}


def small_file(path: Path, kind: str) -> Path:
    """Write a file: `plain`, `blocks`, `metadata` or `aligned`."""
    tensors = quantized_tensors(("q4_0", "q6_k", "tq1_0")) if kind in ("blocks", "aligned") else plain_tensors()
    metadata = {"general.architecture": "llama"} if kind != "metadata" else METADATA
    gguf.write(
        path,
        tensors if kind != "metadata" else {"f32": tensors["f32"]},
        metadata,
        alignment=64 if kind == "aligned" else 32,
    )
    return path


def text(value: str, size: str = "<Q") -> bytes:
    data = value.encode()
    return struct.pack(size, len(data)) + data


def file_bytes(
    *,
    version: int = 3,
    keys: Sequence[bytes] = (),
    tensors: Sequence[bytes] = (),
    data: bytes = b"",
    counts: tuple[int, int] | None = None,
) -> bytes:
    """Return the bytes of a file by hand: keys and entries of tensors are given as bytes."""
    size = "<I" if version == 1 else "<Q"
    num_tensors, num_keys = counts or (len(tensors), len(keys))
    header = b"GGUF" + struct.pack("<I", version) + struct.pack(size, num_tensors) + struct.pack(size, num_keys)
    header += b"".join(keys) + b"".join(tensors)
    return header + b"\0" * (-len(header) % 32) + data


def key(name: str, type_id: int, value: bytes, size: str = "<Q") -> bytes:
    return text(name, size) + struct.pack("<I", type_id) + value


def entry(
    name: str, sizes: Sequence[int], type_id: int = 0, offset: int = 0, *, rank: int | None = None, size: str = "<Q"
) -> bytes:
    """Return the entry of a tensor; sizes are innermost first."""
    axes = struct.pack("<I", len(sizes) if rank is None else rank) + b"".join(struct.pack(size, n) for n in sizes)
    return text(name, size) + axes + struct.pack("<IQ", type_id, offset)


def old_version(data: bytes, version: int) -> bytes:
    """Return a file of version 3 as one of version 1 or 2, which differ in the width of counts and in nothing."""
    if version == 2:
        return data[:4] + struct.pack("<I", 2) + data[8:]
    position = 8

    def number(width: str) -> int:
        nonlocal position
        position += struct.calcsize(width)
        return int(struct.unpack_from(width, data, position - struct.calcsize(width))[0])

    def raw(count: int) -> bytes:
        nonlocal position
        position += count
        return data[position - count : position]

    def narrow() -> tuple[int, bytes]:
        count = number("<Q")
        return count, struct.pack("<I", count)

    def narrow_text() -> bytes:
        count, packed = narrow()
        return packed + raw(count)

    def value(type_id: int) -> bytes:
        if type_id == 8:
            return narrow_text()
        if type_id != 9:
            return raw({0: 1, 1: 1, 2: 2, 3: 2, 7: 1, 10: 8, 11: 8, 12: 8}.get(type_id, 4))
        inner = number("<I")
        count, packed = narrow()
        return struct.pack("<I", inner) + packed + b"".join(value(inner) for _ in range(count))

    (num_tensors, first), (num_keys, second) = narrow(), narrow()
    result = first + second
    for _ in range(num_keys):
        result += narrow_text()
        type_id = number("<I")
        result += struct.pack("<I", type_id) + value(type_id)
    alignment = 32
    for _ in range(num_tensors):
        result += narrow_text()
        rank = number("<I")
        result += struct.pack("<I", rank) + b"".join(narrow()[1] for _ in range(rank)) + raw(12)
    header = data[:4] + struct.pack("<I", 1) + result
    start = position + -position % alignment
    return header + b"\0" * (-len(header) % alignment) + data[start:]
