"""NumPy's functions of Fourier transforms, which are those of the Python Array API: `rlx.fft`.

`n` and `s` crop the operand or pad it with zeros before one op. Real operands of the complex functions become complex, integers
become floats as everywhere. A repeated axis is refused, whereas NumPy transforms it twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from rlx_core.errors import AxisError, ConfigError, DtypeError, ShapeError
from rlx_core.hints.keywords import checked_call
from rlx_core.ir.dims import Dim, require, smaller
from rlx_core.ir.dtypes import DType, dtype, f32, f64
from rlx_core.ir.types import as_dim, normalize_axis
from rlx_core.ops.arguments import choice, listed, number
from rlx_core.ops.array_elementwise import conj
from rlx_core.ops.array_shapes import shape_of
from rlx_core.ops.conversion import cast
from rlx_core.ops.creation import dim_value, iota
from rlx_core.ops.device import expect_device
from rlx_core.ops.fourier.fourier import NORMS, OPPOSITE, Fft, InverseRealFft, Norm, RealFft, half
from rlx_core.ops.linalg import operand
from rlx_core.ops.movement import concat, narrow, pad_axis
from rlx_core.ops.selection import where

if TYPE_CHECKING:
    from rlx_core.typing import Array, ArrayLike

__all__ = [
    "fft",
    "fft2",
    "fftfreq",
    "fftn",
    "fftshift",
    "hfft",
    "ifft",
    "ifft2",
    "ifftn",
    "ifftshift",
    "ihfft",
    "irfft",
    "irfft2",
    "irfftn",
    "rfft",
    "rfft2",
    "rfftfreq",
    "rfftn",
]

Sizes = Sequence[Dim] | None
Axes = Sequence[int] | None
NormName = Literal["backward", "ortho", "forward"] | None
"""`None` is "backward", as in NumPy."""

_dtype = dtype


@checked_call
def fft(x: ArrayLike, n: Dim | None = None, axis: int = -1, norm: NormName = "backward") -> Array:
    """The discrete Fourier transform along one axis: y_k = Σ_j x_j exp(-2πi·jk/n).

    Args:
        x: Numbers of any kind; real ones become complex.
        n: The length of the transform: the operand is cropped, or padded with zeros. Its size by default.
        axis: The axis of the transform.
        norm: "backward" scales the inverse by 1/n, "forward" this direction, "ortho" both by 1/√n.

    Raises:
        AxisError: `x` has no such axis.
        ShapeError: There are no elements, or `n` is below 1.
        ConfigError: The norm is unknown.
    """
    return _complex("fft", x, None if n is None else (n,), (axis,), norm, inverse=False)


@checked_call
def ifft(x: ArrayLike, n: Dim | None = None, axis: int = -1, norm: NormName = "backward") -> Array:
    """The inverse of `fft`."""
    return _complex("ifft", x, None if n is None else (n,), (axis,), norm, inverse=True)


@checked_call
def fftn(x: ArrayLike, s: Sizes = None, axes: Axes = None, norm: NormName = "backward") -> Array:
    """The transform along several axes: all, the last `len(s)`, or those listed, distinct; an entry -1 of `s` keeps a size."""
    return _complex("fftn", x, s, axes, norm, inverse=False)


@checked_call
def ifftn(x: ArrayLike, s: Sizes = None, axes: Axes = None, norm: NormName = "backward") -> Array:
    """The inverse of `fftn`."""
    return _complex("ifftn", x, s, axes, norm, inverse=True)


@checked_call
def fft2(x: ArrayLike, s: Sizes = None, axes: Axes = (-2, -1), norm: NormName = "backward") -> Array:
    """`fftn` along two axes."""
    return _complex("fft2", x, s, axes, norm, inverse=False)


@checked_call
def ifft2(x: ArrayLike, s: Sizes = None, axes: Axes = (-2, -1), norm: NormName = "backward") -> Array:
    """The inverse of `fft2`."""
    return _complex("ifft2", x, s, axes, norm, inverse=True)


@checked_call
def rfft(x: ArrayLike, n: Dim | None = None, axis: int = -1, norm: NormName = "backward") -> Array:
    """The first n/2 + 1 elements of the transform of n real numbers; the others are their conjugates.

    Raises:
        DtypeError: `x` is complex.
    """
    return _from_real("rfft", x, None if n is None else (n,), (axis,), norm)


@checked_call
def irfft(x: ArrayLike, n: Dim | None = None, axis: int = -1, norm: NormName = "backward") -> Array:
    """The inverse of `rfft`: `n` real numbers, an even number by default; pass `n` if it is odd."""
    return _to_real("irfft", x, None if n is None else (n,), (axis,), norm)


@checked_call
def rfftn(x: ArrayLike, s: Sizes = None, axes: Axes = None, norm: NormName = "backward") -> Array:
    """`rfft` along the last of several axes, and `fft` along the others."""
    return _from_real("rfftn", x, s, axes, norm)


@checked_call
def irfftn(x: ArrayLike, s: Sizes = None, axes: Axes = None, norm: NormName = "backward") -> Array:
    """The inverse of `rfftn`; the last of `s` is the number of real numbers, an even one by default."""
    return _to_real("irfftn", x, s, axes, norm)


@checked_call
def rfft2(x: ArrayLike, s: Sizes = None, axes: Axes = (-2, -1), norm: NormName = "backward") -> Array:
    """`rfftn` along two axes."""
    return _from_real("rfft2", x, s, axes, norm)


@checked_call
def irfft2(x: ArrayLike, s: Sizes = None, axes: Axes = (-2, -1), norm: NormName = "backward") -> Array:
    """The inverse of `rfft2`."""
    return _to_real("irfft2", x, s, axes, norm)


@checked_call
def hfft(x: ArrayLike, n: Dim | None = None, axis: int = -1, norm: NormName = "backward") -> Array:
    """The real spectrum of `n` numbers whose second half is the conjugate mirror image of the first, which is `x`."""
    swapped = OPPOSITE[_norm("hfft", norm)]
    return _to_real("hfft", conj(x), None if n is None else (n,), (axis,), swapped)


@checked_call
def ihfft(x: ArrayLike, n: Dim | None = None, axis: int = -1, norm: NormName = "backward") -> Array:
    """The inverse of `hfft`."""
    swapped = OPPOSITE[_norm("ihfft", norm)]
    return conj(_from_real("ihfft", x, None if n is None else (n,), (axis,), swapped))


# ------------------------------------------------------------------------------------------ how they are built


def _complex(name: str, x: Any, s: Sizes, axes: Axes, norm: NormName, inverse: bool) -> Any:
    word = _norm(name, norm)
    x = operand(x)
    sizes, places = _sizes_and_axes(name, shape_of(x), s, axes)
    return Fft(places, inverse, word)(_resized(x, places, sizes))


def _from_real(name: str, x: Any, s: Sizes, axes: Axes, norm: NormName) -> Any:
    word = _norm(name, norm)
    x = operand(x)
    if _dtype(x.dtype).is_complex:
        raise DtypeError(f"{name}: takes real numbers, not {_dtype(x.dtype)}", hint="rlx.fft.fft takes complex ones")
    sizes, places = _sizes_and_axes(name, shape_of(x), s, axes)
    return RealFft(places, word)(_resized(x, places, sizes))


def _to_real(name: str, x: Any, s: Sizes, axes: Axes, norm: NormName) -> Any:
    word = _norm(name, norm)
    x = operand(x)
    sizes, places = _sizes_and_axes(name, shape_of(x), s, axes)
    last = sizes[-1]
    if last is None:
        last = 2 * (shape_of(x)[places[-1]] - 1)
        if not require(">=", last, 1):
            raise ShapeError(f"{name}: of 1 element an even number of real numbers is 0", hint="pass n=1")
    return InverseRealFft(last, places, word)(_resized(x, places, [*sizes[:-1], half(last)]))


def _norm(name: str, norm: NormName) -> Norm:
    return "backward" if norm is None else choice(f"{name}: norm", norm, NORMS)  # type: ignore[return-value]


def _sizes_and_axes(name: str, shape: Sequence[Dim], s: Sizes, axes: Axes) -> tuple[list[Dim | None], tuple[int, ...]]:
    """Return the requested sizes (`None` if there is none), and the axes counted from the front, in the given order."""
    rank = len(shape)
    sizes: list[Dim | None] = []
    if s is not None:
        sizes = [None if n == -1 else as_dim(n) for n in listed(f"{name}: s", s)]
        for n in sizes:
            if n is not None and not require(">=", n, 1):
                raise ShapeError(f"{name}: {n} elements cannot be transformed, 1 is the least")
    if axes is None:
        count = rank if s is None else len(sizes)
        if count > rank:
            raise AxisError(f"{name}: there are {count} sizes for {rank} axes")
        places = tuple(range(rank - count, rank))
    else:
        places = tuple(normalize_axis(a, rank) for a in listed(f"{name}: axes", axes))
    if s is not None and len(sizes) != len(places):
        raise ConfigError(f"{name}: there are {len(sizes)} sizes for {len(places)} axes")
    if not places:
        raise AxisError(f"{name}: there is no axis to transform")
    if len(set(places)) != len(places):
        raise AxisError(f"{name}: axes {list(places)} name one axis twice")
    return sizes or [None] * len(places), places


def _resized(x: Any, axes: Sequence[int], sizes: Sequence[Dim | None]) -> Any:
    """Return `x` cropped, or padded with zeros, along axes with a requested size."""
    for axis, size in zip(axes, sizes, strict=True):
        length = shape_of(x)[axis]
        if size is None or size == length:
            continue
        retained = smaller(length, size)
        if retained != length:
            x = narrow(x, axis=axis, start=0, length=retained)
        if retained != size:
            x = pad_axis(x, axis, 0, size - retained)
    return x


# ------------------------------------------------------------------------------------------ frequencies, shifts


@checked_call
def fftfreq(n: Dim, d: float = 1.0, *, dtype: DType | str | None = None, device: str | None = None) -> Array:
    """The frequencies of `fft` of `n` samples at distance `d`: 0, 1, .., -2, -1 over `n·d`; for an even `n` one is -1/(2d).

    The dtype is f32 by default, as for all creation functions; `dtype` may be f64.
    """
    count, scale, target = _frequencies("fftfreq", n, d, dtype, device)
    place = iota(axis=0, shape=(count,))
    size: Any = count if isinstance(count, int) else dim_value(size=count)
    middle = (count + 1) // 2 if isinstance(count, int) else dim_value(size=(count + 1) // 2)
    return cast(cast(where(place < middle, place, place - size), to=f64) * scale, to=target)


@checked_call
def rfftfreq(n: Dim, d: float = 1.0, *, dtype: DType | str | None = None, device: str | None = None) -> Array:
    """The frequencies of `rfft` of `n` samples at distance `d`: 0, 1, .., n div 2 over `n·d`."""
    count, scale, target = _frequencies("rfftfreq", n, d, dtype, device)
    return cast(cast(iota(axis=0, shape=(half(count),)), to=f64) * scale, to=target)


def _frequencies(name: str, n: Dim, d: float, dtype: DType | str | None, device: str | None) -> tuple[Dim, Any, DType]:
    """Return the number of samples, the factor of an integer frequency, and the dtype."""
    expect_device(name, device)
    count = as_dim(n)
    if not require(">=", count, 1):
        raise ShapeError(f"{name}: n must be at least 1, not {count}")
    spacing = number(f"{name}: d", d)
    if spacing == 0:
        raise ConfigError(f"{name}: samples at distance 0 have no frequencies")
    target = f32 if dtype is None else _dtype(dtype)
    if not target.is_float:
        raise DtypeError(f"{name}: frequencies are floats, not {target}")
    if isinstance(count, int):
        return count, 1.0 / (count * spacing), target
    return count, 1.0 / (cast(dim_value(size=count), to=f64) * spacing), target


@checked_call
def fftshift(x: ArrayLike, axes: int | Axes = None) -> Array:
    """`x` with frequency 0 moved from the front to the centre of each axis, or of those listed."""
    return _turned(x, axes, lambda n: (n + 1) // 2)


@checked_call
def ifftshift(x: ArrayLike, axes: int | Axes = None) -> Array:
    """The inverse of `fftshift`, which differs from it if a size is odd."""
    return _turned(x, axes, lambda n: n // 2)


def _turned(x: Any, axes: int | Axes, first: Any) -> Any:
    """Return the elements from `first` of each axis on, followed by those before."""
    x = operand(x)
    rank = len(shape_of(x))
    named = range(rank) if axes is None else (axes,) if isinstance(axes, int) else listed("axes", axes)
    for axis in (normalize_axis(a, rank) for a in named):
        n = shape_of(x)[axis]
        cut = first(n)
        halves = [narrow(x, axis=axis, start=a, length=b) for a, b in ((cut, n - cut), (0, cut))]
        x = concat(halves, axis=axis)
    return x
