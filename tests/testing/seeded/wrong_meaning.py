"""Ops whose types, references, decompositions or batching are wrong."""

from __future__ import annotations

import itertools

import numpy as np
from attrs import field

from rlx_core.errors import DtypeError, ShapeError
from rlx_core.ir.dims import Expr
from rlx_core.ir.dtypes import FLOATS, bf16, f16, f32
from rlx_core.ir.op import Op
from rlx_core.ir.types import broadcast_shapes, expect_dtype, expect_rank
from rlx_core.ops import full, sum
from rlx_core.ops.arithmetic import multiply
from rlx_core.ops.movement import flip
from rlx_core.ops.samples import Rejected, Sample
from seeded.seeds import Blend, Seeds, Square, Total

SEEDS = Seeds()
TYPES = "inferred_type_is_the_type_computed"
TYPED = "what_an_op_does_not_take_it_refuses_with_a_typed_error"
ALONE = "reference_leaves_its_operands_alone"
DECOMPOSITION = "decomposition_means_the_same"
LOOPS = "loop_form_means_the_same"
SYMBOLS = "symbolic_sizes_mean_the_same"
DTYPES = "rules_are_the_same_in_every_dtype"
VMAP = "vmap_agrees_with_a_loop"
NEGATIVE = "negative_axis_means_the_same"
REJECTS = "rejection_says_what_it_promised"


def numbers(dim):
    """1 for a symbol: what an author writes who has never met one."""
    return 1 if isinstance(dim, Expr) else dim


# ------------------------------------------------------------------------------------------------ types


@SEEDS.op(TYPES, r"infer says|declared is")
class DropsAnAxis(Square):
    """Infers a dim too few."""

    decompose = None

    def infer(self, x):
        return x.with_shape(x.shape[1:])


@SEEDS.op(TYPES, "the reference gives c64, declared is f32")
class LeavesTheReals(Square):
    """Its reference is complex."""

    def reference(self, x):
        return x * x + 0j


@SEEDS.op(TYPES, "digits are lost")
class AlwaysSingle(Square):
    """Declares f32 for f64 operands too."""

    decompose = None

    def infer(self, x):
        expect_dtype("x", x, FLOATS, "a float")
        return x.with_dtype(f32)


@SEEDS.op(TYPES, "the reference gives bool, declared is f32")
class AnswersYesOrNo(Square):
    """A comparison that declares the dtype of its operand."""

    decompose = vjp = jvp = None

    def reference(self, x):
        return x > 0


@SEEDS.op(TYPES, r"the reference gives f64, declared is i32")
class RootOfIntegers(Square):
    """Takes integers, of which the root is none."""

    decompose = vjp = jvp = None

    def infer(self, x):
        return x

    def reference(self, x):
        return np.sqrt(np.abs(x))


@SEEDS.op(TYPES, r"the reference gives|infer says")
class TurnsRoundInTheTypeOnly(Square):
    """Infers the transposed type."""

    decompose = None

    def infer(self, x):
        return x.with_shape(x.shape[::-1])


@SEEDS.op(TYPES, r"the reference gives|infer says")
class TypeOfTheFirst(Blend):
    """Infers the first operand's shape, though the second may have more axes."""

    decompose = None

    def infer(self, a, b):
        broadcast_shapes(a.shape, b.shape)
        expect_dtype("b", b, (a.dtype,))
        return a


@SEEDS.op(SYMBOLS, "a size was taken for a number")
class OneForASymbol(Square):
    """Infers 1 for a symbolic size."""

    decompose = None

    def infer(self, x):
        return x.with_shape(map(numbers, x.shape))


@SEEDS.op(SYMBOLS, "a size was taken for a number")
class RemembersASize(Square):
    """Infers the size of its sample for a symbol."""

    decompose = None

    def infer(self, x):
        return x.with_shape((3 if isinstance(x.shape[0], Expr) else x.shape[0], *x.shape[1:]) if x.rank else ())


# ------------------------------------------------------------------------------------------- refusals


@SEEDS.op(TYPED, "raises ValueError: no halves")
class RefusesWithAValueError(Square):
    def infer(self, x):
        if x.dtype is f16:
            raise ValueError("no halves")
        return x


@SEEDS.op(TYPED, "raises IndexError")
class NeedsTwoAxes(Square):
    """Reads an axis that need not be there."""

    def infer(self, x):
        assert isinstance(x.shape[1], int | Expr)
        return x


@SEEDS.op(TYPED, "raises AssertionError")
class AssertsThatThereIsSomething(Square):
    def infer(self, x):
        assert 0 not in x.shape
        return x


@SEEDS.op(TYPED, "raises ValueError: zero-size array")
class LargestOfNothing(Square):
    """The reference has no answer for no elements, and infer takes them."""

    decompose = vjp = jvp = None
    category = "compute"

    def reference(self, x):
        return x / np.max(x)


@SEEDS.op(TYPED, "raises ValueError: cannot reshape")
class TakesMoreThanItCanDo(Blend):
    """Infer broadcasts, and the reference does not."""

    decompose = None

    def reference(self, a, b):
        return a + 3 * b.reshape(a.shape)


@SEEDS.op(REJECTS, "is accepted")
class Lenient(Square):
    @classmethod
    def samples(cls):
        yield Sample("f32[2]")
        yield Rejected("f32[2]", error=ShapeError, says="two axes")


@SEEDS.op(REJECTS, "raises DtypeError")
class RefusesWithAnother(Square):
    @classmethod
    def samples(cls):
        yield Sample("f32[2]")
        yield Rejected("i32[2]", error=ShapeError, says="a float")


@SEEDS.op(REJECTS, "says")
class RefusesInOtherWords(Square):
    @classmethod
    def samples(cls):
        yield Sample("f32[2]")
        yield Rejected("i32[2]", error=DtypeError, says="a colour")


@SEEDS.op("op_has_samples", r"(?s)has no samples.*def samples\(cls\)")
class WithoutSamples(Square):
    samples = None


@SEEDS.op("op_has_samples", "has no samples")
class OnlyRefusals(Square):
    @classmethod
    def samples(cls):
        yield Rejected("i32[2]", error=DtypeError)


# ------------------------------------------------------------------------------------------ references


@SEEDS.op(ALONE, "returns an operand")
class HandsItBack(Square):
    """The identity, by returning the operand itself."""

    decompose = vjp = jvp = None

    def reference(self, x):
        return x


@SEEDS.op(ALONE, "or a view of one")
class HandsBackAPart(Square):
    decompose = vjp = jvp = batch = None
    category = "compute"

    def infer(self, x):
        expect_dtype("x", x, FLOATS, "a float")
        return x.with_shape(x.shape[::-1])

    def reference(self, x):
        return x.T


@SEEDS.op(ALONE, "overwrites operand 0")
class SquaresInPlace(Square):
    def reference(self, x):
        x *= x
        return x.copy()


@SEEDS.op(ALONE, "the second time")
class NeverTheSame(Square):
    count = itertools.count()

    def reference(self, x):
        return x * x * (1 + 1e-15 * next(self.count)) + next(self.count)


@SEEDS.op("typed_result_is_close_to_the_float64_oracle", "differs from the float64 oracle")
class Rough(Square):
    """Its reference keeps three digits of f32 results, and all of f64 ones."""

    def reference(self, x):
        return (x * x).astype(np.float16) if x.dtype == np.float32 else x * x


@SEEDS.op("typed_result_is_close_to_the_float64_oracle", "differs from the float64 oracle")
class WrongInSingle(Square):
    """Right in f64, and another function in f32."""

    decompose = None

    def reference(self, x):
        return x * x + (x.dtype == np.float32)


# -------------------------------------------------------------------------------------- decompositions


@SEEDS.op(DECOMPOSITION, "means something else than the reference")
class OtherMeaning(Square):
    def decompose(self, x):
        return multiply(x, x) * 1.001


@SEEDS.op(DECOMPOSITION, "means something else than the reference")
class SecondAxisForTheLast(Total):
    """Axis 1 is the last one only of its sample."""

    def infer(self, x):
        expect_dtype("x", x, FLOATS, "a float")
        expect_rank("x", x, 1)
        return x.with_shape(x.shape[:-1])

    def reference(self, x):
        return np.sum(x, axis=-1)

    def decompose(self, x):
        return sum(x, axis=min(1, x.ndim - 1))

    @classmethod
    def samples(cls):
        yield Sample("f32[3, 2]")


@SEEDS.op(DECOMPOSITION, "means something else than the reference")
class DividesByTheSamplesSize(Total):
    """A mean that divides by 3, whatever the size."""

    def reference(self, x):
        return np.sum(x, axis=self.axis) / max(x.shape[self.axis], 1)

    def decompose(self, x):
        return sum(x, axis=self.axis) * (1 / 3)

    @classmethod
    def samples(cls):
        yield Sample("f32[3, 2]", axis=0)


@SEEDS.op(DECOMPOSITION, "means something else than the reference")
class OneForNothing(Total):
    """The sum of nothing is 1."""

    def decompose(self, x):
        return full((x.shape[1],), 1.0, dtype=x.dtype) if x.shape[0] == 0 and x.ndim == 2 else sum(x, axis=self.axis)

    @classmethod
    def samples(cls):
        yield Sample("f32[3, 2]", axis=0)


@SEEDS.op(DTYPES, "the meaning in f16")
class OtherMeaningInHalves(Square):
    reference = vjp = jvp = None

    def decompose(self, x):
        return multiply(x, x) * (0.5 if x.dtype is f16 else 1.0)


@SEEDS.op(SYMBOLS, "the decomposition with symbols")
class DecomposesSymbolsToOnes(Square):
    def decompose(self, x):
        is_known = all(isinstance(d, int) for d in x.shape)
        return multiply(x, x) * (1.0 if is_known else 2.0)


@SEEDS.op(LOOPS, "differs from the float64 oracle")
class OtherLoops(Square):
    """Its form in loops is something else."""

    decompose = None

    def loop_form(self, x):
        return multiply(x, 2.0)


@SEEDS.op(LOOPS, r"is f32\[2\], not f32\[3, 2\]")
class LoopsDropAnAxis(Square):
    """Its form in loops is of another type."""

    decompose = None

    def loop_form(self, x):
        return sum(x, axis=0)


# --------------------------------------------------------------------------------------------- batching


@SEEDS.op(VMAP, "differs from a loop over the examples")
class MixesExamples(Square):
    def batch(self, size, x, is_batched):
        return multiply(x[0], flip(x[0], axes=(0,)))


@SEEDS.op(VMAP, "differs from a loop over the examples|must give")
class ForgetsTheNewAxis(Total):
    """The axis is one further right in a batch. That of three examples of three rows has the right shape."""

    def batch(self, size, x, is_batched):
        return self(x[0])

    @classmethod
    def samples(cls):
        yield Sample("f32[3, 2]", axis=0)


@SEEDS.op(VMAP, "must give")
class BatchOfAnotherShape(Square):
    def batch(self, size, x, is_batched):
        return sum(x[0], axis=0)


@SEEDS.op(VMAP, r"(?i)differs from a loop|must give|broadcast")
class TakesAllForBatched(Blend):
    """Lines up axes as if every operand had the new one."""

    def batch(self, size, x, is_batched):
        return x[0][0:size] + 3.0 * x[1] * (1.0 if all(is_batched) else 2.0)


@SEEDS.op(DTYPES, "the batch rule in bf16")
class OtherBatchInBrainFloats(Square):
    def batch(self, size, x, is_batched):
        return self(x[0]) * (2.0 if x[0].dtype is bf16 else 1.0)


@SEEDS.op(SYMBOLS, "the batch rule with symbols")
class OtherBatchWithSymbols(Square):
    def batch(self, size, x, is_batched):
        return self(x[0]) * (1.0 if all(isinstance(d, int) for d in x[0].shape) else 2.0)


@SEEDS.op(VMAP, "differs from a loop over the examples")
class BatchesPairsOnly(Square):
    """Right for the rank of its sample alone."""

    def batch(self, size, x, is_batched):
        return self(x[0]) * (1.0 if x[0].ndim == 3 else 2.0)


# ------------------------------------------------------------------------------------------------- axes


@SEEDS.op(NEGATIVE, "means? something else")
class DropsTheSignOfTheAxis(Total):
    decompose = None

    def infer(self, x):
        axis = abs(self.axis)
        if axis >= x.rank:
            raise ShapeError("too few axes")
        return x.with_shape((*x.shape[:axis], *x.shape[axis + 1 :]))

    def reference(self, x):
        return np.sum(x, axis=abs(self.axis))

    @classmethod
    def samples(cls):
        yield Sample("f32[2, 2, 2]", axis=0)


@SEEDS.op(NEGATIVE, "means? something else|shape")
class CountsFromTheEndOffByOne(Total):
    decompose = None

    def infer(self, x):
        if self.axis >= x.rank:
            raise ShapeError("too few axes")
        return x.with_shape(x.shape[:-1])

    def reference(self, x):
        return np.sum(x, axis=self.axis if self.axis >= 0 else max(self.axis - 1, -x.ndim))

    @classmethod
    def samples(cls):
        yield Sample("f32[2, 2]", axis=1)


# ------------------------------------------------------------------------------------------------- text


@SEEDS.op("prints_and_parses_back", "reads back as another program")
class DoublesWhatItIsGiven(Op):
    """An attribute whose converter changes what it converted before."""

    limit: float = field(default=1.0, converter=lambda value: value * 2)

    def decompose(self, x):
        return x * self.limit

    @classmethod
    def samples(cls):
        yield Sample("f32[3]", limit=0.5)
