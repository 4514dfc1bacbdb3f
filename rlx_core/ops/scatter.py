"""Writes at indices into a tensor: overwrite, add, multiply, or keep the larger or the smaller.

Overwriting is linear with a fixed selection: the last update at an index wins, in index order. The extremes share the
derivative evenly among all that attain the result, like every other tie.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np

from rlx_core.errors import ConfigError, DtypeError, ShapeError
from rlx_core.ir.apply import op_function
from rlx_core.ir.dims import Dim, product
from rlx_core.ir.dtypes import ALL, FLOATS, INTEGERS, i64
from rlx_core.ir.graph import Value
from rlx_core.ir.op import ZERO, Zero, define_op
from rlx_core.ir.types import TensorType, expect_dtype_of, expect_shape, normalize_axis
from rlx_core.ops.conversion import cast
from rlx_core.ops.creation import full, iota, tangent_or_zeros, zeros_like
from rlx_core.ops.indexing import Indexed, OutOfBounds, checked_indices, gather, scatter_add, write_cells
from rlx_core.ops.kinds import conjugate_if_complex, promoted
from rlx_core.ops.samples import Rejected, Sample
from rlx_core.ops.selection import where
from rlx_core.ops.structural import expand, reshape

ScatterMode = Literal["set", "add", "mul", "max", "min"]
_COMBINE: dict[str, np.ufunc | None] = {
    "set": None,
    "add": np.add,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}


@define_op
class Scatter(Indexed):
    """`x` with updates written at indices of one axis; all other elements are unchanged.

    Shapes:
        x: [b.., o.., n, ..]    updates: [b.., o.., i.., ..]    indices: [b.., i..]    ->    y: dims of x

    Attributes:
        mode: "set" (the last update wins, in index order), "add", "mul", "max" or "min" (with the existing element).
        axis, batch_dims, oob: As for `Gather`; "fill" writes nothing outside.

    Raises:
        ShapeError, DtypeError: The updates do not have the dims that a gather at these indices reads, or the dtype of x.
    """

    mode: ScatterMode = "set"
    axis: int = 0
    batch_dims: int = 0
    oob: OutOfBounds = "error"

    def infer(self, x: TensorType, updates: TensorType, indices: TensorType) -> TensorType:
        expect_dtype_of("updates", updates, "x", x)
        if self.mode in ("add", "mul") and not x.dtype.is_numeric:
            raise DtypeError(f"mode {self.mode} takes numbers, not bool")
        if self.mode in ("max", "min") and not x.dtype.is_real:
            raise DtypeError(f"mode {self.mode} takes real numbers, not {x.dtype}")
        expect_shape("updates", updates, self._read_shape(x, indices))
        return x

    def prepare(self, x: Value, updates: Value, indices: Value) -> tuple[Value | None, ...]:
        return (*promoted(x, updates), indices)

    def reference(self, x: np.ndarray, updates: np.ndarray, indices: np.ndarray) -> np.ndarray:
        axis = normalize_axis(self.axis, x.ndim)
        safe, inside = checked_indices("scatter", indices, x.shape[axis], self.oob)
        out = np.array(x, order="C")
        write_cells(_COMBINE[self.mode], out, updates, safe, inside | (self.oob != "fill"), axis, self.batch_dims)
        return out

    def _gather(self, table: Value, indices: Value) -> Value:
        return gather(table, indices, axis=self.axis, batch_dims=self.batch_dims, oob=self.oob)

    def _scatter_add(self, updates: Value, indices: Value, x: Value) -> Value:
        axis = normalize_axis(self.axis, x.ndim)
        return scatter_add(updates, indices, axis=axis, batch_dims=self.batch_dims, size=x.shape[axis], oob=self.oob)

    def _is_last(self, x: Value, indices: Value) -> Value:
        """Return which updates were not overwritten, as a condition that broadcasts against the updates."""
        batch, axis = self.batch_dims, normalize_axis(self.axis, x.ndim)
        index_shape = indices.shape[batch:]
        order = reshape(iota(axis=0, shape=(product(index_shape),)), index_shape)
        order = order if batch == 0 else expand(order, indices.shape)
        none = full((*x.shape[:batch], x.shape[axis]), -1, i64)
        writer = Scatter("set", batch, batch, self.oob)(none, order, indices)
        is_last = gather(writer, indices, axis=batch, batch_dims=batch, oob=self.oob, fill=-1) == order
        return reshape(is_last, (*x.shape[:batch], *(1,) * (axis - batch), *index_shape, *(1,) * (x.ndim - axis - 1)))

    def _shares(self, x: Value, updates: Value, indices: Value, y: Value) -> tuple[Value, Value, Value]:
        """Return which elements and which updates attain the result, and the number of both at each element."""
        stays, wins = x == y, updates == self._gather(y, indices)
        count = cast(stays, to=x.dtype) + self._scatter_add(cast(wins, to=x.dtype), indices, x)
        # Where no element equals the result it is NaN, and so are its derivatives.
        return stays, wins, count

    def _others(self, x: Value, updates: Value, indices: Value) -> Value:
        """Return for each update the product of all other factors of its element: that of all nonzero ones over the update.

        If two updates of one element are 0, its mixed derivative by both of them is lost; everything else is correct.
        """
        is_zero = updates == 0
        zeros = self._gather(self._scatter_add(cast(is_zero, to=x.dtype), indices, x), indices)
        without = where(is_zero, 1, updates)
        products = self._gather(self(x, without, indices), indices)
        # 1 if no update is 0, and otherwise 0: as a product it has derivatives.
        vanishing = self._gather(self(full(x.shape, 1, x.dtype), where(is_zero, updates, 1), indices), indices)
        return where(is_zero, where(zeros == 1, products, 0), products / without * vanishing)

    def vjp(self, g: Value, x: Value, updates: Value, indices: Value, *, y: Value) -> tuple[Value | Zero, ...]:
        if self.mode == "add":
            return g, self._gather(g, indices), ZERO
        if self.mode == "set":
            retained = Scatter("set", self.axis, self.batch_dims, self.oob)(g, zeros_like(updates), indices)
            return retained, where(self._is_last(x, indices), self._gather(g, indices), 0), ZERO
        if self.mode == "mul":
            of_updates = self._gather(g, indices) * conjugate_if_complex(self._others(x, updates, indices))
            return self(g, conjugate_if_complex(updates), indices), of_updates, ZERO
        stays, wins, count = self._shares(x, updates, indices, y)
        share = g / count
        return where(stays, share, 0), where(wins, self._gather(share, indices), 0), ZERO

    def jvp(self, t: Sequence[Any], x: Value, updates: Value, indices: Value, *, y: Value) -> Value | Zero:
        t_x, t_updates = tangent_or_zeros(t[0], x), tangent_or_zeros(t[1], updates)
        if self.mode in ("set", "add"):
            return self(t_x, t_updates, indices)
        if self.mode == "mul":
            added = self._scatter_add(t_updates * self._others(x, updates, indices), indices, x)
            return self(t_x, updates, indices) + added
        stays, wins, count = self._shares(x, updates, indices, y)
        return (where(stays, t_x, 0) + self._scatter_add(where(wins, t_updates, 0), indices, x)) / count

    def cost(self, x: TensorType, updates: TensorType, indices: TensorType) -> Dim:
        return updates.size

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        ids = {"indices": (0, 3)}
        for d in ALL:
            yield Sample(f"{d}[4, 3]", f"{d}[2, 5, 3]", "i64[2, 5]", ranges=ids)
        for mode in ("add", "mul", "max", "min"):
            for d in (*FLOATS, *INTEGERS):
                yield Sample(f"{d}[4, 2]", f"{d}[6, 2]", "i32[6]", mode=mode, ranges=ids)
        for mode in ("add", "mul"):
            yield Sample("c64[4]", "c64[6]", "i32[6]", mode=mode, ranges=ids)
        yield Sample("f64[3]", "f64[5]", "i32[5]", mode="mul", make=with_zeros)
        for mode in ("set", "add", "mul", "max", "min"):
            for axis in (0, 1, 2, 3):
                shape = [4, 5, 6, 7]
                shape[axis] = 3
                dims = ", ".join(map(str, shape))
                yield Sample("f32[4, 5, 6, 7]", f"f32[{dims}]", "u8[3]", mode=mode, axis=axis, ranges=ids)
            yield Sample("f32[2, 4, 3]", "f32[2, 5, 3]", "i64[2, 5]", mode=mode, axis=1, batch_dims=1, ranges=ids)
            yield Sample("f32[2, 3, 4]", "f32[2, 3, 5]", "i64[2, 5]", mode=mode, axis=-1, batch_dims=1, ranges=ids)
            yield Sample("f32[4]", "f32[7]", "i64[7]", mode=mode, oob="clip", ranges={"indices": (-3, 6)})
            yield Sample("f32[4, 2]", "f32[7, 2]", "i64[7]", mode=mode, oob="fill", ranges={"indices": (-3, 6)})
            yield Sample("f32[4]", "f32[]", "i64[]", mode=mode, ranges=ids)
            yield Sample("f32[4, 2]", "f32[0, 2]", "i64[0]", mode=mode)
        yield Rejected("f32[4]", "f32[3]", "i64[2]", error=ShapeError, says="updates must be [2]")
        yield Rejected("c64[4]", "c64[2]", "i64[2]", mode="max", error=DtypeError, says="real")
        yield Rejected("bool[4]", "bool[2]", "i64[2]", mode="add", error=DtypeError, says="not bool")
        yield Rejected("f32[4]", "f32[2]", "i64[2]", mode="prod", error=ConfigError, says="not 'prod'")


def with_zeros(rng: np.random.Generator) -> list[np.ndarray]:
    """Return elements that are multiplied by a zero, other numbers and both."""
    return [rng.uniform(1, 2, 3), np.array([0.0, 2.0, 3.0, 0.0, 0.5]), np.array([0, 0, 1, 2, 1], np.int32)]


scatter = op_function(Scatter)
