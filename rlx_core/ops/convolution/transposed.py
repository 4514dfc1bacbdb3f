"""Transposed convolution as a layer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from attrs import field

from rlx_core.errors import ShapeError
from rlx_core.ir.apply import op_function
from rlx_core.ir.dims import Dim, product, require
from rlx_core.ir.graph import Value
from rlx_core.ir.op import define_op
from rlx_core.ir.types import Shape, TensorType, expect_shape
from rlx_core.ops.convolution.conv import ConvBackwardInput, Convolution, conv_backward_input
from rlx_core.ops.convolution.geometry import Geometry
from rlx_core.ops.convolution.ways import fitted
from rlx_core.ops.samples import Rejected, Sample
from rlx_core.ops.structural import as_axes


@define_op
class ConvTranspose(Convolution):
    """`ConvBackwardInput` as a layer: every cell of x adds a scaled kernel to the result.

    Shapes:
        x: [n, m, o..]    w: [m, c/groups, k..]    ->    y: [n, c, l..]
        l = (o - 1)·stride - lo - hi + dilation·(k - 1) + output_padding + 1

    Attributes:
        stride, dilation, lo, hi: The parameters of the convolution that it transposes.
        output_padding: Cells lost when its size was rounded down, one number per spatial axis; below its stride or dilation.

    Raises:
        ShapeError: An axis of the result would be empty.
    """

    output_padding: tuple[int, ...] = field(default=(), converter=as_axes, kw_only=True)
    channels: ClassVar = ConvBackwardInput.channels
    free: ClassVar = ConvBackwardInput.free

    def infer(self, x: TensorType, w: TensorType) -> TensorType:
        self.expect("x", x, "weight", w)
        self.each("channels of x", x.shape[1])
        expect_shape("weight", w, (x.shape[1], *w.shape[1:]))
        sizes = self._sizes(x.shape[2:], self.geometry(w.shape[2:]))
        return x.with_shape((x.shape[0], w.shape[1] * self.groups, *sizes))

    def decompose(self, x: Value, w: Value) -> Value:
        geometry = self.geometry(w.shape[2:])
        sizes = self._sizes(x.shape[2:], geometry)
        # Removed cells are restored first; no kernel was ever added to those beyond.
        back = tuple(min(more, hi) for more, hi in zip(self._more(geometry), geometry.hi, strict=True))
        beyond = tuple(more - amount for more, amount in zip(self._more(geometry), back, strict=True))
        dx = conv_backward_input(
            x,
            w,
            sizes=tuple(n - amount for n, amount in zip(sizes, beyond, strict=True)),
            stride=self.stride,
            dilation=self.dilation,
            lo=self.lo,
            hi=tuple(hi - amount for hi, amount in zip(geometry.hi, back, strict=True)),
            groups=self.groups,
        )
        return fitted(dx, (0,) * len(sizes), beyond)

    def _more(self, geometry: Geometry) -> tuple[int, ...]:
        more = self.output_padding or (0,) * geometry.rank
        if len(more) != geometry.rank:
            raise ShapeError(f"output_padding has {len(more)} numbers for {geometry.rank} spatial axes")
        for extra, stride, dilation in zip(more, geometry.stride, geometry.dilation, strict=True):
            if not 0 <= extra < max(stride, dilation):
                raise ShapeError(
                    f"output_padding {extra} must be below stride {stride} or dilation {dilation}, and not below 0"
                )
        return more

    def _sizes(self, counts: Shape, geometry: Geometry) -> Shape:
        sizes: list[Dim] = []
        for i, (count, more) in enumerate(zip(counts, self._more(geometry), strict=True)):
            spread = (count - 1) * geometry.stride[i] + geometry.extents[i]
            size = spread - geometry.lo[i] - geometry.hi[i] + more
            if not (require(">=", count, 1) and require(">=", size - more, 1)):
                raise ShapeError(
                    f"spatial axis {i} would have {size} cells: {count} at stride {geometry.stride[i]} spread over {spread},"
                    f" of which padding cuts off {geometry.lo[i]} and {geometry.hi[i]}"
                )
            sizes.append(size)
        return tuple(sizes)

    def cost(self, x: TensorType, w: TensorType) -> Dim:
        return 2 * x.size * product(w.shape[1:])

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        for d in ("f32", "f64", "f16", "bf16", "i32"):
            yield Sample(f"{d}[2, 4, 4]", f"{d}[4, 3, 3]")
        yield Sample(
            "f32[2, 8, 3, 4]", "f32[8, 2, 3, 2]", stride=(2, 1), lo=(1, 0), hi=(1, 0), output_padding=(1, 0), groups=2
        )  # fmt: skip
        yield Sample("f32[1, 2, 3, 2]", "f32[2, 3, 2, 2]", stride=(2, 3), dilation=(3, 1), output_padding=(2, 2))
        yield Sample("f64[1, 2, 2, 2, 3]", "f64[2, 1, 2, 2, 3]", stride=(1, 2, 2), hi=(0, 1, 0))
        yield Rejected(
            "f32[1, 2, 4]", "f32[2, 3, 3]", stride=(2,), output_padding=(2,), error=ShapeError, says="below stride 2"
        )
        yield Rejected("f32[1, 2, 2]", "f32[2, 3, 2]", lo=(2,), hi=(1,), error=ShapeError, says="would have 0 cells")
        yield Rejected("f32[1, 2, 4]", "f32[3, 3, 3]", error=ShapeError, says="weight must be [2, 3, 3]")
        yield Rejected("f32[1, 2, 0]", "f32[2, 3, 3]", error=ShapeError, says="0 at stride 1")


conv_transpose = op_function(ConvTranspose)
