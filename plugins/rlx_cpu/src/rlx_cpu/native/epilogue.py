"""What happens to a product's sums before they are stored: bias, activation, scale, residual, as stages on vectors.

A stage maps a vector of sums to another of the same shape and is told which elements it holds. Cheap stages run on the
accumulators; stages with long polynomials run on the finished tile while it is in the nearest cache, one row at a time,
because inlining them for every accumulator would be most of the code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from attrs import evolve, frozen

from rlx_core.codegen import formula_of
from rlx_core.codegen.formula import Read, Term
from rlx_core.codegen.loops import Apply, Const
from rlx_core.ir.dtypes import DType
from rlx_core.ir.op import Op
from rlx_core.ir.types import TensorType
from rlx_cpu.native import functions, ir, scalar
from rlx_cpu.native.build import I32, constant, register_type, width
from rlx_cpu.native.idioms import recognised
from rlx_cpu.native.simd import Simd, index, offset, times
from rlx_cpu.native.stored import Stored

__all__ = [
    "Epilogue",
    "Operand",
    "Spot",
    "Stage",
    "VectorFunction",
    "activation",
    "add",
    "multiply",
    "scale",
    "vector_function",
]


Number = bool | int | float


@frozen(eq=False)
class VectorFunction:
    """A function of single elements, as the loop language has it, on registers.

    Attributes:
        op: Whose meaning it is.
        terms: That meaning as steps; what no result needs is not among them.
        results: Which of them are results.
    """

    op: Op
    terms: tuple[Read | Const | Apply, ...]
    results: tuple[int, ...]

    @property
    def is_long(self) -> bool:
        """Whether it evaluates a transcendental function."""
        return any(isinstance(t, Apply) and type(t.op) in (*functions.OPS, *functions.IDIOMS) for t in self.terms)

    def __call__(self, b: ir.IRBuilder, *operands: ir.Value) -> tuple[ir.Value, ...]:
        lanes = width(operands[0])
        found: list[ir.Value] = []
        for term in self.terms:
            if isinstance(term, Read):
                found.append(operands[term.operand])
            elif isinstance(term, Const):
                found.append(constant(register_type(term.dtype, lanes), term.number))
            else:
                dtypes = tuple(self.terms[a].dtype for a in term.args)
                found.append(scalar.apply(b, term.op, dtypes, tuple(found[a] for a in term.args)))
        return tuple(found[i] for i in self.results)


def vector_function(
    op: Op, types: tuple[TensorType, ...], numbers: Mapping[int, Number] | None = None
) -> VectorFunction | None:
    """The code of an op on operands of these types; `None` if it is no function of single elements, or a step has no code.

    Args:
        op: What is computed.
        types: Of the operands.
        numbers: Operands that are a known number everywhere.
    """
    formula = formula_of(op, types)
    if formula is None or formula.rows:
        return None
    known = numbers or {}
    whole = [
        Const(t.dtype, known[t.operand]) if isinstance(t, Read) and t.operand in known else t for t in formula.terms
    ]
    terms, results = needed(recognised(whole), [w.value for w in formula.writes])
    found: list[Read | Const | Apply] = []
    for term in terms:
        if not isinstance(term, Read | Const | Apply):
            return None
        if isinstance(term, Apply) and scalar.refusal(term.op, tuple(terms[a].dtype for a in term.args)):
            return None
        found.append(term)
    return VectorFunction(op, tuple(found), results)


def needed(terms: Sequence[Term], results: Sequence[int]) -> tuple[list[Term], tuple[int, ...]]:
    """The terms that results depend on, and which of them these are: idioms leave steps behind that nothing needs."""
    kept = set(results)
    for number in reversed(range(len(terms))):
        term = terms[number]
        if number in kept and isinstance(term, Apply):
            kept.update(term.args)
    place = {old: new for new, old in enumerate(sorted(kept))}
    moved = [
        evolve(t, args=tuple(place[a] for a in t.args)) if isinstance(t, Apply) else t
        for t in (terms[old] for old in place)
    ]
    return moved, tuple(place[r] for r in results)


@frozen(eq=False)
class Spot:
    """Which elements a vector holds: `row`, and columns from `column` on.

    Attributes:
        batch: Which product of a batch.
        mask: The lanes that exist; `None` for all.
    """

    batch: ir.Value
    row: ir.Value
    column: ir.Value
    mask: ir.Value | None


Stage = Callable[[ir.IRBuilder, ir.Value, Spot], ir.Value]

Ask = Callable[[ir.IRBuilder, Spot], None]
"""Asks for what stages will read of a spot, long before they do."""


@frozen(eq=False)
class Epilogue:
    """Stages in order.

    Attributes:
        stages: What is applied.
        is_long: Whether the stages are too long to be repeated for every accumulator.
        asks: What has their operands brought near while the sums are made: a tile reads a few lines of many rows, which no
            processor foresees.
    """

    stages: tuple[Stage, ...] = ()
    is_long: bool = False
    asks: tuple[Ask, ...] = ()

    def apply(self, b: ir.IRBuilder, value: ir.Value, spot: Spot) -> ir.Value:
        for stage in self.stages:
            value = stage(b, value, spot)
        return value

    def then(self, stage: Stage, *, is_long: bool = False, asks: Sequence[Ask] = ()) -> Epilogue:
        """These stages and another."""
        return Epilogue((*self.stages, stage), self.is_long or is_long, (*self.asks, *asks))


@frozen(eq=False)
class Operand:
    """A tensor that a stage reads: a pointer, strides in bytes for a row and a column, and its dtype if it is not the sums'.

    What is read is what registers hold of that dtype: f32 of 16 bits, a mask of bools.
    """

    pointer: ir.Value
    by_row: int = 0
    by_column: int = 0
    dtype: DType | None = None

    def load(self, b: ir.IRBuilder, simd: Simd, spot: Spot) -> ir.Value:
        """The elements at a spot; broadcast along what has no stride."""
        stored = Stored(simd, self.dtype or simd.dtype)
        place = offset(b, self.pointer, times(b, spot.row, self.by_row), times(b, spot.column, self.by_column))
        if self.by_column == stored.itemsize:
            return stored.load(b, place, spot.mask)
        if self.by_column == 0:
            return simd.splat(b, stored.load_scalar(b, place))
        return _spread(b, stored, place, self.by_column, spot)


def add(simd: Simd, operand: Operand) -> Stage:
    """Add an operand: a bias has one number a column, a residual one for every element."""
    return lambda b, value, spot: b.fadd(value, operand.load(b, simd, spot))


def scale(simd: Simd, factor: float) -> Stage:
    """Multiply by a constant."""
    return lambda b, value, spot: b.fmul(value, simd.constant(factor))


def multiply(simd: Simd, operand: Operand) -> Stage:
    """Multiply by an operand: one number a row, say."""
    return lambda b, value, spot: b.fmul(value, operand.load(b, simd, spot))


def activation(function: Callable[[ir.IRBuilder, ir.Value], ir.Value]) -> Stage:
    """Apply a function of one variable."""
    return lambda b, value, spot: function(b, value)


def _spread(b: ir.IRBuilder, stored: Stored, place: ir.Value, stride: int, spot: Spot) -> ir.Value:
    """Elements `stride` bytes apart; lanes that do not exist repeat the first."""
    simd = stored.simd
    value: ir.Value = ir.Constant(register_type(stored.dtype, simd.lanes), ir.Undefined)
    for lane in range(simd.lanes):
        where = ir.Constant(I32, lane)
        step: ir.Value = index(lane * stride)
        if spot.mask is not None:
            step = b.select(b.extract_element(spot.mask, where), step, index(0))
        value = b.insert_element(value, stored.load_scalar(b, offset(b, place, step)), where)
    return value
