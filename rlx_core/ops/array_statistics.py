"""The reductions and running reductions of the Python Array API, and their accumulation dtypes.

Integers are summed and multiplied in the default integer dtype, as in NumPy, unless `dtype` is given: a sum of u8 would wrap at
256. The ops (`sum`, `prod`, `cumsum`, `cumprod`) keep the dtype of their operand; this module selects it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlx_core.errors import ShapeError
from rlx_core.hints.keywords import checked_call
from rlx_core.ir.apply import as_array
from rlx_core.ir.dims import require
from rlx_core.ir.dtypes import bool_, dtype, i64, u64
from rlx_core.ir.graph import Value
from rlx_core.ir.types import normalize_axis
from rlx_core.ops import conversion, counting, cumulative, reduction, structural
from rlx_core.ops.arguments import number, whole
from rlx_core.ops.arithmetic import subtract
from rlx_core.ops.array_shapes import Axis, axes_of, copied, shape_of
from rlx_core.ops.comparison import not_equal
from rlx_core.ops.creation import full
from rlx_core.ops.device import expect_device
from rlx_core.ops.linalg import operand
from rlx_core.ops.movement import concat, narrow

if TYPE_CHECKING:
    from rlx_core.typing import Array, ArrayLike, DTypeLike

_dtype = dtype


def one_axis(name: str, x: Any, axis: int | None) -> int:
    """Return the axis of a function that works along one; it is optional if there is only one.

    Raises:
        ShapeError: The axis is missing and `x` has zero axes or several.
    """
    rank = len(shape_of(x))
    if axis is None and rank != 1:
        raise ShapeError(f"{name}: x has {rank} axes, so the axis must be given")
    return 0 if axis is None else normalize_axis(axis, rank)


@checked_call
def astype(x: ArrayLike, dtype: DTypeLike, *, copy: bool = True, device: str | None = None) -> Array:
    """`x` in another dtype. If `x` has this dtype already, the result is `x` itself only if `copy` is False.

    Complex to real is refused; use `real`, `imag` or `abs`.
    """
    expect_device("astype", device)
    array, target = operand(x), _dtype(dtype)
    if target != array.dtype:
        return conversion.cast(array, to=target)
    return copied(array) if copy else array


def _accumulated(x: Any, dtype: DTypeLike | None) -> Any:
    """Return `x` in its accumulation dtype: `dtype` if given, else its own, with integers and bool in a 64-bit integer dtype."""
    source_dtype = x.dtype if isinstance(x, Value) else _dtype(as_array(x).dtype)
    default = u64 if source_dtype.kind == "uint" else i64 if source_dtype.kind in ("int", "bool") else source_dtype
    target_dtype = default if dtype is None else _dtype(dtype)
    return x if source_dtype is target_dtype else conversion.cast(x, to=target_dtype)


@checked_call
def sum(x: ArrayLike, axis: Axis = None, dtype: DTypeLike | None = None, keepdims: bool = False) -> Array:
    """The sum over `axis`, in `dtype`: by default the dtype of a float `x`, else the default integer dtype (i64 or u64)."""
    return structural.sum_axes(_accumulated(x, dtype), axes=axes_of(x, axis), keep_dim=keepdims)


@checked_call
def prod(x: ArrayLike, axis: Axis = None, dtype: DTypeLike | None = None, keepdims: bool = False) -> Array:
    """The product over `axis`, with `dtype` as in `sum`."""
    return reduction.prod_axes(_accumulated(x, dtype), axes=axes_of(x, axis), keep_dim=keepdims)


@checked_call
def mean(x: ArrayLike, axis: Axis = None, keepdims: bool = False) -> Array:
    """The mean over `axis`; integers are averaged in f32, 64-bit ones in f64."""
    return reduction.mean_axes(x, axes=axes_of(x, axis), keep_dim=keepdims)


@checked_call
def var(x: ArrayLike, axis: Axis = None, correction: float = 0.0, keepdims: bool = False) -> Array:
    """The variance over `axis` in two passes, divided by n - correction."""
    return reduction.var_axes(
        x, axes=axes_of(x, axis), keep_dim=keepdims, correction=number("var: correction", correction)
    )


@checked_call
def std(x: ArrayLike, axis: Axis = None, correction: float = 0.0, keepdims: bool = False) -> Array:
    """The standard deviation over `axis`: the root of the variance."""
    return reduction.std_axes(
        x, axes=axes_of(x, axis), keep_dim=keepdims, correction=number("std: correction", correction)
    )


@checked_call
def max(x: ArrayLike, axis: Axis = None, keepdims: bool = False) -> Array:
    """The largest element over `axis`; NaN propagates."""
    return reduction.max_axes(x, axes=axes_of(x, axis), keep_dim=keepdims)


@checked_call
def min(x: ArrayLike, axis: Axis = None, keepdims: bool = False) -> Array:
    """The smallest element over `axis`; NaN propagates."""
    return reduction.min_axes(x, axes=axes_of(x, axis), keep_dim=keepdims)


@checked_call
def logsumexp(x: ArrayLike, axis: Axis = None, keepdims: bool = False) -> Array:
    """log Σ e^x over `axis`, without overflow."""
    return reduction.log_sum_exp(x, axes=axes_of(x, axis), keep_dim=keepdims)


@checked_call
def any(x: ArrayLike, axis: Axis = None, keepdims: bool = False) -> Array:
    """Whether any element over `axis` is not 0."""
    return counting.any_axes(x, axes=axes_of(x, axis), keep_dim=keepdims)


@checked_call
def all(x: ArrayLike, axis: Axis = None, keepdims: bool = False) -> Array:
    """Whether all elements over `axis` are not 0."""
    return counting.all_axes(x, axes=axes_of(x, axis), keep_dim=keepdims)


@checked_call
def count_nonzero(x: ArrayLike, axis: Axis = None, keepdims: bool = False) -> Array:
    """The number of elements over `axis` that are not 0."""
    return counting.count_nonzero(x, axes=axes_of(x, axis), keep_dim=keepdims)


@checked_call
def cumulative_sum(
    x: ArrayLike, axis: int | None = None, dtype: DTypeLike | None = None, include_initial: bool = False
) -> Array:
    """Running sums along `axis`, with `dtype` as in `sum`; `include_initial` prepends the initial 0."""
    place = one_axis("cumulative_sum", x, axis)
    return _after_initial(cumulative.cumsum(_accumulated(x, dtype), axis=place), place, 0 if include_initial else None)


@checked_call
def cumulative_prod(
    x: ArrayLike, axis: int | None = None, dtype: DTypeLike | None = None, include_initial: bool = False
) -> Array:
    """Running products along `axis`, with `dtype` as in `sum`; `include_initial` prepends the initial 1."""
    place = one_axis("cumulative_prod", x, axis)
    return _after_initial(cumulative.cumprod(_accumulated(x, dtype), axis=place), place, 1 if include_initial else None)


@checked_call
def cumulative_max(x: ArrayLike, axis: int | None = None) -> Array:
    """The largest element so far along `axis`; NaN propagates.

    >>> cumulative_max(np.array([1, 3, 2])).tolist()
    [1, 3, 3]
    """
    return cumulative.cummax(x, axis=one_axis("cumulative_max", x, axis))


@checked_call
def cumulative_min(x: ArrayLike, axis: int | None = None) -> Array:
    """The smallest element so far along `axis`; NaN propagates."""
    return cumulative.cummin(x, axis=one_axis("cumulative_min", x, axis))


@checked_call
def cumulative_logsumexp(x: ArrayLike, axis: int | None = None) -> Array:
    """log of the running sum of exponentials along `axis`, without overflow."""
    return cumulative.cum_log_sum_exp(x, axis=one_axis("cumulative_logsumexp", x, axis))


def _after_initial(x: Any, axis: int, initial: int | None) -> Any:
    if initial is None:
        return x
    shape = list(shape_of(x))
    shape[axis] = 1
    return concat([full(shape, initial, _dtype(x.dtype)), x], axis=axis)


@checked_call
def diff(
    x: ArrayLike, n: int = 1, axis: int = -1, prepend: ArrayLike | None = None, append: ArrayLike | None = None
) -> Array:
    """The differences of adjacent elements along `axis`, taken `n` times, after `prepend` and `append` are concatenated.

    Raises:
        ShapeError: `n` is negative, or the axis is shorter than it.
    """
    place = normalize_axis(axis, len(shape_of(x)))
    joined = [part for part in (prepend, x, append) if part is not None]
    y = concat(joined, axis=place) if len(joined) > 1 else operand(x)
    times, size = whole("diff: n", n), shape_of(y)[place]
    if times < 0 or not require(">=", size, times):
        raise ShapeError(f"diff: an axis of {size} elements has no differences of order {times}")
    for _ in range(times):
        size = shape_of(y)[place]
        following, sooner = (narrow(y, axis=place, start=start, length=size - 1) for start in (1, 0))
        y = not_equal(following, sooner) if y.dtype == bool_ else subtract(following, sooner)
    return y
