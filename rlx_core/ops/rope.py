"""Rotary position embedding: pairs of features rotated by an angle proportional to the position.

The tables contain cosines and sines, one row per position; they have `head_dim/2` columns even if fewer are used.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Literal

from attrs import field

from rlx_core.errors import DtypeError, ShapeError
from rlx_core.ir.apply import op_function
from rlx_core.ir.dims import Dim, exact_quotient, require
from rlx_core.ir.dtypes import FLOATS, INTEGERS, i64
from rlx_core.ir.graph import Value
from rlx_core.ir.op import ZERO, Op, Zero, define_op
from rlx_core.ir.types import Shape, TensorType, expect_dtype, expect_rank, expect_shape
from rlx_core.ops.conversion import as_dtype, per_element
from rlx_core.ops.creation import dim_value, iota
from rlx_core.ops.indexing import gather, scatter_add
from rlx_core.ops.linalg import reshaped
from rlx_core.ops.movement import concat, narrow, pad_axis
from rlx_core.ops.samples import Rejected, Sample
from rlx_core.ops.statistics import operands_of, wide
from rlx_core.ops.structural import expand, reshape, sum_axes
from rlx_core.ops.validators import whole

RopeLayout = Literal["bsd", "bshd", "bhsd"]
RopeStyle = Literal["half", "interleaved"]


class Rotation(Op):
    """Base of a rotation and its inverse: which features are rotated, and by which row of the tables."""

    category: ClassVar = "compute"
    head_dim: int
    n_rot: int | None
    layout: RopeLayout
    style: RopeStyle
    cost = per_element(3)

    def prepare(self, x: Value, cos: Value, sin: Value, positions: Value | None = None) -> tuple[Value | None, ...]:
        # x determines the dtype: the tables are cast to it, or stay in its accumulation dtype.
        accepted = (x.dtype, x.dtype.accumulator)
        tables = (v if v.dtype in accepted else as_dtype(v, x.dtype.accumulator) for v in (cos, sin))
        return (x, *tables, positions)

    @property
    def pairs(self) -> int:
        """Return the number of pairs of features that are rotated."""
        return (self.head_dim if self.n_rot is None else self.n_rot) // 2

    def infer(self, x: TensorType, cos: TensorType, sin: TensorType, positions: TensorType | None = None) -> TensorType:
        expect_dtype("x", x, FLOATS, "float")
        self._check_features(x)
        batch, seq = self._batch_and_seq(x)
        rows = cos.shape[0] if cos.rank == 2 else 0
        for name, table in (("cos", cos), ("sin", sin)):
            expect_dtype(name, table, (x.dtype, x.dtype.accumulator))
            expect_shape(name, table, (rows, self.head_dim // 2))
        if positions is not None:
            expect_dtype("positions", positions, INTEGERS, "an integer")
            expect_shape("positions", positions, (batch, seq))
        elif not require(">=", rows, seq):
            raise ShapeError(f"the tables have {rows} rows for a sequence of {seq}")
        return x

    def _check_features(self, x: TensorType) -> None:
        rotated = 2 * self.pairs
        if self.head_dim % 2 or rotated > self.head_dim or (self.n_rot is not None and self.n_rot % 2):
            raise ShapeError(f"n_rot {self.n_rot} must be even and at most head_dim {self.head_dim}, which is even")
        expect_rank("x", x, 3 if self.layout == "bsd" else 4, 3 if self.layout == "bsd" else 4)
        features = x.shape[-1]
        is_valid = (
            require("divides", self.head_dim, features)
            if self.layout == "bsd"
            else require("==", features, self.head_dim)
        )
        if not is_valid:
            raise ShapeError(f"{features} features are not heads of {self.head_dim} ({x}, layout {self.layout})")

    def _batch_and_seq(self, x: TensorType) -> tuple[Dim, Dim]:
        return x.shape[0], x.shape[2 if self.layout == "bhsd" else 1]

    def _heads_shape(self, x: TensorType) -> Shape:
        """Return the dims of x with separate axes of heads and features."""
        return (
            (*x.shape[:2], exact_quotient(x.shape[2], self.head_dim), self.head_dim)
            if self.layout == "bsd"
            else x.shape
        )

    def _angles(self, table: Value, x: Value, positions: Value | None) -> Value:
        """Return the used part of a table, in a shape that broadcasts against half the rotated features."""
        batch, seq = self._batch_and_seq(x.type)
        used = narrow(wide(table), axis=1, start=0, length=self.pairs)
        if positions is not None:
            rows, lead = gather(used, positions, axis=0), batch
        else:
            rows, lead = narrow(used, axis=0, start=0, length=seq), 1
        heads_last = (lead, 1, seq, self.pairs) if self.layout == "bhsd" else (lead, seq, 1, self.pairs)
        return reshape(rows, heads_last)

    def _halves(self, x: Value) -> tuple[Value, Value, Value | None]:
        """Return the first and second features of every pair, and the features that are not rotated."""
        split = wide(reshaped(x, self._heads_shape(x.type)))
        n = self.pairs
        if self.style == "half":
            first = narrow(split, axis=3, start=0, length=n)
            second = narrow(split, axis=3, start=n, length=n)
        else:
            first = narrow(split, axis=3, start=0, length=n, step=2)
            second = narrow(split, axis=3, start=1, length=n, step=2)
        passthrough = self.head_dim - 2 * n
        return first, second, narrow(split, axis=3, start=2 * n, length=passthrough) if passthrough else None

    def _joined(self, first: Value, second: Value, passthrough: Value | None, like: Value) -> Value:
        if self.style == "half":
            parts = [first, second]
        else:
            paired = concat([reshape(v, (*v.shape, 1)) for v in (first, second)], axis=4)
            parts = [reshape(paired, (*first.shape[:3], 2 * self.pairs))]
        y = (
            concat([*parts, passthrough], axis=3)
            if passthrough is not None
            else concat(parts, axis=3)
            if parts[1:]
            else parts[0]
        )
        return as_dtype(reshaped(y, like.shape), like.dtype)

    def _rotated(self, x: Value, cos: Value, sin: Value, positions: Value | None) -> Value:
        first, second, passthrough = self._halves(x)
        c, s = self._angles(cos, x, positions), self._angles(sin, x, positions)
        return self._joined(first * c - second * s, second * c + first * s, passthrough, x)

    def batch(self, size: Dim, x: Sequence[Any], is_batched: Sequence[bool]) -> Value:
        data, cos, sin, positions = operands_of(x, 4)
        if is_batched[1] or is_batched[2]:
            return self._rotated_with_own_tables(size, [data, cos, sin, positions], is_batched)
        data = data if is_batched[0] else expand(data, (size, *data.shape))
        if positions is not None:
            positions = positions if is_batched[3] else expand(positions, (size, *positions.shape))
            positions = reshape(positions, (size * positions.shape[1], *positions.shape[2:]))
        rows = reshape(data, (size * data.shape[1], *data.shape[2:]))
        return reshape(self(rows, cos, sin, positions), data.shape)

    def _rotated_with_own_tables(self, size: Dim, x: Sequence[Any], is_batched: Sequence[bool]) -> Value:
        """Return the batched op: tables are stacked to one table, and every example reads its own rows through positions."""
        data, cos, sin, positions = x
        flags = [*is_batched, *(False,) * (4 - len(is_batched))]
        data = data if flags[0] else expand(data, (size, *data.shape))
        tables = [v if b else expand(v, (size, *v.shape)) for v, b in zip((cos, sin), flags[1:3], strict=True)]
        rows = tables[0].shape[1]
        unbatched = data.type.with_shape(data.shape[1:])
        batch, seq = self._batch_and_seq(unbatched)
        own_positions = (
            expand(iota(axis=0, shape=(seq,)), (batch, seq)) if positions is None else as_dtype(positions, i64)
        )
        if not flags[3]:
            own_positions = expand(own_positions, (size, batch, seq))
        first_row = iota(axis=0, shape=(size, 1, 1)) * as_dtype(dim_value(size=rows), i64)
        stacked = [reshape(t, (size * rows, self.head_dim // 2)) for t in tables]
        folded = reshape(data, (size * batch, *unbatched.shape[1:]))
        return reshape(self(folded, *stacked, reshape(own_positions + first_row, (size * batch, seq))), data.shape)


def rope_samples() -> Iterator[Sample | Rejected]:
    """Yield samples of `Rope` and its inverse: every layout, both styles, partial rotation, positions."""
    for d in FLOATS:
        yield Sample(f"{d}[2, 3, 8]", f"{d}[5, 2]", f"{d}[5, 2]", head_dim=4)
    yield Sample("bf16[2, 3, 8]", "f32[3, 2]", "f32[3, 2]", head_dim=4)
    # Equal numbers of heads and positions: a layout guessed from sizes would be wrong.
    yield Sample("f32[2, 3, 3, 4]", "f32[3, 2]", "f32[3, 2]", head_dim=4, layout="bshd")
    yield Sample("f32[2, 3, 3, 4]", "f32[3, 2]", "f32[3, 2]", head_dim=4, layout="bhsd")
    yield Sample("f64[1, 2, 3, 6]", "f64[4, 3]", "f64[4, 3]", head_dim=6, n_rot=4, layout="bhsd")
    yield Sample("f64[1, 3, 12]", "f64[4, 3]", "f64[4, 3]", head_dim=6, n_rot=2, style="interleaved")
    yield Sample("f32[2, 3, 8]", "f32[5, 2]", "f32[5, 2]", "i32[2, 3]", head_dim=4, ranges={"positions": (0, 4)})
    yield Sample("f64[2, 1, 3, 4]", "f64[5, 2]", "f64[5, 2]", "i64[2, 3]", head_dim=4, layout="bhsd",
                 style="interleaved", ranges={"positions": (0, 4)})  # fmt: skip
    yield Rejected(
        "f32[2, 3, 8]", "f32[2, 2]", "f32[2, 2]", head_dim=4, error=ShapeError, says="2 rows for a sequence of 3"
    )
    yield Rejected("f32[2, 3, 6]", "f32[3, 2]", "f32[3, 2]", head_dim=4, error=ShapeError, says="heads of 4")
    yield Rejected("f32[2, 3, 8]", "f32[3, 4]", "f32[3, 4]", head_dim=4, error=ShapeError, says="cos must be [3, 2]")
    yield Rejected("f32[2, 3, 8]", "f32[3, 2]", "f32[3, 2]", head_dim=4, n_rot=6, error=ShapeError, says="n_rot 6")
    yield Rejected("f32[2, 3, 8]", "f32[3, 2]", "f32[3, 2]", head_dim=4, layout="bshd", error=ShapeError, says="4 axes")
    yield Rejected("i32[2, 3, 8]", "f32[3, 2]", "f32[3, 2]", head_dim=4, error=DtypeError, says="x must be float")


@define_op
class Rope(Rotation):
    """Rotate each pair of features `(x1, x2)` of each head by the angle of its position.

    `y1 = x1·cos - x2·sin`, `y2 = x2·cos + x1·sin`; features from `n_rot` on are copied.

    Shapes:
        x: [b, s, heads·head_dim], [b, s, h, d] or [b, h, s, d]    cos, sin: [rows, head_dim/2]    positions?: [b, s]

    Attributes:
        head_dim: Features of one head.
        n_rot: The number of features that are rotated; all by default. Tables keep `head_dim/2` columns, of which the first are
            used.
        layout: `bsd`, `bshd` or `bhsd`; never guessed from sizes.
        style: `half` pairs feature i with i + n_rot/2, `interleaved` pairs 2i with 2i + 1.

    Source:
        Su et al. 2021, "RoFormer", arXiv:2104.09864, section 3.4.2.
    """

    head_dim: int = field(validator=whole(2))
    n_rot: int | None = field(default=None, validator=whole(0, optional=True))
    layout: RopeLayout = "bsd"
    style: RopeStyle = "half"

    def decompose(self, x: Value, cos: Value, sin: Value, positions: Value | None = None) -> Value:
        return self._rotated(x, cos, sin, positions)

    def vjp(
        self, g: Value, x: Value, cos: Value, sin: Value, positions: Value | None = None, *, y: Value
    ) -> tuple[Value | Zero, ...]:
        dx = rope_backward(g, cos, sin, positions, **self.attributes())
        return (dx, *self._table_cotangents(g, x, cos, sin, positions), ZERO)

    def jvp(
        self, t: Sequence[Any], x: Value, cos: Value, sin: Value, positions: Value | None = None, *, y: Value
    ) -> Value | Zero:
        t_x, t_cos, t_sin = t[:3]
        terms: list[Value] = [] if isinstance(t_x, Zero) else [self(t_x, cos, sin, positions)]
        if not (isinstance(t_cos, Zero) and isinstance(t_sin, Zero)):
            first, second, passthrough = self._halves(x)
            c, s = (None if isinstance(v, Zero) else self._angles(v, x, positions) for v in (t_cos, t_sin))
            rotated = (
                combine(product_or_none(first, c), product_or_none(second, s), -1),
                combine(product_or_none(second, c), product_or_none(first, s), 1),
            )
            terms.append(self._joined(*rotated, None if passthrough is None else passthrough * 0, x))
        return ZERO if not terms else terms[0] if len(terms) == 1 else terms[0] + terms[1]

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        return rope_samples()

    def _table_cotangents(
        self, g: Value, x: Value, cos: Value, sin: Value, positions: Value | None
    ) -> tuple[Value, Value]:
        """Return `dcos = Σ(g1·x1 + g2·x2)`, `dsin = Σ(g2·x1 - g1·x2)` over heads, accumulated in the rows that were read."""
        (x1, x2, _), (g1, g2, _) = self._halves(x), self._halves(g)
        heads_axis = 1 if self.layout == "bhsd" else 2
        cotangents = []
        for per_head, table in ((g1 * x1 + g2 * x2, cos), (g2 * x1 - g1 * x2, sin)):
            per_position = sum_axes(per_head, axes=(heads_axis,))
            if positions is None:
                rows = sum_axes(per_position, axes=(0,))
                rows = pad_axis(rows, 0, 0, table.shape[0] - rows.shape[0])
            else:
                rows = scatter_add(per_position, positions, axis=0, size=table.shape[0])
            unused = self.head_dim // 2 - self.pairs
            cotangents.append(as_dtype(pad_axis(rows, 1, 0, unused), table.dtype))
        return cotangents[0], cotangents[1]


rope = op_function(Rope)


def product_or_none(x: Value, factor: Value | None) -> Value | None:
    """Return a term of a tangent, or `None` if the factor's tangent is zero."""
    return None if factor is None else x * factor


def combine(a: Value | None, b: Value | None, sign: int) -> Value:
    """Return `a + sign·b` of two terms, at least one of which is present."""
    if b is None:
        assert a is not None
        return a
    signed = b if sign == 1 else -b
    return signed if a is None else a + signed


@define_op
class RopeBackward(Rotation):
    """The inverse rotation: the cotangent of x in `Rope`, from the cotangent of its result.

    `dx1 = dy1·cos + dy2·sin`, `dx2 = dy2·cos - dy1·sin`.
    """

    head_dim: int = field(validator=whole(2))
    n_rot: int | None = field(default=None, validator=whole(0, optional=True))
    layout: RopeLayout = "bsd"
    style: RopeStyle = "half"

    def decompose(self, x: Value, cos: Value, sin: Value, positions: Value | None = None) -> Value:
        return rope(x, cos, -sin, positions, **self.attributes())

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        return rope_samples()


rope_backward = op_function(RopeBackward)
