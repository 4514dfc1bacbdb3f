"""Ops that move elements without changing them: slices, concatenation, padding, reversal.

Each is linear and its transpose is another of them: `Narrow` and `Pad`, `Concat` and `Narrow`, `Flip` and `Flip`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any, ClassVar, Literal

import numpy as np
from attrs import evolve, field
from attrs.converters import optional

from rlx_core.errors import AxisError, ConfigError, DtypeError, ShapeError
from rlx_core.hints.keywords import checked_call
from rlx_core.ir.apply import op_function
from rlx_core.ir.dims import Dim, require, smaller
from rlx_core.ir.dtypes import ALL, bool_
from rlx_core.ir.graph import Value
from rlx_core.ir.op import Op, define_op
from rlx_core.ir.strides import Strides, dense_strides
from rlx_core.ir.types import (
    TensorType,
    expect_dtype_of,
    expect_rank,
    expect_shape,
    normalize_axes,
    normalize_axis,
    same_dim,
)
from rlx_core.ops.arguments import listed
from rlx_core.ops.arithmetic import maximum, minimum
from rlx_core.ops.conversion import linear_jvp
from rlx_core.ops.creation import dim_value, iota, scalar, static, tangent_or_zeros, zeros_like
from rlx_core.ops.indexing import scatter_add
from rlx_core.ops.kinds import promoted
from rlx_core.ops.samples import Rejected, Sample
from rlx_core.ops.selection import where
from rlx_core.ops.structural import along_axis_batch, as_axes, as_shape, expand, reshape, sum_axes


class Movement(Op):
    """A linear op of one operand: its tangent is itself."""

    category: ClassVar = "movement"

    jvp = linear_jvp


@define_op
class Narrow(Movement):
    """A slice of one axis: y[i] = x[start + step·i] for i < length.

    Shapes:
        x: [.., n, ..]    ->    y: [.., length, ..]

    Raises:
        ShapeError: The slice exceeds the axis, or the step is not positive.
    """

    axis: int
    start: Dim
    length: Dim
    step: int = 1

    def infer(self, x: TensorType) -> TensorType:
        axis = normalize_axis(self.axis, x.rank)
        if self.step < 1:
            raise ShapeError(f"step must be at least 1, not {self.step}")
        if not (require(">=", self.start, 0) and require(">=", self.length, 0)):
            raise ShapeError(f"start and length must be at least 0, not {self.start} and {self.length}")
        size = x.shape[axis]
        # One past the last element read; an empty slice may start anywhere up to the end.
        end = self.start if self.length == 0 else self.start + self.length * self.step - (self.step - 1)
        if not require(">=", size, end):
            raise ShapeError(f"the slice ends at {end}, axis {axis} of {x} at {size}")
        return x.with_shape((*x.shape[:axis], self.length, *x.shape[axis + 1 :]))

    def reference(self, x: np.ndarray) -> np.ndarray:
        start, length = self.start.__index__(), self.length.__index__()
        window: list[slice] = [slice(None)] * x.ndim
        window[self.axis] = slice(start, start + length * self.step, self.step)
        return x[tuple(window)]

    def vjp(self, g: Value, x: Value, *, y: Value) -> tuple[Value, ...]:
        if self.length == 0:
            return (zeros_like(x),)
        axis = normalize_axis(self.axis, x.ndim)
        after = x.shape[axis] - self.start - spread_size(self.length, self.step - 1)
        return (pad_axis(g, axis, self.start, after, self.step - 1),)

    batch = along_axis_batch

    def view(self, x: TensorType, strides: Strides, offset: int) -> tuple[int, Strides]:
        axis = normalize_axis(self.axis, x.rank)
        inner = strides[axis]
        # An empty slice may start at the end of the axis, where there is no byte to refer to.
        start = 0 if self.length == 0 else self.start.__index__()
        return offset + start * inner, (*strides[:axis], inner * self.step, *strides[axis + 1 :])

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        for d in ALL:
            yield Sample(f"{d}[4, 3]", axis=0, start=1, length=2)
        for axis in (0, 1, 2, 3, -1):
            yield Sample("f32[3, 4, 5, 6]", axis=axis, start=1, length=2)
        yield Sample("f32[2, 7]", axis=-1, start=0, length=3, step=3)
        yield Sample("f32[2, 8]", axis=1, start=1, length=3, step=3)
        yield Sample("f32[3]", axis=0, start=3, length=0)
        yield Sample("f32[0, 2]", axis=1, start=1, length=1)
        yield Rejected("f32[4]", axis=0, start=2, length=3, error=ShapeError, says="ends at 5")
        yield Rejected("f32[4]", axis=0, start=-1, length=2, error=ShapeError, says="at least 0")
        yield Rejected("f32[4]", axis=1, start=0, length=1, error=AxisError, says="outside")
        yield Rejected("f32[4]", axis=0, start=0, length=1, step=0, error=ShapeError, says="step")


narrow = op_function(Narrow)


@define_op
class Concat(Op):
    """Tensors joined along one axis, promoted to their common dtype.

    Shapes:
        x_k: [.., n_k, ..]    ->    y: [.., Σ n_k, ..]

    Raises:
        ShapeError: There is no operand, ranks differ, or dims other than the axis differ.
    """

    axis: int = 0
    category: ClassVar = "movement"

    def infer(self, *x: TensorType) -> TensorType:
        if not x:
            raise ShapeError("takes at least 1 operand, not 0")
        axis = normalize_axis(self.axis, x[0].rank)
        total: Dim = 0
        for i, t in enumerate(x):
            if t.dtype is not x[0].dtype:
                raise DtypeError(f"operands must have one dtype, not {x[0].dtype} and {t.dtype}")
            expect_rank(f"x{i}", t, x[0].rank, x[0].rank)
            for k, (a, b) in enumerate(zip(x[0].shape, t.shape, strict=True)):
                if k != axis and not same_dim(a, b):
                    raise ShapeError(f"axis {k} of x0 and x{i} differ ({a} != {b})")
            total = total + t.shape[axis]
        return x[0].with_shape((*x[0].shape[:axis], total, *x[0].shape[axis + 1 :]))

    def prepare(self, *x: Value) -> tuple[Value | None, ...]:
        return promoted(*x) if x else ()

    def reference(self, *x: np.ndarray) -> np.ndarray:
        # In C order: for transposed operands NumPy would return a transposed result, which its readers would have to copy.
        shape = list(x[0].shape)
        shape[self.axis] = sum(each.shape[self.axis] for each in x)
        return np.concatenate(x, axis=self.axis, out=np.empty(shape, x[0].dtype))

    def vjp(self, g: Value, *x: Value, y: Value) -> tuple[Value, ...]:
        axis = normalize_axis(self.axis, g.ndim)
        parts: list[Value] = []
        start: Dim = 0
        for v in x:
            parts.append(narrow(g, axis=axis, start=start, length=v.shape[axis]))
            start = start + v.shape[axis]
        return tuple(parts)

    def jvp(self, t: Sequence[Any], *x: Value, y: Value) -> Any:
        return self(*(tangent_or_zeros(s, v) for s, v in zip(t, x, strict=True)))

    batch = along_axis_batch

    def parts(self, *x: TensorType) -> tuple[tuple[int, Strides], ...]:
        axis = normalize_axis(self.axis, x[0].rank)
        strides = dense_strides(self.infer(*x))
        starts = accumulate((t.shape[axis].__index__() for t in x), initial=0)
        return tuple((start * strides[axis], strides) for start, _ in zip(starts, x, strict=False))

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        for d in ALL:
            yield Sample(f"{d}[2, 3]", f"{d}[1, 3]", axis=0)
        for axis, (a, b) in enumerate((("4, 3, 4, 5", "1, 3, 4, 5"), ("2, 1, 4, 5", "2, 3, 4, 5"))):
            yield Sample(f"f32[{a}]", f"f32[{b}]", axis=axis)
        yield Sample("f32[2, 3, 4, 1]", "f32[2, 3, 4, 0]", "f32[2, 3, 4, 2]", axis=-1)
        yield Sample("i32[2]", "f32[3]", "f64[1]")
        yield Sample("f32[0]", "f32[0]")
        yield Sample("c64[2]")
        yield Rejected("f32[2, 3]", "f32[2, 4]", axis=0, error=ShapeError, says="3 != 4")
        yield Rejected("f32[2]", "f32[2, 4]", axis=0, error=ShapeError, says="1 axes")
        yield Rejected("f32[]", "f32[]", axis=0, error=AxisError, says="outside")
        yield Rejected(axis=0, error=ShapeError, says="at least 1")


@checked_call
def concat(arrays: Sequence[Any], axis: int | None = 0) -> Any:
    """Tensors joined along `axis`, promoted to one dtype; `None` flattens them first."""
    tensors = listed("concat: arrays", arrays)
    if axis is None:
        return Concat(0)(*(reshape(x, (-1,)) for x in tensors))
    return Concat(axis)(*tensors)


PadMode = Literal["constant", "edge", "reflect", "symmetric", "wrap"]


@define_op
class Pad(Op):
    """Padding before, after and between the elements of each axis.

    `constant` puts `value` (0 if absent) there; `between` does so after every element but the last, and comes first.
    `edge` repeats the outermost element, `reflect` mirrors without repeating it, `symmetric` mirrors it too, `wrap`
    continues periodically; these four may be wider than the axis. Negative `lo` and `hi` crop.

    Shapes:
        x: [.., n, ..]    value: []    ->    y: [.., lo + n + between·max(n-1, 0) + hi, ..]

    Attributes:
        lo, hi: The number of elements before and after, one per axis.
        between: The number of elements between neighbours, one per axis; none by default.

    Raises:
        ShapeError: A result dim is negative, or a mode that repeats elements has no element to repeat.
    """

    lo: tuple[Dim, ...] = field(converter=as_shape)
    hi: tuple[Dim, ...] = field(converter=as_shape)
    between: tuple[int, ...] | None = field(default=None, converter=optional(as_axes))
    mode: PadMode = "constant"
    category: ClassVar = "movement"

    def infer(self, x: TensorType, value: TensorType | None = None) -> TensorType:
        gaps = self.gaps(x.rank)
        for name, widths in (("lo", self.lo), ("hi", self.hi), ("between", gaps)):
            if len(widths) != x.rank:
                raise ShapeError(f"{name} has {len(widths)} widths, x has {x.rank} axes")
        if any(b < 0 for b in gaps):
            raise ShapeError(f"between must be at least 0, not {list(gaps)}")
        if value is not None:
            expect_shape("value", value, ())
            expect_dtype_of("value", value, "x", x)
        if self.mode != "constant" and (value is not None or any(gaps)):
            raise ShapeError(f"mode {self.mode} takes neither a value nor cells between")
        return x.with_shape(self._padded(i, n, gaps[i]) for i, n in enumerate(x.shape))

    def _padded(self, axis: int, n: Dim, gap: int) -> Dim:
        lo, hi = self.lo[axis], self.hi[axis]
        spread = spread_size(n, gap)
        total = lo + spread + hi
        if not require(">=", total, 0):
            raise ShapeError(f"axis {axis} would have {total} cells ({lo} + {spread} + {hi})")
        # An axis without padding needs no element to repeat, so it may be empty.
        if self.mode != "constant" and (lo, hi) != (0, 0) and total != 0 and not require(">", n, 0):
            raise ShapeError(f"mode {self.mode} has no element to repeat on axis {axis}")
        return total

    def gaps(self, rank: int) -> tuple[int, ...]:
        """Return `between` with its default."""
        return (0,) * rank if self.between is None else self.between

    def prepare(self, x: Value, value: Value | None = None) -> tuple[Value | None, ...]:
        return promoted(x, value)

    def parts(self, x: TensorType, value: TensorType | None = None) -> tuple[tuple[int, Strides] | None, ...] | None:
        lo = static(self.lo)
        if self.mode != "constant" or any(self.gaps(x.rank)) or min((0, *lo, *static(self.hi))) < 0:
            return None
        strides = dense_strides(self.infer(x))
        inside = sum(n * s for n, s in zip(lo, strides, strict=True)), strides
        return inside, None

    def reference(self, x: np.ndarray, value: np.ndarray | None = None) -> np.ndarray:
        lo, hi = static(self.lo), static(self.hi)
        if self.mode != "constant":
            for axis, n in enumerate(x.shape):
                positions = np.arange(-lo[axis], n + hi[axis])
                x = np.take(x, _source_array(self.mode, positions, n), axis=axis)
            return x
        fill = np.zeros((), x.dtype) if value is None else value
        for axis, gap in enumerate(self.gaps(x.ndim)):
            x = _pad_line(x, axis, lo[axis], hi[axis], gap, fill)
        return x

    def vjp(self, g: Value, x: Value, value: Value | None = None, *, y: Value) -> tuple[Any, ...]:
        if self.mode != "constant":
            return (self._sum_back(g, x),)
        back = fitted(g, tuple(-d for d in self.lo), tuple(-d for d in self.hi))
        for axis, gap in enumerate(self.gaps(x.ndim)):
            if gap:
                back = narrow(back, axis=axis, start=0, length=x.shape[axis], step=gap + 1)
        if value is None:
            return (back,)
        return back, sum_axes(where(self._is_outside(x), g, 0), axes=tuple(range(g.ndim)))

    def _sum_back(self, g: Value, x: Value) -> Value:
        for axis in reversed(range(x.ndim)):
            if self.lo[axis] == 0 and self.hi[axis] == 0:
                continue
            n = x.shape[axis]
            positions = iota(axis=0, shape=(g.shape[axis],)) - dim_value(size=self.lo[axis])
            g = scatter_add(g, _source(self.mode, positions, n), axis=axis, size=n)
        return g

    def _is_outside(self, x: Value) -> Value:
        inside = zeros_like(x, dtype=bool_)
        return pad(inside, scalar(True, bool_), lo=self.lo, hi=self.hi, between=self.between)

    def jvp(self, t: Sequence[Any], x: Value, value: Value | None = None, *, y: Value) -> Any:
        if value is None:
            return self(t[0])
        return self(tangent_or_zeros(t[0], x), tangent_or_zeros(t[1], value))

    def batch(self, size: Dim, x: Sequence[Value | None], is_batched: Sequence[bool]) -> Value:
        lifted = evolve(
            self,
            lo=(0, *self.lo),
            hi=(0, *self.hi),
            between=None if self.between is None else (0, *self.between),
        )
        operand, value = x[0], x[1] if len(x) > 1 else None
        assert operand is not None, "Pad always has an operand"
        if value is None or not is_batched[1]:
            return lifted(*x)
        source = operand if is_batched[0] else expand(operand, (size, *operand.shape))
        padded = lifted(source)
        values = reshape(value, (size, *(1,) * (padded.ndim - 1)))
        return where(lifted._is_outside(source), values, padded)

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        for d in ALL:
            yield Sample(f"{d}[2, 3]", f"{d}[]", lo=(1, 0), hi=(0, 2))
        for axis in range(4):
            widths = tuple(int(i == axis) for i in range(4))
            yield Sample("f32[2, 3, 1, 4]", lo=widths, hi=(0, 0, 0, 0))
        yield Sample("f32[3]", lo=(2,), hi=(1,), between=(2,))
        yield Sample("f32[4, 3]", "f32[]", lo=(-1, 1), hi=(1, -2), between=(0, 1))
        yield Sample("f32[0, 2]", lo=(1, 0), hi=(1, 0), between=(3, 0))
        yield Sample("f32[]", lo=(), hi=())
        for mode in ("edge", "reflect", "symmetric", "wrap"):
            yield Sample("f64[3, 4]", lo=(1, 0), hi=(2, 1), mode=mode)
            yield Sample("f32[2]", lo=(5,), hi=(4,), mode=mode)
            yield Sample("i64[5]", lo=(-1,), hi=(2,), mode=mode)
        for mode in ("reflect", "symmetric"):
            yield Sample("f32[1]", lo=(2,), hi=(1,), mode=mode)
        yield Rejected("f32[3]", lo=(-2,), hi=(-2,), error=ShapeError, says="-1 cells")
        yield Rejected("f32[3]", lo=(1, 1), hi=(0,), error=ShapeError, says="2 widths")
        yield Rejected("f32[0]", lo=(1,), hi=(0,), mode="edge", error=ShapeError, says="no element")
        yield Rejected("f32[2]", lo=(1,), hi=(0,), between=(1,), mode="wrap", error=ShapeError, says="neither")
        yield Rejected("f32[2]", lo=(1,), hi=(0,), mode="mirror", error=ConfigError, says="not 'mirror'")


pad = op_function(Pad)


def pad_axis(x: Value, axis: int, lo: Dim, hi: Dim, between: int = 0, value: Any = None) -> Any:
    """Return `x` padded before, after and between along one axis; with zeros unless a `value` is given."""

    def only(width: Any) -> tuple[Any, ...]:
        return tuple(width if i == axis else 0 for i in range(x.ndim))

    return pad(x, value, lo=only(lo), hi=only(hi), between=only(between) if between else None)


def fitted(x: Value, lo: Sequence[Dim], hi: Sequence[Dim], between: Sequence[int] = ()) -> Value:
    """Return `x` with zeros before, after and between the elements of each axis; negative numbers slice elements off instead."""
    if any(map(_adds, (*lo, *hi, *between))):
        before, after = (tuple(n if _adds(n) else 0 for n in side) for side in (lo, hi))
        x = pad(x, lo=before, hi=after, between=tuple(between) if any(between) else None)
    for axis, ends in enumerate(zip(lo, hi, strict=True)):
        start, end = (0 if _adds(n) else -n for n in ends)
        if start != 0 or end != 0:
            x = narrow(x, axis=axis, start=start, length=x.shape[axis] - start - end)
    return x


def _adds(cells: Dim) -> bool:
    """Return whether that many elements are padding; an unknown number is, because `Pad` supports both."""
    return cells != 0 and not (isinstance(cells, int) and cells < 0)


def spread_size(n: Dim, gap: int) -> Dim:
    """Return the size of `n` elements with `gap` elements between neighbours."""
    return n + (n - smaller(n, 1)) * gap


def _pad_line(x: np.ndarray, axis: int, lo: int, hi: int, gap: int, fill: np.ndarray) -> np.ndarray:
    n = x.shape[axis]
    spread = n + max(n - 1, 0) * gap
    out = np.full((*x.shape[:axis], lo + spread + hi, *x.shape[axis + 1 :]), fill, x.dtype)
    places = lo + np.arange(n) * (gap + 1)
    is_inside = (places >= 0) & (places < lo + spread + hi)
    window = (slice(None),) * axis
    out[(*window, places[is_inside])] = x[(*window, is_inside)]
    return out


def _source_array(mode: str, positions: np.ndarray, n: int) -> np.ndarray:
    if mode == "edge" or n <= 1:
        return np.clip(positions, 0, max(n - 1, 0))
    if mode == "wrap":
        return positions % n
    if mode == "symmetric":
        return np.minimum(positions % (2 * n), 2 * n - 1 - positions % (2 * n))
    return (n - 1) - np.abs(positions % (2 * (n - 1)) - (n - 1))


def _source(mode: str, positions: Value, n: Dim) -> Any:
    """Return the source element of each padded position: the same function as `_source_array`, for symbolic sizes too."""
    last = dim_value(size=n) - 1
    if mode == "edge":
        return minimum(maximum(positions, 0), last)
    if mode == "wrap":
        return positions % dim_value(size=n)
    if mode == "symmetric":
        place = positions % dim_value(size=2 * n)
        return minimum(place, last * 2 + 1 - place)
    # With one element the period is 0, and the remainder is defined as 0 in this case.
    return last - abs(positions % (last * 2) - last)


@define_op
class Flip(Movement):
    """The elements of the listed axes in reverse order."""

    axes: tuple[int, ...] = field(converter=as_axes)

    def infer(self, x: TensorType) -> TensorType:
        normalize_axes(self.axes, x.rank)
        return x

    def reference(self, x: np.ndarray) -> np.ndarray:
        return np.flip(x, self.axes)

    def vjp(self, g: Value, x: Value, *, y: Value) -> tuple[Value, ...]:
        return (self(g),)

    def batch(self, size: Dim, x: Sequence[Value], is_batched: Sequence[bool]) -> Value:
        return flip(x[0], axes=tuple(a + 1 for a in normalize_axes(self.axes, x[0].ndim - 1)))

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        for d in ALL:
            yield Sample(f"{d}[2, 3]", axes=(1,))
        for axis in range(4):
            yield Sample("f32[2, 3, 4, 5]", axes=(axis,))
        yield Sample("f32[2, 3]", axes=(0, -1))
        yield Sample("f32[2, 3]", axes=())
        yield Sample("f32[0]", axes=(0,))
        yield Sample("f32[]", axes=())
        yield Rejected("f32[2]", axes=(1,), error=AxisError, says="outside")
        yield Rejected("f32[2]", axes=(0, -1), error=AxisError, says="twice")


flip = op_function(Flip)
