"""Where the values of a plan lie, as kernels see them (`codegen.places`)."""

from __future__ import annotations

from attrs import evolve

from rlx_core.codegen.places import Layout, Place
from rlx_core.ir.graph import Constant, Param, Value
from rlx_core.ir.lir import Lir, Step
from rlx_core.pipeline.planning.alias import placement

__all__ = ["layout_of", "place_of"]


def place_of(value: Value, lir: Lir) -> Place:
    """Where a value lies, as its kernel sees it; the one element of a constant that has one becomes part of the kernel."""
    place = placement(value, lir.aliases)
    op = place.root.node.op
    is_bound = isinstance(op, Constant | Param) and place.root not in lir.donated
    literal = op.value.array.tobytes() if isinstance(op, Constant) and op.value.array.size == 1 else None
    return Place(value.type, place.strides, is_bound, literal=literal)


def layout_of(step: Step, lir: Lir) -> Layout:
    """Where the operands and results of a step lie."""
    node = step.node
    operands = [None if v is None else place_of(v, lir) for v in node.operands]
    for number in lir.parts_in(node):
        place = operands[number]
        assert place is not None, "what lies in a result is there"
        operands[number] = evolve(place, is_inside=True)
    return Layout(tuple(operands), tuple(place_of(v, lir) for v in node.results))
