"""The op that resamples trailing axes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from attrs import field

from rlx_core.errors import ConfigError, DtypeError, ShapeError
from rlx_core.ir.apply import op_function
from rlx_core.ir.dtypes import ALL, FLOATS
from rlx_core.ir.graph import Value
from rlx_core.ir.op import Category, Op, define_op
from rlx_core.ir.types import TensorType, expect_dtype, expect_rank
from rlx_core.ops.along_axis import move_axis
from rlx_core.ops.conversion import as_dtype, linear_jvp, operand_batch
from rlx_core.ops.indexing import gather
from rlx_core.ops.linalg import mat_mul
from rlx_core.ops.resize.places import COORDINATES, METHODS, Coordinates, Method, nearest, shares, taps
from rlx_core.ops.samples import Rejected, Sample
from rlx_core.ops.statistics import wide
from rlx_core.ops.structural import as_axes, expand, reshape
from rlx_core.ops.validators import one_of


@define_op
class Resize(Op):
    """The last axes resampled to other sizes, one axis after the other.

    `nearest` reads a cell; `linear` weights the two cells around a position by their distance; `cubic` four, by Keys' kernel.
    Beyond the ends the outermost cells are repeated. With `antialias` the kernel of a line or a cubic has the width of a cell
    of the result if that is larger, so that every cell of x contributes; it is truncated at the ends of x, and the remaining
    weights are normalised. `places.py` defines the position for each convention of coordinates.

    Shapes:
        x: [.., n..]    ->    y: [.., sizes..]

    Attributes:
        sizes: The sizes of the last axes.
        method: "nearest", "linear" or "cubic".
        coordinates: "half-pixel", "align-corners" or "asymmetric".
        sharpness: The slope of the cubic kernel one cell away.
        antialias: Whether weights cover all cells of x within a cell of the result.

    Raises:
        ShapeError: A size is below 1, or a size of x is unknown or 0.
        ConfigError: `antialias` with the method `nearest`, which does not interpolate.
        DtypeError: A dtype that is not floating-point, which cannot be interpolated, unless the method is `nearest`.

    Source:
        Keys 1981, "Cubic Convolution Interpolation for Digital Image Processing", section III.
    """

    sizes: tuple[int, ...] = field(converter=as_axes)
    method: Method = field(default="nearest", validator=one_of(*METHODS))
    coordinates: Coordinates = field(default="half-pixel", validator=one_of(*COORDINATES))
    sharpness: float = -0.75
    antialias: bool = False
    category: ClassVar[Category] = "reduction"
    jvp = linear_jvp
    batch = operand_batch

    def infer(self, x: TensorType) -> TensorType:
        if self.method != "nearest":
            expect_dtype("x", x, FLOATS, "a float")
        elif self.antialias:
            raise ConfigError('antialias needs the method "linear" or "cubic"; "nearest" shows one cell')
        expect_rank("x", x, len(self.sizes))
        lead = x.rank - len(self.sizes)
        for n, m in zip(x.shape[lead:], self.sizes, strict=True):
            if not isinstance(n, int) or n < 1 or m < 1:
                raise ShapeError(f"axes are resized from a known size of at least 1 to another, not from {n} to {m}")
        return x.with_shape((*x.shape[:lead], *self.sizes))

    def decompose(self, x: Value) -> Value:
        lead = x.ndim - len(self.sizes)
        y = x if self.method == "nearest" else wide(x)
        for axis, m in enumerate(self.sizes, lead):
            n = y.shape[axis].__index__()
            if n != m:
                y = self._nearest(y, axis, n, m) if self.method == "nearest" else self._weighted(y, axis, n, m)
        return as_dtype(y, x.dtype)

    def _nearest(self, x: Value, axis: int, n: int, m: int) -> Value:
        if m % n == 0 and self.coordinates != "align-corners":
            before, after = x.shape[:axis], x.shape[axis + 1 :]
            column = reshape(x, (*before, n, 1, *after))
            return reshape(expand(column, (*before, n, m // n, *after)), (*before, m, *after))
        return gather(x, nearest(n, m, self.coordinates), axis=axis, oob="clip")

    def _weighted(self, x: Value, axis: int, n: int, m: int) -> Value:
        if self.antialias:
            table = shares(n, m, self.method, self.coordinates, self.sharpness).astype(x.dtype.numpy)
            last = x.ndim - 1
            return move_axis(mat_mul(move_axis(x, axis, last), table), last, axis)
        cells, weights = taps(n, m, self.method, self.coordinates, self.sharpness)
        shape = (m, *(1,) * (x.ndim - axis - 1))
        total = None
        for cell, weight in zip(cells, weights, strict=True):
            term = gather(x, cell, axis=axis, oob="clip") * weight.astype(x.dtype.numpy).reshape(shape)
            total = term if total is None else total + term
        assert total is not None, "every method reads a cell"
        return total

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        for d in ALL:
            yield Sample(f"{d}[2, 4]", sizes=(7,))
        for d in FLOATS:
            yield Sample(f"{d}[2, 4]", sizes=(7,), method="linear")
        for method in METHODS:
            for coordinates in COORDINATES:
                yield Sample("f64[2, 5, 3]", sizes=(4, 6), method=method, coordinates=coordinates)
        yield Sample("f32[2, 1, 4]", sizes=(3, 1), method="cubic", coordinates="align-corners", sharpness=-0.5)
        for method in ("linear", "cubic"):
            yield Sample("f64[2, 9, 5]", sizes=(4, 7), method=method, antialias=True)
        yield Sample("f16[2, 9]", sizes=(3,), method="linear", coordinates="align-corners", antialias=True)
        yield Sample("f32[0, 3]", sizes=(6,))
        yield Rejected("f32[2, 0]", sizes=(3,), error=ShapeError, says="from 0 to 3")
        yield Rejected("f32[2, 3]", sizes=(0,), error=ShapeError, says="from 3 to 0")
        yield Rejected("i32[2, 3]", sizes=(6,), method="linear", error=DtypeError, says="x must be a float")
        yield Rejected("f32[2, 3]", sizes=(6,), method="area", error=ConfigError, says="'area'")
        yield Rejected("f32[3]", sizes=(6,), antialias=True, error=ConfigError, says="shows one cell")
        yield Rejected("f32[3]", sizes=(6, 6), error=ShapeError, says="2 or more axes")


resize = op_function(Resize)
