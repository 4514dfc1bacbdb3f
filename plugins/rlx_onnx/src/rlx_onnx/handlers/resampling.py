"""Pictures of other sizes, and reading between cells."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import rlx_core as rlx
from rlx_core.errors import FormatError
from rlx_core.ir.dims import holds
from rlx_core.ir.dtypes import dtype as dtype_of
from rlx_core.nn.sampling import cell_at, read_cells
from rlx_onnx.walking.node import OnnxNode
from rlx_onnx.walking.table import handles

MOST_SLICES = 16  # cells of a place that are read one by one

ROUNDINGS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


@handles("Resize", "Upsample")
def resize(node: OnnxNode, x: Any, roi: Any = None, scales: Any = None, sizes: Any = None) -> Any:
    """Each axis read at other places, which the mode interpolates between; places and weights are computed here.

    An axis of unknown size stays, or is made a whole number of times as large.
    """
    has_sizes = node.op != "Upsample" and len(node.operands) > 3 and node.operands[3] is not None
    sizes_given = node.dims(3, "sizes") if has_sizes else None
    number = 1 if node.op == "Upsample" else 2
    scale_of = node.operands[number] if number < len(node.operands) else None
    values: list[float] | None = None
    if scale_of is not None and 0 not in scale_of.shape:
        values = [float(s) for s in node.known(number, "scales")]
    if (values is None) == (not sizes_given):
        raise FormatError(f"{node}: it has neither scales nor sizes, or both")
    axes = [a % x.ndim for a in node.get("axes", list(range(x.ndim)))]
    old_sizes = [x.shape[a] for a in axes]
    if sizes_given:
        values, required = _by_policy(node, old_sizes, sizes_given)
    else:
        values = [_scale(node, n, scale=s) for n, s in zip(old_sizes, values or [], strict=True)]
        required = [
            int(np.floor(n * s)) if isinstance(n, int) else n * int(s) for n, s in zip(old_sizes, values, strict=True)
        ]
    for n in required:
        if isinstance(n, int):
            node.counted(n, "size of a result")
    regions = (
        np.zeros(2 * len(axes))
        if roi is None or 0 in roi.shape or not _crops(node)
        else node.known(1, "roi").astype(float)
    )
    result = x
    for i, axis in enumerate(axes):
        if values is not None and (values[i] != 1.0 or old_sizes[i] != required[i] or _crops(node)):
            region = (regions[i], regions[i + len(axes)])
            if isinstance(old_sizes[i], int):
                result = _along(node, result, axis, old_sizes[i], required[i], values[i], region)
            else:
                result = _by_phases(node, result, axis, int(values[i]))
    return rlx.astype(result, dtype_of(x.dtype))


def _crops(node: OnnxNode) -> bool:
    return node.get("coordinate_transformation_mode") == "tf_crop_and_resize"


def _scale(node: OnnxNode, size: Any, wanted: Any = None, scale: float | None = None) -> float:
    """Return the scale factor of an axis; an integer for an axis of unknown size."""
    if isinstance(size, int) and (scale is not None or isinstance(wanted, int)):
        return wanted / size if scale is None else scale
    by = wanted // size if scale is None else scale
    if (
        isinstance(by, int | float)
        and by == int(by) >= 1
        and (scale is not None or holds("==", size * int(by), wanted))
    ):
        return float(by)
    return node.refuse(
        f"an axis of {size} that becomes {wanted if scale is None else f'{scale:g} times as large'}",
        "numbers as the sizes of pictures: rlx_onnx.load(file, inputs=…)",
    )


def _by_policy(node: OnnxNode, sizes: list[Any], required: list[Any]) -> tuple[list[float], list[Any]]:
    """Scales for sizes, which may be the same for all axes."""
    policy = node.choice("keep_aspect_ratio_policy", "stretch", "not_larger", "not_smaller")
    scales = [_scale(node, n, m) for m, n in zip(required, sizes, strict=True)]
    if policy == "stretch":
        return scales, required
    if not all(isinstance(n, int) for n in sizes):
        node.refuse(f"the policy {policy} for sizes {sizes}", "the policy stretch")
    scale = min(scales) if policy == "not_larger" else max(scales)
    return [scale] * len(sizes), [int(np.floor(scale * n + 0.5)) for n in sizes]


def _places(node: OnnxNode, size: int, count: int, scale: float, region: tuple[float, float]) -> np.ndarray:
    """Return the positions of the result's cells among those of an axis."""
    mode = node.choice(
        "coordinate_transformation_mode",
        "half_pixel" if node.op == "Resize" else "asymmetric",
        *("half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_half_pixel_for_nn"),
        *("tf_crop_and_resize", "half_pixel"),
    )
    position, long = np.arange(count, dtype=np.float64), scale * size
    if mode == "asymmetric":
        return position / scale
    if mode == "tf_half_pixel_for_nn":
        return (position + 0.5) / scale
    if mode == "align_corners":
        return position * (size - 1) / (long - 1) if long != 1 else np.zeros(count)
    if mode == "tf_crop_and_resize":
        start, end = region
        if count == 1:
            return np.full(1, (end + start) * (size - 1) / 2)
        return start * (size - 1) + position * (end - start) * (size - 1) / (count - 1)
    half = (position + 0.5) / scale - 0.5
    if mode == "pytorch_half_pixel":
        return half if long > 1 else np.full(count, 0.0)
    return half + (size / 2) * (1 - count / long) if mode == "half_pixel_symmetric" else half


def _along(node: OnnxNode, x: Any, axis: int, size: int, count: int, scale: float, region: tuple[float, float]) -> Any:
    places = _places(node, size, count, scale, region)
    mode = node.choice("mode", "nearest", "linear", "cubic", "bilinear")
    if mode == "nearest":
        result = rlx.take(x, np.clip(_rounding(node)(places), 0, size - 1).astype(np.int64), axis=axis)
    else:
        result = _weighted(node, x, axis, size, *_taps(node, places, size, scale, is_cubic=mode == "cubic"))
    if not _crops(node):
        return result
    inside = ((places >= 0) & (places <= size - 1)).reshape(-1, *(1,) * (x.ndim - axis - 1))
    return rlx.where(inside, result, np.asarray(node.get("extrapolation_value", 0.0), dtype_of(x.dtype).numpy))


def _by_phases(node: OnnxNode, x: Any, axis: int, scale: int) -> Any:
    """An axis of unknown size made `scale` times as large: what lies behind one cell is read as behind any other."""
    if scale == 1:
        return x
    mode = node.choice("mode", "nearest", "linear", "cubic", "bilinear")
    transformation = node.get("coordinate_transformation_mode", "half_pixel")
    if transformation in ("align_corners", "tf_crop_and_resize") or node.get("exclude_outside", 0):
        node.refuse(
            f"an axis of {x.shape[axis]} that is read by its size", "half_pixel or asymmetric, nothing excluded"
        )
    # The middle of many cells represents all; beyond the edges the outermost cells are repeated.
    many, middle = 9, 4
    places = _places(node, many, many * scale, scale, (0.0, 0.0))[middle * scale : (middle + 1) * scale]
    if mode == "nearest":
        cells, weights = _rounding(node)(places)[:, None].astype(np.int64), np.ones((scale, 1))
    else:
        cells, weights = _taps(node, places, many, scale, is_cubic=mode == "cubic")
    steps = cells - middle
    low, high = max(0, -int(steps.min())), max(0, int(steps.max()))
    wide = x if dtype_of(x.dtype).is_float or mode == "nearest" else rlx.astype(x, rlx.f32)
    widths = [(0, 0)] * x.ndim
    widths[axis] = (low, high)
    edged = rlx.pad(wide, widths, mode="edge") if low or high else wide

    def read(step: int) -> Any:
        start = low + int(step)
        return edged[(slice(None),) * axis + (slice(start, start + x.shape[axis]),)]

    def phase(number: int) -> Any:
        pairs = [(read(step), float(w)) for step, w in zip(steps[number], weights[number], strict=True) if w]
        return sum(cell if w == 1 else cell * w for cell, w in pairs)

    result = rlx.stack([phase(number) for number in range(scale)], axis=axis + 1)
    return rlx.reshape(result, (*x.shape[:axis], x.shape[axis] * scale, *x.shape[axis + 1 :]))


def _rounding(node: OnnxNode) -> Callable[[np.ndarray], np.ndarray]:
    usual = "round_prefer_floor" if node.op == "Resize" else "floor"
    return ROUNDINGS[node.choice("nearest_mode", usual, *ROUNDINGS)]


def _taps(
    node: OnnxNode, places: np.ndarray, size: int, scale: float, *, is_cubic: bool
) -> tuple[np.ndarray, np.ndarray]:
    """The cells that each place is read from `[places, cells]`, and their weights."""
    first = np.floor(places)
    narrow = min(scale, 1.0) if node.get("antialias", 0) else 1.0
    reach = 2 if is_cubic else 1
    start = int(np.floor(-reach / narrow)) + 1
    node.counted(max(len(places), 1) * (2 - 2 * start), "number of cells that are read")
    steps = np.arange(start, 2 - start)
    away = narrow * np.abs(steps - (places - first)[:, None])
    weights = _cubic(away, node.get("cubic_coeff_a", -0.75)) if is_cubic else np.clip(1 - away, 0, 1)
    cells = first[:, None] + steps
    if node.get("exclude_outside", 0):
        weights = np.where((cells >= 0) & (cells < size), weights, 0)
    weights = weights / weights.sum(axis=1, keepdims=True)
    return np.clip(cells, 0, size - 1).astype(np.int64), weights


def _cubic(t: np.ndarray, a: float) -> np.ndarray:
    """Keys 1981: the cubic convolution kernel at distances t."""
    near = ((a + 2) * t - (a + 3)) * t * t + 1
    distance = ((a * t - 5 * a) * t + 8 * a) * t - 4 * a
    return np.where(t <= 1, near, np.where(t < 2, distance, 0))


def _weighted(node: OnnxNode, x: Any, axis: int, size: int, cells: np.ndarray, weights: np.ndarray) -> Any:
    """The weighted cells of each place: a few slices, or a product where many are read (much smaller pictures)."""
    dtype = dtype_of(x.dtype)
    wide = x if dtype.is_float else rlx.astype(x, rlx.f32)
    weights = weights.astype(dtype_of(wide.dtype).numpy)
    used = np.flatnonzero(np.any(weights, axis=0))
    if 0 < len(used) <= MOST_SLICES:
        column = weights.reshape(*weights.shape, *(1,) * (x.ndim - axis - 1))
        return sum(rlx.take(wide, cells[:, i], axis=axis) * column[:, i] for i in used)
    node.counted(len(cells) * size, "number of weights")
    table = np.zeros((len(cells), size), weights.dtype)
    np.add.at(table, (np.arange(len(cells))[:, None], cells), weights)
    return rlx.moveaxis(rlx.tensordot(wide, table, axes=((axis,), (1,))), -1, axis)


# --------------------------------------------------------------------------------------------- grid sample


@handles("GridSample")
def grid_sample(node: OnnxNode, x: Any, grid: Any) -> Any:
    """x `[n, c, ..]` sampled at positions in -1 .. 1 from a grid `[n, .., axes]`, the last axis of x first."""
    dtype = dtype_of(x.dtype)
    wide = rlx.astype(x, rlx.f32) if not dtype.is_float or dtype.is_narrow else x
    is_aligned = bool(node.get("align_corners", 0))
    padding: Any = node.choice("padding_mode", "zeros", "border", "reflection")
    mode: Any = node.choice("mode", "linear", "nearest", "cubic", "bilinear", "bicubic").removeprefix("bi")
    last = x.ndim - 3
    cells = [cell_at(grid[..., last - i], size, is_aligned) for i, size in enumerate(x.shape[2:])]
    if mode == "nearest":
        cells = [
            rlx.round(each) for each in cells
        ]  # before out-of-range positions are reflected, which matters halfway between two cells
    return rlx.astype(read_cells(wide, cells, mode, padding, is_aligned), dtype)
