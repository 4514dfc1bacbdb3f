"""Tensors in the types of a GGUF file: rows are read, encoded and written a few at a time, and errors are summed up."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from math import prod
from typing import Any, Final

import numpy as np

from rlx_core.errors import DtypeError, Fact, RlxError
from rlx_core.ir import dtypes
from rlx_core.ir.dtypes import DType
from rlx_core.ir.schemes import Scheme
from rlx_core.plugins.host import PluginHost
from rlx_core.quantization import QuantizedArray, quantize
from rlx_core.system.records import define
from rlx_models.gguf.contents import ModelTensor, Values
from rlx_models.gguf.writing import TYPE_IDS, DeferredTensor, raw_bytes

CHUNK_SIZE: Final = 1 << 20
"""Elements that are encoded together: encoding takes up to 60 bytes for each."""

FILE_TYPES: Final[Mapping[str, int]] = {
    "f32": 0, "f16": 1, "q4_0": 2, "q4_1": 3, "q8_0": 7, "q5_0": 8, "q5_1": 9, "q2_k": 10, "q3_k": 12, "q4_k": 15, "q5_k": 17,
    "q6_k": 18, "iq2_xxs": 19, "iq2_xs": 20, "iq3_xxs": 23, "iq1_s": 24, "iq4_nl": 25, "iq3_s": 26, "iq2_s": 28, "iq4_xs": 30,
    "iq1_m": 31, "bf16": 32, "tq1_0": 36, "tq2_0": 37, "mxfp4": 38,
}  # fmt: skip
"""`general.file_type` by the type of most weights; `llama_ftype` of llama.h."""

FLOATS: Final = (dtypes.f32, dtypes.f16, dtypes.bf16)


def stored_type(tensor: ModelTensor) -> DType | Scheme:
    """Return the type of a tensor that is not quantised: its own, but f32 for f64 and for floats of one axis (llama.cpp)."""
    if tensor.scheme is not None:
        return tensor.scheme
    is_float = tensor.dtype.is_float
    return dtypes.f32 if is_float and (len(tensor.shape) < 2 or tensor.dtype not in FLOATS) else tensor.dtype


def label_of(target: DType | Scheme) -> str:
    """Return the name of a type."""
    return target.name.removeprefix("rlx.") if isinstance(target, Scheme) else str(target)


def file_type(tensors: Sequence[ModelTensor], targets: Mapping[str, DType | Scheme]) -> dict[str, Any]:
    """Return the metadata that state the type of most weights."""
    counts: Counter[str] = Counter()
    for tensor in tensors:
        counts[label_of(targets[tensor.name])] += prod(tensor.shape)
    ((label, _),) = counts.most_common(1) or [("f32", 0)]
    stated = {"general.file_type": FILE_TYPES[label]} if label in FILE_TYPES else {}
    return {**stated, "general.quantization_version": 2}


@define
class EncodingError:
    """The differences between the values of a tensor and those of its blocks.

    Attributes:
        squares, errors: Sums of squared values and of squared differences.
        size: The number of values.
        worst: The largest mean of squared differences of a block.
        worst_block: That block, counted along the rows of the file.
        blocks: The number of blocks.
    """

    squares: float = 0.0
    errors: float = 0.0
    size: int = 0
    worst: float = 0.0
    worst_block: int = 0
    blocks: int = 0

    def add(self, values: np.ndarray, decoded: np.ndarray, block: int) -> None:
        """Add rows of whole blocks."""
        wide = values.reshape(-1, block).astype(np.float64)
        means = np.square(wide - decoded.reshape(-1, block)).mean(-1)
        self.squares += float(np.square(wide).sum())
        self.errors += float(means.sum()) * block
        self.size += wide.size
        index = int(means.argmax())
        if means[index] > self.worst:
            self.worst, self.worst_block = float(means[index]), self.blocks + index
        self.blocks += len(means)

    @property
    def relative(self) -> float:
        """The root mean square of differences, divided by the one of values."""
        return math.sqrt(self.errors / self.squares) if self.squares else 0.0

    @property
    def worst_relative(self) -> float:
        """The root mean square of differences in the worst block, divided by the one of all values."""
        return math.sqrt(self.worst * self.size / self.squares) if self.squares else 0.0


def deferred(
    tensor: ModelTensor, target: DType | Scheme, error: EncodingError | None, host: PluginHost | None = None
) -> DeferredTensor:
    """Return a tensor for `write`, in a type.

    Args:
        tensor: The tensor.
        target: The dtype or scheme.
        error: Where the differences of its values are added up.
        host: The plugins with the scheme.

    Raises:
        ShapeError: Its rows are not whole blocks.
        DtypeError: The format does not have the type; later, a value has no code.
    """
    if isinstance(target, Scheme):
        decided = target.for_length(tensor.shape[-1])
        if decided.ggml_id is None or any(each.is_shared for each in decided.fields):
            raise DtypeError(
                f"gguf: {tensor.name!r} is in the scheme {label_of(target)}, which is no type of the format",
                hint="rlx.quantization.quantize(weight.dequantize(), 'q8_0') changes the scheme",
            )
        type_id = decided.ggml_id
        nbytes = prod(tensor.shape) // decided.elements * decided.block_dtype.itemsize
        return DeferredTensor(type_id, tensor.shape, nbytes, partial(_encoded, tensor, decided, error, host))
    if target not in TYPE_IDS:
        raise DtypeError(f"gguf: {tensor.name!r} is {target}, and the format has {', '.join(map(str, TYPE_IDS))}")
    nbytes = prod(tensor.shape) * target.itemsize
    return DeferredTensor(TYPE_IDS[target], tensor.shape, nbytes, partial(_encoded, tensor, target, error, host))


def _encoded(
    tensor: ModelTensor, target: DType | Scheme, error: EncodingError | None, host: PluginHost | None
) -> Iterator[np.ndarray]:
    """Yield the bytes of a tensor in a type, u8 each."""
    is_stored = target in (tensor.scheme, tensor.dtype if tensor.scheme is None else None) and not tensor.offset
    try:
        for rows in _row_chunks(tensor):
            if is_stored:
                yield raw_bytes(rows)
                continue
            values = np.asarray(rows.dequantize()) if isinstance(rows, QuantizedArray) else rows.astype(np.float32)
            values = values + np.float32(tensor.offset) if tensor.offset else values
            if isinstance(target, DType):
                yield raw_bytes(_cast(values, target))
                continue
            blocks = quantize(values.reshape(-1), target, host=host)
            if error is not None:
                error.add(values, np.asarray(blocks.dequantize()), target.elements)
            yield raw_bytes(blocks)
    except RlxError as fault:
        raise fault.with_fact(Fact("tensor", tensor.name)) from None


def _cast(values: np.ndarray, target: DType) -> np.ndarray:
    """Return values in a dtype.

    Raises:
        DtypeError: Some are finite and beyond its range.
    """
    with np.errstate(over="ignore"):
        result = values.astype(target.numpy)
    beyond = np.isfinite(values) & ~np.isfinite(result.astype(np.float32))
    if beyond.any():
        raise DtypeError(f"gguf: {int(beyond.sum())} values are beyond the range of {target}", hint="bf16 has it")
    return result


def _row_chunks(tensor: ModelTensor) -> Iterator[Values]:
    """Yield the values of a tensor in the order of the file, some rows at a time."""
    data, rows, rank = tensor.load(), tensor.rows, len(tensor.shape)
    if rank < 2:
        yield data if rows is None or isinstance(data, QuantizedArray) else data[rows]
        return
    count = prod(tensor.shape[:-1])
    step = max(1, CHUNK_SIZE // tensor.shape[-1])
    fields = dict(data.fields) if isinstance(data, QuantizedArray) else {"": data}
    flat = {name: np.asarray(each).reshape(count, *each.shape[rank - 1 :]) for name, each in fields.items()}
    for begin in range(0, count, step):
        index: Any = slice(begin, begin + step) if rows is None else rows[begin : begin + step]
        picked = {name: each[index] for name, each in flat.items()}
        yield QuantizedArray(picked, data.scheme) if isinstance(data, QuantizedArray) else picked[""]
