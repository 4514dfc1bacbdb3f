"""Convolution and its two derivatives by operand, whose derivatives are again among the three: the family is closed.

`Σ dy·conv(x, w)` is linear in each of dy, x and w, and each of the three ops is its derivative by one of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from attrs import evolve, field

from rlx_core.errors import DtypeError, ShapeError
from rlx_core.ir.apply import op_function
from rlx_core.ir.dims import Dim, floor_quotient, product, require
from rlx_core.ir.dtypes import FLOATS, INTEGERS, DType, i32
from rlx_core.ir.graph import Value
from rlx_core.ir.op import Category, define_op
from rlx_core.ir.types import Shape, TensorType, expect_dtype, expect_dtype_of, expect_rank, expect_shape
from rlx_core.ops.conversion import as_dtype, bilinear_jvp
from rlx_core.ops.convolution.geometry import MOST_AXES, Windowed
from rlx_core.ops.convolution.phases import Phases
from rlx_core.ops.convolution.ways import (
    by_matrices,
    by_sums,
    fitted,
    has_few_results,
    has_few_terms,
    merged,
    parted,
    swapped_channels,
    swapped_operands,
    weight_by_matrices,
)
from rlx_core.ops.creation import zeros
from rlx_core.ops.kinds import promoted
from rlx_core.ops.linalg import product_dtype
from rlx_core.ops.movement import flip, spread_size
from rlx_core.ops.samples import Rejected, Sample
from rlx_core.ops.structural import as_axes, as_shape, transpose
from rlx_core.ops.validators import optional_dtype
from rlx_core.system.records import frozen

SAMPLED = ("f32", "f64", "f16", "bf16", "i32")

Place = tuple[int, bool]
"""An axis, and whether the groups are along it, in which case a batch must be inside of them."""


@frozen(slots=False)
class Convolution(Windowed):
    """Base of the three ops: they are linear in each of two operands, and channels may be in groups."""

    category: ClassVar[Category] = "compute"
    channels: ClassVar[tuple[int, int, int]]
    """The axes of the operands and of the result that contain the groups: a batch of both operands becomes more groups."""
    free: ClassVar[tuple[tuple[Place, Place], tuple[Place, Place]]]
    """For each operand, an axis that only it and the result have, and which that is: a batch of this operand alone goes there."""
    groups: Dim = field(default=1, kw_only=True)
    jvp = bilinear_jvp

    def prepare(self, a: Value, b: Value) -> tuple[Value | None, ...]:
        return promoted(a, b)

    def expect(self, name: str, a: TensorType, other: str, b: TensorType) -> None:
        """Require two operands of one dtype and rank, with one to three spatial axes."""
        expect_dtype(name, a, (*FLOATS, *INTEGERS), "a float or an integer")
        expect_dtype_of(other, b, name, a)
        expect_rank(name, a, 3, 2 + MOST_AXES)
        expect_rank(other, b, a.rank, a.rank)

    def each(self, what: str, channels: Dim) -> Dim:
        """Return the channels of one group.

        Raises:
            ShapeError: There is no group, or the number of groups does not divide the channels.
        """
        if not require(">=", self.groups, 1):
            raise ShapeError(f"groups must be at least 1, not {self.groups}")
        if self.groups != 1 and not require("divides", self.groups, channels):
            raise ShapeError(f"{self.groups} groups do not divide {channels} {what}")
        return floor_quotient(channels, self.groups)

    def batch(self, size: Dim, x: Sequence[Value], is_batched: Sequence[bool]) -> Value:
        """Return the batched op, for all three: the batch is folded into an axis of the operands and unfolded from the result."""
        if all(is_batched):
            a, b, y = self.channels
            operands = [merged(v, axis, 1) for v, axis in zip(x, (a, b), strict=True)]
            return parted(evolve(self, groups=self.groups * size)(*operands), y, 1, size)
        which = list(is_batched).index(True)
        (source, is_grouped), (target, is_parted) = self.free[which]
        operands = list(x)
        operands[which] = merged(x[which], source, self.groups if is_grouped else 1)
        return parted(self(*operands), target, self.groups if is_parted else 1, size)


@define_op
class Conv(Convolution):
    """Cross-correlation with zero padding: y[n, c, o..] = Σ x[n, i, o·stride + k·dilation - lo ..]·w[c, i, k..].

    The channels are in groups of equal size, and i runs over the channels of the group of c. Sums of f16 and bf16 are f32.

    Shapes:
        x: [n, c, l..]    w: [m, c/groups, k..]    ->    y: [n, m, o..]; one to three spatial axes
        o = (lo + l + hi - dilation·(k - 1) - 1) // stride + 1

    Attributes:
        stride, dilation, lo, hi: One number per spatial axis; see `Windowed`.
        groups: Divides c and m.
        acc_dtype: A wider dtype of the same kind for the sums and the result, as of `MatMul`.

    Raises:
        ShapeError: The kernel is larger than the padded operand, groups do not divide the channels, or a step is below 1.
        DtypeError: `acc_dtype` is narrower than the operands, or of another kind.
    """

    acc_dtype: DType | None = field(default=None, converter=optional_dtype, kw_only=True)
    channels: ClassVar = (1, 0, 1)
    free: ClassVar = (((0, False), (0, False)), ((0, True), (1, True)))

    def infer(self, x: TensorType, w: TensorType) -> TensorType:
        self.expect("x", x, "weight", w)
        geometry = self.geometry(w.shape[2:])
        expect_shape("weight", w, (w.shape[0], self.each("channels of x", x.shape[1]), *w.shape[2:]))
        self.each("channels of y", w.shape[0])
        shape = x.shape[0], w.shape[0], *geometry.counts(x.shape[2:])
        return TensorType(product_dtype(x, w, self.acc_dtype), shape)

    def decompose(self, x: Value, w: Value) -> Value:
        geometry = self.geometry(w.shape[2:])
        if geometry.is_padded:
            return self.unpadded()(fitted(x, geometry.lo, geometry.hi), w)
        if has_few_terms(w) or has_few_results(w.shape[0], self.groups):
            return by_sums(x, w, geometry, self.groups, self.acc_dtype)
        return by_matrices(x, w, geometry, self.groups, self.acc_dtype)

    def vjp(self, g: Value, x: Value, w: Value, *, y: Value) -> tuple[Value, ...]:
        steps = steps_of(self)
        dx = conv_backward_input(g, w, sizes=x.shape[2:], **steps)
        dw = conv_backward_weight(x, g, kernel=w.shape[2:], **steps)
        return as_dtype(dx, x.dtype), as_dtype(dw, w.dtype)

    def cost(self, x: TensorType, w: TensorType) -> Dim:
        return 2 * self.infer(x, w).size * product(w.shape[1:])

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        yield from (Sample(f"{d}[2, 3, 6]", f"{d}[4, 3, 3]") for d in SAMPLED)
        yield Sample("f32[2, 4, 6, 5]", "f32[8, 2, 3, 2]", stride=(2, 1), lo=(1, 0), hi=(2, 1), groups=2)
        yield Sample("f32[1, 9, 7, 7]", "f32[4, 9, 3, 3]", lo=(1, 1), hi=(1, 1), dilation=(2, 1))
        yield Sample("f32[2, 3, 6, 6]", "f32[3, 1, 3, 3]", lo=(1, 1), hi=(1, 1), groups=3)
        yield Sample("f32[2, 5, 3, 3]", "f32[6, 5, 1, 1]")
        yield Sample("f64[1, 2, 4, 3, 5]", "f64[5, 2, 2, 2, 3]", stride=(1, 2, 2), hi=(0, 1, 0))
        yield Sample("f32[2, 3, 0]", "f32[4, 3, 1]", lo=(1,), hi=(1,))
        yield Sample("i16[2, 5, 6]", "i16[8, 5, 3]", lo=(1,), acc_dtype=i32, low=-255.0, high=255.0)
        yield Sample("i16[1, 9, 5, 5]", "i16[6, 9, 3, 2]", stride=(2, 1), acc_dtype=i32, low=-255.0, high=255.0)
        yield Sample("i8[1, 4, 9]", "i8[4, 1, 3]", groups=4, acc_dtype=i32, low=-127.0, high=127.0)
        yield Rejected("f32[1, 4, 8]", "f32[4, 4, 3]", acc_dtype=i32, error=DtypeError, says="cannot hold")
        yield Rejected(
            "f32[1, 3, 4, 4]", "f32[2, 3, 7, 3]", lo=(1, 1), hi=(1, 1), error=ShapeError, says="6 (1 + 4 + 1)"
        )
        yield Rejected("f32[1, 4, 8]", "f32[2, 1, 3]", groups=3, error=ShapeError, says="3 groups do not divide 4")
        yield Rejected("f32[1, 4, 8]", "f32[3, 2, 3]", groups=2, error=ShapeError, says="2 groups do not divide 3")
        yield Rejected("f32[1, 4, 8]", "f32[4, 3, 3]", groups=2, error=ShapeError, says="weight must be [4, 2, 3]")
        yield Rejected("f32[1, 4, 8]", "f32[4, 4, 3]", stride=(0,), error=ShapeError, says="stride must be at least 1")
        yield Rejected("f32[1, 4, 8]", "f32[4, 4, 3]", lo=(-1,), error=ShapeError, says="lo must be at least 0")
        yield Rejected("f32[1, 4, 8]", "f32[4, 4, 3]", groups=0, error=ShapeError, says="groups must be at least 1")
        yield Rejected("f32[4, 8]", "f32[4, 3]", error=ShapeError, says="3 to 5 axes")
        yield Rejected("c64[1, 4, 8]", "c64[4, 4, 3]", error=DtypeError, says="a float or an integer")


conv = op_function(Conv)


@define_op
class ConvBackwardInput(Convolution):
    """The cotangent of x in `Conv`: each dy, times the weights, accumulated where x was read.

    Shapes:
        dy: [n, m, o..]    w: [m, c/groups, k..]    ->    dx: [n, c, sizes..]

    Attributes:
        sizes: The spatial dims of x.
    """

    sizes: Shape = field(converter=as_shape, kw_only=True)
    channels: ClassVar = (1, 0, 1)
    free: ClassVar = (((0, False), (0, False)), ((1, False), (1, True)))

    def infer(self, dy: TensorType, w: TensorType) -> TensorType:
        self.expect("dy", dy, "weight", w)
        if len(self.sizes) != dy.rank - 2:
            raise ShapeError(f"sizes has {len(self.sizes)} numbers for {dy.rank - 2} spatial axes")
        counts = self.geometry(w.shape[2:]).counts(self.sizes)
        self.each("channels of dy", w.shape[0])
        expect_shape("dy", dy, (dy.shape[0], w.shape[0], *counts))
        return dy.with_shape((dy.shape[0], w.shape[1] * self.groups, *self.sizes))

    def decompose(self, dy: Value, w: Value) -> Value:
        geometry, rank = self.geometry(w.shape[2:]), dy.ndim - 2
        if 0 in self.sizes:
            return zeros((dy.shape[0], w.shape[1] * self.groups, *self.sizes), dy.dtype)
        if max(geometry.stride) > 1 and max(geometry.dilation) == 1:
            phases = Phases(geometry, self.sizes)  # of the result, as channels
            y = conv(phases.operand(dy), phases.weights(w, self.groups), groups=self.groups)
            return phases.result(y, w.shape[1] * self.groups)
        axes, gaps = range(rank), tuple(s - 1 for s in geometry.stride)
        before = tuple(geometry.extents[i] - 1 - geometry.lo[i] for i in axes)
        after = tuple(self.sizes[i] + geometry.lo[i] - spread_size(dy.shape[2 + i], gaps[i]) for i in axes)
        flipped = w if geometry.cells == 1 else flip(w, axes=tuple(range(2, 2 + rank)))
        spread = fitted(dy, before, after, gaps)
        weights = swapped_channels(flipped, self.groups)
        return conv(spread, weights, dilation=self.dilation, groups=self.groups)

    def vjp(self, g: Value, dy: Value, w: Value, *, y: Value) -> tuple[Value, ...]:
        steps = steps_of(self)
        return conv(g, w, **steps), conv_backward_weight(g, dy, kernel=w.shape[2:], **steps)

    def cost(self, dy: TensorType, w: TensorType) -> Dim:
        return 2 * dy.size * product(w.shape[1:])

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        yield from (Sample(f"{d}[2, 4, 4]", f"{d}[4, 3, 3]", sizes=(6,)) for d in SAMPLED)
        yield Sample(
            "f32[2, 8, 4, 5]", "f32[8, 2, 3, 2]", sizes=(6, 5), stride=(2, 1), lo=(1, 0), hi=(2, 1), groups=2
        )  # fmt: skip
        yield Sample("f32[1, 6, 3, 3]", "f32[6, 9, 3, 3]", sizes=(7, 6), dilation=(2, 1), lo=(0, 1), stride=(1, 2))
        yield Sample("f32[2, 3, 3, 3]", "f32[3, 1, 3, 3]", sizes=(6, 5), lo=(1, 1), hi=(1, 1), stride=(2, 2), groups=3)
        yield Sample("f32[2, 4, 6]", "f32[4, 3, 2]", sizes=(3,), lo=(2,), hi=(2,))
        yield Sample("f64[1, 2, 3, 2, 2]", "f64[2, 1, 2, 2, 3]", sizes=(4, 4, 6), stride=(1, 2, 2), hi=(0, 0, 0))
        yield Rejected("f32[2, 4, 5]", "f32[4, 3, 3]", sizes=(6,), error=ShapeError, says="dy must be [2, 4, 4]")
        yield Rejected("f32[2, 4, 5]", "f32[4, 3, 3]", sizes=(6, 6), error=ShapeError, says="2 numbers for 1")
        yield Rejected("f32[2, 3, 4]", "f32[3, 3, 3]", sizes=(6,), groups=2, error=ShapeError, says="do not divide 3")


conv_backward_input = op_function(ConvBackwardInput)


@define_op
class ConvBackwardWeight(Convolution):
    """The cotangent of w in `Conv`: each element of x, times the dy of every window in which it was the k-th.

    Shapes:
        x: [n, c, l..]    dy: [n, m, o..]    ->    dw: [m, c/groups, kernel..]

    Attributes:
        kernel: The spatial dims of w.
    """

    kernel: tuple[int, ...] = field(converter=as_axes, kw_only=True)
    channels: ClassVar = (1, 1, 0)
    free: ClassVar = (((1, True), (1, False)), ((1, True), (0, True)))

    def infer(self, x: TensorType, dy: TensorType) -> TensorType:
        self.expect("x", x, "dy", dy)
        if len(self.kernel) != x.rank - 2:
            raise ShapeError(f"kernel has {len(self.kernel)} numbers for {x.rank - 2} spatial axes")
        channels = self.each("channels of x", x.shape[1])
        self.each("channels of dy", dy.shape[1])
        counts = self.geometry(self.kernel).counts(x.shape[2:])
        expect_shape("dy", dy, (x.shape[0], dy.shape[1], *counts))
        return x.with_shape((dy.shape[1], channels, *self.kernel))

    def decompose(self, x: Value, dy: Value) -> Value:
        geometry = self.geometry(self.kernel)
        if geometry.is_padded:
            return self.unpadded()(fitted(x, geometry.lo, geometry.hi), dy)
        if not (has_few_results(dy.shape[1], self.groups) and all(isinstance(d, int) and d > 0 for d in dy.shape[2:])):
            return weight_by_matrices(x, dy, geometry, self.groups)
        swapped = swapped_operands(x, dy, geometry, self.groups)
        dw = conv(*swapped, stride=geometry.dilation, dilation=geometry.stride, groups=self.groups)
        return transpose(dw, (1, 0, *range(2, dw.ndim)))

    def vjp(self, g: Value, x: Value, dy: Value, *, y: Value) -> tuple[Value, ...]:
        steps = steps_of(self)
        return conv_backward_input(dy, g, sizes=x.shape[2:], **steps), conv(x, g, **steps)

    def cost(self, x: TensorType, dy: TensorType) -> Dim:
        return 2 * dy.size * self.each("channels of x", x.shape[1]) * product(self.kernel)

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        yield from (Sample(f"{d}[2, 3, 6]", f"{d}[2, 4, 4]", kernel=(3,)) for d in SAMPLED)
        yield Sample(
            "f32[2, 4, 6, 5]", "f32[2, 8, 4, 5]", kernel=(3, 2), stride=(2, 1), lo=(1, 0), hi=(2, 1), groups=2
        )  # fmt: skip
        yield Sample("f32[2, 2, 7, 5]", "f32[2, 6, 3, 2]", kernel=(3, 3), dilation=(2, 1), lo=(0, 1), stride=(1, 2))
        yield Sample("f32[2, 3, 6, 5]", "f32[2, 3, 3, 3]", kernel=(3, 3), lo=(1, 1), hi=(1, 1), stride=(2, 2), groups=3)
        yield Sample("f32[2, 3, 8]", "f32[2, 4, 2]", kernel=(2,), stride=(4,))
        yield Sample("f64[1, 1, 4, 4, 6]", "f64[1, 2, 3, 2, 2]", kernel=(2, 2, 3), stride=(1, 2, 2))
        yield Rejected("f32[2, 3, 6]", "f32[2, 4, 5]", kernel=(3,), error=ShapeError, says="dy must be [2, 4, 4]")
        yield Rejected("f32[2, 3, 6]", "f32[2, 4, 5]", kernel=(3, 3), error=ShapeError, says="2 numbers for 1")
        yield Rejected("f32[2, 3, 6]", "f32[2, 4, 4]", kernel=(3,), groups=2, error=ShapeError, says="do not divide 3")


conv_backward_weight = op_function(ConvBackwardWeight)


def steps_of(op: Convolution) -> dict[str, Any]:
    """Return the attributes of all three: the parameters of the windows, and the groups."""
    return {name: getattr(op, name) for name in ("stride", "dilation", "lo", "hi", "groups")}
