"""The three Fourier ops: complex to complex, real to half a spectrum, and half a spectrum to real.

All are linear, and the transpose of each is another one: the transform in the other direction with the same scale factor, which
has a different name of `norm` there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from attrs import evolve, field

from rlx_core.errors import AxisError, DtypeError, ShapeError
from rlx_core.ir.apply import op_function
from rlx_core.ir.dims import Dim, is_static, product, require
from rlx_core.ir.dtypes import COMPLEXES, DType, c64, c128, f32, f64, promote
from rlx_core.ir.graph import Value
from rlx_core.ir.op import Op, define_op
from rlx_core.ir.types import Shape, TensorType, expect_dtype, normalize_axes, normalize_axis
from rlx_core.ops.along_axis import move_axis
from rlx_core.ops.complex import imag, make_complex
from rlx_core.ops.conversion import as_dtype, cast, linear_jvp, real
from rlx_core.ops.creation import dim_value, iota, size_scalar
from rlx_core.ops.fourier.cooley_tukey import dft
from rlx_core.ops.movement import concat, flip, narrow
from rlx_core.ops.samples import Rejected, Sample
from rlx_core.ops.selection import where
from rlx_core.ops.structural import as_axes, reshape

Norm = Literal["backward", "ortho", "forward"]
NORMS: tuple[Norm, ...] = ("backward", "ortho", "forward")

OPPOSITE: dict[str, Norm] = {"backward": "forward", "ortho": "ortho", "forward": "backward"}
"""The norm under which the other direction has the same scale factor."""


class Fourier(Op):
    """Base of the three ops: the axes, distinct and not empty, and the scale factor."""

    axes: tuple[int, ...]
    norm: Norm
    category: ClassVar = "boundary"

    def along(self, shape: Shape) -> Shape:
        """Return the lengths of the transforms, from the shape of the result or of the operand.

        Raises:
            AxisError: There is no axis, or one is out of range or repeated.
            ShapeError: An axis has no elements.
        """
        if not self.axes:
            raise AxisError("axes must name an axis at least")
        normalize_axes(self.axes, len(shape))
        sizes = tuple(shape[a] for a in self.axes)
        for axis, n in zip(self.axes, sizes, strict=True):
            if not require(">=", n, 1):
                raise ShapeError(f"axis {axis} has {n} elements, and a transform has 1 at least")
        return sizes

    def factor(self, sizes: Shape, is_inverse: bool, dtype: DType) -> Any:
        """Return the factor of the unscaled sum: 1, 1/n or 1/√n; `None` for 1."""
        if self.norm != "ortho" and (self.norm == "backward") != is_inverse:
            return None
        n = size_scalar(product(sizes), dtype)
        if isinstance(n, float):
            return 1 / math.sqrt(n) if self.norm == "ortho" else 1 / n
        return 1 / (n**0.5 if self.norm == "ortho" else n)

    def batch(self, size: Dim, x: Sequence[Value], is_batched: Sequence[bool]) -> Value:
        rank = x[0].ndim - 1
        op: Any = self  # whose attributes its subclasses declare
        moved: Value = evolve(op, axes=tuple(normalize_axis(a, rank) + 1 for a in self.axes))(x[0])
        return moved

    def cost(self, x: TensorType) -> Dim:
        """Return 5 n log₂ n per axis, by convention, for any algorithm; half of that if one side is real.

        Raises:
            ShapeError: A length is unknown.
        """
        sizes = self.along(x.shape)
        if not all(map(is_static, sizes)):
            raise ShapeError(f"the cost of transforms of {sizes} elements is not known before the sizes are")
        stages = sum(max(1, (n.__index__() - 1).bit_length()) for n in sizes)
        return 5 * x.size * stages // (1 if type(self) is Fft else 2)


def refused(d: str, **others: Any) -> Iterator[Rejected]:
    """Yield rejected samples: invalid axes."""
    yield Rejected(f"{d}[3, 4]", axes=(1, -1), error=AxisError, says="twice", **others)
    yield Rejected(f"{d}[3, 4]", axes=(2,), error=AxisError, says="outside", **others)
    yield Rejected(f"{d}[3, 4]", axes=(), error=AxisError, says="an axis at least", **others)


@define_op
class Fft(Fourier):
    """y_k = Σ_j x_j exp(∓2πi·jk/n) along each axis: minus forward, plus inverse.

    Shapes:
        x: c[.., n, ..]    ->    y: c[.., n, ..]

    Attributes:
        axes: The axes that are transformed, distinct.
        inverse: The direction.
        norm: "backward" scales the inverse by 1/n, "forward" the other direction, "ortho" both by 1/√n.
    """

    axes: tuple[int, ...] = field(default=(-1,), converter=as_axes)
    inverse: bool = False
    norm: Norm = "backward"

    def prepare(self, x: Value) -> tuple[Value | None, ...]:
        return (x if x.dtype.is_complex else as_dtype(x, promote(x.dtype, c64)),)

    def infer(self, x: TensorType) -> TensorType:
        expect_dtype("x", x, COMPLEXES, "complex")
        self.along(x.shape)
        return x

    def reference(self, x: np.ndarray) -> np.ndarray:
        transform = np.fft.ifftn if self.inverse else np.fft.fftn
        return transform(x, axes=self.axes, norm=self.norm).astype(x.dtype, copy=False)

    def decompose(self, x: Value) -> Value:
        if len(self.axes) > 1:
            for axis in self.axes:
                x = evolve(self, axes=(axis,))(x)
            return x
        axis = normalize_axis(self.axes[0], x.ndim)
        last = x.ndim - 1
        re, im = (move_axis(part(x), axis, last) for part in (real, imag))
        re, im = dft(re, im, 1 if self.inverse else -1)
        scale = self.factor(self.along(x.shape), self.inverse, re.dtype)
        if scale is not None:
            re, im = re * scale, im * scale
        return make_complex(*(move_axis(v, last, axis) for v in (re, im)))

    def vjp(self, g: Value, x: Value, *, y: Value) -> tuple[Value, ...]:
        return (evolve(self, inverse=not self.inverse, norm=OPPOSITE[self.norm])(g),)

    jvp = linear_jvp

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        for d in COMPLEXES:
            yield Sample(f"{d}[3, 4]")
            yield Sample(f"{d}[3, 4]", inverse=True)
        for norm in NORMS:
            yield Sample("c64[2, 5]", axes=(0,), norm=norm)
            yield Sample("c64[2, 5]", axes=(-1, 0), norm=norm, inverse=True)
        for axis in (0, 1, 2, 3):
            yield Sample("c128[2, 3, 2, 4]", axes=(axis,))
        yield Sample("c64[2, 1, 3]", axes=(2, 0, 1))
        yield Sample("c64[3, 16]")
        yield Sample("c128[2, 8]", norm="ortho", inverse=True)
        yield Sample("c64[1]")
        yield Sample("c64[0, 3]")
        yield Sample("c128[72]")
        yield Sample("c128[67]", inverse=True)
        yield Sample("f32[4]")
        yield Rejected("c64[3, 0]", axes=(1,), error=ShapeError, says="axis 1 has 0 elements")
        yield from refused("c64", inverse=True)


def half(n: Dim) -> Dim:
    """Return the number of elements of the spectrum of n real numbers that are not conjugates of others."""
    return n // 2 + 1


@define_op
class RealFft(Fourier):
    """The transform of real numbers: the first n/2 + 1 elements of the last listed axis; the others are their conjugates.

    Shapes:
        x: f[.., n, ..]    ->    y: c[.., n div 2 + 1, ..]

    Attributes:
        axes: The axes that are transformed, distinct; the last of them first, and only that one is halved.
        norm: As in `Fft`; the direction is forward.
    """

    axes: tuple[int, ...] = field(default=(-1,), converter=as_axes)
    norm: Norm = "backward"

    def prepare(self, x: Value) -> tuple[Value | None, ...]:
        return (x if x.dtype.is_complex else as_dtype(x, promote(x.dtype, f32)),)

    def infer(self, x: TensorType) -> TensorType:
        expect_dtype("x", x, (f32, f64), "real")
        n = self.along(x.shape)[-1]
        return TensorType(c64 if x.dtype is f32 else c128, resized(x.shape, self.axes[-1], half(n)))

    def reference(self, x: np.ndarray) -> np.ndarray:
        return np.fft.rfftn(x, axes=self.axes, norm=self.norm).astype(np.result_type(x, np.complex64), copy=False)

    def decompose(self, x: Value) -> Value:
        *others, last = self.axes
        if others:
            return Fft(tuple(others), norm=self.norm)(RealFft((last,), norm=self.norm)(x))
        axis = normalize_axis(last, x.ndim)
        line = move_axis(x, axis, x.ndim - 1)
        n = line.shape[-1]
        scale = self.factor((n,), False, x.dtype)
        parts = [narrow(v, axis=x.ndim - 1, start=0, length=half(n)) for v in dft(line, None, -1)]
        re, im = parts if scale is None else (v * scale for v in parts)
        return make_complex(*(move_axis(v, x.ndim - 1, axis) for v in (re, im)))

    def vjp(self, g: Value, x: Value, *, y: Value) -> tuple[Value, ...]:
        # 2·Re(Rᴴ g): the inverse counts every element twice except those that are their own conjugates, which are doubled here.
        n = x.shape[self.axes[-1]]
        return (InverseRealFft(n, self.axes, OPPOSITE[self.norm])(_weighted(g, self.axes[-1], n, 2.0)),)

    jvp = linear_jvp

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        for d in (f32, f64):
            yield Sample(f"{d}[3, 4]")
            yield Sample(f"{d}[3, 5]")
        for norm in NORMS:
            yield Sample("f32[4, 3]", axes=(0,), norm=norm)
            yield Sample("f32[2, 5]", axes=(-1, 0), norm=norm)
        for axis in (0, 1, 2, 3):
            yield Sample("f64[2, 3, 2, 4]", axes=(axis,))
        yield Sample("f32[2, 1, 3]", axes=(2, 0, 1))
        yield Sample("f32[1]")
        yield Sample("f32[2]")
        yield Sample("f32[0, 3]")
        yield Sample("f64[70]")
        yield Sample("f16[4]")
        yield Rejected("f32[0]", error=ShapeError, says="axis -1 has 0 elements")
        yield Rejected("c64[3]", error=DtypeError, says="must be real")
        yield from refused("f32")


real_fft = op_function(RealFft)


def resized(shape: Shape, axis: int, size: Dim) -> Shape:
    """Return `shape` with another size along one axis."""
    place = normalize_axis(axis, len(shape))
    return (*shape[:place], size, *shape[place + 1 :])


def _weighted(z: Value, axis: int, n: Dim, weight: float) -> Value:
    """Return half a spectrum of n real numbers, with the elements that are their own conjugates multiplied by `weight`: the
    first, and for even n the last.
    """
    count = z.shape[axis]
    place = iota(axis=0, shape=(count,))
    last = n // 2 if isinstance(n, int) else dim_value(size=n // 2)
    is_even = n % 2 == 0 if isinstance(n, int) else dim_value(size=n % 2) == 0
    if is_even is True:
        is_own = (place == 0) | (place == last)
    else:
        is_own = place == 0 if is_even is False else (place == 0) | ((place == last) & is_even)
    weights = where(is_own, weight, 1.0)
    after = z.ndim - 1 - normalize_axis(axis, z.ndim)
    return z * cast(reshape(weights, (count, *(1,) * after)), to=z.dtype)


@define_op
class InverseRealFft(Fourier):
    """The real numbers whose spectrum has this first half; the second half is taken as its conjugates.

    The imaginary part of an element that is its own conjugate (the first, and for even n the last) is not read.

    Shapes:
        z: c[.., n div 2 + 1, ..]    ->    y: f[.., n, ..]

    Attributes:
        n: The number of real numbers; the operand's size does not determine whether it is even.
        axes: The axes that are transformed, distinct; the last of them last, and only that one is extended.
        norm: As in `Fft`; the direction is inverse.
    """

    n: Dim
    axes: tuple[int, ...] = field(default=(-1,), converter=as_axes)
    norm: Norm = "backward"

    def prepare(self, z: Value) -> tuple[Value | None, ...]:
        return (z if z.dtype.is_complex else as_dtype(z, promote(z.dtype, c64)),)

    def infer(self, z: TensorType) -> TensorType:
        expect_dtype("z", z, COMPLEXES, "complex")
        if not require(">=", self.n, 1):
            raise ShapeError(f"n must be at least 1, not {self.n}")
        length = self.along(z.shape)[-1]
        if not require("==", length, half(self.n)):
            raise ShapeError(
                f"{self.n} real numbers have {half(self.n)} elements on axis {self.axes[-1]}, not {length}"
            )
        return TensorType(z.dtype.component, resized(z.shape, self.axes[-1], self.n))

    def reference(self, z: np.ndarray) -> np.ndarray:
        sizes = [z.shape[a] for a in self.axes[:-1]] + [self.n.__index__()]
        return np.fft.irfftn(z, s=sizes, axes=self.axes, norm=self.norm).astype(z.real.dtype, copy=False)

    def decompose(self, z: Value) -> Value:
        *others, last = self.axes
        if others:
            transformed = Fft(tuple(others), inverse=True, norm=self.norm)(z)
            return InverseRealFft(self.n, (last,), self.norm)(transformed)
        axis = normalize_axis(last, z.ndim)
        place, mirrored = z.ndim - 1, (self.n + 1) // 2 - 1
        re, im = (move_axis(part(z), axis, place) for part in (real, imag))
        re_rest, im_rest = (flip(narrow(v, axis=place, start=1, length=mirrored), axes=(place,)) for v in (re, im))
        y, _ = dft(concat([re, re_rest], axis=place), concat([im, -im_rest], axis=place), 1)
        scale = self.factor((self.n,), True, re.dtype)
        return move_axis(y if scale is None else y * scale, place, axis)

    def vjp(self, g: Value, z: Value, *, y: Value) -> tuple[Value, ...]:
        # ½·Cᵀ g: every element was counted twice except those that are their own conjugates, which are halved here.
        return (_weighted(RealFft(self.axes, OPPOSITE[self.norm])(g), self.axes[-1], self.n, 0.5),)

    jvp = linear_jvp

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        for d in COMPLEXES:
            yield Sample(f"{d}[3, 3]", n=4)
            yield Sample(f"{d}[3, 3]", n=5)
        for norm in NORMS:
            yield Sample("c64[3, 2]", n=4, axes=(0,), norm=norm)
            yield Sample("c64[3, 5]", n=5, axes=(-1, 0), norm=norm)
        for axis in (0, 1, 2, 3):
            yield Sample("c128[2, 2, 2, 2]", n=3, axes=(axis,))
        yield Sample("c64[2, 1, 3]", n=1, axes=(2, 0, 1))
        yield Sample("c64[1]", n=1)
        yield Sample("c64[2]", n=2)
        yield Sample("c64[0, 2]", n=3)
        yield Sample("c128[36]", n=70)
        yield Rejected("c64[3]", n=6, error=ShapeError, says="have 4 elements on axis -1, not 3")
        yield Rejected("c64[1]", n=0, error=ShapeError, says="at least 1")
        yield from refused("c64", n=6)


inverse_real_fft = op_function(InverseRealFft)
