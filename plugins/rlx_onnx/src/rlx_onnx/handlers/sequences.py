"""Sequences, which are lists while a model is walked, and optionals, of which an empty one is `None`."""

from __future__ import annotations

from typing import Any

import numpy as np

import rlx_core as rlx
from rlx_core.errors import FormatError
from rlx_onnx.handlers.shapes import pieces
from rlx_onnx.walking.node import OnnxNode
from rlx_onnx.walking.table import handles, rows
from rlx_onnx.walking.values import traced

rows(
    {
        "SequenceEmpty": lambda node: [],
        "SequenceConstruct": lambda node, *parts: list(parts),
    }
)


rows(
    {
        "SequenceLength": lambda node, sequence: np.array(len(_sequence(node, sequence)), np.int64),
        "SequenceAt": lambda node, sequence, place: _sequence(node, sequence)[_place(node, sequence, 1)],
    },
    takes_sizes=True,
)


@handles("SequenceInsert", takes_sizes=True)
def insert(node: OnnxNode, sequence: Any, value: Any, place: Any = None) -> Any:
    result = list(_sequence(node, sequence))
    result.insert(len(result) if place is None else _place(node, [*sequence, None], 2), value)
    return result


@handles("SequenceErase", takes_sizes=True)
def erase(node: OnnxNode, sequence: Any, place: Any = None) -> Any:
    result = list(_sequence(node, sequence))
    del result[-1 if place is None else _place(node, sequence, 1)]
    return result


def _sequence(node: OnnxNode, value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise FormatError(f"{node}: its operand is no sequence")
    return value


def _place(node: OnnxNode, sequence: list[Any], number: int) -> int:
    result = int(node.scalar(number, "position"))
    if not -len(sequence) <= result < len(sequence):
        raise FormatError(f"{node}: there is no place {result} in a sequence of {len(sequence)}")
    return result % len(sequence)


@handles("SplitToSequence", takes_sizes=True)
def split(node: OnnxNode, x: Any, sizes: Any = None) -> Any:
    """Parts of an axis: of size 1, of one size, or of given ones."""
    axis = node.get("axis", 0) % len(x.shape)
    total = x.shape[axis]
    if not isinstance(total, int):
        node.refuse(f"an axis of {total}", "a size that is known")
    if sizes is None:
        node.counted(total * 1000, "number of parts, a thousand times")
        result = pieces(x, [1] * total, axis)
        return result if node.get("keepdims", 1) else [rlx.squeeze(each, axis=axis) for each in result]
    values = node.ints(1, "split") or []
    if np.ndim(sizes) == 0:
        each = values[0]
        values = [each] * (total // each) + ([total % each] if total % each else [])
    return pieces(x, values, axis)


@handles("ConcatFromSequence")
def concat(node: OnnxNode, sequence: Any) -> Any:
    parts = [traced(each) for each in _sequence(node, sequence)]
    join = rlx.stack if node.get("new_axis", 0) else rlx.concat
    return join(parts, axis=node.get("axis"))


rows({"OptionalHasElement": lambda node, value=None: np.array(value is not None)}, takes_sizes=True, takes_coded=True)
