"""Operations on shapes: they compute sizes, or give the same elements other sizes."""

from __future__ import annotations

from typing import Any

import numpy as np

import rlx_core as rlx
from rlx_core.errors import FormatError
from rlx_core.ir.dims import Expr, product
from rlx_onnx.walking.node import OnnxNode
from rlx_onnx.walking.table import handles
from rlx_onnx.walking.values import Coded, Undecided, decided, dims_array, is_sizes, settled, traced


@handles("Shape", takes_sizes=True, takes_coded=True)
def shape(node: OnnxNode, x: Any) -> Any:
    start, end = node.get("start", 0), node.get("end")
    return dims_array(tuple(x.shape)[slice(start, end)])


@handles("Size", takes_sizes=True, takes_coded=True)
def size(node: OnnxNode, x: Any) -> Any:
    return dims_array(product(tuple(x.shape)))


@handles("Identity", "Dropout", "OptionalGetElement", "Optional", takes_sizes=True, takes_coded=True)
def identity(node: OnnxNode, x: Any = None, ratio: Any = None, training: Any = None) -> Any:
    if node.op == "Dropout":
        return _dropout(node, x, training)
    return x


def _dropout(node: OnnxNode, x: Any, training: Any) -> Any:
    if node.scalar(2, "training_mode", False) and node.scalar(1, "ratio", 0.5) != 0:
        node.refuse("a dropout that drops", "training_mode off")
    return (x, rlx.full(x.shape, True, dtype=rlx.bool_)) if node.count > 1 else x


def on_value(x: Any, function: Any) -> Any:
    """Apply a function of arrays to a value; for `Coded` values to the stored numbers."""
    return Coded(function(x.value), x.element) if isinstance(x, Coded) else function(x)


def reshaped(x: Any, dims: Any) -> Any:
    """Return the same elements, or sizes, with another shape."""
    if is_sizes(x):
        return settled(x.reshape(tuple(int(n) for n in dims)))
    return on_value(x, lambda data: rlx.reshape(data, tuple(dims)))


@handles("Reshape", takes_sizes=True, takes_coded=True)
def reshape(node: OnnxNode, x: Any, dims: Any) -> Any:
    """0 keeps the size of that axis, -1 is whatever is left."""
    required = node.dims(1, "shape")
    old_shape = tuple(x.shape)
    if not node.get("allowzero", 0):
        if any(not isinstance(n, Expr) and n == 0 and i >= len(old_shape) for i, n in enumerate(required)):
            raise FormatError(f"{node}: {required} keeps an axis that {list(old_shape)} does not have")
        required = [old_shape[i] if not isinstance(n, Expr) and n == 0 else n for i, n in enumerate(required)]
    if any(not isinstance(n, Expr) and n < -1 for n in required):
        raise FormatError(f"{node}: {required} are no sizes")
    return reshaped(x, required)


@handles("Flatten", takes_coded=True)
def flatten(node: OnnxNode, x: Any) -> Any:
    axis = node.get("axis", 1)
    axis = axis + len(x.shape) if axis < 0 else axis
    return reshaped(x, (product(tuple(x.shape[:axis])), product(tuple(x.shape[axis:]))))


@handles("Squeeze", takes_sizes=True, takes_coded=True)
def squeeze(node: OnnxNode, x: Any, axes: Any = None) -> Any:
    values = node.ints(1, "axes")
    rank = len(x.shape)
    if values is None:
        dropped = {i for i, n in enumerate(x.shape) if _is_one(node, n)}
    else:
        dropped = {node.axis(a, rank) for a in values}
    if is_sizes(x):
        return settled(np.squeeze(x, axis=tuple(dropped)))
    for i in sorted(dropped):
        node.expect("==", x.shape[i], 1, f"axis {i}, which is squeezed")
    return reshaped(x, [n for i, n in enumerate(x.shape) if i not in dropped]) if dropped else x


def _is_one(node: OnnxNode, size: Any) -> bool:
    """Return whether a size is 1; how many axes there are would depend on one that may be."""
    try:
        return decided("==", size, 1)
    except Undecided:
        node.walk.specialise(node, "the number of axes")


@handles("Unsqueeze", takes_sizes=True, takes_coded=True)
def unsqueeze(node: OnnxNode, x: Any, axes: Any) -> Any:
    values = node.ints(1, "axes") or []
    rank = len(x.shape) + len(values)
    added = {node.axis(a, rank) for a in values}
    if len(added) != len(values):
        raise FormatError(f"{node}: axes {values} name one axis twice")
    remaining = iter(x.shape)
    return reshaped(x, [1 if i in added else next(remaining) for i in range(rank)])


@handles("Expand", takes_coded=True, grows=True)
def expand(node: OnnxNode, x: Any, dims: Any) -> Any:
    required = node.dims(1, "shape")
    old_shape = tuple(x.shape)
    rank = max(len(required), len(old_shape))
    left, right = [1] * (rank - len(old_shape)) + list(old_shape), [1] * (rank - len(required)) + required
    for axis, (a, b) in enumerate(zip(left, right, strict=True)):
        if 1 not in (a, b):
            node.expect("==", a, b, f"axis {axis}, which is expanded")
    result = [b if a == 1 else a for a, b in zip(left, right, strict=True)]
    return on_value(x, lambda data: rlx.broadcast_to(data, tuple(result)))


@handles("Concat", takes_sizes=True, takes_coded=True)
def concat(node: OnnxNode, *parts: Any) -> Any:
    if "axis" not in node:
        raise FormatError(f"{node}: it has no axis")
    if any(map(is_sizes, parts)) and all(isinstance(each, np.ndarray) for each in parts):
        return settled(np.concatenate([each.astype(object) for each in parts], axis=node.get("axis")))
    if isinstance(parts[0], Coded):
        return Coded(rlx.concat([each.value for each in parts], axis=node.get("axis")), parts[0].element)
    return rlx.concat([traced(each) for each in parts], axis=node.get("axis"))


@handles("Split", takes_sizes=True)
def split(node: OnnxNode, x: Any, sizes: Any = None) -> Any:
    """Parts of given sizes, or as equal ones as there are results; of those the last may be smaller."""
    axis = node.axis(node.get("axis", 0), len(x.shape))
    values = node.dims(1, "split") if sizes is not None else None
    if values is None:
        count = int(node.get("num_outputs", node.count))
        if count < 1 or count > max(node.count, 1):
            raise FormatError(f"{node}: it has {count} parts and {node.count} results")
        values = equal_parts(x.shape[axis], count)
    return tuple(pieces(x, values, axis))


def equal_parts(total: Any, count: int) -> list[Any]:
    """Sizes of so many parts, all equal but the last."""
    each = -(-total // count) if isinstance(total, int) else total // count
    return [each] * (count - 1) + [total - each * (count - 1)]


def pieces(x: Any, sizes: list[Any], axis: int) -> list[Any]:
    """The parts of an axis, of sizes that add up to its own."""
    if is_sizes(x):
        return [settled(each) for each in np.split(x, np.cumsum(sizes)[:-1], axis=axis)]
    if isinstance(x.shape[axis], int) and all(isinstance(n, int) for n in sizes) and sum(sizes) != x.shape[axis]:
        raise FormatError(f"parts of {sizes} are not an axis of {x.shape[axis]}")
    result, start = [], 0
    for n in sizes:
        result.append(x[(slice(None),) * axis + (slice(start, start + n),)])
        start = start + n
    return result


@handles("Transpose", takes_coded=True)
def transpose(node: OnnxNode, x: Any) -> Any:
    order = node.get("perm", list(reversed(range(len(x.shape)))))
    return on_value(x, lambda data: rlx.permute_dims(data, tuple(order)))


@handles("DepthToSpace", "SpaceToDepth")
def blocks(node: OnnxNode, x: Any) -> Any:
    """Channels as blocks of cells, and back; `CRD` has the channel outermost, `DCR` the block."""
    side = node.get("blocksize")
    n, c, *sizes = x.shape
    rank = len(sizes)
    if node.op == "SpaceToDepth":
        separate = rlx.reshape(x, (n, c, *(part for s in sizes for part in (s // side, side))))
        order = (0, *(3 + 2 * i for i in range(rank)), 1, *(2 + 2 * i for i in range(rank)))
        if node.choice("mode", "DCR", "CRD") == "CRD":
            order = (0, 1, *(3 + 2 * i for i in range(rank)), *(2 + 2 * i for i in range(rank)))
        return rlx.reshape(rlx.permute_dims(separate, order), (n, c * side**rank, *(s // side for s in sizes)))
    depth = c // side**rank
    if node.choice("mode", "DCR", "CRD") == "CRD":
        separate = rlx.reshape(x, (n, depth, *(side,) * rank, *sizes))
        between = (axis for i in range(rank) for axis in (2 + rank + i, 2 + i))
        order = (0, 1, *between)
    else:
        separate = rlx.reshape(x, (n, *(side,) * rank, depth, *sizes))
        between = (axis for i in range(rank) for axis in (2 + rank + i, 1 + i))
        order = (0, 1 + rank, *between)
    return rlx.reshape(rlx.permute_dims(separate, order), (n, depth, *(s * side for s in sizes)))


@handles("CenterCropPad", grows=True)
def center_crop_pad(node: OnnxNode, x: Any, dims: Any) -> Any:
    """Each axis cut or padded with zeros to a size, around its middle."""
    required = node.ints(1, "shape") or []
    axes = [a % x.ndim for a in node.get("axes", list(range(x.ndim)))]
    widths = [(0, 0)] * x.ndim
    for axis, n in zip(axes, required, strict=True):
        size = x.shape[axis]
        if n < size:
            start = (size - n) // 2
            x = x[(slice(None),) * axis + (slice(start, start + n),)]
        else:
            low = (n - size) // 2
            widths[axis] = (low, n - size - low)
    return rlx.pad(x, widths)
