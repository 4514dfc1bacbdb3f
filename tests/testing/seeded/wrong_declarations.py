"""Ops that declare what is not so."""

from __future__ import annotations

import numpy as np

from rlx_core.errors import ShapeError
from rlx_core.ir.dims import Expr
from rlx_core.ir.dtypes import FLOATS
from rlx_core.ir.op import Op
from rlx_core.ir.strides import dense_strides
from rlx_core.ir.types import TensorType, broadcast_shapes, expect_dtype, expect_rank
from rlx_core.ops.samples import Sample
from seeded.seeds import Blend, Seeds, Square

SEEDS = Seeds()
COMMUTES = "commutative_op_is_the_same_either_way"
COST = "cost_is_a_finite_number"
PLACE = "elementwise_op_computes_each_element_from_those_at_its_place"
VIEW = "view_is_what_the_reference_computes"
PARTS = "parts_are_where_the_reference_puts_the_operands"


class Plain(Op):
    """A primitive of one operand, of which only the meaning is asked."""

    def infer(self, x):
        expect_dtype("x", x, FLOATS, "a float")
        return x

    @classmethod
    def samples(cls):
        yield Sample("f32[3, 2]")


# --------------------------------------------------------------------------------------- commutativity


@SEEDS.op(COMMUTES, "declares is_commutative.* are not equal")
class Minus(Blend):
    is_commutative = True
    decompose = vjp = jvp = None

    def reference(self, a, b):
        return a - b


@SEEDS.op(COMMUTES, "but not")
class BroadcastsOneWayOnly(Blend):
    """a + b, where only b may have fewer axes."""

    is_commutative = True
    decompose = vjp = jvp = None

    def infer(self, a, b):
        expect_dtype("b", b, (a.dtype,))
        if broadcast_shapes(a.shape, b.shape) != a.shape:
            raise ShapeError("b does not broadcast to a")
        return a

    def reference(self, a, b):
        return a + b


@SEEDS.op(COMMUTES, r"gives f.* but")
class DtypeOfTheFirst(Blend):
    """a + b in the dtype of a."""

    is_commutative = True
    decompose = vjp = jvp = None

    def infer(self, a, b):
        expect_dtype("a", a, FLOATS, "a float")
        expect_dtype("b", b, FLOATS, "a float")
        return TensorType(a.dtype, broadcast_shapes(a.shape, b.shape))

    def reference(self, a, b):
        return (a + b).astype(a.dtype)


@SEEDS.op(COMMUTES, "are not equal")
class AlmostCommutes(Blend):
    is_commutative = True
    decompose = vjp = jvp = None

    def reference(self, a, b):
        return a * 1.000001 + b


@SEEDS.op(COMMUTES, "are not equal")
class CommutesForLikeShapesOnly(Blend):
    """The smaller operand counts twice where they are unlike and it comes second."""

    is_commutative = True
    decompose = vjp = jvp = None

    def reference(self, a, b):
        return a + b if a.shape == b.shape else a + (2 if b.size < a.size else 1) * b


# ------------------------------------------------------------------------------------------------ cost


@SEEDS.op(COST, "not a finite number")
class CostsNothingThatIsANumber(Square):
    def cost(self, x):
        return float("nan")


@SEEDS.op(COST, "not a finite number of at least 0")
class CostsLessThanNothing(Square):
    def cost(self, x):
        return -x.size


@SEEDS.op(COST, "not a number of floating-point operations")
class CostsALot(Square):
    def cost(self, x):
        return "a lot"


@SEEDS.op(COST, "not a finite number")
class CostsInfinitelyMuch(Square):
    def cost(self, x):
        return float("inf")


@SEEDS.op(COST, "with symbols for sizes")
class CostsOneForSymbols(Square):
    def cost(self, x):
        return 1 if isinstance(x.size, Expr) else x.size


# -------------------------------------------------------------------------------------------- category


@SEEDS.op(PLACE, "at other places")
class AddsUpAsItGoes(Plain):
    category = "elementwise"

    def reference(self, x):
        return np.cumsum(x, axis=-1) if x.ndim else x.copy()


@SEEDS.op(PLACE, "at other places")
class TurnsRound(Plain):
    category = "elementwise"

    def reference(self, x):
        return np.flip(x).copy()


@SEEDS.op(PLACE, "does not broadcast")
class SumsUp(Plain):
    category = "elementwise"

    def infer(self, x):
        return TensorType(x.dtype, (5,))

    def reference(self, x):
        return np.full(5, x.sum(), x.dtype)


# ----------------------------------------------------------------------------------------------- views


class FirstRows(Plain):
    """x without its first row, which is a view of it."""

    category = "movement"

    def infer(self, x):
        expect_rank("x", x, 1)
        if x.shape[0] == 0:
            raise ShapeError("there is no first row")
        return x.with_shape((x.shape[0] - 1, *x.shape[1:]))

    def reference(self, x):
        return x[1:]

    def view(self, x, strides, offset):
        return offset + strides[0], strides


@SEEDS.op(VIEW, "elements differ")
class StartsAtTheFirstRow(FirstRows):
    def view(self, x, strides, offset):
        return offset, strides


@SEEDS.op(VIEW, "elements differ|offset")
class TakesEveryOperandForDense(FirstRows):
    def view(self, x, strides, offset):
        dense = dense_strides(x)
        return offset + dense[0], dense


@SEEDS.op(VIEW, "offset")
class LooksPastTheEnd(FirstRows):
    def view(self, x, strides, offset):
        return offset + 2 * strides[0], strides


@SEEDS.op(PARTS, "elements differ")
class SwapsItsParts(Op):
    """Two vectors one after the other."""

    category = "movement"

    def infer(self, a, b):
        if a.rank != 1 or b != a or a.dtype not in FLOATS:
            raise ShapeError("two vectors of one type")
        return a.with_shape((a.shape[0] + b.shape[0],))

    def reference(self, a, b):
        return np.concatenate([a, b])

    def parts(self, a, b):
        return (b.nbytes, (a.dtype.itemsize,)), (0, (b.dtype.itemsize,))

    @classmethod
    def samples(cls):
        yield Sample("f32[3]", "f32[3]")
