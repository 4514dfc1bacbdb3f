"""From a planned LIR and its code to a program."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from rlx_core.ir.lir import Lir
from rlx_core.pipeline.select.kernels import KernelTable
from rlx_core.run.code import Code
from rlx_core.run.memory import ProgramMemory
from rlx_core.run.parts import parts_of
from rlx_core.run.plan import Locations
from rlx_core.run.program import PlannedProgram

if TYPE_CHECKING:
    from rlx_core.run.poison import Guard


def planned_program(
    lir: Lir,
    kernels: KernelTable,
    memory: ProgramMemory,
    code: Callable[[Lir, Locations], Code],
    nested: Callable[[int, str, Lir], PlannedProgram],
) -> PlannedProgram:
    """The program of a plan.

    Args:
        memory: Where its values lie; with a margin, the program checks memory after every step.
        code: Compiles the plan, given the locations of its values.
        nested: Makes the program of a graph inside a step, given the step's number, the attribute and the plan.
    """
    guard: Guard | None = None
    if memory.margin:
        from rlx_core.run.poison import Guard, with_gaps  # here, because few programs are checked

        lir = with_gaps(lir)
        guard = Guard(lir)
    locations = Locations(lir)
    compiled = code(lir, locations)
    options = {"is_single": guard is not None, "skips_empty": not memory.is_host}
    return PlannedProgram(
        locations.plan(),
        memory,
        compiled,
        lambda: tuple(parts_of(lir, locations, kernels, compiled, nested, **options)),
        guard=guard,
        lir=lir,
    )
