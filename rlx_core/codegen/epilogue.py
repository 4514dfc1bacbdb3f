"""Functions of single elements as expressions: epilogues of products and of other element-wise results.

An op of the loop language without loops: reads, constants and scalar ops in SSA form, with all values in registers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from attrs import evolve

from rlx_core.codegen.formula import Read, Term, formula_of
from rlx_core.codegen.loops import Apply, Const, Index
from rlx_core.codegen.places import Place
from rlx_core.codegen.scalars.assembler import Assembler, V
from rlx_core.codegen.scalars.idioms import recognised
from rlx_core.codegen.scalars.long import LONG
from rlx_core.codegen.scalars.standard import IDIOMS
from rlx_core.codegen.scalars.table import ScalarTable
from rlx_core.ir.op import Op
from rlx_core.ir.text import attribute_text
from rlx_core.ir.types import TensorType
from rlx_core.ops import arithmetic
from rlx_core.ops.conversion import Cast
from rlx_core.ops.region import ElementwiseRegion
from rlx_core.system.records import frozen

Number = bool | int | float

_INFIX: dict[type[Op], str] = {
    arithmetic.add.op: "+",
    arithmetic.subtract.op: "-",
    arithmetic.multiply.op: "*",
    arithmetic.divide.op: "/",
}


@frozen(eq=False)
class Pointwise:
    """A function of single elements, as the loop language has it.

    Attributes:
        op: The op.
        terms: That meaning as steps; what no result needs is not among them.
        results: The terms that are results.
    """

    op: Op
    terms: tuple[Read | Const | Apply, ...]
    results: tuple[int, ...]

    @property
    def is_long(self) -> bool:
        """Whether it evaluates a transcendental function."""
        return any(isinstance(t, Apply) and type(t.op) in (*LONG, *IDIOMS) for t in self.terms)

    def apply(self, b: Assembler[V], table: ScalarTable, *operands: V) -> tuple[V, ...]:
        """The results of registers that hold the operands, all of them in as many lanes as the first."""
        values: list[V] = []
        for term in self.terms:
            if isinstance(term, Read):
                values.append(operands[term.operand])
            elif isinstance(term, Const):
                values.append(b.number(term.dtype.accumulator, term.number, operands[0]))
            else:
                dtypes = tuple(self.terms[a].dtype for a in term.args)
                values.append(table.apply(b, term.op, dtypes, tuple(values[a] for a in term.args)))
        return tuple(values[i] for i in self.results)

    def __str__(self) -> str:
        """See `expression`."""
        return expression(self.terms, self.results)


def expression(terms: Sequence[Term], results: Sequence[int]) -> str:
    """Return terms as text: an expression of `x`, operand 0, and `read1`, …; a value that is used twice has a name.

    For example `t3 = exp(x); t3 * t3`.
    """
    uses = Counter(a for t in terms if isinstance(t, Apply) for a in t.args)
    named: list[str] = []
    texts: list[str] = []
    for number, term in enumerate(terms):
        if isinstance(term, Apply) and uses[number] > 1:
            named.append(f"t{number} = {_without_brackets(_text(term, texts))}")
            texts.append(f"t{number}")
        else:
            texts.append(_text(term, texts))
    return "; ".join([*named, ", ".join(_without_brackets(texts[r]) for r in results)])


def _text(term: Term, texts: Sequence[str]) -> str:
    """Return one term, with the texts of those before it."""
    if isinstance(term, Read):
        return f"read{term.operand}" if term.operand else "x"
    if isinstance(term, Const):
        return attribute_text(term.number)
    if isinstance(term, Index):
        return f"index{term.axis}"
    if not isinstance(term, Apply):
        return f"{type(term).__name__.lower()}({_without_brackets(texts[term.arg])})"
    args = [texts[a] for a in term.args]
    if type(term.op) in _INFIX:
        return f"({args[0]} {_INFIX[type(term.op)]} {args[1]})"
    attributes = (f"{name}={attribute_text(v)}" for name, v in term.op.attributes().items())
    arguments = ", ".join([*map(_without_brackets, args), *attributes])
    return f"{term.op.name.rpartition('.')[2]}({arguments})"


def _without_brackets(text: str) -> str:
    """An expression on its own: brackets around all of it say nothing."""
    if not text.startswith("("):
        return text
    depth = 0
    for place, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0:
            return text[1:-1] if place == len(text) - 1 else text
    return text


def pointwise(
    table: ScalarTable, op: Op, types: tuple[TensorType, ...], numbers: Mapping[int, Number] | None = None
) -> Pointwise | None:
    """Return an op on operands of these types; `None` if it is not element-wise, or a step has no code.

    Args:
        table: The scalar functions of the target.
        op: The op.
        types: Types of the operands.
        numbers: Operands that are a known number everywhere.
    """
    formula = formula_of(op, types)
    if formula is None or formula.rows:
        return None
    known = numbers or {}
    all_terms = [
        Const(t.dtype, known[t.operand]) if isinstance(t, Read) and t.operand in known else t for t in formula.terms
    ]
    terms, results = needed(recognised(all_terms), [w.value for w in formula.writes])
    converted: list[Read | Const | Apply] = []
    for term in terms:
        if not isinstance(term, Read | Const | Apply):
            return None
        if isinstance(term, Apply) and table.refusal(term.op, tuple(terms[a].dtype for a in term.args)):
            return None
        converted.append(term)
    return Pointwise(op, tuple(converted), results)


def needed(terms: Sequence[Term], results: Sequence[int]) -> tuple[list[Term], tuple[int, ...]]:
    """The terms that results depend on, and which of them these are: idioms leave steps behind that nothing needs."""
    used = set(results)
    for number in reversed(range(len(terms))):
        term = terms[number]
        if number in used and isinstance(term, Apply):
            used.update(term.args)
    place = {old: new for new, old in enumerate(sorted(used))}
    moved = [
        evolve(t, args=tuple(place[a] for a in t.args)) if isinstance(t, Apply) else t
        for t in (terms[old] for old in place)
    ]
    return moved, tuple(place[r] for r in results)


def region_function(
    table: ScalarTable, region: ElementwiseRegion, types: Sequence[TensorType], others: Sequence[Place | None] = ()
) -> Pointwise | None:
    """The region behind the product of the first two operands; `None` if a step of it has no code.

    Of f16 and bf16 it is the region of f32, which is what registers hold: constants are not rounded either. Only where
    steps convert are dtypes meant as they are written.
    """
    read = (types[0].with_shape(region.shape), *types[2:])
    if not any(isinstance(step.op, Cast) for step in region.steps):
        read = tuple(t.with_dtype(t.dtype.accumulator) for t in read)
    numbers = {1 + i: number for i, p in enumerate(others) if p is not None and (number := p.number) is not None}
    return pointwise(table, region, read, numbers)


def reason_against(table: ScalarTable, region: ElementwiseRegion, operands: Sequence[TensorType]) -> str | None:
    """Return why a product of these operands with its region is not one kernel, as "needs …" would continue; `None` if it is."""
    dtype = operands[0].dtype
    results = region.infer(operands[0].with_shape(region.shape), *operands[2:])
    if any(t.dtype is not dtype for t in (results if isinstance(results, tuple) else (results,))):
        return f"results of the product's dtype, {dtype}"
    extra_dtypes = [t.dtype for t in operands[2:]]
    odd = sorted({d.name for d in extra_dtypes if d.kind != "bool" and d.accumulator is not dtype.accumulator})
    if odd:
        return f"operands that are {dtype.accumulator} or bool in registers, not {' '.join(odd)}"
    return None if region_function(table, region, operands) is not None else "a region whose steps have vector code"
