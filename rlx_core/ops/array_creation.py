"""The functions of the Python Array API that create arrays: from ranges, grids, identities and NumPy data.

Constants of any shape (`full`, `zeros`, …) are in `creation.py`, together with their ops. In a trace the results are values of
the program, outside of one arrays in memory; `device` is for programs written for several libraries, and only the default
device is valid.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from rlx_core.errors import DtypeError, ShapeError, TraceError
from rlx_core.hints.keywords import checked_call
from rlx_core.ir.apply import as_array
from rlx_core.ir.array import wrapped
from rlx_core.ir.dims import Dim, Expr
from rlx_core.ir.dtypes import c64, dtype, f32, f64, i64
from rlx_core.ir.graph import Value, ambient_builder
from rlx_core.ops.arguments import choice, flag, number
from rlx_core.ops.array_info import result_type
from rlx_core.ops.array_shapes import broadcast_arrays, copied, expand_dims, shape_of, stack
from rlx_core.ops.complex import make_complex
from rlx_core.ops.conversion import as_dtype, cast
from rlx_core.ops.creation import dim_value, even_spacing, eye_matrix, full_like, iota, zeros
from rlx_core.ops.device import expect_device

if TYPE_CHECKING:
    from rlx_core.typing import Array, ArrayLike, DTypeLike

_dtype = dtype


@checked_call
def asarray(
    obj: ArrayLike | Dim, dtype: DTypeLike | None = None, *, device: str | None = None, copy: bool | None = None
) -> Array:
    """An array of `obj`: a value, an array, a number, a size, or nested sequences of these.

    Python's floats are f32 and its complex numbers c64 unless a dtype is given; arrays keep theirs. With `copy=True` the
    result can be assigned to without changing `obj`.

    Raises:
        DtypeError: `copy` is False, and the dtype needs a copy.
        TraceError: `obj` is of another kind.
    """
    expect_device("asarray", device)
    requested = None if dtype is None else _dtype(dtype)
    if isinstance(obj, Expr):
        obj = dim_value(size=obj)
    elif isinstance(obj, list | tuple) and any(isinstance(leaf, Value | Expr) for leaf in _leaves(obj)):
        _expect_axes(obj)
        common = result_type(*_leaves(obj)) if requested is None else requested
        obj = stack([asarray(row, common) for row in obj])
    copies = None if copy is None else flag("asarray: copy", copy)
    if isinstance(obj, Value):
        result = obj if requested is None else as_dtype(obj, requested)
        return copied(result) if copies and result is obj else result
    array: Any = as_array(obj)
    kinds = {type(leaf) for leaf in _leaves(obj)}
    if requested is None and kinds and kinds <= {bool, int, float, complex}:
        requested = c64 if complex in kinds else f32 if float in kinds else None
    if requested is not None and requested != array.dtype:
        if copies is False:
            raise DtypeError(f"asarray: {array.dtype} to {requested} makes a copy, and copy=False forbids it")
        array = cast(array, to=requested)
    elif copies and ambient_builder() is None:
        array = array.copy()
    builder = ambient_builder()
    if builder is None or isinstance(array, Value):
        return wrapped(array)
    return builder.constant(as_array(array), shared=False)


MOST_AXES = 64
"""The maximum number of axes, as in NumPy."""


def _expect_axes(nested: Any) -> None:
    """Require that lists are nested at most as deep as the maximum number of axes."""
    inside = [nested]
    for _ in range(MOST_AXES + 1):
        inside = [row for one in inside if isinstance(one, list | tuple) for row in one]
    if inside:
        raise TraceError(f"asarray: lists are nested more than {MOST_AXES} deep", hint="an array has no more axes")


def _leaves(obj: Any) -> Iterator[Any]:
    """Yield the elements of nested lists and tuples; any other object is a single element."""
    waiting = [obj]
    while waiting:
        one = waiting.pop()
        if isinstance(one, list | tuple):
            waiting.extend(one)
        else:
            yield one


@checked_call
def from_dlpack(x: ArrayLike, /, *, device: str | None = None, copy: bool | None = None) -> Array:
    """The array of another library that supports DLPack, without a copy if its memory can be shared."""
    return asarray(x, device=device, copy=copy)


@checked_call
def empty(shape: Sequence[Dim] | Dim, *, dtype: DTypeLike | None = None, device: str | None = None) -> Array:
    """A tensor with unspecified elements: zeros, so that uninitialised memory is never visible."""
    return zeros(shape, dtype, device=device)


@checked_call
def empty_like(x: ArrayLike, /, *, dtype: DTypeLike | None = None, device: str | None = None) -> Array:
    """A tensor like that of `empty`, with the dims of `x`, and its dtype unless another is given."""
    return full_like(x, 0, dtype, device=device)


@checked_call
def eye(
    n_rows: Dim,
    n_cols: Dim | None = None,
    /,
    *,
    k: int = 0,
    dtype: DTypeLike | None = None,
    device: str | None = None,
) -> Array:
    """Ones on the k-th diagonal of a matrix, zeros elsewhere."""
    expect_device("eye", device)
    target = f32 if dtype is None else _dtype(dtype)
    return eye_matrix(n=n_rows, m=n_rows if n_cols is None else n_cols, k=k, dtype=target)


@checked_call
def linspace(
    start: complex,
    stop: complex,
    /,
    num: Dim,
    *,
    dtype: DTypeLike | None = None,
    device: str | None = None,
    endpoint: bool = True,
) -> Array:
    """`num` evenly spaced numbers from `start` to `stop`, which is the last one unless `endpoint` is false."""
    expect_device("linspace", device)
    ends = [v if isinstance(v, complex | np.complexfloating) else number("linspace: an end", v) for v in (start, stop)]
    has_parts = any(np.iscomplexobj(v) for v in ends)
    target = (c64 if has_parts else f32) if dtype is None else _dtype(dtype)
    if not target.is_complex:
        if has_parts:
            raise DtypeError(f"linspace: {start} and {stop} are complex, {target} is not")
        return even_spacing(
            start=float(ends[0].real), stop=float(ends[1].real), num=num, endpoint=endpoint, dtype=target
        )
    first, last = map(complex, ends)
    parts = [
        even_spacing(start=a, stop=b, num=num, endpoint=endpoint, dtype=target.component)
        for a, b in ((first.real, last.real), (first.imag, last.imag))
    ]
    return make_complex(*parts)


@checked_call
def arange(
    start: ArrayLike,
    stop: ArrayLike | None = None,
    step: float = 1,
    *,
    dtype: DTypeLike | None = None,
    device: str | None = None,
) -> Array:
    """start, start + step, .. before `stop`; with one argument, 0 .. before it. Symbolic bounds are possible with step 1.

    The dtype is i64 if all three are integers, f32 otherwise.

    Raises:
        ShapeError: The step is 0, or a bound is symbolic and the step is not 1.
    """
    expect_device("arange", device)
    ends = (0, start) if stop is None else (start, stop)
    bounds: list[Any] = [v if isinstance(v, Expr) else number("arange: an end, or the step,", v) for v in (*ends, step)]
    first, end, by = bounds
    is_integral = all(isinstance(v, int | Expr) for v in bounds)
    target = (i64 if is_integral else f32) if dtype is None else _dtype(dtype)
    if any(isinstance(v, Expr) for v in bounds):
        if by != 1 or not is_integral:
            raise ShapeError(f"arange: {first}..{end} in steps of {by} has no known length")
        line = iota(axis=0, shape=(end - first,), dtype=target)
        return line if first == 0 else line + cast(dim_value(size=first), to=target)
    if any(isinstance(v, float) and not math.isfinite(v) for v in bounds):
        raise ShapeError(f"arange: {first}..{end} in steps of {by} has no length")
    if by == 0:
        raise ShapeError("arange: the step is 0, so it never reaches the end")
    count = max(0, -((first - end) // by) if is_integral else math.ceil((end - first) / by))
    if is_integral:
        line = iota(axis=0, shape=(count,))
        line = line if by == 1 else line * by
        return cast(line if first == 0 else line + first, to=target)
    return cast(iota(axis=0, shape=(count,), dtype=f64) * float(by) + float(first), to=target)


@checked_call
def meshgrid(*arrays: ArrayLike, indexing: Literal["xy", "ij"] = "xy") -> list[Array]:
    """The coordinates of a grid over vectors: with `xy` the first two axes are exchanged, as in images.

    Raises:
        ShapeError: An array is not a vector.
        ConfigError: The indexing is neither "xy" nor "ij".
    """
    choice("meshgrid: indexing", indexing, ("xy", "ij"))
    for i, x in enumerate(arrays):
        if len(shape_of(x)) != 1:
            raise ShapeError(f"meshgrid: array {i} has {len(shape_of(x))} axes, not 1")
    places = list(range(len(arrays)))
    if indexing == "xy" and len(arrays) > 1:
        places[:2] = 1, 0
    axes = [[i for i in range(len(arrays)) if i != place] for place in places]
    return broadcast_arrays(*(expand_dims(x, along) if along else x for x, along in zip(arrays, axes, strict=True)))
