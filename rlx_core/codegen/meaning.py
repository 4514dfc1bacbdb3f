"""The ops that are one loop kernel on a target, the kernel, and when a result may reuse an operand's memory."""

from __future__ import annotations

from rlx_core.codegen.formula import Formula, Read, formula_of
from rlx_core.codegen.formula import Place as Element
from rlx_core.codegen.layout import kernel_of
from rlx_core.codegen.loops import Apply, Kernel
from rlx_core.codegen.places import Layout
from rlx_core.codegen.scalars.table import ScalarTable
from rlx_core.codegen.verify import check_kernel
from rlx_core.ir.graph import Node
from rlx_core.ir.op import Op
from rlx_core.ir.types import Shape, TensorType


def reason_against(table: ScalarTable, op: Op, types: tuple[TensorType | None, ...]) -> str | None:
    """Why an op on operands of these types is no loop kernel of steps with code, as "needs …" would continue; `None` if it is."""
    formula = formula_of(op, types)
    if formula is None:
        complex = next((t.dtype for t in types if t is not None and t.dtype.is_complex), None)
        return "a meaning that is one loop kernel" + (f" of the parts of {complex}" if complex else "")
    odd = {term.dtype for term in formula.terms}.difference(table.dtypes)
    if odd:
        return f"dtypes that {table.name} code has, not {' '.join(sorted(d.name for d in odd))}"
    for term in formula.terms:
        if isinstance(term, Apply):
            refused = table.refusal(term.op, tuple(formula.terms[a].dtype for a in term.args))
            if refused is not None:
                return refused
    return None


def is_settled(op: Op, types: tuple[TensorType | None, ...]) -> bool:
    """Return whether `reason_against` for an op on operands of unknown sizes is the same for all sizes above 0."""
    return formula_of(op, types, is_for_all=True) is not None


def is_read_in_place(node: Node) -> bool:
    """Return whether operands of a result's dims are read only at the position where that result is written.

    Where another result has more elements, all that work on those read the operand as well, whenever they come to it.
    """
    pairs = [
        (result, type, position)
        for result, type in enumerate(node.types)
        for position, value in enumerate(node.operands)
        if value is not None and value.type.shape == type.shape
    ]
    if not pairs:
        return True
    formula = formula_of(node.op, node.operand_types)
    return formula is not None and all(
        all(_is_no_larger(other, type) for other in node.types)
        and _is_read_at(formula, position, _written(formula, result), type)
        for result, type, position in pairs
    )


def is_settled_in_place(node: Node) -> bool:
    """Return whether `is_read_in_place` for a node with unknown sizes is the same for all sizes above 0."""
    one = node.types[0].shape
    return (
        is_settled(node.op, node.operand_types)
        and all(type.shape == one for type in node.types)
        and all(_is_always_or_never(value.type.shape, one) for value in node.present())
    )


def _is_always_or_never(shape: Shape, other: Shape) -> bool:
    """Return whether two shapes are equal for all sizes or for none."""
    if shape == other or len(shape) != len(other):
        return True
    return any(isinstance(a, int) and isinstance(b, int) and a != b for a, b in zip(shape, other, strict=True))


def _written(formula: Formula, result: int) -> Element:
    """Return the place of a result, which is also the place of both its parts."""
    return next(w.place for w in formula.writes if w.result == result)


def _is_no_larger(other: TensorType, type: TensorType) -> bool:
    if other.shape == type.shape:
        return True
    return isinstance(other.size, int) and isinstance(type.size, int) and other.size <= type.size


def _is_read_at(formula: Formula, operand: int, place: Element, type: TensorType) -> bool:
    """Return whether every read of an operand is of the element at `place`; axes of size 1 have one place only."""
    reads = [t for t in formula.terms if isinstance(t, Read) and t.operand == operand]
    return all(
        not r.dynamic and all(d == 1 or a == b for d, a, b in zip(type.shape, r.place, place, strict=True))
        for r in reads
    )


def loop_kernel(node: Node, layout: Layout) -> Kernel:
    """Return the kernel of a node whose operands and results have the given layout."""
    formula = formula_of(node.op, node.operand_types)
    assert formula is not None, f"{node.op.name} was accepted as a loop kernel"
    return check_kernel(kernel_of(formula, layout.operands, layout.results))
