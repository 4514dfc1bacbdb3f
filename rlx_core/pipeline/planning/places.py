"""Layouts of the values of a plan, as kernels see them (`codegen.places`)."""

from __future__ import annotations

from rlx_core.codegen.places import Layout, Place
from rlx_core.ir.graph import Constant, Param, Value
from rlx_core.ir.lir import Lir, Step, placement
from rlx_core.system.records import evolve


class Places:
    """The layouts of the values of a plan; each value is looked up once, although several steps read it.

    Args:
        lir: The plan.
    """

    def __init__(self, lir: Lir) -> None:
        self._lir = lir
        self._known: dict[Value, Place] = {}

    def of(self, value: Value) -> Place:
        """Return the layout of a value for its kernel."""
        result = self._known.get(value)
        if result is None:
            result = self._known[value] = place_of(value, self._lir)
        return result

    def layout_of(self, step: Step) -> Layout:
        """Return the layouts of the operands and results of a step."""
        node = step.node
        operands = [None if v is None else self.of(v) for v in node.operands]
        for number in self._lir.parts_in(node):
            place = operands[number]
            assert place is not None, "what lies in a result is there"
            operands[number] = evolve(place, is_inside=True)
        return Layout(tuple(operands), tuple([self.of(v) for v in node.results]))


def place_of(value: Value, lir: Lir) -> Place:
    """Return the layout of a value for its kernel; the value of a one-element constant becomes part of the kernel."""
    place = placement(value, lir.aliases)
    op = place.root.node.op
    is_bound = isinstance(op, Constant | Param) and place.root not in lir.donated
    literal = op.value.array.tobytes() if isinstance(op, Constant) and op.value.array.size == 1 else None
    return Place(value.type, place.strides, is_bound, literal=literal)


def layout_of(step: Step, lir: Lir) -> Layout:
    """Return the layouts of the operands and results of a step."""
    return Places(lir).layout_of(step)
